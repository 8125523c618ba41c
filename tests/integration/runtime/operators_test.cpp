// Single operators, tensors with strides and reserved memory on the CPU device, with the plugins that a user
// gets.
#include "fakes/fork.h"

#include <belay/operator.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

namespace {

using belay::Code;
using belay::Operator;
using belay::Status;
using belay::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kDigits[] = BELAY_TEST_ROOT "/sdk/examples/digits/digits.onnx";

belay::Runtime made_runtime(std::vector<std::string> sets = {}) {
  sets.insert(sets.end(), {"log.level=error", "engine.threads=2"});
  auto made = belay::Runtime::create({.sets = std::move(sets), .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

std::vector<float> numbers(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> from(-1, 1);
  std::vector<float> out(count);
  for (float& number : out) number = from(random);
  return out;
}

class OperatorsTest : public ::testing::Test {
 protected:
  // Waits for it; the failure, whoever told it.
  Status run(const Operator& op, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
    BELAY_ASSIGN(const belay::Event done, op.run(runtime_, stream_, inputs, outputs));
    Status status = done.synchronize();
    if (!status.ok()) {
      EXPECT_TRUE(stream_.recover().ok());
    }
    return status;
  }
  belay_op_cache_stats stats() {
    belay_op_cache_stats stats{};
    stats.hdr.struct_size = sizeof stats;
    EXPECT_TRUE(belay::take(belay_op_stats(runtime_.get(), &stats)).ok());
    return stats;
  }
  belay::Runtime runtime_ = made_runtime();
  belay::Device device_ = runtime_.default_device().value();
  belay::Stream stream_ = device_.stream().value();
};

// Old forms are lifted to newer ones before anything checks them.
TEST_F(OperatorsTest, AnOldFormThatLacksItsOperandsOrHasAnAttributeOfAnotherKindIsRefused) {
  std::vector<float> a = numbers(6, 1), b = numbers(6, 2), c(6);
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax", "PRelu", "Pad", "Clip", "Slice", "TopK", "Dropout"})
    EXPECT_THAT(run(Operator(op, 1), {}, {Tensor::of(c, {6})}).message(), HasSubstr(op));
  const Status status = run(Operator("Add", 1).attribute("broadcast", 1).attribute("axis", 0.5f),
                            {Tensor::of(a, {2, 3}), Tensor::of(b, {2, 3})}, {Tensor::of(c, {2, 3})});
  if (status.ok()) {
    for (size_t i = 0; i < c.size(); ++i) EXPECT_EQ(c[i], a[i] + b[i]);
  } else {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
  }
}

TEST_F(OperatorsTest, AnOperatorGivesWhatPlainLoopsGive) {
  std::vector<float> a = numbers(6 * 5, 1), b = numbers(5 * 7, 2), c(6 * 7);
  const Status status =
      run(Operator("MatMul"), {Tensor::of(a, {6, 5}), Tensor::of(b, {5, 7})}, {Tensor::of(c, {6, 7})});
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < 6; ++i)
    for (size_t j = 0; j < 7; ++j) {
      double sum = 0;
      for (size_t k = 0; k < 5; ++k) sum += double(a[i * 5 + k]) * double(b[k * 7 + j]);
      EXPECT_NEAR(c[i * 7 + j], sum, 1e-5);
    }
}

TEST_F(OperatorsTest, WorkOfAStreamIsInOrderAndMemoryMayBeUsedInPlace) {
  std::vector<float> x = numbers(1000, 3), y = numbers(1000, 4), expected(1000);
  for (size_t i = 0; i < 1000; ++i) expected[i] = std::max(x[i] * y[i] + y[i], 0.0f);
  const Tensor tx = Tensor::of(x, {10, 100}), ty = Tensor::of(y, {10, 100});
  // The first waits for a callback, so that all of them are queued before any runs.
  std::atomic<bool> go{false};
  ASSERT_TRUE(stream_
                  .host_call([&] {
                    while (!go) std::this_thread::yield();
                  })
                  .ok());
  ASSERT_TRUE(Operator("Mul").run(runtime_, stream_, {tx, ty}, {tx}).ok());
  ASSERT_TRUE(Operator("Add").run(runtime_, stream_, {tx, ty}, {tx}).ok());
  const auto last = Operator("Relu").run(runtime_, stream_, {tx}, {tx});
  ASSERT_TRUE(last.ok()) << last.status().message();
  EXPECT_FALSE(last->reached());
  go = true;
  ASSERT_TRUE(last->synchronize().ok());
  EXPECT_EQ(x, expected);
}

TEST_F(OperatorsTest, AttributesAndConstantInputsCount) {
  std::vector<float> x(2 * 3 * 4), sums(2 * 4), whole(1), flat(24);
  std::iota(x.begin(), x.end(), 0.0f);
  const Tensor tx = Tensor::of(x, {2, 3, 4});
  std::vector<int64_t> axes = {1}, shape = {24};
  Status status = run(Operator("ReduceSum", 13).attribute("keepdims", 0).constant(1),
                      {tx, Tensor::of(axes, {1})}, {Tensor::of(sums, {2, 4})});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(sums, (std::vector<float>{12, 15, 18, 21, 48, 51, 54, 57}));
  status = run(Operator("ReduceSum", 13).attribute("keepdims", 0), {tx}, {Tensor::of(whole, {})});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(whole[0], 276);
  status = run(Operator("Reshape").constant(1), {tx, Tensor::of(shape, {1})}, {Tensor::of(flat, {24})});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(flat, x);
  std::vector<float> moved(24);
  status = run(Operator("Transpose").attribute("perm", {2, 0, 1}), {tx}, {Tensor::of(moved, {4, 2, 3})});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(moved[1], 4);
  EXPECT_EQ(moved[6], 1);
}

TEST_F(OperatorsTest, ShapesThatDependOnOperandsNeedThemConstant) {
  std::vector<float> x = numbers(24, 5), flat(24);
  std::vector<int64_t> shape = {24};
  const Status status =
      run(Operator("Reshape"), {Tensor::of(x, {2, 12}), Tensor::of(shape, {1})}, {Tensor::of(flat, {24})});
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'Reshape'"), HasSubstr("cannot be queued on a stream")));
}

TEST_F(OperatorsTest, WhatDoesNotFitTheStandardIsNamed) {
  std::vector<float> x = numbers(6, 6), y(6), more(12);
  const Tensor tx = Tensor::of(x, {2, 3});
  EXPECT_THAT(run(Operator("Relu"), {tx}, {Tensor::of(more, {3, 4})}).message(),
              AllOf(HasSubstr("float32[2,3]"), HasSubstr("float32[3,4]"), HasSubstr("'Relu'")));
  EXPECT_THAT(run(Operator("MatMul"), {tx, tx}, {Tensor::of(y, {2, 3})}).message(), HasSubstr("MatMul"));
  const Status unknown = run(Operator("Frobnicate"), {tx}, {Tensor::of(y, {2, 3})});
  EXPECT_EQ(unknown.code(), Code::kUnimplemented);
  EXPECT_THAT(unknown.message(), HasSubstr("Frobnicate"));
  EXPECT_TRUE(run(Operator("Relu"), {tx}, {Tensor::of(y, {2, 3})}).ok());  // nothing of it stays
}

TEST_F(OperatorsTest, OperandsWithStridesAreSeenAsTheyLie) {
  std::vector<float> a = numbers(8 * 6, 7), b = numbers(6 * 8, 8), c(2 * 8 * 8, -1);
  const Tensor columns = Tensor::of(a, {8, 6}).permute({1, 0}).value();  // 6 x 8
  const Tensor other = Tensor::of(b, {6, 8});
  const Tensor every_second = Tensor::of(c, {6, 16}).slice(1, 0, 16, 2).value();
  const Status status = run(Operator("Sub"), {columns, other}, {every_second});
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < 6; ++i)
    for (size_t j = 0; j < 8; ++j) {
      EXPECT_EQ(c[i * 16 + 2 * j], a[j * 6 + i] - b[i * 8 + j]);
      EXPECT_EQ(c[i * 16 + 2 * j + 1], -1);
    }
}

TEST_F(OperatorsTest, QuantisedOperandsStandForRealNumbers) {
  std::vector<uint8_t> a(4 * 6), c(4 * 5);
  std::vector<int8_t> b(6 * 5);
  std::mt19937 random(9);
  for (auto& value : a) value = uint8_t(random());
  for (auto& value : b) value = int8_t(random());
  std::vector<float> scale_a = {0.02f}, scale_b = {0.01f, 0.02f, 0.03f, 0.04f, 0.05f}, scale_c = {0.1f};
  std::vector<uint8_t> zero_a = {120}, zero_c = {100};
  std::vector<int8_t> zero_b(5, 0);
  const Status status =
      run(Operator("MatMul"),
          {Tensor::of(a, {4, 6}).quantised(Tensor(scale_a.data(), 4, BELAY_DT_FLOAT32, {}),
                                           Tensor(zero_a.data(), 1, BELAY_DT_UINT8, {})),
           Tensor::of(b, {6, 5}).quantised_along(1, Tensor::of(scale_b, {5}), Tensor::of(zero_b, {5}))},
          {Tensor::of(c, {4, 5}).quantised(Tensor(scale_c.data(), 4, BELAY_DT_FLOAT32, {}),
                                           Tensor(zero_c.data(), 1, BELAY_DT_UINT8, {}))});
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 5; ++j) {
      double sum = 0;
      for (size_t k = 0; k < 6; ++k)
        sum += (double(a[i * 6 + k]) - 120) * 0.02 * double(b[k * 5 + j]) * double(scale_b[j]);
      const double stored = std::clamp(std::nearbyint(sum / 0.1) + 100, 0.0, 255.0);
      EXPECT_NEAR(c[i * 5 + j], stored, 1);  // a sum that lies between two steps may go to either
    }
}

TEST_F(OperatorsTest, ThreadsAndStreamsShareWhatIsPrepared) {
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      belay::Stream own = device_.stream().value();
      for (uint32_t i = 0; i < 40; ++i) {
        const int64_t size = 1 + i % 5;
        std::vector<float> x = numbers(size_t(size) * 8, t * 100 + i), y = x, sum(x.size());
        const auto done = Operator("Add").run(runtime_, i % 2 ? own : stream_,
                                              {Tensor::of(x, {size, 8}), Tensor::of(y, {size, 8})},
                                              {Tensor::of(sum, {size, 8})});
        ASSERT_TRUE(done.ok()) << done.status().message();
        ASSERT_TRUE(done->synchronize().ok());
        for (size_t k = 0; k < x.size(); ++k) ASSERT_EQ(sum[k], 2 * x[k]);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stats().entries, 5u);
  EXPECT_EQ(stats().misses, 5u);
  EXPECT_EQ(stats().runs, 160u);
}

TEST_F(OperatorsTest, ABoundedCacheGivesRightResultsWhateverGoes) {
  const belay::Runtime small = made_runtime({"engine.op_cache=2"});
  belay::Stream stream = small.default_device()->stream().value();
  std::vector<std::vector<float>> in, out;
  for (uint32_t i = 0; i < 12; ++i) {
    in.push_back(numbers(i + 1, i));
    out.emplace_back(i + 1);
  }
  for (size_t i = 0; i < 12; ++i) {
    const int64_t size = int64_t(i) + 1;
    ASSERT_TRUE(
        Operator("Neg").run(small, stream, {Tensor::of(in[i], {size})}, {Tensor::of(out[i], {size})}).ok());
  }
  ASSERT_TRUE(stream.synchronize().ok());
  for (size_t i = 0; i < 12; ++i)
    for (size_t k = 0; k <= i; ++k) EXPECT_EQ(out[i][k], -in[i][k]);
  belay_op_cache_stats stats{};
  stats.hdr.struct_size = sizeof stats;
  ASSERT_TRUE(belay::take(belay_op_stats(small.get(), &stats)).ok());
  EXPECT_EQ(stats.entries, 2u);
  EXPECT_EQ(stats.evictions, 10u);
}

TEST_F(OperatorsTest, HandlesAreChecked) {
  std::vector<float> x = numbers(4, 1), y(4);
  const std::vector<Tensor> in = {Tensor::of(x, {4})}, out = {Tensor::of(y, {4})};
  const belay::Runtime other = made_runtime();
  EXPECT_THAT(Operator("Neg").run(other, stream_, in, out).status().message(),
              HasSubstr("of another runtime"));
  EXPECT_THAT(Operator("Neg").run(runtime_, belay::Stream(), in, out).status().message(),
              HasSubstr("stream is NULL"));
  EXPECT_THAT(belay::take(belay_op_run(runtime_.get(), stream_.get(), nullptr, nullptr)).message(),
              HasSubstr("the request is NULL"));
  EXPECT_EQ(belay::take(belay_op_run(nullptr, stream_.get(), nullptr, nullptr)).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(belay::last_error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(Operator("Neg").prepare(runtime_, device_, in, out).ok());
  const pid_t child = belay::testing::fork_at_rest();
  if (child == 0) {
    const Status status = Operator("Neg").run(runtime_, stream_, in, out).status();
    _exit(status.code() == Code::kFailedPrecondition ? 0 : 1);
  }
  int ended = 0;
  waitpid(child, &ended, 0);
  EXPECT_EQ(ended, 0);
  EXPECT_TRUE(run(Operator("Neg"), in, out).ok());
}

// ---- models on a stream of the caller's

TEST_F(OperatorsTest, AModelTakesItsTurnOnAStream) {
  const belay::Model model = runtime_.load(kDigits).value();
  belay::Context queued = model.context().value(), plain = model.context().value();
  std::vector<float> pixels(64), answer(10), expected(10);
  const std::vector<float> later = numbers(64, 12);
  ASSERT_TRUE(queued.set_input(0, Tensor::of(pixels, {1, 1, 8, 8})).ok());
  ASSERT_TRUE(queued.set_output(0, Tensor::of(answer, {1, 10})).ok());
  std::atomic<bool> go{false};
  ASSERT_TRUE(stream_
                  .host_call([&] {
                    while (!go) std::this_thread::yield();
                  })
                  .ok());
  ASSERT_TRUE(
      stream_.host_call([&] { pixels = later; }).ok());  // what is read is what is there when its turn comes
  const auto done = queued.enqueue(stream_);
  ASSERT_TRUE(done.ok()) << done.status().message();
  EXPECT_FALSE(done->reached());
  go = true;
  ASSERT_TRUE(done->synchronize().ok());
  std::vector<float> same = later;
  ASSERT_TRUE(plain.set_input(0, Tensor::of(same, {1, 1, 8, 8})).ok());
  ASSERT_TRUE(plain.set_output(0, Tensor::of(expected, {1, 10})).ok());
  ASSERT_TRUE(plain.run().ok());
  EXPECT_EQ(answer, expected);

  // Again on the same stream before it has ended, then on another, then as a plain run.
  ASSERT_TRUE(queued.enqueue(stream_).ok());
  ASSERT_TRUE(queued.enqueue(stream_).ok());
  belay::Stream other = device_.stream().value();
  ASSERT_TRUE(queued.enqueue(other).ok());
  ASSERT_TRUE(queued.run().ok());
  EXPECT_EQ(answer, expected);
  ASSERT_TRUE(other.synchronize().ok());
  EXPECT_EQ(model.stats()->contexts, 2u);
}

TEST_F(OperatorsTest, WhatCannotBeQueuedIsRefused) {
  const belay::Model model = runtime_.load(kDigits).value();
  belay::Context context = model.context().value();
  std::vector<float> pixels(128);
  ASSERT_TRUE(context.set_input(0, Tensor::of(pixels, {1, 1, 8, 16}).slice(3, 0, 16, 2).value()).ok());
  const auto strided = context.enqueue(stream_);  // copied in its turn
  ASSERT_TRUE(strided.ok()) << strided.status().message();
  ASSERT_TRUE(strided->synchronize().ok());
  EXPECT_THAT(context.input_memory(0)->reason, HasSubstr("its strides are [128,128,16,2]"));
  EXPECT_EQ(context.enqueue(belay::Stream()).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(stream_.capture_begin().ok());
  EXPECT_EQ(context.enqueue(stream_).status().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(stream_.capture_end().ok());
  const belay::Runtime other = made_runtime();
  belay::Stream foreign = other.default_device()->stream().value();
  EXPECT_THAT(context.enqueue(foreign).status().message(), HasSubstr("is loaded for 'cpu:0'"));
  ASSERT_TRUE(context.run().ok());
}

// ---- memory

TEST_F(OperatorsTest, AReservationGrowsInPlace) {
  const auto reserved = device_.reserve(uint64_t(1) << 36);  // more than there is
  ASSERT_TRUE(reserved.ok()) << reserved.status().message();
  const uint64_t unit = reserved->granularity();
  const uint64_t before = device_.memory()->bytes;
  ASSERT_TRUE(reserved->map(0, unit).ok());
  ASSERT_TRUE(stream_.fill(*reserved, 0, unit, uint32_t(7)).ok());
  ASSERT_TRUE(reserved->map(unit, 3 * unit).ok());
  std::vector<uint32_t> read(unit / 2);
  ASSERT_TRUE(stream_.read(*reserved, 0, read.data(), 2 * unit).ok());
  ASSERT_TRUE(stream_.synchronize().ok());
  EXPECT_EQ(read[0], 7u);
  EXPECT_EQ(read[unit / 4 - 1], 7u);
  EXPECT_EQ(read[unit / 4], 0u);
  EXPECT_EQ(device_.memory()->bytes, before + 4 * unit);
  EXPECT_EQ(stream_.fill(*reserved, 4 * unit, 4, uint32_t(1)).status().code(), Code::kOutOfRange);
  ASSERT_TRUE(reserved->unmap(0, unit).ok());
  ASSERT_TRUE(reserved->map(0, unit).ok());
  ASSERT_TRUE(stream_.read(*reserved, 0, read.data(), 4).ok());
  ASSERT_TRUE(stream_.synchronize().ok());
  EXPECT_EQ(read[0], 0u);  // its contents went with it
  const auto found = runtime_.find(static_cast<char*>(reserved->host()) + 123456789);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->buffer, reserved->get());
  EXPECT_EQ(found->offset, 123456789u);
  // An operator works in it.
  std::vector<float> x = {-1, 2, -3, 4};
  ASSERT_TRUE(
      run(Operator("Abs"), {Tensor::of(x, {4})}, {reserved->tensor(BELAY_DT_FLOAT32, {4}, 2 * unit)}).ok());
  EXPECT_EQ(reinterpret_cast<const float*>(static_cast<char*>(reserved->host()) + 2 * unit)[2], 3);
  EXPECT_EQ(
      run(Operator("Abs"), {Tensor::of(x, {4})}, {reserved->tensor(BELAY_DT_FLOAT32, {4}, 8 * unit)}).code(),
      Code::kOutOfRange);
}

TEST_F(OperatorsTest, StridedCopiesRunOnTheDevice) {
  std::vector<uint16_t> from(64 * 48), to(48 * 64);
  std::iota(from.begin(), from.end(), uint16_t(0));
  const auto done = runtime_.copy(stream_, Tensor::of(to, {48, 64}),
                                  Tensor::of(from, {64, 48}).permute({1, 0})->reverse(0).value());
  ASSERT_TRUE(done.ok()) << done.status().message();
  ASSERT_TRUE(done->synchronize().ok());
  for (size_t i = 0; i < 48; ++i)
    for (size_t j = 0; j < 64; ++j) ASSERT_EQ(to[i * 64 + j], from[j * 48 + (47 - i)]);
}

}  // namespace
