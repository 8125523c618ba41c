// MatMulNBits against the product with the weights that its definition gives, in double.
#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

enum class Zeros { kNone, kPacked, kFloats };

struct Form {
  uint32_t dtype = BELAY_DT_FLOAT32;
  int bits = 4;
  int64_t block = 32, k = 64, n = 16;
  std::vector<int64_t> rows{3};
  Zeros zeros = Zeros::kNone;
  bool bias = false;
  std::vector<int64_t> groups = {};  // block of each row of B
  int64_t accuracy = 1;
};

std::vector<int64_t> whole(int64_t count, int64_t below, uint32_t seed) {
  std::vector<int64_t> out;
  for (const double x : numbers(count, 0, double(below), seed)) out.push_back(std::min(int64_t(x), below - 1));
  return out;
}
// Lists of `each` numbers, each list in bytes of its own, the first number lowest.
Tensor pack(const std::vector<int64_t>& values, int64_t each, int bits, std::vector<int64_t> dims) {
  Tensor out{BELAY_DT_UINT8, std::move(dims), {}};
  for (size_t at = 0; at < values.size(); at += size_t(each)) {
    std::string bytes(size_t((each * bits + 7) / 8), '\0');
    for (int64_t i = 0; i < each; ++i)
      bytes[size_t(i * bits / 8)] = char(uint8_t(bytes[size_t(i * bits / 8)]) | values[at + size_t(i)] << (i * bits % 8));
    out.bytes += bytes;
  }
  return out;
}

struct Made {
  Node node{"MatMulNBits", 1, "com.microsoft"};
  std::vector<int64_t> dims;
  std::vector<double> expected;
};
Made make(const Form& f) {
  Made out;
  const int64_t blocks = (f.k + f.block - 1) / f.block, m = count_of(f.rows);
  const auto values = whole(f.n * blocks * f.block, int64_t{1} << f.bits, 3);
  const Tensor scales = tensor_of(f.dtype, {f.n, blocks}, numbers(f.n * blocks, 0.01, 0.1, 4));
  const auto zeros = whole(f.n * blocks, int64_t{1} << f.bits, 5);
  std::vector<double> real_zeros(zeros.begin(), zeros.end());
  if (f.zeros == Zeros::kFloats)
    for (double& z : real_zeros) z += 0.25;
  std::vector<int64_t> a_dims = f.rows;
  a_dims.push_back(f.k);
  const Tensor a = tensor_of(f.dtype, a_dims, numbers(m * f.k, -1, 1, 6));
  const Tensor bias = tensor_of(f.dtype, {f.n}, numbers(f.n, -1, 1, 7));
  const Tensor float_zeros = tensor_of(f.dtype, {f.n, blocks}, real_zeros);
  out.node.attr("K", f.k).attr("N", f.n).attr("bits", f.bits).attr("block_size", f.block).attr("accuracy_level", f.accuracy);
  out.node.in(a).in(pack(values, f.block, f.bits, {f.n, blocks, f.block * f.bits / 8})).in(scales);
  if (f.zeros == Zeros::kPacked)
    out.node.in(pack(zeros, blocks, f.bits, {f.n, (blocks * f.bits + 7) / 8}));
  else if (f.zeros == Zeros::kFloats)
    out.node.in(float_zeros);
  else if (f.bias || !f.groups.empty())
    out.node.absent();
  if (!f.groups.empty())
    out.node.constant(tensor<int32_t>({f.k}, std::vector<int32_t>(f.groups.begin(), f.groups.end())));
  else if (f.bias)
    out.node.absent();
  if (f.bias) out.node.in(bias);

  const auto x = values_of(a), s = values_of(scales), z = values_of(float_zeros), add = values_of(bias);
  out.dims = f.rows;
  out.dims.push_back(f.n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < f.n; ++j) {
      double sum = f.bias ? add[size_t(j)] : 0;
      for (int64_t k = 0; k < f.k; ++k) {
        const int64_t b = j * blocks + (f.groups.empty() ? k / f.block : f.groups[size_t(k)]);
        const double zero = f.zeros == Zeros::kNone     ? double(int64_t{1} << (f.bits - 1))
                            : f.zeros == Zeros::kFloats ? z[size_t(b)]
                                                        : double(zeros[size_t(b)]);
        sum += x[size_t(i * f.k + k)] * (double(values[size_t(j * blocks * f.block + k)]) - zero) * s[size_t(b)];
      }
      out.expected.push_back(sum);
    }
  return out;
}
void check(const Form& f) {
  const Made made = make(f);
  const double tolerance = f.dtype == BELAY_DT_FLOAT32 ? 2e-5 : f.dtype == BELAY_DT_FLOAT16 ? 2e-3 : 1.6e-2;
  EXPECT_TRUE(close(result(made.node), tensor_of(f.dtype, made.dims, made.expected), tolerance, tolerance))
      << dtype_name(f.dtype) << ", " << f.bits << " bits, blocks of " << f.block << ", K " << f.k << ", N " << f.n << ", rows "
      << text_of(f.rows);
}

