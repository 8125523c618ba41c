// The attention operators of com.microsoft against attention written out in double, head by head.
#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;
using List = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr uint32_t kTypes[] = {BELAY_DT_FLOAT32, BELAY_DT_FLOAT16, BELAY_DT_BFLOAT16};

double tolerance(uint32_t dtype) {
  return dtype == BELAY_DT_FLOAT32 ? 2e-5 : dtype == BELAY_DT_FLOAT16 ? 4e-3 : 3e-2;
}
Tensor int32s(std::vector<int64_t> dims, const std::vector<int32_t>& values) { return tensor<int32_t>(std::move(dims), values); }

// Attention of one query: `score(key)` is -infinity where the key is out of sight; a sink takes a share of its own.
struct Weights {
  List scores, shares;
};
template <class Score>
Weights weigh(int64_t keys, const Score& score, const double* sink = nullptr) {
  Weights out;
  double most = sink ? *sink : -kInfinity, sum = 0;
  for (int64_t j = 0; j < keys; ++j) out.scores.push_back(score(j)), most = std::max(most, out.scores.back());
  for (const double s : out.scores) out.shares.push_back(s == -kInfinity ? 0 : std::exp(s - most)), sum += out.shares.back();
  if (sink) sum += std::exp(*sink - most);
  for (double& share : out.shares) share = sum > 0 ? share / sum : 0;
  return out;
}
double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// ---- GroupQueryAttention

struct Group {
  uint32_t dtype = BELAY_DT_FLOAT32;
  int64_t heads = 4, kv_heads = 2, size = 8, rows = 1, room = 0;  // room: rows of the past caches
  std::vector<int64_t> lengths{1};                                // of each batch, in all
  bool packed = false, rotary = false, interleaved = false, norms = false, sinks = false, bias = false, positions = false;
  int64_t rotated = 8, window = -1, qk = 0;
  double softcap = 0;
  bool causal = true, sliding = false;
};

struct GroupResult {
  List y, key, value, qk;
  int64_t cache_rows = 0, most = 0;
};

struct GroupInputs {
  Tensor q, k, v, past_key, past_value, cos, sin, bias, sinks, q_norm, k_norm;
  std::vector<int64_t> places;  // given positions
};
GroupInputs inputs_of(const Group& g) {
  const int64_t b = int64_t(g.lengths.size()), most = *std::max_element(g.lengths.begin(), g.lengths.end());
  const auto make = [&](std::vector<int64_t> dims, uint32_t seed) {
    return tensor_of(g.dtype, dims, numbers(count_of(dims), -1, 1, seed));
  };
  GroupInputs in;
  in.q = make({b, g.rows, g.heads * g.size}, 1);
  in.k = make({b, g.rows, g.kv_heads * g.size}, 2), in.v = make({b, g.rows, g.kv_heads * g.size}, 3);
  in.past_key = make({b, g.kv_heads, g.room, g.size}, 4), in.past_value = make({b, g.kv_heads, g.room, g.size}, 5);
  in.cos = make({64, g.rotated / 2}, 6), in.sin = make({64, g.rotated / 2}, 7);
  in.bias = make({1, g.heads, g.rows, most}, 8), in.sinks = make({g.heads}, 9);
  in.q_norm = make({g.size}, 10), in.k_norm = make({g.size}, 11);
  for (int64_t i = 0; i < b * g.rows; ++i) in.places.push_back(i * 7 % 50);
  return in;
}

