// MatMulNBits: a product with weights of 2, 4 or 8 bits, which have a scale and a zero point for each block of a column.
// Few rows take dot products with the weights as they are packed; many rows take products of blocks that are unpacked
// into the cache. Both are computed in float, unless accuracy_level is 4: it allows to round A to bytes, with a scale for
// each block of a row, which is done where the CPU multiplies bytes fast and all of A is finite.
#include "../convert.hpp"
#include "../int8/bytes.hpp"
#include "../registry.hpp"
#include "../trouble.hpp"
#include "bit_weights.hpp"
#include "heavy.hpp"
#include "product.hpp"

#include <algorithm>

namespace belay::cpu {
namespace {

constexpr size_t kA = 0, kB = 1, kScales = 2, kZeros = 3, kGroups = 4, kBias = 5;
// Up to so many rows it is cheaper to unpack a word again for each four of them.
constexpr int64_t kFewRows = 16;

struct MatMulNBits {
  uint32_t dtype = BELAY_DT_FLOAT32;  // of A, scales, bias and result
  int64_t m = 0, n = 0, k = 0;
  BitWeights weights;
  std::shared_ptr<const Packed> packed;  // null: some of what it is made of is not constant
  bool has_bias = false, in_bytes = false;
  Blocks plan;

  int64_t depth() const { return weights.row_of.empty() ? k : weights.packed_rows(); }

  const void* packed_weights(const Run& run) const {
    if (packed) return static_cast<const PackedBytes&>(*packed).data;
    void* to = run.scratch<char>(weights.bytes());
    weights.pack({run.in<uint8_t>(kB), run.in<void>(kScales), run.in<void>(kZeros)}, to);
    return to;
  }
  const float* floats(const Run& run, size_t input, int64_t count) const {
    if (dtype == BELAY_DT_FLOAT32) return run.in<float>(input);
    float* to = run.scratch<float>(size_t(count));
    widen(dtype, run.in<Half>(input), to, count);
    return to;
  }
  // Rows of A as floats in the order of the packed weights, `step` apart and zero behind the last.
  const float* rows_of_a(const Run& run, int64_t& step) const {
    const bool in_order = weights.row_of.empty();
    if (in_order && dtype == BELAY_DT_FLOAT32 && step == k) return run.in<float>(kA);
    step = round_up(step, 16);
    float* const to = run.scratch<float>(size_t(m * step));
    float* const row = in_order ? nullptr : run.scratch<float>(size_t(k));
    for (int64_t i = 0; i < m; ++i) {
      float* const made = to + i * step;
      float* const whole = in_order ? made : row;
      if (dtype == BELAY_DT_FLOAT32)
        std::copy_n(run.in<float>(kA) + i * k, k, whole);
      else
        widen(dtype, run.in<Half>(kA) + i * k, whole, k);
      if (in_order) {
        std::fill(made + k, made + step, 0.0f);
      } else {
        for (size_t p = 0; p < weights.row_of.size(); ++p) made[p] = weights.row_of[p] < 0 ? 0.0f : row[weights.row_of[p]];
        std::fill(made + weights.row_of.size(), made + step, 0.0f);
      }
    }
    return to;
  }
  void store(const Run& run, int64_t at, const float* values, int64_t count) const {
    if (dtype == BELAY_DT_FLOAT32)
      std::copy_n(values, count, run.out<float>(0) + at);
    else
      narrow(dtype, values, run.out<Half>(0) + at, count);
  }

  void operator()(const Run& run) const {
    if (m == 0) return;
    const void* const from = packed_weights(run);
    const float* const bias = has_bias ? floats(run, kBias, n) : nullptr;
    if (in_bytes && rows_of_bytes(run, from, bias)) return;
    if (m <= kFewRows)
      few_rows(run, from, bias);
    else
      many_rows(run, from, bias);
  }

  void few_rows(const Run& run, const void* from, const float* bias) const {
    int64_t step = weights.packed_rows();
    const float* const x = rows_of_a(run, step);
    const double panel_ns = double(weights.packed_rows()) * double(ceil_div(m, 4)) * 0.6;
    run.parallel(weights.panels(), grain_of(panel_ns), [&](int64_t begin, int64_t end) {
      alignas(64) float y[kFewRows * kPanel];
      for (int64_t p = begin; p < end; ++p) {
        simd().dot_panel(weights.panel(from, p), x, step, m, y);
        store_panel(run, p, 0, m, bias, y);
      }
    });
  }
  // Rows of a panel's columns, which are changed.
  void store_panel(const Run& run, int64_t panel, int64_t row, int64_t rows, const float* bias, float* y) const {
    const int64_t j = panel * kPanel, width = std::min(kPanel, n - j);
    for (int64_t i = 0; i < rows; ++i, y += kPanel) {
      if (bias) simd().binary[size_t(Binary::kAdd)](y, 1, bias + j, 1, y, width);
      store(run, (row + i) * n + j, y, width);
    }
  }

