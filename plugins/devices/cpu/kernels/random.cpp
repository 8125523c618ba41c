// Operators that draw random numbers. With a seed the numbers are the same at each run; without one they
// differ.
#include "convert.hpp"
#include "registry.hpp"

#include <bit>
#include <cmath>
#include <random>

namespace belay::cpu {
namespace {

using Generator = std::mt19937_64;

struct Seed {
  bool given;
  uint64_t value;
  Generator generator() const {
    return Generator(given ? value : uint64_t{std::random_device()()} << 32 | std::random_device()());
  }
};
Seed seed_of(const OpContext& op) {
  return {op.attr().has("seed"), std::bit_cast<uint32_t>(op.attr().float_or("seed", 0))};
}

double uniform(Generator& generator) { return double(generator() >> 11) * 0x1p-53; }  // [0, 1)
double normal(Generator& generator) {
  const double u = 1 - uniform(generator);  // (0, 1]
  return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * uniform(generator));
}

// Fills output 0 with draw(generator).
template <class Draw>
Status prepare_fill(OpContext& op, const Dims& dims, uint32_t dtype, Draw draw) {
  if (!(type_bit(dtype) & kFloats))
    return op.bad("dtype is " + std::string(dtype_name(dtype)) + ", want a float type");
  BELAY_TRY(op.output(0, dtype, dims));
  dispatch<kFloats>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=, count = product(dims), seed = seed_of(op)](const Run& run) {
      Generator generator = seed.generator();
      for (int64_t i = 0; i < count; ++i) run.out<T>(0)[i] = Compute<T>::store(compute_t<T>(draw(generator)));
    });
  });
  return {};
}

Result<Dims> shape_of(const OpContext& op) {
  const auto shape = op.attr().ints("shape");
  if (!shape) return op.bad("attribute shape is missing");
  for (const int64_t dim : *shape)
    if (dim < 0) return op.bad("shape is " + text_of(*shape) + ", want dims of 0 or more");
  return *shape;
}
Status prepare_uniform_fill(OpContext& op, const Dims& dims, uint32_t dtype) {
  const double low = op.attr().float_or("low", 0), high = op.attr().float_or("high", 1);
  return prepare_fill(op, dims, dtype, [=](Generator& g) { return low + (high - low) * uniform(g); });
}
Status prepare_normal_fill(OpContext& op, const Dims& dims, uint32_t dtype) {
  const double mean = op.attr().float_or("mean", 0), scale = op.attr().float_or("scale", 1);
  return prepare_fill(op, dims, dtype, [=](Generator& g) { return mean + scale * normal(g); });
}
Status prepare_random_uniform(OpContext& op) {
  BELAY_ASSIGN(const Dims dims, shape_of(op));
  return prepare_uniform_fill(op, dims, uint32_t(op.attr().int_or("dtype", BELAY_DT_FLOAT32)));
}
Status prepare_random_normal(OpContext& op) {
  BELAY_ASSIGN(const Dims dims, shape_of(op));
  return prepare_normal_fill(op, dims, uint32_t(op.attr().int_or("dtype", BELAY_DT_FLOAT32)));
}
Status prepare_random_uniform_like(OpContext& op) {
  return prepare_uniform_fill(op, op.dims(0), uint32_t(op.attr().int_or("dtype", op.dtype(0))));
}
Status prepare_random_normal_like(OpContext& op) {
  return prepare_normal_fill(op, op.dims(0), uint32_t(op.attr().int_or("dtype", op.dtype(0))));
}

// 1 with the probability that the input says.
Status prepare_bernoulli(OpContext& op) {
  const uint32_t dtype = uint32_t(op.attr().int_or("dtype", op.dtype(0)));
  if (!(type_bit(dtype) & (kNumeric | kBool)))
    return op.bad("dtype " + std::string(dtype_name(dtype)) + " is not supported", Code::kUnimplemented);
  BELAY_TRY(op.output(0, dtype, op.dims(0)));
  dispatch<kFloats>(op.dtype(0), [&](auto from_tag) {
    using From = typename decltype(from_tag)::type;
    dispatch<kNumeric | kBool>(dtype, [&](auto to_tag) {
      using To = typename decltype(to_tag)::type;
      op.kernel([count = op.count(0), seed = seed_of(op)](const Run& run) {
        Generator generator = seed.generator();
        for (int64_t i = 0; i < count; ++i) {
          const bool one = uniform(generator) < double(Compute<From>::load(run.in<From>(0)[i]));
          run.out<To>(0)[i] = Compute<To>::store(compute_t<To>(one));
        }
      });
    });
  });
  return {};
}

// Draws classes whose unnormalised log probabilities are the rows of the input.
Status prepare_multinomial(OpContext& op) {
  const Dims& in = op.dims(0);
  const int64_t samples = op.attr().int_or("sample_size", 1);
  const uint32_t dtype = uint32_t(op.attr().int_or("dtype", BELAY_DT_INT32));
  if (in.size() != 2 || in[1] == 0)
    return op.bad("input has the shape " + text_of(in) + ", want [batch, classes], with a class");
  if (samples < 0 || !(type_bit(dtype) & kIndex))
    return op.bad("sample_size is below 0, or dtype neither int32 nor int64");
  BELAY_TRY(op.output(0, dtype, {in[0], samples}));
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=, rows = in[0], classes = in[1], seed = seed_of(op)](const Run& run) {
      Generator generator = seed.generator();
      std::vector<double> sums(static_cast<size_t>(classes));
      for (int64_t r = 0; r < rows; ++r) {
        const T* x = run.in<T>(0) + r * classes;
        double most = -INFINITY, total = 0;
        for (int64_t c = 0; c < classes; ++c) most = std::max(most, double(Compute<T>::load(x[c])));
        for (int64_t c = 0; c < classes; ++c)
          sums[size_t(c)] = total += std::exp(double(Compute<T>::load(x[c])) - most);
        for (int64_t s = 0; s < samples; ++s) {
          const double at = uniform(generator) * total;
          const int64_t found =
              std::min<int64_t>(std::upper_bound(sums.begin(), sums.end(), at) - sums.begin(), classes - 1);
          if (dtype == BELAY_DT_INT64)
            run.out<int64_t>(0)[r * samples + s] = found;
          else
            run.out<int32_t>(0)[r * samples + s] = int32_t(found);
        }
      }
    });
  });
  return {};
}

}  // namespace

void add_random(Registry& registry) {
  registry.add({.op = "RandomUniform", .prepare = prepare_random_uniform, .min_inputs = 0, .max_inputs = 0});
  registry.add({.op = "RandomNormal", .prepare = prepare_random_normal, .min_inputs = 0, .max_inputs = 0});
  registry.add({.op = "RandomUniformLike",
                .prepare = prepare_random_uniform_like,
                .types = {kAny},
                .ns_per_byte = 2});
  registry.add({.op = "RandomNormalLike",
                .prepare = prepare_random_normal_like,
                .types = {kAny},
                .ns_per_byte = 5});
  registry.add({.op = "Bernoulli", .prepare = prepare_bernoulli, .types = {kFloats}, .ns_per_byte = 2});
  registry.add({.op = "Multinomial", .prepare = prepare_multinomial, .types = {kFloats}, .ns_per_byte = 5});
}

}  // namespace belay::cpu
