// The operators of attention of com.microsoft: MultiHeadAttention, GroupQueryAttention, and belay's QkvAttention, which
// is Attention behind its projection. RotaryEmbedding of that domain.
#include "../registry.hpp"
#include "../rotary.hpp"
#include "attention.hpp"
#include "heavy.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace belay::cpu {
namespace {

constexpr size_t kNone = SIZE_MAX;

// Q, K or V as an operand has them.
struct Part {
  size_t input = 0;
  int64_t offset = 0;  // elements before the first
  HeadSteps steps;
  int64_t heads = 0, rows = 0, size = 0;
  int64_t bias = -1;       // its first element in the bias of the projections; -1: none is added
  size_t past = kNone;     // input with the rows before, heads first
  int64_t past_offset = 0, past_rows = 0;
  size_t present = kNone;  // output with all rows
  int64_t present_offset = 0;
  int64_t all_rows = 0;    // of the joined tensor
  bool joined = false;     // read from a tensor that is made at the run: heads first
  uint64_t at = 0;         // its place in the workspace, where no output holds it
};

// What hides keys, by numbers of int32.
enum class MaskForm : uint8_t {
  kNothing,
  kEnds,           // [batch]: keys from there on
  kEndsAndStarts,  // the same, then keys before
  kKeys,           // [batch, keys]: those that are 0
  kQueries,        // [batch, queries, keys]: those that are 0
  kSquares         // [batch, 1, most, most], of which the last rows up to `keys` are those of the queries
};

struct ContribAttention {
  Attention core;
  Part q, k, v;
  uint32_t dtype = 0;
  size_t bias = kNone, mask = kNone, added = kNone, sinks = kNone;
  MaskForm form = MaskForm::kNothing;
  int64_t mask_side = 0;
  int64_t added_batch = 0, added_head = 0, added_query = 0;  // steps of what is added to scores
  float hidden = -10000.0f;                                  // is added to scores of hidden keys
  bool causal = false, smooth = false;
  int64_t past = 0;  // keys before those of the first query
  // GroupQueryAttention: each batch has its own length, and a past of its own.
  bool grouped = false, rotary = false, interleaved = false;
  size_t lengths = kNone, total = kNone, cos = kNone, sin = kNone, positions = kNone;
  int64_t window = -1, rotated = 0, cache_rows = 0;
  uint64_t core_at = 0;

  struct Lengths {
    int64_t past, all;
  };
  Lengths lengths_of(const Run& run, int64_t batch) const {
    if (!grouped) return {past, past + k.rows};
    const int64_t all = int64_t(run.in<int32_t>(lengths)[batch]) + 1;
    // The first run of a sequence has nothing before it; its rows beyond `all` are padding.
    const bool first = *run.in<int32_t>(total) == q.rows;
    return {first ? 0 : all - q.rows, all};
  }

  class Bias final : public AttentionBias<float> {
   public:
    Bias(const ContribAttention& kernel, const Run& run) : kernel_(kernel), run_(run) {}
    Keys keys(int64_t batch, int64_t query) const override {
      const Lengths lengths = kernel_.lengths_of(run_, batch);
      Keys out{0, lengths.all};
      if (kernel_.causal) out.end = std::clamp<int64_t>(lengths.past + query + 1, 0, lengths.all);
      if (kernel_.window >= 0) out.begin = std::max<int64_t>(0, lengths.past + query + 1 - kernel_.window);
      return out;
    }
    bool add(int64_t batch, int64_t head, int64_t query, Keys keys, float* scores) const override {
      hide(batch, query, keys, scores);
      if (kernel_.added == kNone) return true;
      const int64_t at =
          batch * kernel_.added_batch + head * kernel_.added_head + query * kernel_.added_query + keys.begin;
      bool any = false;
      dispatch<kF32 | kF16 | kBf16>(kernel_.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* from = run_.in<T>(kernel_.added) + at;
        for (int64_t i = 0; i < keys.end - keys.begin; ++i) {
          scores[i] += Compute<T>::load(from[i]);
          any = any || scores[i] != -std::numeric_limits<float>::infinity();
        }
      });
      return any;
    }
    bool sink(int64_t head, float& value) const override {
      if (!kernel_.smooth) return false;
      value = 0;
      if (kernel_.sinks != kNone)
        dispatch<kF32 | kF16 | kBf16>(kernel_.dtype, [&](auto tag) {
          using T = typename decltype(tag)::type;
          value = Compute<T>::load(run_.in<T>(kernel_.sinks)[head]);
        });
      return true;
    }

