#include "matmul.hpp"

#include "../registry.hpp"
#include "heavy.hpp"

#include <algorithm>

namespace belay::cpu {

int64_t matrix_at(const Dims& batch, const Dims& strides, int64_t index) {
  int64_t at = 0;
  for (size_t d = batch.size(); d-- > 0;) {
    at += index % batch[d] * strides[d];
    index /= batch[d];
  }
  return at;
}

Status read_matmul(const OpContext& context, size_t a, size_t b, MatMulShape& shape) {
  return read_matmul(context, context.dims(a), context.dims(b), true, shape);
}

Status read_matmul(const OpContext& context, Dims a_dims, Dims b_dims, bool dense, MatMulShape& shape) {
  const std::string shapes = text_of(a_dims) + " and " + text_of(b_dims);
  const auto misfit = [&](std::string_view why) {
    return context.bad("the operands have the shapes " + shapes + ": " + std::string(why));
  };
  if (a_dims.empty() || b_dims.empty()) return misfit("want rank 1 at least");
  const bool row = a_dims.size() == 1, column = b_dims.size() == 1;
  if (row) a_dims.insert(a_dims.begin(), 1);
  if (column) b_dims.push_back(1);
  shape.m = a_dims[a_dims.size() - 2];
  shape.k = a_dims.back();
  shape.n = b_dims.back();
  if (b_dims[b_dims.size() - 2] != shape.k)
    return misfit("there are " + std::to_string(shape.k) + " columns on the left and " +
                  std::to_string(b_dims[b_dims.size() - 2]) + " rows on the right");
  const Dims a_batch(a_dims.begin(), a_dims.end() - 2), b_batch(b_dims.begin(), b_dims.end() - 2);
  const Dims* const both[] = {&a_batch, &b_batch};
  const auto batch = broadcast(both);
  if (!batch) return misfit("the leading dims do not broadcast");
  shape.batch = *batch;
  shape.a_batch = broadcast_strides(a_batch, *batch);
  shape.b_batch = broadcast_strides(b_batch, *batch);
  shape.b_matrices = product(b_batch);
  shape.out = *batch;
  if (!row) shape.out.push_back(shape.m);
  if (!column) shape.out.push_back(shape.n);
  // One matrix on the right: the batches on the left are further rows.
  if (dense && shape.b_matrices == 1 && product(a_batch) == product(shape.batch)) {
    shape.m *= product(a_batch);
    shape.batch.clear();
    shape.a_batch.clear();
    shape.b_batch.clear();
  }
  return {};
}

namespace {

// The type in which products of In are summed.
template <class In>
struct SumOf {
  using type = std::conditional_t<std::is_integral_v<In>,
                                  std::conditional_t<(sizeof(In) > 4), uint64_t, uint32_t>, compute_t<In>>;
};
template <class In>
using sum_t = typename SumOf<In>::type;

template <class In, class T>
In narrow(T x) {
  if constexpr (std::is_integral_v<In>)
    return In(x);
  else
    return Compute<In>::store(x);
}

template <class In, class T>
std::shared_ptr<const Packed> pack_right(OpContext& context, size_t b, int64_t matrices, int64_t k, int64_t n,
                                         bool transposed) {
  const std::string form = "columns of " + std::to_string(sizeof(T)) + " bytes, " + std::to_string(k) +
                           " x " + std::to_string(n) + (transposed ? ", transposed" : "");
  return context.packed(b, form, [&]() -> std::shared_ptr<Packed> {
    const int64_t each = packed_columns_size<T>(n, k);
    auto packed = std::make_shared<PackedBytes>(uint64_t(each * matrices) * sizeof(T));
    for (int64_t i = 0; i < matrices; ++i) {
      const MatrixView<In> view{static_cast<const In*>(context.constant(b)) + i * k * n, transposed ? 1 : n,
                                transposed ? k : 1};
      pack_columns<In, T>(view, k, n, static_cast<T*>(packed->data) + i * each);
    }
    return packed;
  });
}

template <class In>
struct MatMulKernel {
  using T = sum_t<In>;
  MatMulShape shape;
  size_t a_operand = 0, b_operand = 1;
  MatrixSteps a_steps, b_steps, c_steps;
  Dims c_batch;  // strides over the batch, in matrices
  float alpha = 1;
  Blocks blocks;
  std::shared_ptr<const Packed> right;
  MatMulFusion fusion;
  bool direct = false, one_bias = false;

