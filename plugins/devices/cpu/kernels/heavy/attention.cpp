#include "attention.hpp"

#include "../convert.hpp"

#include <cmath>
#include <variant>

namespace belay::cpu {
namespace {

// A matrix of any float type, with the function that packs it.
using AnyView = std::variant<MatrixView<float>, MatrixView<double>, MatrixView<Half>, MatrixView<BFloat16>>;

AnyView view_of(uint32_t dtype, const void* data, int64_t offset, int64_t row, int64_t col) {
  AnyView view;
  dispatch<kFloats>(dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    view = MatrixView<In>{static_cast<const In*>(data) + offset, row, col};
  });
  return view;
}
template <class T>
void set_a(Product<T>& p, const AnyView& view) {
  std::visit(
      [&]<class In>(const MatrixView<In>& at) {
        p.a = &at;
        p.pack_a = pack_rows<In, T>;
      },
      view);
}
template <class T>
void set_b(Product<T>& p, const AnyView& view) {
  std::visit(
      [&]<class In>(const MatrixView<In>& at) {
        p.b = &at;
        p.pack_b = pack_block<In, T>;
      },
      view);
}

template <class T>
void store_row(uint32_t dtype, const T* from, void* to, int64_t offset, int64_t n) {
  dispatch<kFloats>(dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    Out* y = static_cast<Out*>(to) + offset;
    if constexpr (kWidens<Out, T>) {
      narrow(dtype, from, y, n);
      return;
    }
    for (int64_t i = 0; i < n; ++i) y[i] = Compute<Out>::store(compute_t<Out>(from[i]));
  });
}

template <class T>
void multiply_row(T* x, int64_t n, T factor) {
  if constexpr (std::is_same_v<T, float>)
    simd().unary[size_t(Unary::kAffine)](x, x, n, factor, 0);
  else
    for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// Where a block of the result goes; the weights of its rows have yet to be divided by their sums.
template <class T>
struct Store {
  uint32_t dtype;
  void* y;
  int64_t offset, step;
  bool in_place;  // the block lies there already
  const T* factors;
};
template <class T>
void store_block(const void* context, T* block, int64_t step, int64_t m0, int64_t mc, int64_t n0, int64_t nc) {
  const Store<T>& to = *static_cast<const Store<T>*>(context);
  for (int64_t i = 0; i < mc; ++i) {
    multiply_row(block + i * step, nc, to.factors[m0 + i]);
    if (!to.in_place) store_row(to.dtype, block + i * step, to.y, to.offset + (m0 + i) * to.step + n0, nc);
  }
}

// row[i] = exp(scale * row[i] - the largest), gives the sum; the sink has a part in both.
template <class T>
T exponentials(T* row, int64_t n, T scale, bool has_sink, T sink) {
  if constexpr (std::is_same_v<T, float>) {
    float most = simd().fold[size_t(Fold::kMax)](row, n) * scale;
    if (has_sink && (sink > most || sink != sink)) most = sink;
    const float sum = simd().exp_sum(row, row, n, scale, most);
    return has_sink ? sum + std::exp(sink - most) : sum;
  } else {
    T most = row[0] * scale, sum = 0;
    for (int64_t i = 1; i < n; ++i)
      if (row[i] * scale > most || row[i] != row[i]) most = row[i] * scale;
    if (has_sink && sink > most) most = sink;
    for (int64_t i = 0; i < n; ++i) sum += row[i] = std::exp(row[i] * scale - most);
    return has_sink ? sum + std::exp(sink - most) : sum;
  }
}

template <class T>
void scale_and_cap(T* x, int64_t n, T scale, T cap) {
  if constexpr (std::is_same_v<T, float>) {
    const Simd& loops = simd();
    if (cap == 0) return loops.unary[size_t(Unary::kAffine)](x, x, n, scale, 0);
    loops.unary[size_t(Unary::kAffine)](x, x, n, scale / cap, 0);
    loops.unary[size_t(Unary::kTanh)](x, x, n, 0, 0);
    loops.unary[size_t(Unary::kAffine)](x, x, n, cap, 0);
  } else {
    for (int64_t i = 0; i < n; ++i) x[i] = cap == 0 ? x[i] * scale : cap * std::tanh(x[i] * scale / cap);
  }
}

}  // namespace

