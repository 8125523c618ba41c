// Attention of opsets 23 and 24. In the definition as corrected after 24 the cap comes before the bias, and
// the numbers of qk_matmul_output_mode follow that order.
#include "../registry.hpp"
#include "attention.hpp"
#include "heavy.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace belay::cpu {
namespace {

enum : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kNonpad };
enum : size_t { kY, kPresentKey, kPresentValue, kScores };

struct Mask {
  uint32_t dtype = BELAY_DT_UNDEFINED;  // undefined: none
  int64_t batch = 0, head = 0, query = 0, keys = 0;  // steps; the keys beyond are masked
  int64_t count = 0;                                 // of elements
};

struct AttentionKernel {
  Attention core;
  Mask mask;
  bool causal = false, has_past = false, has_nonpad = false;
  Scores stage = Scores::kProducts;
  int64_t past = 0, fresh = 0;   // keys
  HeadSteps k_in, v_in;          // of the inputs, where core reads K and V from the joined ones
  uint64_t k_at = 0, v_at = 0, core_at = 0;  // in the workspace; k_at and v_at where no output takes them

  template <class T>
  class Bias final : public AttentionBias<T> {
   public:
    using Keys = typename AttentionBias<T>::Keys;
    Bias(const AttentionKernel& kernel, const Run& run, const T* mask)
        : kernel_(kernel), mask_(mask), nonpad_(kernel.has_nonpad ? run.in<int64_t>(kNonpad) : nullptr) {}
    Keys keys(int64_t batch, int64_t query) const override {
      const AttentionForm& form = kernel_.core.form();
      int64_t end = form.keys, offset = kernel_.past;
      if (kernel_.has_nonpad) {
        end = std::clamp<int64_t>(nonpad_[batch], 0, end);
        if (!kernel_.has_past) offset = nonpad_[batch] - form.queries;
      }
      if (kernel_.causal) end = std::clamp<int64_t>(query + offset + 1, 0, end);
      return {0, end};
    }
    bool adds() const override { return kernel_.mask.dtype != BELAY_DT_UNDEFINED; }
    bool add(int64_t batch, int64_t head, int64_t query, Keys keys, T* scores) const override {
      const Mask& mask = kernel_.mask;
      constexpr T kOut = -std::numeric_limits<T>::infinity();
      const T* const bias = mask_ + batch * mask.batch + head * mask.head + query * mask.query + keys.begin;
      const int64_t given = std::clamp<int64_t>(mask.keys - keys.begin, 0, keys.end - keys.begin);
      T most = kOut;
      if constexpr (std::is_same_v<T, float>) {
        simd().binary[size_t(Binary::kAdd)](scores, 1, bias, 1, scores, given);
        if (given > 0) most = simd().fold[size_t(Fold::kMax)](scores, given);
      } else {
        for (int64_t i = 0; i < given; ++i) {
          scores[i] += bias[i];
          if (!(most >= scores[i])) most = scores[i];
        }
      }
      std::fill(scores + given, scores + (keys.end - keys.begin), kOut);
      if (most > kOut) return true;
      // What is masked is out of sight whatever its score was, NaN too.
      bool any = false;
      for (int64_t i = 0; i < given; ++i) {
        any = any || bias[i] != kOut;
        if (bias[i] == kOut) scores[i] = kOut;
      }
      return any;
    }

   private:
    const AttentionKernel& kernel_;
    const T* mask_;
    const int64_t* nonpad_;
  };