GroupResult reference(const Group& g, const GroupInputs& in) {
  const int64_t b = int64_t(g.lengths.size()), most = *std::max_element(g.lengths.begin(), g.lengths.end()), size = g.size;
  const bool first = most == g.rows;
  const List q = values_of(in.q), k = values_of(in.k), v = values_of(in.v), cos = values_of(in.cos), sin = values_of(in.sin);
  const List old_k = values_of(in.past_key), old_v = values_of(in.past_value), bias = values_of(in.bias), sinks = values_of(in.sinks);
  GroupResult out;
  out.most = most;
  out.cache_rows = g.sliding ? g.room : std::max(most, g.room);
  out.y.assign(size_t(b * g.rows * g.heads * size), 0);
  out.key.assign(size_t(b * g.kv_heads * out.cache_rows * size), 0), out.value = out.key;
  out.qk.assign(size_t(b * g.heads * g.rows * most), 0);
  const auto kept_of = [&](int64_t length) {  // rows of a window's cache after so many tokens
    if (!g.sliding || length <= g.room) return length;
    const int64_t at_once = g.room - g.window + 1;
    return length - at_once * ((length - g.room + at_once - 1) / at_once);
  };
  const auto turn = [&](List x, const Tensor& norm, int64_t place) {
    if (g.norms) {
      const double root = std::sqrt(dot(x.data(), x.data(), size) / double(size) + double(1e-6f));
      for (int64_t i = 0; i < size; ++i) x[size_t(i)] = x[size_t(i)] / root * values_of(norm)[size_t(i)];
    }
    for (int64_t i = 0; g.rotary && i < g.rotated / 2; ++i) {
      const size_t a = size_t(g.interleaved ? 2 * i : i), c = size_t(g.interleaved ? 2 * i + 1 : i + g.rotated / 2);
      const double s = sin[size_t(place * (g.rotated / 2) + i)], t = cos[size_t(place * (g.rotated / 2) + i)], u = x[a], w = x[c];
      x[a] = u * t - w * s, x[c] = w * t + u * s;
    }
    return x;
  };
  for (int64_t n = 0; n < b; ++n) {
    const int64_t all = g.lengths[size_t(n)], before = first ? 0 : all - g.rows, resident = kept_of(before), base = before - resident;
    const auto place = [&](int64_t r) {
      if (before + r >= all) return int64_t{0};
      return !g.positions ? before + r : first ? in.places[0] + r : in.places[size_t(n * g.rows + r)];
    };
    for (int64_t h = 0; h < g.kv_heads; ++h) {
      // Keys and values from place `base` on.
      std::vector<List> keys, values;
      const int64_t cache = (n * g.kv_heads + h);
      for (int64_t i = 0; i < resident; ++i) {
        const auto at = (cache * g.room + i) * size;
        keys.emplace_back(old_k.begin() + at, old_k.begin() + at + size);
        values.emplace_back(old_v.begin() + at, old_v.begin() + at + size);
      }
      for (int64_t r = 0; r < g.rows && before + r < all; ++r) {
        const auto at = (n * g.rows + r) * g.kv_heads * size + h * size;
        keys.push_back(turn(List(k.begin() + at, k.begin() + at + size), in.k_norm, place(r)));
        values.emplace_back(v.begin() + at, v.begin() + at + size);
      }
      // What goes out: the rows of a window, or all and what the past holds behind them.
      const int64_t kept = kept_of(all), skipped = base + int64_t(keys.size()) - kept - base;
      for (int64_t i = 0; i < out.cache_rows; ++i)
        for (int64_t d = 0; d < size; ++d) {
          const size_t to = size_t((cache * out.cache_rows + i) * size + d);
          const bool made = i < kept, old = !g.sliding && i < g.room;
          out.key[to] = made ? keys[size_t(skipped + i)][size_t(d)] : old ? old_k[size_t((cache * g.room + i) * size + d)] : 0;
          out.value[to] = made ? values[size_t(skipped + i)][size_t(d)] : old ? old_v[size_t((cache * g.room + i) * size + d)] : 0;
        }
      const int64_t group = g.heads / g.kv_heads;
      for (int64_t head = h * group; head < (h + 1) * group; ++head)
        for (int64_t r = 0; r < g.rows; ++r) {
          const auto at = (n * g.rows + r) * g.heads * size + head * size;
          const List x = turn(List(q.begin() + at, q.begin() + at + size), in.q_norm, place(r));
          const Weights w = weigh(
              int64_t(keys.size()),
              [&](int64_t j) {
                const int64_t key = base + j, self = before + r;
                if ((g.causal && key > self) || (g.window >= 0 && key <= self - g.window)) return -kInfinity;
                double s = dot(x.data(), keys[size_t(j)].data(), size) / std::sqrt(double(size));
                if (g.softcap != 0) s = g.softcap * std::tanh(s / g.softcap);
                return g.bias ? s + bias[size_t((head * g.rows + r) * most + key)] : s;
              },
              g.sinks ? &sinks[size_t(head)] : nullptr);
          for (size_t j = 0; j < keys.size(); ++j) {
            for (int64_t d = 0; d < size; ++d) out.y[size_t(at + d)] += w.shares[j] * values[j][size_t(d)];
            const double told = g.qk == 1 ? w.scores[j] : w.shares[j];
            if (g.qk) out.qk[size_t(((n * g.heads + head) * g.rows + r) * most) + j] = told == -kInfinity ? 0 : told;
          }
        }
    }
  }
  return out;
}

