// RNN, GRU and LSTM. The input's products are made for all steps at once; what remains step by step is the
// product with the hidden state.
#include "rnn_cell.hpp"

#include "../registry.hpp"
#include "heavy.hpp"
#include "product.hpp"

#include <cctype>

namespace belay::cpu {

const ActivationForm* find_activation(std::string_view name) {
  for (const ActivationForm& form : kActivationForms)
    if (std::ranges::equal(form.name, name,
                           [](char a, char b) { return a == char(std::tolower(uint8_t(b))); }))
      return &form;
  return nullptr;
}

namespace {

enum : size_t { kX, kW, kR, kB, kLens, kInitialH, kInitialC, kPeepholes };

struct Shape {
  int64_t steps = 0, batch = 0, input = 0, hidden = 0, directions = 1, gates = 1;
  bool batch_first = false;  // layout 1
  bool reverse[2] = {};
  int64_t width() const { return gates * hidden; }
  // Row of X, and of the gates, that belongs to a step of a sequence.
  int64_t row(int64_t t, int64_t b) const { return batch_first ? b * steps + t : t * batch + b; }
  int64_t state(int64_t d, int64_t b) const {
    return (batch_first ? b * directions + d : d * batch + b) * hidden;
  }
  int64_t y(int64_t t, int64_t d, int64_t b) const {
    return (batch_first ? (b * steps + t) * directions + d : (t * directions + d) * batch + b) * hidden;
  }
};

template <class In>
struct RecurrentKernel {
  using T = compute_t<In>;
  Shape shape;
  Cell cells[2];
  bool has_bias = false, has_lens = false, has_h = false, has_c = false, has_peepholes = false;
  Blocks input_blocks, hidden_blocks, candidate_blocks;
  std::shared_ptr<const Packed> w, r;  // null: packed at the run

  // Workspace, in elements of T.
  struct Layout {
    int64_t gates, hidden_gates, h, c, reset_h, bias, peepholes, w, r, scratch, total;
  } at{};

  bool split_candidate() const { return cells[0].kind == CellKind::kGru; }
  // R is packed in two parts for a GRU: z and r first, then h, whose product may be with another state.
  int64_t first_width() const { return split_candidate() ? 2 * shape.hidden : shape.width(); }
  int64_t w_size() const { return packed_columns_size<T>(shape.width(), shape.input); }
  int64_t r_size() const {
    return packed_columns_size<T>(first_width(), shape.hidden) +
           (split_candidate() ? packed_columns_size<T>(shape.hidden, shape.hidden) : 0);
  }
  void pack_w(const In* from, int64_t d, T* to) const {
    pack_columns<In, T>({from + d * shape.width() * shape.input, 1, shape.input}, shape.input, shape.width(),
                        to);
  }
  void pack_r(const In* from, int64_t d, T* to) const {
    const In* first = from + d * shape.width() * shape.hidden;
    pack_columns<In, T>({first, 1, shape.hidden}, shape.hidden, first_width(), to);
    if (split_candidate())
      pack_columns<In, T>({first + first_width() * shape.hidden, 1, shape.hidden}, shape.hidden, shape.hidden,
                          to + packed_columns_size<T>(first_width(), shape.hidden));
  }

  void plan(uint32_t threads) {
    ProductForm form;
    form.b_packed = true;
    input_blocks = plan_blocks<T>(shape.steps * shape.batch, shape.width(), shape.input, 1, threads, form);
    hidden_blocks = plan_blocks<T>(shape.batch, first_width(), shape.hidden, 1, threads, form);
    candidate_blocks = plan_blocks<T>(shape.batch, shape.hidden, shape.hidden, 1, threads, form);
    int64_t end = 0;
    const auto take = [&](int64_t count) {
      const int64_t begin = end;
      end += round_up(count, 64 / int64_t(sizeof(T)));
      return begin;
    };
    at.gates = take(shape.steps * shape.batch * shape.width());
    at.hidden_gates = take(shape.batch * shape.width());
    at.h = take(shape.batch * shape.hidden);
    at.c = take(shape.batch * shape.hidden);
    at.reset_h = take(shape.batch * shape.hidden);
    at.bias = take(2 * shape.width());
    at.peepholes = take(3 * shape.hidden);
    at.w = take(w ? 0 : w_size());
    at.r = take(r ? 0 : r_size());
    const uint64_t scratch =
        std::max({product_workspace<T>(input_blocks), product_workspace<T>(hidden_blocks),
                  product_workspace<T>(candidate_blocks)});
    at.scratch = take(int64_t(scratch / sizeof(T)));
    at.total = end;
  }

