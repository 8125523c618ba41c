#include "contrib_heads.hpp"

#include "../convert.hpp"
#include "../rotary.hpp"
#include "rms_norm.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace belay::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// y[i] += the elements of `from`, of `dtype`.
void add_elements(uint32_t dtype, const char* from, int64_t n, float* y) {
  const Simd& loops = simd();
  if (dtype == BELAY_DT_FLOAT32)
    return loops.binary[size_t(Binary::kAdd)](y, 1, reinterpret_cast<const float*>(from), 1, y, n);
  float part[256];
  for (int64_t at = 0; at < n; at += 256) {
    const int64_t width = std::min<int64_t>(256, n - at);
    widen(dtype, from + at * 2, part, width);
    loops.binary[size_t(Binary::kAdd)](y + at, 1, part, 1, y + at, width);
  }
}

}  // namespace

// What one run has before its loops.
struct HeadsKernel::State {
  // Cosines and sines as floats: [batch][row] of both where they had to be converted, else those of the operands.
  const float* angles = nullptr;
  float* buffers = nullptr;  // two rows for each part of a parallel loop
  const float* hiding = nullptr;
  int64_t hiding_query = 0;
};

bool HeadsKernel::first_run(const Run& run) const { return *run.in<int32_t>(total) == q.rows; }

int64_t HeadsKernel::resident(int64_t length) const {
  if (length <= capacity) return length;
  const int64_t evicted = capacity - window + 1;  // at once
  return length - evicted * ceil_div(length - capacity, evicted);
}

HeadsKernel::Lengths HeadsKernel::lengths_of(const Run& run, int64_t batch) const {
  if (lengths == kNoOperand) {
    const int64_t before = past_length == kNoOperand ? past : *run.in<int32_t>(past_length);
    return {before, before + k.rows, 0};
  }
  const int64_t all = int64_t(run.in<int32_t>(lengths)[batch]) + 1;
  // The first run of a sequence has nothing before it; its rows beyond `all` are padding.
  const int64_t before = first_run(run) ? 0 : all - q.rows;
  if (capacity == 0 || before < 0) return {before, all, 0};
  const int64_t kept = resident(before);
  return {kept, kept + all - before, before - kept};
}

int64_t HeadsKernel::position_of(const Run& run, int64_t batch, int64_t row, const Lengths& of) const {
  if (of.past + row >= of.all) return 0;  // padding
  if (positions == kNoOperand) return of.base + of.past + row;
  const int64_t* given = run.in<int64_t>(positions);
  // Of the first run only the first position counts.
  return first_run(run) ? given[0] + row : given[batch * q.rows + row];
}

class HeadsKernel::Bias final : public AttentionBias<float> {
 public:
  Bias(const HeadsKernel& kernel, const Run& run, const State& state) : kernel_(kernel), run_(run), state_(state) {}
  Keys keys(int64_t batch, int64_t query) const override {
    const Lengths of = kernel_.lengths_of(run_, batch);
    Keys out{0, of.all};
    if (kernel_.causal) out.end = std::clamp<int64_t>(of.past + query + 1, 0, of.all);
    if (kernel_.window >= 0) out.begin = std::max<int64_t>(0, of.past + query + 1 - kernel_.window);
    return out;
  }
  bool adds() const override { return state_.hiding || kernel_.added != kNoOperand; }
  bool add(int64_t batch, int64_t head, int64_t query, Keys keys, float* scores) const override {
    const int64_t n = keys.end - keys.begin;
    if (state_.hiding) {
      const int64_t rows = state_.hiding_query ? kernel_.q.rows : 1, step = kernel_.core.form().keys;
      const float* from = state_.hiding + (batch * rows + (state_.hiding_query ? query : 0)) * step + keys.begin;
      simd().binary[size_t(Binary::kAdd)](scores, 1, from, 1, scores, n);
    }
    if (kernel_.added != kNoOperand) {
      const int64_t base = kernel_.capacity ? kernel_.lengths_of(run_, batch).base : 0;
      const int64_t at = batch * kernel_.added_batch + head * kernel_.added_head + query * kernel_.added_query +
                         (keys.begin + base) * kernel_.added_keys;
      const char* from = run_.in<char>(kernel_.added) + at * element_bytes(kernel_.dtype);
      if (kernel_.added_keys) {
        add_elements(kernel_.dtype, from, n, scores);
      } else {
        float one = 0;
        add_elements(kernel_.dtype, from, 1, &one);
        simd().unary[size_t(Unary::kAffine)](scores, scores, n, 1, one);
      }
    }
    return simd().fold[size_t(Fold::kMax)](scores, n) != -kInfinity;
  }
  bool sink(int64_t head, float& value) const override {
    if (!kernel_.smooth) return false;
    value = 0;
    if (kernel_.sinks != kNoOperand)
      add_elements(kernel_.dtype, run_.in<char>(kernel_.sinks) + head * element_bytes(kernel_.dtype), 1, &value);
    return true;
  }

