// Plans whose shapes are all known: running, memory, errors.
#include "engine_fixture.hpp"

namespace belay::testing {
namespace {

using ::testing::_;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

TEST_F(EngineTest, AChainRunsAndReusesItsMemory) {
  GraphMaker g;
  uint32_t x = g.input("x", {D::dim(4)});
  const uint32_t two = g.constant<float>({2}, {1});
  for (int i = 0; i < 6; ++i) x = g.node("Mul", 14, {x, two});
  g.output(x);
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({4}, {1, 2, 3, 4});
  ASSERT_TRUE(runner.set(0, in).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{64, 128, 192, 256}));
  const belay_executable_stats s = stats();
  EXPECT_EQ(s.kernels, 6u);
  EXPECT_EQ(s.runs, 1u);
  EXPECT_EQ(s.live_bytes, 32u);   // one is read while the next is written
  EXPECT_EQ(s.arena_bytes, 80u);  // two of 16 bytes at multiples of 64
  EXPECT_EQ(s.input_bytes_copied, 0u);
  EXPECT_EQ(s.output_bytes_copied, 0u);
  EXPECT_EQ(s.copied_bytes, 4u);
}

TEST_F(EngineTest, InPlaceKernelsShareOneBuffer) {
  toy->in_place = true;
  GraphMaker g;
  uint32_t x = g.input("x", {D::dim(4)});
  const uint32_t one = g.constant<float>({1}, {1});
  for (int i = 0; i < 4; ++i) x = g.node("Add", 14, {x, one});
  g.output(x);
  ASSERT_TRUE(load(g).ok());
  EXPECT_EQ(stats().arena_bytes, 16u);
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({4}, {1, 2, 3, 4});
  ASSERT_TRUE(runner.set(0, in).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{5, 6, 7, 8}));
  EXPECT_EQ(in.values<float>(), (Floats{1, 2, 3, 4}));  // the caller's input is nobody's to overwrite
}

TEST_F(EngineTest, AClaimOfTwoNodesIsTakenOnlyWhereNothingElseReadsBetween) {
  toy->fuse = true;
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)});
  const uint32_t a = g.node("Add", 14, {x, x}), r = g.node("Relu", 14, {a});
  g.output(r);
  ASSERT_TRUE(load(g).ok());
  EXPECT_EQ(stats().kernels, 1u);

  GraphMaker open;
  const uint32_t y = open.input("x", {D::dim(2)});
  const uint32_t b = open.node("Add", 14, {y, y}), q = open.node("Relu", 14, {b});
  open.output(q);
  open.output(b);
  executable.reset();
  ASSERT_TRUE(load(open).ok());
  EXPECT_EQ(stats().kernels, 2u);
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2}, {-1, 3});
  ASSERT_TRUE(runner.set(0, in).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{0, 6}));
  EXPECT_EQ(runner.output(1).values<float>(), (Floats{-2, 6}));
}

TEST_F(EngineTest, EachShapeHasItsPlanAndComesBackToIt) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim("n")});
  g.output(g.node("Neg", 13, {x}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  for (const int64_t n : {2, 5, 2, 5, 0}) {
    Tensor in = Tensor::of<float>({n}, Floats(size_t(n), 1.5f));
    ASSERT_TRUE(runner.set(0, in).ok());
    ASSERT_TRUE(runner.run().ok());
    EXPECT_EQ(runner.output(0).values<float>(), Floats(size_t(n), -1.5f));
  }
  EXPECT_EQ(stats().plan_misses, 3u);
  EXPECT_EQ(stats().plan_hits, 2u);
}

TEST_F(EngineTest, ShapeArithmeticIsDoneWhilePlanning) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim("n"), D::dim(3)});
  const uint32_t n = g.node("Gather", 13, {g.node("Shape", 15, {x}), g.constant<int64_t>({0}, {1})});
  const uint32_t size = g.node("Mul", 14, {n, g.constant<int64_t>({3}, {1})});
  g.output(g.node("Relu", 14, {g.node("Reshape", 14, {x, size})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2, 3}, {1, -2, 3, -4, 5, -6});
  ASSERT_TRUE(runner.set(0, in).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).dims, (std::vector<int64_t>{6}));
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{1, 0, 3, 0, 5, 0}));
  EXPECT_EQ(stats().kernels, 1u);
}

