// Rules of einsum, losses, signal operators and training steps.
#include "ir/infer_context.hpp"

#include <map>

namespace belay::ir {
namespace {

Status einsum(Infer& at) {
  std::string equation;
  for (const char c : at.node().string_or("equation", ""))
    if (c != ' ') equation += c;
  const size_t arrow = equation.find("->");
  std::string left = equation.substr(0, arrow);
  std::map<char, int64_t> sizes;
  std::map<char, int> seen;
  Dims ellipsis;
  size_t operand = 0, begin = 0;
  while (begin <= left.size()) {
    const size_t comma = std::min(left.find(',', begin), left.size());
    const std::string term = left.substr(begin, comma - begin);
    begin = comma + 1;
    if (operand >= at.inputs()) return at.fail("the equation has more terms than there are inputs");
    if (!at.ranked(operand)) {
      at.set_unranked(0, at.dtype(0));
      return {};
    }
    const Dims& dims = at.dims(operand);
    const size_t dots = term.find("...");
    const size_t letters = term.size() - (dots == std::string::npos ? 0 : 3);
    if (letters > dims.size() || (dots == std::string::npos && letters != dims.size()))
      return at.fail("term '" + term + "' does not fit the rank of input " + std::to_string(operand));
    size_t dim = 0;
    for (size_t i = 0; i < term.size(); ++i) {
      if (i == dots) {
        const size_t wide = dims.size() - letters;
        BELAY_TRY(at.broadcast(ellipsis, Dims(dims.begin() + long(dim), dims.begin() + long(dim + wide))));
        dim += wide;
        i += 2;
        continue;
      }
      auto [place, fresh] = sizes.try_emplace(term[i], dims[dim]);
      if (!fresh && place->second != dims[dim]) {
        if (place->second == 1 || place->second < 0)
          place->second = dims[dim];
        else if (dims[dim] > 1)
          return at.fail(std::string("index '") + term[i] + "' has two sizes");
      }
      ++seen[term[i]];
      ++dim;
    }
    ++operand;
    if (comma == left.size()) break;
  }
  if (operand != at.inputs()) return at.fail("the equation has fewer terms than there are inputs");
  std::string right;
  if (arrow != std::string::npos) {
    right = equation.substr(arrow + 2);
  } else {
    right = "...";
    for (const auto& [letter, count] : seen)
      if (count == 1) right += letter;
  }
  Dims out;
  for (size_t i = 0; i < right.size(); ++i) {
    if (right.compare(i, 3, "...") == 0) {
      out.insert(out.end(), ellipsis.begin(), ellipsis.end());
      i += 2;
    } else if (const auto place = sizes.find(right[i]); place != sizes.end()) {
      out.push_back(place->second);
    } else {
      return at.fail(std::string("the output index '") + right[i] + "' is in no input");
    }
  }
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status loss(Infer& at) {
  if (at.node().string_or("reduction", "mean") == "none") {
    Type type = at.in(1);
    type.kind = BELAY_TYPE_TENSOR;
    type.dtype = at.dtype(0);
    at.set(0, type);
  } else {
    at.set(0, at.dtype(0), {});
  }
  at.set(1, at.in(0));
  return {};
}

Status det(Infer& at) {
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  BELAY_TRY(at.want_rank(0, 2));
  at.set(0, at.dtype(0), Dims(at.dims(0).begin(), at.dims(0).end() - 2));
  return {};
}

Status dft(Infer& at) {
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  int64_t axis_value = at.node().int_or("axis", at.node().version < 20 ? 1 : -2);
  if (at.has(2)) {
    const auto given = at.known_ints(2);
    if (!given || given->size() != 1) {
      at.set_unranked(0, at.dtype(0));
      return {};
    }
    axis_value = (*given)[0];
  }
  BELAY_ASSIGN(const int64_t axis, at.axis(axis_value, at.rank(0)));
  Dims out = at.dims(0);
  const bool inverse = at.node().int_or("inverse", 0) != 0, onesided = at.node().int_or("onesided", 0) != 0;
  if (at.has(1)) {
    const auto length = at.known_ints(1);
    out[size_t(axis)] = length && length->size() == 1 ? (*length)[0] : kUnknown;
  } else if (onesided && inverse && out[size_t(axis)] > 0) {
    out[size_t(axis)] = 2 * (out[size_t(axis)] - 1);
  }
  if (onesided && !inverse && out[size_t(axis)] >= 0) out[size_t(axis)] = out[size_t(axis)] / 2 + 1;
  out.back() = onesided && inverse ? 1 : 2;
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status stft(Infer& at) {
  const auto step = at.known_ints(1), length = at.known_ints(3);
  int64_t window = kUnknown;
  if (length && length->size() == 1)
    window = (*length)[0];
  else if (at.has(2) && at.ranked(2) && at.rank(2) == 1)
    window = at.dims(2)[0];
  int64_t frames = kUnknown;
  if (at.ranked(0) && at.rank(0) >= 2 && at.dims(0)[1] >= 0 && step && step->size() == 1 && (*step)[0] > 0 &&
      window >= 0) {
    if (window > at.dims(0)[1]) return at.fail("the window is longer than the signal");
    frames = (at.dims(0)[1] - window) / (*step)[0] + 1;
  }
  const bool onesided = at.node().int_or("onesided", 1) != 0;
  at.set(0, at.dtype(0),
         {at.ranked(0) && at.rank(0) ? at.dims(0)[0] : kUnknown, frames,
          window < 0 ? kUnknown
          : onesided ? window / 2 + 1
                     : window,
          2});
  return {};
}

Status col2im(Infer& at) {
  const auto image = at.known_ints(1), block = at.known_ints(2);
  if (!at.ranked(0) || at.rank(0) != 3 || !image || !block) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  int64_t area = 1;
  for (const int64_t dim : *block) area = dim_mul(area, dim);
  Dims out{at.dims(0)[0], at.dims(0)[1] < 0 || area <= 0 ? kUnknown : at.dims(0)[1] / area};
  out.insert(out.end(), image->begin(), image->end());
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

// Optimiser steps: rate, step, then n tensors of each kind; outputs: the n new tensors, then the n new states
// of each.
Status optimiser(Infer& at) {
  const size_t kinds = at.node().op == "Adam" ? 4 : 3;
  if (at.inputs() < 2 || (at.inputs() - 2) % kinds) return at.fail("the number of inputs is wrong");
  const size_t n = (at.inputs() - 2) / kinds;
  for (size_t i = 0; i < at.outputs(); ++i) {
    // The gradients stand between the tensors and their states.
    const size_t from = i < n ? 2 + i : 2 + n + i;
    if (from >= at.inputs()) return at.fail("the number of outputs is wrong");
    at.set(i, at.in(from));
  }
  return {};
}

constexpr RuleEntry kMiscRules[] = {
    {"Einsum", einsum},
    {"NegativeLogLikelihoodLoss", loss},
    {"SoftmaxCrossEntropyLoss", loss},
    {"Det", det},
    {"DFT", dft},
    {"STFT", stft},
    {"Col2Im", col2im},
    {"Adam", optimiser, kTraining},
    {"Adagrad", optimiser, kTraining},
    {"Momentum", optimiser, kTraining},
};

}  // namespace

std::span<const RuleEntry> misc_rules() { return kMiscRules; }

}  // namespace belay::ir
