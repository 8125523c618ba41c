// MatMulInteger, QLinearMatMul, and the products with float results: MatMulIntegerToFloat, QGemm.
#include "../heavy/matmul.hpp"
#include "int8.hpp"
#include "operands.hpp"

namespace belay::cpu {
namespace {

// Positions of the operands; -1: there is none.
struct Places {
  int a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, bias;
};
constexpr Places kMatMulInteger{0, -1, 2, 1, -1, 3, -1, -1, -1};
constexpr Places kQLinearMatMul{0, 1, 2, 3, 4, 5, 6, 7, -1};
constexpr Places kToFloat{0, 2, 4, 1, 3, 5, -1, -1, 6};
constexpr Places kQGemm{0, 1, 2, 3, 4, 5, 7, 8, 6};

// How a scale or zero point goes with rows (of A) or columns (of B): steps over the matrices and within one.
struct Spread {
  bool present = false;
  int64_t matrix = 0, line = 0;
};

struct BytesMatMul {
  MatMulShape shape;
  Places at{};
  ByteBlocks blocks;
  ByteForm a_form, b_form;
  int64_t a_row = 0, a_column = 1, b_row = 0, b_column = 1;
  std::shared_ptr<const Packed> right;  // of each matrix: its columns, then their sums
  Spread a_zero, b_zero, a_scale, b_scale, bias;
  bool gemm = false;  // the bias is added to the sums, and scaled with them
  bool b_symmetric = false;  // its zero points are known to be zero
  uint32_t out = BELAY_DT_INT32;
  float alpha = 1;

  int64_t right_words() const { return round_up(packed_byte_columns(shape.n, shape.k) + shape.n, 16); }
  // Words of a lane: those of the product, then what goes with the columns and rows of a task.
  int64_t lane_words() const { return blocks.lane_words() + 3 * blocks.nc + round_up(2 * blocks.mc, 16); }

  // What goes with the lines of one task; arrays begin with its first row or column.
  struct Lines {
    int64_t m0, n0, mc, nc;
    bool one_za;          // and the sums of B's columns are known
    int32_t* column_add;  // null: nothing
    int32_t *a_negative, *b_negative;
    float *row_scale, *column_scale;
  };
  struct Right {
    const BytesMatMul* kernel;
    const uint8_t* b;
  };
  static void pack_right(const void* context, int64_t n0, int64_t nc, uint32_t* to) {
    const Right& right = *static_cast<const Right*>(context);
    const BytesMatMul& k = *right.kernel;
    pack_byte_panel(right.b + n0 * k.b_column, k.b_row, k.b_column, k.shape.k, nc, k.b_form, to);
  }
  const uint8_t* in(const Run& run, int i) const { return i < 0 ? nullptr : run.in<uint8_t>(size_t(i)); }

