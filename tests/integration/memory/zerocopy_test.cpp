// Inputs and outputs in memory of the application's: used where they lie or copied once, and the results are the same.
#include <belay/runtime.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

extern "C" int run_from_c(belay_model* model, void* pixels, void* answer, belay_io_memory* in, belay_io_memory* out);

namespace {

using belay::IoMemory;
using belay::Status;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kDigits[] = BELAY_TEST_ROOT "/sdk/examples/digits/digits.onnx";

class ZerocopyRunTest : public ::testing::Test {
 protected:
  void begin(std::vector<std::string> sets = {}) {
    sets.push_back("log.level=error");
    auto made = belay::Runtime::create({.sets = std::move(sets), .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
    ASSERT_TRUE(made.ok()) << made.status().message();
    runtime_ = std::move(made).value();
    auto model = runtime_.load(kDigits);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::move(model).value();
    context_ = model_.context().value();
    for (size_t i = 0; i < 64; ++i) pixels_[i] = float(i * 7 % 17) / 16;
    // As the context gives it by itself.
    ASSERT_TRUE(context_.set_input(0, belay::Tensor::of(pixels_, {1, 1, 8, 8})).ok());
    ASSERT_TRUE(context_.run().ok());
    std::memcpy(expected_.data(), context_.output(0)->as<float>(), 40);
  }
  // Runs on memory at these addresses; what was shared and copied.
  struct Moves {
    IoMemory in, out;
  };
  Moves run(void* in, void* out) {
    std::memmove(in, pixels_.data(), 256);
    std::memset(out, 0x55, 40);
    EXPECT_TRUE(context_.set_input(0, belay::Tensor(in, 256, BELAY_DT_FLOAT32, {1, 1, 8, 8})).ok());
    EXPECT_TRUE(context_.set_output(0, belay::Tensor(out, 40, BELAY_DT_FLOAT32, {1, 10})).ok());
    const Status status = context_.run();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(std::memcmp(out, expected_.data(), 40), 0);
    EXPECT_EQ(context_.output(0)->data(), out);
    return {context_.input_memory(0).value(), context_.output_memory(0).value()};
  }

  belay::Runtime runtime_;
  belay::Model model_;
  belay::Context context_;
  alignas(64) std::array<float, 64> pixels_{};
  std::array<float, 10> expected_{};
  alignas(64) std::array<char, 320> in_{};
  alignas(64) std::array<char, 128> out_{};
};

TEST_F(ZerocopyRunTest, AlignedMemoryIsNotCopied) {
  begin();
  const uint64_t before = model_.stats()->input_bytes_copied + model_.stats()->output_bytes_copied;
  EXPECT_EQ(before, 0u);
  for (const size_t offset : {0, 64, 4, 12}) {  // a kernel wants what its elements want
    const Moves moves = run(in_.data() + offset, out_.data() + offset);
    EXPECT_EQ(moves.in.shared_bytes, 256u);
    EXPECT_EQ(moves.out.shared_bytes, 40u);
    EXPECT_EQ(moves.in.copied_bytes + moves.out.copied_bytes, 0u) << moves.in.reason << moves.out.reason;
    EXPECT_EQ(moves.in.reason + moves.out.reason, "");
  }
  const auto stats = model_.stats();
  EXPECT_EQ(stats->input_bytes_copied + stats->output_bytes_copied, 0u);
  EXPECT_EQ(stats->input_bytes_shared, 5 * 256u);
}

TEST_F(ZerocopyRunTest, UnalignedMemoryIsCopiedOnceWithTheAddress) {
  begin();
  const Moves moves = run(in_.data() + 1, out_.data() + 2);
  EXPECT_EQ(moves.in.copied_bytes, 256u);
  EXPECT_EQ(moves.out.copied_bytes, 40u);
  EXPECT_EQ(moves.in.shared_bytes + moves.out.shared_bytes, 0u);
  EXPECT_THAT(moves.in.reason, AllOf(HasSubstr("its address 0x"), HasSubstr("1 is not aligned to 4 bytes")));
  EXPECT_THAT(moves.out.reason, AllOf(HasSubstr("its address 0x"), HasSubstr("2 is not aligned to 4 bytes")));
  EXPECT_EQ(model_.stats()->input_bytes_copied, 256u);
  EXPECT_EQ(model_.stats()->output_bytes_copied, 40u);
}

TEST_F(ZerocopyRunTest, StructsThatSayToHaveNoFieldsAreRefused) {
  begin();
  const belay::Tensor image = belay::Tensor::of(pixels_, {1, 1, 8, 8});
  belay_tensor tensor = image.raw(), empty = tensor;
  empty.hdr.struct_size = 0;
  belay_datum datum{{sizeof datum, 0, nullptr}, BELAY_TYPE_TENSOR, 0, &tensor, nullptr, 0};
  EXPECT_TRUE(context_.set_input(0, &datum).ok());
  datum.hdr.struct_size = 0;
  EXPECT_THAT(context_.set_input(0, &datum).message(),
              AllOf(HasSubstr("input 'image' of a context"), HasSubstr("is a datum of struct_size 0, want ")));
  datum.hdr.struct_size = sizeof datum, datum.tensor = &empty;
  EXPECT_THAT(context_.set_input(0, &datum).message(), HasSubstr("has struct_size 0, want "));
  const belay_datum* const items[] = {&datum};
  const belay_datum list{{sizeof list, 0, nullptr}, BELAY_TYPE_SEQUENCE, 0, nullptr, items, 1};
  EXPECT_THAT(context_.set_input(0, &list).message(), HasSubstr("Item 0 of set_input: The input 'image'"));
  EXPECT_THAT(belay::take(belay_context_set_output(context_.get(), 0, &empty)).message(),
              AllOf(HasSubstr("output '"), HasSubstr("has struct_size 0, want ")));
  EXPECT_TRUE(context_.run().ok());
}

TEST_F(ZerocopyRunTest, MemoryToBeReadMayBeBoundAsACopy) {
  begin({"plugin.zerocopy.config.least=1MiB"});
  const Status refused = runtime_.default_device()->bind(in_.data(), 256).status();
  EXPECT_THAT(refused.message(), HasSubstr("or ask for access READ"));
  auto copy = runtime_.default_device()->bind(in_.data(), 256, BELAY_ACCESS_READ);
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  EXPECT_NE(copy->host(), in_.data());
}

TEST_F(ZerocopyRunTest, StridedInputsAreCopiedOnce) {
  begin();
  std::array<float, 64> columns;  // [x, y], seen as [y, x]
  for (size_t y = 0; y < 8; ++y)
    for (size_t x = 0; x < 8; ++x) columns[x * 8 + y] = pixels_[y * 8 + x];
  ASSERT_TRUE(context_.set_input(0, belay::Tensor::of(columns, {1, 1, 8, 8}).permute({0, 1, 3, 2}).value()).ok());
  ASSERT_TRUE(context_.run().ok());
  EXPECT_EQ(std::memcmp(context_.output(0)->data(), expected_.data(), 40), 0);
  const IoMemory in = context_.input_memory(0).value();
  EXPECT_EQ(in.copied_bytes, 256u);
  EXPECT_THAT(in.reason, HasSubstr("its strides are [64,64,1,8]"));
}

TEST_F(ZerocopyRunTest, ThePolicysKeysDecide) {
  begin({"plugin.zerocopy.config.least=100", "plugin.zerocopy.config.written=false"});
  const Moves moves = run(in_.data(), out_.data());
  EXPECT_EQ(moves.in.shared_bytes, 256u);
  EXPECT_EQ(moves.out.copied_bytes, 40u);
  EXPECT_THAT(moves.out.reason, HasSubstr("plugin.zerocopy.config.written is false"));
}

TEST_F(ZerocopyRunTest, WithoutAPolicyWhatCanBeSharedIs) {
  begin({"memory.policies=[]"});
  Moves moves = run(in_.data(), out_.data());
  EXPECT_EQ(moves.in.shared_bytes, 256u);
  EXPECT_EQ(moves.out.shared_bytes, 40u);
  moves = run(in_.data() + 3, out_.data() + 3);
  EXPECT_EQ(moves.in.copied_bytes, 256u);
  EXPECT_EQ(moves.out.copied_bytes, 40u);
  EXPECT_THAT(moves.in.reason, HasSubstr("not aligned to 4 bytes"));
}

TEST_F(ZerocopyRunTest, BuffersOfTheDeviceAreUsedWhereTheyLie) {
  begin();
  const belay::Device device = runtime_.default_device().value();
  belay::Buffer in = device.alloc(300).value(), out = device.alloc(64).value();
  std::memcpy(static_cast<char*>(in.host()) + 4, pixels_.data(), 256);
  std::memcpy(static_cast<char*>(in.host()) + 41, pixels_.data(), 256);
  ASSERT_TRUE(context_.set_output(0, out.tensor(BELAY_DT_FLOAT32, {1, 10}, 8)).ok());
  for (const uint64_t offset : {4, 41}) {
    if (offset == 41) std::memcpy(static_cast<char*>(in.host()) + 41, pixels_.data(), 256);
    else std::memcpy(static_cast<char*>(in.host()) + 4, pixels_.data(), 256);
    ASSERT_TRUE(context_.set_input(0, in.tensor(BELAY_DT_FLOAT32, {1, 1, 8, 8}, offset)).ok());
    ASSERT_TRUE(context_.run().ok());
    EXPECT_EQ(std::memcmp(static_cast<char*>(out.host()) + 8, expected_.data(), 40), 0);
    EXPECT_EQ(context_.output_memory(0)->shared_bytes, 40u);
    const IoMemory moved = context_.input_memory(0).value();
    EXPECT_EQ(moved.shared_bytes, offset == 4 ? 256u : 0u);
    EXPECT_EQ(moved.copied_bytes, offset == 4 ? 0u : 256u);
    if (offset == 41) {
      EXPECT_THAT(moved.reason, HasSubstr("byte 41 of its buffer is not aligned to 4 bytes"));
    }
  }
  context_ = {};  // before what it was lent
}

TEST_F(ZerocopyRunTest, QueuedRunsShareAndCopyInTheirTurn) {
  begin();
  belay::Stream stream = runtime_.default_device()->stream().value();
  std::memcpy(in_.data(), pixels_.data(), 256);
  ASSERT_TRUE(context_.set_input(0, belay::Tensor(in_.data(), 256, BELAY_DT_FLOAT32, {1, 1, 8, 8})).ok());
  ASSERT_TRUE(context_.set_output(0, belay::Tensor(out_.data() + 1, 40, BELAY_DT_FLOAT32, {1, 10})).ok());
  const auto event = context_.enqueue(stream);
  ASSERT_TRUE(event.ok()) << event.status().message();
  ASSERT_TRUE(event->synchronize().ok());
  EXPECT_EQ(std::memcmp(out_.data() + 1, expected_.data(), 40), 0);
  EXPECT_EQ(context_.input_memory(0)->shared_bytes, 256u);
  EXPECT_EQ(context_.output_memory(0)->copied_bytes, 40u);
  // What must be copied is copied in its turn: the run sees what a step before it writes.
  std::memset(in_.data() + 1, 0, 256);
  ASSERT_TRUE(context_.set_input(0, belay::Tensor(in_.data() + 1, 256, BELAY_DT_FLOAT32, {1, 1, 8, 8})).ok());
  for (int i = 0; i < 3; ++i) {
    std::memset(out_.data(), 0, 64);
    ASSERT_TRUE(stream
                    .host_call([&] {
                      std::this_thread::sleep_for(std::chrono::milliseconds(5));
                      std::memcpy(in_.data() + 1, pixels_.data(), 256);
                    })
                    .ok());
    const auto late = context_.enqueue(stream);
    ASSERT_TRUE(late.ok()) << late.status().message();
    // Its block is not given to anybody while it is used.
    if (i == 1) {
      ASSERT_TRUE(context_.set_input(0, belay::Tensor(in_.data() + 1, 256, BELAY_DT_FLOAT32, {1, 1, 8, 8})).ok());
    }
    ASSERT_TRUE(late->synchronize().ok());
    EXPECT_EQ(std::memcmp(out_.data() + 1, expected_.data(), 40), 0);
    EXPECT_EQ(context_.input_memory(0)->copied_bytes, 256u);
    std::memset(in_.data() + 1, 0, 256);
  }
}

TEST_F(ZerocopyRunTest, FromC) {
  begin();
  belay_io_memory in{}, out{};
  std::memcpy(in_.data(), pixels_.data(), 256);
  ASSERT_EQ(run_from_c(model_.get(), in_.data(), out_.data(), &in, &out), 0);
  EXPECT_EQ(std::memcmp(out_.data(), expected_.data(), 40), 0);
  EXPECT_EQ(in.shared_bytes, 256u);
  EXPECT_EQ(out.shared_bytes, 40u);
  EXPECT_EQ(in.copied_bytes + out.copied_bytes + in.reason.len + out.reason.len, 0u);
  std::memmove(in_.data() + 2, in_.data(), 256);
  ASSERT_EQ(run_from_c(model_.get(), in_.data() + 2, out_.data() + 1, &in, &out), 0);
  EXPECT_EQ(std::memcmp(out_.data() + 1, expected_.data(), 40), 0);
  EXPECT_EQ(in.copied_bytes, 256u);
  EXPECT_EQ(out.copied_bytes, 40u);
  EXPECT_EQ(in.shared_bytes + out.shared_bytes, 0u);
  EXPECT_GT(in.reason.len, 0u);
}

}  // namespace
