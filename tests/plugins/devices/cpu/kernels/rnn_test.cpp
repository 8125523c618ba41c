#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One case of the three operators, and their equations written out for one sequence, one direction, one unit
// at a time.
struct RnnCase {
  std::string op;
  int64_t steps = 4, batch = 3, input = 5, hidden = 6;
  std::string direction = "forward";
  int64_t layout = 0;
  bool bias = true, lens = false, initial = false, peepholes = false;
  double clip = 0;
  bool before_reset = false, input_forget = false;
  int64_t gates() const { return op == "RNN" ? 1 : op == "GRU" ? 3 : 4; }
  int64_t directions() const { return direction == "bidirectional" ? 2 : 1; }
};

struct Data {
  Tensor x, w, r, b, lens, h, c, p;
};
Data make(const RnnCase& k, uint32_t dtype) {
  const auto random = [&](std::vector<int64_t> dims, uint32_t seed) {
    const int64_t count = Tensor{0, dims, {}}.count();
    return tensor_of(dtype, std::move(dims), numbers(count, -1, 1, seed));
  };
  Data d;
  const int64_t dirs = k.directions(), g = k.gates() * k.hidden;
  d.x = random(k.layout ? std::vector<int64_t>{k.batch, k.steps, k.input}
                        : std::vector<int64_t>{k.steps, k.batch, k.input},
               1);
  d.w = random({dirs, g, k.input}, 2), d.r = random({dirs, g, k.hidden}, 3), d.b = random({dirs, 2 * g}, 4);
  std::vector<int32_t> lens;
  for (int64_t i = 0; i < k.batch; ++i)
    lens.push_back(int32_t(i * k.steps / std::max<int64_t>(1, k.batch - 1)));
  d.lens = tensor<int32_t>({k.batch}, lens);
  const std::vector<int64_t> state = k.layout ? std::vector<int64_t>{k.batch, dirs, k.hidden}
                                              : std::vector<int64_t>{dirs, k.batch, k.hidden};
  d.h = random(state, 5), d.c = random(state, 6), d.p = random({dirs, 3 * k.hidden}, 7);
  return d;
}