Node node_of(const Group& g, const GroupInputs& in) {
  const int64_t b = int64_t(g.lengths.size()), most = *std::max_element(g.lengths.begin(), g.lengths.end());
  Node node("GroupQueryAttention", 1, "com.microsoft");
  node.attr("num_heads", g.heads).attr("kv_num_heads", g.kv_heads).attr("softcap", g.softcap).attr("causal", int(g.causal));
  if (g.window >= 0) node.attr("local_window_size", g.window);
  if (g.sliding) node.attr("sliding_window_cache", 1);
  if (g.rotary) node.attr("do_rotary", 1).attr("rotary_interleaved", int(g.interleaved));
  if (g.qk) node.attr("qk_output", g.qk);
  if (g.packed) {
    const int64_t rows = b * g.rows, q = g.heads * g.size, kv = g.kv_heads * g.size;
    List joined;
    const List parts[] = {values_of(in.q), values_of(in.k), values_of(in.v)};
    for (int64_t i = 0; i < rows; ++i)
      for (size_t p = 0; p < 3; ++p) {
        const int64_t width = p ? kv : q;
        joined.insert(joined.end(), parts[p].begin() + i * width, parts[p].begin() + (i + 1) * width);
      }
    node.in(tensor_of(g.dtype, {b, g.rows, q + 2 * kv}, joined)).absent().absent();
  } else {
    node.in(in.q).in(in.k).in(in.v);
  }
  if (g.room)
    node.in(in.past_key).in(in.past_value);
  else
    node.absent().absent();
  std::vector<int32_t> lengths;
  for (const int64_t length : g.lengths) lengths.push_back(int32_t(length - 1));
  node.in(int32s({b}, lengths)).constant(int32s({}, {int32_t(most)}));
  if (g.rotary) node.in(in.cos).in(in.sin);
  else node.absent().absent();
  if (g.positions) node.in(ints({b, g.rows}, in.places));
  else node.absent();
  if (g.bias) node.in(in.bias);
  else node.absent();
  if (g.sinks) node.in(in.sinks);
  else node.absent();
  if (g.norms) node.absent().absent().in(in.q_norm).in(in.k_norm);
  node.out(g.dtype).out(g.dtype).out(g.dtype);
  if (g.qk) node.out(g.dtype);
  return node;
}

void check(const Group& g) {
  SCOPED_TRACE(std::string(dtype_name(g.dtype)) + ", rows " + std::to_string(g.rows) + ", room " + std::to_string(g.room) + ", lengths " +
               text_of(g.lengths));
  const GroupInputs in = inputs_of(g);
  const Outcome got = node_of(g, in).run();
  ASSERT_TRUE(got.status.ok()) << got.status.message();
  const GroupResult want = reference(g, in);
  const int64_t b = int64_t(g.lengths.size());
  const double most = tolerance(g.dtype);
  EXPECT_TRUE(close(got.outputs[0], tensor_of(g.dtype, {b, g.rows, g.heads * g.size}, want.y), most, most));
  const std::vector<int64_t> cache{b, g.kv_heads, want.cache_rows, g.size};
  EXPECT_TRUE(close(got.outputs[1], tensor_of(g.dtype, cache, want.key), most, most));
  EXPECT_TRUE(close(got.outputs[2], tensor_of(g.dtype, cache, want.value), most, most));
  if (g.qk) {
    EXPECT_TRUE(close(got.outputs[3], tensor_of(g.dtype, {b, g.heads, g.rows, want.most}, want.qk), most * 4, most * 4));
  }
}