  // (a - za)(b - zb), summed: the sums of a b, less za times the sum of b, less zb times (the sum of a, less k za).
  // Where one za is for all rows and the sums of b are known, the second is the same in all rows.
  Lines lines_of(const Run& run, int64_t task, int64_t a_at, int64_t b_at, const int32_t* b_sums,
                 uint32_t* memory) const {
    Lines l{};
    l.m0 = task % blocks.m_blocks * blocks.mc, l.n0 = task / blocks.m_blocks * blocks.nc;
    l.mc = std::min(blocks.mc, shape.m - l.m0), l.nc = std::min(blocks.nc, shape.n - l.n0);
    int32_t* const add = reinterpret_cast<int32_t*>(memory);
    l.b_negative = add + blocks.nc;
    l.column_scale = reinterpret_cast<float*>(l.b_negative + blocks.nc);
    l.a_negative = reinterpret_cast<int32_t*>(l.column_scale + blocks.nc);
    l.row_scale = reinterpret_cast<float*>(l.a_negative + blocks.mc);
    l.one_za = a_zero.line == 0 && b_sums;
    const uint8_t* a_zeros = a_zero.present ? in(run, at.a_zero) + a_at * a_zero.matrix : nullptr;
    const uint8_t* b_zeros = b_zero.present ? in(run, at.b_zero) + b_at * b_zero.matrix : nullptr;
    for (int64_t i = 0; i < l.mc; ++i)
      l.a_negative[i] = -a_form.value(a_zeros ? a_zeros[(l.m0 + i) * a_zero.line] : 0);
    if (l.one_za) {
      l.column_add = add;
      for (int64_t j = 0; j < l.nc; ++j)
        add[j] = int32_t(uint32_t(l.a_negative[0]) * uint32_t(b_sums[l.n0 + j]));
    }
    if (!b_symmetric)
      for (int64_t j = 0; j < l.nc; ++j)
        l.b_negative[j] = -b_form.value(b_zeros ? b_zeros[(l.n0 + j) * b_zero.line] : 0);
    if (out == BELAY_DT_INT32) return l;
    const float* as = run.in<float>(size_t(at.a_scale)) + a_at * a_scale.matrix;
    const float* bs = run.in<float>(size_t(at.b_scale)) + b_at * b_scale.matrix;
    const float ys = out == BELAY_DT_FLOAT32 ? 1.0f : *run.in<float>(size_t(at.y_scale));
    const float first = a_scale.line ? 1.0f : alpha * as[0];
    for (int64_t j = 0; j < l.nc; ++j) l.column_scale[j] = first * bs[(l.n0 + j) * b_scale.line] / ys;
    if (a_scale.line)
      for (int64_t i = 0; i < l.mc; ++i) l.row_scale[i] = alpha * as[l.m0 + i];
    else
      l.row_scale = nullptr;
    if (bias.present && gemm) {
      const int32_t* c = run.in<int32_t>(size_t(at.bias));
      if (!l.column_add) std::fill_n(l.column_add = add, l.nc, 0);
      for (int64_t j = 0; j < l.nc; ++j)
        add[j] = int32_t(uint32_t(add[j]) + uint32_t(c[(l.n0 + j) * bias.line]));
    }
    return l;
  }
  void operator()(const Run& run) const {
    const int64_t each = blocks.tasks();
    run_lanes(run, shape.products() * each, blocks.lanes, [&](int64_t task, int64_t lane) {
      const int64_t index = task / each;
      const int64_t a_at = matrix_at(shape.batch, shape.a_batch, index),
                    b_at = matrix_at(shape.batch, shape.b_batch, index);
      ByteProduct p;
      p.m = shape.m, p.n = shape.n, p.k = shape.k;
      p.signs = b_form.is_signed ? Signs::kColumnsSigned : Signs::kRowsSigned;
      p.a = in(run, at.a) + a_at * shape.m * shape.k;
      p.a_row = a_row, p.a_column = a_column;
      p.a_form = a_form;
      const Right from{this, right ? nullptr : in(run, at.b) + b_at * shape.k * shape.n};
      if (right) {
        p.b_packed = static_cast<const uint32_t*>(static_cast<const PackedBytes&>(*right).data) + b_at * right_words();
        p.b_sums = reinterpret_cast<const int32_t*>(p.b_packed + packed_byte_columns(shape.n, shape.k));
      } else {
        p.pack_b = pack_right;
        p.b = &from;
      }
      uint32_t* const scratch = run.workspace<uint32_t>() + lane * lane_words();
      const Lines lines = lines_of(run, task % each, a_at, b_at, p.b_sums, scratch + blocks.lane_words());
      p.want_a_sums = !b_symmetric;
      p.want_b_sums = !lines.one_za;
      run_byte_task(p, blocks, task % each, scratch,
                    [&](const Sums& tile, int64_t i, int64_t j, const int32_t* of_rows, const int32_t* of_columns) {
                      finish(run, lines, index, tile, i, j, of_rows, of_columns);
                    });
    });
  }