   private:
    void hide(int64_t batch, int64_t query, Keys keys, float* scores) const {
      const int64_t all = kernel_.past + kernel_.k.rows, batches = kernel_.core.form().batch;
      const int32_t* mask = kernel_.form == MaskForm::kNothing ? nullptr : run_.in<int32_t>(kernel_.mask);
      const int32_t* row = nullptr;
      switch (kernel_.form) {
        case MaskForm::kNothing:
          return;
        case MaskForm::kEnds:
        case MaskForm::kEndsAndStarts: {
          const int64_t start = kernel_.form == MaskForm::kEnds ? 0 : mask[batches + batch];
          for (int64_t i = keys.begin; i < keys.end; ++i)
            if (i >= mask[batch] || i < start) scores[i - keys.begin] += kernel_.hidden;
          return;
        }
        case MaskForm::kKeys:
          row = mask + batch * all;
          break;
        case MaskForm::kQueries:
          row = mask + (batch * kernel_.q.rows + query) * all;
          break;
        case MaskForm::kSquares:
          row = mask + (batch * kernel_.mask_side + all - kernel_.q.rows + query) * kernel_.mask_side;
          break;
      }
      for (int64_t i = keys.begin; i < keys.end; ++i)
        if (row[i] <= 0) scores[i - keys.begin] += kernel_.hidden;
    }
    const ContribAttention& kernel_;
    const Run& run_;
  };

  // Row `row` of a batch, biased and rotated.
  template <class T>
  void copy_row(const Run& run, const Part& part, int64_t batch, int64_t head, int64_t row, int64_t position, T* y) const {
    const T* x = run.in<T>(part.input) + part.offset + batch * part.steps.batch + head * part.steps.head +
                 row * part.steps.row;
    if (part.bias >= 0 && bias != kNone) {
      const T* add = run.in<T>(bias) + part.bias + head * part.size;
      for (int64_t i = 0; i < part.size; ++i) y[i] = Compute<T>::store(Compute<T>::load(x[i]) + Compute<T>::load(add[i]));
    } else {
      std::memcpy(y, x, size_t(part.size) * sizeof(T));
    }
    if (!rotary || &part == &v) return;
    RotaryForm form;
    form.size = part.size, form.rotated = rotated, form.interleaved = interleaved;
    const int64_t from = position * (rotated / 2);
    rotate_row<T>(form, y, run.in<T>(cos) + from, run.in<T>(sin) + from, y);
  }
  int64_t position_of(const Run& run, int64_t batch, int64_t row, int64_t before) const {
    if (positions == kNone) return before + row;
    const int64_t* given = run.in<int64_t>(positions);
    // Of the first run only the first position counts.
    return *run.in<int32_t>(total) == q.rows ? given[0] + row : given[batch * q.rows + row];
  }

