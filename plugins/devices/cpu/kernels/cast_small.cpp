#include "cast_small.hpp"

#include "blocks.hpp"
#include "small_types.hpp"

namespace belay::cpu {
namespace {

// Block by block, through double where floats are involved, else through int8: between integers the low bits remain.
struct CastSmall {
  uint32_t from, to;
  int64_t count;
  SmallRounding how;
  bool through_ints;

  void operator()(const Run& run) const {
    const void* x = run.in<void>(0);
    void* y = run.out<void>(0);
    const int64_t steps = (count + kSmallStep - 1) / kSmallStep;
    run.parallel(steps, grain_of(10), [&](int64_t begin, int64_t end) {
      for_blocks(begin * kSmallStep, std::min(count, end * kSmallStep), [&](int64_t at, int64_t n) {
        if (through_ints)
          ints(x, y, at, n);
        else
          floats(x, y, at, n);
      });
    });
  }

 private:
  void ints(const void* x, void* y, int64_t at, int64_t n) const {
    int8_t wide[kBlock];
    if (type_bit(from) & kSmallInts)
      load_small_ints(from, x, at, n, wide);
    else
      dispatch<kInts | kBool>(from, [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t i = 0; i < n; ++i) wide[i] = int8_t(static_cast<const T*>(x)[at + i]);
      });
    if (type_bit(to) & kSmallInts)
      store_small_ints(to, wide, y, at, n);
    else
      dispatch<kInts | kBool>(to, [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t i = 0; i < n; ++i) static_cast<T*>(y)[at + i] = convert<T>(wide[i]);
      });
  }
  void floats(const void* x, void* y, int64_t at, int64_t n) const {
    float wide[kBlock];
    // What float does not hold is rounded so that it is rounded once in all.
    const bool exact = dispatch<kF64 | (kInts & ~(kI8 | kU8)) | kBool>(from, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) wide[i] = to_odd_float(double(static_cast<const T*>(x)[at + i]));
    });
    if (!exact) load_floats(from, x, at, n, wide);
    // To a type that is not small values go as from any float.
    const bool plain = dispatch<kF64 | kInts | kBool>(to, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) static_cast<T*>(y)[at + i] = convert<T>(wide[i]);
    });
    if (!plain) store_floats(to, wide, y, at, n, how);
  }
};

}  // namespace

Status prepare_cast_small(OpContext& op, uint32_t to) {
  const uint32_t from = op.dtype(0);
  constexpr TypeMask kAll = kNumeric | kBool | kSmall;
  if (!(type_bit(from) & kAll) || !(type_bit(to) & kAll))
    return op.bad("there is no conversion from " + std::string(dtype_name(from)) + " to " + std::string(dtype_name(to)),
                  Code::kUnimplemented);
  SmallRounding how{op.attr().int_or("saturate", 1) != 0, PowerRounding::kUp};
  const std::string_view powers = op.attr().string_or("round_mode", "up");
  if (powers == "down")
    how.powers = PowerRounding::kDown;
  else if (powers == "nearest")
    how.powers = PowerRounding::kNearest;
  else if (powers != "up")
    return op.bad("attribute round_mode is '" + std::string(powers) + "', want up, down or nearest");
  BELAY_TRY(op.output(0, to, op.dims(0)));
  const TypeMask whole = kInts | kBool | kSmallInts;
  op.kernel(CastSmall{from, to, op.count(0), how, (type_bit(from) & whole) && (type_bit(to) & whole)});
  return {};
}

}  // namespace belay::cpu
