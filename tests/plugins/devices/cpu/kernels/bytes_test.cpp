// The loops of 8-bit integers at each level of the instruction set, against plain integers: every sum must be
// exact.
#include "int8/byte_product.hpp"
#include "node_runner.hpp"

#include <cmath>
#include <random>

namespace belay::cpu::testing {
namespace {

// The levels that this CPU runs.
std::vector<const ByteMicro*> levels() {
  std::vector<const ByteMicro*> out{&kBytesSse2};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2) out.push_back(&kBytesAvx2);
  if (avx512) out.push_back(&kBytesAvx512);
  if (avx512 && __builtin_cpu_supports("avx512vnni")) out.push_back(&kBytesVnni);
  if (avx512 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi"))
    out.push_back(&kBytesVbmi);
#endif
  return out;
}

class BytesTest : public ::testing::TestWithParam<const ByteMicro*> {
 protected:
  void SetUp() override { use_byte_micro(GetParam()); }
  void TearDown() override { use_byte_micro(nullptr); }
};
INSTANTIATE_TEST_SUITE_P(Levels, BytesTest, ::testing::ValuesIn(levels()),
                         [](const auto& info) { return std::string(info.param->name); });

// Bytes of which many are the least and the largest of either sign: sums are as far out as they can be.
std::vector<uint8_t> extreme_bytes(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  const uint8_t ends[] = {0, 255, 128, 127};
  std::vector<uint8_t> out;
  const bool only_ends = seed % 3 == 0;
  const uint8_t one = ends[seed % 4];
  for (int64_t i = 0; i < n; ++i)
    out.push_back(only_ends ? one : random() % 2 ? ends[random() % 4] : uint8_t(random()));
  return out;
}
int32_t number(uint8_t x, bool is_signed) { return is_signed ? int32_t(int8_t(x)) : int32_t(x); }

struct Sizes {
  int64_t m, n, k;
};

// Products by tasks, as kernels run them: A [m, k] and B [k, n], each packed before or in the task.
void check_product(const Sizes& s, bool a_signed, bool b_signed, bool a_before, bool b_before,
                   uint32_t threads, uint32_t seed) {
  const std::vector<uint8_t> a = extreme_bytes(s.m * s.k, seed), b = extreme_bytes(s.k * s.n, seed + 1);
  const ByteForm b_form{false, b_signed}, a_form = opposite_form(a_signed, b_signed);
  ByteProduct p;
  p.m = s.m, p.n = s.n, p.k = s.k;
  p.signs = b_signed ? Signs::kColumnsSigned : Signs::kRowsSigned;
  p.a = a.data();
  p.a_row = s.k;
  p.a_form = a_form;
  p.want_a_sums = p.want_b_sums = true;
  std::vector<uint32_t> rows(size_t(packed_byte_rows(s.m, s.k))),
      columns(size_t(packed_byte_columns(s.n, s.k)));
  std::vector<int32_t> row_sums;
  if (a_before) {
    pack_byte_rows(a.data(), s.k, 1, s.m, s.k, a_form, rows.data());
    for (int64_t i = 0; i < s.m; ++i) row_sums.push_back(sum_bytes(a.data() + i * s.k, s.k, 1, a_form));
    p.a_packed = rows.data();
    p.a_sums = row_sums.data();
  }
  struct Right {
    const uint8_t* b;
    int64_t k, n;
    ByteForm form;
  } right{b.data(), s.k, s.n, b_form};
  p.b = &right;
  p.pack_b = [](const void* from, int64_t n0, int64_t nc, uint32_t* to) {
    const Right& r = *static_cast<const Right*>(from);
    pack_byte_panel(r.b + n0, r.n, 1, r.k, nc, r.form, to);
  };
  if (b_before) {
    pack_byte_columns(b.data(), s.n, 1, s.k, s.n, b_form, columns.data());
    p.b_packed = columns.data();
  }
  const ByteBlocks blocks = plan_bytes(s.m, s.n, s.k, 1, threads, a_before, b_before);
  std::vector<uint32_t> lane(size_t(blocks.lane_words()));
  std::vector<int32_t> y(size_t(s.m * s.n), 77);
  int wrong_sums = 0;
  for (int64_t task = 0; task < blocks.tasks(); ++task)
    run_byte_task(
        p, blocks, task, lane.data(),
        [&](const Sums& tile, int64_t i0, int64_t j0, const int32_t* of_rows, const int32_t* of_columns) {
          byte_micro().to_ints(tile, {}, y.data() + i0 * s.n + j0, s.n);
          for (int64_t i = 0; i < tile.m; ++i) {
            int32_t sum = 0;
            for (int64_t q = 0; q < s.k; ++q) sum += a_form.value(a[size_t((i0 + i) * s.k + q)]);
            wrong_sums += sum != of_rows[i];
          }
          for (int64_t j = 0; j < tile.n; ++j) {
            int32_t sum = 0;
            for (int64_t q = 0; q < s.k; ++q) sum += b_form.value(b[size_t(q * s.n + j0 + j)]);
            wrong_sums += sum != of_columns[j];
          }
        });
  EXPECT_EQ(wrong_sums, 0);
  int64_t wrong = 0;
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      int32_t sum = 0;
      for (int64_t q = 0; q < s.k; ++q)
        sum += a_form.value(a[size_t(i * s.k + q)]) * b_form.value(b[size_t(q * s.n + j)]);
      wrong += sum != y[size_t(i * s.n + j)];
    }
  EXPECT_EQ(wrong, 0) << s.m << " x " << s.n << " x " << s.k << ", signed " << a_signed << b_signed
                      << ", packed " << a_before << b_before << ", threads " << threads;
}

TEST_P(BytesTest, ProductsOfEverySizeAreExact) {
  uint32_t seed = 0;
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 11, 13})
    for (const int64_t n : {1, 3, 4, 8, 15, 16, 17, 31, 33, 48, 49, 63, 64, 65, 130})
      for (const int64_t k : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64, 67}) {
        ++seed;
        check_product({m, n, k}, seed & 1, seed & 2, seed & 4, seed & 8, 1 + seed % 3, seed);
      }
}

