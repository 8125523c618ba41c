// elementwise.cpp: operators that work on each element by itself, with broadcasting.
#include "op.h"

#include <algorithm>
#include <limits>

namespace reference {
namespace {

template <double (*F)(double)>
void unary(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i) call.out[0].put_real(i, F(call.in[0].real(i)));
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double relu(double x) { return x < 0 ? 0 : x; }  // NaN stays
double reciprocal(double x) { return 1 / x; }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double softsign(double x) { return x / (1 + std::fabs(x)); }
double hard_swish(double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }

template <double (*F)(double, const Node&)>
void with_attributes(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i) call.out[0].put_real(i, F(call.in[0].real(i), call.node));
}
double leaky_relu(double x, const Node& n) { return x < 0 ? n.float_or("alpha", 0.01f) * x : x; }
double elu(double x, const Node& n) { return x < 0 ? n.float_or("alpha", 1) * std::expm1(x) : x; }
double celu(double x, const Node& n) {
  const double alpha = n.float_or("alpha", 1);
  return std::max(0.0, x) + std::min(0.0, alpha * std::expm1(x / alpha));
}
double selu(double x, const Node& n) {
  const double alpha = n.float_or("alpha", 1.67326319217681884765625f),
               gamma = n.float_or("gamma", 1.05070102214813232421875f);
  return x > 0 ? gamma * x : gamma * alpha * std::expm1(x);
}
double thresholded_relu(double x, const Node& n) { return x > n.float_or("alpha", 1) ? x : 0; }
double hard_sigmoid(double x, const Node& n) {
  return std::clamp(n.float_or("alpha", 0.2f) * x + n.float_or("beta", 0.5), 0.0, 1.0);
}
double shrink(double x, const Node& n) {
  const double lambda = n.float_or("lambd", 0.5), bias = n.float_or("bias", 0);
  return x < -lambda ? x + bias : x > lambda ? x - bias : 0;
}
double gelu(double x, const Node& n) {
  if (n.string_or("approximate", "none") == "tanh")
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}

void absolute(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i)
    if (call.in[0].is_float())
      call.out[0].put_real(i, std::fabs(call.in[0].real(i)));
    else
      call.out[0].put_integer(i, call.in[0].integer(i) < 0 && !call.in[0].is_unsigned64()
                                     ? int64_t(0 - uint64_t(call.in[0].integer(i)))
                                     : call.in[0].integer(i));
}
void negate(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i)
    if (call.in[0].is_float())
      call.out[0].put_real(i, -call.in[0].real(i));
    else
      call.out[0].put_integer(i, int64_t(0 - uint64_t(call.in[0].integer(i))));
}
void sign(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i) {
    const double x = call.in[0].real(i);
    call.out[0].put_real(i, x > 0 ? 1 : x < 0 ? -1 : x);
  }
}
void relu_any(Call& call) {
  if (call.in[0].is_float()) return unary<relu>(call);
  for (int64_t i = 0; i < call.out[0].count(); ++i)
    call.out[0].put_integer(i, std::max<int64_t>(0, call.in[0].integer(i)));
}
void logical_not(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i) call.out[0].put_integer(i, !call.in[0].integer(i));
}
void is_nan(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i)
    call.out[0].put_integer(i, std::isnan(call.in[0].real(i)));
}
void is_inf(Call& call) {
  const bool plus = call.node.int_or("detect_positive", 1), minus = call.node.int_or("detect_negative", 1);
  for (int64_t i = 0; i < call.out[0].count(); ++i) {
    const double x = call.in[0].real(i);
    call.out[0].put_integer(i, std::isinf(x) && (x > 0 ? plus : minus));
  }
}
void identity(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i) call.out[0].copy(i, call.in[0], i);
}
void dropout(Call& call) {
  identity(call);
  if (call.wants(1))
    for (int64_t i = 0; i < call.out[1].count(); ++i) call.out[1].put_integer(i, 1);
}
void cast(Call& call) {
  const bool exact = !call.in[0].is_float() && !call.out[0].is_float();
  for (int64_t i = 0; i < call.out[0].count(); ++i)
    if (exact)
      call.out[0].put_integer(i, call.in[0].integer(i));
    else
      call.out[0].put_real(i, call.in[0].real(i));
}
void clip(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i) {
    if (call.in[0].is_float()) {
      double x = call.in[0].real(i);
      if (call.has(1) && x < call.in[1].real(0)) x = call.in[1].real(0);
      if (call.has(2) && x > call.in[2].real(0)) x = call.in[2].real(0);
      call.out[0].put_real(i, x);
    } else {
      const bool wide = call.in[0].is_unsigned64();
      auto less = [wide](int64_t a, int64_t b) { return wide ? uint64_t(a) < uint64_t(b) : a < b; };
      int64_t x = call.in[0].integer(i);
      if (call.has(1) && less(x, call.in[1].integer(0))) x = call.in[1].integer(0);
      if (call.has(2) && less(call.in[2].integer(0), x)) x = call.in[2].integer(0);
      call.out[0].put_integer(i, x);
    }
  }
}