Attention::Attention(const AttentionForm& form, uint32_t threads) : form_(form) {
  const int64_t group = std::max<int64_t>(1, form.q_heads / std::max<int64_t>(1, form.kv_heads));
  joined_ = form.queries == 1 && group > 1;
  heads_ = joined_ ? form.kv_heads : form.q_heads;
  rows_ = joined_ ? group : form.queries;
  score_step_ = round_up(form.keys, 16) + 16;  // rows of a power of two would share few sets of the cache
  // As many queries as keep their scores in the second-level cache, and as leave work for all threads.
  const int64_t products = form.batch * heads_;
  // Large blocks pack keys and values less often; small ones leave more of the keys out that no query sees.
  block_rows_ = std::clamp<int64_t>(64 * 1024 / score_step_, 16, form.causal ? kMostRows / 2 : kMostRows);
  if (products < int64_t(threads) * 2 && products > 0)
    block_rows_ = std::min(block_rows_, round_up(ceil_div(rows_, ceil_div(int64_t(threads) * 2, products)), 16));
  block_rows_ = std::max<int64_t>(1, std::min(block_rows_, rows_));
  const double terms = double(products) * double(rows_) * double(form.keys) * double(form.size + form.v_size);
  cost_ns_ = terms * 2 / 80 + double(products) * double(rows_) * double(form.keys);
  const int64_t tasks = products * ceil_div(rows_, block_rows_);
  lanes_ = uint32_t(std::clamp<int64_t>(tasks, 1, worthwhile_threads(threads, cost_ns_)));
  if (form.in_double())
    plan<double>(threads);
  else
    plan<float>(threads);
}

template <class T>
void Attention::plan(uint32_t) {
  // Threads share out blocks of queries, never one product.
  // Queries are packed once for all keys, and keys panel by panel next to where they are used.
  ProductForm form;
  form.a_packed = form.b_near = true;
  scores_ = plan_blocks<T>(block_rows_, form_.keys, form_.size, 1, 1, form);
  form = {};
  const uint32_t computed = std::is_same_v<T, float> ? BELAY_DT_FLOAT32 : BELAY_DT_FLOAT64;
  // Few rows would not repay the packing of V, and rows that lie side by side need none.
  form.b_direct = direct_ =
      form_.v_type == computed && (block_rows_ <= 2 * tile_kernel<T>().rows || form_.v.row == form_.v_size);
  form.c_scratch = form_.q_type != computed;
  values_ = plan_blocks<T>(block_rows_, form_.v_size, form_.keys, 1, 1, form);
  const int64_t packed = packed_rows_size<T>(block_rows_, form_.size);
  const int64_t elements = block_rows_ * score_step_ + std::max(packed + scores_.scratch(), values_.scratch());
  lane_bytes_ = uint64_t(round_up(elements * int64_t(sizeof(T)), 64));
}

