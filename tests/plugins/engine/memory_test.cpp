// What a run shares with the caller, what it copies, and what it says of that.
#include "engine_fixture.hpp"

namespace belay::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Floats = std::vector<float>;

// Floats one byte past where they may be read.
struct Shifted {
  explicit Shifted(Floats values) : bytes(values.size() * 4 + 4), dims{int64_t(values.size())} { write(values); }
  void write(const Floats& values) { std::memcpy(bytes.data() + 1, values.data(), values.size() * 4); }
  Floats values() const {
    Floats out(static_cast<size_t>(dims[0]));
    std::memcpy(out.data(), bytes.data() + 1, out.size() * 4);
    return out;
  }
  belay_tensor raw() {
    belay_tensor tensor{};
    tensor.hdr.struct_size = sizeof tensor;
    tensor.dtype = BELAY_DT_FLOAT32, tensor.rank = uint32_t(dims.size()), tensor.dims = dims.data();
    tensor.data = bytes.data() + 1, tensor.bytes = bytes.size() - 4;
    return tensor;
  }
  std::vector<char> bytes;
  std::vector<int64_t> dims;
};

TEST_F(EngineTest, WhatLiesWellIsSharedInEveryRun) {
  GraphMaker g;
  g.output(g.node("Neg", 13, {g.input("x", {D::dim(2)})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2}, {1, 2}), out = Tensor::of<float>({2}, {0, 0});
  ASSERT_TRUE(runner.set(0, in).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.input_memory(0), "8 shared");
  EXPECT_EQ(runner.output_memory(0), "8 shared");  // the context's own, read where it was made
  ASSERT_TRUE(runner.set_output(0, out).ok());
  in = Tensor::of<float>({2}, {3, 4});  // the same memory: a run reads what is there then
  ASSERT_TRUE(runner.set(0, in).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(out.values<float>(), (Floats{-3, -4}));
  EXPECT_EQ(runner.output_memory(0), "8 shared");
  const belay_executable_stats s = stats();
  EXPECT_EQ(s.input_bytes_shared, 16u);
  EXPECT_EQ(s.output_bytes_shared, 16u);
  EXPECT_EQ(s.input_bytes_copied + s.output_bytes_copied, 0u);
  EXPECT_THAT(runner.input_memory(1), HasSubstr("Input 1 is not there"));
  EXPECT_THAT(runner.output_memory(1), HasSubstr("Output 1 is not there"));
}

TEST_F(EngineTest, UnalignedInputsAreCopiedOnceInEachRunAndNeverStale) {
  GraphMaker g;
  g.output(g.node("Neg", 13, {g.input("x", {D::dim("n")})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Shifted in({1, 2, 3});
  ASSERT_TRUE(runner.set(0, in.raw()).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{-1, -2, -3}));
  EXPECT_EQ(runner.input_memory(0), "12 copied because it is not aligned to 4 bytes");
  in.write({4, 5, 6});  // lent still: the next run sees it, as it would in memory that is shared
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{-4, -5, -6}));
  EXPECT_EQ(stats().input_bytes_copied, 24u);
  Tensor aligned = Tensor::of<float>({3}, {7, 8, 9});
  ASSERT_TRUE(runner.set(0, aligned).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{-7, -8, -9}));
  EXPECT_EQ(runner.input_memory(0), "12 shared");
  EXPECT_EQ(stats().input_bytes_copied, 24u);
  // The same shape, elsewhere, without alignment: not by the short way.
  ASSERT_TRUE(runner.set(0, in.raw()).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{-4, -5, -6}));
  EXPECT_EQ(stats().input_bytes_copied, 36u);
}

