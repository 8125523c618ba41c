// Operators on the elements of 8-bit tensors: ByteTable, QLinearAdd, QLinearMul.
#include "../blocks.hpp"
#include "../registry.hpp"
#include "../simd/simd.hpp"
#include "byte_product.hpp"
#include "int8.hpp"

namespace belay::cpu {
namespace {

constexpr TypeMask kBytes = kI8 | kU8;

Status one_value(const OpContext& op, size_t i) {
  if (!op.has(i) || op.count(i) == 1) return {};
  return op.bad("input " + std::to_string(i) + " has the shape " + text_of(op.dims(i)) + ", want one value");
}
Status same_type(const OpContext& op, size_t i, size_t as) {
  if (!op.has(i) || op.dtype(i) == op.dtype(as)) return {};
  return op.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(op.dtype(i))) + ", want " +
                std::string(dtype_name(op.dtype(as))));
}

// y[i] = table[bits of x[i]]: what QuantizeLinear makes of what some operator makes of a dequantised byte.
Status prepare_byte_table(OpContext& op) {
  if (op.count(1) != 256)
    return op.bad("the table has " + std::to_string(op.count(1)) + " entries, want 256");
  BELAY_TRY(op.output(0, op.dtype(1), op.dims(0)));
  const int64_t count = op.count(0);
  op.kernel(
      [count](const Run& run) {
        run.parallel(count, grain_of(0.05), [&](int64_t begin, int64_t end) {
          byte_micro().look_up(run.in<uint8_t>(0) + begin, end - begin, run.in<uint8_t>(1), run.out<uint8_t>(0) + begin);
        });
      },
      std::string("table:") + byte_micro().name);
  op.cost_ns(double(count) * 0.05);
  return {};
}

// The scale and zero point at inputs `scale` and `scale + 1`.
struct Line {
  float scale;
  int32_t zero;
};
Line line_of(const Run& run, size_t scale, bool has_zero, bool is_signed) {
  return {*run.in<float>(scale), has_zero ? ByteForm{false, is_signed}.value(*run.in<uint8_t>(scale + 1)) : 0};
}

// The operands dequantised, combined as float, quantised.
template <Binary kOp>
Status prepare_binary_bytes(OpContext& op) {
  constexpr size_t kA = 0, kB = 3, kY = 6;
  for (const size_t i : {size_t{1}, size_t{2}, size_t{4}, size_t{5}, kY, kY + 1}) BELAY_TRY(one_value(op, i));
  for (const size_t i : {size_t{2}, kB, size_t{5}, kY + 1}) BELAY_TRY(same_type(op, i, kA));
  const Dims* shapes[] = {&op.dims(kA), &op.dims(kB)};
  const auto out = broadcast(shapes);
  if (!out) return op.bad("shapes " + text_of(op.dims(kA)) + " and " + text_of(op.dims(kB)) + " do not broadcast");
  BELAY_TRY(op.output(0, op.dtype(kA), *out));
  const BlockReader a(op.dtype(kA), op.dims(kA), *out), b(op.dtype(kB), op.dims(kB), *out);
  const bool is_signed = op.dtype(kA) == BELAY_DT_INT8, az = op.has(2), bz = op.has(5), yz = op.has(kY + 1);
  const int64_t count = product(*out);
  op.kernel(
      [=](const Run& run) {
        const ByteMicro& micro = byte_micro();
        const Line left = line_of(run, 1, az, is_signed), right = line_of(run, 4, bz, is_signed),
                   to = line_of(run, kY, yz, is_signed);
        run.parallel(count, grain_of(0.3), [&](int64_t begin, int64_t end) {
          for_blocks(begin, end, [&](int64_t at, int64_t n) {
            BlockBuffer p, q;
            alignas(64) float x[kBlock], y[kBlock];
            micro.dequantize(static_cast<const uint8_t*>(a.read(run.in<void>(kA), at, n, p)), n, left.scale, left.zero,
                             is_signed, x);
            micro.dequantize(static_cast<const uint8_t*>(b.read(run.in<void>(kB), at, n, q)), n, right.scale,
                             right.zero, is_signed, y);
            simd().binary[size_t(kOp)](x, 1, y, 1, x, n);
            micro.quantize(x, n, to.scale, to.zero, is_signed, run.out<uint8_t>(0) + at);
          });
        });
      },
      byte_micro().name);
  op.cost_ns(double(count) * 0.3);
  return {};
}

}  // namespace

void add_elementwise_bytes(Registry& registry) {
  registry.add(OpDef{.op = "ByteTable",
                     .prepare = prepare_byte_table,
                     .types = {kBytes, kBytes},
                     .min_inputs = 2,
                     .max_inputs = 2,
                     .in_place = InPlace::kFirst,
                     .domain = "belay",
                     .ns_per_byte = 0.03});
  const auto binary = [&](std::string_view op, PrepareFn prepare) {
    registry.add(OpDef{.op = op,
                       .prepare = prepare,
                       .types = {kBytes, kF32, kBytes, kBytes, kF32, kBytes | kF32},
                       .min_inputs = 7,
                       .max_inputs = 8,
                       .domain = "com.microsoft",
                       .ns_per_byte = 0.1});
  };
  binary("QLinearAdd", prepare_binary_bytes<Binary::kAdd>);
  binary("QLinearMul", prepare_binary_bytes<Binary::kMul>);
}

}  // namespace belay::cpu