 private:
  const HeadsKernel& kernel_;
  const Run& run_;
  const State& state_;
};

// What the mask adds to scores, [batch, queries or 1, keys]; null where it hides nothing.
const float* HeadsKernel::hiding(const Run& run, int64_t& query_step) const {
  if (form == MaskForm::kNothing) return nullptr;
  const int64_t batches = core.form().batch, keys = core.form().keys, all = lengths_of(run, 0).all;
  const bool by_query = form == MaskForm::kQueries || form == MaskForm::kSquares;
  const int64_t queries = by_query ? q.rows : 1;
  query_step = by_query ? keys : 0;
  const int32_t* given = run.in<int32_t>(mask);
  float* const to = run.scratch<float>(size_t(batches * queries * keys));
  bool any = false;
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t i = 0; i < queries; ++i) {
      float* row = to + (b * queries + i) * keys;
      std::fill(row, row + keys, 0.0f);
      const auto hide = [&](int64_t key, bool hides) { row[key] = hides ? hidden : 0.0f, any = any || hides; };
      switch (form) {
        case MaskForm::kNothing:
          break;
        case MaskForm::kEnds:
        case MaskForm::kEndsAndStarts:
          for (int64_t j = 0; j < all; ++j)
            hide(j, j >= given[b] || (form == MaskForm::kEndsAndStarts && j < given[batches + b]));
          break;
        case MaskForm::kKeys:
          for (int64_t j = 0; j < all; ++j) hide(j, given[b * mask_side + j] <= 0);
          break;
        case MaskForm::kNewKeys:
          for (int64_t j = 0; j < mask_side; ++j) hide(all - mask_side + j, given[b * mask_side + j] <= 0);
          break;
        case MaskForm::kQueries:
          for (int64_t j = 0; j < all; ++j) hide(j, given[(b * q.rows + i) * mask_side + j] <= 0);
          break;
        case MaskForm::kSquares:
          for (int64_t j = 0; j < all; ++j)
            hide(j, given[(b * mask_side + all - q.rows + i) * mask_side + j] <= 0);
          break;
      }
    }
  return any ? to : nullptr;
}

HeadsKernel::State HeadsKernel::start(const Run& run) const {
  State state;
  state.hiding = hiding(run, state.hiding_query);
  if (dtype != BELAY_DT_FLOAT32) state.buffers = run.scratch<float>(size_t(2 * std::max(q.size, v.size) * run.max_parts()));
  if (cos == kNoOperand) return state;
  const int64_t half = rotated / 2;
  if (dtype == BELAY_DT_FLOAT32) return state;
  float* const angles = run.scratch<float>(size_t(core.form().batch * q.rows * rotated));
  state.angles = angles;
  for (int64_t b = 0; b < core.form().batch; ++b) {
    const Lengths of = lengths_of(run, b);
    for (int64_t r = 0; r < q.rows; ++r) {
      const int64_t from = position_of(run, b, r, of) * half;
      widen(dtype, run.in<Half>(cos) + from, angles + (b * q.rows + r) * rotated, half);
      widen(dtype, run.in<Half>(sin) + from, angles + (b * q.rows + r) * rotated + half, half);
    }
  }
  return state;
}