  struct Finish {
    In* c;
    int64_t step, column;
    const In* bias;
    Post post;
    T alpha;
  };
  static void finish(const void* context, T* block, int64_t step, int64_t m0, int64_t mc, int64_t n0,
                     int64_t nc) {
    const Finish& f = *static_cast<const Finish*>(context);
    if (f.alpha != T(1))
      for (int64_t i = 0; i < mc; ++i)
        for (int64_t j = 0; j < nc; ++j) block[i * step + j] *= f.alpha;
    if constexpr (std::is_same_v<In, float>)
      for (int64_t i = 0; i < mc; ++i) {
        float* row = block + i * step;
        if (f.bias) simd().binary[size_t(Binary::kAdd)](row, 1, f.bias, 0, row, nc);
        f.post.apply(row, nc, 0);
      }
    if (std::is_same_v<In, T> && f.column == 1) return;  // the block is C
    for (int64_t i = 0; i < mc; ++i)
      for (int64_t j = 0; j < nc; ++j)
        f.c[(m0 + i) * f.step + (n0 + j) * f.column] = narrow<In, T>(block[i * step + j]);
  }

  void operator()(const Run& run) const {
    struct State {
      MatrixView<In> a, b;
      Finish finish;
    };
    const int64_t each = blocks.tasks();
    run_lanes(run, shape.products() * each, blocks.lanes, [&](int64_t task, int64_t lane) {
      const int64_t index = task / each;
      const int64_t a_at = matrix_at(shape.batch, shape.a_batch, index),
                    b_at = matrix_at(shape.batch, shape.b_batch, index);
      State state;
      state.a = {run.in<In>(a_operand) + a_at * a_steps.matrix, a_steps.row, a_steps.column};
      In* const c = run.out<In>(0) + (c_batch.empty() ? index : matrix_at(shape.batch, c_batch, index)) * c_steps.matrix;
      state.finish = {c, c_steps.row, c_steps.column, nullptr, fusion.post, T(alpha)};
      Product<T> p;
      p.m = shape.m, p.n = shape.n, p.k = shape.k;
      p.pack_a = pack_rows<In, T>;
      p.a = &state.a;
      if (right) {
        p.b_packed = static_cast<const T*>(static_cast<const PackedBytes&>(*right).data) +
                     b_at * packed_columns_size<T>(shape.n, shape.k);
      } else {
        state.b = {run.in<In>(b_operand) + b_at * b_steps.matrix, b_steps.row, b_steps.column};
        p.pack_b = pack_block<In, T>;
        p.b = &state.b;
        if constexpr (std::is_same_v<In, T>)
          if (direct) p.b_direct = state.b.data, p.b_step = b_steps.row;
      }
      p.finish_context = &state.finish;
      if constexpr (std::is_same_v<In, T>) {
        if (c_steps.column == 1)
          p.c = c, p.c_step = c_steps.row;
        if (alpha != 1 || !p.c) p.finish = finish;
        if constexpr (std::is_same_v<In, float>) {
          bool finish_rows = !fusion.post.none() && !fusion.post.clamps();
          if (fusion.bias >= 0) {
            const float* bias = run.in<float>(size_t(fusion.bias));
            if (!one_bias)
              p.end.col_bias = bias;
            else
              state.finish.bias = bias, finish_rows = true;
          }
          if (fusion.residual >= 0) {
            p.end.residual = run.in<float>(size_t(fusion.residual)) + index * shape.m * shape.n;
            p.end.residual_step = shape.n;
          }
          if (finish_rows)
            p.finish = finish;
          else if (fusion.post.clamps())
            fusion.post.clamp_into(p.end);
        }
      } else {
        p.finish = finish;
      }
      run_block<T>(p, blocks, task % each, lane_scratch<T>(blocks, run.workspace<void>(), lane));
    });
  }
};

// Plans and packs for a kernel whose shape, operands, steps and fusion are set.
template <class In>
Status prepare_typed(OpContext& context, MatMulKernel<In> kernel) {
  using T = sum_t<In>;
  const MatMulShape& shape = kernel.shape;
  const MatMulFusion& fusion = kernel.fusion;
  const MatrixSteps& b_steps = kernel.b_steps;
  const size_t b = kernel.b_operand;
  const bool b_rows = b_steps.column == 1 && b_steps.row == shape.n, b_columns = b_steps.row == 1 && b_steps.column == shape.k;
  if (fusion.bias >= 0) kernel.one_bias = context.count(size_t(fusion.bias)) == 1 && shape.n != 1;
  ProductForm form;
  // Packed matrices follow each other; one matrix is there for all products.
  const bool in_order = b_steps.matrix == shape.k * shape.n ||
                        std::ranges::all_of(shape.b_batch, [](int64_t stride) { return stride == 0; });
  form.b_packed = context.constant(b) != nullptr && (b_rows || b_columns) && in_order;
  // Few rows would not repay the packing of B.
  form.b_direct =
      !form.b_packed && std::is_same_v<In, T> && b_steps.column == 1 && shape.m <= 2 * tile_kernel<T>().rows;
  form.c_scratch = !std::is_same_v<In, T> || kernel.c_steps.column != 1;
  kernel.direct = form.b_direct;
  kernel.blocks = plan_blocks<T>(shape.m, shape.n, shape.k, shape.products(), context.threads(), form);
  if (form.b_packed) {
    kernel.right = pack_right<In, T>(context, b, shape.b_matrices, shape.k, shape.n, !b_rows);
    context.input_unused(b);
  }
  context.workspace(product_workspace<T>(kernel.blocks));
  context.cost_ns(double(shape.products()) * double(shape.m) * double(shape.n) * double(shape.k) * 2 / 80);
  context.kernel(std::move(kernel), std::string("products:") + micro().name);
  return {};
}

Status prepare_matmul_node(OpContext& context) { return prepare_matmul(context, {}); }
Status prepare_gemm_node(OpContext& context) { return prepare_gemm(context, context.attr(), {}); }

}  // namespace

inline constexpr TypeMask kProductTypes =
    kFloats | types_of(BELAY_DT_INT8, BELAY_DT_UINT8, BELAY_DT_INT16, BELAY_DT_UINT16, BELAY_DT_INT32,
                       BELAY_DT_UINT32, BELAY_DT_INT64, BELAY_DT_UINT64);

namespace {

Status prepare_steps(OpContext& context, const MatMulShape& shape, const MatMulFusion& fusion, const MatrixSteps& a,
                     const MatrixSteps& b, float alpha) {
  if (context.dtype(0) != context.dtype(1))
    return context.bad("the operands are of types " + std::string(dtype_name(context.dtype(0))) + " and " +
                       std::string(dtype_name(context.dtype(1))) + ", want one type");
  BELAY_TRY(context.output(0, context.dtype(0), shape.out));
  Status status;
  dispatch<kProductTypes>(context.dtype(0), [&](auto tag) {
    MatMulKernel<typename decltype(tag)::type> kernel;
    kernel.shape = shape;
    kernel.fusion = fusion;
    kernel.a_steps = a;
    kernel.b_steps = b;
    kernel.c_steps = {shape.m * shape.n, shape.n, 1};
    kernel.alpha = alpha;
    status = prepare_typed(context, std::move(kernel));
  });
  return status;
}

// The dims of an operand as those of the product's matrices, and where these lie.
Result<Dims> arranged(const OpContext& context, size_t i, bool transposed, bool batch, MatrixSteps& steps) {
  Dims dims = context.dims(i);
  if (dims.size() < 2) {  // a vector has nothing to be transposed
    steps = {0, i == 0 ? product(dims) : 1, 1};
    return dims;
  }
  const int64_t rows = dims[dims.size() - 2], columns = dims.back();
  steps = {rows * columns, columns, 1};
  if (batch) {  // its first dim is that of the rows, the others but the last count matrices
    if (dims.size() < 3)
      return context.bad((i == 0 ? "transBatchA" : "transBatchB") + std::string(" is 1, which needs rank 3 at least; the shape is ") +
                         text_of(dims));
    steps = {columns, product(dims, 1, dims.size()), 1};
    std::rotate(dims.begin(), dims.begin() + 1, dims.end() - 1);
  }
  if (transposed) {
    std::swap(dims[dims.size() - 2], dims.back());
    std::swap(steps.row, steps.column);
  }
  return dims;
}

Status prepare_fused_matmul(OpContext& context) {
  const auto flag = [&](std::string_view name) { return context.attr().int_or(name, 0) != 0; };
  MatrixSteps a_steps, b_steps;
  BELAY_ASSIGN(const Dims a, arranged(context, 0, flag("transA"), flag("transBatchA"), a_steps));
  BELAY_ASSIGN(const Dims b, arranged(context, 1, flag("transB"), flag("transBatchB"), b_steps));
  MatMulShape shape;
  BELAY_TRY(read_matmul(context, a, b, !flag("transA") && !flag("transBatchA"), shape));
  return prepare_steps(context, shape, {}, a_steps, b_steps, context.attr().float_or("alpha", 1));
}

}  // namespace

bool contracts(uint32_t dtype) { return (kProductTypes & types_of(dtype)) != 0; }

Status prepare_contraction(OpContext& context, const Contraction& product) {
  Status status;
  dispatch<kProductTypes>(context.dtype(0), [&](auto tag) {
    MatMulKernel<typename decltype(tag)::type> kernel;
    kernel.shape = product.shape;
    kernel.a_operand = product.a;
    kernel.b_operand = 1 - product.a;
    kernel.a_steps = product.a_steps;
    kernel.b_steps = product.b_steps;
    kernel.c_steps = product.c_steps;
    kernel.c_batch = product.c_batch;
    status = prepare_typed(context, std::move(kernel));
  });
  return status;
}

Status prepare_matmul(OpContext& context, const MatMulFusion& fusion) {
  MatMulShape shape;
  BELAY_TRY(read_matmul(context, 0, 1, shape));
  return prepare_steps(context, shape, fusion, {shape.m * shape.k, shape.k, 1}, {shape.k * shape.n, shape.n, 1}, 1);
}

namespace {

// Y = alpha * A' * B' + beta * C.
template <class In>
struct GemmKernel {
  using T = sum_t<In>;
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false, has_c = false, direct = false;
  int64_t c_row = 0, c_col = 0;  // strides of C
  float alpha = 1, beta = 1;
  Post post;
  Blocks blocks;
  std::shared_ptr<const Packed> right;
  bool by_end = false;  // C goes through the tile's end