struct Result {
  Numbers y, h, c;
};
Result expected(const RnnCase& k, const Data& d) {
  const int64_t H = k.hidden, I = k.input, G = k.gates() * H, D = k.directions();
  const Numbers x = values_of(d.x), w = values_of(d.w), r = values_of(d.r), b = values_of(d.b),
                lens = values_of(d.lens), h0 = values_of(d.h), c0 = values_of(d.c), p = values_of(d.p);
  Result out;
  out.y.assign(size_t(k.steps * D * k.batch * H), 0), out.h.assign(size_t(D * k.batch * H), 0), out.c = out.h;
  const auto clip = [&](double v) { return k.clip > 0 ? std::fmax(-k.clip, std::fmin(k.clip, v)) : v; };
  for (int64_t dir = 0; dir < D; ++dir)
    for (int64_t n = 0; n < k.batch; ++n) {
      const auto state = [&](int64_t i) {
        return size_t((k.layout ? n * D + dir : dir * k.batch + n) * H + i);
      };
      Numbers h(static_cast<size_t>(H), 0.0), c = h;
      if (k.initial)
        for (int64_t i = 0; i < H; ++i) h[size_t(i)] = h0[state(i)], c[size_t(i)] = c0[state(i)];
      const int64_t length = k.lens ? int64_t(lens[size_t(n)]) : k.steps;
      const bool backwards = dir == 1 || k.direction == "reverse";
      for (int64_t s = 0; s < length; ++s) {
        const int64_t t = backwards ? length - 1 - s : s;
        const auto of_input = [&](int64_t row) {
          double sum = k.bias ? b[size_t(dir * 2 * G + row)] : 0;
          for (int64_t i = 0; i < I; ++i)
            sum += x[size_t((k.layout ? n * k.steps + t : t * k.batch + n) * I + i)] *
                   w[size_t((dir * G + row) * I + i)];
          return sum;
        };
        const auto of_state = [&](int64_t row, const Numbers& from) {
          double sum = k.bias ? b[size_t(dir * 2 * G + G + row)] : 0;
          for (int64_t i = 0; i < H; ++i) sum += from[size_t(i)] * r[size_t((dir * G + row) * H + i)];
          return sum;
        };
        Numbers next = h, reset(static_cast<size_t>(H));
        if (k.op == "GRU")
          for (int64_t i = 0; i < H; ++i)
            reset[size_t(i)] = sigmoid(clip(of_input(H + i) + of_state(H + i, h)));
        Numbers masked = h;
        for (int64_t i = 0; i < H; ++i) masked[size_t(i)] *= reset[size_t(i)];
        for (int64_t i = 0; i < H; ++i) {
          if (k.op == "RNN") {
            next[size_t(i)] = std::tanh(clip(of_input(i) + of_state(i, h)));
          } else if (k.op == "GRU") {
            const double z = sigmoid(clip(of_input(i) + of_state(i, h)));
            const double from_state =
                k.before_reset ? reset[size_t(i)] * of_state(2 * H + i, h) : of_state(2 * H + i, masked);
            next[size_t(i)] = (1 - z) * std::tanh(clip(of_input(2 * H + i) + from_state)) + z * h[size_t(i)];
          } else {
            const auto peep = [&](int64_t gate, double cell) {
              return k.peepholes ? p[size_t(dir * 3 * H + gate * H + i)] * cell : 0;
            };
            const double old = c[size_t(i)];
            const double in = sigmoid(clip(of_input(i) + of_state(i, h) + peep(0, old)));
            const double forget =
                k.input_forget ? 1 - in
                               : sigmoid(clip(of_input(2 * H + i) + of_state(2 * H + i, h) + peep(2, old)));
            c[size_t(i)] = forget * old + in * std::tanh(clip(of_input(3 * H + i) + of_state(3 * H + i, h)));
            next[size_t(i)] = sigmoid(clip(of_input(H + i) + of_state(H + i, h) + peep(1, c[size_t(i)]))) *
                              std::tanh(c[size_t(i)]);
          }
        }
        h = next;
        for (int64_t i = 0; i < H; ++i)
          out.y[size_t((k.layout ? (n * k.steps + t) * D + dir : (t * D + dir) * k.batch + n) * H + i)] =
              h[size_t(i)];
      }
      for (int64_t i = 0; i < H; ++i) out.h[state(i)] = h[size_t(i)], out.c[state(i)] = c[size_t(i)];
    }
  return out;
}

void check(const RnnCase& k, uint32_t dtype, double tol) {
  const Data d = make(k, dtype);
  Node node(k.op, 14);
  node.in(d.x).in(d.w).in(d.r);
  k.bias ? node.in(d.b) : node.absent();
  k.lens ? node.in(d.lens) : node.absent();
  k.initial ? node.in(d.h) : node.absent();
  if (k.op == "LSTM") {
    k.initial ? node.in(d.c) : node.absent();
    k.peepholes ? node.in(d.p) : node.absent();
    if (k.input_forget) node.attr("input_forget", 1);
  }
  node.attr("direction", k.direction.c_str()).attr("layout", k.layout).attr("hidden_size", k.hidden);
  if (k.clip > 0) node.attr("clip", k.clip);
  if (k.before_reset) node.attr("linear_before_reset", 1);
  node.out(dtype).out(dtype);
  if (k.op == "LSTM") node.out(dtype);
  const Outcome outcome = node.run();
  const std::string label =
      k.op + " " + k.direction + " layout " + std::to_string(k.layout) + " " + std::string(dtype_name(dtype));
  ASSERT_TRUE(outcome.status.ok()) << label << ": " << outcome.status.message();
  const Result want = expected(k, d);
  EXPECT_TRUE(close(outcome.outputs[0], tensor_of(dtype, outcome.outputs[0].dims, want.y), tol, tol))
      << label;
  EXPECT_TRUE(close(outcome.outputs[1], tensor_of(dtype, d.h.dims, want.h), tol, tol)) << label;
  if (k.op == "LSTM") {
    EXPECT_TRUE(close(outcome.outputs[2], tensor_of(dtype, d.h.dims, want.c), tol, tol)) << label;
  }
}