// Row `row` of a part: biased, normalised and rotated; `buffer` is for two rows where floats are stored in 16 bits.
void HeadsKernel::make_row(const Run& run, const State& state, const HeadPart& part, int64_t batch, int64_t head,
                           int64_t row, void* to, float* buffer) const {
  const int64_t bytes = element_bytes(dtype), n = part.size;
  const char* x = run.in<char>(part.input) +
                  (part.offset + batch * part.steps.batch + head * part.steps.head + row * part.steps.row) * bytes;
  const bool biased = part.bias >= 0, normed = part.norm != kNoOperand;
  if (!biased && !normed && !part.rotated) {
    std::memcpy(to, x, size_t(n * bytes));
    return;
  }
  const bool narrow_type = dtype != BELAY_DT_FLOAT32;
  float* const y = narrow_type ? buffer : static_cast<float*>(to);
  if (narrow_type)
    widen(dtype, x, y, n);
  else
    std::memcpy(y, x, size_t(n) * sizeof(float));
  if (biased) add_elements(dtype, run.in<char>(bias) + (part.bias + head * n) * bytes, n, y);
  if (normed) {
    const float* factors = run.in<float>(part.norm);
    if (narrow_type) {
      widen(dtype, run.in<Half>(part.norm), buffer + n, n);
      factors = buffer + n;
    }
    normalise_by_root(y, y, n, norm_epsilon, factors);
  }
  if (part.rotated) {
    RotaryForm turn;
    turn.size = n, turn.rotated = rotated, turn.interleaved = interleaved;
    const float *c = nullptr, *s = nullptr;
    if (state.angles) {
      c = state.angles + (batch * q.rows + row) * rotated;
      s = c + rotated / 2;
    } else {
      const int64_t from = position_of(run, batch, row, lengths_of(run, batch)) * (rotated / 2);
      c = run.in<float>(cos) + from, s = run.in<float>(sin) + from;
    }
    rotate_row<float>(turn, y, c, s, y);
  }
  if (narrow_type) narrow(dtype, y, to, n);
}

// The operand of the core: as it lies, or [batch, heads, all_rows, size] with the past, the rows of the operand and what
// the past holds beyond. Where past and present are one buffer, only the rows of the operand are written.
const void* HeadsKernel::operand(const Run& run, const State& state, const HeadPart& part) const {
  const int64_t bytes = element_bytes(dtype), row_bytes = part.size * bytes;
  if (!part.joined) return run.in<char>(part.input) + part.offset * bytes;
  char* to = part.present == kNoOperand || part.staged ? nullptr : run.out<char>(part.present);
  to = to ? to + part.present_offset * bytes : run.workspace<char>() + part.at;
  const char* old = part.past == kNoOperand ? nullptr : run.in<char>(part.past) + part.past_offset * bytes;
  const bool shared = old == to && part.past_rows == part.all_rows;
  const double row_ns = double(part.size) * 0.4 + 20;
  run.parallel(core.form().batch * part.heads, grain_of(double(shared ? part.rows : part.all_rows) * row_ns),
               [&](int64_t begin, int64_t end, int64_t of_loop) {
    float* const buffer = state.buffers ? state.buffers + of_loop * 2 * std::max(q.size, v.size) : nullptr;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / part.heads, h = i % part.heads;
      const Lengths of = lengths_of(run, b);
      const int64_t before = &part == &q ? 0 : of.past, rows = &part == &q ? part.rows : std::min(part.rows, of.all - before);
      char* const y = to + i * part.all_rows * row_bytes;
      const char* const x = old ? old + i * part.past_rows * row_bytes : nullptr;
      if (!shared && before > 0) std::memcpy(y, x, size_t(before * row_bytes));
      for (int64_t r = 0; r < rows; ++r) make_row(run, state, part, b, h, r, y + (before + r) * row_bytes, buffer);
      if (shared) continue;
      const int64_t made = before + rows, kept = x && !part.staged ? std::max<int64_t>(0, part.past_rows - made) : 0;
      if (kept > 0) std::memcpy(y + made * row_bytes, x + made * row_bytes, size_t(kept * row_bytes));
      if (const int64_t rest = part.all_rows - made - kept; rest > 0)
        std::memset(y + (made + kept) * row_bytes, 0, size_t(rest * row_bytes));
    }
  });
  return to;
}