  // The mask as what is added to scores; null where there is none.
  template <class T>
  const T* mask_values(const Run& run) const {
    if (mask.dtype == BELAY_DT_UNDEFINED) return nullptr;
    const T* out = run.in<T>(kMask);
    dispatch<kNumeric | kBool>(mask.dtype, [&](auto tag) {
      using M = typename decltype(tag)::type;
      if constexpr (!std::is_same_v<M, T>) {
        const M* from = run.in<M>(kMask);
        T* const to = run.scratch<T>(size_t(mask.count));
        run.parallel(mask.count, grain_of(1), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            if constexpr (std::is_same_v<M, bool>)
              to[i] = from[i] ? T(0) : -std::numeric_limits<T>::infinity();
            else
              to[i] = T(Compute<M>::load(from[i]));
          }
        });
        out = to;
      }
    });
    return out;
  }

  // [batch, heads, past + fresh, size] of the past and the fresh rows.
  void join(const Run& run, size_t input, size_t past_input, const HeadSteps& steps, int64_t size, uint32_t dtype,
            char* to) const {
    const AttentionForm& f = core.form();
    const int64_t bytes = element_bytes(dtype), total = past + fresh;
    const char *from = run.in<char>(input), *old = has_past ? run.in<char>(past_input) : nullptr;
    run.parallel(f.batch * f.kv_heads, grain_of(double(total * size * bytes) * 0.1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        char* y = to + i * total * size * bytes;
        if (has_past && past * size > 0)
          std::memcpy(y, old + i * past * size * bytes, size_t(past * size * bytes));
        const char* x = from + (i / f.kv_heads * steps.batch + i % f.kv_heads * steps.head) * bytes;
        for (int64_t r = 0; r < fresh && size > 0; ++r)
          std::memcpy(y + (past + r) * size * bytes, x + r * steps.row * bytes, size_t(size * bytes));
      }
    });
  }

  void operator()(const Run& run) const {
    const AttentionForm& f = core.form();
    char* const workspace = run.workspace<char>();
    AttentionOperands at{run.in<void>(kQ), run.in<void>(kK), run.in<void>(kV), run.out<void>(kY),
                         run.out<void>(kScores), stage, -std::numeric_limits<float>::infinity()};
    char *key = run.out<char>(kPresentKey), *value = run.out<char>(kPresentValue);
    if (has_past && !key) key = workspace + k_at;
    if (has_past && !value) value = workspace + v_at;
    if (key) join(run, kK, kPastKey, k_in, f.size, f.k_type, key);
    if (value) join(run, kV, kPastValue, v_in, f.v_size, f.v_type, value);
    if (has_past) at.k = key, at.v = value;
    if (f.in_double())
      core.run<double>(run, at, Bias<double>(*this, run, mask_values<double>(run)), workspace + core_at);
    else
      core.run<float>(run, at, Bias<float>(*this, run, mask_values<float>(run)), workspace + core_at);
  }
};

// Reads what Q, K and V are; both forms of them.
Status read_heads(OpContext& op, AttentionForm& form, AttentionKernel& kernel) {
  const Dims &q = op.dims(kQ), &k = op.dims(kK), &v = op.dims(kV);
  const std::string shapes = "Q, K and V have the shapes " + text_of(q) + ", " + text_of(k) + " and " + text_of(v);
  if ((q.size() != 3 && q.size() != 4) || k.size() != q.size() || v.size() != q.size())
    return op.bad(shapes + ", want rank 3 for all or rank 4 for all");
  const bool rows = q.size() == 3;
  if (k[0] != q[0] || v[0] != q[0]) return op.bad(shapes + ", want one batch size");
  form.batch = q[0];
  if (rows) {
    form.q_heads = op.attr().int_or("q_num_heads", 0);
    form.kv_heads = op.attr().int_or("kv_num_heads", 0);
    for (const char* name : {"q_num_heads", "kv_num_heads"})
      if (op.attr().int_or(name, 0) < 1)
        return op.bad("attribute " + std::string(name) + " is " + std::to_string(op.attr().int_or(name, 0)) +
                      ", want 1 or more where Q has rank 3");
    if (q[2] % form.q_heads || k[2] % form.kv_heads || v[2] % form.kv_heads)
      return op.bad(shapes + ", which do not divide into " + std::to_string(form.q_heads) + " heads of Q and " +
                    std::to_string(form.kv_heads) + " of K and V");
    form.size = q[2] / form.q_heads;
    form.v_size = v[2] / form.kv_heads;
    if (k[2] / form.kv_heads != form.size) return op.bad(shapes + ", whose heads differ in size");
  } else {
    form.q_heads = q[1];
    form.kv_heads = k[1];
    form.size = q[3];
    form.v_size = v[3];
    if (v[1] != k[1]) return op.bad(shapes + ", want as many heads of V as of K");
    if (k[3] != q[3]) return op.bad(shapes + ", whose heads differ in size");
  }
  form.queries = q[rows ? 1 : 2];
  kernel.fresh = k[rows ? 1 : 2];
  if (v[rows ? 1 : 2] != kernel.fresh) return op.bad(shapes + ", want as many rows of V as of K");
  if (form.kv_heads == 0 ? form.q_heads != 0 : form.q_heads % form.kv_heads != 0)
    return op.bad("there are " + std::to_string(form.q_heads) + " heads of Q and " + std::to_string(form.kv_heads) +
                  " of K and V, want a multiple");
  const auto steps = rows ? rows_first : heads_first;
  form.q = steps(form.q_heads, form.queries, form.size);
  form.y = steps(form.q_heads, form.queries, form.v_size);
  kernel.k_in = form.k = steps(form.kv_heads, kernel.fresh, form.size);
  kernel.v_in = form.v = steps(form.kv_heads, kernel.fresh, form.v_size);
  return {};
}