  void operator()(const Run& run) const {
    const Shape& s = shape;
    // Sequences end early where their lengths say so; what is behind stays zero.
    if (In* y = run.out<In>(0); y && has_lens)
      std::fill(y, y + s.steps * s.batch * s.directions * s.hidden, Compute<In>::store(T(0)));
    for (int64_t d = 0; d < s.directions; ++d) direction(run, d);
  }

  void direction(const Run& run, int64_t d) const {
    const Shape& s = shape;
    const Cell& cell = cells[d];
    T* const space = run.workspace<T>();
    T *const gates = space + at.gates, *const hidden_gates = space + at.hidden_gates;
    T *const h = space + at.h, *const c = space + at.c, *const reset_h = space + at.reset_h;
    void* const scratch = space + at.scratch;

    const T *w_packed, *r_packed;
    if (w) {
      w_packed = static_cast<const T*>(static_cast<const PackedBytes&>(*w).data) + d * w_size();
    } else {
      pack_w(run.in<In>(kW), d, space + at.w);
      w_packed = space + at.w;
    }
    if (r) {
      r_packed = static_cast<const T*>(static_cast<const PackedBytes&>(*r).data) + d * r_size();
    } else {
      pack_r(run.in<In>(kR), d, space + at.r);
      r_packed = space + at.r;
    }
    // bias[0, width): added with the input; after it, for the h gate of a GRU that is reset after the
    // product, what is added to the hidden product.
    T* const bias = space + at.bias;
    std::fill(bias, bias + 2 * s.width(), T(0));
    if (has_bias) {
      const In* from = run.in<In>(kB) + d * 2 * s.width();
      for (int64_t i = 0; i < s.width(); ++i) {
        const T of_input = T(Compute<In>::load(from[i])),
                of_hidden = T(Compute<In>::load(from[s.width() + i]));
        const bool apart = cell.kind == CellKind::kGru && cell.linear_before_reset && i >= 2 * s.hidden;
        bias[i] = apart ? of_input : of_input + of_hidden;
        if (apart) bias[s.width() + i] = of_hidden;
      }
    }
    load(has_h ? run.in<In>(kInitialH) : nullptr, d, h);
    load(has_c ? run.in<In>(kInitialC) : nullptr, d, c);
    T* peepholes = nullptr;
    if (has_peepholes) {
      peepholes = space + at.peepholes;
      for (int64_t i = 0; i < 3 * s.hidden; ++i)
        peepholes[i] = T(Compute<In>::load(run.in<In>(kPeepholes)[d * 3 * s.hidden + i]));
    }

    const MatrixView<In> x{run.in<In>(kX), s.input, 1};
    multiply(run, input_blocks, s.steps * s.batch, s.width(), s.input, pack_rows<In, T>, &x, w_packed, gates,
             s.width(), bias, scratch);

    const int32_t* lens = has_lens ? run.in<int32_t>(kLens) : nullptr;
    const MatrixView<T> state{h, s.hidden, 1}, reset{reset_h, s.hidden, 1};
    const T* const candidate_r = r_packed + packed_columns_size<T>(first_width(), s.hidden);
    for (int64_t step = 0; step < s.steps; ++step) {
      multiply(run, hidden_blocks, s.batch, first_width(), s.hidden, pack_rows<T, T>, &state, r_packed,
               hidden_gates, s.width(), static_cast<const T*>(nullptr), scratch);
      if (cell.kind == CellKind::kGru) {
        if (cell.linear_before_reset) {
          multiply(run, candidate_blocks, s.batch, s.hidden, s.hidden, pack_rows<T, T>, &state, candidate_r,
                   hidden_gates + 2 * s.hidden, s.width(), bias + s.width() + 2 * s.hidden, scratch);
        } else {
          for (int64_t b = 0; b < s.batch; ++b) {
            const int64_t t = time(lens, d, b, step);
            T* const reset_row = reset_h + b * s.hidden;
            std::fill(reset_row, reset_row + s.hidden, T(0));
            if (t < 0) continue;
            T* const sums = gates + s.row(t, b) * s.width();
            for (int64_t i = 0; i < 2 * s.hidden; ++i) sums[i] += hidden_gates[b * s.width() + i];
            cell.gru_gates(sums);
            for (int64_t i = 0; i < s.hidden; ++i) reset_row[i] = sums[s.hidden + i] * h[b * s.hidden + i];
          }
          multiply(run, candidate_blocks, s.batch, s.hidden, s.hidden, pack_rows<T, T>, &reset, candidate_r,
                   hidden_gates + 2 * s.hidden, s.width(), static_cast<const T*>(nullptr), scratch);
        }
      }
      for (int64_t b = 0; b < s.batch; ++b) {
        const int64_t t = time(lens, d, b, step);
        if (t < 0) continue;
        T* const sums = gates + s.row(t, b) * s.width();
        const T* const from = hidden_gates + b * s.width();
        T* const h_row = h + b * s.hidden;
        if (cell.kind == CellKind::kGru) {
          T* const candidate = sums + 2 * s.hidden;
          if (cell.linear_before_reset) {
            for (int64_t i = 0; i < 2 * s.hidden; ++i) sums[i] += from[i];
            cell.gru_gates(sums);
            for (int64_t i = 0; i < s.hidden; ++i)
              candidate[i] += sums[s.hidden + i] * from[2 * s.hidden + i];
          } else {
            for (int64_t i = 0; i < s.hidden; ++i) candidate[i] += from[2 * s.hidden + i];
          }
          cell.gru_state(sums, h_row);
        } else {
          for (int64_t i = 0; i < s.width(); ++i) sums[i] += from[i];
          if (cell.kind == CellKind::kLstm)
            cell.lstm(sums, peepholes, h_row, c + b * s.hidden);
          else
            cell.rnn(sums, h_row);
        }
        if (In* y = run.out<In>(0)) {
          In* to = y + s.y(t, d, b);
          for (int64_t i = 0; i < s.hidden; ++i) to[i] = Compute<In>::store(h_row[i]);
        }
      }
    }
    store(run.out<In>(1), d, h);
    if (cell.kind == CellKind::kLstm) store(run.out<In>(2), d, c);
  }