  // [batch, heads, all_rows, size]: the past, the rows of the operand, then zeros.
  template <class T>
  void join(const Run& run, const Part& part, T* to) const {
    const int64_t batches = core.form().batch;
    run.parallel(batches * part.heads, grain_of(double(part.all_rows * part.size) * 0.3), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / part.heads, h = i % part.heads;
        const Lengths lengths = lengths_of(run, b);
        T* y = to + i * part.all_rows * part.size;
        int64_t before = &part == &q ? 0 : lengths.past;
        if (before > 0)
          std::memcpy(y, run.in<T>(part.past) + part.past_offset + i * part.past_rows * part.size,
                      size_t(before * part.size) * sizeof(T));
        const int64_t rows = &part == &q ? part.rows : std::min(part.rows, lengths.all - before);
        for (int64_t r = 0; r < rows; ++r) {
          int64_t position = rotary ? position_of(run, b, r, lengths.past) : 0;
          if (lengths.past + r >= lengths.all) position = 0;  // padding
          copy_row<T>(run, part, b, h, r, position, y + (before + r) * part.size);
        }
        if (const int64_t rest = part.all_rows - before - rows; rest > 0)
          std::memset(y + (before + rows) * part.size, 0, size_t(rest * part.size) * sizeof(T));
      }
    });
  }

  // The operand of the core, made where it has to be.
  const void* operand(const Run& run, const Part& part) const {
    const int64_t bytes = element_bytes(dtype);
    if (!part.joined) return run.in<char>(part.input) + part.offset * bytes;
    char* to = part.present == kNone ? nullptr : run.out<char>(part.present);
    to = to ? to + part.present_offset * bytes : run.workspace<char>() + part.at;
    dispatch<kF32 | kF16 | kBf16>(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      join<T>(run, part, reinterpret_cast<T*>(to));
    });
    return to;
  }

  belay_status check_lengths(const Run& run) const {
    const int64_t most = *run.in<int32_t>(total);
    if (most < q.rows || most > k.all_rows)
      return run.fail(Code::kOutOfRange, "GroupQueryAttention: total_sequence_length is " + std::to_string(most) + ", want " +
                                             std::to_string(q.rows) + " to " + std::to_string(k.all_rows) + ".");
    for (int64_t b = 0; b < core.form().batch; ++b) {
      const Lengths lengths = lengths_of(run, b);
      const std::string of = " of batch " + std::to_string(b);
      if (lengths.past < 0 || lengths.all < 1 || lengths.all > most || lengths.past > k.past_rows)
        return run.fail(Code::kOutOfRange,
                        "GroupQueryAttention: seqlens_k" + of + " is " + std::to_string(lengths.all - 1) + ", with " +
                            std::to_string(q.rows) + " new and " + std::to_string(k.past_rows) +
                            " past rows and total_sequence_length " + std::to_string(most) + ".");
      for (int64_t r = 0; rotary && r < std::min(q.rows, lengths.all - lengths.past); ++r)
        if (const int64_t at = position_of(run, b, r, lengths.past); at < 0 || at >= cache_rows)
          return run.fail(Code::kOutOfRange, "GroupQueryAttention: position " + std::to_string(at) + of +
                                                 " is not in the caches, which have " + std::to_string(cache_rows) + " rows.");
    }
    return BELAY_OK;
  }

  belay_status operator()(const Run& run) const {
    if (grouped)
      if (const belay_status status = check_lengths(run); status != BELAY_OK) return status;
    const AttentionOperands at{operand(run, q), operand(run, k), operand(run, v), run.out<void>(0), nullptr, {}};
    core.run<float>(run, at, Bias(*this, run), run.workspace<char>() + core_at);
    return BELAY_OK;
  }
};

// ---- what the operators have in common

Status one_type(OpContext& op, std::initializer_list<size_t> inputs) {
  for (const size_t i : inputs)
    if (op.has(i) && op.dtype(i) != op.dtype(0))
      return op.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(op.dtype(i))) + ", input 0 of " +
                    std::string(dtype_name(op.dtype(0))) + ", want one type");
  return {};
}
Status absent(OpContext& op, size_t input, std::string_view name) {
  if (!op.has(input)) return {};
  return op.bad("input " + std::string(name) + " is not supported", Code::kUnimplemented);
}
Status zero(OpContext& op, std::string_view attribute) {
  const int64_t value = op.attr().int_or(attribute, 0);
  if (value == 0) return {};
  return op.bad("attribute " + std::string(attribute) + " is " + std::to_string(value) + ", only 0 is supported",
                Code::kUnimplemented);
}
Status expect(OpContext& op, size_t input, std::string_view name, const Dims& want) {
  if (!op.has(input) || op.dims(input) == want) return {};
  return op.bad(std::string(name) + " has the shape " + text_of(op.dims(input)) + ", want " + text_of(want));
}

Status read_mask(OpContext& op, size_t input, int64_t keys, ContribAttention& kernel) {
  if (!op.has(input)) return {};
  const Dims& dims = op.dims(input);
  const int64_t batch = kernel.core.form().batch;
  kernel.mask = input;
  if (dims == Dims{batch} || dims == Dims{3 * batch + 2})  // of the longer one the first are the ends
    kernel.form = MaskForm::kEnds;
  else if (dims == Dims{2 * batch})
    kernel.form = MaskForm::kEndsAndStarts;
  else if (dims == Dims{batch, keys})
    kernel.form = MaskForm::kKeys;
  else if (dims == Dims{batch, kernel.q.rows, keys})
    kernel.form = MaskForm::kQueries;
  else if (dims.size() == 4 && dims[0] == batch && dims[1] == 1 && dims[2] == dims[3] && dims[2] >= keys &&
           keys >= kernel.q.rows)
    kernel.form = MaskForm::kSquares, kernel.mask_side = dims[2];
  else
    return op.bad("the mask has the shape " + text_of(dims) + ", want [" + std::to_string(batch) + "] or " +
                  text_of(Dims{batch, keys}) + " or " + text_of(Dims{batch, kernel.q.rows, keys}));
  return {};
}