// ---- two operands
// ---------------------------------------------------------------------------------------------------
template <class Real, class Integer>
void binary(Call& call, Real real, Integer integer) {
  const bool floats = call.in[0].is_float();
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    const int64_t a = broadcast(walk.at(), call.in[0].dims), b = broadcast(walk.at(), call.in[1].dims);
    if (floats)
      call.out[0].put_real(i, real(call.in[0].real(a), call.in[1].real(b)));
    else
      call.out[0].put_integer(i, integer(call.in[0].integer(a), call.in[1].integer(b)));
  }
}
template <class Wrap>
int64_t wrapped(int64_t a, int64_t b, Wrap wrap) {
  return int64_t(wrap(uint64_t(a), uint64_t(b)));
}

void add(Call& c) {
  binary(c, std::plus<double>(), [](int64_t a, int64_t b) { return wrapped(a, b, std::plus<uint64_t>()); });
}
void subtract(Call& c) {
  binary(c, std::minus<double>(), [](int64_t a, int64_t b) { return wrapped(a, b, std::minus<uint64_t>()); });
}
void multiply(Call& c) {
  binary(c, std::multiplies<double>(),
         [](int64_t a, int64_t b) { return wrapped(a, b, std::multiplies<uint64_t>()); });
}
void divide(Call& c) {
  const bool wide = c.in[0].is_unsigned64();
  binary(c, std::divides<double>(), [wide](int64_t a, int64_t b) -> int64_t {
    if (b == 0) throw std::runtime_error("division by zero");
    if (wide) return int64_t(uint64_t(a) / uint64_t(b));
    return b == -1 ? int64_t(0 - uint64_t(a)) : a / b;
  });
}
void modulo(Call& c) {
  const bool wide = c.in[0].is_unsigned64(), fmod = c.node.int_or("fmod", 0);
  binary(
      c, [](double a, double b) { return std::fmod(a, b); },
      [=](int64_t a, int64_t b) -> int64_t {
        if (b == 0) throw std::runtime_error("division by zero");
        if (wide) return int64_t(uint64_t(a) % uint64_t(b));
        if (b == -1) return 0;
        const int64_t rest = a % b;
        return !fmod && rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
      });
}
void power(Call& call) {
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    const int64_t a = broadcast(walk.at(), call.in[0].dims), b = broadcast(walk.at(), call.in[1].dims);
    if (call.in[0].is_float() || call.in[1].is_float() || call.in[1].integer(b) < 0) {
      call.out[0].put_real(i, std::pow(call.in[0].real(a), call.in[1].real(b)));
    } else {
      uint64_t base = uint64_t(call.in[0].integer(a)), result = 1;
      for (uint64_t left = uint64_t(call.in[1].integer(b)); left; left >>= 1, base *= base)
        if (left & 1) result *= base;
      call.out[0].put_integer(i, int64_t(result));
    }
  }
}
void prelu(Call& c) {
  binary(
      c, [](double x, double slope) { return x < 0 ? slope * x : x; },
      [](int64_t x, int64_t slope) { return x < 0 ? slope * x : x; });
}
template <class Compare>
void compare(Call& call, Compare holds) {
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    const int64_t a = broadcast(walk.at(), call.in[0].dims), b = broadcast(walk.at(), call.in[1].dims);
    bool yes;
    if (call.in[0].is_float())
      yes = holds(call.in[0].real(a), call.in[1].real(b));
    else if (call.in[0].is_unsigned64())
      yes = holds(uint64_t(call.in[0].integer(a)), uint64_t(call.in[1].integer(b)));
    else
      yes = holds(call.in[0].integer(a), call.in[1].integer(b));
    call.out[0].put_integer(i, yes);
  }
}
void equal(Call& c) {
  compare(c, [](auto a, auto b) { return a == b; });
}
void less(Call& c) {
  compare(c, [](auto a, auto b) { return a < b; });
}
void greater(Call& c) {
  compare(c, [](auto a, auto b) { return a > b; });
}
void less_equal(Call& c) {
  compare(c, [](auto a, auto b) { return a <= b; });
}
void greater_equal(Call& c) {
  compare(c, [](auto a, auto b) { return a >= b; });
}
void logical_and(Call& c) {
  compare(c, [](auto a, auto b) { return a && b; });
}
void logical_or(Call& c) {
  compare(c, [](auto a, auto b) { return a || b; });
}
void logical_xor(Call& c) {
  compare(c, [](auto a, auto b) { return !a != !b; });
}