TEST(GroupQueryAttentionTest, PromptsAndStepsInEachTypeAndLayout) {
  for (const uint32_t dtype : kTypes)
    for (const bool packed : {false, true}) {
      check({.dtype = dtype, .rows = 5, .lengths = {5, 5}, .packed = packed});
      check({.dtype = dtype, .rows = 5, .lengths = {5, 3}, .packed = packed, .rotary = true});
      check({.dtype = dtype, .room = 6, .lengths = {7, 7}, .packed = packed, .rotary = true});
      check({.dtype = dtype, .rows = 3, .room = 6, .lengths = {9}, .packed = packed, .rotary = true, .interleaved = true});
    }
}

// Past and present of one length may be one buffer: Node runs that way too, and all ways must agree.
TEST(GroupQueryAttentionTest, CachesWithRoomKeepWhatLiesBeyond) {
  for (const uint32_t dtype : kTypes) {
    check({.dtype = dtype, .room = 10, .lengths = {7, 4}, .rotary = true});
    check({.dtype = dtype, .room = 10, .lengths = {10}});
    check({.dtype = dtype, .rows = 4, .room = 10, .lengths = {4, 4}, .packed = true, .rotary = true});
    check({.dtype = dtype, .rows = 4, .room = 9, .lengths = {9}});
  }
}

TEST(GroupQueryAttentionTest, EdgesOfShapes) {
  check({.heads = 1, .kv_heads = 1, .size = 1, .lengths = {1}});
  check({.heads = 3, .kv_heads = 1, .size = 7, .rows = 2, .lengths = {2}});
  check({.heads = 6, .kv_heads = 6, .size = 5, .room = 3, .lengths = {4}});
  check({.size = 7, .rows = 3, .lengths = {3}, .rotary = true, .rotated = 4});
  check({.size = 7, .rows = 3, .lengths = {3}, .rotary = true, .interleaved = true, .rotated = 6});
  check({.heads = 2, .kv_heads = 1, .size = 40, .rows = 70, .lengths = {70, 41}});
  check({.heads = 8, .kv_heads = 2, .size = 16, .room = 299, .lengths = {300}});
}

TEST(GroupQueryAttentionTest, OptionsInPromptsAndSteps) {
  for (const uint32_t dtype : kTypes)
    for (const bool step : {false, true}) {
      const int64_t rows = step ? 2 : 6, room = step ? 5 : 0;
      const std::vector<int64_t> lengths{step ? 7 : 6};
      check({.dtype = dtype, .rows = rows, .room = room, .lengths = lengths, .window = 3});
      check({.dtype = dtype, .rows = rows, .room = room, .lengths = lengths, .window = 1});
      check({.dtype = dtype, .rows = rows, .room = room, .lengths = lengths, .softcap = 0.5});
      check({.dtype = dtype, .rows = rows, .room = room, .lengths = lengths, .sinks = true});
      check({.dtype = dtype, .rows = rows, .room = room, .lengths = lengths, .sinks = true, .bias = true});
      check({.dtype = dtype, .rows = rows, .room = room, .lengths = lengths, .causal = false});
      check({.dtype = dtype, .rows = rows, .room = room, .lengths = lengths, .rotary = true, .positions = true});
      check({.dtype = dtype, .rows = rows, .room = room, .lengths = lengths, .rotary = true, .norms = true});
      check({.dtype = dtype, .rows = rows, .room = room, .lengths = lengths, .norms = true, .softcap = 2});
    }
}

TEST(GroupQueryAttentionTest, TellsScoresBeforeAndAfterSoftmax) {
  for (const uint32_t dtype : kTypes)
    for (const int64_t qk : {1, 2}) {
      check({.dtype = dtype, .rows = 4, .lengths = {4, 3}, .qk = qk});
      check({.dtype = dtype, .rows = 1, .room = 12, .lengths = {6, 9}, .bias = true, .qk = qk, .softcap = 1.5});
    }
}

