// [memory] checked: what is lent ends while it is used; an error says what, who and what to do, and nothing crashes.
#include <belay/runtime.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

namespace {

using belay::Code;
using belay::Status;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr char kDigitModel[] = BELAY_TEST_ROOT "/sdk/examples/digits/digits.onnx";

class LifetimeTest : public ::testing::Test {
 protected:
  explicit LifetimeTest(const char* checked = "memory.checked=true") {
    auto made = belay::Runtime::create({.sets = {"log.level=critical", checked}, .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
    EXPECT_TRUE(made.ok()) << made.status().message();
    runtime_ = std::move(made).value();
    device_ = runtime_.default_device().value();
    (void)belay::last_error();
  }
  // What the last call without a status failed with.
  static Status told() { return belay::last_error(); }
  // Work that takes long, in front of what comes next on the stream.
  static void delay(belay::Stream& stream) {
    ASSERT_TRUE(stream.host_call([] { std::this_thread::sleep_for(30ms); }).ok());
  }
  belay::Runtime runtime_;
  belay::Device device_;
};

TEST_F(LifetimeTest, ABufferThatQueuedWorkUsesIsWaitedForAndTold) {
  belay::Stream stream = device_.stream().value();
  auto memory = std::make_unique<std::array<char, 4096>>();
  std::optional<belay::Buffer> lent = device_.bind(memory->data(), memory->size()).value();
  belay::Buffer other = device_.alloc(4096).value();
  std::memset(other.host(), 7, 4096);
  delay(stream);
  ASSERT_TRUE(stream.copy(*lent, 0, other, 0, 4096).ok());
  lent.reset();
  const Status status = told();
  EXPECT_EQ((*memory)[4095], 7);  // the copy has ended: the memory may go
  memory.reset();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("over lent memory of 4096 bytes on '"), HasSubstr("(copy)"),
                                      HasSubstr("wait for its event first")));
  ASSERT_TRUE(stream.synchronize().ok());
  // After the event nothing is wrong.
  std::array<char, 64> more{};
  lent = device_.bind(more.data(), 64).value();
  const belay::Event event = stream.copy(*lent, 0, other, 0, 64).value();
  ASSERT_TRUE(event.synchronize().ok());
  lent.reset();
  EXPECT_TRUE(told().ok());
}

TEST_F(LifetimeTest, FillsKernelsAndTensorCopiesAreUsesToo) {
  belay::Stream stream = device_.stream().value();
  static const belay_kernel kernel{
      {sizeof(belay_kernel), 0, nullptr},
      [](const belay_exec*, const void*, const uint64_t* args) BELAY_NOEXCEPT -> belay_status {
        *reinterpret_cast<int*>(args[0]) = 5;
        return BELAY_OK;
      },
      nullptr, 0, {"five", 4}};
  for (const char* use : {"fill", "launch", "tensor_copy"}) {
    std::optional<belay::Buffer> buffer = device_.alloc(64).value();
    belay::Buffer other = device_.alloc(64).value();
    delay(stream);
    if (*use == 'f') {
      ASSERT_TRUE(stream.fill<uint32_t>(*buffer, 0, 64, 1).ok());
    }
    if (*use == 'l') {
      ASSERT_TRUE(stream.launch(kernel, {reinterpret_cast<uint64_t>(buffer->host()) + 8}).ok());
    }
    if (*use == 't') {
      const belay::Tensor target = other.tensor(BELAY_DT_UINT8, {64}), source = buffer->tensor(BELAY_DT_UINT8, {64});
      const belay_tensor to = target.raw(), from = source.raw();
      belay_event event{};
      ASSERT_EQ(runtime_.hal().tensor_copy(runtime_.host(), stream.get(), &to, &from, &event), BELAY_OK);
    }
    buffer.reset();
    EXPECT_THAT(told().message(), HasSubstr("(" + std::string(use) + ")")) << use;
    ASSERT_TRUE(stream.synchronize().ok());
  }
}

TEST_F(LifetimeTest, WaitsBetweenStreamsCarryWhatIsOver) {
  belay::Stream first = device_.stream().value(), second = device_.stream().value(), third = device_.stream().value();
  for (int round = 0; round < 100; ++round) {
    belay::Buffer one = first.alloc(4096).value(), other = second.alloc(4096).value();
    if (round % 10 == 0) delay(first);
    const belay::Event filled = first.fill<uint32_t>(one, 0, 4096, 7).value();
    ASSERT_TRUE(second.wait(filled).ok());
    const belay::Event copied = second.copy(other, 0, one, 0, 4096).value();
    ASSERT_TRUE(third.wait(copied).ok());
    const belay::Event last = third.host_call([] {}).value();
    const Status status = one.destroy_after({last});  // by way of the second
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(other.destroy_after({copied}).ok());
  }
  belay::Buffer buffer = first.alloc(4096).value();
  delay(first);
  const belay::Event filled = first.fill<uint32_t>(buffer, 0, 4096, 7).value();
  const belay::Event apart = third.host_call([] {}).value();
  EXPECT_THAT(buffer.destroy_after({apart}).message(), HasSubstr("or of work behind a wait for it"));
  EXPECT_TRUE(buffer.destroy_after({filled}).ok());
}

TEST_F(LifetimeTest, ABufferThatEndsInItsOwnWorkIsKeptUntilThat) {
  belay::Stream stream = device_.stream().value();
  std::optional<belay::Buffer> buffer = device_.alloc(64).value();
  Status status;
  delay(stream);
  ASSERT_TRUE(stream.host_call([&] {
                      buffer.reset();  // used by what comes after this step
                      status = told();
                    })
                  .ok());
  ASSERT_TRUE(stream.fill<uint32_t>(*buffer, 0, 64, 1).ok());
  ASSERT_TRUE(stream.synchronize().ok());
  EXPECT_THAT(status.message(), HasSubstr("(fill)"));
}

class LifetimeOfModelsTest : public LifetimeTest {
 protected:
  LifetimeOfModelsTest() {
    auto loaded = runtime_.load(kDigitModel);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    model_ = std::move(loaded).value();
    context_ = model_.context().value();
    EXPECT_TRUE(context_.set_input(0, belay::Tensor::of(pixels_, {1, 1, 8, 8})).ok());
    EXPECT_TRUE(context_.run().ok());
    expected_.assign(context_.output(0)->as<float>(), context_.output(0)->as<float>() + 10);
  }
  std::array<float, 64> pixels_{};
  std::vector<float> expected_;
  belay::Model model_;
  belay::Context context_;
};

TEST_F(LifetimeOfModelsTest, AnInputsBufferThatEndsIsNotRead) {
  auto memory = std::make_unique<std::array<float, 64>>();
  std::optional<belay::Buffer> lent = device_.bind(memory->data(), 256).value();
  for (const bool by_address : {false, true}) {
    ASSERT_TRUE(context_
                    .set_input(0, by_address ? belay::Tensor::of(*memory, {1, 1, 8, 8})
                                             : lent->tensor(BELAY_DT_FLOAT32, {1, 1, 8, 8}))
                    .ok());
    ASSERT_TRUE(context_.run().ok());
  }
  lent.reset();
  const Status status = told();
  memory.reset();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("over lent memory of 256 bytes"), HasSubstr("input 'image' of a context of"),
                                      HasSubstr("set other memory there")));
  const Status run = context_.run();
  EXPECT_EQ(run.code(), Code::kFailedPrecondition);
  EXPECT_THAT(run.message(), HasSubstr("input 'image' of a context of"));
  EXPECT_FALSE(context_.run_async([](const Status&) {}).ok());
  ASSERT_TRUE(context_.set_input(0, belay::Tensor::of(pixels_, {1, 1, 8, 8})).ok());
  ASSERT_TRUE(context_.run().ok());
  EXPECT_EQ(std::memcmp(context_.output(0)->data(), expected_.data(), 40), 0);
}

