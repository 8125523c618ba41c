// Rules of the operators of com.microsoft, and of belay, that are not those of ONNX under the same name.
#include "ir/infer_context.hpp"

namespace belay::ir {
namespace {

int64_t dim_of(const Infer& at, size_t input, int64_t d) {
  if (!at.has(input) || !at.ranked(input)) return kUnknown;
  const int64_t rank = at.rank(input), i = d < 0 ? d + rank : d;
  return i >= 0 && i < rank ? at.dims(input)[size_t(i)] : kUnknown;
}
int64_t divided(int64_t dim, int64_t by) { return dim < 0 || by <= 0 ? kUnknown : dim / by; }

Status fused_matmul(Infer& at) {
  if (!at.ranked(0) || !at.ranked(1)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  // The dims of an operand as rows and columns of the product's matrices.
  const auto arranged = [&](size_t i, const char* transposed, const char* batch) -> Result<Dims> {
    BELAY_TRY(at.want_rank(i, 1));
    Dims dims = at.dims(i);
    if (at.node().int_or(batch, 0) != 0) {
      if (dims.size() < 3) return at.fail(std::string("'") + batch + "' needs rank 3 at least");
      std::rotate(dims.begin(), dims.begin() + 1, dims.end() - 1);
    }
    if (dims.size() > 1 && at.node().int_or(transposed, 0) != 0) std::swap(dims[dims.size() - 2], dims.back());
    return dims;
  };
  BELAY_ASSIGN(Dims a, arranged(0, "transA", "transBatchA"));
  BELAY_ASSIGN(Dims b, arranged(1, "transB", "transBatchB"));
  return set_product(at, std::move(a), std::move(b), at.dtype(0));
}

Status matmul_nbits(Infer& at) {
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  BELAY_TRY(at.want_rank(0, 1));
  const int64_t k = at.node().int_or("K", 0);
  Dims out = at.dims(0);
  if (out.back() >= 0 && out.back() != k)
    return at.fail("the last dim is " + std::to_string(out.back()) + ", want 'K', " + std::to_string(k));
  out.back() = at.node().int_or("N", 0);
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

// The result, mean and deviation of each row, the sum.
Status skip_norm(Infer& at) {
  Type stats = at.in(0);
  stats.dtype = BELAY_DT_FLOAT32;
  if (stats.ranked) {
    BELAY_TRY(at.want_rank(0, 1));
    stats.dims.back() = 1;
  }
  at.set(0, at.in(0));
  at.set(1, stats);
  at.set(2, stats);
  at.set(3, at.in(0));
  return {};
}

// belay.QkvAttention: projections of a sequence side by side, mask, past keys and values, bias.
Status qkv_attention(Infer& at) {
  const int64_t heads = at.node().int_or("num_heads", 0), batch = dim_of(at, 0, 0), length = dim_of(at, 0, 1);
  int64_t hidden = divided(dim_of(at, 0, 2), 3), v_hidden = hidden;
  if (const auto* sizes = at.node().ints("qkv_hidden_sizes"); sizes && sizes->size() == 3)
    hidden = (*sizes)[0], v_hidden = (*sizes)[2];
  const bool shared = at.node().int_or("past_present_share_buffer", 0) != 0;
  const int64_t past = at.has(2) ? dim_of(at, 2, 3) : 0, total = shared ? past : dim_add(past, length);
  at.set(0, at.dtype(0), {batch, length, v_hidden});
  at.set(1, at.dtype(0), {2, batch, heads, total, divided(hidden, heads)});
  return {};
}

Status multi_head_attention(Infer& at) {
  const int64_t heads = at.node().int_or("num_heads", 0);
  if (!at.ranked(0) || (at.has(1) && !at.ranked(1)) || (at.has(2) && !at.ranked(2))) {
    for (size_t i = 0; i < 4; ++i) at.set_unranked(i, at.dtype(0));
    return {};
  }
  const int64_t batch = dim_of(at, 0, 0), queries = dim_of(at, 0, 1);
  const bool packed = at.rank(0) == 5, first = at.has(1) && at.rank(1) == 4;
  const int64_t size = packed ? dim_of(at, 0, 4) : divided(dim_of(at, 0, 2), heads);
  const int64_t keys = packed ? queries : dim_of(at, 1, first ? 2 : 1);
  const int64_t v_size = !at.has(2) ? size : at.rank(2) == 4 ? dim_of(at, 2, 3) : divided(dim_of(at, 2, 2), heads);
  const int64_t past = at.has(6) ? dim_of(at, 6, 2) : 0, total = at.has(8) ? past : dim_add(past, keys);
  at.set(0, at.dtype(0), {batch, queries, dim_mul(heads, v_size)});
  at.set(1, at.dtype(0), {batch, heads, total, size});
  at.set(2, at.dtype(0), {batch, heads, total, v_size});
  at.set(3, at.dtype(0), {batch, heads, queries, total});
  return {};
}

Status group_query_attention(Infer& at) {
  const int64_t heads = at.node().int_or("num_heads", 0), kv_heads = at.node().int_or("kv_num_heads", 0);
  const int64_t batch = dim_of(at, 0, 0), queries = dim_of(at, 0, 1);
  const int64_t size = divided(dim_of(at, 0, 2), at.has(1) ? heads : dim_add(heads, dim_mul(2, kv_heads)));
  int64_t total = kUnknown, length = kUnknown;
  if (const auto given = at.known_ints(6); given && given->size() == 1) total = (*given)[0];
  const int64_t past = at.has(3) ? dim_of(at, 3, 2) : 0;
  if (at.node().int_or("sliding_window_cache", 0) != 0)
    length = past;
  else if (total >= 0 && past >= 0)
    length = std::max(total, past);
  at.set(0, at.dtype(0), {batch, queries, dim_mul(heads, size)});
  at.set(1, at.has(3) ? at.dtype(3) : at.dtype(0), {batch, kv_heads, length, size});
  at.set(2, at.has(4) ? at.dtype(4) : at.dtype(0), {batch, kv_heads, length, size});
  at.set(3, at.dtype(0), {batch, heads, queries, total});
  return {};
}

// GatherBlockQuantized: rows of numbers of few bits, unpacked.
Status gather_block_quantized(Infer& at) {
  if (!at.ranked(0) || !at.ranked(1)) {
    at.set_unranked(0, at.dtype(2));
    return {};
  }
  BELAY_TRY(at.want_rank(0, 1));
  Dims out = at.dims(0);
  if (at.dtype(0) == BELAY_DT_UINT8) out.back() = dim_mul(out.back(), 8 / std::max<int64_t>(1, at.node().int_or("bits", 4)));
  BELAY_ASSIGN(const int64_t axis, at.axis(at.node().int_or("gather_axis", 0), at.rank(0)));
  out.erase(out.begin() + axis);
  out.insert(out.begin() + axis, at.dims(1).begin(), at.dims(1).end());
  at.set(0, at.dtype(2), std::move(out));
  return {};
}

constexpr RuleEntry kContribRules[] = {
    {"GatherBlockQuantized", gather_block_quantized, kMicrosoft},
    {"FusedMatMul", fused_matmul, kMicrosoft},
    {"GroupQueryAttention", group_query_attention, kMicrosoft},
    {"MatMulNBits", matmul_nbits, kMicrosoft},
    {"MultiHeadAttention", multi_head_attention, kMicrosoft},
    {"QkvAttention", qkv_attention, kOwnDomain},
    {"SkipLayerNormalization", skip_norm, kMicrosoft},
    {"SkipSimplifiedLayerNormalization", skip_norm, kMicrosoft},
};

}  // namespace

std::span<const RuleEntry> contrib_rules() { return kContribRules; }

}  // namespace belay::ir