  // False: A has an infinity or NaN, which bytes cannot hold.
  bool rows_of_bytes(const Run& run, const void* from, const float* bias) const {
    const ByteMicro& micro = byte_micro();
    int64_t step = weights.packed_rows();
    const int64_t line = step, blocks = weights.blocks();
    const float* const x = rows_of_a(run, step);
    int8_t* const bytes = run.scratch<int8_t>(size_t(m * line));
    float *const scales = run.scratch<float>(size_t(m * blocks)), *const sums = run.scratch<float>(size_t(m * blocks));
    Trouble odd;
    run.parallel(m, grain_of(double(line) * 0.2), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if (!micro.quantize_blocks(weights.bits, x + i * step, blocks, weights.block, bytes + i * line, scales + i * blocks,
                                   sums + i * blocks))
          odd.note(i);
    });
    if (odd) return false;
    // A panel is read again for each part of the rows, from a cache that is near.
    const double panel_ns = double(line) * double(m) * 0.08 + double(line) * 0.15;
    run.parallel(weights.panels(), grain_of(panel_ns), [&](int64_t begin, int64_t end) {
      alignas(64) float y[kFewRows * kPanel];
      for (int64_t p = begin; p < end; ++p) {
        const BitPanel panel = weights.panel(from, p);
        for (int64_t i = 0; i < m; i += kFewRows) {
          const int64_t rows = std::min(kFewRows, m - i);
          micro.dot_panel(panel, {bytes + i * line, scales + i * blocks, sums + i * blocks}, rows, y);
          store_panel(run, p, i, rows, bias, y);
        }
      }
    });
    return true;
  }