TEST_F(LifetimeOfModelsTest, AnOutputsBufferThatEndsIsNotWritten) {
  std::optional<belay::Buffer> out = device_.alloc(40).value();
  ASSERT_TRUE(context_.set_output(0, out->tensor(BELAY_DT_FLOAT32, {1, 10})).ok());
  ASSERT_TRUE(context_.run().ok());
  out.reset();
  EXPECT_THAT(told().message(), HasSubstr("output '"));
  EXPECT_EQ(context_.run().code(), Code::kFailedPrecondition);
  ASSERT_EQ(belay_context_set_output(context_.get(), 0, nullptr), BELAY_OK);
  EXPECT_TRUE(context_.run().ok());
  // Replaced before it ends: nothing is wrong.
  (void)told();
  out = device_.alloc(40).value();
  ASSERT_TRUE(context_.set_output(0, out->tensor(BELAY_DT_FLOAT32, {1, 10})).ok());
  ASSERT_EQ(belay_context_set_output(context_.get(), 0, nullptr), BELAY_OK);
  out.reset();
  EXPECT_TRUE(told().ok());
}

TEST_F(LifetimeOfModelsTest, WhatAQueuedRunUsesIsNotReplaced) {
  belay::Stream stream = device_.stream().value();
  std::array<float, 64> other{};
  delay(stream);
  const belay::Event event = context_.enqueue(stream).value();
  const Status status = context_.set_input(0, belay::Tensor::of(other, {1, 1, 8, 8}));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("The input 'image' of a context of"), HasSubstr("wait for its event first")));
  ASSERT_TRUE(event.synchronize().ok());
  EXPECT_TRUE(context_.set_input(0, belay::Tensor::of(other, {1, 1, 8, 8})).ok());
}