template <class T>
void Attention::block(const AttentionOperands& at, const AttentionBias<T>& bias, int64_t task, T* scores) const {
  const AttentionForm& f = form_;
  const int64_t pieces = ceil_div(rows_, block_rows_);
  const int64_t row0 = task % pieces * block_rows_, h = task / pieces % heads_, b = task / pieces / heads_;
  const int64_t m = std::min(block_rows_, rows_ - row0), group = f.q_heads / f.kv_heads;
  const int64_t q_head = joined_ ? h * group : h, kv_head = joined_ ? h : h / group;
  const auto head_of = [&](int64_t i) { return joined_ ? q_head + row0 + i : q_head; };
  const auto query_of = [&](int64_t i) { return joined_ ? int64_t{0} : row0 + i; };
  const auto offset_of = [&](const HeadSteps& steps) {
    return b * steps.batch + head_of(0) * steps.head + query_of(0) * steps.row;
  };
  T* const scratch = scores + block_rows_ * score_step_;

  // The keys that any of these queries sees; all of them where the scores are asked for.
  using Keys = typename AttentionBias<T>::Keys;
  Keys seen{f.keys, 0};
  for (int64_t i = 0; i < m; ++i) {
    const Keys keys = bias.keys(b, query_of(i));
    if (keys.begin >= keys.end) continue;
    seen.begin = std::min(seen.begin, keys.begin);
    seen.end = std::max(seen.end, keys.end);
  }
  if (at.scores) seen = {0, f.keys};
  const int64_t n = std::max<int64_t>(0, seen.end - seen.begin);

  const AnyView q = view_of(f.q_type, at.q, offset_of(f.q), joined_ ? f.q.head : f.q.row, 1);
  const AnyView k =
      view_of(f.k_type, at.k, b * f.k.batch + kv_head * f.k.head + std::min(seen.begin, f.keys) * f.k.row, 1, f.k.row);
  Product<T> product;
  product.m = m, product.n = n, product.k = f.size;
  set_a(product, q);
  set_b(product, k);
  product.pack_a(product.a, 0, m, 0, f.size, scratch);
  product.a_packed = scratch;
  product.c = scores;
  product.c_step = score_step_;
  T* const behind = scratch + packed_rows_size<T>(block_rows_, f.size);
  for (int64_t i = 0; i < scores_.tasks(); ++i) run_block<T>(product, scores_, i, behind);

  T factors[kMostRows];
  // Where nothing comes between, scores are scaled on the way into the exponential.
  const bool adds = bias.adds(), scaled_late = !at.scores && f.softcap == 0 && f.scale > 0 && !adds;
  for (int64_t i = 0; i < m; ++i) {
    T* const row = scores + i * score_step_;
    const auto tell = [&](Scores stage) {
      if (at.scores && at.stage == stage)
        store_row(f.q_type, row, at.scores, ((b * f.q_heads + head_of(i)) * f.queries + query_of(i)) * f.keys, n);
    };
    // Scaled first where the bare products are asked for, so that they are told as the definition has them.
    const bool bare = at.scores && at.stage == Scores::kProducts;
    if (bare) {
      scale_and_cap<T>(row, n, T(f.scale), 0);
      tell(Scores::kProducts);
    }
    if (!scaled_late && (!bare || f.softcap != 0)) scale_and_cap<T>(row, n, bare ? T(1) : T(f.scale), T(f.softcap));
    tell(Scores::kCapped);

    Keys keys = bias.keys(b, query_of(i));
    keys.end = std::max(keys.begin, keys.end);
    const int64_t first = std::clamp<int64_t>(keys.begin - seen.begin, 0, n),
                  last = std::clamp<int64_t>(keys.end - seen.begin, first, n);
    const bool any = first < last && (!adds || bias.add(b, head_of(i), query_of(i), keys, row + first));
    if (at.scores && at.stage == Scores::kBiased) {
      std::fill(row, row + first, T(at.unseen));
      std::fill(row + last, row + n, T(at.unseen));
      tell(Scores::kBiased);
    }
    std::fill(row, row + first, T(0));
    std::fill(row + last, row + n, T(0));
    factors[i] = 1;
    if (any) {
      T sink = 0;
      const bool has_sink = bias.sink(head_of(i), sink);
      factors[i] = 1 / exponentials<T>(row + first, last - first, scaled_late ? T(f.scale) : T(1), has_sink, sink);
    } else {
      std::fill(row + first, row + last, T(0));
    }
    if (at.scores && at.stage == Scores::kSoftmax) {
      multiply_row(row + first, last - first, factors[i]);
      factors[i] = 1;
    }
    tell(Scores::kSoftmax);
  }

  const AnyView weights = MatrixView<T>{scores, score_step_, 1};
  const AnyView v = view_of(f.v_type, at.v, b * f.v.batch + kv_head * f.v.head + std::min(seen.begin, f.keys) * f.v.row,
                            f.v.row, 1);
  product = {};
  product.m = m, product.n = f.v_size, product.k = n;
  set_a(product, weights);
  set_b(product, v);
  if (direct_) {
    product.b_direct = std::get<MatrixView<T>>(v).data;
    product.b_step = f.v.row;
  }
  const int64_t y_step = joined_ ? f.y.head : f.y.row;
  const Store<T> store{f.q_type, at.y, offset_of(f.y), y_step, values_.c_scratch == 0, factors};
  product.finish = store_block<T>;
  product.finish_context = &store;
  if (store.in_place) {
    product.c = static_cast<T*>(at.y) + store.offset;
    product.c_step = y_step;
  }
  for (int64_t i = 0; i < values_.tasks(); ++i) run_block<T>(product, values_, i, scratch);
}

template <class T>
void Attention::run(const Run& run, const AttentionOperands& operands, const AttentionBias<T>& bias,
                    void* workspace) const {
  if (form_.v_size == 0 && !operands.scores) return;
  run_lanes(run, form_.batch * heads_ * ceil_div(rows_, block_rows_), lanes_, [&](int64_t task, int64_t lane) {
    block<T>(operands, bias, task, reinterpret_cast<T*>(static_cast<char*>(workspace) + lane * int64_t(lane_bytes_)));
  });
}

template void Attention::run<float>(const Run&, const AttentionOperands&, const AttentionBias<float>&, void*) const;
template void Attention::run<double>(const Run&, const AttentionOperands&, const AttentionBias<double>&, void*) const;

}  // namespace belay::cpu
