// neural.cpp: matrix products and normalisations.
#include "windows.h"

namespace reference {
namespace {

// out[i, j] += sum over k of a[i, k] * b[k, j]
void product(const double* a, const double* b, double* out, int64_t rows, int64_t inner, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t j = 0; j < columns; ++j) out[i * columns + j] += a[i * inner + k] * b[k * columns + j];
}

// Batched product of decoded operands; dims of rank 1 get the missing axis.
std::vector<double> batched(const Call& call, const std::vector<double>& a, const std::vector<double>& b) {
  Dims left = call.in[0].dims, right = call.in[1].dims;
  Dims out = call.out[0].dims;
  if (left.size() == 1) left.insert(left.begin(), 1), out.insert(out.end() - (right.size() > 1 ? 1 : 0), 1);
  if (right.size() == 1) right.push_back(1), out.push_back(1);
  const int64_t rows = left[left.size() - 2], inner = left.back(), columns = right.back();
  std::vector<double> y(static_cast<size_t>(count_of(out)), 0);
  const Dims batch(out.begin(), out.end() - 2), left_batch(left.begin(), left.end() - 2),
      right_batch(right.begin(), right.end() - 2);
  int64_t n = 0;
  for (Walk walk(batch); !walk.done(); walk.next(), ++n)
    product(a.data() + broadcast(walk.at(), left_batch) * rows * inner,
            b.data() + broadcast(walk.at(), right_batch) * inner * columns, y.data() + n * rows * columns,
            rows, inner, columns);
  return y;
}

void store(Tensor& out, const std::vector<double>& y) {
  for (int64_t i = 0; i < out.count(); ++i) out.put_real(i, y[size_t(i)]);
}

void matmul(Call& call) { store(call.out[0], batched(call, call.in[0].reals(), call.in[1].reals())); }

void matmul_integer(Call& call) {
  std::vector<double> a = call.in[0].reals(), b = call.in[1].reals();
  const int64_t inner = call.in[0].dims.back(), columns = call.in[1].dims.back();
  for (size_t i = 0; call.has(2) && i < a.size(); ++i)  // one zero point, or one a row
    a[i] -= call.in[2].real(call.in[2].count() == 1 ? 0 : int64_t(i) / inner % call.in[2].count());
  for (size_t i = 0; call.has(3) && i < b.size(); ++i)  // one zero point, or one a column
    b[i] -= call.in[3].real(call.in[3].count() == 1 ? 0 : int64_t(i) % columns);
  store(call.out[0], batched(call, a, b));
}

void gemm(Call& call) {
  const bool trans_a = call.node.int_or("transA", 0), trans_b = call.node.int_or("transB", 0);
  const double alpha = call.node.float_or("alpha", 1), beta = call.node.float_or("beta", 1);
  const int64_t rows = call.out[0].dims[0], columns = call.out[0].dims[1],
                inner = call.in[0].dims[trans_a ? 0 : 1];
  const std::vector<double> a = call.in[0].reals(), b = call.in[1].reals();
  int64_t at = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++at) {
    const int64_t i = walk.at()[0], j = walk.at()[1];
    double sum = 0;
    for (int64_t k = 0; k < inner; ++k)
      sum += a[size_t(trans_a ? k * rows + i : i * inner + k)] *
             b[size_t(trans_b ? j * inner + k : k * columns + j)];
    sum *= alpha;
    if (call.has(2)) sum += beta * call.in[2].real(broadcast(walk.at(), call.in[2].dims));
    call.out[0].put_real(at, sum);
  }
}

void batch_normalization(Call& call) {
  const double epsilon = call.node.float_or("epsilon", 1e-5f);
  const Dims& dims = call.in[0].dims;
  const int64_t channels = dims.size() > 1 ? dims[1] : 1,
                inner = count_of(tail(dims, std::min<size_t>(2, dims.size())));
  for (int64_t i = 0; i < call.out[0].count(); ++i) {
    const int64_t c = i / inner % channels;
    const double deviation = std::sqrt(call.in[4].real(c) + epsilon);
    call.out[0].put_real(
        i, (call.in[0].real(i) - call.in[3].real(c)) / deviation * call.in[1].real(c) + call.in[2].real(c));
  }
}

// Mean and 1 / deviation of `count` elements from `first`.
std::pair<double, double> moments(const Tensor& in, int64_t first, int64_t count, double epsilon) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) sum += in.real(first + i);
  const double mean = sum / double(count);
  for (int64_t i = 0; i < count; ++i) squares += (in.real(first + i) - mean) * (in.real(first + i) - mean);
  return {mean, 1 / std::sqrt(squares / double(count) + epsilon)};
}

void instance_normalization(Call& call) {
  const Dims& dims = call.in[0].dims;
  const int64_t inner = count_of(tail(dims, 2));
  for (int64_t plane = 0; plane < dims[0] * dims[1]; ++plane) {
    const auto [mean, scale] =
        moments(call.in[0], plane * inner, inner, call.node.float_or("epsilon", 1e-5f));
    for (int64_t i = plane * inner; i < (plane + 1) * inner; ++i)
      call.out[0].put_real(i, (call.in[0].real(i) - mean) * scale * call.in[1].real(plane % dims[1]) +
                                  call.in[2].real(plane % dims[1]));
  }
}

void layer_normalization(Call& call) {
  const Dims& dims = call.in[0].dims;
  const size_t axis = axis_of(call.node.int_or("axis", -1), dims.size());
  const int64_t inner = count_of(tail(dims, axis)),
                outer = count_of(Dims(dims.begin(), dims.begin() + long(axis)));
  const Dims inner_dims = tail(dims, axis);
  for (int64_t row = 0; row < outer; ++row) {
    const auto [mean, scale] = moments(call.in[0], row * inner, inner, call.node.float_or("epsilon", 1e-5f));
    int64_t i = row * inner;
    for (Walk walk(inner_dims); !walk.done(); walk.next(), ++i) {
      const double value =
          (call.in[0].real(i) - mean) * scale * call.in[1].real(broadcast(walk.at(), call.in[1].dims));
      call.out[0].put_real(
          i, value + (call.has(2) ? call.in[2].real(broadcast(walk.at(), call.in[2].dims)) : 0));
    }
    if (call.wants(1)) call.out[1].put_real(row, mean);
    if (call.wants(2)) call.out[2].put_real(row, scale);
  }
}

void lrn(Call& call) {
  const Dims& dims = call.in[0].dims;
  const int64_t size = call.node.int_or("size", 1), inner = count_of(tail(dims, 2));
  const double alpha = call.node.float_or("alpha", 1e-4f), beta = call.node.float_or("beta", 0.75),
               bias = call.node.float_or("bias", 1);
  for (int64_t i = 0; i < call.out[0].count(); ++i) {
    const int64_t channel = i / inner % dims[1];
    double squares = 0;
    for (int64_t c = std::max<int64_t>(0, channel - (size - 1) / 2);
         c <= std::min(dims[1] - 1, channel + size / 2); ++c) {
      const double value = call.in[0].real(i + (c - channel) * inner);
      squares += value * value;
    }
    call.out[0].put_real(i, call.in[0].real(i) / std::pow(bias + alpha / double(size) * squares, beta));
  }
}

}  // namespace

void add_neural(Table& table) {
  table.insert({{"MatMul", {matmul}},
                {"MatMulInteger", {matmul_integer}},
                {"Gemm", {gemm}},
                {"BatchNormalization", {batch_normalization}},
                {"InstanceNormalization", {instance_normalization}},
                {"LayerNormalization", {layer_normalization}},
                {"LRN", {lrn}}});
}

}  // namespace reference