TEST_F(EngineTest, ResultsGoStraightToTheCallersMemory) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)});
  g.output(g.node("Neg", 13, {x}));
  g.output(x);  // an input that is a result needs a copy
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2}, {1, 2}), out = Tensor::of<float>({2}, {0, 0}), same = out;
  ASSERT_TRUE(runner.set(0, in).ok());
  ASSERT_TRUE(runner.set_output(0, out).ok());
  ASSERT_TRUE(runner.set_output(1, same).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(out.values<float>(), (Floats{-1, -2}));
  EXPECT_EQ(same.values<float>(), (Floats{1, 2}));
  EXPECT_EQ(stats().output_bytes_copied, 8u);
  // The same addresses with other numbers.
  Tensor next = Tensor::of<float>({2}, {7, 8});
  ASSERT_TRUE(runner.set(0, next).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(out.values<float>(), (Floats{-7, -8}));
  EXPECT_EQ(same.values<float>(), (Floats{7, 8}));
}

TEST_F(EngineTest, AResultOverAnInputIsWrittenWhenTheInputIsRead) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)});
  const uint32_t neg = g.node("Neg", 13, {x});
  g.output(neg);
  g.output(g.node("Add", 14, {x, neg}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor both = Tensor::of<float>({2}, {1, 2});
  ASSERT_TRUE(runner.set(0, both).ok());
  ASSERT_TRUE(runner.set_output(0, both).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(both.values<float>(), (Floats{-1, -2}));
  EXPECT_EQ(runner.output(1).values<float>(), (Floats{0, 0}));
}

// As a cache that grows in place: nothing is copied where the kernel alone reads the input and says that it may.
TEST_F(EngineTest, AResultMayTakeThePlaceOfTheInputItsKernelAloneReads) {
  for (const bool alone : {true, false}) {
    GraphMaker g;
    toy->in_place = true;
    const uint32_t x = g.input("x", {D::dim("n")});
    g.output(g.node("Relu", 14, {x}));
    if (!alone) g.output(g.node("Neg", 13, {x}));
    ASSERT_TRUE(load(g).ok());
    Runner runner(host, executable);
    Tensor both = Tensor::of<float>({2}, {1, -2}), other = Tensor::of<float>({2}, {-3, 4});
    ASSERT_TRUE(runner.set(0, both).ok());
    ASSERT_TRUE(runner.set_output(0, both).ok());
    ASSERT_TRUE(runner.run().ok());
    EXPECT_EQ(both.values<float>(), (Floats{1, 0}));
    EXPECT_EQ(stats().output_bytes_copied, alone ? 0u : 8u);
    if (!alone) {
      EXPECT_EQ(runner.output(1).values<float>(), (Floats{-1, 2}));
    }
    // The input moves away, and back again.
    ASSERT_TRUE(runner.set(0, other).ok());
    ASSERT_TRUE(runner.run().ok());
    EXPECT_EQ(both.values<float>(), (Floats{0, 4}));
    EXPECT_EQ(other.values<float>(), (Floats{-3, 4}));
    ASSERT_TRUE(runner.set(0, both).ok());
    ASSERT_TRUE(runner.run().ok());
    EXPECT_EQ(both.values<float>(), (Floats{0, 4}));
    if (!alone) {
      EXPECT_EQ(runner.output(1).values<float>(), (Floats{0, -4}));
    }
  }
}

TEST_F(EngineTest, AnOperatorThatNobodyClaimsIsNamedWithTheReason) {
  GraphMaker g;
  g.output(g.node("Sin", 7, {g.input("x", {D::dim(2)})}));
  const Status status = load(g);
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(),
              HasSubstr("node 'Sin1' (Sin), version 7 of domain 'ai.onnx', on (float32[2])"));
  EXPECT_THAT(status.message(), HasSubstr("toy: the toy knows no such operator"));
}

TEST_F(EngineTest, WrongInputsAreNamedWithWhatIsExpected) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim("n"), D::dim(3)});
  g.output(g.node("Neg", 13, {x}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Status status = runner.run();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("Input 'x'"));
  Tensor ints = Tensor::of<int64_t>({1, 3}, {1, 2, 3}), narrow = Tensor::of<float>({1, 2}, {1, 2});
  status = runner.set(0, ints);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("is int64[1,3], expected float32[?,3]"));
  EXPECT_THAT(runner.set(0, narrow).message(), HasSubstr("is float32[1,2], expected float32[?,3]"));
  EXPECT_EQ(runner.set(1, narrow).code(), Code::kOutOfRange);
}