// Of a cache for the end of a sequence: the last rows of what was staged, at its beginning.
void HeadsKernel::keep_end(const Run& run, const HeadPart& part) const {
  const int64_t row_bytes = part.size * element_bytes(dtype);
  char* const to = part.present == kNoOperand ? nullptr : run.out<char>(part.present);
  if (!to) return;
  for (int64_t i = 0; i < core.form().batch * part.heads; ++i) {
    const Lengths of = lengths_of(run, i / part.heads);
    const int64_t kept = resident(of.base + of.all);
    char* const y = to + i * part.present_rows * row_bytes;
    std::memcpy(y, run.workspace<char>() + part.at + (i * part.all_rows + of.all - kept) * row_bytes, size_t(kept * row_bytes));
    std::memset(y + kept * row_bytes, 0, size_t((part.present_rows - kept) * row_bytes));
  }
}

belay_status HeadsKernel::check(const Run& run) const {
  const auto name = std::string(op);
  if (past_length != kNoOperand) {
    const int64_t before = *run.in<int32_t>(past_length), all = before + k.rows;
    const std::string given = name + ": past_sequence_length is " + std::to_string(before) + " with " +
                              std::to_string(k.rows) + " new rows, ";
    if (before < 0 || all > k.all_rows)
      return run.fail(Code::kOutOfRange, given + "and the buffer has " + std::to_string(k.all_rows) + " rows.");
    const bool by_key = form == MaskForm::kKeys || form == MaskForm::kQueries;
    for (const int64_t side : {by_key ? mask_side : all, added != kNoOperand && added_side != 1 ? added_side : all})
      if (side < all)
        return run.fail(Code::kOutOfRange, given + "and the mask or attention_bias has " + std::to_string(side) + " keys.");
  }
  if (lengths == kNoOperand) return BELAY_OK;
  const int64_t most = *run.in<int32_t>(total);
  if (most < q.rows || (capacity == 0 && most > k.all_rows))
    return run.fail(Code::kOutOfRange, name + ": total_sequence_length is " + std::to_string(most) + ", want " +
                                           std::to_string(q.rows) + " to " + std::to_string(k.all_rows) + ".");
  for (int64_t b = 0; b < core.form().batch; ++b) {
    const int64_t given = int64_t(run.in<int32_t>(lengths)[b]) + 1;
    const Lengths at = lengths_of(run, b);
    const std::string of = " of batch " + std::to_string(b);
    if (at.past < 0 || given < 1 || given > most || at.past > k.past_rows)
      return run.fail(Code::kOutOfRange, name + ": seqlens_k" + of + " is " + std::to_string(given - 1) + ", with " +
                                             std::to_string(q.rows) + " new and " + std::to_string(k.past_rows) +
                                             " past rows and total_sequence_length " + std::to_string(most) + ".");
    if (added != kNoOperand && added_side != 1 && given > added_side)
      return run.fail(Code::kOutOfRange, name + ": attention_bias has " + std::to_string(added_side) +
                                             " keys, but seqlens_k" + of + " is " + std::to_string(given - 1) + ".");
    for (int64_t r = 0; cos != kNoOperand && r < q.rows; ++r)
      if (const int64_t place = position_of(run, b, r, at); place < 0 || place >= cache_rows)
        return run.fail(Code::kOutOfRange, name + ": position " + std::to_string(place) + of +
                                               " is not in the caches, which have " + std::to_string(cache_rows) + " rows.");
  }
  return BELAY_OK;
}

