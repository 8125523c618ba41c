// Operators of two tensors that broadcast: arithmetic, comparisons, logic, bits.
#include "broadcast.hpp"

#include <cmath>
#include <functional>

namespace belay::cpu {
namespace {

// ---- arithmetic
// ------------------------------------------------------------------------------------------------------

template <Binary kOp>
int64_t simd_loop(const void* a, int64_t sa, const void* b, int64_t sb, void* y, int64_t n) {
  simd().binary[size_t(kOp)](static_cast<const float*>(a), sa, static_cast<const float*>(b), sb,
                             static_cast<float*>(y), n);
  return n;
}

// Integers wrap around.
template <Binary kOp, class T>
T arithmetic(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    // 64 bits, unsigned: no promotion to a signed type can overflow.
    const uint64_t p = uint64_t(x), q = uint64_t(y);
    if constexpr (kOp == Binary::kAdd) return T(p + q);
    if constexpr (kOp == Binary::kSub) return T(p - q);
    if constexpr (kOp == Binary::kMul) return T(p * q);
    if constexpr (kOp == Binary::kMax) return x > y ? x : y;
    if constexpr (kOp == Binary::kMin) return x < y ? x : y;
    if constexpr (kOp == Binary::kPRelu) return x < T(0) ? T(p * q) : x;
  } else {
    if constexpr (kOp == Binary::kAdd) return x + y;
    if constexpr (kOp == Binary::kSub) return x - y;
    if constexpr (kOp == Binary::kMul) return x * y;
    if constexpr (kOp == Binary::kDiv) return x / y;
    if constexpr (kOp == Binary::kMax) return x > y || x != x ? x : y;
    if constexpr (kOp == Binary::kMin) return x < y || x != x ? x : y;
    if constexpr (kOp == Binary::kPRelu) return x < 0 ? x * y : x;
  }
}
template <Binary kOp, class T>
int64_t plain_loop(const void* a, int64_t sa, const void* b, int64_t sb, void* y, int64_t n) {
  return binary_loop<T, T, T>(a, sa, b, sb, y, n, [](T p, T q) { return arithmetic<kOp, T>(p, q); });
}

Status same_types(const OpContext& op) {
  if (op.dtype(0) == op.dtype(1)) return {};
  return op.bad("inputs are of types " + std::string(dtype_name(op.dtype(0))) + " and " +
                std::string(dtype_name(op.dtype(1))) + ", want the same");
}

// Quotient and remainder of integers; the smallest number divided by -1 wraps around to itself.
template <class T>
int64_t div_loop(const void* pa, int64_t sa, const void* pb, int64_t sb, void* py, int64_t n) {
  const T* a = static_cast<const T*>(pa);
  const T* b = static_cast<const T*>(pb);
  T* y = static_cast<T*>(py);
  for (int64_t i = 0; i < n; ++i) {
    const T p = a[i * sa], q = b[i * sb];
    if (q == 0) return i;
    if constexpr (std::is_signed_v<T>)
      y[i] = q == T(-1) ? T(0 - uint64_t(p)) : T(p / q);
    else
      y[i] = T(p / q);
  }
  return n;
}
template <class T, bool kSignOfDividend>
int64_t mod_loop(const void* pa, int64_t sa, const void* pb, int64_t sb, void* py, int64_t n) {
  const T* a = static_cast<const T*>(pa);
  const T* b = static_cast<const T*>(pb);
  T* y = static_cast<T*>(py);
  for (int64_t i = 0; i < n; ++i) {
    const T p = a[i * sa], q = b[i * sb];
    if (q == 0) return i;
    if constexpr (std::is_signed_v<T>) {
      T r = q == T(-1) ? T(0) : T(p % q);
      if (!kSignOfDividend && r != 0 && (r < 0) != (q < 0)) r = T(r + q);
      y[i] = r;
    } else {
      y[i] = T(p % q);
    }
  }
  return n;
}

template <Binary kOp>
Status prepare_arithmetic(OpContext& op) {
  BELAY_TRY(same_types(op));
  BinaryForm form{nullptr, op.dtype(0)};
  dispatch<kNumeric>(op.dtype(0), [&](auto tag) {
    using T = compute_t<typename decltype(tag)::type>;
    if constexpr (std::is_same_v<T, float>) {
      form.loop = simd_loop<kOp>;
      form.ns = 0.15;
    } else if constexpr (kOp == Binary::kDiv && std::is_integral_v<T>) {
      form.loop = div_loop<T>;
      form.ns = 3;
      form.trouble = "is a division by zero";
    } else {
      form.loop = plain_loop<kOp, T>;
    }
  });
  return prepare_broadcast(op, form);
}

template <class T>
int64_t fmod_loop(const void* a, int64_t sa, const void* b, int64_t sb, void* y, int64_t n) {
  return binary_loop<T, T, T>(a, sa, b, sb, y, n, [](T p, T q) { return std::fmod(p, q); });
}

Status prepare_mod(OpContext& op) {
  BELAY_TRY(same_types(op));
  const bool fmod = op.attr().int_or("fmod", 0) != 0;
  if (!fmod && (type_bit(op.dtype(0)) & kFloats))
    return op.bad("fmod is 0 for " + std::string(dtype_name(op.dtype(0))) + " inputs, want 1");
  BinaryForm form{nullptr, op.dtype(0), 5, "is a remainder of a division by zero"};
  dispatch<kNumeric>(op.dtype(0), [&](auto tag) {
    using T = compute_t<typename decltype(tag)::type>;
    if constexpr (std::is_integral_v<T>)
      form.loop = fmod ? mod_loop<T, true> : mod_loop<T, false>;
    else
      form.loop = fmod_loop<T>;
  });
  return prepare_broadcast(op, form);
}

// PRelu broadcasts one way only: the slope to the input.
Status prepare_prelu(OpContext& op) {
  const Dims* shapes[] = {&op.dims(0), &op.dims(1)};
  const auto out = broadcast(shapes);
  if (!out || *out != op.dims(0))
    return op.bad("slope of shape " + text_of(op.dims(1)) + " does not broadcast to the input's " +
                  text_of(op.dims(0)));
  return prepare_arithmetic<Binary::kPRelu>(op);
}

// ---- powers
// ----------------------------------------------------------------------------------------------------------

// base^exponent in the base's type, by squaring; wraps around as multiplication does. A negative exponent
// gives the integer part of the exact value; of 0 it has none, and gives 0.
template <class T>
T int_power(T base, uint64_t exponent, bool negative) {
  if (negative)
    return base == T(1) ? T(1) : std::is_signed_v<T> && base == T(-1) ? T(exponent & 1 ? -1 : 1) : T(0);
  uint64_t result = 1, factor = uint64_t(base);
  for (uint64_t e = exponent; e != 0; e >>= 1) {
    if (e & 1) result *= factor;
    factor *= factor;
  }
  return T(result);
}
template <class T, class E>
T power(T base, E exponent) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<E>)
    return int_power<T>(base, uint64_t(exponent), exponent < E(0));
  else if constexpr (std::is_same_v<T, float> && (std::is_same_v<E, float> || sizeof(E) <= 2))
    return std::pow(base, float(exponent));
  else
    return convert<T>(std::pow(double(base), double(exponent)));
}
template <class T, class E>
int64_t power_loop(const void* a, int64_t sa, const void* b, int64_t sb, void* y, int64_t n) {
  return binary_loop<T, E, T>(a, sa, b, sb, y, n, [](T p, E q) { return power<T, E>(p, q); });
}
// Squares are what most powers in models are.
int64_t float_power_loop(const void* a, int64_t sa, const void* b, int64_t sb, void* y, int64_t n) {
  if (sb == 0 && sa == 1) {
    const float exponent = *static_cast<const float*>(b);
    const Unary same = exponent == 2.0f    ? Unary::kSquare
                       : exponent == 1.0f  ? Unary::kIdentity
                       : exponent == -1.0f ? Unary::kReciprocal
                                           : Unary::kCount;
    if (same != Unary::kCount) {
      simd().unary[size_t(same)](static_cast<const float*>(a), static_cast<float*>(y), n, 0, 0);
      return n;
    }
  }
  return power_loop<float, float>(a, sa, b, sb, y, n);
}