TEST(RecurrentTest, EachOperatorMatchesItsEquations) {
  for (const char* op : {"RNN", "GRU", "LSTM"})
    for (const char* direction : {"forward", "reverse", "bidirectional"})
      for (const int64_t layout : {0, 1})
        for (const bool extras : {false, true}) {
          RnnCase k;
          k.op = op, k.direction = direction, k.layout = layout;
          k.bias = !extras || layout == 0, k.lens = extras, k.initial = extras, k.peepholes = extras;
          check(k, BELAY_DT_FLOAT32, 2e-6);
          check(k, BELAY_DT_FLOAT64, 1e-12);
          check(k, BELAY_DT_FLOAT16, 2e-3);
        }
}

TEST(RecurrentTest, OptionsChangeTheEquations) {
  RnnCase gru;
  gru.op = "GRU", gru.before_reset = true, gru.lens = true, gru.direction = "bidirectional";
  check(gru, BELAY_DT_FLOAT32, 2e-6);
  gru.clip = 0.3;
  check(gru, BELAY_DT_FLOAT32, 2e-6);
  RnnCase lstm;
  lstm.op = "LSTM", lstm.clip = 0.5, lstm.input_forget = true, lstm.peepholes = true;
  check(lstm, BELAY_DT_FLOAT32, 2e-6);
  RnnCase large;  // several panels of columns, one row
  large.op = "LSTM", large.batch = 1, large.hidden = 70, large.input = 130, large.steps = 2;
  check(large, BELAY_DT_FLOAT32, 5e-6);
  RnnCase none;
  none.op = "LSTM", none.steps = 0, none.initial = true;
  check(none, BELAY_DT_FLOAT32, 0);
}

TEST(RecurrentTest, ActivationsTakeTheirParametersInOrder) {
  // hidden 1, input 1: f = HardSigmoid(0.5, 0.25), g = ScaledTanh(2, 3), h = Affine(4, 5).
  Node node("LSTM", 14);
  node.in(floats({1, 1, 1}, {0.3f})).in(floats({1, 4, 1}, {1, 2, 3, 4})).in(floats({1, 4, 1}, {0, 0, 0, 0}));
  node.attr("activations", std::vector<std::string>{"HardSigmoid", "ScaledTanh", "Affine"});
  node.attr("activation_alpha", std::vector<float>{0.5f, 2, 4})
      .attr("activation_beta", std::vector<float>{0.25f, 3, 5});
  node.out(BELAY_DT_FLOAT32).out(BELAY_DT_FLOAT32).out(BELAY_DT_FLOAT32);
  const Outcome outcome = node.run();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  const double in = 0.5 * 0.3 + 0.25, output = 0.5 * 0.6 + 0.25, cell = in * 2 * std::tanh(3 * 1.2);
  EXPECT_TRUE(close(outcome.outputs[2], floats({1, 1, 1}, {float(cell)}), 1e-6));
  EXPECT_TRUE(close(outcome.outputs[1], floats({1, 1, 1}, {float(output * (4 * cell + 5))}), 1e-6));
}

TEST(RecurrentTest, FailuresNameTheOperandOrAttribute) {
  const Tensor x = floats({2, 1, 3}, std::vector<float>(6)), w = floats({1, 4, 3}, std::vector<float>(12)),
               r = floats({1, 4, 4}, std::vector<float>(16));
  EXPECT_THAT(failure(Node("RNN", 14).in(x).in(w).in(r).attr("direction", "sideways")),
              HasSubstr("direction is 'sideways'"));
  EXPECT_THAT(failure(Node("RNN", 14).in(x).in(w).in(r).attr("hidden_size", 5)),
              HasSubstr("hidden_size is 5"));
  EXPECT_THAT(failure(Node("LSTM", 14).in(x).in(w).in(r)),
              HasSubstr("W has the shape [1,4,3], want [1,16,3]"));
  EXPECT_THAT(
      failure(Node("RNN", 14).in(x).in(w).in(r).attr("activations", std::vector<std::string>{"Swish"})),
      HasSubstr("'Swish'"));
}

}  // namespace
}  // namespace belay::cpu::testing