TEST(MatMulNBitsTest, EveryWidthBlockAndTypeMatchesTheDefinition) {
  for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_FLOAT16, BELAY_DT_BFLOAT16})
    for (const int bits : {2, 4, 8})
      for (const int64_t block : {16, 32, 64, 128, 256})
        check({.dtype = dtype, .bits = bits, .block = block, .k = 300, .n = 37, .rows = {2, 3}, .zeros = Zeros::kPacked});
}

TEST(MatMulNBitsTest, EachNumberOfRowsTakesPartInEveryKindOfZeroPoint) {
  for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_BFLOAT16})
    for (const Zeros zeros : {Zeros::kNone, Zeros::kPacked, Zeros::kFloats})
      for (const std::vector<int64_t>& rows : {std::vector<int64_t>{0}, {}, {1}, {1, 4}, {7}, {16}, {17}, {3, 15}})
        check({.dtype = dtype, .k = 70, .n = 50, .rows = rows, .zeros = zeros, .bias = true});
}

// With level 4 A may be rounded to bytes, block by block: an error of 1 / 254 of the largest of a block for each term, of
// which few add up. Where the CPU does not multiply bytes fast there is none.
TEST(MatMulNBitsTest, LevelFourMayRoundAToBytes) {
  for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_FLOAT16})
    for (const int bits : {2, 4, 8})
      for (const Zeros zeros : {Zeros::kNone, Zeros::kPacked, Zeros::kFloats})
        for (const std::vector<int64_t>& rows : {std::vector<int64_t>{1}, {3}, {7, 5}}) {
          const Form form{.dtype = dtype, .bits = bits, .block = 16 << bits % 3, .k = 150, .n = 37, .rows = rows, .zeros = zeros,
                          .bias = true, .accuracy = 4};
          const Made made = make(form);
          const double largest = double(1 << bits) * 0.1;  // of a weight
          EXPECT_TRUE(close(result(made.node), tensor_of(dtype, made.dims, made.expected), 4e-3, largest * std::sqrt(150) / 254 * 2))
              << dtype_name(dtype) << ", " << bits << " bits, rows " << text_of(rows);
        }
  // Numbers that bytes hold are not rounded: all but the last bits of the sums are right.
  std::vector<float> a(64);
  for (size_t i = 0; i < a.size(); ++i) a[i] = float(int(i * 37 % 255) - 127);
  a[0] = a[32] = 127;
  std::string numbers_of_b(64, '\0');
  for (size_t i = 0; i < 64; ++i) numbers_of_b[i] = char(i * 29 + 3);
  std::vector<float> want;
  for (size_t j = 0; j < 2; ++j) {
    double sum = 0;
    for (size_t k = 0; k < 64; ++k) sum += double(a[k]) * (double(uint8_t(numbers_of_b[j * 32 + k / 2]) >> (k % 2 * 4) & 15) - 8) * 0.5;
    want.push_back(float(sum));
  }
  Node node("MatMulNBits", 1, "com.microsoft");
  node.attr("K", 64).attr("N", 2).attr("block_size", 32).attr("accuracy_level", 4);
  node.in(floats({1, 64}, a)).in(Tensor{BELAY_DT_UINT8, {2, 2, 16}, numbers_of_b}).in(floats({2, 2}, {0.5f, 0.5f, 0.5f, 0.5f}));
  EXPECT_TRUE(close(result(node), floats({1, 2}, want), 1e-5, 1e-2));
}