// Caches of the size of a window: all lengths from an empty cache on, steps of one and of many tokens.
TEST(GroupQueryAttentionTest, WindowsOfCachesAreEvicted) {
  for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_FLOAT16})
    for (const int64_t room : {3, 4, 7})
      for (const int64_t rows : {1, 2, 9})
        for (int64_t length = rows; length < rows + 16; ++length)
          check({.dtype = dtype, .rows = rows, .room = room, .lengths = {length}, .rotary = true, .bias = length % 2 == 0,
                 .window = 3, .sliding = true});
  check({.rows = 1, .room = 5, .lengths = {14, 9, 2}, .window = 4, .sliding = true});
}

TEST(GroupQueryAttentionTest, FailuresNameTheOperandAndTheValue) {
  const auto message = [](const Group& g, const std::function<void(Node&)>& change = {}) {
    Node node = node_of(g, inputs_of(g));
    if (change) change(node);
    return failure(node);
  };
  EXPECT_THAT(message({.heads = 3}), HasSubstr("num_heads is 3, want a multiple of kv_num_heads, 2"));
  EXPECT_THAT(message({.window = 2, .causal = false}), HasSubstr("local_window_size is 2, which wants attribute causal to be 1"));
  EXPECT_THAT(message({.room = 2, .lengths = {3}, .window = 3, .sliding = true}), HasSubstr("they have 2"));
  EXPECT_THAT(message({.room = 3, .lengths = {9}}), HasSubstr("seqlens_k of batch 0 is 8"));
  EXPECT_THAT(message({}, [](Node& n) { n.attr("k_quant_type", "PER_TENSOR"); }), HasSubstr("k_quant_type is 'PER_TENSOR'"));
  EXPECT_THAT(message({}, [](Node& n) { n.attr("qk_output", 3); }), HasSubstr("qk_output is 3, want 0 to 2"));
  EXPECT_THAT(message({.rows = 60, .room = 8, .lengths = {66}, .rotary = true}), HasSubstr("position 64 of batch 0"));
}

// ---- MultiHeadAttention

struct Multi {
  uint32_t dtype = BELAY_DT_FLOAT32;
  int64_t batch = 2, heads = 2, rows = 3, fresh = 3, size = 4, v_size = 5, past = 0, buffer = 0;  // buffer: rows of a shared one
  std::vector<int64_t> mask_dims = {}, bias_dims = {};
  std::vector<int32_t> mask = {};
  float hidden = -10000;
  bool projection_bias = false, unidirectional = false, qk = false;
};

