// ir/infer_context.hpp: what a rule of shape inference sees of its node. Inside ir only.
#pragma once

#include "ir/env.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

namespace belay::ir {

// Arithmetic on dims: unknown in, unknown out.
inline int64_t dim_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (a < 0 || b < 0) return kUnknown;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}
inline int64_t dim_mul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (a == 1) return b;
  if (b == 1) return a;
  int64_t product = 0;
  if (a < 0 || b < 0) return kUnknown;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

class Infer {
 public:
  Infer(Env& env, const Node& node) : env_(env), node_(node) {}

  const Node& node() const { return node_; }
  Env& env() { return env_; }
  size_t inputs() const { return node_.inputs.size(); }
  size_t outputs() const { return node_.outputs.size(); }
  bool has(size_t i) const { return node_.input(i) != BELAY_NONE; }
  const Type& in(size_t i) const { return env_.type(node_.input(i)); }
  uint32_t dtype(size_t i) const { return in(i).dtype; }
  bool ranked(size_t i) const { return in(i).ranked; }
  const Dims& dims(size_t i) const { return in(i).dims; }
  int64_t rank(size_t i) const { return int64_t(in(i).dims.size()); }
  const Constant* constant(size_t i) const { return env_.constant(node_.input(i)); }

  // Elements of a small integer input, coded as dims where only part is known; nothing: not known at all.
  std::optional<Dims> ints(size_t i) const {
    if (const Constant* at = constant(i)) return as_int64s(*at);
    if (!has(i)) return std::nullopt;
    const auto at = env_.partial.find(env_.resolve(node_.input(i)));
    return at == env_.partial.end() ? std::nullopt : std::optional<Dims>(at->second);
  }
  // The same, only where every element is known.
  std::optional<Dims> known_ints(size_t i) const {
    const Constant* at = constant(i);
    return at ? as_int64s(*at) : std::nullopt;
  }
  std::optional<std::vector<double>> doubles(size_t i) const {
    const Constant* at = constant(i);
    return at ? as_doubles(*at) : std::nullopt;
  }

  void set(size_t output, Type type) {
    const ValueId value = node_.output(output);
    if (value == BELAY_NONE) return;
    if (type.dtype == BELAY_DT_UNDEFINED && type.is_tensor())
      type.dtype = env_.model->values[value].type.dtype;
    env_.types[value] = std::move(type);
  }
  void set(size_t output, uint32_t dtype, Dims dims) { set(output, Type::tensor(dtype, std::move(dims))); }
  void set_unranked(size_t output, uint32_t dtype) { set(output, Type::unranked(dtype)); }
  void set_partial(size_t output, Dims values) {
    const ValueId value = node_.output(output);
    if (value != BELAY_NONE) env_.partial[value] = std::move(values);
  }

  Status fail(const std::string& what) const {
    std::string text = env_label() + ": " + what + " (inputs:";
    for (size_t i = 0; i < node_.inputs.size(); ++i)
      text += (i ? ", " : " ") + (has(i) ? to_string(in(i)) : std::string("none"));
    return {Code::kInvalidArgument, text + ")."};
  }

  // Brings an axis into [0, rank); `extra` for operators that allow rank itself.
  Result<int64_t> axis(int64_t value, int64_t rank, int64_t extra = 0) const {
    if (rank + extra == 0) return fail("axis " + std::to_string(value) + " is given, but a scalar has no axis");
    if (value < -rank - extra || value >= rank + extra)
      return fail("axis " + std::to_string(value) + " is not in [" + std::to_string(-rank) + ", " +
                  std::to_string(rank - 1 + extra) + "]");
    return value < 0 ? value + rank + extra : value;
  }
  // The same of a list, in which none may be twice.
  Result<std::vector<size_t>> axes(const Dims& values, int64_t rank) const {
    std::vector<size_t> out;
    for (const int64_t value : values) {
      BELAY_ASSIGN(const int64_t at, axis(value, rank));
      if (std::find(out.begin(), out.end(), size_t(at)) != out.end())
        return fail("axes " + dims_to_string(values) + " name axis " + std::to_string(at) + " twice");
      out.push_back(size_t(at));
    }
    return out;
  }
  Status want_rank(size_t input, int64_t least) const {
    if (ranked(input) && rank(input) < least)
      return fail("input " + std::to_string(input) + " has rank " + std::to_string(rank(input)) +
                  ", want at least " + std::to_string(least));
    return {};
  }
  // Broadcasts b into a as numpy does.
  Status broadcast(Dims& a, const Dims& b) const {
    if (b.size() > a.size()) a.insert(a.begin(), b.size() - a.size(), 1);
    for (size_t i = 0; i < b.size(); ++i) {
      int64_t& x = a[a.size() - b.size() + i];
      const int64_t y = b[i];
      if (x == y || y == 1) continue;
      if (x == 1) {
        x = y;
        continue;
      }
      if (x >= 0 && y >= 0)
        return fail("dims " + dims_to_string(a) + " and " + dims_to_string(b) + " do not broadcast");
      if (y >= 0)
        x = y;  // an unknown dim against a known one above 1 must be that one
      else if (x < 0)
        x = kUnknown;  // two different unknown ones
    }
    return {};
  }

 private:
  std::string env_label() const {
    std::string text = node_.label();
    text[0] = 'N';
    return text;
  }
  Env& env_;
  const Node& node_;
};

// Output 0 is the matrix product of operands of these dims, each of rank 1 at least; all but the last two broadcast.
Status set_product(Infer& at, Dims a, Dims b, uint32_t dtype);

using Rule = Status (*)(Infer&);
inline constexpr std::string_view kMicrosoft = "com.microsoft", kOwnDomain = "belay", kTraining = "ai.onnx.preview.training";
struct RuleEntry {
  std::string_view op;
  Rule rule;
  std::string_view domain = {};  // of ONNX
};

// The rules of each family, by operator and domain.
std::span<const RuleEntry> elementwise_rules();
std::span<const RuleEntry> movement_rules();
std::span<const RuleEntry> selection_rules();
std::span<const RuleEntry> nn_rules();
std::span<const RuleEntry> misc_rules();
// Those of operators that ONNX has under the same name, but otherwise, or not at all.
std::span<const RuleEntry> contrib_rules();

}  // namespace belay::ir
