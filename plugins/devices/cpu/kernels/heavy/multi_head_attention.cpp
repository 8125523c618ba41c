// MultiHeadAttention of com.microsoft.
#include "../registry.hpp"
#include "contrib_heads.hpp"
#include "heavy.hpp"

namespace belay::cpu {
namespace {

enum : size_t { kQuery, kKey, kValue, kBias, kMask, kScoreBias, kPastKey, kPastValue, kPastLength, kIndirection };
enum : size_t { kY, kPresentKey, kPresentValue, kScores };

// Reads Q, K and V in each layout; false for keys and values that an earlier run made, which have their bias.
Status read_layout(OpContext& op, int64_t heads, HeadsKernel& kernel, bool& bias_keys) {
  const Dims& x = op.dims(kQuery);
  HeadPart &q = kernel.q, &k = kernel.k, &v = kernel.v;
  const std::string shapes = "query, key and value have the shapes " + text_of(x) + ", " +
                             (op.has(kKey) ? text_of(op.dims(kKey)) : "none") + " and " +
                             (op.has(kValue) ? text_of(op.dims(kValue)) : "none");
  const auto misfit = [&](const std::string& want) { return op.bad(shapes + ": " + want); };
  const int64_t batch = x.empty() ? 0 : x[0];
  // [batch, rows, heads, parts, size], of which one is number `at`.
  const auto packed = [&](HeadPart& part, size_t input, int64_t parts, int64_t at) {
    const Dims& dims = op.dims(input);
    part.input = input, part.offset = at * dims[4];
    part.heads = heads, part.rows = part.all_rows = dims[1], part.size = dims[4];
    part.steps = {dims[1] * heads * parts * dims[4], parts * dims[4], heads * parts * dims[4]};
  };
  const auto rows = [&](HeadPart& part, size_t input) -> Status {
    const Dims& dims = op.dims(input);
    if (dims.size() != 3 || dims[0] != batch || dims[2] % heads)
      return misfit("input " + std::to_string(input) + " wants [" + std::to_string(batch) + ",rows,a multiple of num_heads, " +
                    std::to_string(heads) + "]");
    part.input = input;
    part.heads = heads, part.rows = part.all_rows = dims[1], part.size = dims[2] / heads;
    part.steps = rows_first(heads, dims[1], part.size);
    return {};
  };
  bias_keys = true;
  if (x.size() == 5) {
    if (x[2] != heads || x[3] != 3 || op.has(kKey) || op.has(kValue))
      return misfit("a packed query wants [batch,rows," + std::to_string(heads) + ",3,size], and no key and value");
    packed(q, kQuery, 3, 0), packed(k, kQuery, 3, 1), packed(v, kQuery, 3, 2);
  } else {
    BELAY_TRY(rows(q, kQuery));
    if (!op.has(kKey)) return misfit("key is missing");
    const Dims& keys = op.dims(kKey);
    if (keys.size() == 5) {
      if (keys[0] != batch || keys[2] != heads || keys[3] != 2 || op.has(kValue))
        return misfit("packed keys and values want [batch,rows," + std::to_string(heads) + ",2,size], and no value");
      packed(k, kKey, 2, 0), packed(v, kKey, 2, 1);
    } else if (!op.has(kValue)) {
      return misfit("value is missing");
    } else if (keys.size() == 4) {
      for (const size_t i : {kKey, kValue}) {
        const Dims& dims = op.dims(i);
        if (dims.size() != 4 || dims[0] != batch || dims[1] != heads || dims[2] != keys[2])
          return misfit("keys and values want [batch," + std::to_string(heads) + ",rows,size]");
        HeadPart& part = i == kKey ? k : v;
        part.input = i;
        part.heads = heads, part.rows = part.all_rows = dims[2], part.size = dims[3];
        part.steps = heads_first(heads, dims[2], dims[3]);
      }
      bias_keys = false;
    } else {
      BELAY_TRY(rows(k, kKey));
      BELAY_TRY(rows(v, kValue));
    }
  }
  if (k.size != q.size || v.rows != k.rows) return misfit("want heads of one size in query and key, and as many values as keys");
  return {};
}

Status prepare_multi_head(OpContext& op) {
  HeadsKernel kernel;
  int64_t heads = 0;
  bool bias_keys = true;
  BELAY_TRY(heads_of(op, "num_heads", heads));
  BELAY_TRY(want_type_of_first(op, {kKey, kValue, kBias, kScoreBias, kPastKey, kPastValue}));
  BELAY_TRY(want_absent(op, kIndirection, "cache_indirection"));
  BELAY_TRY(read_layout(op, heads, kernel, bias_keys));
  BELAY_TRY(read_past_length(op, kPastLength, kernel));
  HeadPart &q = kernel.q, &k = kernel.k, &v = kernel.v;
  const int64_t batch = op.dims(kQuery)[0];
  const bool shared = kernel.past_length != kNoOperand;
  if (op.has(kPastKey) != op.has(kPastValue)) return op.bad("only one of past_key and past_value is given, want both");
  if (shared && !op.has(kPastKey)) return op.bad("past_sequence_length is given, which needs past_key and past_value");
  int64_t past_rows = 0;
  if (op.has(kPastKey)) {
    past_rows = op.rank(kPastKey) == 4 ? op.dims(kPastKey)[2] : 0;
    BELAY_TRY(want_dims(op, kPastKey, "past_key", {batch, heads, past_rows, k.size}));
    BELAY_TRY(want_dims(op, kPastValue, "past_value", {batch, heads, past_rows, v.size}));
    if (!shared) kernel.past = past_rows;
  }
  if (op.has(kBias)) {
    BELAY_TRY(want_dims(op, kBias, "bias", {heads * (q.size + k.size + v.size)}));
    kernel.bias = kBias;
    q.bias = 0;
    q.joined = true;
    if (bias_keys) k.bias = heads * q.size, v.bias = heads * (q.size + k.size);
  }
  for (HeadPart* part : {&k, &v}) {
    const size_t number = part == &k ? 0 : 1;
    part->all_rows = shared ? past_rows : past_rows + part->rows;
    part->past_rows = past_rows;
    if (op.has(kPastKey)) part->past = kPastKey + number;
    if (op.wants(kPresentKey + number)) part->present = kPresentKey + number;
    part->joined = part->bias >= 0 || op.has(kPastKey) || part->present != kNoOperand;
  }
  // The scores as softmax takes them.
  if (op.wants(kScores)) {
    if (shared) return op.bad("output qk is wanted, which is not supported with past_sequence_length", Code::kUnimplemented);
    if (op.out_dtype(kScores) != BELAY_DT_UNDEFINED && op.out_dtype(kScores) != op.dtype(kQuery))
      return op.bad("output qk is of type " + std::string(dtype_name(op.out_dtype(kScores))) + ", only that of query, " +
                        std::string(dtype_name(op.dtype(kQuery))) + ", is supported",
                    Code::kUnimplemented);
    kernel.scores = kScores;
    kernel.stage = Scores::kBiased;
  }
  kernel.causal = op.attr().int_or("unidirectional", 0) != 0;
  const int64_t keys = k.all_rows;
  BELAY_TRY(plan_heads(op, batch, keys, kernel));
  BELAY_TRY(read_head_mask(op, kMask, keys, kernel));
  BELAY_TRY(read_score_bias(op, kScoreBias, keys, kernel));
  BELAY_TRY(op.output(kY, op.dtype(0), {batch, q.rows, heads * v.size}));
  BELAY_TRY(op.output(kPresentKey, op.dtype(0), {batch, heads, keys, k.size}));
  BELAY_TRY(op.output(kPresentValue, op.dtype(0), {batch, heads, keys, v.size}));
  BELAY_TRY(op.output(kScores, op.dtype(0), {batch, heads, q.rows, keys}));
  give_heads(op, std::move(kernel));
  return {};
}

}  // namespace

void add_multi_head_attention(Registry& registry) {
  constexpr TypeMask kTypes = kF32 | kF16 | kBf16;
  registry.add({.op = "MultiHeadAttention",
                .prepare = prepare_multi_head,
                .types = {kTypes, kTypes, kTypes, kTypes, kI32, kTypes, kTypes | kI32},
                .max_inputs = 10,
                .max_outputs = 4,
                .shared = {{kPastKey, kPresentKey}, {kPastValue, kPresentValue}},
                .domain = "com.microsoft",
                .ns_per_byte = 2});
}

}  // namespace belay::cpu