belay_status HeadsKernel::operator()(const Run& run) const {
  if (const belay_status status = check(run); status != BELAY_OK) return status;
  const State state = start(run);
  AttentionOperands at;
  at.q = operand(run, state, q), at.k = operand(run, state, k), at.v = operand(run, state, v);
  at.y = run.out<void>(0);
  at.scores = scores == kNoOperand ? nullptr : run.out<void>(scores);
  at.stage = stage;
  at.unseen = unseen;
  core.run<float>(run, at, Bias(*this, run, state), run.workspace<char>() + core_at);
  for (const HeadPart* part : {&k, &v})
    if (part->staged) keep_end(run, *part);
  return BELAY_OK;
}

// ---- prepare

Status heads_of(OpContext& op, std::string_view name, int64_t& heads) {
  heads = op.attr().int_or(name, 0);
  if (heads >= 1 && heads <= INT32_MAX) return {};
  return op.bad("attribute " + std::string(name) + " is " + std::to_string(heads) + ", want 1 to 2147483647");
}
Status want_type_of_first(OpContext& op, std::initializer_list<size_t> inputs) {
  for (const size_t i : inputs)
    if (op.has(i) && op.dtype(i) != op.dtype(0))
      return op.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(op.dtype(i))) + ", input 0 of " +
                    std::string(dtype_name(op.dtype(0))) + ", want one type");
  return {};
}
Status want_absent(OpContext& op, size_t input, std::string_view name) {
  if (!op.has(input)) return {};
  return op.bad("input " + std::string(name) + " is not supported", Code::kUnimplemented);
}
Status want_zero(OpContext& op, std::string_view attribute) {
  const int64_t value = op.attr().int_or(attribute, 0);
  if (value == 0) return {};
  return op.bad("attribute " + std::string(attribute) + " is " + std::to_string(value) + ", only 0 is supported",
                Code::kUnimplemented);
}
Status want_dims(OpContext& op, size_t input, std::string_view name, const Dims& want) {
  if (!op.has(input) || op.dims(input) == want) return {};
  return op.bad(std::string(name) + " has the shape " + text_of(op.dims(input)) + ", want " + text_of(want));
}

// Where past and present are one buffer, which is longer than what it holds.
Status read_past_length(OpContext& op, size_t input, HeadsKernel& kernel) {
  if (!op.has(input)) return {};
  if (op.dtype(input) != BELAY_DT_INT32 || op.count(input) != 1)
    return op.bad("past_sequence_length is " + std::string(dtype_name(op.dtype(input))) + text_of(op.dims(input)) +
                  ", want one int32");
  kernel.past_length = input;
  return {};
}

Status read_head_mask(OpContext& op, size_t input, int64_t keys, HeadsKernel& kernel) {
  if (!op.has(input)) return {};
  const Dims& dims = op.dims(input);
  const int64_t batch = kernel.core.form().batch;
  // In a buffer that is longer than what it holds the mask says how many keys there are.
  const auto fits = [&](int64_t dim) { return kernel.past_length == kNoOperand ? dim == keys : dim <= keys; };
  kernel.mask = input;
  kernel.mask_side = dims.empty() ? 0 : dims.back();
  if (dims == Dims{batch} || dims == Dims{3 * batch + 2})  // of the longer one the first are the ends
    kernel.form = MaskForm::kEnds;
  else if (dims == Dims{2 * batch})
    kernel.form = MaskForm::kEndsAndStarts;
  else if (dims.size() == 2 && dims[0] == batch && dims[1] == kernel.k.rows)
    kernel.form = MaskForm::kNewKeys;
  else if (dims.size() == 2 && dims[0] == batch && fits(dims[1]))
    kernel.form = MaskForm::kKeys;
  else if (dims.size() == 3 && dims[0] == batch && dims[1] == kernel.q.rows && fits(dims[2]))
    kernel.form = MaskForm::kQueries;
  else if (dims.size() == 4 && dims[0] == batch && dims[1] == 1 && dims[2] == dims[3] && dims[2] >= keys &&
           keys >= kernel.q.rows)
    kernel.form = MaskForm::kSquares;
  else
    return op.bad("the mask has the shape " + text_of(dims) + ", want [" + std::to_string(batch) + "] or " +
                  text_of(Dims{batch, keys}) + " or " + text_of(Dims{batch, kernel.q.rows, keys}));
  return {};
}