TEST_F(EngineTest, StridedInputsAreCopiedWithTheirStridesNamed) {
  GraphMaker g;
  g.output(g.node("Neg", 13, {g.input("x", {D::dim(2), D::dim(2)})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  const int64_t strides[] = {1, 2};
  belay_tensor raw = in.raw();
  raw.strides = strides;
  ASSERT_TRUE(runner.set(0, raw).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{-1, -3, -2, -4}));
  EXPECT_EQ(runner.input_memory(0), "16 copied because its strides are [1,2], not those of dense elements");
}

TEST_F(EngineTest, AnAsynchronousRunCopiesToo) {
  GraphMaker g;
  g.output(g.node("Neg", 13, {g.input("x", {D::dim(2)})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Shifted in({1, 2});
  ASSERT_TRUE(runner.set(0, in.raw()).ok());
  ASSERT_TRUE(runner.run().ok());
  in.write({3, 4});
  belay_status ended = BELAY_INTERNAL;
  ASSERT_EQ(runner.run_async({&ended, [](void* user, belay_status status) BELAY_NOEXCEPT {
                                *static_cast<belay_status*>(user) = status;
                              }}),
            BELAY_DEFERRED);
  EXPECT_TRUE(host.run_one());  // the host copies, so it runs on a thread of the host's
  EXPECT_EQ(ended, BELAY_OK);
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{-3, -4}));
  EXPECT_EQ(stats().input_bytes_copied, 16u);
}

TEST_F(EngineTest, UnalignedOutputsAreCopiedOnce) {
  GraphMaker g;
  g.output(g.node("Neg", 13, {g.input("x", {D::dim(2)})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2}, {1, 2});
  Shifted out({0, 0});
  ASSERT_TRUE(runner.set(0, in).ok());
  ASSERT_TRUE(runner.set_output(0, out.raw()).ok());
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(runner.run().ok());
    EXPECT_EQ(out.values(), (Floats{-1, -2}));
    EXPECT_EQ(runner.output_memory(0), "8 copied because it is not aligned to 4 bytes");
    EXPECT_EQ(stats().output_bytes_copied, 8u * unsigned(i));
    out.write({0, 0});
  }
  EXPECT_EQ(stats().input_bytes_copied, 0u);
}

TEST_F(EngineTest, ResultsThatLieElsewhereSayWhy) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)}), y = g.node("Neg", 13, {x});
  g.output(y);
  g.output(y);
  g.output(x);
  g.output(g.constant<float>({5, 6}, {2}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2}, {1, 2}), out[4];
  ASSERT_TRUE(runner.set(0, in).ok());
  for (uint64_t i = 0; i < 4; ++i) {
    out[i] = Tensor::of<float>({2}, {0, 0});
    ASSERT_TRUE(runner.set_output(i, out[i]).ok());
  }
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(out[0].values<float>(), (Floats{-1, -2}));
  EXPECT_EQ(out[1].values<float>(), (Floats{-1, -2}));
  EXPECT_EQ(out[2].values<float>(), (Floats{1, 2}));
  EXPECT_EQ(out[3].values<float>(), (Floats{5, 6}));
  EXPECT_EQ(runner.output_memory(0), "8 shared");
  EXPECT_THAT(runner.output_memory(1), AllOf(StartsWith("8 copied"), HasSubstr("elements of output 'Neg1_0'")));
  EXPECT_THAT(runner.output_memory(2), AllOf(StartsWith("8 copied"), HasSubstr("it is input 'x'")));
  EXPECT_THAT(runner.output_memory(3), AllOf(StartsWith("8 copied"), HasSubstr("a constant of the model")));
  EXPECT_EQ(stats().output_bytes_copied, 24u);
}

TEST_F(EngineTest, AnOutputOverAnInputThatIsStillReadSaysWhich) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)}), neg = g.node("Neg", 13, {x});
  g.output(neg);
  g.output(g.node("Add", 14, {x, neg}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor both = Tensor::of<float>({2}, {1, 2});
  ASSERT_TRUE(runner.set(0, both).ok());
  ASSERT_TRUE(runner.set_output(0, both).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_THAT(runner.output_memory(0), AllOf(StartsWith("8 copied"), HasSubstr("that of input 'x'")));
}

TEST_F(EngineTest, ConstantsThatWereCopiedAreDescribedWithTheReason) {
  GraphMaker g;
  g.output(g.node("Add", 14, {g.input("x", {D::dim(2)}), g.constant<float>({1, 2}, {2})}));
  ASSERT_TRUE(load(g).ok());
  StringSink sink;
  ASSERT_EQ(executable->describe(executable, sink.sink()), BELAY_OK);
  EXPECT_THAT(sink.text(), HasSubstr("\"copies\":[{\"name\":\"c0\",\"bytes\":8,\"reason\":\"it was computed"));
}

TEST_F(FarDeviceTest, EachWayIsOneCopy) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)});
  g.output(g.node("Add", 14, {x, x}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2}, {1, 2}), out = Tensor::of<float>({2}, {0, 0});
  ASSERT_TRUE(runner.set(0, in).ok());
  const uint64_t before = host.copies;
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{2, 4}));
  EXPECT_EQ(host.copies - before, 2u);
  EXPECT_EQ(runner.input_memory(0), "8 copied because the far device does not address it");
  EXPECT_EQ(runner.output_memory(0), "8 copied because the device's memory is not the host's");
  ASSERT_TRUE(runner.set_output(0, out).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(out.values<float>(), (Floats{2, 4}));
  EXPECT_EQ(host.copies - before, 4u);
  EXPECT_EQ(runner.output_memory(0), "8 copied because the far device does not address it");
  EXPECT_EQ(stats().input_bytes_copied, 16u);
  EXPECT_EQ(stats().output_bytes_copied, 16u);
}

}  // namespace
}  // namespace belay::testing