  struct Finish {
    const GemmKernel* kernel;
    const In* c;
    In* y;
  };
  static void finish(const void* context, T* block, int64_t step, int64_t m0, int64_t mc, int64_t n0,
                     int64_t nc) {
    const Finish& f = *static_cast<const Finish*>(context);
    const GemmKernel& g = *f.kernel;
    for (int64_t i = 0; i < mc; ++i) {
      T* row = block + i * step;
      if (!g.by_end || !std::is_same_v<In, T>) {
        const In* c = f.c ? f.c + (m0 + i) * g.c_row + n0 * g.c_col : nullptr;
        In* y = f.y + (m0 + i) * g.n + n0;
        for (int64_t j = 0; j < nc; ++j) y[j] = g.value(row[j], c ? c + j * g.c_col : nullptr);
      }
      if constexpr (std::is_same_v<In, float>) g.post.apply(f.y + (m0 + i) * g.n + n0, nc, 0);
    }
  }
  In value(T sum, const In* c) const {
    if constexpr (std::is_integral_v<In>) {
      // Whole factors stay in integers, which wrap around as the product does.
      T out = alpha == 1 ? sum : T(int64_t(double(alpha) * double(std::make_signed_t<T>(sum))));
      if (c) out += beta == 1 ? T(*c) : T(int64_t(double(beta) * double(*c)));
      return In(out);
    } else {
      T out = T(alpha) * sum;
      if (c) out += T(beta) * Compute<In>::load(*c);
      return Compute<In>::store(out);
    }
  }

