// MatMulInteger and QLinearMatMul: 8-bit operands, sums of 32 bits.
#include "../registry.hpp"
#include "heavy.hpp"
#include "matmul.hpp"
#include "requantize.hpp"

namespace belay::cpu {
namespace {

constexpr TypeMask kBytes = kI8 | kU8;

struct Places {
  int a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero;
};
constexpr Places kMatMulInteger{0, -1, 2, 1, -1, 3, -1, -1};
constexpr Places kQLinearMatMul{0, 1, 2, 3, 4, 5, 6, 7};

// How a scale or zero point goes with rows (of A) or columns (of B): steps over the matrices and within one.
struct Spread {
  bool present = false;
  int64_t matrix = 0, line = 0;
};

template <class A, class B, class Y>
struct QuantMatMulKernel {
  MatMulShape shape;
  Places at{};
  Blocks blocks;
  std::shared_ptr<const Packed> right;
  Spread a_zero, b_zero, a_scale, b_scale;
  bool has_y_zero = false;

  MatrixView<B> right_view(const B* b, const B* zero, int64_t matrix) const {
    return {b + matrix * shape.k * shape.n,
            shape.n,
            1,
            zero ? zero + matrix * b_zero.matrix : nullptr,
            0,
            b_zero.line};
  }

  struct Finish {
    Y* y;
    int64_t n;
    const float *a_scale, *b_scale;
    int64_t a_step, b_step;
    float y_scale;
    int32_t zero;
  };
  static void finish(const void* context, uint32_t* block, int64_t step, int64_t m0, int64_t mc, int64_t n0,
                     int64_t nc) {
    const Finish& f = *static_cast<const Finish*>(context);
    if constexpr (!std::is_same_v<Y, int32_t>)
      for (int64_t i = 0; i < mc; ++i)
        for (int64_t j = 0; j < nc; ++j) {
          const float factor = f.a_scale[(m0 + i) * f.a_step] * f.b_scale[(n0 + j) * f.b_step] / f.y_scale;
          f.y[(m0 + i) * f.n + n0 + j] = requantize<Y>(int32_t(block[i * step + j]), factor, f.zero);
        }
  }