void check(const Multi& m) {
  SCOPED_TRACE(std::string(dtype_name(m.dtype)) + ", mask " + text_of(m.mask_dims) + ", bias " + text_of(m.bias_dims) + ", past " +
               std::to_string(m.past));
  const auto make = [&](std::vector<int64_t> dims, uint32_t seed) {
    return tensor_of(m.dtype, dims, numbers(count_of(dims), -1, 1, seed));
  };
  const int64_t old = m.buffer ? m.buffer : m.past, keys = m.past + m.fresh, rows_out = m.buffer ? m.buffer : keys;
  const Tensor q = make({m.batch, m.rows, m.heads * m.size}, 1), k = make({m.batch, m.fresh, m.heads * m.size}, 2);
  const Tensor v = make({m.batch, m.fresh, m.heads * m.v_size}, 3);
  const Tensor add = make({m.heads * (2 * m.size + m.v_size)}, 4);
  const Tensor past_k = make({m.batch, m.heads, old, m.size}, 5), past_v = make({m.batch, m.heads, old, m.v_size}, 6);
  const Tensor more = make(m.bias_dims, 7);
  Node node("MultiHeadAttention", 1, "com.microsoft");
  node.attr("num_heads", m.heads).attr("unidirectional", int(m.unidirectional)).attr("mask_filter_value", m.hidden);
  node.in(q).in(k).in(v);
  if (m.projection_bias) node.in(add);
  else node.absent();
  if (!m.mask_dims.empty()) node.in(int32s(m.mask_dims, m.mask));
  else node.absent();
  if (!m.bias_dims.empty()) node.in(more);
  else node.absent();
  if (old) node.in(past_k).in(past_v);
  if (m.buffer) node.in(int32s({1}, {int32_t(m.past)}));
  node.out(m.dtype).out(m.dtype).out(m.dtype);
  if (m.qk) node.out(m.dtype);
  const Outcome got = node.run();
  ASSERT_TRUE(got.status.ok()) << got.status.message();

  const List x = values_of(q), xk = values_of(k), xv = values_of(v), b = values_of(add), ok = values_of(past_k), ov = values_of(past_v);
  const List extra = values_of(more);
  const auto hides = [&](int64_t n, int64_t r, int64_t j) {
    const auto at = [&](int64_t i) { return m.mask[size_t(i)]; };
    const auto& d = m.mask_dims;
    if (d.empty()) return false;
    if (d == std::vector<int64_t>{m.batch} || d == std::vector<int64_t>{3 * m.batch + 2}) return j >= at(n);
    if (d.size() == 3) return at((n * m.rows + r) * d[2] + j) <= 0;
    if (d[1] == m.fresh && m.past) return j >= m.past && at(n * m.fresh + j - m.past) <= 0;
    return at(n * d[1] + j) <= 0;
  };
  const auto extra_at = [&](int64_t n, int64_t h, int64_t r, int64_t j) {
    if (m.bias_dims.empty()) return 0.0;
    int64_t at = 0;
    const int64_t index[] = {n, h, r, j};
    for (size_t d = 0; d < 4; ++d) at = at * m.bias_dims[d] + (m.bias_dims[d] == 1 ? 0 : index[d]);
    return extra[size_t(at)];
  };
  List y(size_t(m.batch * m.rows * m.heads * m.v_size)), key(size_t(m.batch * m.heads * rows_out * m.size)), value(size_t(m.batch * m.heads * rows_out * m.v_size));
  List scores(size_t(m.batch * m.heads * m.rows * keys));
  for (int64_t n = 0; n < m.batch; ++n)
    for (int64_t h = 0; h < m.heads; ++h) {
      const int64_t cache = n * m.heads + h;
      const auto row = [&](const List& fresh, const List& past, int64_t size, int64_t first_bias, int64_t j) {
        List out;
        for (int64_t d = 0; d < size; ++d)
          out.push_back(j < m.past || j >= keys ? past[size_t((cache * old + j) * size + d)]
                                                : fresh[size_t(((n * m.fresh + j - m.past) * m.heads + h) * size + d)] +
                                                      (m.projection_bias ? b[size_t(first_bias + h * size + d)] : 0));
        return out;
      };
      for (int64_t j = 0; j < rows_out; ++j) {
        const List kj = row(xk, ok, m.size, m.heads * m.size, j), vj = row(xv, ov, m.v_size, 2 * m.heads * m.size, j);
        std::copy(kj.begin(), kj.end(), key.begin() + (cache * rows_out + j) * m.size);
        std::copy(vj.begin(), vj.end(), value.begin() + (cache * rows_out + j) * m.v_size);
      }
      for (int64_t r = 0; r < m.rows; ++r) {
        List qr;
        for (int64_t d = 0; d < m.size; ++d)
          qr.push_back(x[size_t(((n * m.rows + r) * m.heads + h) * m.size + d)] + (m.projection_bias ? b[size_t(h * m.size + d)] : 0));
        const Weights w = weigh(keys, [&](int64_t j) {
          if (m.unidirectional && j > m.past + r) return -kInfinity;
          return dot(qr.data(), &key[size_t((cache * rows_out + j) * m.size)], m.size) / std::sqrt(double(m.size)) +
                 (hides(n, r, j) ? double(m.hidden) : 0) + extra_at(n, h, r, j);
        });
        for (int64_t j = 0; j < keys; ++j) {
          for (int64_t d = 0; d < m.v_size; ++d)
            y[size_t(((n * m.rows + r) * m.heads + h) * m.v_size + d)] += w.shares[size_t(j)] * value[size_t((cache * rows_out + j) * m.v_size + d)];
          scores[size_t((cache * m.rows + r) * keys + j)] = w.scores[size_t(j)];
        }
      }
    }
  const double most = tolerance(m.dtype);
  EXPECT_TRUE(close(got.outputs[0], tensor_of(m.dtype, {m.batch, m.rows, m.heads * m.v_size}, y), most, most));
  EXPECT_TRUE(close(got.outputs[1], tensor_of(m.dtype, {m.batch, m.heads, rows_out, m.size}, key), most, most));
  EXPECT_TRUE(close(got.outputs[2], tensor_of(m.dtype, {m.batch, m.heads, rows_out, m.v_size}, value), most, most));
  if (m.qk) {
    EXPECT_TRUE(close(got.outputs[3], tensor_of(m.dtype, {m.batch, m.heads, m.rows, keys}, scores), most * 2, most * 2));
  }
}