  void operator()(const Run& run) const {
    const MatrixView<In> a{run.in<In>(0), a_transposed ? 1 : k, a_transposed ? m : 1};
    const MatrixView<In> b{run.in<In>(1), b_transposed ? 1 : n, b_transposed ? k : 1};
    const Finish state{this, has_c ? run.in<In>(2) : nullptr, run.out<In>(0)};
    Product<T> p;
    p.m = m, p.n = n, p.k = k;
    p.pack_a = pack_rows<In, T>;
    p.a = &a;
    if (right) {
      p.b_packed = static_cast<const T*>(static_cast<const PackedBytes&>(*right).data);
    } else {
      p.pack_b = pack_block<In, T>;
      p.b = &b;
      if constexpr (std::is_same_v<In, T>)
        if (direct) p.b_direct = b.data, p.b_step = n;
    }
    p.finish_context = &state;
    if constexpr (std::is_same_v<In, T>) {
      p.c = state.y;
      p.c_step = n;
      if (by_end) {
        if (state.c && c_row == 0)
          p.end.col_bias = state.c;
        else if (state.c && c_col == 0)
          p.end.row_bias = state.c;
        else if (state.c)
          p.end.residual = state.c, p.end.residual_step = n;
        if constexpr (std::is_same_v<In, float>) {
          if (post.clamps())
            post.clamp_into(p.end);
          else if (!post.none())
            p.finish = finish;
        }
      } else {
        p.finish = finish;
      }
    } else {
      p.finish = finish;
    }
    run_products<T>(run, blocks, 1, run.workspace<void>(), [&](int64_t) { return p; });
  }
};

template <class In>
Status prepare_gemm_typed(OpContext& context, const Attributes& attributes, const Post& post) {
  using T = sum_t<In>;
  GemmKernel<In> kernel;
  kernel.a_transposed = attributes.int_or("transA", 0) != 0;
  kernel.b_transposed = attributes.int_or("transB", 0) != 0;
  kernel.alpha = attributes.float_or("alpha", 1);
  kernel.beta = attributes.float_or("beta", 1);
  kernel.post = post;
  const Dims &a = context.dims(0), &b = context.dims(1);
  kernel.m = a[kernel.a_transposed ? 1 : 0];
  kernel.k = a[kernel.a_transposed ? 0 : 1];
  kernel.n = b[kernel.b_transposed ? 0 : 1];
  if (b[kernel.b_transposed ? 1 : 0] != kernel.k)
    return context.bad("the operands have the shapes " + text_of(a) +
                       " (transA = " + std::to_string(kernel.a_transposed) + ") and " + text_of(b) +
                       " (transB = " + std::to_string(kernel.b_transposed) + "), which do not fit together");
  const Dims out{kernel.m, kernel.n};
  kernel.has_c = context.has(2) && kernel.beta != 0;
  if (context.has(2)) {
    const Dims* const both[] = {&context.dims(2), &out};
    if (context.rank(2) > 2 || broadcast(both) != out)
      return context.bad("C has the shape " + text_of(context.dims(2)) + ", which does not broadcast to " +
                         text_of(out));
    const Dims strides = broadcast_strides(context.dims(2), out);
    kernel.c_row = strides[0];
    kernel.c_col = strides[1];
  }
  BELAY_TRY(context.output(0, context.dtype(0), out));
  kernel.by_end = kernel.alpha == 1 &&
                  (!kernel.has_c || (kernel.beta == 1 && (kernel.c_row == 0) != (kernel.c_col == 0)) ||
                   (kernel.beta == 1 && kernel.c_row == kernel.n && kernel.c_col == 1));
  ProductForm form;
  form.b_packed = context.constant(1) != nullptr;
  form.b_direct = !form.b_packed && !kernel.b_transposed && std::is_same_v<In, T> &&
                  kernel.m <= 2 * tile_kernel<T>().rows;
  form.c_scratch = !std::is_same_v<In, T>;
  kernel.direct = form.b_direct;
  kernel.blocks = plan_blocks<T>(kernel.m, kernel.n, kernel.k, 1, context.threads(), form);
  if (form.b_packed) {
    kernel.right = pack_right<In, T>(context, 1, 1, kernel.k, kernel.n, kernel.b_transposed);
    context.input_unused(1);
  }
  context.workspace(product_workspace<T>(kernel.blocks));
  context.cost_ns(double(kernel.m) * double(kernel.n) * double(kernel.k) * 2 / 80);
  context.kernel(std::move(kernel), std::string("products:") + micro().name);
  return {};
}

}  // namespace

Status prepare_gemm(OpContext& context, const Attributes& attributes, const Post& post) {
  for (size_t i = 0; i < 2; ++i)
    if (context.rank(i) != 2)
      return context.bad("input " + std::to_string(i) + " has the shape " + text_of(context.dims(i)) +
                         ", want rank 2");
  for (size_t i = 1; i < context.inputs(); ++i)
    if (context.has(i) && context.dtype(i) != context.dtype(0))
      return context.bad("input " + std::to_string(i) + " is of type " +
                         std::string(dtype_name(context.dtype(i))) + ", input 0 of " +
                         std::string(dtype_name(context.dtype(0))) + ", want one type");
  Status status;
  dispatch<kProductTypes>(context.dtype(0), [&](auto tag) {
    status = prepare_gemm_typed<typename decltype(tag)::type>(context, attributes, post);
  });
  return status;
}

void add_matmul(Registry& registry) {
  registry.add(OpDef{.op = "MatMul",
                     .prepare = prepare_matmul_node,
                     .types = {kProductTypes, kProductTypes},
                     .min_inputs = 2,
                     .max_inputs = 2,
                     .ns_per_byte = 2});
  registry.add(OpDef{.op = "FusedMatMul",
                     .prepare = prepare_fused_matmul,
                     .types = {kFloats, kFloats},
                     .min_inputs = 2,
                     .max_inputs = 2,
                     .domain = "com.microsoft",
                     .ns_per_byte = 2});
  registry.add(OpDef{.op = "Gemm",
                     .prepare = prepare_gemm_node,
                     .types = {kProductTypes, kProductTypes, kProductTypes},
                     .min_inputs = 2,
                     .max_inputs = 3,
                     .ns_per_byte = 2});
}

}  // namespace belay::cpu