Status read_added(OpContext& op, size_t input, int64_t keys, ContribAttention& kernel) {
  if (!op.has(input)) return {};
  const Dims& dims = op.dims(input);
  const AttentionForm& f = kernel.core.form();
  if (dims.size() != 4 || (dims[0] != 1 && dims[0] != f.batch) || (dims[1] != 1 && dims[1] != f.q_heads) ||
      dims[2] != f.queries || dims[3] != keys)
    return op.bad("attention_bias has the shape " + text_of(dims) + ", want " +
                  text_of(Dims{f.batch, f.q_heads, f.queries, keys}) + " or 1 for the first two");
  kernel.added = input;
  kernel.added_query = dims[3];
  kernel.added_head = dims[1] == 1 ? 0 : dims[2] * dims[3];
  kernel.added_batch = dims[0] == 1 ? 0 : dims[1] * dims[2] * dims[3];
  return {};
}

// The core reads a part as the operand has it, or where it is joined.
HeadSteps steps_of(const Part& part) { return part.joined ? heads_first(part.heads, part.all_rows, part.size) : part.steps; }

// With the parts known: the core, and room for what is joined.
Status plan(OpContext& op, int64_t batch, ContribAttention& kernel) {
  AttentionForm form;
  form.batch = batch;
  form.q_heads = kernel.q.heads, form.kv_heads = kernel.k.heads;
  form.queries = kernel.q.rows, form.keys = kernel.k.all_rows;
  form.size = kernel.q.size, form.v_size = kernel.v.size;
  form.q_type = form.k_type = form.v_type = kernel.dtype = op.dtype(0);
  form.q = steps_of(kernel.q), form.k = steps_of(kernel.k), form.v = steps_of(kernel.v);
  form.y = rows_first(form.q_heads, form.queries, form.v_size);
  form.scale = double(op.attr().float_or("scale", 0));
  if (form.scale == 0) form.scale = form.size ? 1 / std::sqrt(double(form.size)) : 1;
  form.softcap = double(op.attr().float_or("softcap", 0));
  if (form.softcap < 0 || !std::isfinite(form.softcap))
    return op.bad("attribute softcap is " + std::to_string(form.softcap) + ", want 0 or more");
  kernel.hidden = op.attr().float_or("mask_filter_value", -10000.0f);
  kernel.core = Attention(form, op.threads());
  uint64_t end = 0;
  for (Part* part : {&kernel.q, &kernel.k, &kernel.v}) {
    if (!part->joined || (part->present != kNone && op.wants(part->present))) continue;
    part->at = end;
    end += (uint64_t(batch * part->heads * part->all_rows * part->size) * element_bytes(kernel.dtype) + 63) / 64 * 64;
  }
  kernel.core_at = end;
  op.workspace(end + kernel.core.workspace_bytes());
  op.cost_ns(kernel.core.cost_ns());
  return {};
}

Status heads_of(OpContext& op, std::string_view name, int64_t& heads) {
  heads = op.attr().int_or(name, 0);
  if (heads >= 1) return {};
  return op.bad("attribute " + std::string(name) + " is " + std::to_string(heads) + ", want 1 or more");
}

// ---- Attention behind its projection: rows of Q, K and V side by side