  void finish(const Run& run, const Lines& lines, int64_t index, const Sums& tile, int64_t i, int64_t j,
              const int32_t* of_rows, const int32_t* of_columns) const {
    const ByteMicro& micro = byte_micro();
    const int64_t row = i - lines.m0, column = j - lines.n0, place = (index * shape.m + i) * shape.n + j;
    SumEnd sum;
    int32_t rows[8];
    if (lines.column_add) sum.column_add = lines.column_add + column;
    if (!lines.one_za) {
      sum.row_factor[0] = lines.a_negative + row;
      sum.column_factor[0] = of_columns;
    }
    if (!b_symmetric) {
      for (int64_t r = 0; r < tile.m; ++r)
        rows[r] = int32_t(uint32_t(of_rows[r]) + uint32_t(shape.k) * uint32_t(lines.a_negative[row + r]));
      sum.row_factor[1] = rows;
      sum.column_factor[1] = lines.b_negative + column;
    }
    if (out == BELAY_DT_INT32) return micro.to_ints(tile, sum, run.out<int32_t>(0) + place, shape.n);
    const Scales scale{lines.row_scale ? lines.row_scale + row : nullptr, lines.column_scale + column};
    if (out == BELAY_DT_FLOAT32) {
      const float* floats = bias.present && !gemm ? run.in<float>(size_t(at.bias)) + j : nullptr;
      return micro.to_floats(tile, sum, scale, floats, run.out<float>(0) + place, shape.n);
    }
    ByteEnd end;
    end.scale = scale;
    end.is_signed = out == BELAY_DT_INT8;
    if (const uint8_t* zero = in(run, at.y_zero)) end.zero = ByteForm{false, end.is_signed}.value(*zero);
    micro.to_bytes(tile, sum, end, run.out<uint8_t>(0) + place, shape.n);
  }
};

// One value; or one for each of `lines` rows (columns), for all matrices or for each: [lines], [..., lines, 1] for
// rows, [..., 1, lines] for columns.
Result<Spread> spread(const OpContext& context, int i, std::string_view name, const Dims& operand, bool rows) {
  Spread out;
  if (i < 0) return out;
  out.present = true;
  const Dims& dims = context.dims(size_t(i));
  if (product(dims) == 1) return out;
  if (operand.size() < 2)  // a vector is one row, or one column
    return context.bad(std::string(name) + " has the shape " + text_of(dims) + ", want one value");
  const int64_t lines = rows ? operand[operand.size() - 2] : operand.back();
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

// What all these products have in common; shape and steps are read.
Status prepare_product(OpContext& context, BytesMatMul kernel) {
  Places& at = kernel.at;
  MatMulShape& shape = kernel.shape;
  for (int* i : {&at.a_zero, &at.b_zero, &at.y_scale, &at.y_zero, &at.bias})
    if (*i >= 0 && !context.has(size_t(*i))) *i = -1;
  // As a product of rows and columns, whatever is transposed.
  const Dims a = kernel.gemm ? Dims{shape.m, shape.k} : context.dims(size_t(at.a));
  const Dims b = kernel.gemm ? Dims{shape.k, shape.n} : context.dims(size_t(at.b));
  const bool a_signed = context.dtype(size_t(at.a)) == BELAY_DT_INT8,
             b_signed = context.dtype(size_t(at.b)) == BELAY_DT_INT8;
  kernel.b_form = {false, b_signed};
  kernel.a_form = opposite_form(a_signed, b_signed);
  BELAY_TRY(expect_type(context, at.a_zero, context.dtype(size_t(at.a)), "the left zero point"));
  BELAY_TRY(expect_type(context, at.b_zero, context.dtype(size_t(at.b)), "the right zero point"));
  for (const int i : {at.a_scale, at.b_scale, at.y_scale})
    BELAY_TRY(expect_type(context, i, BELAY_DT_FLOAT32, "a scale"));
  BELAY_ASSIGN(kernel.a_zero, spread(context, at.a_zero, "the left zero point", a, true));
  BELAY_ASSIGN(kernel.b_zero, spread(context, at.b_zero, "the right zero point", b, false));
  BELAY_ASSIGN(kernel.a_scale, spread(context, at.a_scale, "the left scale", a, true));
  BELAY_ASSIGN(kernel.b_scale, spread(context, at.b_scale, "the right scale", b, false));
  for (const int i : {at.y_scale, at.y_zero}) BELAY_TRY(expect_one_value(context, i));
  if (at.bias >= 0) {
    BELAY_TRY(expect_type(context, at.bias, kernel.gemm ? BELAY_DT_INT32 : BELAY_DT_FLOAT32, "the bias"));
    const Dims& dims = context.dims(size_t(at.bias));
    kernel.bias = {true, 0, 1};
    const bool one = kernel.gemm && product(dims) == 1;
    if (one) kernel.bias.line = 0;
    if (!one && (dims.empty() || product(dims) != shape.n || dims.back() != shape.n))
      return context.bad("the bias has the shape " + text_of(dims) + ", want [" + std::to_string(shape.n) + "]",
                         Code::kUnimplemented);
  }
  // Rows of all batches are one matrix where that leaves no row with a value of another; else undo the joining.
  if (shape.batch.empty() && a.size() > 2 && (kernel.a_zero.line || kernel.a_scale.line)) {
    const Dims batch(a.begin(), a.end() - 2);
    shape.m = a[a.size() - 2];
    shape.batch = batch;
    shape.a_batch = dense_strides(batch);
    shape.b_batch = Dims(batch.size(), 0);
  }
  kernel.b_symmetric = known_zeros(context, at.b_zero);
  const auto* constant = static_cast<const uint8_t*>(context.constant(size_t(at.b)));
  kernel.blocks =
      plan_bytes(shape.m, shape.n, shape.k, shape.products(), context.threads(), false, constant != nullptr);
  if (constant) {
    const std::string form = "columns of bytes, " + std::to_string(shape.k) + " x " + std::to_string(shape.n) +
                             ", steps " + std::to_string(kernel.b_row) + " and " + std::to_string(kernel.b_column) +
                             (b_signed ? ", signed" : "");
    kernel.right = context.packed(size_t(at.b), form, [&]() -> std::shared_ptr<Packed> {
      const int64_t each = kernel.right_words(), words = packed_byte_columns(shape.n, shape.k);
      auto packed = std::make_shared<PackedBytes>(uint64_t(each * shape.b_matrices) * 4);
      for (int64_t i = 0; i < shape.b_matrices; ++i) {
        uint32_t* to = static_cast<uint32_t*>(packed->data) + i * each;
        const uint8_t* from = constant + i * shape.k * shape.n;
        pack_byte_columns(from, kernel.b_row, kernel.b_column, shape.k, shape.n, kernel.b_form, to);
        auto* sums = reinterpret_cast<int32_t*>(to + words);
        for (int64_t j = 0; j < shape.n; ++j)
          sums[j] = sum_bytes(from + j * kernel.b_column, shape.k, kernel.b_row, kernel.b_form);
      }
      return packed;
    });
    context.input_unused(size_t(at.b));
  }
  context.workspace(uint64_t(kernel.lane_words()) * 4 * kernel.blocks.lanes);
  context.cost_ns(double(shape.products()) * double(shape.m) * double(shape.n) * double(shape.k) / 200);
  context.kernel(std::move(kernel), std::string("products of bytes:") + byte_micro().name);
  return {};
}

Status prepare_matmul_bytes(OpContext& context, const Places& at, uint32_t out) {
  BytesMatMul kernel;
  kernel.at = at;
  kernel.out = out;
  BELAY_TRY(read_matmul(context, size_t(at.a), size_t(at.b), kernel.shape));
  kernel.a_row = kernel.shape.k;
  kernel.b_row = kernel.shape.n;
  BELAY_TRY(context.output(0, out, kernel.shape.out));
  return prepare_product(context, std::move(kernel));
}
Status prepare_matmul_integer(OpContext& context) {
  return prepare_matmul_bytes(context, kMatMulInteger, BELAY_DT_INT32);
}
Status prepare_to_float(OpContext& context) { return prepare_matmul_bytes(context, kToFloat, BELAY_DT_FLOAT32); }
Status prepare_qlinear_matmul(OpContext& context) {
  BELAY_ASSIGN(const uint32_t out, byte_output(context, size_t(kQLinearMatMul.y_zero)));
  return prepare_matmul_bytes(context, kQLinearMatMul, out);
}

Status prepare_qgemm(OpContext& context) {
  BytesMatMul kernel;
  kernel.at = kQGemm;
  kernel.gemm = true;
  kernel.out = BELAY_DT_FLOAT32;
  if (context.has(size_t(kQGemm.y_scale))) {
    kernel.out = BELAY_DT_UINT8;
    if (context.has(size_t(kQGemm.y_zero))) {
      BELAY_ASSIGN(kernel.out, byte_output(context, size_t(kQGemm.y_zero)));
    }
  }
  const Dims a = context.dims(size_t(kQGemm.a)), b = context.dims(size_t(kQGemm.b));
  if (a.size() != 2 || b.size() != 2)
    return context.bad("the operands have the shapes " + text_of(a) + " and " + text_of(b) + ", want rank 2");
  const bool trans_a = context.attr().int_or("transA", 0) != 0, trans_b = context.attr().int_or("transB", 0) != 0;
  kernel.alpha = context.attr().float_or("alpha", 1.0f);
  MatMulShape& shape = kernel.shape;
  shape.m = a[trans_a ? 1 : 0], shape.k = a[trans_a ? 0 : 1], shape.n = b[trans_b ? 0 : 1];
  if (b[trans_b ? 1 : 0] != shape.k)
    return context.bad("the operands have the shapes " + text_of(a) + " and " + text_of(b) + ": there are " +
                       std::to_string(shape.k) + " columns on the left and " + std::to_string(b[trans_b ? 1 : 0]) +
                       " rows on the right");
  kernel.a_row = trans_a ? 1 : shape.k, kernel.a_column = trans_a ? shape.m : 1;
  kernel.b_row = trans_b ? 1 : shape.n, kernel.b_column = trans_b ? shape.k : 1;
  shape.out = {shape.m, shape.n};
  BELAY_TRY(context.output(0, kernel.out, shape.out));
  return prepare_product(context, std::move(kernel));
}

}  // namespace

void add_matmul_bytes(Registry& registry) {
  registry.add(OpDef{.op = "MatMulInteger",
                     .prepare = prepare_matmul_integer,
                     .types = {kBytes, kBytes, kBytes, kBytes},
                     .min_inputs = 2,
                     .max_inputs = 4,
                     .ns_per_byte = 0.5});
  registry.add(OpDef{.op = "QLinearMatMul",
                     .prepare = prepare_qlinear_matmul,
                     .types = {kBytes, kF32, kBytes, kBytes, kF32, kBytes | kF32},
                     .min_inputs = 8,
                     .max_inputs = 8,
                     .ns_per_byte = 0.5});
  registry.add(OpDef{.op = "MatMulIntegerToFloat",
                     .prepare = prepare_to_float,
                     .types = {kBytes, kBytes, kF32, kF32, kBytes, kBytes | kF32},
                     .min_inputs = 4,
                     .max_inputs = 7,
                     .domain = "com.microsoft",
                     .ns_per_byte = 0.5});
  registry.add(OpDef{.op = "QGemm",
                     .prepare = prepare_qgemm,
                     .types = {kBytes, kF32, kBytes, kBytes, kF32, kBytes | kF32 | kI32},
                     .min_inputs = 6,
                     .max_inputs = 9,
                     .domain = "com.microsoft",
                     .ns_per_byte = 0.5});
}

}  // namespace belay::cpu