Status read_past(OpContext& op, AttentionForm& form, AttentionKernel& kernel) {
  if (op.has(kPastKey) != op.has(kPastValue)) return op.bad("only one of past_key and past_value is given, want both");
  kernel.has_past = op.has(kPastKey);
  form.keys = kernel.fresh;
  if (!kernel.has_past) return {};
  for (const size_t i : {kPastKey, kPastValue}) {
    const Dims& dims = op.dims(i);
    const int64_t size = i == kPastKey ? form.size : form.v_size;
    if (dims.size() != 4 || dims[0] != form.batch || dims[1] != form.kv_heads || dims[3] != size ||
        dims[2] != op.dims(kPastKey)[2])
      return op.bad(std::string(i == kPastKey ? "past_key" : "past_value") + " has the shape " + text_of(dims) +
                    ", want [" + std::to_string(form.batch) + "," + std::to_string(form.kv_heads) + ",past," +
                    std::to_string(size) + "]");
    if (op.dtype(i) != op.dtype(i - kPastKey + kK))
      return op.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(op.dtype(i))) + ", want " +
                    std::string(dtype_name(op.dtype(i - kPastKey + kK))));
  }
  kernel.past = op.dims(kPastKey)[2];
  form.keys = kernel.past + kernel.fresh;
  form.k = heads_first(form.kv_heads, form.keys, form.size);
  form.v = heads_first(form.kv_heads, form.keys, form.v_size);
  return {};
}

Status read_mask(OpContext& op, const AttentionForm& form, Mask& mask) {
  if (!op.has(kMask)) return {};
  mask.dtype = op.dtype(kMask);
  Dims dims = op.dims(kMask);
  const Dims want{form.batch, form.q_heads, form.queries, form.keys};
  const auto bad = [&] {
    return op.bad("attn_mask has the shape " + text_of(op.dims(kMask)) + ", which does not broadcast to " +
                  text_of(want));
  };
  if (dims.size() < 2 || dims.size() > 4) return bad();
  dims.insert(dims.begin(), 4 - dims.size(), 1);
  for (size_t d = 0; d < 3; ++d)
    if (dims[d] != 1 && dims[d] != want[d]) return bad();
  // From opset 24 on the keys may be fewer: those at the end are then masked.
  if (dims[3] > form.keys || (op.version() < 24 && dims[3] != form.keys)) return bad();
  mask.keys = dims[3];
  mask.count = product(dims);
  mask.query = dims[2] == 1 ? 0 : dims[3];
  mask.head = dims[1] == 1 ? 0 : dims[2] * dims[3];
  mask.batch = dims[0] == 1 ? 0 : dims[1] * dims[2] * dims[3];
  return {};
}

