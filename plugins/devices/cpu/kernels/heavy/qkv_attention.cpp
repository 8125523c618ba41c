// belay's QkvAttention, which is Attention of com.microsoft behind its projection: rows of Q, K and V side by side.
#include "../registry.hpp"
#include "contrib_heads.hpp"
#include "heavy.hpp"

#include <algorithm>

namespace belay::cpu {
namespace {

enum : size_t { kQkv, kMask, kPast, kBias, kPastLength };

Status prepare_qkv(OpContext& op) {
  const Dims& x = op.dims(kQkv);
  HeadsKernel kernel;
  int64_t heads = 0;
  BELAY_TRY(heads_of(op, "num_heads", heads));
  BELAY_TRY(want_type_of_first(op, {kPast, kBias}));
  if (x.size() != 3) return op.bad("the projection has the shape " + text_of(x) + ", want rank 3");
  std::vector<int64_t> sizes(3, x[2] / 3);
  if (const auto given = op.attr().ints("qkv_hidden_sizes"); given && !given->empty()) sizes = *given;
  const auto outside = [&](int64_t size) { return size < 0 || size > x[2]; };
  if (sizes.size() != 3 || std::any_of(sizes.begin(), sizes.end(), outside) || sizes[0] != sizes[1] ||
      sizes[0] > (x[2] - sizes[2]) / 2 || 2 * sizes[0] + sizes[2] != x[2])
    return op.bad("qkv_hidden_sizes are " + text_of(sizes) + ", want three from 0 on, the first two equal, with the sum " +
                  std::to_string(x[2]));
  if (sizes[0] % heads || sizes[2] % heads)
    return op.bad("hidden sizes " + text_of(sizes) + " do not divide into num_heads, " + std::to_string(heads));
  const int64_t batch = x[0], rows = x[1];
  const bool shared = op.attr().int_or("past_present_share_buffer", 0) != 0;
  if (shared && (!op.has(kPast) || !op.has(kPastLength)))
    return op.bad("past_present_share_buffer is 1, which needs past and past_sequence_length");
  if (shared) BELAY_TRY(read_past_length(op, kPastLength, kernel));
  int64_t past_rows = 0;
  if (op.has(kPast)) {
    const Dims& past = op.dims(kPast);
    if (past.size() != 5 || past[0] != 2 || past[1] != batch || past[2] != heads || past[4] != sizes[0] / heads ||
        sizes[2] != sizes[0])
      return op.bad("past has the shape " + text_of(past) + ", want [2," + std::to_string(batch) + "," + std::to_string(heads) +
                    ",past," + std::to_string(sizes[0] / heads) + "], with heads of V as large");
    past_rows = past[3];
    if (!shared) kernel.past = past_rows;
  }
  if (op.wants(1) && sizes[2] != sizes[0])
    return op.bad("present is wanted, which needs heads of V as large as those of K; hidden sizes are " + text_of(sizes));
  int64_t offset = 0;
  HeadPart* const parts[] = {&kernel.q, &kernel.k, &kernel.v};
  for (size_t i = 0; i < 3; ++i) {
    HeadPart& part = *parts[i];
    part.heads = heads, part.rows = part.all_rows = rows, part.size = sizes[i] / heads;
    part.offset = offset;
    part.steps = {rows * x[2], part.size, x[2]};
    offset += sizes[i];
    if (i == 0) continue;
    part.all_rows = shared ? past_rows : past_rows + rows;
    part.joined = op.has(kPast) || op.wants(1);
    if (op.has(kPast)) part.past = kPast;
    part.past_rows = past_rows;
    part.past_offset = i == 2 ? batch * heads * past_rows * part.size : 0;
    if (op.wants(1)) part.present = 1;
    part.present_offset = i == 2 ? batch * heads * part.all_rows * part.size : 0;
  }
  kernel.causal = op.attr().int_or("unidirectional", 0) != 0;
  const int64_t keys = kernel.k.all_rows, size = kernel.k.size;
  BELAY_TRY(plan_heads(op, batch, keys, kernel));
  BELAY_TRY(read_head_mask(op, kMask, keys, kernel));
  BELAY_TRY(read_score_bias(op, kBias, keys, kernel));
  BELAY_TRY(op.output(0, op.dtype(0), {batch, rows, sizes[2]}));
  BELAY_TRY(op.output(1, op.dtype(0), {2, batch, heads, keys, size}));
  give_heads(op, std::move(kernel));
  return {};
}

}  // namespace

void add_qkv_attention(Registry& registry) {
  constexpr TypeMask kTypes = kF32 | kF16 | kBf16;
  registry.add({.op = "QkvAttention",
                .prepare = prepare_qkv,
                .types = {kTypes, kI32, kTypes, kTypes, kI32},
                .max_inputs = 5,
                .max_outputs = 2,
                .shared = {{kPast, 1}},
                .domain = "belay",
                .ns_per_byte = 2});
}

}  // namespace belay::cpu