Status prepare_pow(OpContext& op) {
  BinaryForm form{nullptr, op.dtype(0), 10};
  dispatch<kNumeric>(op.dtype(0), [&](auto base) {
    using T = compute_t<typename decltype(base)::type>;
    dispatch<kNumeric>(op.dtype(1), [&](auto exponent) {
      using E = compute_t<typename decltype(exponent)::type>;
      if constexpr (std::is_same_v<T, float> && std::is_same_v<E, float>)
        form.loop = float_power_loop;
      else
        form.loop = power_loop<T, E>;
    });
  });
  return prepare_broadcast(op, form);
}

// ---- comparisons and logic
// -------------------------------------------------------------------------------------------

template <class Compare, class T>
int64_t compare_loop(const void* a, int64_t sa, const void* b, int64_t sb, void* y, int64_t n) {
  return binary_loop<T, T, uint8_t>(a, sa, b, sb, y, n, [](T p, T q) { return uint8_t(Compare()(p, q)); });
}
template <class Compare>
Status prepare_compare(OpContext& op) {
  BELAY_TRY(same_types(op));
  BinaryForm form{nullptr, BELAY_DT_BOOL};
  dispatch<kNumeric | kBool>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    // A bool is read as a byte: any other value than 0 and 1 stays defined.
    if constexpr (std::is_same_v<T, bool>)
      form.loop = compare_loop<Compare, uint8_t>;
    else
      form.loop = compare_loop<Compare, compute_t<T>>;
  });
  return prepare_broadcast(op, form);
}

