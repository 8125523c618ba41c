// recurrent.cpp: LSTM and GRU, with the equations of the ONNX definition written out.
#include "op.h"

#include <algorithm>

namespace reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double activate(const std::string& name, double x) {
  if (name == "Sigmoid") return sigmoid(x);
  if (name == "Tanh") return std::tanh(x);
  if (name == "Relu") return std::max(0.0, x);
  throw std::runtime_error("activation '" + name + "' is not served here");
}

// Shared by both: sizes, directions, order of steps.
struct Layout {
  int64_t steps, batch, input, hidden, directions;
  bool reverse;
  explicit Layout(const Call& call, int64_t gates) {
    const Dims& x = call.in[0].dims;
    steps = x[0];
    batch = x[1];
    input = x[2];
    directions = call.in[1].dims[0];
    hidden = call.in[1].dims[1] / gates;
    reverse = call.node.string_or("direction", "forward") == "reverse";
  }
  int64_t length(const Call& call, int64_t b) const { return call.has(4) ? call.in[4].integer(b) : steps; }
  int64_t time(int64_t direction, int64_t step, int64_t length) const {
    return (direction == 1 || reverse) ? length - 1 - step : step;
  }
  int64_t state(int64_t direction, int64_t b, int64_t j) const {
    return (direction * batch + b) * hidden + j;
  }
};

// W x + R h + both biases of one gate.
double gate(const Call& call, const Layout& at, int64_t gates, int64_t d, int64_t g, int64_t j, int64_t t,
            int64_t b, const std::vector<double>& h, bool recurrent = true, bool input = true) {
  const int64_t row = d * gates * at.hidden + g * at.hidden + j;
  double sum = 0;
  for (int64_t k = 0; input && k < at.input; ++k)
    sum += call.in[1].real(row * at.input + k) * call.in[0].real((t * at.batch + b) * at.input + k);
  for (int64_t k = 0; recurrent && k < at.hidden; ++k)
    sum += call.in[2].real(row * at.hidden + k) * h[size_t(k)];
  if (call.has(3)) {
    const int64_t base = d * 2 * gates * at.hidden + g * at.hidden + j;
    if (input) sum += call.in[3].real(base);
    if (recurrent) sum += call.in[3].real(base + gates * at.hidden);
  }
  return sum;
}

void lstm(Call& call) {
  const Layout at(call, 4);
  std::vector<std::string> names;
  for (int64_t d = 0; d < at.directions; ++d) names.insert(names.end(), {"Sigmoid", "Tanh", "Tanh"});
  if (const Attribute* given = call.node.find("activations")) names = given->strings;
  for (int64_t i = 0; call.wants(0) && i < call.out[0].count(); ++i) call.out[0].put_real(i, 0);
  for (int64_t d = 0; d < at.directions; ++d)
    for (int64_t b = 0; b < at.batch; ++b) {
      std::vector<double> h(static_cast<size_t>(at.hidden), 0), c = h;
      for (int64_t j = 0; j < at.hidden; ++j) {
        if (call.has(5)) h[size_t(j)] = call.in[5].real(at.state(d, b, j));
        if (call.has(6)) c[size_t(j)] = call.in[6].real(at.state(d, b, j));
      }
      auto peephole = [&](int64_t which, int64_t j) {
        return call.has(7) ? call.in[7].real((d * 3 + which) * at.hidden + j) : 0;
      };
      const std::string* f = &names[size_t(d * 3)];
      for (int64_t step = 0; step < at.length(call, b); ++step) {
        const int64_t t = at.time(d, step, at.length(call, b));
        std::vector<double> next_h(h.size()), next_c(c.size());
        for (int64_t j = 0; j < at.hidden; ++j) {
          const double old = c[size_t(j)];
          const double input = activate(f[0], gate(call, at, 4, d, 0, j, t, b, h) + peephole(0, j) * old);
          const double forget =
              call.node.int_or("input_forget", 0)
                  ? 1 - input
                  : activate(f[0], gate(call, at, 4, d, 2, j, t, b, h) + peephole(2, j) * old);
          const double cell = activate(f[1], gate(call, at, 4, d, 3, j, t, b, h));
          next_c[size_t(j)] = forget * old + input * cell;
          const double output =
              activate(f[0], gate(call, at, 4, d, 1, j, t, b, h) + peephole(1, j) * next_c[size_t(j)]);
          next_h[size_t(j)] = output * activate(f[2], next_c[size_t(j)]);
          if (call.wants(0))
            call.out[0].put_real(((t * at.directions + d) * at.batch + b) * at.hidden + j, next_h[size_t(j)]);
        }
        h = next_h;
        c = next_c;
      }
      for (int64_t j = 0; j < at.hidden; ++j) {
        if (call.wants(1)) call.out[1].put_real(at.state(d, b, j), h[size_t(j)]);
        if (call.wants(2)) call.out[2].put_real(at.state(d, b, j), c[size_t(j)]);
      }
    }
}

void gru(Call& call) {
  const Layout at(call, 3);
  const bool before_reset = call.node.int_or("linear_before_reset", 0);
  std::vector<std::string> names;
  for (int64_t d = 0; d < at.directions; ++d) names.insert(names.end(), {"Sigmoid", "Tanh"});
  if (const Attribute* given = call.node.find("activations")) names = given->strings;
  for (int64_t i = 0; call.wants(0) && i < call.out[0].count(); ++i) call.out[0].put_real(i, 0);
  for (int64_t d = 0; d < at.directions; ++d)
    for (int64_t b = 0; b < at.batch; ++b) {
      std::vector<double> h(static_cast<size_t>(at.hidden), 0);
      for (int64_t j = 0; call.has(5) && j < at.hidden; ++j)
        h[size_t(j)] = call.in[5].real(at.state(d, b, j));
      const std::string* f = &names[size_t(d * 2)];
      for (int64_t step = 0; step < at.length(call, b); ++step) {
        const int64_t t = at.time(d, step, at.length(call, b));
        std::vector<double> update(h.size()), reset(h.size()), scaled(h.size()), next(h.size());
        for (int64_t j = 0; j < at.hidden; ++j) {
          update[size_t(j)] = activate(f[0], gate(call, at, 3, d, 0, j, t, b, h));
          reset[size_t(j)] = activate(f[0], gate(call, at, 3, d, 1, j, t, b, h));
          scaled[size_t(j)] = reset[size_t(j)] * h[size_t(j)];
        }
        for (int64_t j = 0; j < at.hidden; ++j) {
          const double candidate = activate(
              f[1], before_reset ? gate(call, at, 3, d, 2, j, t, b, h, false) +
                                       reset[size_t(j)] * gate(call, at, 3, d, 2, j, t, b, h, true, false)
                                 : gate(call, at, 3, d, 2, j, t, b, scaled));
          next[size_t(j)] = (1 - update[size_t(j)]) * candidate + update[size_t(j)] * h[size_t(j)];
          if (call.wants(0))
            call.out[0].put_real(((t * at.directions + d) * at.batch + b) * at.hidden + j, next[size_t(j)]);
        }
        h = next;
      }
      for (int64_t j = 0; call.wants(1) && j < at.hidden; ++j)
        call.out[1].put_real(at.state(d, b, j), h[size_t(j)]);
    }
}

}  // namespace

void add_recurrent(Table& table) { table.insert({{"LSTM", {lstm}}, {"GRU", {gru}}}); }

}  // namespace reference
