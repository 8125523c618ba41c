// Constant, Det, TfIdfVectorizer.
#include "positions.hpp"
#include "registry.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace belay::cpu {
namespace {

// ---- Constant
// --------------------------------------------------------------------------------------------------------

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Engines fold it; this is for graphs that are run as they are.
Status prepare_constant(OpContext& op) {
  uint32_t dtype = 0;
  Dims dims;
  std::string bytes;
  if (const Attribute* at = op.attr().find("value"); at && at->kind == BELAY_ATTR_TENSOR) {
    dtype = at->dtype, dims = at->dims, bytes = at->bytes;
    if (!element_bytes(dtype) || bytes.size() != uint64_t(product(dims)) * element_bytes(dtype))
      return op.bad(
          "value of type " + std::string(dtype_name(dtype)) + " is not inline or has no whole bytes",
          Code::kUnimplemented);
  } else if (const Attribute* one = op.attr().find("value_float"); one && one->kind == BELAY_ATTR_FLOAT) {
    dtype = BELAY_DT_FLOAT32, bytes = bytes_of(one->floats);
  } else if (const Attribute* number = op.attr().find("value_int");
             number && number->kind == BELAY_ATTR_INT) {
    dtype = BELAY_DT_INT64, bytes = bytes_of(number->ints);
  } else if (const auto floats = op.attr().floats("value_floats")) {
    dtype = BELAY_DT_FLOAT32, dims = {int64_t(floats->size())}, bytes = bytes_of(*floats);
  } else if (const auto ints = op.attr().ints("value_ints")) {
    dtype = BELAY_DT_INT64, dims = {int64_t(ints->size())}, bytes = bytes_of(*ints);
  } else {
    return op.bad("none of value, value_float, value_floats, value_int, value_ints is there",
                  Code::kUnimplemented);
  }
  BELAY_TRY(op.output(0, dtype, dims));
  op.kernel([bytes](const Run& run) { std::memcpy(run.out<char>(0), bytes.data(), bytes.size()); }, "copy");
  return {};
}

// ---- Det
// -------------------------------------------------------------------------------------------------------------

double determinant(double* m, int64_t n) {
  double result = 1;
  for (int64_t c = 0; c < n; ++c) {
    int64_t pivot = c;
    for (int64_t r = c + 1; r < n; ++r)
      if (std::fabs(m[r * n + c]) > std::fabs(m[pivot * n + c])) pivot = r;
    if (m[pivot * n + c] == 0) return 0;
    if (pivot != c) {
      std::swap_ranges(m + pivot * n, m + (pivot + 1) * n, m + c * n);
      result = -result;
    }
    result *= m[c * n + c];
    for (int64_t r = c + 1; r < n; ++r) {
      const double factor = m[r * n + c] / m[c * n + c];
      for (int64_t k = c + 1; k < n; ++k) m[r * n + k] -= factor * m[c * n + k];
    }
  }
  return result;
}

Status prepare_det(OpContext& op) {
  const Dims& in = op.dims(0);
  if (in.size() < 2 || in.back() != in[in.size() - 2])
    return op.bad("input has the shape " + text_of(in) + ", want square matrices");
  BELAY_TRY(op.output(0, op.dtype(0), Dims(in.begin(), in.end() - 2)));
  const int64_t n = in.back(), count = product(in, 0, in.size() - 2);
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([n, count](const Run& run) {
      double* all = run.scratch<double>(size_t(n * n * run.max_parts() + 1));
      run.parallel(count, grain_of(double(n * n * n)), [&](int64_t begin, int64_t end, int64_t part) {
        double* m = all + part * n * n;
        for (int64_t i = begin; i < end; ++i) {
          for (int64_t k = 0; k < n * n; ++k) m[k] = double(Compute<T>::load(run.in<T>(0)[i * n * n + k]));
          run.out<T>(0)[i] = Compute<T>::store(compute_t<T>(determinant(m, n)));
        }
      });
    });
  });
  return {};
}

// ---- TfIdfVectorizer
// -------------------------------------------------------------------------------------------------

struct TfIdf {
  std::map<std::vector<int64_t>, size_t> grams;  // to the number of the n-gram
  std::vector<int64_t> columns;                  // by n-gram
  std::vector<float> weights;                    // by n-gram; empty: 1
  int64_t shortest, longest, skips, rows, length, width;
  bool counts, weighs;
  Positions tokens;