TEST(MatMulNBitsTest, OneColumnAndOneRowOfWeightsAreEnough) {
  check({.k = 1, .n = 1, .rows = {1}});
  check({.bits = 8, .block = 16, .k = 17, .n = 1, .rows = {20}});
  check({.bits = 2, .block = 16, .k = 16, .n = 17, .rows = {33}, .zeros = Zeros::kPacked});
}

TEST(MatMulNBitsTest, GroupsSayWhichScaleARowHas) {
  std::vector<int64_t> in_order, mixed, uneven;
  for (int64_t k = 0; k < 80; ++k) {
    in_order.push_back(k / 32);
    mixed.push_back(k * 7 % 80 / 32);
    uneven.push_back(k < 70 ? 1 : 2);  // one block has more rows than its size, another none
  }
  for (const auto& groups : {in_order, mixed, uneven})
    for (const std::vector<int64_t>& rows : {std::vector<int64_t>{2}, {19}}) {
      const Form form{.bits = 4, .k = 80, .n = 21, .rows = rows, .zeros = Zeros::kPacked, .bias = true, .groups = groups};
      const Made made = make(form);
      EXPECT_TRUE(close(result(made.node), tensor_of(form.dtype, made.dims, made.expected), 2e-5, 2e-5)) << text_of(rows);
    }
}

TEST(MatMulNBitsTest, InfinityAndNotANumberStayInTheirRows) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> a(32 * 3, 1.0f);
  a[5] = kInfinity;
  a[32 + 9] = std::numeric_limits<float>::quiet_NaN();
  // All numbers are 9: each weight is (9 - 8) * 0.5.
  for (const int level : {1, 4}) {
    Node node("MatMulNBits", 1, "com.microsoft");
    node.attr("K", 32).attr("N", 2).attr("block_size", 32).attr("accuracy_level", level);
    node.in(floats({3, 32}, a)).in(Tensor{BELAY_DT_UINT8, {2, 1, 16}, std::string(32, '\x99')}).in(floats({2, 1}, {0.5f, 0.5f}));
    const float nan = a[32 + 9];
    EXPECT_TRUE(close(result(node), floats({3, 2}, {kInfinity, kInfinity, nan, nan, 16, 16})));
  }
}

TEST(MatMulNBitsTest, FailuresNameTheOperandAndTheValue) {
  const auto node = [](int64_t block, const Tensor& scales) {
    Node out("MatMulNBits", 1, "com.microsoft");
    out.attr("K", 32).attr("N", 2).attr("block_size", block);
    return std::move(out.in(floats({1, 32}, std::vector<float>(32)))
                         .in(Tensor{BELAY_DT_UINT8, {2, 1, 16}, std::string(32, '\0')})
                         .in(scales));
  };
  const Tensor scales = floats({2, 1}, {1, 1});
  EXPECT_THAT(failure(node(24, scales)), HasSubstr("block_size is 24, want a power of 2"));
  EXPECT_THAT(failure(node(32, floats({2, 2}, {1, 1, 1, 1}))), HasSubstr("scales has the shape [2,2], want [2,1]"));
  EXPECT_THAT(failure(node(32, scales).attr("bits", 3)), HasSubstr("bits is 3, want 2, 4 or 8"));
  EXPECT_THAT(failure(node(32, scales).attr("accuracy_level", 5)), HasSubstr("accuracy_level is 5, want 0 to 4"));
  EXPECT_THAT(failure(node(32, scales).attr("weight_prepacked", 1)), HasSubstr("weight_prepacked is 1"));
  std::vector<int32_t> groups(32, 0);
  groups[4] = 1;
  EXPECT_THAT(failure(node(32, scales).absent().constant(tensor<int32_t>({32}, groups))),
              HasSubstr("g_idx names for row 4 of B a block that is not there"));
}

}  // namespace
}  // namespace belay::cpu::testing
