// MatMulNBits: a product with constant weights of 2, 4 or 8 bits, which have a scale and a zero point for each block
// of a column. The weights are read as they lie in the model: few rows take dot products with them, many rows products
// of blocks that are unpacked into the cache.
#include "../convert.hpp"
#include "../registry.hpp"
#include "heavy.hpp"
#include "product.hpp"

#include <algorithm>

namespace belay::cpu {
namespace {

constexpr size_t kA = 0, kB = 1, kScales = 2, kZeros = 3, kIndex = 4, kBias = 5;
// Up to so many rows it is cheaper to read the weights again for each.
constexpr int64_t kFewRows = 12;

struct MatMulNBits {
  uint32_t dtype = BELAY_DT_FLOAT32;  // of A, scales, bias and result
  int64_t m = 0, n = 0, k = 0;
  int bits = 4;
  int64_t block = 32, blocks = 0;
  enum class ZeroForm : uint8_t { kMiddle, kPacked, kFloats } zeros = ZeroForm::kMiddle;
  bool has_bias = false;
  Blocks plan;

  int64_t block_bytes() const { return block * bits / 8; }
  int64_t planes() const { return 8 / bits; }

  // Scales and zero points of column j, as floats.
  void parameters(const Run& run, int64_t j, float* scale, float* zero) const {
    floats(run, kScales, j * blocks, blocks, scale);
    if (zeros == ZeroForm::kFloats) {
      floats(run, kZeros, j * blocks, blocks, zero);
    } else if (zeros == ZeroForm::kMiddle) {
      std::fill_n(zero, blocks, float(1 << (bits - 1)));
    } else {
      const uint8_t* packed = run.in<uint8_t>(kZeros) + j * ceil_div(blocks * bits, 8);
      for (int64_t b = 0; b < blocks; ++b)
        zero[b] = float(packed[b * bits / 8] >> (b * bits % 8) & ((1 << bits) - 1));
    }
  }
  void floats(const Run& run, size_t input, int64_t from, int64_t count, float* to) const {
    if (dtype == BELAY_DT_FLOAT32)
      std::copy_n(run.in<float>(input) + from, count, to);
    else
      widen(dtype, run.in<Half>(input) + from, to, count);
  }
  float bias(const Run& run, int64_t j) const {
    float value = 0;
    if (has_bias) floats(run, kBias, j, 1, &value);
    return value;
  }
  void store(const Run& run, int64_t at, const float* values, int64_t count) const {
    if (dtype == BELAY_DT_FLOAT32)
      std::copy_n(values, count, run.out<float>(0) + at);
    else
      narrow(dtype, values, run.out<Half>(0) + at, count);
  }

  void operator()(const Run& run) const {
    if (m <= kFewRows)
      few_rows(run);
    else
      many_rows(run);
  }

  void few_rows(const Run& run) const {
    const int64_t padded = blocks * block, bytes = block_bytes();
    // Rows of A, zero up to whole blocks, in the order in which the numbers of a byte come out.
    float *const x = run.scratch<float>(size_t((m + 1) * padded)), *const row = x + m * padded;
    std::fill(row + k, row + padded, 0.0f);
    for (int64_t i = 0; i < m; ++i) {
      floats(run, kA, i * k, k, row);
      float* to = x + i * padded;
      for (int64_t b = 0; b < blocks; ++b)
        for (int64_t p = 0; p < planes(); ++p)
          for (int64_t at = 0; at < bytes; ++at) *to++ = row[b * block + at * planes() + p];
    }
    float* const memory = run.scratch<float>(size_t(2 * blocks * run.max_parts()));
    run.parallel(n, grain_of(double(m * k) * 0.05 + double(blocks)), [&](int64_t begin, int64_t end, int64_t part) {
      float *const scale = memory + 2 * blocks * part, *const zero = scale + blocks;
      for (int64_t j = begin; j < end; ++j) {
        parameters(run, j, scale, zero);
        const uint8_t* numbers = run.in<uint8_t>(kB) + j * blocks * bytes;
        const float add = bias(run, j);
        for (int64_t i = 0; i < m; ++i) {
          const float sum = simd().dot_bits(bits, numbers, blocks, bytes, scale, zero, x + i * padded) + add;
          store(run, i * n + j, &sum, 1);
        }
      }
    });
  }

  // What a lane packs a block of B from.
  struct Weights {
    const MatMulNBits* kernel;
    const Run* run;
    float* memory;  // parameters of a column, then unpacked columns
  };
  static constexpr int64_t kColumns = 16;  // unpacked together
  // Whole blocks that a range of kc rows may touch.
  int64_t touched() const { return std::min(blocks, plan.kc / block + 2); }
  int64_t lane_floats() const { return round_up(2 * blocks + kColumns * touched() * block, 16); }