TEST_P(BytesTest, ProductsOfEverySignAndManyTasksAreExact) {
  for (uint32_t way = 0; way < 16; ++way)
    for (const Sizes& s : {Sizes{17, 150, 67}, Sizes{2, 300, 130}, Sizes{100, 9, 33}, Sizes{5, 3, 2049}})
      for (const uint32_t threads : {1u, 4u})
        check_product(s, way & 1, way & 2, way & 4, way & 8, threads, 3 * way);
}

TEST_P(BytesTest, ColumnsOfATransposedMatrixArePackedAlike) {
  for (const int64_t k : {1, 3, 4, 7, 64})
    for (const int64_t n : {1, 16, 70})
      for (const bool is_signed : {false, true}) {
        const std::vector<uint8_t> b = extreme_bytes(k * n, uint32_t(k * n + 1));
        std::vector<uint8_t> turned(b.size());
        for (int64_t p = 0; p < k; ++p)
          for (int64_t j = 0; j < n; ++j) turned[size_t(j * k + p)] = b[size_t(p * n + j)];
        const ByteForm form{!is_signed, is_signed};
        std::vector<uint32_t> one(size_t(packed_byte_columns(n, k))), other(one.size());
        pack_byte_columns(b.data(), n, 1, k, n, form, one.data());
        pack_byte_columns(turned.data(), 1, k, k, n, form, other.data());
        EXPECT_EQ(one, other) << k << " x " << n;
        std::vector<uint32_t> rows(size_t(packed_byte_rows(n, k))), steps(rows.size());
        pack_byte_rows(turned.data(), k, 1, n, k, form, rows.data());
        pack_byte_rows(b.data(), 1, n, n, k, form, steps.data());
        EXPECT_EQ(rows, steps) << k << " x " << n;
      }
}