Status prepare_qkv(OpContext& op) {
  const Dims& x = op.dims(0);
  ContribAttention kernel;
  int64_t heads = 0;
  BELAY_TRY(heads_of(op, "num_heads", heads));
  BELAY_TRY(one_type(op, {2, 3}));
  if (x.size() != 3) return op.bad("the projection has the shape " + text_of(x) + ", want rank 3");
  std::vector<int64_t> sizes(3, x[2] / 3);
  if (const auto given = op.attr().ints("qkv_hidden_sizes"); given && !given->empty()) sizes = *given;
  if (sizes.size() != 3 || sizes[0] != sizes[1] || sizes[0] + sizes[1] + sizes[2] != x[2])
    return op.bad("qkv_hidden_sizes are " + text_of(sizes) + ", want three, the first two equal, with the sum " +
                  std::to_string(x[2]));
  if (sizes[0] % heads || sizes[2] % heads)
    return op.bad("hidden sizes " + text_of(sizes) + " do not divide into num_heads, " + std::to_string(heads));
  const int64_t batch = x[0], rows = x[1];
  int64_t offset = 0;
  Part* const parts[] = {&kernel.q, &kernel.k, &kernel.v};
  if (op.has(2)) {
    const Dims& past = op.dims(2);
    if (past.size() != 5 || past[0] != 2 || past[1] != batch || past[2] != heads || past[4] != sizes[0] / heads ||
        sizes[2] != sizes[0])
      return op.bad("past has the shape " + text_of(past) + ", want [2," + std::to_string(batch) + "," + std::to_string(heads) +
                    ",past," + std::to_string(sizes[0] / heads) + "], with heads of V as large");
    kernel.past = past[3];
  }
  if (op.wants(1) && sizes[2] != sizes[0])
    return op.bad("present is wanted, which needs heads of V as large as those of K; hidden sizes are " + text_of(sizes));
  for (size_t i = 0; i < 3; ++i) {
    Part& part = *parts[i];
    part.heads = heads, part.rows = part.all_rows = rows, part.size = sizes[i] / heads;
    part.offset = offset;
    part.steps = {rows * x[2], part.size, x[2]};
    offset += sizes[i];
    if (i == 0) continue;
    part.all_rows = kernel.past + rows;
    part.joined = op.has(2) || op.wants(1);
    if (op.has(2)) part.past = 2;
    part.past_rows = kernel.past;
    part.past_offset = i == 2 ? batch * heads * kernel.past * part.size : 0;
    if (op.wants(1)) part.present = 1;
    part.present_offset = i == 2 ? batch * heads * part.all_rows * part.size : 0;
  }
  kernel.causal = op.attr().int_or("unidirectional", 0) != 0;
  BELAY_TRY(plan(op, batch, kernel));
  BELAY_TRY(read_mask(op, 1, kernel.k.all_rows, kernel));
  BELAY_TRY(read_added(op, 3, kernel.k.all_rows, kernel));
  BELAY_TRY(op.output(0, op.dtype(0), {batch, rows, sizes[2]}));
  BELAY_TRY(op.output(1, op.dtype(0), {2, batch, heads, kernel.k.all_rows, kernel.k.size}));
  op.kernel(std::move(kernel), std::string("products:") + micro().name);
  return {};
}

// ---- MultiHeadAttention