TEST_F(LifetimeOfModelsTest, ABufferThatAQueuedRunUsesIsWaitedFor) {
  belay::Stream stream = device_.stream().value();
  auto memory = std::make_unique<std::array<float, 10>>();
  std::optional<belay::Buffer> out = device_.bind(memory->data(), 40).value();
  ASSERT_TRUE(context_.set_output(0, out->tensor(BELAY_DT_FLOAT32, {1, 10})).ok());
  delay(stream);
  ASSERT_TRUE(context_.enqueue(stream).ok());
  out.reset();
  const Status status = told();
  EXPECT_EQ(std::memcmp(memory->data(), expected_.data(), 40), 0);
  memory.reset();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("(program_launch)"), HasSubstr("output '")));
  EXPECT_FALSE(context_.enqueue(stream).ok());
}

TEST_F(LifetimeOfModelsTest, AModelThatEndsBeforeItsContextsRunsNoMore) {
  std::ifstream file(kDigitModel, std::ios::binary);
  auto bytes = std::make_unique<std::string>((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::optional<belay::Model> model = runtime_.load_from_memory(bytes->data(), bytes->size()).value();
  belay::Context context = model->context().value();
  std::array<float, 10> answer{};
  belay::Stream stream = device_.stream().value();
  ASSERT_TRUE(context.set_input(0, belay::Tensor::of(pixels_, {1, 1, 8, 8})).ok());
  ASSERT_TRUE(context.set_output(0, belay::Tensor::of(answer, {1, 10})).ok());
  delay(stream);
  ASSERT_TRUE(context.enqueue(stream).ok());
  model.reset();
  const Status status = told();
  bytes.reset();
  EXPECT_EQ(std::memcmp(answer.data(), expected_.data(), 40), 0);  // the queued run has ended
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("before 1 context of it, 1 of them with a run that had not ended"),
                                      HasSubstr("destroy the contexts first")));
  const Status run = context.run();
  EXPECT_EQ(run.code(), Code::kFailedPrecondition);
  EXPECT_THAT(run.message(), HasSubstr("was destroyed"));
  EXPECT_FALSE(context.enqueue(stream).ok());
}

TEST_F(LifetimeOfModelsTest, AnOrderlyLifeTellsNothing) {
  for (int i = 0; i < 3; ++i) {
    belay::Stream stream = device_.stream().value();
    belay::Buffer in = device_.alloc(256).value(), out = device_.alloc(40).value();
    std::memset(in.host(), 0, 256);
    belay::Model model = runtime_.load(kDigitModel).value();
    belay::Context context = model.context().value();
    ASSERT_TRUE(context.set_input(0, in.tensor(BELAY_DT_FLOAT32, {1, 1, 8, 8})).ok());
    ASSERT_TRUE(context.set_output(0, out.tensor(BELAY_DT_FLOAT32, {1, 10})).ok());
    ASSERT_TRUE(context.run().ok());
    ASSERT_TRUE(context.enqueue(stream)->synchronize().ok());
    EXPECT_EQ(std::memcmp(out.host(), expected_.data(), 40), 0);
  }
  EXPECT_TRUE(told().ok()) << told().message();
}

}  // namespace