TEST_P(BytesTest, SumsEndAsTheDefinitionSays) {
  const int64_t m = 3;
  for (const int64_t n : {1, 7, 15, 16, 17, 63, 64, 65, 100, 129})
    for (const bool is_signed : {false, true})
      for (const int way : {0, 1, 2, 3}) {
        std::mt19937 random{uint32_t(n)};
        std::vector<int32_t> sums, row_add, column_add, rows[2], columns[2];
        const auto ints = [&](int64_t count, int32_t most) {
          std::vector<int32_t> out;
          for (int64_t i = 0; i < count; ++i)
            out.push_back(int32_t(random() % uint32_t(2 * most + 1)) - most);
          return out;
        };
        sums = ints(m * (n + 2), 3000000);
        sums[0] = 2147483647;
        row_add = ints(m, 1000), column_add = ints(n, 1000);
        for (int f = 0; f < 2; ++f) rows[f] = ints(m, 300), columns[f] = ints(n, 300);
        const float inf = std::numeric_limits<float>::infinity(),
                    nan = std::numeric_limits<float>::quiet_NaN();
        std::vector<float> row_scale{.001f, way == 3 ? inf : .5f, way == 3 ? nan : 1e-6f}, column_scale, bias;
        for (int64_t j = 0; j < n; ++j)
          column_scale.push_back(.001f * float(j % 7 + 1)), bias.push_back(float(j));
        std::vector<uint8_t> table;
        for (int i = 0; i < 256; ++i) table.push_back(uint8_t(i * 7 + 3));

        SumEnd end;
        end.row_add = row_add.data();
        if (way > 0) end.column_add = column_add.data();
        if (way > 1)
          for (int f = 0; f < 2; ++f)
            end.row_factor[f] = rows[f].data(), end.column_factor[f] = columns[f].data();
        ByteEnd bytes;
        bytes.scale = {row_scale.data(), way > 0 ? column_scale.data() : nullptr};
        bytes.zero = is_signed ? -100 : 200;
        bytes.is_signed = is_signed;
        bytes.table = way % 2 ? table.data() : nullptr;
        const Sums tile{sums.data(), n + 2, m, n};
        std::vector<uint8_t> y(size_t(m * (n + 3)), 99);
        std::vector<int32_t> whole(y.size(), 99);
        std::vector<float> floats(y.size(), 99);
        byte_micro().to_bytes(tile, end, bytes, y.data(), n + 3);
        byte_micro().to_ints(tile, end, whole.data(), n + 3);
        byte_micro().to_floats(tile, end, bytes.scale, bias.data(), floats.data(), n + 3);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n + 3; ++j) {
            const size_t at = size_t(i * (n + 3) + j);
            if (j >= n) {
              EXPECT_EQ(y[at], 99) << "written beyond the row";
              EXPECT_EQ(whole[at], 99);
              EXPECT_EQ(floats[at], 99);
              continue;
            }
            uint32_t sum = uint32_t(sums[size_t(i * (n + 2) + j)]) + uint32_t(row_add[size_t(i)]);
            if (way > 0) sum += uint32_t(column_add[size_t(j)]);
            if (way > 1)
              for (int f = 0; f < 2; ++f)
                sum += uint32_t(rows[f][size_t(i)]) * uint32_t(columns[f][size_t(j)]);
            EXPECT_EQ(whole[at], int32_t(sum));
            const float scale =
                way > 0 ? row_scale[size_t(i)] * column_scale[size_t(j)] : row_scale[size_t(i)];
            const float x = float(int32_t(sum)) * scale;
            if (!std::isnan(x) && !std::isinf(x)) {
              EXPECT_FLOAT_EQ(floats[at], x + float(j));
            }
            const float low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
            const float q = std::nearbyint(x) + float(bytes.zero);
            const uint8_t byte = uint8_t(int32_t(q > low ? std::fmin(q, high) : low));
            EXPECT_EQ(y[at], bytes.table ? table[byte] : byte)
                << "[" << i << ", " << j << "] of " << n << ", sum " << int32_t(sum) << ", scale " << scale;
          }
      }
}