Status prepare_multi_head(OpContext& op) {
  ContribAttention kernel;
  int64_t heads = 0;
  BELAY_TRY(heads_of(op, "num_heads", heads));
  BELAY_TRY(one_type(op, {1, 2, 3, 5, 6, 7}));
  BELAY_TRY(absent(op, 8, "past_sequence_length"));
  BELAY_TRY(absent(op, 9, "cache_indirection"));
  if (op.wants(3)) return op.bad("output qk is not supported", Code::kUnimplemented);
  const Dims& x = op.dims(0);
  Part &q = kernel.q, &k = kernel.k, &v = kernel.v;
  const std::string shapes = "query, key and value have the shapes " + text_of(x) + ", " +
                             (op.has(1) ? text_of(op.dims(1)) : "none") + " and " + (op.has(2) ? text_of(op.dims(2)) : "none");
  const auto misfit = [&](const std::string& want) { return op.bad(shapes + ": " + want); };
  const bool biased = op.has(3);
  bool bias_keys = true;
  const int64_t batch = x.empty() ? 0 : x[0];
  // [batch, rows, heads, parts, size], of which one is number `at`.
  const auto packed = [&](Part& part, size_t input, int64_t parts, int64_t at) {
    const Dims& dims = op.dims(input);
    part.input = input, part.offset = at * dims[4];
    part.heads = heads, part.rows = part.all_rows = dims[1], part.size = dims[4];
    part.steps = {dims[1] * heads * parts * dims[4], parts * dims[4], heads * parts * dims[4]};
  };
  const auto rows = [&](Part& part, size_t input) -> Status {
    const Dims& dims = op.dims(input);
    if (dims.size() != 3 || dims[0] != batch || dims[2] % heads)
      return misfit("input " + std::to_string(input) + " wants [" + std::to_string(batch) + ",rows,a multiple of num_heads, " +
                    std::to_string(heads) + "]");
    part.input = input;
    part.heads = heads, part.rows = part.all_rows = dims[1], part.size = dims[2] / heads;
    part.steps = rows_first(heads, dims[1], part.size);
    return {};
  };
  if (x.size() == 5) {
    if (x[2] != heads || x[3] != 3 || op.has(1) || op.has(2))
      return misfit("a packed query wants [batch,rows," + std::to_string(heads) + ",3,size], and no key and value");
    packed(q, 0, 3, 0), packed(k, 0, 3, 1), packed(v, 0, 3, 2);
  } else {
    BELAY_TRY(rows(q, 0));
    if (!op.has(1)) return misfit("key is missing");
    const Dims& keys = op.dims(1);
    if (keys.size() == 5) {
      if (keys[0] != batch || keys[2] != heads || keys[3] != 2 || op.has(2))
        return misfit("packed keys and values want [batch,rows," + std::to_string(heads) + ",2,size], and no value");
      packed(k, 1, 2, 0), packed(v, 1, 2, 1);
    } else if (!op.has(2)) {
      return misfit("value is missing");
    } else if (keys.size() == 4) {
      for (size_t i = 1; i < 3; ++i) {
        const Dims& dims = op.dims(i);
        if (dims.size() != 4 || dims[0] != batch || dims[1] != heads || dims[2] != keys[2])
          return misfit("keys and values want [batch," + std::to_string(heads) + ",rows,size]");
        Part& part = i == 1 ? k : v;
        part.input = i;
        part.heads = heads, part.rows = part.all_rows = dims[2], part.size = dims[3];
        part.steps = heads_first(heads, dims[2], dims[3]);
      }
      bias_keys = false;  // they are of an earlier run, which added it
    } else {
      BELAY_TRY(rows(k, 1));
      BELAY_TRY(rows(v, 2));
    }
  }
  if (k.size != q.size || v.rows != k.rows) return misfit("want heads of one size in query and key, and as many values as keys");
  if (op.has(6) != op.has(7)) return op.bad("only one of past_key and past_value is given, want both");
  if (op.has(6)) {
    kernel.past = op.rank(6) == 4 ? op.dims(6)[2] : 0;
    BELAY_TRY(expect(op, 6, "past_key", {batch, heads, kernel.past, k.size}));
    BELAY_TRY(expect(op, 7, "past_value", {batch, heads, kernel.past, v.size}));
  }
  if (biased) {
    BELAY_TRY(expect(op, 3, "bias", {heads * (q.size + k.size + v.size)}));
    kernel.bias = 3;
    q.bias = 0;
    q.joined = true;
    if (bias_keys) k.bias = heads * q.size, v.bias = heads * (q.size + k.size);
  }
  for (Part* part : {&k, &v}) {
    const size_t number = part == &k ? 0 : 1;
    part->all_rows = kernel.past + part->rows;
    part->past_rows = kernel.past;
    if (op.has(6)) part->past = 6 + number;
    if (op.wants(1 + number)) part->present = 1 + number;
    part->joined = part->bias >= 0 || op.has(6) || part->present != kNone;
  }
  kernel.causal = op.attr().int_or("unidirectional", 0) != 0;
  BELAY_TRY(plan(op, batch, kernel));
  BELAY_TRY(read_mask(op, 4, k.all_rows, kernel));
  BELAY_TRY(read_added(op, 5, k.all_rows, kernel));
  BELAY_TRY(op.output(0, op.dtype(0), {batch, q.rows, heads * v.size}));
  BELAY_TRY(op.output(1, op.dtype(0), {batch, heads, k.all_rows, k.size}));
  BELAY_TRY(op.output(2, op.dtype(0), {batch, heads, v.all_rows, v.size}));
  op.kernel(std::move(kernel), std::string("products:") + micro().name);
  return {};
}

// ---- GroupQueryAttention