TEST(MultiHeadAttentionTest, EachMaskHidesItsKeys) {
  for (const uint32_t dtype : kTypes)
    for (const float hidden : {-10000.0f, -3.0f}) {
      check({.dtype = dtype, .mask_dims = {2}, .mask = {3, 1}, .hidden = hidden});
      check({.dtype = dtype, .mask_dims = {8}, .mask = {2, 3, 0, 3, 6, 0, 2, 5}, .hidden = hidden});
      check({.dtype = dtype, .mask_dims = {2, 3}, .mask = {1, 0, 1, 0, 1, 1}, .hidden = hidden});
      check({.dtype = dtype, .past = 2, .mask_dims = {2, 5}, .mask = {1, 0, 1, 1, 0, 0, 1, 1, 1, 1}, .hidden = hidden});
      check({.dtype = dtype, .past = 2, .mask_dims = {2, 3}, .mask = {1, 0, 1, 0, 1, 1}, .hidden = hidden});
      check({.dtype = dtype, .mask_dims = {2, 3, 3}, .mask = {1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0, 1}, .hidden = hidden});
      check({.dtype = dtype, .mask_dims = {2, 3}, .mask = {1, 1, 1, 1, 1, 1}, .hidden = hidden});
    }
}

// Nothing to look at: a row of zeros, whatever the scores were.
TEST(MultiHeadAttentionTest, AQueryWithoutAKeyGivesZeros) {
  check({.mask_dims = {2, 3}, .mask = {0, 0, 0, 1, 0, 1}, .hidden = -std::numeric_limits<float>::infinity()});
  check({.mask_dims = {2}, .mask = {0, 2}, .hidden = -std::numeric_limits<float>::infinity(), .unidirectional = true});
  // With a number that can be added all keys are equally far away.
  check({.mask_dims = {2, 3}, .mask = {0, 0, 0, 1, 0, 1}, .hidden = -64});
}

TEST(MultiHeadAttentionTest, BiasesBroadcastOverEveryDim) {
  for (const uint32_t dtype : kTypes)
    for (const std::vector<int64_t>& dims :
         {std::vector<int64_t>{2, 2, 3, 5}, {1, 2, 3, 5}, {2, 1, 3, 5}, {1, 1, 3, 5}, {2, 2, 1, 5}, {1, 1, 1, 5}, {2, 1, 3, 1}, {1, 1, 1, 1}})
      check({.dtype = dtype, .past = 2, .bias_dims = dims, .projection_bias = true, .qk = true});
}

TEST(MultiHeadAttentionTest, StepsSeeWhatIsBeforeThem) {
  for (const uint32_t dtype : kTypes) {
    check({.dtype = dtype, .rows = 1, .fresh = 1, .past = 4, .unidirectional = true, .qk = true});
    check({.dtype = dtype, .rows = 3, .fresh = 3, .past = 4, .projection_bias = true, .unidirectional = true});
    check({.dtype = dtype, .rows = 1, .fresh = 4, .past = 0});
    check({.dtype = dtype, .batch = 1, .heads = 3, .rows = 2, .fresh = 2, .size = 3, .v_size = 1, .past = 1, .unidirectional = true});
  }
}