TEST_F(EngineTest, TensorsThatDoNotHoldTogetherAreRefused) {
  GraphMaker g;
  g.output(g.node("Neg", 13, {g.input("x", {D::dim(2), D::dim(2)})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  belay_tensor raw = in.raw();
  raw.dims = nullptr;
  EXPECT_THAT(runner.set(0, raw).message(), HasSubstr("its dims are NULL"));
  EXPECT_THAT(runner.set_output(0, raw).message(), HasSubstr("its dims are NULL"));
  raw = in.raw();
  raw.rank = UINT32_MAX;
  EXPECT_THAT(runner.set(0, raw).message(), HasSubstr("at most 32"));
  EXPECT_THAT(runner.set_output(0, raw).message(), HasSubstr("at most 32"));
  const int64_t far[] = {int64_t{1} << 62, 1}, wide[] = {3, 1};
  raw = in.raw();
  raw.strides = far;
  EXPECT_EQ(runner.set(0, raw).code(), Code::kOutOfRange);
  raw.strides = wide;  // the last element would be the fifth of four
  EXPECT_THAT(runner.set(0, raw).message(), HasSubstr("has 16 bytes, float32[2,2] needs 20"));

  belay_datum datum{};
  datum.hdr.struct_size = sizeof datum;
  datum.kind = BELAY_TYPE_SEQUENCE;
  datum.item_count = 2;
  EXPECT_THAT(runner.set(0, datum).message(), HasSubstr("Item 0 of input 'x' is NULL"));
  const belay_datum* const itself[] = {&datum, &datum};
  datum.items = itself;
  EXPECT_THAT(runner.set(0, datum).message(), HasSubstr("more than 16 deep"));
}

// A thread that waited for a context it holds itself would wait for ever.
TEST_F(EngineTest, ACallerWithoutAContextIsToldSo) {
  GraphMaker g;
  g.output(g.node("Neg", 13, {g.input("x", {D::dim(1)})}));
  ASSERT_TRUE(load(g).ok());
  std::vector<std::unique_ptr<Runner>> runners;
  for (int i = 0; i < 16; ++i) runners.push_back(std::make_unique<Runner>(host, executable));
  EXPECT_TRUE(runners.back()->status.ok());
  EXPECT_EQ(Runner(host, executable).status.code(), Code::kResourceExhausted);
  runners.pop_back();
  EXPECT_TRUE(Runner(host, executable).status.ok());
}

TEST_F(EngineTest, AFailureNamesItsNodeAndTheContextWorksAgain) {
  GraphMaker g;
  g.output(g.node("Neg", 13, {g.input("x", {D::dim(1)})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({1}, {3});
  ASSERT_TRUE(runner.set(0, in).ok());
  host.fail_next = true;
  EXPECT_THAT(runner.run().message(), HasSubstr("node 'Neg1' (Neg)"));
  EXPECT_EQ(host.recoveries, 1u);
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), Floats{-3});
}

TEST_F(EngineTest, MoreMemoryThanTheDeviceHasIsRefused) {
  host.memory_bytes = 1000;
  GraphMaker g;
  g.output(g.node("Neg", 13, {g.node("Neg", 13, {g.input("x", {D::dim(300)})})}));
  const Status status = load(g);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("1200 bytes; the limit is 1000"));
}

TEST_F(EngineTest, AnInputWithADefaultMayBeLeftOut) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)});
  const std::vector<float> ten{10, 10};
  const uint32_t at = g.b.add_constant("d", BELAY_DT_FLOAT32, std::vector<int64_t>{2}, {ten.data(), 8});
  const uint32_t d = g.b.add_value(0, "d", g.b.tensor_type(BELAY_DT_FLOAT32, std::vector<int64_t>{2}), at);
  g.b.add_input(0, d);
  g.output(g.node("Add", 14, {x, d}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2}, {1, 2}), other = Tensor::of<float>({2}, {5, 5});
  ASSERT_TRUE(runner.set(0, in).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{11, 12}));
  ASSERT_TRUE(runner.set(1, other).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{6, 7}));
}