TEST_P(BytesTest, QuantisingRoundsToEvenAndSaturates) {
  for (const bool is_signed : {false, true}) {
    std::vector<float> x{.25f,
                         .75f,
                         -.25f,
                         1e30f,
                         -1e30f,
                         std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN(),
                         3e9f,
                         -0.f};
    for (int i = -300; i < 300; ++i) x.push_back(float(i) * .25f);
    const int32_t zero = is_signed ? -3 : 130;
    std::vector<uint8_t> y(x.size());
    byte_micro().quantize(x.data(), int64_t(x.size()), .5f, zero, is_signed, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double q = std::nearbyint(double(x[i]) / .5) + zero, low = is_signed ? -128 : 0;
      EXPECT_EQ(y[i], uint8_t(int32_t(q > low ? std::fmin(q, is_signed ? 127 : 255) : low))) << x[i];
    }
    std::vector<float> back(x.size());
    byte_micro().dequantize(y.data(), int64_t(y.size()), .5f, zero, is_signed, back.data());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(back[i], float(number(y[i], is_signed) - zero) * .5f);
  }
}

TEST_P(BytesTest, TablesAndSums) {
  std::vector<uint8_t> table;
  for (int i = 0; i < 256; ++i) table.push_back(uint8_t(255 - i * 3));
  for (const int64_t n : {1, 63, 64, 65, 127, 128, 129, 1000, 5000}) {
    const std::vector<uint8_t> x = extreme_bytes(n, uint32_t(n));
    std::vector<uint8_t> y(size_t(n) + 1, 9);
    byte_micro().look_up(x.data(), n, table.data(), y.data());
    int32_t sums[2] = {0, 0};
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(y[size_t(i)], table[x[size_t(i)]]);
      for (const bool is_signed : {false, true}) sums[is_signed] += number(x[size_t(i)], is_signed);
    }
    EXPECT_EQ(y.back(), 9);
    for (const bool is_signed : {false, true})
      EXPECT_EQ(byte_micro().sum(x.data(), n, is_signed), sums[is_signed]);
  }
}

// Convolutions through their operators.
struct ByteConvCase {
  int64_t channels, outputs, groups, height, width, kernel_h, kernel_w;
  std::vector<int64_t> strides, dilations, pads;
};

int64_t out_size(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t before,
                 int64_t after) {
  return (in + before + after - (kernel - 1) * dilation - 1) / stride + 1;
}

Tensor byte_tensor(uint32_t dtype, std::vector<int64_t> dims, uint32_t seed) {
  Tensor out{dtype, std::move(dims), {}};
  const std::vector<uint8_t> values = extreme_bytes(out.count(), seed);
  out.bytes.assign(values.begin(), values.end());
  return out;
}

void check_conv(const ByteConvCase& c, uint32_t xt, uint32_t wt, bool channel_zeros, uint32_t seed) {
  const int64_t batch = 2, per_group = c.channels / c.groups;
  const int64_t oh = out_size(c.height, c.kernel_h, c.strides[0], c.dilations[0], c.pads[0], c.pads[2]),
                ow = out_size(c.width, c.kernel_w, c.strides[1], c.dilations[1], c.pads[1], c.pads[3]);
  const Tensor x = byte_tensor(xt, {batch, c.channels, c.height, c.width}, seed),
               w = byte_tensor(wt, {c.outputs, per_group, c.kernel_h, c.kernel_w}, seed + 1);
  // Zero points at the ends of their range.
  const uint8_t ends[] = {0, 255, 128, 127};
  const Tensor x_zero{xt, {}, std::string(1, char(ends[seed % 4]))};
  Tensor w_zero{wt, {c.outputs}, std::string(size_t(c.outputs), 0)};
  if (channel_zeros)
    for (int64_t o = 0; o < c.outputs; ++o) w_zero.bytes[size_t(o)] = char(ends[size_t(o) % 4]);
  const auto at = [](const Tensor& t, int64_t i) {
    return number(uint8_t(t.bytes[size_t(i)]), t.dtype == BELAY_DT_INT8);
  };
  std::vector<int32_t> sums;
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t o = 0; o < c.outputs; ++o)
      for (int64_t r = 0; r < oh; ++r)
        for (int64_t q = 0; q < ow; ++q) {
          int32_t sum = 0;
          for (int64_t i = 0; i < per_group; ++i)
            for (int64_t a = 0; a < c.kernel_h; ++a)
              for (int64_t b = 0; b < c.kernel_w; ++b) {
                const int64_t row = r * c.strides[0] + a * c.dilations[0] - c.pads[0],
                              column = q * c.strides[1] + b * c.dilations[1] - c.pads[1];
                if (row < 0 || row >= c.height || column < 0 || column >= c.width) continue;
                const int64_t channel = o / (c.outputs / c.groups) * per_group + i;
                sum += (at(x, ((n * c.channels + channel) * c.height + row) * c.width + column) -
                        at(x_zero, 0)) *
                       (at(w, ((o * per_group + i) * c.kernel_h + a) * c.kernel_w + b) - at(w_zero, o));
              }
          sums.push_back(sum);
        }
  Node node("ConvInteger", 10);
  node.in(x).in(w).in(x_zero);
  if (channel_zeros) node.in(w_zero);
  node.attr("strides", c.strides).attr("dilations", c.dilations).attr("pads", c.pads).attr("group", c.groups);
  node.out(BELAY_DT_INT32);
  EXPECT_EQ(result(node), tensor<int32_t>({batch, c.outputs, oh, ow}, sums))
      << "kernel " << c.kernel_h << " x " << c.kernel_w << ", groups " << c.groups << ", " << c.height
      << " x " << c.width << ", strides " << text_of(c.strides);
}

