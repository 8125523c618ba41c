// What RNN, GRU and LSTM compute at one step, for one row of a batch.
#pragma once

#include "../simd/simd.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace belay::cpu {

enum class Squash : uint8_t {
  kRelu,
  kTanh,
  kSigmoid,
  kAffine,
  kLeakyRelu,
  kThresholdedRelu,
  kScaledTanh,
  kHardSigmoid,
  kElu,
  kSoftsign,
  kSoftplus
};

// An activation with its parameters.
struct Activation {
  Squash kind = Squash::kSigmoid;
  float alpha = 0, beta = 0;

  template <class T>
  T one(T x) const {
    const T a = T(alpha), b = T(beta);
    switch (kind) {
      case Squash::kRelu:
        return x < 0 ? T(0) : x;
      case Squash::kTanh:
        return std::tanh(x);
      case Squash::kSigmoid:
        return T(1) / (T(1) + std::exp(-x));
      case Squash::kAffine:
        return a * x + b;
      case Squash::kLeakyRelu:
        return x < 0 ? a * x : x;
      case Squash::kThresholdedRelu:
        return x >= a ? x : T(0);
      case Squash::kScaledTanh:
        return a * std::tanh(b * x);
      case Squash::kHardSigmoid:
        return std::fmin(std::fmax(a * x + b, T(0)), T(1));
      case Squash::kElu:
        return x < 0 ? a * std::expm1(x) : x;
      case Squash::kSoftsign:
        return x / (T(1) + std::fabs(x));
      case Squash::kSoftplus:
        return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    }
    return x;
  }
  // A run of values in place.
  template <class T>
  void apply(T* y, int64_t n) const {
    if constexpr (std::is_same_v<T, float>) {
      const auto& unary = simd().unary;
      switch (kind) {
        case Squash::kTanh:
          return unary[size_t(Unary::kTanh)](y, y, n, 0, 0);
        case Squash::kSigmoid:
          return unary[size_t(Unary::kSigmoid)](y, y, n, 0, 0);
        case Squash::kRelu:
          return unary[size_t(Unary::kRelu)](y, y, n, 0, 0);
        case Squash::kHardSigmoid:
          return unary[size_t(Unary::kHardSigmoid)](y, y, n, alpha, beta);
        default:
          break;
      }
    }
    for (int64_t i = 0; i < n; ++i) y[i] = one(y[i]);
  }
};

// By the name of ONNX, in any case of letters, with the defaults of its parameters and which of them it has.
struct ActivationForm {
  std::string_view name;
  Squash kind;
  bool has_alpha, has_beta;
  float alpha, beta;
};
inline constexpr ActivationForm kActivationForms[] = {
    {"relu", Squash::kRelu, false, false, 0, 0},
    {"tanh", Squash::kTanh, false, false, 0, 0},
    {"sigmoid", Squash::kSigmoid, false, false, 0, 0},
    {"affine", Squash::kAffine, true, true, 1, 0},
    {"leakyrelu", Squash::kLeakyRelu, true, false, 0.01f, 0},
    {"thresholdedrelu", Squash::kThresholdedRelu, true, false, 1, 0},
    {"scaledtanh", Squash::kScaledTanh, true, true, 1, 1},
    {"hardsigmoid", Squash::kHardSigmoid, true, true, 0.2f, 0.5f},
    {"elu", Squash::kElu, true, false, 1, 0},
    {"softsign", Squash::kSoftsign, false, false, 0, 0},
    {"softplus", Squash::kSoftplus, false, false, 0, 0},
};
const ActivationForm* find_activation(std::string_view name);

enum class CellKind : uint8_t { kRnn, kGru, kLstm };
constexpr int64_t gates_of(CellKind kind) {
  return kind == CellKind::kRnn ? 1 : kind == CellKind::kGru ? 3 : 4;
}

// f, g, h of one direction and what changes the equations.
struct Cell {
  CellKind kind = CellKind::kRnn;
  int64_t hidden = 0;
  Activation f, g, h;
  float clip = 0;  // 0: none
  bool linear_before_reset = false, input_forget = false;

  template <class T>
  void clamp(T* y, int64_t n) const {
    if (clip <= 0) return;
    const T most = T(clip);
    for (int64_t i = 0; i < n; ++i) y[i] = y[i] < -most ? -most : y[i] > most ? most : y[i];
  }

  // `gates`: input and hidden products with biases, one after the other as the weights have them; h is
  // replaced.
  template <class T>
  void rnn(T* gates, T* h_state) const {
    clamp(gates, hidden);
    f.apply(gates, hidden);
    for (int64_t i = 0; i < hidden; ++i) h_state[i] = gates[i];
  }

  // Gates i, o, f, c; peepholes (i, o, f) may be null.
  template <class T>
  void lstm(T* gates, const T* peepholes, T* h_state, T* c_state) const {
    const int64_t n = hidden;
    T *input = gates, *output = gates + n, *forget = gates + 2 * n, *cell = gates + 3 * n;
    if (peepholes)
      for (int64_t i = 0; i < n; ++i) {
        input[i] += peepholes[i] * c_state[i];
        forget[i] += peepholes[2 * n + i] * c_state[i];
      }
    clamp(input, n), f.apply(input, n);
    if (input_forget) {
      for (int64_t i = 0; i < n; ++i) forget[i] = T(1) - input[i];
    } else {
      clamp(forget, n), f.apply(forget, n);
    }
    clamp(cell, n), g.apply(cell, n);
    for (int64_t i = 0; i < n; ++i) c_state[i] = forget[i] * c_state[i] + input[i] * cell[i];
    if (peepholes)
      for (int64_t i = 0; i < n; ++i) output[i] += peepholes[n + i] * c_state[i];
    clamp(output, n), f.apply(output, n);
    for (int64_t i = 0; i < n; ++i) h_state[i] = c_state[i];
    h.apply(h_state, n);
    for (int64_t i = 0; i < n; ++i) h_state[i] *= output[i];
  }

  // Gates z, r, h. First z and r from their sums; the h gate follows when its hidden product is known.
  template <class T>
  void gru_gates(T* gates) const {
    clamp(gates, 2 * hidden);
    f.apply(gates, 2 * hidden);
  }
  template <class T>
  void gru_state(T* gates, T* h_state) const {
    const T* z = gates;
    T* candidate = gates + 2 * hidden;
    clamp(candidate, hidden);
    g.apply(candidate, hidden);
    for (int64_t i = 0; i < hidden; ++i) h_state[i] = (T(1) - z[i]) * candidate[i] + z[i] * h_state[i];
  }
};

}  // namespace belay::cpu