TEST_F(EngineTest, DescribeIsJsonWithPassesAndKernels) {
  GraphMaker g;
  g.output(g.node("Neg", 13, {g.input("x", {D::dim(1)})}));
  ASSERT_TRUE(load(g).ok());
  StringSink sink;
  ASSERT_EQ(executable->describe(executable, sink.sink()), BELAY_OK);
  EXPECT_THAT(sink.text(), HasSubstr("\"implementation\":\"toy\""));
  EXPECT_THAT(sink.text(), HasSubstr("\"name\":\"constant-folding\""));
}

// A device whose first heap is memory of the host, whose second is small and made for constants.
TEST_F(EngineTest, SmallConstantsGoToMemoryMadeForThemAndTheArenaToTheDevice) {
  for (const uint64_t room : {0u, 64u, 200u, 4096u}) {
    executable.reset();
    host.heaps = {{BELAY_HEAP_PINNED_HOST, 1 << 20}, {BELAY_HEAP_CONSTANT, room}, {BELAY_HEAP_DEVICE, 1 << 20}};
    GraphMaker g;
    const uint32_t x = g.input("x", {D::dim(64)});
    const uint32_t a = g.node("Add", 14, {x, g.constant<float>(Floats(64, 3), {64})});  // 256 bytes
    const uint32_t b = g.node("Mul", 14, {a, g.constant<float>({2}, {1})});
    g.output(g.node("Add", 14, {b, g.constant<float>({5}, {1})}));
    ASSERT_TRUE(load(g).ok());
    Runner runner(host, executable);
    Tensor in = Tensor::of<float>({64}, Floats(64, 1));
    ASSERT_TRUE(runner.set(0, in).ok());
    ASSERT_TRUE(runner.run().ok());
    EXPECT_EQ(runner.output(0).values<float>(), Floats(64, 13));
    EXPECT_EQ(host.heaps[1].used, room == 0 ? 0u : room == 64 ? 64u : room == 200 ? 128u : 384u);
    EXPECT_EQ(host.heaps[2].used, stats().arena_bytes + 384 - host.heaps[1].used);
  }
}

TEST_F(FarDeviceTest, WhatTheDeviceLacksRunsOnTheHostWithCopies) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)});
  const uint32_t sum = g.node("Add", 14, {x, g.constant<float>({1}, {1})});
  const uint32_t neg = g.node("Neg", 13, {sum});  // not on the device
  g.output(g.node("Add", 14, {neg, x}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2}, {1, 2});
  ASSERT_TRUE(runner.set(0, in).ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(runner.run().ok());
    EXPECT_EQ(runner.output(0).values<float>(), (Floats{-1, -1}));
  }
  EXPECT_GT(host.copies, 0u);
  EXPECT_GE(stats().fallback_kernels, 1u);
}

}  // namespace
}  // namespace belay::testing