TEST_P(BytesTest, ConvolutionsAreExact) {
  const ByteConvCase cases[] = {
      {3, 8, 1, 9, 11, 3, 3, {2, 2}, {1, 1}, {1, 1, 1, 1}},   // first layers
      {7, 13, 1, 5, 13, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},  // pointwise, odd sizes
      {5, 6, 1, 9, 7, 1, 1, {2, 3}, {1, 1}, {0, 0, 0, 0}},    // with strides
      {6, 4, 2, 8, 20, 2, 3, {1, 2}, {2, 1}, {0, 2, 1, 0}},   // groups, dilation, odd pads
      {1, 1, 1, 1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},    // one of all
      {2, 3, 1, 3, 3, 3, 3, {1, 1}, {1, 1}, {2, 2, 2, 2}},    // windows that see little
  };
  uint32_t seed = 1;
  for (const ByteConvCase& c : cases)
    for (const uint32_t xt : {BELAY_DT_UINT8, BELAY_DT_INT8})
      for (const uint32_t wt : {BELAY_DT_UINT8, BELAY_DT_INT8}) check_conv(c, xt, wt, seed % 2, seed), ++seed;
}

TEST_P(BytesTest, DepthwiseConvolutionsAreExact) {
  uint32_t seed = 1;
  for (const int64_t kernel : {1, 2, 3, 5})
    for (const int64_t stride : {1, 2, 3})
      for (const int64_t dilation : {1, 2})
        for (const int64_t width : {1, 7, 14, 40}) {
          const int64_t pad = kernel / 2 * dilation, multiplier = 1 + seed % 2;
          if (width + 2 * pad < (kernel - 1) * dilation + 1) continue;
          check_conv({3,
                      3 * multiplier,
                      3,
                      9,
                      width,
                      kernel,
                      kernel,
                      {stride, stride},
                      {dilation, dilation},
                      {pad, pad, pad, pad}},
                     seed & 1 ? BELAY_DT_UINT8 : BELAY_DT_INT8, seed & 2 ? BELAY_DT_INT8 : BELAY_DT_UINT8,
                     seed % 5 == 0, seed);
          ++seed;
        }
  // A large kernel, another height than width, pads on one side.
  check_conv({2, 2, 2, 12, 33, 7, 6, {1, 1}, {1, 1}, {3, 0, 2, 5}}, BELAY_DT_UINT8, BELAY_DT_INT8, false, 3);
  check_conv({2, 2, 2, 12, 33, 3, 9, {2, 4}, {1, 1}, {0, 3, 2, 4}}, BELAY_DT_UINT8, BELAY_DT_INT8, false, 4);
}

}  // namespace
}  // namespace belay::cpu::testing