Status read_score_bias(OpContext& op, size_t input, int64_t keys, HeadsKernel& kernel) {
  if (!op.has(input)) return {};
  const Dims& dims = op.dims(input);
  const AttentionForm& f = kernel.core.form();
  if (dims.size() != 4 || (dims[0] != 1 && dims[0] != f.batch) || (dims[1] != 1 && dims[1] != f.q_heads) ||
      (dims[2] != 1 && dims[2] != f.queries) ||
      (dims[3] != 1 && dims[3] != keys && (kernel.past_length == kNoOperand || dims[3] > keys)))
    return op.bad("attention_bias has the shape " + text_of(dims) + ", want " +
                  text_of(Dims{f.batch, f.q_heads, f.queries, keys}) + " or 1 in place of a dim");
  kernel.added = input;
  kernel.added_side = dims[3];
  kernel.added_keys = dims[3] == 1 ? 0 : 1;
  kernel.added_query = dims[2] == 1 ? 0 : dims[3];
  kernel.added_head = dims[1] == 1 ? 0 : dims[2] * dims[3];
  kernel.added_batch = dims[0] == 1 ? 0 : dims[1] * dims[2] * dims[3];
  return {};
}

Status plan_heads(OpContext& op, int64_t batch, int64_t keys, HeadsKernel& kernel) {
  // The core reads a part as the operand has it, or where it is joined.
  const auto steps_of = [](const HeadPart& part) {
    return part.joined ? heads_first(part.heads, part.all_rows, part.size) : part.steps;
  };
  AttentionForm form;
  form.batch = batch;
  form.q_heads = kernel.q.heads, form.kv_heads = kernel.k.heads;
  form.queries = kernel.q.rows, form.keys = keys;
  form.size = kernel.q.size, form.v_size = kernel.v.size;
  form.q_type = form.k_type = form.v_type = kernel.dtype = op.dtype(0);
  form.q = steps_of(kernel.q), form.k = steps_of(kernel.k), form.v = steps_of(kernel.v);
  form.y = rows_first(form.q_heads, form.queries, form.v_size);
  form.scale = double(op.attr().float_or("scale", 0));
  if (form.scale == 0) form.scale = form.size ? 1 / std::sqrt(double(form.size)) : 1;
  form.softcap = double(op.attr().float_or("softcap", 0));
  if (form.softcap < 0 || !std::isfinite(form.softcap))
    return op.bad("attribute softcap is " + std::to_string(form.softcap) + ", want 0 or more");
  form.causal = kernel.causal;
  kernel.op = op.op();
  kernel.hidden = op.attr().float_or("mask_filter_value", -10000.0f);
  kernel.core = Attention(form, op.threads());
  uint64_t end = 0;
  for (HeadPart* part : {&kernel.q, &kernel.k, &kernel.v}) {
    if (!part->joined || (!part->staged && part->present != kNoOperand && op.wants(part->present))) continue;
    part->at = end;
    end += (uint64_t(batch * part->heads * part->all_rows * part->size) * element_bytes(kernel.dtype) + 63) / 64 * 64;
  }
  kernel.core_at = end;
  op.workspace(end + kernel.core.workspace_bytes());
  op.cost_ns(kernel.core.cost_ns());
  return {};
}

void give_heads(OpContext& op, HeadsKernel kernel) {
  op.kernel(std::move(kernel), std::string("products:") + micro().name);
}

}  // namespace belay::cpu