template <class Real, class Integer>
void variadic(Call& call, Real real, Integer integer, bool mean = false) {
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    if (call.in[0].is_float()) {
      double sum = call.in[0].real(broadcast(walk.at(), call.in[0].dims));
      for (size_t k = 1; k < call.in.size(); ++k)
        sum = real(sum, call.in[k].real(broadcast(walk.at(), call.in[k].dims)));
      call.out[0].put_real(i, mean ? sum / double(call.in.size()) : sum);
    } else {
      int64_t sum = call.in[0].integer(broadcast(walk.at(), call.in[0].dims));
      for (size_t k = 1; k < call.in.size(); ++k)
        sum = integer(sum, call.in[k].integer(broadcast(walk.at(), call.in[k].dims)));
      call.out[0].put_integer(i, sum);
    }
  }
}
void maximum(Call& c) {
  const bool wide = c.in[0].is_unsigned64();
  variadic(
      c, [](double a, double b) { return std::isnan(a) || a > b ? a : b; },
      [wide](int64_t a, int64_t b) { return (wide ? uint64_t(a) > uint64_t(b) : a > b) ? a : b; });
}
void minimum(Call& c) {
  const bool wide = c.in[0].is_unsigned64();
  variadic(
      c, [](double a, double b) { return std::isnan(a) || a < b ? a : b; },
      [wide](int64_t a, int64_t b) { return (wide ? uint64_t(a) < uint64_t(b) : a < b) ? a : b; });
}
void sum(Call& c) {
  variadic(c, std::plus<double>(), [](int64_t a, int64_t b) { return wrapped(a, b, std::plus<uint64_t>()); });
}
void mean(Call& c) {
  variadic(
      c, std::plus<double>(), [](int64_t a, int64_t b) { return a + b; }, true);
}
void where(Call& call) {
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    const size_t from = call.in[0].integer(broadcast(walk.at(), call.in[0].dims)) ? 1 : 2;
    call.out[0].copy(i, call.in[from], broadcast(walk.at(), call.in[from].dims));
  }
}

}  // namespace

void add_elementwise(Table& table) {
  table.insert({{"Ceil", {unary<std::ceil>}},
                {"Floor", {unary<std::floor>}},
                {"Round", {unary<std::nearbyint>}},
                {"Sqrt", {unary<std::sqrt>}},
                {"Reciprocal", {unary<reciprocal>}},
                {"Exp", {unary<std::exp>}},
                {"Log", {unary<std::log>}},
                {"Sin", {unary<std::sin>}},
                {"Cos", {unary<std::cos>}},
                {"Tan", {unary<std::tan>}},
                {"Asin", {unary<std::asin>}},
                {"Acos", {unary<std::acos>}},
                {"Atan", {unary<std::atan>}},
                {"Sinh", {unary<std::sinh>}},
                {"Cosh", {unary<std::cosh>}},
                {"Tanh", {unary<std::tanh>}},
                {"Asinh", {unary<std::asinh>}},
                {"Acosh", {unary<std::acosh>}},
                {"Atanh", {unary<std::atanh>}},
                {"Erf", {unary<std::erf>}},
                {"Sigmoid", {unary<sigmoid>}},
                {"Softplus", {unary<softplus>}},
                {"Softsign", {unary<softsign>}},
                {"HardSwish", {unary<hard_swish>}},
                {"Relu", {relu_any}},
                {"LeakyRelu", {with_attributes<leaky_relu>}},
                {"Elu", {with_attributes<elu>}},
                {"Celu", {with_attributes<celu>}},
                {"Selu", {with_attributes<selu>}},
                {"ThresholdedRelu", {with_attributes<thresholded_relu>}},
                {"HardSigmoid", {with_attributes<hard_sigmoid>}},
                {"Shrink", {with_attributes<shrink>}},
                {"Gelu", {with_attributes<gelu>}},
                {"Abs", {absolute}},
                {"Neg", {negate}},
                {"Sign", {sign}},
                {"Not", {logical_not}},
                {"IsNaN", {is_nan}},
                {"IsInf", {is_inf}},
                {"Identity", {identity}},
                {"Dropout", {dropout}},
                {"Cast", {cast}},
                {"CastLike", {cast}},
                {"Clip", {clip}}});
  table.insert({{"Add", {add}},
                {"Sub", {subtract}},
                {"Mul", {multiply}},
                {"Div", {divide}},
                {"Mod", {modulo}},
                {"Pow", {power}},
                {"PRelu", {prelu}},
                {"Equal", {equal}},
                {"Less", {less}},
                {"Greater", {greater}},
                {"LessOrEqual", {less_equal}},
                {"GreaterOrEqual", {greater_equal}},
                {"And", {logical_and}},
                {"Or", {logical_or}},
                {"Xor", {logical_xor}},
                {"Max", {maximum}},
                {"Min", {minimum}},
                {"Sum", {sum}},
                {"Mean", {mean}},
                {"Where", {where}}});
}

}  // namespace reference
