// reductions.cpp: operators that fold an axis, or order elements along one.
#include "op.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace reference {
namespace {

// Folds each group of elements that differ in the reduced axes only.
template <class Fold>
void reduce(Call& call, Fold fold) {
  const size_t rank = call.in[0].dims.size();
  std::vector<int64_t> axes = call.has(1) ? call.in[1].integers() : call.node.ints_or("axes", {});
  // Without axes all are reduced, or none: then each element is a group of its own.
  std::vector<bool> reduced(rank, axes.empty() && !call.node.int_or("noop_with_empty_axes", 0));
  for (const int64_t axis : axes) reduced[axis_of(axis, rank)] = true;
  Dims kept = call.in[0].dims;
  for (size_t d = 0; d < rank; ++d)
    if (reduced[d]) kept[d] = 1;
  std::vector<std::vector<int64_t>> groups(static_cast<size_t>(count_of(kept)));
  int64_t i = 0;
  for (Walk walk(call.in[0].dims); !walk.done(); walk.next(), ++i)
    groups[size_t(broadcast(walk.at(), kept))].push_back(i);
  for (size_t g = 0; g < groups.size(); ++g) fold(call.in[0], groups[g], call.out[0], int64_t(g));
}

using Group = const std::vector<int64_t>&;
double total(const Tensor& in, Group group, double (*of)(double)) {
  double sum = 0;
  for (const int64_t i : group) sum += of(in.real(i));
  return sum;
}
double same(double x) { return x; }
double square(double x) { return x * x; }
double magnitude(double x) { return std::fabs(x); }

void reduce_sum(Call& call) {
  reduce(call, [](const Tensor& in, Group group, Tensor& out, int64_t g) {
    if (in.is_float()) return out.put_real(g, total(in, group, same));
    uint64_t sum = 0;
    for (const int64_t i : group) sum += uint64_t(in.integer(i));
    out.put_integer(g, int64_t(sum));
  });
}
void reduce_mean(Call& call) {
  reduce(call, [](const Tensor& in, Group group, Tensor& out, int64_t g) {
    out.put_real(g, total(in, group, same) / double(group.size()));
  });
}
void reduce_l1(Call& call) {
  reduce(call, [](const Tensor& in, Group group, Tensor& out, int64_t g) {
    out.put_real(g, total(in, group, magnitude));
  });
}
void reduce_l2(Call& call) {
  reduce(call, [](const Tensor& in, Group group, Tensor& out, int64_t g) {
    out.put_real(g, std::sqrt(total(in, group, square)));
  });
}
void reduce_sum_square(Call& call) {
  reduce(call, [](const Tensor& in, Group group, Tensor& out, int64_t g) {
    out.put_real(g, total(in, group, square));
  });
}
void reduce_log_sum(Call& call) {
  reduce(call, [](const Tensor& in, Group group, Tensor& out, int64_t g) {
    out.put_real(g, std::log(total(in, group, same)));
  });
}
void reduce_log_sum_exp(Call& call) {
  reduce(call, [](const Tensor& in, Group group, Tensor& out, int64_t g) {
    double top = -INFINITY, sum = 0;
    for (const int64_t i : group) top = std::max(top, in.real(i));
    for (const int64_t i : group) sum += std::exp(in.real(i) - top);
    out.put_real(g, top + std::log(sum));
  });
}
void reduce_product(Call& call) {
  reduce(call, [](const Tensor& in, Group group, Tensor& out, int64_t g) {
    double real = 1;
    uint64_t integer = 1;
    for (const int64_t i : group)
      if (in.is_float())
        real *= in.real(i);
      else
        integer *= uint64_t(in.integer(i));
    if (in.is_float())
      out.put_real(g, real);
    else
      out.put_integer(g, int64_t(integer));
  });
}
// The position in the group of its greatest (or least) element; NaN wins.
template <bool kGreatest>
size_t extreme(const Tensor& in, Group group, bool last) {
  size_t best = 0;
  for (size_t k = 1; k < group.size(); ++k) {
    bool better, equal;
    if (in.is_float()) {
      const double x = in.real(group[k]), y = in.real(group[best]);
      better = !std::isnan(y) && (std::isnan(x) || (kGreatest ? x > y : x < y));
      equal = x == y;
    } else if (in.is_unsigned64()) {
      const uint64_t x = uint64_t(in.integer(group[k])), y = uint64_t(in.integer(group[best]));
      better = kGreatest ? x > y : x < y;
      equal = x == y;
    } else {
      const int64_t x = in.integer(group[k]), y = in.integer(group[best]);
      better = kGreatest ? x > y : x < y;
      equal = x == y;
    }
    if (better || (equal && last)) best = k;
  }
  return best;
}
// Of no elements: what every element replaces.
template <bool kGreatest>
void put_last_choice(Tensor& out, int64_t at) {
  const uint64_t bits = 8 * *belay::dtype_bytes(out.dtype, 1);
  const bool is_signed = out.dtype == BELAY_DT_INT8 || out.dtype == BELAY_DT_INT16 ||
                         out.dtype == BELAY_DT_INT32 || out.dtype == BELAY_DT_INT64;
  const int64_t least = is_signed ? int64_t(~uint64_t{0} << (bits - 1)) : 0;
  if (out.is_float())
    out.put_real(
        at, kGreatest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity());
  else if (out.dtype == BELAY_DT_BOOL)
    out.put_integer(at, kGreatest ? 0 : 1);
  else
    out.put_integer(at, kGreatest ? least : ~least);  // ~0 is the greatest of an unsigned type
}
template <bool kGreatest>
void reduce_extreme(Call& call) {
  reduce(call, [](const Tensor& in, Group group, Tensor& out, int64_t g) {
    if (group.empty())
      put_last_choice<kGreatest>(out, g);
    else
      out.copy(g, in, group[extreme<kGreatest>(in, group, false)]);
  });
}

// Calls body(line) for each line along `axis`: the flat indices of its elements, in order.
template <class Body>
void lines(const Dims& dims, size_t axis, Body body) {
  Dims heads = dims;
  heads[axis] = 1;
  std::vector<int64_t> line(static_cast<size_t>(dims[axis]));
  for (Walk walk(heads); !walk.done(); walk.next()) {
    Dims at = walk.at();
    for (at[axis] = 0; at[axis] < dims[axis]; ++at[axis]) line[size_t(at[axis])] = flat(at, dims);
    body(line);
  }
}

template <bool kGreatest>
void arg_extreme(Call& call) {
  const size_t axis = axis_of(call.node.int_or("axis", 0), call.in[0].dims.size());
  const bool last = call.node.int_or("select_last_index", 0);
  int64_t i = 0;
  lines(call.in[0].dims, axis, [&](Group line) {
    call.out[0].put_integer(i++, int64_t(extreme<kGreatest>(call.in[0], line, last)));
  });
}

void cum_sum(Call& call) {
  const size_t axis = axis_of(call.in[1].integer(0), call.in[0].dims.size());
  const bool exclusive = call.node.int_or("exclusive", 0), reverse = call.node.int_or("reverse", 0);
  lines(call.in[0].dims, axis, [&](std::vector<int64_t> line) {
    if (reverse) std::reverse(line.begin(), line.end());
    double real = 0;
    uint64_t integer = 0;
    for (const int64_t i : line) {
      const double before_real = real;
      const uint64_t before = integer;
      if (call.in[0].is_float())
        real += call.in[0].real(i);
      else
        integer += uint64_t(call.in[0].integer(i));
      if (call.in[0].is_float())
        call.out[0].put_real(i, exclusive ? before_real : real);
      else
        call.out[0].put_integer(i, int64_t(exclusive ? before : integer));
    }
  });
}

void top_k(Call& call) {
  const size_t axis = axis_of(call.node.int_or("axis", -1), call.in[0].dims.size());
  const bool largest = call.node.int_or("largest", 1);
  const int64_t k = call.out[0].dims[axis];
  const Tensor& in = call.in[0];
  std::vector<std::vector<int64_t>> to;
  lines(call.out[0].dims, axis, [&](Group line) { to.push_back(line); });
  size_t n = 0;
  lines(in.dims, axis, [&](Group line) {
    std::vector<size_t> order(line.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      if (in.is_float())
        return largest ? in.real(line[a]) > in.real(line[b]) : in.real(line[a]) < in.real(line[b]);
      return largest ? in.integer(line[a]) > in.integer(line[b]) : in.integer(line[a]) < in.integer(line[b]);
    });
    for (int64_t i = 0; k > 0 && i < k; ++i) {
      if (call.wants(0)) call.out[0].copy(to[n][size_t(i)], in, line[order[size_t(i)]]);
      if (call.wants(1)) call.out[1].put_integer(to[n][size_t(i)], int64_t(order[size_t(i)]));
    }
    ++n;
  });
}