Status prepare_attention(OpContext& op) {
  AttentionForm form;
  AttentionKernel kernel;
  BELAY_TRY(read_heads(op, form, kernel));
  BELAY_TRY(read_past(op, form, kernel));
  BELAY_TRY(read_mask(op, form, kernel.mask));
  form.q_type = op.dtype(kQ), form.k_type = op.dtype(kK), form.v_type = op.dtype(kV);
  form.scale = double(op.attr().float_or("scale", 0));
  if (!op.attr().has("scale")) form.scale = form.size ? 1 / std::sqrt(double(form.size)) : 1;
  form.softcap = double(op.attr().float_or("softcap", 0));
  if (form.softcap < 0 || !std::isfinite(form.softcap))
    return op.bad("attribute softcap is " + std::to_string(form.softcap) + ", want 0 or more");
  kernel.causal = op.attr().int_or("is_causal", 0) != 0;
  const int64_t mode = op.attr().int_or("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3)
    return op.bad("attribute qk_matmul_output_mode is " + std::to_string(mode) + ", want 0 to 3");
  kernel.stage = Scores(mode);
  form.causal = kernel.causal;
  // What is asked for is the least: all but double is computed as float.
  const int64_t softmax = op.attr().int_or("softmax_precision", 0);
  if (softmax != 0 && (softmax < 0 || !(kFloats & type_bit(uint32_t(softmax)))))
    return op.bad("attribute softmax_precision is " + std::to_string(softmax) + ", want a float type");
  form.wide = softmax == BELAY_DT_FLOAT64;
  kernel.has_nonpad = op.has(kNonpad);
  if (kernel.has_nonpad && op.dims(kNonpad) != Dims{form.batch})
    return op.bad("nonpad_kv_seqlen has the shape " + text_of(op.dims(kNonpad)) + ", want [" +
                  std::to_string(form.batch) + "]");

  const bool rows = op.rank(kQ) == 3;
  BELAY_TRY(op.output(kY, form.q_type,
                      rows ? Dims{form.batch, form.queries, form.q_heads * form.v_size}
                           : Dims{form.batch, form.q_heads, form.queries, form.v_size}));
  BELAY_TRY(op.output(kPresentKey, form.k_type, {form.batch, form.kv_heads, form.keys, form.size}));
  BELAY_TRY(op.output(kPresentValue, form.v_type, {form.batch, form.kv_heads, form.keys, form.v_size}));
  BELAY_TRY(op.output(kScores, form.q_type, {form.batch, form.q_heads, form.queries, form.keys}));

  kernel.core = Attention(form, op.threads());
  uint64_t end = 0;
  const auto place = [&](uint64_t bytes) {
    const uint64_t at = end;
    end += (bytes + 63) / 64 * 64;
    return at;
  };
  const uint64_t kv_rows = uint64_t(form.batch * form.kv_heads * form.keys);
  if (kernel.has_past && !op.wants(kPresentKey))
    kernel.k_at = place(kv_rows * uint64_t(form.size) * element_bytes(form.k_type));
  if (kernel.has_past && !op.wants(kPresentValue))
    kernel.v_at = place(kv_rows * uint64_t(form.v_size) * element_bytes(form.v_type));
  kernel.core_at = place(kernel.core.workspace_bytes());
  op.workspace(end);
  op.cost_ns(kernel.core.cost_ns());
  op.kernel(std::move(kernel), std::string("products:") + micro().name);
  return {};
}

}  // namespace

void add_attention(Registry& registry) {
  registry.add(OpDef{.op = "Attention",
                     .prepare = prepare_attention,
                     .types = {kFloats, kFloats, kFloats, kNumeric | kBool, kFloats, kFloats, kI64},
                     .min_inputs = 3,
                     .max_inputs = 7,
                     .max_outputs = 4,
                     .ns_per_byte = 2});
}

}  // namespace belay::cpu
