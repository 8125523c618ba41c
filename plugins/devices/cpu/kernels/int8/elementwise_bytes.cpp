// Operators on the elements of 8-bit tensors: ByteTable, QLinearAdd, QLinearMul.
#include "../blocks.hpp"
#include "../simd/simd.hpp"
#include "int8.hpp"
#include "operands.hpp"

namespace belay::cpu {
namespace {

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

// The operands dequantised, combined as float, quantised.
template <Binary kOp>
Status prepare_binary_bytes(OpContext& op) {
  constexpr int kA = 0, kB = 3, kY = 6;
  for (const int i : {1, 2, 4, 5, kY, kY + 1}) BELAY_TRY(expect_one_value(op, i));
  for (const int i : {2, kB, 5, kY + 1}) BELAY_TRY(expect_type_of(op, i, kA));
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
                       .optional = 1 << 2 | 1 << 5,
                       .domain = "com.microsoft",
                       .ns_per_byte = 0.1});
  };
  binary("QLinearAdd", prepare_binary_bytes<Binary::kAdd>);
  binary("QLinearMul", prepare_binary_bytes<Binary::kMul>);
}

}  // namespace belay::cpu