TEST(MultiHeadAttentionTest, ABufferIsFilledUpToWhatTheRunSays) {
  for (const uint32_t dtype : kTypes)
    for (const int64_t past : {0, 1, 5})
      check({.dtype = dtype, .rows = 2, .fresh = 2, .past = past, .buffer = 7, .unidirectional = true});
  check({.rows = 1, .fresh = 1, .past = 3, .buffer = 9, .mask_dims = {2, 4}, .mask = {1, 0, 1, 1, 0, 1, 1, 1}});
}

TEST(MultiHeadAttentionTest, RowsThatAreNotThereGiveNothing) {
  check({.rows = 0, .fresh = 2});
  check({.batch = 0});
  check({.rows = 2, .fresh = 0});
}

TEST(MultiHeadAttentionTest, NotANumberStaysInItsQuery) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Node node("MultiHeadAttention", 1, "com.microsoft");
  node.attr("num_heads", 1);
  node.in(floats({1, 2, 1}, {nan, 0})).in(floats({1, 2, 1}, {1, 2})).in(floats({1, 2, 1}, {3, 5}));
  EXPECT_TRUE(close(result(node), floats({1, 2, 1}, {nan, 4})));
}

TEST(MultiHeadAttentionTest, FailuresNameTheOperandAndTheValue) {
  const auto node = [] {
    Node out("MultiHeadAttention", 1, "com.microsoft");
    out.attr("num_heads", 2);
    return std::move(out.in(floats({1, 1, 4}, {1, 2, 3, 4})).in(floats({1, 1, 4}, {1, 2, 3, 4})).in(floats({1, 1, 4}, {1, 2, 3, 4})));
  };
  const Tensor cache = floats({1, 2, 3, 2}, std::vector<float>(12));
  EXPECT_THAT(failure(node().absent().in(int32s({1, 4}, {1, 1, 1, 1}))), HasSubstr("the mask has the shape [1,4]"));
  EXPECT_THAT(failure(node().absent().absent().absent().in(cache).in(cache).in(int32s({1}, {3}))),
              HasSubstr("past_sequence_length is 3 with 1 new rows, and the buffer has 3 rows"));
  EXPECT_THAT(failure(node().absent().absent().absent().in(cache).in(cache).in(int32s({1}, {1})).in(int32s({1, 1, 3}, {0, 0, 0}))),
              HasSubstr("cache_indirection is not supported"));
}

// ---- belay's QkvAttention: Attention of com.microsoft behind its projection

TEST(QkvAttentionTest, ASharedBufferTakesTheNewRows) {
  for (const uint32_t dtype : kTypes) {
    // One head of size 1: Q is 0, so that all keys count alike.
    const Tensor qkv = tensor_of(dtype, {1, 2, 3}, {0, 1, 10, 0, 2, 20});
    const Tensor past = tensor_of(dtype, {2, 1, 1, 5, 1}, {5, 6, 7, 8, 9, 30, 40, 50, 60, 70});
    Node node("QkvAttention", 1, "belay");
    node.attr("num_heads", 1).attr("unidirectional", 1).attr("past_present_share_buffer", 1);
    node.in(qkv).absent().in(past).absent().in(int32s({1}, {1})).out(dtype).out(dtype);
    const Outcome got = node.run();
    ASSERT_TRUE(got.status.ok()) << got.status.message();
    EXPECT_TRUE(close(got.outputs[0], tensor_of(dtype, {1, 2, 1}, {20, 20}), 1e-2));
    EXPECT_TRUE(close(got.outputs[1], tensor_of(dtype, {2, 1, 1, 5, 1}, {5, 1, 2, 8, 9, 30, 10, 20, 60, 70})));
  }
}

}  // namespace
}  // namespace belay::cpu::testing
