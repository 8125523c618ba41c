// Losses over classes, the optimisers of ai.onnx.preview.training, Dropout.
#include "convert.hpp"
#include "positions.hpp"
#include "registry.hpp"
#include "small_types.hpp"
#include "trouble.hpp"

#include <cmath>
#include <cstring>
#include <random>

namespace belay::cpu {
namespace {

// ---- NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss
// --------------------------------------------------------------

enum class Reduce : uint8_t { kNone, kSum, kMean };

// Scores are [batch, classes, inner], labels [batch, inner].
struct Loss {
  std::string name;
  Positions labels;
  int64_t batch, classes, inner;
  bool weighted, ignores, softmax, wants_log;
  int64_t ignored;
  Reduce reduce;

  template <class T>
  belay_status run(const Run& run) const {
    const T* scores = run.in<T>(0);
    const void* label_bytes = run.in<void>(1);
    const T* weights = weighted ? run.in<T>(2) : nullptr;
    T* log_out = wants_log ? run.out<T>(1) : nullptr;
    T* loss_out = run.out<T>(0);
    const int64_t cells = batch * inner;
    // One double for each cell's loss and weight, added in order: the sum does not depend on threads.
    double* loss = run.scratch<double>(size_t(2 * cells) + 1);
    double* weight = loss + cells;
    Trouble trouble;
    run.parallel(cells, grain_of(double(classes) * (softmax ? 8 : 1)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t base = i / inner * classes * inner + i % inner;
        const auto score = [&](int64_t c) { return double(Compute<T>::load(scores[base + c * inner])); };
        double shift = 0;
        if (softmax) {
          double most = -INFINITY, sum = 0;
          for (int64_t c = 0; c < classes; ++c) most = std::max(most, score(c));
          for (int64_t c = 0; c < classes; ++c) sum += std::exp(score(c) - most);
          shift = most + std::log(sum);
          if (log_out)
            for (int64_t c = 0; c < classes; ++c)
              log_out[base + c * inner] = Compute<T>::store(compute_t<T>(score(c) - shift));
        }
        const int64_t label = labels.at(label_bytes, i);
        loss[i] = weight[i] = 0;
        if (ignores && label == ignored) continue;
        if (label < 0 || label >= classes) {
          trouble.note(i);
          continue;
        }
        weight[i] = weights ? double(Compute<T>::load(weights[label])) : 1;
        loss[i] = -(score(label) - shift) * weight[i];
      }
    });
    if (trouble)
      return run.fail(Code::kOutOfRange, name + ": element " + std::to_string(trouble.first()) +
                                             " of the labels is " +
                                             std::to_string(labels.at(label_bytes, trouble.first())) +
                                             ", want 0 to " + std::to_string(classes - 1) + ".");
    if (!loss_out) return BELAY_OK;
    if (reduce == Reduce::kNone) {
      for (int64_t i = 0; i < cells; ++i) loss_out[i] = Compute<T>::store(compute_t<T>(loss[i]));
      return BELAY_OK;
    }
    double total = 0, norm = 0;
    for (int64_t i = 0; i < cells; ++i) total += loss[i], norm += weight[i];
    *loss_out = Compute<T>::store(compute_t<T>(reduce == Reduce::kMean ? total / norm : total));
    return BELAY_OK;
  }
};

Status prepare_loss(OpContext& op, bool softmax) {
  const Dims& in = op.dims(0);
  if (in.size() < 2) return op.bad("input has the shape " + text_of(in) + ", want rank 2 at least");
  Dims cells = in;
  cells.erase(cells.begin() + 1);
  if (op.dims(1) != cells)
    return op.bad("labels have the shape " + text_of(op.dims(1)) + ", want " + text_of(cells));
  if (op.has(2) && op.dims(2) != Dims{in[1]})
    return op.bad("weights have the shape " + text_of(op.dims(2)) + ", want [" + std::to_string(in[1]) + "]");
  if (op.has(2) && op.dtype(2) != op.dtype(0)) return op.bad("weights and input are of different types");
  const std::string_view reduction = op.attr().string_or("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    return op.bad("reduction is '" + std::string(reduction) + "', want none, sum or mean");
  const Reduce reduce = reduction == "none"  ? Reduce::kNone
                        : reduction == "sum" ? Reduce::kSum
                                             : Reduce::kMean;
  BELAY_TRY(op.output(0, op.dtype(0), reduce == Reduce::kNone ? cells : Dims{}));
  BELAY_TRY(op.output(1, op.dtype(0), in));
  const Loss loss{std::string(op.op()),
                  {op.dtype(1) == BELAY_DT_INT64},
                  in[0],
                  in[1],
                  product(in, 2, in.size()),
                  op.has(2),
                  op.attr().has("ignore_index"),
                  softmax,
                  op.wants(1),
                  op.attr().int_or("ignore_index", 0),
                  reduce};
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([loss](const Run& run) { return loss.run<T>(run); });
  });
  return {};
}
Status prepare_nll(OpContext& op) { return prepare_loss(op, false); }
Status prepare_cross_entropy(OpContext& op) { return prepare_loss(op, true); }