Status prepare_group_query(OpContext& op) {
  ContribAttention kernel;
  int64_t heads = 0, kv_heads = 0;
  BELAY_TRY(heads_of(op, "num_heads", heads));
  BELAY_TRY(heads_of(op, "kv_num_heads", kv_heads));
  if (heads % kv_heads)
    return op.bad("num_heads is " + std::to_string(heads) + ", want a multiple of kv_num_heads, " + std::to_string(kv_heads));
  BELAY_TRY(one_type(op, {1, 2, 3, 4, 7, 8, 10, 11}));
  BELAY_TRY(zero(op, "sliding_window_cache"));
  for (const char* name : {"k_quant_type", "v_quant_type"})
    if (const auto kind = op.attr().string_or(name, "NONE"); kind != "NONE")
      return op.bad("attribute " + std::string(name) + " is '" + std::string(kind) + "', only 'NONE' is supported",
                    Code::kUnimplemented);
  for (const auto& [input, name] : {std::pair<size_t, const char*>{12, "k_scale"}, {13, "v_scale"}, {14, "q_norm_weight"},
                                    {15, "k_norm_weight"}})
    BELAY_TRY(absent(op, input, name));
  if (op.wants(3)) return op.bad("output output_qk is not supported", Code::kUnimplemented);
  const Dims& x = op.dims(0);
  const bool packed = !op.has(1);
  const int64_t all = packed ? heads + 2 * kv_heads : heads;
  if (x.size() != 3 || x[2] % all)
    return op.bad("query has the shape " + text_of(x) + ", want rank 3, and heads of one size: " + std::to_string(all) +
                  " of them");
  if (op.has(1) != op.has(2)) return op.bad("only one of key and value is given, want both or none");
  const int64_t batch = x[0], rows = x[1], size = x[2] / all;
  for (size_t i = 1; i < 3; ++i) BELAY_TRY(expect(op, i, i == 1 ? "key" : "value", {batch, rows, kv_heads * size}));
  kernel.q.steps = {rows * x[2], size, x[2]};
  kernel.q.heads = heads, kernel.q.rows = kernel.q.all_rows = rows, kernel.q.size = size;
  if (op.has(3) != op.has(4)) return op.bad("only one of past_key and past_value is given, want both");
  const int64_t past = op.has(3) && op.rank(3) == 4 ? op.dims(3)[2] : 0;
  for (size_t i = 3; i < 5; ++i)
    BELAY_TRY(expect(op, i, i == 3 ? "past_key" : "past_value", {batch, kv_heads, past, size}));
  for (size_t i = 5; i < 7; ++i)
    if (!op.has(i) || op.dtype(i) != BELAY_DT_INT32)
      return op.bad(std::string(i == 5 ? "seqlens_k" : "total_sequence_length") + " is missing or not of int32");
  BELAY_TRY(expect(op, 5, "seqlens_k", {batch}));
  if (op.count(6) != 1) return op.bad("total_sequence_length has the shape " + text_of(op.dims(6)) + ", want one value");
  // Rows of the caches that come out: where nobody says, the past and the new ones will do.
  int64_t length = past + rows;
  for (size_t o = 1; o < 3; ++o)
    if (op.wants(o)) {
      if (const auto dims = op.known_out_dims(o))
        length = dims->size() == 4 ? (*dims)[2] : length;
      else if (op.constant(6))
        length = std::max<int64_t>(past, *static_cast<const int32_t*>(op.constant(6)));
    }
  for (Part* part : {&kernel.k, &kernel.v}) {
    const size_t number = part == &kernel.k ? 0 : 1;
    part->input = packed ? 0 : 1 + number;
    part->offset = packed ? (heads + int64_t(number) * kv_heads) * size : 0;
    part->steps = packed ? HeadSteps{rows * x[2], size, x[2]} : rows_first(kv_heads, rows, size);
    part->heads = kv_heads, part->rows = rows, part->size = size;
    part->past = op.has(3) ? 3 + number : kNone;
    part->past_rows = past;
    part->present = op.wants(1 + number) ? 1 + number : kNone;
    part->all_rows = length;
    part->joined = true;
  }
  kernel.grouped = true;
  kernel.lengths = 5, kernel.total = 6;
  kernel.causal = op.attr().int_or("causal", 1) != 0;
  kernel.window = op.attr().int_or("local_window_size", -1);
  if (kernel.window >= 0 && !kernel.causal)
    return op.bad("local_window_size is " + std::to_string(kernel.window) + ", which wants attribute causal to be 1");
  kernel.smooth = op.attr().int_or("smooth_softmax", 0) != 0 || op.has(11);
  if (op.has(11)) {
    BELAY_TRY(expect(op, 11, "head_sink", {heads}));
    kernel.sinks = 11;
  }
  if (op.attr().int_or("do_rotary", 0) != 0) {
    if (!op.has(7) || !op.has(8)) return op.bad("do_rotary is 1, which needs cos_cache and sin_cache");
    const Dims& cos = op.dims(7);
    if (cos.size() != 2 || cos != op.dims(8) || cos[1] * 2 > size || cos[1] < 1)
      return op.bad("the caches have the shapes " + text_of(cos) + " and " + text_of(op.dims(8)) + ", want [rows," +
                    std::to_string(size / 2) + "] at most for both");
    BELAY_TRY(expect(op, 9, "position_ids", {batch, rows}));
    kernel.rotary = kernel.q.joined = true;
    kernel.interleaved = op.attr().int_or("rotary_interleaved", 0) != 0;
    kernel.cos = 7, kernel.sin = 8, kernel.rotated = cos[1] * 2, kernel.cache_rows = cos[0];
    if (op.has(9)) kernel.positions = 9;
  }
  BELAY_TRY(plan(op, batch, kernel));
  if (op.has(10)) {
    // Of the keys as many as there are in all.
    const int64_t keys = op.rank(10) == 4 ? op.dims(10)[3] : 0;
    BELAY_TRY(read_added(op, 10, keys, kernel));
    if (keys < rows) return op.bad("attention_bias has the shape " + text_of(op.dims(10)) + ", want total_sequence_length keys");
  }
  BELAY_TRY(op.output(0, op.dtype(0), {batch, rows, heads * size}));
  for (size_t o = 1; o < 3; ++o) BELAY_TRY(op.output(o, op.dtype(0), {batch, kv_heads, length, size}));
  op.kernel(std::move(kernel), std::string("products:") + micro().name);
  return {};
}