struct And {
  bool operator()(uint8_t p, uint8_t q) const { return (p != 0) & (q != 0); }
};
struct Or {
  bool operator()(uint8_t p, uint8_t q) const { return (p | q) != 0; }
};
struct Xor {
  bool operator()(uint8_t p, uint8_t q) const { return (p != 0) != (q != 0); }
};
template <class Logic>
Status prepare_logic(OpContext& op) {
  return prepare_broadcast(op, {compare_loop<Logic, uint8_t>, BELAY_DT_BOOL});
}

// ---- bits
// ------------------------------------------------------------------------------------------------------------

template <class T, bool kLeft>
int64_t shift_loop(const void* a, int64_t sa, const void* b, int64_t sb, void* y, int64_t n) {
  return binary_loop<T, T, T>(a, sa, b, sb, y, n, [](T p, T q) {
    if (q >= T(sizeof(T) * 8)) return T(0);  // all bits are out
    return kLeft ? T(uint64_t(p) << q) : T(uint64_t(p) >> q);
  });
}
Status prepare_shift(OpContext& op) {
  BELAY_TRY(same_types(op));
  const std::string_view direction = op.attr().string_or("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    return op.bad("direction is '" + std::string(direction) + "', want 'LEFT' or 'RIGHT'");
  BinaryForm form{nullptr, op.dtype(0)};
  dispatch<kUnsignedInts>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    form.loop = direction == "LEFT" ? shift_loop<T, true> : shift_loop<T, false>;
  });
  return prepare_broadcast(op, form);
}

template <class F, class T>
int64_t bit_loop(const void* a, int64_t sa, const void* b, int64_t sb, void* y, int64_t n) {
  return binary_loop<T, T, T>(a, sa, b, sb, y, n, [](T p, T q) { return T(F()(p, q)); });
}
template <class F>
Status prepare_bits(OpContext& op) {
  BELAY_TRY(same_types(op));
  BinaryForm form{nullptr, op.dtype(0)};
  dispatch_bytes(element_bytes(op.dtype(0)), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) form.loop = bit_loop<F, T>;
  });
  return prepare_broadcast(op, form);
}

}  // namespace

void add_binary(Registry& registry) {
  const auto add = [&](std::string_view op, PrepareFn prepare, TypeMask types, double cost = 0.05) {
    registry.add({.op = op,
                  .prepare = prepare,
                  .types = {types},
                  .min_inputs = 2,
                  .max_inputs = 2,
                  .in_place = InPlace::kElementwise,
                  .ns_per_byte = cost});
  };
  add("Add", prepare_arithmetic<Binary::kAdd>, kNumeric);
  add("Sub", prepare_arithmetic<Binary::kSub>, kNumeric);
  add("Mul", prepare_arithmetic<Binary::kMul>, kNumeric);
  add("Div", prepare_arithmetic<Binary::kDiv>, kNumeric);
  add("PRelu", prepare_prelu, kNumeric);
  add("Mod", prepare_mod, kNumeric, 1);
  add("Pow", prepare_pow, kNumeric, 1);
  add("Equal", prepare_compare<std::equal_to<>>, kNumeric | kBool);
  add("Less", prepare_compare<std::less<>>, kNumeric);
  add("LessOrEqual", prepare_compare<std::less_equal<>>, kNumeric);
  add("Greater", prepare_compare<std::greater<>>, kNumeric);
  add("GreaterOrEqual", prepare_compare<std::greater_equal<>>, kNumeric);
  add("And", prepare_logic<And>, kBool);
  add("Or", prepare_logic<Or>, kBool);
  add("Xor", prepare_logic<Xor>, kBool);
  add("BitShift", prepare_shift, kUnsignedInts);
  add("BitwiseAnd", prepare_bits<std::bit_and<>>, kInts);
  add("BitwiseOr", prepare_bits<std::bit_or<>>, kInts);
  add("BitwiseXor", prepare_bits<std::bit_xor<>>, kInts);
}

}  // namespace belay::cpu
