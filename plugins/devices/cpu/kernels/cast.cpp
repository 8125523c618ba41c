// Conversions between element types.
#include "blocks.hpp"
#include "cast_small.hpp"
#include "registry.hpp"
#include "small_types.hpp"

#include <cstring>

namespace belay::cpu {
namespace {

using CastLoop = void (*)(const void* from, void* to, int64_t n);
template <class From, class To>
void cast_loop(const void* from, void* to, int64_t n) {
  const From* x = static_cast<const From*>(from);
  To* y = static_cast<To*>(to);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<From, bool>)  // a byte other than 0 and 1 is true
      y[i] = convert<To>(reinterpret_cast<const uint8_t*>(x)[i] != 0 ? 1 : 0);
    else
      y[i] = convert<To>(x[i]);
  }
}

// 16-bit floats go through float, block by block, so each pair of types needs no loop of its own.
struct Cast {
  uint32_t from, to;
  int64_t count;
  CastLoop loop;  // between the computed types; null: the same

  void operator()(const Run& run) const {
    const int64_t from_bytes = element_bytes(from), to_bytes = element_bytes(to);
    run.parallel(count, grain_of(0.3), [&](int64_t begin, int64_t end) {
      const char* x = run.in<char>(0) + begin * from_bytes;
      char* y = run.out<char>(0) + begin * to_bytes;
      if (from == to) {
        if (x != y) std::memcpy(y, x, size_t((end - begin) * from_bytes));
        return;
      }
      if (!is_16bit_float(from) && !is_16bit_float(to)) return loop(x, y, end - begin);
      for_blocks(0, end - begin, [&](int64_t at, int64_t n) {
        alignas(64) float wide[kBlock], result[kBlock];
        const void* source = x + at * from_bytes;
        if (is_16bit_float(from)) {
          widen(from, source, wide, n);
          source = wide;
        }
        if (!is_16bit_float(to)) {
          if (loop)
            loop(source, y + at * to_bytes, n);
          else
            std::memcpy(y + at * to_bytes, source, size_t(n) * 4);
          return;
        }
        if (loop) {
          loop(source, result, n);
          source = result;
        }
        narrow(to, static_cast<const float*>(source), y + at * to_bytes, n);
      });
    });
  }
};

Status prepare_cast_to(OpContext& op, uint32_t to) {
  if (is_small(op.dtype(0)) || is_small(to)) return prepare_cast_small(op, to);
  constexpr TypeMask kCastable = kNumeric | kBool;
  if (!(type_bit(to) & kCastable))
    return op.bad("there is no conversion from " + std::string(dtype_name(op.dtype(0))) + " to " +
                      std::string(dtype_name(to)),
                  Code::kUnimplemented);
  BELAY_TRY(op.output(0, to, op.dims(0)));
  Cast kernel{op.dtype(0), to, op.count(0), nullptr};
  dispatch<kCastable>(kernel.from, [&](auto from_tag) {
    using From = compute_t<typename decltype(from_tag)::type>;
    dispatch<kCastable>(to, [&](auto to_tag) {
      using To = compute_t<typename decltype(to_tag)::type>;
      if constexpr (!std::is_same_v<From, To>) kernel.loop = cast_loop<From, To>;
    });
  });
  op.kernel(kernel);
  return {};
}

Status prepare_cast(OpContext& op) {
  if (!op.attr().has("to")) return op.bad("attribute to is missing");
  return prepare_cast_to(op, uint32_t(op.attr().int_or("to", 0)));
}
Status prepare_cast_like(OpContext& op) {
  op.input_unused(1);
  return prepare_cast_to(op, op.dtype(1));
}

}  // namespace

void add_cast(Registry& registry) {
  registry.add(
      {.op = "Cast", .prepare = prepare_cast, .types = {kNumeric | kBool | kSmall}, .in_place = InPlace::kFirst});
  registry.add({.op = "CastLike",
                .prepare = prepare_cast_like,
                .types = {kNumeric | kBool | kSmall},
                .min_inputs = 2,
                .max_inputs = 2,
                .in_place = InPlace::kFirst});
}

}  // namespace belay::cpu