  void operator()(const Run& run) const {
    float* out = run.out<float>(0);
    std::fill_n(out, rows * width, 0.0f);
    std::vector<int64_t> gram;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t n = shortest; n <= longest; ++n)
        // Tokens of a gram are `step` apart; where no gram fits, none that is wider does.
        for (int64_t step = 1; step <= (n == 1 ? 1 : skips + 1) && (n - 1) * step < length; ++step)
          for (int64_t at = 0; at + (n - 1) * step < length; ++at) {
            gram.clear();
            for (int64_t k = 0; k < n; ++k)
              gram.push_back(tokens.at(run.in<void>(0), r * length + at + k * step));
            const auto found = grams.find(gram);
            if (found == grams.end()) continue;
            float& cell = out[r * width + columns[found->second]];
            const float weight = weighs && !weights.empty() ? weights[found->second] : 1;
            cell = counts ? cell + weight : weight;
          }
  }
};

Status prepare_tf_idf(OpContext& op) {
  const Dims& in = op.dims(0);
  if (in.size() != 1 && in.size() != 2)
    return op.bad("input has the shape " + text_of(in) + ", want rank 1 or 2");
  const auto pool = op.attr().ints("pool_int64s");
  if (!pool) return op.bad("pool_int64s is missing, and the input holds numbers");
  const auto starts = op.attr().ints("ngram_counts").value_or(std::vector<int64_t>{});
  const std::string_view mode = op.attr().string_or("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    return op.bad("mode is '" + std::string(mode) + "', want TF, IDF or TFIDF");
  TfIdf kernel{{},
               op.attr().ints("ngram_indexes").value_or(std::vector<int64_t>{}),
               op.attr().floats("weights").value_or(std::vector<float>{}),
               op.attr().int_or("min_gram_length", 1),
               op.attr().int_or("max_gram_length", 1),
               op.attr().int_or("max_skip_count", 0),
               in.size() == 2 ? in[0] : 1,
               in.back(),
               0,
               mode != "IDF",
               mode != "TF",
               {op.dtype(0) == BELAY_DT_INT64}};
  if (kernel.shortest < 1 || kernel.longest < kernel.shortest || kernel.longest > 1024 || kernel.skips < 0 ||
      kernel.skips > 1 << 20)
    return op.bad("min_gram_length, max_gram_length or max_skip_count is out of range");
  size_t number = 0;
  for (size_t n = 0; n < starts.size(); ++n) {
    const int64_t end = n + 1 < starts.size() ? starts[n + 1] : int64_t(pool->size());
    if (starts[n] < 0 || end < starts[n] || end > int64_t(pool->size()) ||
        (end - starts[n]) % int64_t(n + 1) != 0)
      return op.bad("ngram_counts are " + text_of(starts) +
                    ", want where the grams of each length begin in a pool of " +
                    std::to_string(pool->size()));
    for (int64_t at = starts[n]; at < end; at += int64_t(n + 1), ++number)
      if (int64_t(n + 1) >= kernel.shortest && int64_t(n + 1) <= kernel.longest)
        kernel.grams.emplace(std::vector<int64_t>(pool->begin() + at, pool->begin() + at + int64_t(n + 1)),
                             number);
  }
  if (kernel.columns.size() != number || (!kernel.weights.empty() && kernel.weights.size() != number))
    return op.bad("there are " + std::to_string(number) + " grams, but " +
                  std::to_string(kernel.columns.size()) + " ngram_indexes and " +
                  std::to_string(kernel.weights.size()) + " weights");
  for (const int64_t column : kernel.columns) {
    if (column < 0 || column > 1 << 28) return op.bad("ngram_indexes hold " + std::to_string(column));
    kernel.width = std::max(kernel.width, column + 1);
  }
  BELAY_TRY(op.output(0, BELAY_DT_FLOAT32, in.size() == 2 ? Dims{in[0], kernel.width} : Dims{kernel.width}));
  op.kernel(std::move(kernel));
  return {};
}

}  // namespace

void add_misc(Registry& registry) {
  registry.add(
      {.op = "Constant", .prepare = prepare_constant, .types = {}, .min_inputs = 0, .max_inputs = 0});
  registry.add({.op = "Det", .prepare = prepare_det, .types = {kFloats}});
  registry.add({.op = "TfIdfVectorizer", .prepare = prepare_tf_idf, .types = {kIndex}, .ns_per_byte = 5});
}

}  // namespace belay::cpu