// ---- optimisers
// ------------------------------------------------------------------------------------------------------

// Inputs: rate R, count of updates T, then for n tensors: n values, n gradients, and n of each kind of state;
// outputs: new values and states.
enum class Optimiser : uint8_t { kAdagrad, kMomentum, kAdam };

struct OptimiserKernel {
  Optimiser which;
  size_t tensors;
  std::vector<int64_t> counts;
  std::vector<uint32_t> dtypes;  // of the tensors
  uint32_t rate_type;
  double alpha, beta, epsilon, norm, norm_after, decay;
  bool nesterov;

  void operator()(const Run& run) const {
    const double rate = rate_type == BELAY_DT_FLOAT64 ? *run.in<double>(0) : double(*run.in<float>(0));
    for (size_t k = 0; k < tensors; ++k)
      dispatch<kF32 | kF64>(dtypes[k], [&](auto tag) { step<typename decltype(tag)::type>(run, k, rate); });
  }
  template <class T>
  void step(const Run& run, size_t k, double rate) const {
    const int64_t updates = *run.in<int64_t>(1);
    const auto in = [&](size_t kind, int64_t i) { return double(run.in<T>(2 + kind * tensors + k)[i]); };
    const auto out = [&](size_t kind, int64_t i, double value) {
      if (T* to = run.out<T>(kind * tensors + k)) to[i] = T(value);
    };
    for (int64_t i = 0; i < counts[k]; ++i) {
      const double x = in(0, i), g = in(1, i) + norm * x;
      if (which == Optimiser::kAdagrad) {
        const double h = in(2, i) + g * g;
        out(0, i, x - rate / (1 + double(updates) * decay) * g / (std::sqrt(h) + epsilon));
        out(1, i, h);
      } else if (which == Optimiser::kMomentum) {
        const double v = alpha * in(2, i) + (updates > 0 ? beta : 1) * g;
        out(0, i, x - rate * (nesterov ? g + alpha * v : v));
        out(1, i, v);
      } else {
        const double v = alpha * in(2, i) + (1 - alpha) * g, h = beta * in(3, i) + (1 - beta) * g * g;
        const double r = updates > 0 ? rate * std::sqrt(1 - std::pow(beta, double(updates))) /
                                           (1 - std::pow(alpha, double(updates)))
                                     : rate;
        out(0, i, (1 - norm_after) * (x - r * v / (std::sqrt(h) + epsilon)));
        out(1, i, v);
        out(2, i, h);
      }
    }
  }
};

Status prepare_optimiser(OpContext& op, Optimiser which) {
  const size_t kinds = which == Optimiser::kAdam ? 4 : 3;
  const size_t n = (op.inputs() - 2) / kinds;
  if (op.inputs() < 2 + kinds || op.inputs() != 2 + n * kinds || op.outputs() > n * (kinds - 1))
    return op.bad("it has " + std::to_string(op.inputs()) + " inputs, want 2 and " + std::to_string(kinds) +
                  " for each tensor");
  if (op.count(0) != 1 || op.count(1) != 1 || op.dtype(1) != BELAY_DT_INT64)
    return op.bad("R and T are not a scalar and a scalar of int64");
  const auto& attr = op.attr();
  OptimiserKernel kernel{which,
                         n,
                         {},
                         {},
                         op.dtype(0),
                         attr.float_or("alpha", 0.9f),
                         attr.float_or("beta", 0.999f),
                         attr.float_or("epsilon", 1e-6f),
                         attr.float_or("norm_coefficient", 0),
                         attr.float_or("norm_coefficient_post", 0),
                         attr.float_or("decay_factor", 0),
                         attr.string_or("mode", "standard") == "nesterov"};
  for (size_t i = 2; i < op.inputs(); ++i)
    if (op.dtype(i) != op.dtype(2 + (i - 2) % n) || op.dims(i) != op.dims(2 + (i - 2) % n))
      return op.bad("input " + std::to_string(i) +
                    " has another type or shape than the tensor it belongs to");
  for (size_t k = 0; k < n; ++k) {
    kernel.counts.push_back(op.count(2 + k));
    kernel.dtypes.push_back(op.dtype(2 + k));
  }
  for (size_t o = 0; o < op.outputs(); ++o) BELAY_TRY(op.output(o, op.dtype(2 + o % n), op.dims(2 + o % n)));
  op.kernel(std::move(kernel));
  return {};
}
Status prepare_adagrad(OpContext& op) { return prepare_optimiser(op, Optimiser::kAdagrad); }
Status prepare_momentum(OpContext& op) { return prepare_optimiser(op, Optimiser::kMomentum); }
Status prepare_adam(OpContext& op) { return prepare_optimiser(op, Optimiser::kAdam); }