  void operator()(const Run& run) const {
    const int64_t each = blocks.tasks();
    const A* a_zeros = a_zero.present ? run.in<A>(size_t(at.a_zero)) : nullptr;
    const B* b_zeros = b_zero.present ? run.in<B>(size_t(at.b_zero)) : nullptr;
    run_lanes(run, shape.products() * each, blocks.lanes, [&](int64_t task, int64_t lane) {
      const int64_t index = task / each;
      const int64_t a_at = matrix_at(shape.batch, shape.a_batch, index),
                    b_at = matrix_at(shape.batch, shape.b_batch, index);
      const MatrixView<A> a{run.in<A>(size_t(at.a)) + a_at * shape.m * shape.k, shape.k,     1,
                            a_zeros ? a_zeros + a_at * a_zero.matrix : nullptr, a_zero.line, 0};
      MatrixView<B> b;
      Product<uint32_t> p;
      p.m = shape.m, p.n = shape.n, p.k = shape.k;
      p.pack_a = pack_rows<A, uint32_t>;
      p.a = &a;
      if (right) {
        p.b_packed = static_cast<const uint32_t*>(static_cast<const PackedBytes&>(*right).data) +
                     b_at * packed_columns_size<uint32_t>(shape.n, shape.k);
      } else {
        b = right_view(run.in<B>(size_t(at.b)), b_zeros, b_at);
        p.pack_b = pack_block<B, uint32_t>;
        p.b = &b;
      }
      Y* const y = run.out<Y>(0) + index * shape.m * shape.n;
      Finish last{};
      if constexpr (std::is_same_v<Y, int32_t>) {
        p.c = reinterpret_cast<uint32_t*>(y);
        p.c_step = shape.n;
      } else {
        last = {y,
                shape.n,
                run.in<float>(size_t(at.a_scale)) + a_at * a_scale.matrix,
                run.in<float>(size_t(at.b_scale)) + b_at * b_scale.matrix,
                a_scale.line,
                b_scale.line,
                *run.in<float>(size_t(at.y_scale)),
                has_y_zero ? int32_t(*run.in<Y>(size_t(at.y_zero))) : 0};
        p.finish = finish;
        p.finish_context = &last;
      }
      run_block<uint32_t>(p, blocks, task % each,
                          lane_scratch<uint32_t>(blocks, run.workspace<void>(), lane));
    });
  }
};

// One value; or one for each of `lines` rows (columns), for all matrices or for each: [lines], [..., lines,
// 1] for rows, [..., 1, lines] for columns.
Result<Spread> spread(const OpContext& context, int i, std::string_view name, const Dims& operand,
                      bool rows) {
  Spread out;
  if (i < 0 || !context.has(size_t(i))) return out;
  out.present = true;
  const Dims& dims = context.dims(size_t(i));
  if (product(dims) == 1) return out;
  const int64_t lines = operand.size() < 2 ? 1 : rows ? operand[operand.size() - 2] : operand.back();
  out.line = 1;
  if (dims == Dims{lines}) return out;
  Dims matrix = operand;
  matrix[matrix.size() - (rows ? 1 : 2)] = 1;
  if (dims.size() == 2 && dims == Dims(matrix.end() - 2, matrix.end())) return out;
  if (dims == matrix) {
    out.matrix = lines;
    return out;
  }
  return context.bad(std::string(name) + " has the shape " + text_of(dims) + ", want one value, [" +
                     std::to_string(lines) + "] or " + text_of(matrix));
}

template <class A, class B, class Y>
Status prepare_typed(OpContext& context, const Places& at, MatMulShape shape) {
  QuantMatMulKernel<A, B, Y> kernel;
  kernel.at = at;
  const Dims &a = context.dims(size_t(at.a)), &b = context.dims(size_t(at.b));
  BELAY_ASSIGN(kernel.a_zero, spread(context, at.a_zero, "the left zero point", a, true));
  BELAY_ASSIGN(kernel.b_zero, spread(context, at.b_zero, "the right zero point", b, false));
  BELAY_ASSIGN(kernel.a_scale, spread(context, at.a_scale, "the left scale", a, true));
  BELAY_ASSIGN(kernel.b_scale, spread(context, at.b_scale, "the right scale", b, false));
  for (const int i : {at.y_scale, at.y_zero})
    if (i >= 0 && context.has(size_t(i)) && context.count(size_t(i)) != 1)
      return context.bad("input " + std::to_string(i) + " has the shape " + text_of(context.dims(size_t(i))) +
                         ", want one value");
  kernel.has_y_zero = at.y_zero >= 0 && context.has(size_t(at.y_zero));
  // Rows of all batches are one matrix where that leaves no row with a value of another; else undo the
  // joining.
  if (shape.batch.empty() && a.size() > 2 && (kernel.a_zero.line || kernel.a_scale.line)) {
    const Dims batch(a.begin(), a.end() - 2);
    shape.m = a[a.size() - 2];
    shape.batch = batch;
    shape.a_batch = dense_strides(batch);
    shape.b_batch = Dims(batch.size(), 0);
  }
  kernel.shape = shape;
  ProductForm form;
  const void* b_zero = kernel.b_zero.present ? context.constant(size_t(at.b_zero)) : nullptr;
  form.b_packed = context.constant(size_t(at.b)) && (!kernel.b_zero.present || b_zero);
  form.c_scratch = !std::is_same_v<Y, int32_t>;
  kernel.blocks = plan_blocks<uint32_t>(shape.m, shape.n, shape.k, shape.products(), context.threads(), form);
  if (form.b_packed) {
    std::string name = "columns of 4 bytes from bytes, zero";
    if (b_zero)
      for (int64_t i = 0; i < context.count(size_t(at.b_zero)); ++i)
        name += " " + std::to_string(int(static_cast<const B*>(b_zero)[i]));
    kernel.right = context.packed(size_t(at.b), name, [&]() -> std::shared_ptr<Packed> {
      const int64_t each = packed_columns_size<uint32_t>(shape.n, shape.k);
      auto packed = std::make_shared<PackedBytes>(uint64_t(each * shape.b_matrices) * sizeof(uint32_t));
      for (int64_t i = 0; i < shape.b_matrices; ++i)
        pack_columns<B, uint32_t>(kernel.right_view(static_cast<const B*>(context.constant(size_t(at.b))),
                                                    static_cast<const B*>(b_zero), i),
                                  shape.k, shape.n, static_cast<uint32_t*>(packed->data) + i * each);
      return packed;
    });
    context.input_unused(size_t(at.b));
  }
  context.workspace(product_workspace<uint32_t>(kernel.blocks));
  context.cost_ns(double(shape.products()) * double(shape.m) * double(shape.n) * double(shape.k) / 30);
  context.kernel(std::move(kernel), std::string("products of 32-bit integers:") + micro().name);
  return {};
}

Status expect(const OpContext& context, int i, uint32_t dtype, std::string_view name) {
  if (i < 0 || !context.has(size_t(i)) || context.dtype(size_t(i)) == dtype) return {};
  return context.bad(std::string(name) + " is of type " + std::string(dtype_name(context.dtype(size_t(i)))) +
                     ", want " + std::string(dtype_name(dtype)));
}

template <bool kLinear>
Status prepare_quantized(OpContext& context) {
  constexpr Places at = kLinear ? kQLinearMatMul : kMatMulInteger;
  MatMulShape shape;
  BELAY_TRY(read_matmul(context, size_t(at.a), size_t(at.b), shape));
  BELAY_TRY(expect(context, at.a_zero, context.dtype(size_t(at.a)), "the left zero point"));
  BELAY_TRY(expect(context, at.b_zero, context.dtype(size_t(at.b)), "the right zero point"));
  uint32_t out = BELAY_DT_INT32;
  if (kLinear) {
    out = context.dtype(size_t(at.y_zero));
    for (const int i : {at.a_scale, at.b_scale, at.y_scale})
      BELAY_TRY(expect(context, i, BELAY_DT_FLOAT32, "a scale"));
  }
  BELAY_TRY(context.output(0, out, shape.out));
  Status status = context.bad("the output's zero point is of type " + std::string(dtype_name(out)) +
                              ", want int8 or uint8");
  dispatch<kBytes>(context.dtype(size_t(at.a)), [&](auto a) {
    dispatch<kBytes>(context.dtype(size_t(at.b)), [&](auto b) {
      using A = typename decltype(a)::type;
      using B = typename decltype(b)::type;
      if constexpr (kLinear)
        dispatch<kBytes>(out, [&](auto y) {
          status = prepare_typed<A, B, typename decltype(y)::type>(context, at, shape);
        });
      else
        status = prepare_typed<A, B, int32_t>(context, at, shape);
    });
  });
  return status;
}

}  // namespace

void add_matmul_integer(Registry& registry) {
  registry.add(OpDef{.op = "MatMulInteger",
                     .prepare = prepare_quantized<false>,
                     .types = {kBytes, kBytes, kBytes, kBytes},
                     .min_inputs = 2,
                     .max_inputs = 4,
                     .ns_per_byte = 4});
  registry.add(OpDef{.op = "QLinearMatMul",
                     .prepare = prepare_quantized<true>,
                     .types = {kBytes, kF32, kBytes, kBytes, kF32, kBytes | kF32},
                     .min_inputs = 8,
                     .max_inputs = 8,
                     .ns_per_byte = 4});
}

}  // namespace belay::cpu
