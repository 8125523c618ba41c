// GroupQueryAttention of com.microsoft: heads of Q that share keys and values, whose caches may have room for more than
// they hold; each batch has its own length.
#include "../registry.hpp"
#include "contrib_heads.hpp"
#include "heavy.hpp"

#include <cstring>
#include <optional>

namespace belay::cpu {
namespace {

enum : size_t {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kLengths,
  kTotal,
  kCos,
  kSin,
  kPositions,
  kScoreBias,
  kSink,
  kKeyScale,
  kValueScale,
  kQueryNorm,
  kKeyNorm
};
enum : size_t { kY, kPresentKey, kPresentValue, kScores };

Status refuse_quantised_caches(OpContext& op) {
  for (const char* name : {"k_quant_type", "v_quant_type"})
    if (const auto kind = op.attr().string_or(name, "NONE"); kind != "NONE")
      return op.bad("attribute " + std::string(name) + " is '" + std::string(kind) + "', only 'NONE' is supported",
                    Code::kUnimplemented);
  BELAY_TRY(want_absent(op, kKeyScale, "k_scale"));
  return want_absent(op, kValueScale, "v_scale");
}

Status read_rotation(OpContext& op, int64_t batch, HeadsKernel& kernel) {
  if (op.attr().int_or("do_rotary", 0) == 0) return {};
  if (!op.has(kCos) || !op.has(kSin)) return op.bad("do_rotary is 1, which needs cos_cache and sin_cache");
  const Dims& cos = op.dims(kCos);
  const int64_t size = kernel.q.size;
  if (cos.size() != 2 || cos != op.dims(kSin) || cos[1] * 2 > size || cos[1] < 1)
    return op.bad("the caches have the shapes " + text_of(cos) + " and " + text_of(op.dims(kSin)) + ", want [rows," +
                  std::to_string(size / 2) + "] at most for both");
  BELAY_TRY(want_dims(op, kPositions, "position_ids", {batch, kernel.q.rows}));
  for (HeadPart* part : {&kernel.q, &kernel.k}) part->rotated = part->joined = true;
  kernel.interleaved = op.attr().int_or("rotary_interleaved", 0) != 0;
  kernel.cos = kCos, kernel.sin = kSin, kernel.rotated = cos[1] * 2, kernel.cache_rows = cos[0];
  if (op.has(kPositions)) kernel.positions = kPositions;
  return {};
}

Status read_norms(OpContext& op, HeadsKernel& kernel) {
  if (op.has(kQueryNorm) != op.has(kKeyNorm)) return op.bad("only one of q_norm_weight and k_norm_weight is given, want both");
  if (!op.has(kQueryNorm)) return {};
  for (const auto& [part, input, name] : {std::tuple{&kernel.q, kQueryNorm, "q_norm_weight"}, {&kernel.k, kKeyNorm, "k_norm_weight"}}) {
    BELAY_TRY(want_dims(op, input, name, {part->size}));
    part->norm = input;
    part->joined = true;
  }
  kernel.norm_epsilon = op.attr().float_or("qk_norm_epsilon", 1e-6f);
  return {};
}

// Caches that hold the end of a sequence only: what goes in and out has `capacity` rows, what is computed with more.
Status read_window(OpContext& op, int64_t past, HeadsKernel& kernel) {
  kernel.window = op.attr().int_or("local_window_size", -1);
  if (kernel.window >= 0 && !kernel.causal)
    return op.bad("local_window_size is " + std::to_string(kernel.window) + ", which wants attribute causal to be 1");
  if (op.attr().int_or("sliding_window_cache", 0) == 0) return {};
  if (kernel.window < 1 || !op.has(kPastKey) || past < kernel.window)
    return op.bad("sliding_window_cache is 1, which wants local_window_size to be 1 or more, it is " +
                  std::to_string(kernel.window) + ", and caches of as many rows or more, they have " + std::to_string(past));
  if (op.wants(kScores)) return op.bad("output output_qk is wanted, which is not supported with sliding_window_cache", Code::kUnimplemented);
  kernel.capacity = past;
  for (HeadPart* part : {&kernel.k, &kernel.v}) {
    part->staged = true;
    part->present_rows = past;
    part->all_rows = past + part->rows;
  }
  return {};
}

Status read_scores(OpContext& op, const std::optional<int64_t>& total, HeadsKernel& kernel) {
  const int64_t mode = op.attr().int_or("qk_output", 0);
  if (mode < 0 || mode > 2) return op.bad("attribute qk_output is " + std::to_string(mode) + ", want 0 to 2");
  if (!op.wants(kScores)) return {};
  if (mode == 0) return op.bad("output output_qk is wanted, but attribute qk_output is 0");
  if (!total)
    return op.bad("output output_qk is wanted, but total_sequence_length is not known before the run", Code::kUnimplemented);
  kernel.scores = kScores;
  kernel.stage = mode == 1 ? Scores::kBiased : Scores::kSoftmax;
  kernel.unseen = 0;
  return {};
}

Status prepare_group_query(OpContext& op) {
  HeadsKernel kernel;
  int64_t heads = 0, kv_heads = 0;
  BELAY_TRY(heads_of(op, "num_heads", heads));
  BELAY_TRY(heads_of(op, "kv_num_heads", kv_heads));
  if (heads % kv_heads)
    return op.bad("num_heads is " + std::to_string(heads) + ", want a multiple of kv_num_heads, " + std::to_string(kv_heads));
  BELAY_TRY(refuse_quantised_caches(op));
  BELAY_TRY(want_type_of_first(op, {kKey, kValue, kPastKey, kPastValue, kCos, kSin, kScoreBias, kSink, kQueryNorm, kKeyNorm}));
  const Dims& x = op.dims(kQuery);
  const bool packed = !op.has(kKey);
  const int64_t all = packed ? heads + 2 * kv_heads : heads;
  if (x.size() != 3 || x[2] % all)
    return op.bad("query has the shape " + text_of(x) + ", want rank 3, and heads of one size: " + std::to_string(all) +
                  " of them");
  if (op.has(kKey) != op.has(kValue)) return op.bad("only one of key and value is given, want both or none");
  const int64_t batch = x[0], rows = x[1], size = x[2] / all;
  for (const size_t i : {kKey, kValue})
    BELAY_TRY(want_dims(op, i, i == kKey ? "key" : "value", {batch, rows, kv_heads * size}));
  if (op.has(kPastKey) != op.has(kPastValue)) return op.bad("only one of past_key and past_value is given, want both");
  const int64_t past = op.has(kPastKey) && op.rank(kPastKey) == 4 ? op.dims(kPastKey)[2] : 0;
  for (const size_t i : {kPastKey, kPastValue})
    BELAY_TRY(want_dims(op, i, i == kPastKey ? "past_key" : "past_value", {batch, kv_heads, past, size}));
  for (const size_t i : {kLengths, kTotal})
    if (!op.has(i) || op.dtype(i) != BELAY_DT_INT32)
      return op.bad(std::string(i == kLengths ? "seqlens_k" : "total_sequence_length") + " is missing or not of int32");
  if (op.count(kLengths) != batch)
    return op.bad("seqlens_k has the shape " + text_of(op.dims(kLengths)) + ", want " + text_of(Dims{batch}));
  if (op.count(kTotal) != 1)
    return op.bad("total_sequence_length has the shape " + text_of(op.dims(kTotal)) + ", want one value");

  std::optional<int64_t> total;
  if (const void* known = op.constant(kTotal)) {
    int32_t value = 0;
    std::memcpy(&value, known, sizeof value);
    total = value;
  }
  // Rows of the caches that come out: where nobody says, the past and the new ones will do.
  int64_t length = past + rows;
  for (const size_t o : {kPresentKey, kPresentValue})
    if (op.wants(o)) {
      if (const auto dims = op.known_out_dims(o))
        length = dims->size() == 4 ? (*dims)[2] : length;
      else if (total)
        length = std::max<int64_t>(past, *total);
    }
  kernel.q.steps = {rows * x[2], size, x[2]};
  kernel.q.heads = heads, kernel.q.rows = kernel.q.all_rows = rows, kernel.q.size = size;
  for (HeadPart* part : {&kernel.k, &kernel.v}) {
    const size_t number = part == &kernel.k ? 0 : 1;
    part->input = packed ? size_t{kQuery} : kKey + number;
    part->offset = packed ? (heads + int64_t(number) * kv_heads) * size : 0;
    part->steps = packed ? HeadSteps{rows * x[2], size, x[2]} : rows_first(kv_heads, rows, size);
    part->heads = kv_heads, part->rows = rows, part->size = size;
    part->past = op.has(kPastKey) ? kPastKey + number : kNoOperand;
    part->past_rows = past;
    part->present = op.wants(kPresentKey + number) ? kPresentKey + number : kNoOperand;
    part->all_rows = length;
    part->joined = true;
  }
  kernel.lengths = kLengths, kernel.total = kTotal;
  kernel.causal = op.attr().int_or("causal", 1) != 0;
  kernel.smooth = op.attr().int_or("smooth_softmax", 0) != 0 || op.has(kSink);
  BELAY_TRY(want_dims(op, kSink, "head_sink", {heads}));
  if (op.has(kSink)) kernel.sinks = kSink;
  BELAY_TRY(read_window(op, past, kernel));
  BELAY_TRY(read_rotation(op, batch, kernel));
  BELAY_TRY(read_norms(op, kernel));
  BELAY_TRY(read_scores(op, total, kernel));
  // What is known of the keys keeps a cache with much room from being looked at as a whole.
  int64_t keys = kernel.k.all_rows;
  if (total && kernel.capacity == 0) keys = std::clamp<int64_t>(*total, 0, keys);
  BELAY_TRY(plan_heads(op, batch, keys, kernel));
  // Of the keys as many as there are in all.
  const int64_t biased = op.has(kScoreBias) && op.rank(kScoreBias) == 4 ? op.dims(kScoreBias)[3] : 0;
  BELAY_TRY(read_score_bias(op, kScoreBias, biased, kernel));
  BELAY_TRY(op.output(kY, op.dtype(0), {batch, rows, heads * size}));
  for (const size_t o : {kPresentKey, kPresentValue})
    BELAY_TRY(op.output(o, op.dtype(0), {batch, kv_heads, kernel.capacity ? kernel.capacity : length, size}));
  if (total) BELAY_TRY(op.output(kScores, op.dtype(0), {batch, heads, rows, keys}));
  give_heads(op, std::move(kernel));
  return {};
}

}  // namespace

void add_group_query_attention(Registry& registry) {
  constexpr TypeMask kTypes = kF32 | kF16 | kBf16;
  registry.add({.op = "GroupQueryAttention",
                .prepare = prepare_group_query,
                .types = {kTypes, kTypes, kTypes, kTypes, kTypes, kI32, kI32 | kTypes | kI64},
                .max_inputs = 16,
                .max_outputs = 4,
                .shared = {{kPastKey, kPresentKey}, {kPastValue, kPresentValue}},
                .domain = "com.microsoft",
                .ns_per_byte = 2});
}

}  // namespace belay::cpu