  static void pack_b(const void* context, int64_t k0, int64_t kc, int64_t n0, int64_t nc, float* to, int64_t step) {
    const Weights& w = *static_cast<const Weights*>(context);
    const MatMulNBits& self = *w.kernel;
    const int64_t first = k0 / self.block, last = ceil_div(k0 + kc, self.block), row = (last - first) * self.block;
    float *const scale = w.memory, *const zero = scale + self.blocks, *const unpacked = zero + self.blocks;
    for (int64_t j = 0; j < nc; j += kColumns) {
      const int64_t width = std::min(kColumns, nc - j);
      for (int64_t c = 0; c < width; ++c) {
        self.parameters(*w.run, n0 + j + c, scale, zero);
        const uint8_t* numbers = w.run->in<uint8_t>(kB) + ((n0 + j + c) * self.blocks + first) * self.block_bytes();
        for (int64_t b = first; b < last; ++b, numbers += self.block_bytes())
          simd().unpack_bits(self.bits, numbers, self.block_bytes(), scale[b], zero[b],
                             unpacked + c * row + (b - first) * self.block);
      }
      simd().transpose32(reinterpret_cast<const uint32_t*>(unpacked + k0 - first * self.block), row,
                         reinterpret_cast<uint32_t*>(to + j), step, width, kc);
    }
    const int64_t lanes = tile_kernel<float>().lanes;
    if (const int64_t beyond = round_up(nc, lanes) - nc; beyond > 0)
      for (int64_t p = 0; p < kc; ++p) std::fill_n(to + p * step + nc, beyond, 0.0f);
  }

  struct Finish {
    const MatMulNBits* kernel;
    const Run* run;
    const float* bias;
  };
  static void finish(const void* context, float* block, int64_t step, int64_t m0, int64_t mc, int64_t n0, int64_t nc) {
    const Finish& f = *static_cast<const Finish*>(context);
    for (int64_t i = 0; i < mc; ++i) {
      float* row = block + i * step;
      if (f.bias) simd().binary[size_t(Binary::kAdd)](row, 1, f.bias + n0, 1, row, nc);
      f.kernel->store(*f.run, (m0 + i) * f.kernel->n + n0, row, nc);
    }
  }