// ---- RotaryEmbedding: the positions come before the caches, and may be one number

Status prepare_contrib_rotary(OpContext& op) {
  const Dims &x = op.dims(0), &cos = op.dims(2);
  BELAY_TRY(one_type(op, {2, 3}));
  BELAY_TRY(zero(op, "is_packed_batching"));
  if (cos.size() != 2 || cos != op.dims(3))
    return op.bad("the caches have the shapes " + text_of(cos) + " and " + text_of(op.dims(3)) + ", want rank 2, and one shape");
  RotaryForm form;
  form.x = 0, form.positions = 1, form.cos = 2, form.sin = 3;
  form.rotated = op.attr().int_or("rotary_embedding_dim", 0);
  const int64_t heads = op.attr().int_or("num_heads", 0);
  if (x.size() == 4) {
    form.batch = x[0], form.heads = x[1], form.rows = x[2], form.size = x[3];
    form.steps = heads_first(form.heads, form.rows, form.size);
  } else if (x.size() == 3) {
    // Where the attributes do not say, the caches do how large a head is.
    form.size = heads > 0 ? x[2] / heads : cos[1] * 2;
    form.heads = form.size > 0 ? x[2] / form.size : 0;
    form.batch = x[0], form.rows = x[1];
    if (form.heads * form.size != x[2])
      return op.bad("the last dim of " + text_of(x) + " does not divide into heads of " + std::to_string(form.size));
    form.steps = rows_first(form.heads, form.rows, form.size);
  } else {
    return op.bad("the input has the shape " + text_of(x) + ", want rank 3 or 4");
  }
  if (form.rotated == 0) form.rotated = form.size;
  if (form.rotated < 0 || form.rotated > form.size || form.rotated % 2 != 0 || cos[1] * 2 != form.rotated)
    return op.bad("heads have " + std::to_string(form.size) + " values, of which " + std::to_string(form.rotated) +
                  " are to be rotated, and the caches have the shape " + text_of(cos) + ": want half as many columns");
  form.interleaved = op.attr().int_or("interleaved", 0) != 0;
  form.scale = op.attr().float_or("scale", 1);
  if (op.dims(1) == Dims{form.batch, form.rows} && op.rank(1) == 2)
    form.how = RotaryForm::Positions::kGiven;
  else if (op.dims(1) == Dims{1})
    form.how = RotaryForm::Positions::kFirst;
  else
    return op.bad("position_ids have the shape " + text_of(op.dims(1)) + ", want [1] or " + text_of(Dims{form.batch, form.rows}));
  form.cache_rows = cos[0];
  BELAY_TRY(op.output(0, op.dtype(0), x));
  make_rotary(op, form);
  return {};
}

}  // namespace

void add_contrib_attention(Registry& registry) {
  constexpr TypeMask kTypes = kF32 | kF16 | kBf16;
  const auto add = [&](OpDef def) {
    def.ns_per_byte = 2;
    registry.add(def);
  };
  add({.op = "QkvAttention", .prepare = prepare_qkv, .types = {kTypes, kI32, kTypes, kTypes}, .max_inputs = 4, .max_outputs = 2,
       .domain = "belay"});
  add({.op = "MultiHeadAttention",
       .prepare = prepare_multi_head,
       .types = {kTypes, kTypes, kTypes, kTypes, kI32, kTypes, kTypes | kI32},
       .max_inputs = 10,
       .max_outputs = 4,
       .domain = "com.microsoft"});
  add({.op = "GroupQueryAttention",
       .prepare = prepare_group_query,
       .types = {kTypes, kTypes, kTypes, kTypes, kTypes, kI32, kI32 | kTypes | kI64},
       .max_inputs = 16,
       .max_outputs = 4,
       .domain = "com.microsoft"});
  add({.op = "RotaryEmbedding",
       .prepare = prepare_contrib_rotary,
       .types = {kTypes, kI64, kTypes, kTypes},
       .min_inputs = 4,
       .max_inputs = 4,
       .in_place = InPlace::kFirst,
       .domain = "com.microsoft"});
}

}  // namespace belay::cpu