template <bool kLog>
void softmax(Call& call) {
  const size_t axis = axis_of(call.node.int_or("axis", -1), call.in[0].dims.size());
  lines(call.in[0].dims, axis, [&](Group line) {
    double top = -INFINITY, sum = 0;
    for (const int64_t i : line) top = std::max(top, call.in[0].real(i));
    for (const int64_t i : line) sum += std::exp(call.in[0].real(i) - top);
    for (const int64_t i : line) {
      const double x = call.in[0].real(i) - top;
      call.out[0].put_real(i, kLog ? x - std::log(sum) : std::exp(x) / sum);
    }
  });
}

}  // namespace

void add_reductions(Table& table) {
  table.insert({{"ReduceSum", {reduce_sum, 2}},
                {"ReduceMean", {reduce_mean, 2}},
                {"ReduceL1", {reduce_l1, 2}},
                {"ReduceL2", {reduce_l2, 2}},
                {"ReduceSumSquare", {reduce_sum_square, 2}},
                {"ReduceLogSum", {reduce_log_sum, 2}},
                {"ReduceLogSumExp", {reduce_log_sum_exp, 2}},
                {"ReduceProd", {reduce_product, 2}},
                {"ReduceMax", {reduce_extreme<true>, 2}},
                {"ReduceMin", {reduce_extreme<false>, 2}},
                {"ArgMax", {arg_extreme<true>}},
                {"ArgMin", {arg_extreme<false>}},
                {"CumSum", {cum_sum}},
                {"TopK", {top_k, 2}},
                {"Softmax", {softmax<false>}},
                {"LogSoftmax", {softmax<true>}}});
}

}  // namespace reference