  // Which step of sequence b is computed when the recurrence makes step `step`; -1: the sequence has ended.
  int64_t time(const int32_t* lens, int64_t d, int64_t b, int64_t step) const {
    const int64_t length = lens ? std::clamp<int64_t>(lens[b], 0, shape.steps) : shape.steps;
    if (step >= length) return -1;
    return shape.reverse[d] ? length - 1 - step : step;
  }
  void load(const In* from, int64_t d, T* to) const {
    for (int64_t b = 0; b < shape.batch; ++b)
      for (int64_t i = 0; i < shape.hidden; ++i)
        to[b * shape.hidden + i] = from ? T(Compute<In>::load(from[shape.state(d, b) + i])) : T(0);
  }
  void store(In* to, int64_t d, const T* from) const {
    if (!to) return;
    for (int64_t b = 0; b < shape.batch; ++b)
      for (int64_t i = 0; i < shape.hidden; ++i)
        to[shape.state(d, b) + i] = Compute<In>::store(from[b * shape.hidden + i]);
  }
  static void multiply(const Run& run, const Blocks& blocks, int64_t m, int64_t n, int64_t k,
                       void (*pack_a)(const void*, int64_t, int64_t, int64_t, int64_t, T*), const void* a,
                       const T* b_packed, T* c, int64_t c_step, const T* bias, void* scratch) {
    Product<T> p;
    p.m = m, p.n = n, p.k = k;
    p.pack_a = pack_a;
    p.a = a;
    p.b_packed = b_packed;
    p.c = c;
    p.c_step = c_step;
    p.end.col_bias = bias;
    run_products<T>(run, blocks, 1, scratch, [&](int64_t) { return p; });
  }
};

Status read_shape(const OpContext& context, CellKind kind, Shape& shape) {
  const Dims &x = context.dims(kX), &w = context.dims(kW), &r = context.dims(kR);
  if (x.size() != 3) return context.bad("X has the shape " + text_of(x) + ", want rank 3");
  shape.gates = gates_of(kind);
  const int64_t layout = context.attr().int_or("layout", 0);
  if (layout != 0 && layout != 1)
    return context.bad("attribute layout is " + std::to_string(layout) + ", want 0 or 1");
  shape.batch_first = layout == 1;
  shape.steps = x[layout == 1 ? 1 : 0];
  shape.batch = x[layout == 1 ? 0 : 1];
  shape.input = x[2];
  const std::string_view direction = context.attr().string_or("direction", "forward");
  if (direction == "bidirectional")
    shape.directions = 2, shape.reverse[1] = true;
  else if (direction == "reverse")
    shape.reverse[0] = true;
  else if (direction != "forward")
    return context.bad("attribute direction is '" + std::string(direction) +
                       "', want forward, reverse or bidirectional");
  if (r.size() != 3) return context.bad("R has the shape " + text_of(r) + ", want rank 3");
  shape.hidden = r[2];
  const int64_t hidden = context.attr().int_or("hidden_size", shape.hidden);
  if (hidden != shape.hidden)
    return context.bad("attribute hidden_size is " + std::to_string(hidden) + ", but R has the shape " +
                       text_of(r));
  if (w != Dims{shape.directions, shape.width(), shape.input})
    return context.bad("W has the shape " + text_of(w) + ", want " +
                       text_of(Dims{shape.directions, shape.width(), shape.input}));
  if (r != Dims{shape.directions, shape.width(), shape.hidden})
    return context.bad("R has the shape " + text_of(r) + ", want " +
                       text_of(Dims{shape.directions, shape.width(), shape.hidden}));
  const Dims state = shape.batch_first ? Dims{shape.batch, shape.directions, shape.hidden}
                                       : Dims{shape.directions, shape.batch, shape.hidden};
  const Dims wanted[] = {x,
                         w,
                         r,
                         {shape.directions, 2 * shape.width()},
                         {shape.batch},
                         state,
                         state,
                         {shape.directions, 3 * shape.hidden}};
  static constexpr std::string_view kNames[] = {"X",         "W",         "R", "B", "sequence_lens",
                                                "initial_h", "initial_c", "P"};
  for (size_t i = kB; i < context.inputs(); ++i) {
    if (!context.has(i)) continue;
    if (context.dims(i) != wanted[i])
      return context.bad(std::string(kNames[i]) + " has the shape " + text_of(context.dims(i)) + ", want " +
                         text_of(wanted[i]));
    if (i != kLens && context.dtype(i) != context.dtype(kX))
      return context.bad(std::string(kNames[i]) + " is of type " + std::string(dtype_name(context.dtype(i))) +
                         ", X of " + std::string(dtype_name(context.dtype(kX))) + ", want one type");
  }
  return {};
}

Status read_cells(const OpContext& context, CellKind kind, const Shape& shape, Cell* cells) {
  const size_t each = kind == CellKind::kRnn ? 1 : kind == CellKind::kGru ? 2 : 3;
  std::vector<std::string> names = context.attr().strings("activations");
  if (names.empty())
    for (int64_t d = 0; d < shape.directions; ++d) {
      if (kind == CellKind::kRnn)
        names.push_back("Tanh");
      else
        names.push_back("Sigmoid"), names.push_back("Tanh");
      if (kind == CellKind::kLstm) names.push_back("Tanh");
    }
  if (names.size() != each * size_t(shape.directions))
    return context.bad("attribute activations has " + std::to_string(names.size()) + " names, want " +
                       std::to_string(each * size_t(shape.directions)));
  const std::vector<float> alphas = context.attr().floats("activation_alpha").value_or(std::vector<float>());
  const std::vector<float> betas = context.attr().floats("activation_beta").value_or(std::vector<float>());
  size_t alpha = 0, beta = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const ActivationForm* form = find_activation(names[i]);
    if (!form)
      return context.bad("attribute activations has '" + names[i] + "', which is no known activation");
    // Values are consumed in order, by the functions that have a use for them.
    Activation activation{form->kind, form->alpha, form->beta};
    if (form->has_alpha && alpha < alphas.size()) activation.alpha = alphas[alpha++];
    if (form->has_beta && beta < betas.size()) activation.beta = betas[beta++];
    Cell& cell = cells[i / each];
    (i % each == 0 ? cell.f : i % each == 1 ? cell.g : cell.h) = activation;
  }
  const float clip = context.attr().float_or("clip", 0);
  if (clip < 0) return context.bad("attribute clip is " + std::to_string(clip) + ", want more than 0");
  for (Cell* cell = cells; cell < cells + 2; ++cell) {
    cell->kind = kind;
    cell->hidden = shape.hidden;
    cell->clip = clip;
    cell->linear_before_reset = context.attr().int_or("linear_before_reset", 0) != 0;
    cell->input_forget = context.attr().int_or("input_forget", 0) != 0;
  }
  return {};
}

template <CellKind kKind>
Status prepare_recurrent(OpContext& context) {
  Shape shape;
  Cell cells[2];
  BELAY_TRY(read_shape(context, kKind, shape));
  BELAY_TRY(read_cells(context, kKind, shape, cells));
  const Dims state = shape.batch_first ? Dims{shape.batch, shape.directions, shape.hidden}
                                       : Dims{shape.directions, shape.batch, shape.hidden};
  BELAY_TRY(context.output(0, context.dtype(kX),
                           shape.batch_first
                               ? Dims{shape.batch, shape.steps, shape.directions, shape.hidden}
                               : Dims{shape.steps, shape.directions, shape.batch, shape.hidden}));
  BELAY_TRY(context.output(1, context.dtype(kX), state));
  BELAY_TRY(context.output(2, context.dtype(kX), state));
  context.cost_ns(double(shape.directions * shape.steps * shape.batch) * double(shape.width()) *
                  double(shape.input + shape.hidden) / 20);
  dispatch<kFloats>(context.dtype(kX), [&](auto tag) {
    using In = typename decltype(tag)::type;
    using T = compute_t<In>;
    RecurrentKernel<In> kernel;
    kernel.shape = shape;
    std::copy(cells, cells + 2, kernel.cells);
    kernel.has_bias = context.has(kB);
    kernel.has_lens = context.has(kLens);
    kernel.has_h = context.has(kInitialH);
    kernel.has_c = kKind == CellKind::kLstm && context.has(kInitialC);
    kernel.has_peepholes = kKind == CellKind::kLstm && context.has(kPeepholes);
    const std::string form = std::string(kKind == CellKind::kGru ? "GRU" : "recurrent") + " weights of " +
                             std::to_string(sizeof(T)) + " bytes";
    if (context.constant(kW)) {
      kernel.w = context.packed(kW, form, [&] {
        auto packed = std::make_shared<PackedBytes>(uint64_t(kernel.w_size() * shape.directions) * sizeof(T));
        for (int64_t d = 0; d < shape.directions; ++d)
          kernel.pack_w(static_cast<const In*>(context.constant(kW)), d,
                        static_cast<T*>(packed->data) + d * kernel.w_size());
        return packed;
      });
      context.input_unused(kW);
    }
    if (context.constant(kR)) {
      kernel.r = context.packed(kR, form, [&] {
        auto packed = std::make_shared<PackedBytes>(uint64_t(kernel.r_size() * shape.directions) * sizeof(T));
        for (int64_t d = 0; d < shape.directions; ++d)
          kernel.pack_r(static_cast<const In*>(context.constant(kR)), d,
                        static_cast<T*>(packed->data) + d * kernel.r_size());
        return packed;
      });
      context.input_unused(kR);
    }
    kernel.plan(context.threads());
    context.workspace(uint64_t(kernel.at.total) * sizeof(T));
    context.kernel(std::move(kernel), std::string("products:") + micro().name);
  });
  return {};
}

}  // namespace

void add_rnn(Registry& registry) {
  const auto def = [](std::string_view op, PrepareFn prepare, uint8_t inputs, uint8_t outputs) {
    OpDef out{.op = op,
              .prepare = prepare,
              .min_inputs = 3,
              .max_inputs = inputs,
              .max_outputs = outputs,
              .ns_per_byte = 2};
    for (size_t i = 0; i < 4; ++i) out.types[i] = kFloats;
    out.types[4] = kI32;
    out.types[5] = kFloats;
    return out;
  };
  registry.add(def("RNN", prepare_recurrent<CellKind::kRnn>, 6, 2));
  registry.add(def("GRU", prepare_recurrent<CellKind::kGru>, 6, 2));
  registry.add(def("LSTM", prepare_recurrent<CellKind::kLstm>, 8, 3));
}

}  // namespace belay::cpu
