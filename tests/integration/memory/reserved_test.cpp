// Memory behind reserved addresses comes and goes; whatever is queued or run where there is none is refused, with
// [memory] checked and without, and nothing crashes.
#include <belay/operator.hpp>
#include <belay/runtime.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <future>

namespace {

using belay::Code;
using belay::Operator;
using belay::Status;
using belay::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kReservedModel[] = BELAY_TEST_ROOT "/sdk/examples/digits/digits.onnx";
constexpr char kUnmapped[] = "which has 1048576 bytes reserved, 0 of them mapped";

class ReservedTest : public ::testing::TestWithParam<const char*> {
 protected:
  ReservedTest() {
    auto made = belay::Runtime::create({.sets = {"log.level=critical", GetParam()}, .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
    EXPECT_TRUE(made.ok()) << made.status().message();
    runtime_ = std::move(made).value();
    device_ = runtime_.default_device().value();
    stream_ = device_.stream().value();
    auto memory = device_.reserve(1 << 20);
    if (memory.status().code() == Code::kUnimplemented) return;  // what SetUp() skips
    memory_ = std::move(memory).value();
    model_ = runtime_.load(kReservedModel).value();
    context_ = model_.context().value();
    for (size_t i = 0; i < image_.size(); ++i) image_[i] = float(i * 7 % 17) / 16;
    EXPECT_TRUE(context_.set_input(0, image()).ok());
    EXPECT_TRUE(context_.run().ok());
    std::memcpy(expected_.data(), context_.output(0)->as<float>(), sizeof expected_);
  }
  void SetUp() override {
    if (!memory_.get()) GTEST_SKIP() << "the device has no virtual memory";
  }
  Tensor image() { return Tensor::of(image_, {1, 1, 8, 8}); }
  void map() { ASSERT_TRUE(memory_.map(0, 1 << 20).ok()); }
  void unmap() { ASSERT_TRUE(memory_.unmap(0, 1 << 20).ok()); }
  static void refused(const Status& status, const std::string& what) {
    EXPECT_EQ(status.code(), Code::kOutOfRange) << status.message();
    EXPECT_THAT(status.message(), AllOf(HasSubstr(what), HasSubstr(kUnmapped)));
  }
  // Every way to run it.
  void runs_are_refused(const std::string& what) {
    refused(context_.run(), what);
    refused(context_.enqueue(stream_).status(), what);
    refused(context_.run_async([](Status) { FAIL() << "it was refused"; }), what);
  }
  void runs_give(const float* answer) {
    for (int way = 0; way < 3; ++way) {
      if (way == 0) {
        ASSERT_TRUE(context_.run().ok());
      } else if (way == 1) {
        ASSERT_TRUE(context_.enqueue(stream_)->synchronize().ok());
      } else {
        std::promise<bool> done;
        ASSERT_TRUE(context_.run_async([&](Status status) { done.set_value(status.ok()); }).ok());
        ASSERT_TRUE(done.get_future().get());
      }
      EXPECT_EQ(std::memcmp(answer ? answer : context_.output(0)->as<float>(), expected_.data(), 40), 0);
    }
  }

  belay::Runtime runtime_;
  belay::Device device_;
  belay::Stream stream_;
  belay::Buffer memory_;
  belay::Model model_;
  belay::Context context_;
  std::array<float, 64> image_{};
  std::array<float, 10> expected_{};
};

INSTANTIATE_TEST_SUITE_P(Both, ReservedTest, ::testing::Values("memory.checked=false", "memory.checked=true"),
                         [](const auto& info) { return std::string(info.index ? "Checked" : "Unchecked"); });

TEST_P(ReservedTest, AnInputNeedsMemoryInEachRun) {
  ASSERT_TRUE(context_.set_input(0, memory_.tensor(BELAY_DT_FLOAT32, {1, 1, 8, 8}, 4096)).ok());
  runs_are_refused("input 'image' of a context of '");
  map();
  std::memcpy(static_cast<char*>(memory_.host()) + 4096, image_.data(), sizeof image_);
  runs_give(nullptr);
  unmap();
  runs_are_refused("lies in bytes 4096 to 4096 + 256 of a buffer");
  ASSERT_TRUE(context_.set_input(0, image()).ok());
  runs_give(nullptr);
}

TEST_P(ReservedTest, AnOutputNeedsMemoryInEachRun) {
  ASSERT_TRUE(context_.set_output(0, memory_.tensor(BELAY_DT_FLOAT32, {1, 10})).ok());
  runs_are_refused("output '");
  map();
  runs_give(static_cast<float*>(memory_.host()));
  unmap();
  runs_are_refused("output '");
}

TEST_P(ReservedTest, AddressesCountAsTheBufferTheyLieIn) {
  auto* const base = static_cast<char*>(memory_.host());
  ASSERT_TRUE(context_.set_input(0, Tensor(base, 256, BELAY_DT_FLOAT32, {1, 1, 8, 8})).ok());
  ASSERT_TRUE(context_.set_output(0, Tensor(base + 4096, 40, BELAY_DT_FLOAT32, {1, 10})).ok());
  runs_are_refused("input 'image'");
  map();
  std::memcpy(base, image_.data(), sizeof image_);
  runs_give(reinterpret_cast<float*>(base + 4096));
  // A part of it is not enough: the input has its memory still.
  ASSERT_TRUE(memory_.unmap(4096, (1 << 20) - 4096).ok());
  EXPECT_THAT(context_.run().message(), AllOf(HasSubstr("output '"), HasSubstr("4096 of them mapped")));
}

TEST_P(ReservedTest, StridesReachAsFarAsTheyDo) {
  map();
  auto* const base = static_cast<char*>(memory_.host());
  // Backwards over two pages from the second on.
  const auto rows = Tensor(base, 8192, BELAY_DT_FLOAT32, {2048}).slice(0, 0, 2048, 32)->reverse(0);
  belay_tensor raw = rows->raw();
  const int64_t dims[] = {1, 1, 8, 8}, strides[] = {0, 0, -256, -32};
  raw.rank = 4, raw.dims = dims, raw.strides = strides;
  for (size_t i = 0; i < 64; ++i) std::memcpy(base + (63 - i) * 128, &image_[i], 4);
  ASSERT_TRUE(context_.set_input(0, Tensor(raw)).ok());
  runs_give(nullptr);
  ASSERT_TRUE(memory_.unmap(0, 4096).ok());
  EXPECT_THAT(context_.run().message(), HasSubstr("lies in bytes 0 to 0 + 8068 of a buffer"));
}

TEST_P(ReservedTest, ABufferThatIsGoneHasNoMemory) {
  map();
  ASSERT_TRUE(context_.set_input(0, memory_.tensor(BELAY_DT_FLOAT32, {1, 1, 8, 8})).ok());
  memory_ = belay::Buffer();
  EXPECT_FALSE(context_.run().ok());
  EXPECT_FALSE(context_.enqueue(stream_).ok());
}

TEST_P(ReservedTest, ABufferOverReservedAddressesHasMemoryWhereTheyDo) {
  auto* const base = static_cast<char*>(memory_.host());
  const belay::Buffer part = device_.bind(base + 4096, 4096).value();
  const std::string text = "which has 4096 bytes from byte 4096 of one on, " + std::string(kUnmapped);
  EXPECT_THAT(stream_.fill<float>(part, 0, 64, 1.f).status().message(), HasSubstr(text));
  ASSERT_TRUE(context_.set_input(0, part.tensor(BELAY_DT_FLOAT32, {1, 1, 8, 8})).ok());
  runs_are_refused("input 'image'");
  EXPECT_EQ(part.map(0, 4096).code(), Code::kFailedPrecondition);  // only what was reserved is mapped
  map();
  ASSERT_TRUE(stream_.write(part, 0, image_.data(), sizeof image_).ok());
  ASSERT_TRUE(stream_.synchronize().ok());
  runs_give(nullptr);
  unmap();
  EXPECT_FALSE(stream_.fill<float>(part, 0, 64, 1.f).ok());
  runs_are_refused("input 'image'");
}

TEST_P(ReservedTest, OperatorsAndCopiesNeedMemory) {
  auto* const base = static_cast<char*>(memory_.host());
  std::array<float, 16> numbers{}, out{};
  const Tensor here = Tensor::of(numbers, {16}), there(base, 64, BELAY_DT_FLOAT32, {16}),
               buffer = memory_.tensor(BELAY_DT_FLOAT32, {16}), answer = Tensor::of(out, {16});
  const Operator add("Add"), constant = Operator("Add").constant(1);
  for (const Tensor& none : {there, buffer}) {
    refused(add.run(runtime_, stream_, {here, none}, {answer}).status(), "Input 1 of operator 'Add'");
    refused(add.run(runtime_, stream_, {here, here}, {none}).status(), "Output 0 of operator 'Add'");
    refused(runtime_.copy(stream_, none, here).status(), "The destination");
    refused(runtime_.copy(stream_, answer, none).status(), "The source");
  }
  refused(constant.run(runtime_, stream_, {here, there}, {answer}).status(), "Input 1 of operator 'Add'");
  refused(constant.prepare(runtime_, device_, {here, there}, {answer}), "Input 1 of operator 'Add'");
  const Operator filled = Operator("ConstantOfShape").attribute("value", Tensor(base, 4, BELAY_DT_FLOAT32, {1})).constant(0);
  std::array<int64_t, 1> shape{16};
  refused(filled.run(runtime_, stream_, {Tensor::of(shape, {1})}, {answer}).status(), "Attribute 0");
  std::array<int8_t, 16> bytes{};
  const Tensor scaled = Tensor::of(bytes, {16}).quantised(Tensor(base, 4, BELAY_DT_FLOAT32, {}), Tensor());
  refused(add.run(runtime_, stream_, {here, scaled}, {answer}).status(), "The scale of Input 1");
  map();
  for (const Tensor& some : {there, buffer}) {
    EXPECT_TRUE(add.run(runtime_, stream_, {here, some}, {answer}).ok());
    EXPECT_TRUE(runtime_.copy(stream_, some, here).ok());
  }
  EXPECT_TRUE(stream_.synchronize().ok());
}

TEST_P(ReservedTest, HostAddressesOfCopiesAndProgramsNeedMemory) {
  auto* const base = static_cast<char*>(memory_.host());
  const belay::Buffer other = device_.alloc(4096).value();
  refused(stream_.write(other, 0, base + 100, 64).status(), "host_src lies in bytes 100 to 100 + 64");
  refused(stream_.read(other, 0, base, 64).status(), "host_dst lies in bytes 0 to 0 + 64");
  map();
  EXPECT_TRUE(stream_.write(other, 0, base, 64).ok());
  EXPECT_TRUE(stream_.read(other, 0, base, 64).ok());
  ASSERT_TRUE(stream_.synchronize().ok());
  // What is captured needs it in each launch.
  ASSERT_TRUE(stream_.capture_begin().ok());
  EXPECT_TRUE(stream_.fill<float>(memory_, 8192, 64, 1.f).ok());
  EXPECT_TRUE(stream_.copy(other, 0, memory_, 8192, 64).ok());
  EXPECT_TRUE(stream_.read(other, 0, base + 12288, 64).ok());
  const belay::Program program = stream_.capture_end().value();
  ASSERT_TRUE(stream_.launch(program, {}).ok());
  ASSERT_TRUE(stream_.synchronize().ok());
  EXPECT_EQ(*reinterpret_cast<float*>(base + 12288), 1.f);
  ASSERT_TRUE(memory_.unmap(12288, 4096).ok());
  EXPECT_THAT(stream_.launch(program, {}).status().message(),
              HasSubstr("what it was captured from uses bytes 12288 to 12288 + 64 of a buffer"));
  // And a program that is captured as a part of another.
  ASSERT_TRUE(memory_.map(12288, 4096).ok());
  ASSERT_TRUE(stream_.capture_begin().ok());
  EXPECT_TRUE(stream_.launch(program, {}).ok());
  const belay::Program outer = stream_.capture_end().value();
  unmap();
  refused(stream_.launch(outer, {}).status(), "what it was captured from uses");
  ASSERT_TRUE(stream_.synchronize().ok());
}

}  // namespace