  void many_rows(const Run& run) const {
    float* const biases = has_bias ? run.scratch<float>(size_t(n)) : nullptr;
    if (has_bias) floats(run, kBias, 0, n, biases);
    const Finish last{this, &run, biases};
    const MatrixView<float> a32{run.in<float>(kA), k, 1};
    const MatrixView<Half> a16{run.in<Half>(kA), k, 1};
    const MatrixView<BFloat16> b16{run.in<BFloat16>(kA), k, 1};
    float* const columns = run.workspace<float>();
    void* const scratch = columns + lane_floats() * plan.lanes;
    run_lanes(run, plan.tasks(), plan.lanes, [&](int64_t task, int64_t lane) {
      const Weights weights{this, &run, columns + lane_floats() * lane};
      Product<float> p;
      p.m = m, p.n = n, p.k = k;
      p.pack_a = dtype == BELAY_DT_FLOAT32   ? pack_rows<float, float>
                 : dtype == BELAY_DT_FLOAT16 ? pack_rows<Half, float>
                                             : pack_rows<BFloat16, float>;
      p.a = dtype == BELAY_DT_FLOAT32   ? static_cast<const void*>(&a32)
            : dtype == BELAY_DT_FLOAT16 ? static_cast<const void*>(&a16)
                                        : &b16;
      p.pack_b = pack_b;
      p.b = &weights;
      if (dtype == BELAY_DT_FLOAT32) {
        p.c = run.out<float>(0);
        p.c_step = n;
        p.end.col_bias = last.bias;
      } else {
        p.finish = finish;
        p.finish_context = &last;
      }
      run_block<float>(p, plan, task, lane_scratch<float>(plan, scratch, lane));
    });
  }
};

Status prepare_matmul_nbits(OpContext& context) {
  MatMulNBits kernel;
  const Dims& a = context.dims(kA);
  kernel.dtype = context.dtype(kA);
  kernel.k = context.attr().int_or("K", 0);
  kernel.n = context.attr().int_or("N", 0);
  const int64_t bits = context.attr().int_or("bits", 4), block = context.attr().int_or("block_size", 0);
  if (bits != 2 && bits != 4 && bits != 8)
    return context.bad("attribute bits is " + std::to_string(bits) + ", want 2, 4 or 8", Code::kUnimplemented);
  if (block < 16 || (block & (block - 1)) != 0)
    return context.bad("attribute block_size is " + std::to_string(block) + ", want a power of 2 from 16 on");
  if (kernel.k < 1 || kernel.n < 1)
    return context.bad("attributes K and N are " + std::to_string(kernel.k) + " and " + std::to_string(kernel.n) +
                       ", want 1 or more");
  if (context.attr().int_or("weight_prepacked", 0) != 0)
    return context.bad("attribute weight_prepacked is " + std::to_string(context.attr().int_or("weight_prepacked", 0)) +
                           ": weights in the order of another device are not supported; export the model without",
                       Code::kUnimplemented);
  if (context.has(kIndex))
    return context.bad("input g_idx is not supported: it is deprecated; export the weights without act-order",
                       Code::kUnimplemented);
  if (a.empty() || a.back() != kernel.k)
    return context.bad("A has the shape " + text_of(a) + ", want K, " + std::to_string(kernel.k) + ", as its last dim");
  kernel.bits = int(bits);
  kernel.block = block;
  kernel.blocks = ceil_div(kernel.k, block);
  kernel.m = product(a, 0, a.size() - 1);
  // Old files write these lists without their dims.
  const auto expect = [&](size_t i, std::string_view name, int64_t count, const Dims& want) -> Status {
    if (context.count(i) == count) return {};
    return context.bad(std::string(name) + " has the shape " + text_of(context.dims(i)) + ", want " + text_of(want));
  };
  const auto expect_type = [&](size_t i, std::string_view name) -> Status {
    if (context.dtype(i) == kernel.dtype) return {};
    return context.bad(std::string(name) + " is of type " + std::string(dtype_name(context.dtype(i))) + ", want that of A, " +
                       std::string(dtype_name(kernel.dtype)));
  };
  BELAY_TRY(expect(kB, "B", kernel.n * kernel.blocks * kernel.block_bytes(),
                   {kernel.n, kernel.blocks, kernel.block_bytes()}));
  BELAY_TRY(expect_type(kScales, "scales"));
  BELAY_TRY(expect(kScales, "scales", kernel.n * kernel.blocks, {kernel.n, kernel.blocks}));
  if (context.has(kZeros)) {
    if (context.dtype(kZeros) == BELAY_DT_UINT8) {
      const int64_t bytes = ceil_div(kernel.blocks * bits, 8);
      kernel.zeros = MatMulNBits::ZeroForm::kPacked;
      BELAY_TRY(expect(kZeros, "zero_points", kernel.n * bytes, {kernel.n, bytes}));
    } else {
      kernel.zeros = MatMulNBits::ZeroForm::kFloats;
      BELAY_TRY(expect_type(kZeros, "zero_points"));
      BELAY_TRY(expect(kZeros, "zero_points", kernel.n * kernel.blocks, {kernel.n, kernel.blocks}));
    }
  }
  kernel.has_bias = context.has(kBias);
  if (kernel.has_bias) {
    BELAY_TRY(expect_type(kBias, "bias"));
    BELAY_TRY(expect(kBias, "bias", kernel.n, {kernel.n}));
  }
  Dims out = a;
  out.back() = kernel.n;
  BELAY_TRY(context.output(0, kernel.dtype, out));
  context.cost_ns(double(kernel.m) * double(kernel.n) * double(kernel.k) / 30);
  if (kernel.m > kFewRows) {
    ProductForm form;
    form.c_scratch = kernel.dtype != BELAY_DT_FLOAT32;
    form.b_pack_cost = 4;
    kernel.plan = plan_blocks<float>(kernel.m, kernel.n, kernel.k, 1, context.threads(), form);
    context.workspace(product_workspace<float>(kernel.plan) +
                      uint64_t(kernel.lane_floats()) * sizeof(float) * kernel.plan.lanes);
  }
  context.kernel(std::move(kernel), std::string("packed weights:") + simd().name);
  return {};
}

}  // namespace

void add_matmul_nbits(Registry& registry) {
  constexpr TypeMask kTypes = kF32 | kF16 | kBf16;
  registry.add(OpDef{.op = "MatMulNBits",
                     .prepare = prepare_matmul_nbits,
                     .types = {kTypes, kU8, kTypes, kTypes | kU8, kI32, kTypes},
                     .min_inputs = 3,
                     .max_inputs = 6,
                     .domain = "com.microsoft",
                     .ns_per_byte = 1});
}

}  // namespace belay::cpu