  // What a lane packs a block of B from.
  struct Source {
    const BitWeights* weights;
    const void* packed;
    float* panel;  // of the lane: columns of which a block has only some
  };
  static void pack_b(const void* context, int64_t k0, int64_t kc, int64_t n0, int64_t nc, float* to, int64_t step) {
    const Source& source = *static_cast<const Source*>(context);
    for (int64_t j = n0; j < n0 + nc;) {
      const int64_t first = j % kPanel, width = std::min(kPanel - first, n0 + nc - j);
      const BitPanel panel = source.weights->panel(source.packed, j / kPanel);
      if (width == kPanel) {
        simd().unpack_panel(panel, k0, kc, to + j - n0, step);
      } else {
        simd().unpack_panel(panel, k0, kc, source.panel, kPanel);
        for (int64_t p = 0; p < kc; ++p) std::copy_n(source.panel + p * kPanel + first, width, to + p * step + j - n0);
      }
      j += width;
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

  int64_t lane_floats() const { return plan.kc * kPanel; }
  void many_rows(const Run& run, const void* from, const float* bias) const {
    int64_t step = depth();
    const float* const rows = rows_of_a(run, step);
    const MatrixView<float> a{rows, step, 1};
    const int64_t height = tile_kernel<float>().rows;
    float* const packed_a = run.scratch<float>(size_t(packed_rows_size<float>(m, depth())));
    run.parallel(ceil_div(m, height), grain_of(double(depth() * height) * 0.3), [&](int64_t begin, int64_t end) {
      pack_rows<float, float>(&a, begin * height, std::min(end * height, m) - begin * height, 0, depth(),
                              packed_a + begin * height * depth());
    });
    const Finish last{this, &run, bias};
    float* const panels = run.workspace<float>();
    void* const scratch = panels + lane_floats() * plan.lanes;
    run_lanes(run, plan.tasks(), plan.lanes, [&](int64_t task, int64_t lane) {
      const Source source{&weights, from, panels + lane_floats() * lane};
      Product<float> p;
      p.m = m, p.n = n, p.k = depth();
      p.a_packed = packed_a;
      p.pack_b = pack_b;
      p.b = &source;
      if (dtype == BELAY_DT_FLOAT32) {
        p.c = run.out<float>(0);
        p.c_step = n;
        p.end.col_bias = bias;
      } else {
        p.finish = finish;
        p.finish_context = &last;
      }
      run_block<float>(p, plan, task, lane_scratch<float>(plan, scratch, lane));
    });
  }
};

// Reads attributes and shapes; `groups` is set where the input g_idx is there and says something.
Status read_weights(OpContext& context, MatMulNBits& kernel) {
  const int64_t bits = context.attr().int_or("bits", 4), block = context.attr().int_or("block_size", 0);
  if (bits != 2 && bits != 4 && bits != 8)
    return context.bad("attribute bits is " + std::to_string(bits) + ", want 2, 4 or 8", Code::kUnimplemented);
  if (block < 16 || block > 1 << 30 || (block & (block - 1)) != 0)  // so that bytes of B have 63 bits
    return context.bad("attribute block_size is " + std::to_string(block) + ", want a power of 2 from 16 to 2^30");
  if (kernel.k < 1 || kernel.n < 1 || kernel.k > INT32_MAX || kernel.n > INT32_MAX)
    return context.bad("attributes K and N are " + std::to_string(kernel.k) + " and " + std::to_string(kernel.n) +
                       ", want 1 to 2147483647");
  if (const int64_t level = context.attr().int_or("accuracy_level", 0); level < 0 || level > 4)
    return context.bad("attribute accuracy_level is " + std::to_string(level) + ", want 0 to 4");
  if (const int64_t order = context.attr().int_or("weight_prepacked", 0); order != 0)
    return context.bad("attribute weight_prepacked is " + std::to_string(order) +
                           ": weights in the order of another device are not supported; export the model without",
                       Code::kUnimplemented);
  BitWeights& w = kernel.weights;
  w.dtype = kernel.dtype;
  w.bits = int(bits), w.block = block;
  w.columns = kernel.n, w.rows = kernel.k, w.source_blocks = ceil_div(kernel.k, block);
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
  const int64_t blocks = w.source_blocks, block_bytes = block * bits / 8;
  BELAY_TRY(expect(kB, "B", kernel.n * blocks * block_bytes, {kernel.n, blocks, block_bytes}));
  BELAY_TRY(expect_type(kScales, "scales"));
  BELAY_TRY(expect(kScales, "scales", kernel.n * blocks, {kernel.n, blocks}));
  if (context.has(kZeros)) {
    if (context.dtype(kZeros) == BELAY_DT_UINT8) {
      const int64_t bytes = ceil_div(blocks * bits, 8);
      w.zeros = BitWeights::Zeros::kPacked;
      BELAY_TRY(expect(kZeros, "zero_points", kernel.n * bytes, {kernel.n, bytes}));
    } else {
      w.zeros = BitWeights::Zeros::kFloats;
      BELAY_TRY(expect_type(kZeros, "zero_points"));
      BELAY_TRY(expect(kZeros, "zero_points", kernel.n * blocks, {kernel.n, blocks}));
    }
  }
  if (context.has(kGroups)) {
    if (context.count(kGroups) != kernel.k && context.count(kGroups) != blocks * block)
      return context.bad("g_idx has the shape " + text_of(context.dims(kGroups)) + ", want [" + std::to_string(kernel.k) + "]");
    const auto* groups = static_cast<const int32_t*>(context.constant(kGroups));
    if (!groups) return context.bad("g_idx is not constant; the order of weights is, give it as an initializer", Code::kUnimplemented);
    if (int64_t at = 0; !w.set_groups(groups, at))
      return context.bad("g_idx names for row " + std::to_string(at) + " of B a block that is not there, want 0 to " +
                         std::to_string(blocks - 1));
  }
  kernel.has_bias = context.has(kBias);
  if (kernel.has_bias) {
    BELAY_TRY(expect_type(kBias, "bias"));
    BELAY_TRY(expect(kBias, "bias", kernel.n, {kernel.n}));
  }
  return {};
}

void pack_weights(OpContext& context, MatMulNBits& kernel) {
  const bool zeros = context.has(kZeros);
  if (!context.constant(kB) || !context.constant(kScales) || (zeros && !context.constant(kZeros))) return;
  std::string form = "panels of " + std::to_string(kernel.weights.bits) + " bits, blocks of " + std::to_string(kernel.weights.block);
  bool shared = true;
  for (const size_t i : {kScales, kZeros, kGroups}) {
    if (!context.has(i)) continue;
    form += ", " + std::to_string(context.constant_key(i));
    shared = shared && context.constant_key(i) != 0;
  }
  if (!shared && context.constant_key(kB) != 0) return;  // another list could have been packed under that key
  kernel.packed = context.packed(kB, form, [&]() -> std::shared_ptr<Packed> {
    auto out = std::make_shared<PackedBytes>(kernel.weights.bytes());
    kernel.weights.pack({static_cast<const uint8_t*>(context.constant(kB)), context.constant(kScales),
                         zeros ? context.constant(kZeros) : nullptr},
                        out->data);
    return out;
  });
  for (const size_t i : {kB, kScales, kZeros})
    if (context.has(i)) context.input_unused(i);
}

Status prepare_matmul_nbits(OpContext& context) {
  MatMulNBits kernel;
  const Dims& a = context.dims(kA);
  kernel.dtype = context.dtype(kA);
  kernel.k = context.attr().int_or("K", 0);
  kernel.n = context.attr().int_or("N", 0);
  if (a.empty() || a.back() != kernel.k)
    return context.bad("A has the shape " + text_of(a) + ", want K, " + std::to_string(kernel.k) + ", as its last dim");
  kernel.m = product(a, 0, a.size() - 1);
  BELAY_TRY(read_weights(context, kernel));
  Dims out = a;
  out.back() = kernel.n;
  BELAY_TRY(context.output(0, kernel.dtype, out));
  pack_weights(context, kernel);
  context.cost_ns(double(kernel.m) * double(kernel.n) * double(kernel.k) / 30);
  kernel.in_bytes = context.attr().int_or("accuracy_level", 0) == 4 && byte_micro().dot_panel;
  if (kernel.m > kFewRows) {
    ProductForm form;
    form.a_packed = form.b_near = true;
    form.c_scratch = kernel.dtype != BELAY_DT_FLOAT32;
    form.b_pack_cost = 3;
    kernel.plan = plan_blocks<float>(kernel.m, kernel.n, kernel.depth(), 1, context.threads(), form);
    context.workspace(product_workspace<float>(kernel.plan) + uint64_t(kernel.lane_floats()) * sizeof(float) * kernel.plan.lanes);
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