// ---- Dropout
// ---------------------------------------------------------------------------------------------------------

// Floats of 8 bits come as bytes.
template <class F>
void dispatch_dropout(uint32_t dtype, F&& f) {
  if (!dispatch<kFloats>(dtype, f)) f(Tag<uint8_t>{});
}

// Ratio and mode are inputs, read at the run. Outside of training, or with a ratio of 0, it is the identity.
Status prepare_dropout(OpContext& op) {
  for (size_t i = 1; i < 3; ++i)
    if (op.has(i) && op.count(i) != 1)
      return op.bad(std::string(i == 1 ? "ratio" : "training_mode") + " is no scalar");
  if (op.has(2) && op.dtype(2) != BELAY_DT_BOOL)
    return op.bad("training_mode is of type " + std::string(dtype_name(op.dtype(2))) + ", want bool");
  if (op.has(1) && !(type_bit(op.dtype(1)) & (kFloats | kFloat8)))
    return op.bad("ratio is of type " + std::string(dtype_name(op.dtype(1))));
  BELAY_TRY(op.output(0, op.dtype(0), op.dims(0)));
  BELAY_TRY(op.output(1, BELAY_DT_BOOL, op.dims(0)));
  const bool has_seed = op.attr().has("seed"), has_ratio = op.has(1), has_mode = op.has(2);
  const uint64_t seed = uint64_t(op.attr().int_or("seed", 0));
  dispatch_dropout(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=, count = op.count(0), dtype = op.dtype(0), ratio_type = has_ratio ? op.dtype(1) : 0](const Run& run) {
      float given = 0.5f;
      if (has_ratio && ratio_type != BELAY_DT_FLOAT64) load_floats(ratio_type, run.in<void>(1), 0, 1, &given);
      const double ratio = has_ratio && ratio_type == BELAY_DT_FLOAT64 ? *run.in<double>(1) : double(given);
      const T* x = run.in<T>(0);
      T* y = run.out<T>(0);
      uint8_t* mask = run.out<uint8_t>(1);
      if (!has_mode || *run.in<uint8_t>(2) == 0 || ratio == 0) {
        if (y && x != y) std::memcpy(y, x, size_t(count) * sizeof(T));
        if (mask) std::memset(mask, 1, size_t(count));
        return belay_status(BELAY_OK);
      }
      if (!(ratio > 0 && ratio < 1))
        return run.fail(Code::kInvalidArgument,
                        "Dropout: ratio is " + std::to_string(ratio) + ", want 0 to below 1.");
      std::mt19937_64 random(has_seed ? seed : std::random_device()());
      for (int64_t i = 0; i < count; ++i) {
        const bool keep = double(random() >> 11) * 0x1p-53 >= ratio;
        if (y) {
          if constexpr (std::is_same_v<T, uint8_t>) {
            float value = 0;
            load_floats(dtype, x, i, 1, &value);
            value = keep ? float(double(value) / (1 - ratio)) : 0.0f;
            store_floats(dtype, &value, y + i, 0, 1, {});
          } else {
            y[i] = Compute<T>::store(keep ? compute_t<T>(double(Compute<T>::load(x[i])) / (1 - ratio))
                                          : compute_t<T>(0));
          }
        }
        if (mask) mask[i] = keep;
      }
      return belay_status(BELAY_OK);
    });
  });
  return {};
}

}  // namespace

void add_losses(Registry& registry) {
  registry.add({.op = "NegativeLogLikelihoodLoss",
                .prepare = prepare_nll,
                .types = {kFloats, kIndex, kFloats},
                .min_inputs = 2,
                .max_inputs = 3});
  registry.add({.op = "SoftmaxCrossEntropyLoss",
                .prepare = prepare_cross_entropy,
                .types = {kFloats, kIndex, kFloats},
                .min_inputs = 2,
                .max_inputs = 3,
                .max_outputs = 2});
  const auto training = [&](std::string_view op, PrepareFn prepare) {
    registry.add({.op = op,
                  .prepare = prepare,
                  .types = {kF32 | kF64, kI64, kF32 | kF64},
                  .min_inputs = 5,
                  .max_inputs = 255,
                  .max_outputs = 255,
                  .domain = "ai.onnx.preview.training"});
  };
  training("Adagrad", prepare_adagrad);
  training("Momentum", prepare_momentum);
  training("Adam", prepare_adam);
  registry.add({.op = "Dropout",
                .prepare = prepare_dropout,
                .types = {kFloats | kFloat8, kFloats | kFloat8, kBool},
                .max_inputs = 3,
                .max_outputs = 2,
                .in_place = InPlace::kFirst,
                .ns_per_byte = 0.05});
}

}  // namespace belay::cpu
