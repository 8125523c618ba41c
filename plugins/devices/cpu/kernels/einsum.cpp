// Einsum: products of any number of operands, summed over the letters that the output does not have.
#include "convert.hpp"
#include "heavy/matmul.hpp"
#include "registry.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace belay::cpu {
namespace {

// Labels: letters by their code; dims of an ellipsis get 1000 + how far from the right end of the ellipsis.
constexpr int kEllipsis = 1000;

struct Equation {
  std::vector<std::vector<int>> inputs;
  std::vector<int> output;
};

Result<Equation> parse(const OpContext& op, std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const auto wrong = [&](const std::string& what) { return op.bad("equation '" + text + "' " + what); };
  const size_t arrow = text.find("->");
  std::vector<std::string> terms(1);
  for (const char c : text.substr(0, arrow)) {
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  }
  if (terms.size() != op.inputs())
    return wrong("has " + std::to_string(terms.size()) + " terms for " + std::to_string(op.inputs()) +
                 " inputs");
  Equation equation;
  size_t widest = 0;  // dims of the widest ellipsis
  std::map<int, int> seen;
  const auto read = [&](const std::string& term, std::optional<size_t> rank,
                        std::vector<int>& labels) -> Status {
    size_t letters = 0, dots = 0;
    for (const char c : term) {
      if (c == '.')
        ++dots;
      else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        ++letters;
      else
        return wrong("holds '" + std::string(1, c) + "', want letters, commas, one '...' a term and '->'");
    }
    if (dots != 0 && (dots != 3 || term.find("...") == term.npos))
      return wrong("has dots that are no ellipsis");
    if (rank && (letters > *rank || (dots == 0 && letters != *rank)))
      return wrong("names " + std::to_string(letters) + " dims of an input of rank " + std::to_string(*rank));
    const size_t hidden = dots == 0 ? 0 : rank ? *rank - letters : widest;
    if (rank) widest = std::max(widest, hidden);
    for (size_t i = 0; i < term.size(); ++i) {
      if (term[i] != '.') {
        labels.push_back(term[i]);
        continue;
      }
      for (size_t k = 0; k < hidden; ++k) labels.push_back(kEllipsis + int(hidden - 1 - k));
      i += 2;
    }
    return {};
  };
  for (size_t i = 0; i < terms.size(); ++i)
    BELAY_TRY(read(terms[i], op.rank(i), equation.inputs.emplace_back()));
  for (const auto& labels : equation.inputs)
    for (const int label : labels) ++seen[label];
  if (arrow != text.npos) {
    BELAY_TRY(read(text.substr(arrow + 2), std::nullopt, equation.output));
    std::map<int, int> once;
    for (const int label : equation.output)
      if (!seen.contains(label) || ++once[label] > 1)
        return wrong("gives the output a dim that no input has, or twice");
  } else {  // the ellipsis, then the letters that come once, in alphabetical order
    for (size_t k = widest; k-- > 0;) equation.output.push_back(kEllipsis + int(k));
    for (const auto& [label, count] : seen)
      if (label < kEllipsis && count == 1) equation.output.push_back(label);
  }
  return equation;
}

// One index space over all labels: those of the output outside, the summed ones inside.
struct EinsumKernel {
  Dims outer_dims, inner_dims;
  std::vector<Dims> outer_strides, inner_strides;  // [operand]
  int64_t out_count, inner_count;
  size_t operands;

  template <class T>
  void run(const Run& run) const {
    using C = compute_t<T>;
    using Sum = std::conditional_t<std::is_integral_v<C>, uint64_t,
                                   std::conditional_t<std::is_same_v<C, float>, double, C>>;
    run.parallel(out_count, grain_of(2 * double(std::max<int64_t>(inner_count, 1)) * double(operands)),
                 [&](int64_t begin, int64_t end) {
                   int64_t index[kMaxRank * 2];
                   int64_t base[kMaxOperands], at[kMaxOperands];
                   for (int64_t i = begin; i < end; ++i) {
                     for (size_t k = 0; k < operands; ++k) base[k] = 0;
                     int64_t rest = i;
                     for (size_t d = outer_dims.size(); d-- > 0; rest /= outer_dims[d])
                       for (size_t k = 0; k < operands; ++k)
                         base[k] += rest % outer_dims[d] * outer_strides[k][d];
                     Sum total = 0;
                     if (inner_dims.size() <= 1) {
                       const int64_t n = inner_dims.empty() ? 1 : inner_dims[0];
                       for (int64_t j = 0; j < n; ++j) {
                         Sum term = 1;
                         for (size_t k = 0; k < operands; ++k)
                           term *= Sum(Compute<T>::load(
                               run.in<T>(k)[base[k] + (inner_dims.empty() ? 0 : j * inner_strides[k][0])]));
                         total += term;
                       }
                     } else {
                       std::fill_n(index, inner_dims.size(), 0);
                       std::copy_n(base, operands, at);
                       for (int64_t j = 0; j < inner_count; ++j) {
                         Sum term = 1;
                         for (size_t k = 0; k < operands; ++k)
                           term *= Sum(Compute<T>::load(run.in<T>(k)[at[k]]));
                         total += term;
                         for (size_t d = inner_dims.size(); d-- > 0;) {
                           for (size_t k = 0; k < operands; ++k) at[k] += inner_strides[k][d];
                           if (++index[d] < inner_dims[d]) break;
                           for (size_t k = 0; k < operands; ++k) at[k] -= inner_dims[d] * inner_strides[k][d];
                           index[d] = 0;
                         }
                       }
                     }
                     run.out<T>(0)[i] = Compute<T>::store(C(total));
                   }
                 });
  }
  static constexpr size_t kMaxOperands = 16;
};

// A letter of an equation of two operands: its size and the steps it makes, 0 where it is not or is broadcast.
struct Letter {
  int64_t size, a, b, out;
};

// Joins the letters of a group to one, which walks all of them in two operands; `outer` gets those that it cannot join.
Letter joined(std::vector<Letter> group, int64_t Letter::*first, int64_t Letter::*second, std::vector<Letter>& outer) {
  if (group.empty()) return {1, 0, 0, 0};
  std::sort(group.begin(), group.end(), [&](const Letter& x, const Letter& y) { return x.*second < y.*second; });
  Letter all = group[0];
  size_t i = 1;
  for (; i < group.size(); ++i) {
    const Letter& next = group[i];
    if (next.*first != all.*first * all.size || next.*second != all.*second * all.size) break;
    all.size *= next.size;
  }
  outer.insert(outer.end(), group.begin() + std::ptrdiff_t(i), group.end());
  return all;
}

// The equation as products of matrices: letters of one operand and the output are rows or columns, those of both
// operands alone are summed, what all three have counts the products.
std::optional<Contraction> contraction_of(const std::vector<Letter>& letters) {
  std::vector<Letter> rows, columns, sums, batch;
  for (const Letter& letter : letters) {
    if (letter.size == 1) continue;
    if (letter.size == 0) return std::nullopt;
    (!letter.out ? sums : letter.a && letter.b ? batch : letter.a ? rows : columns).push_back(letter);
  }
  std::vector<Letter> rest;
  Letter m = joined(rows, &Letter::a, &Letter::out, batch), n = joined(columns, &Letter::b, &Letter::out, batch);
  const Letter k = joined(sums, &Letter::a, &Letter::b, rest);
  if (!rest.empty() || m.size * n.size == 1) return std::nullopt;  // sums of their own, or nothing but dot products
  // The columns of C are to lie side by side.
  const bool swap = m.out == 1;
  if (swap) std::swap(m, n);
  const auto left = swap ? &Letter::b : &Letter::a, right = swap ? &Letter::a : &Letter::b;
  Contraction product;
  product.a = swap ? 1 : 0;
  product.shape.m = m.size, product.shape.n = n.size, product.shape.k = k.size;
  product.a_steps = {1, m.*left, k.*left};
  product.b_steps = {1, k.*right, n.*right};
  product.c_steps = {1, m.out, n.size == 1 ? 1 : n.out};
  std::sort(batch.begin(), batch.end(), [](const Letter& x, const Letter& y) { return x.out > y.out; });
  for (const Letter& letter : batch) {
    product.shape.batch.push_back(letter.size);
    product.shape.a_batch.push_back(letter.*left);
    product.shape.b_batch.push_back(letter.*right);
    product.c_batch.push_back(letter.out);
  }
  return product;
}

Status prepare_einsum(OpContext& op) {
  if (op.inputs() > EinsumKernel::kMaxOperands)
    return op.bad("it has " + std::to_string(op.inputs()) + " inputs, want 16 at most", Code::kUnimplemented);
  for (size_t i = 0; i < op.inputs(); ++i)
    if (!op.has(i) || op.dtype(i) != op.dtype(0)) return op.bad("inputs are missing or of different types");
  BELAY_ASSIGN(const Equation equation, parse(op, std::string(op.attr().string_or("equation", ""))));

  std::map<int, int64_t> sizes;
  for (size_t i = 0; i < op.inputs(); ++i)
    for (size_t d = 0; d < op.rank(i); ++d) {
      int64_t& size = sizes.try_emplace(equation.inputs[i][d], 1).first->second;
      const int64_t dim = op.dims(i)[d];
      if (size != 1 && dim != 1 && size != dim)
        return op.bad("dim " + std::to_string(d) + " of input " + std::to_string(i) + " is " +
                      std::to_string(dim) + ", its letter stands for " + std::to_string(size) + " elsewhere");
      if (size == 1) size = dim;
    }
  Dims out;
  std::vector<int> summed;
  for (const int label : equation.output) out.push_back(sizes[label]);
  for (const auto& [label, size] : sizes)
    if (std::find(equation.output.begin(), equation.output.end(), label) == equation.output.end())
      summed.push_back(label);
  if (summed.size() > kMaxRank) return op.bad("it sums over more than 32 letters", Code::kUnimplemented);
  BELAY_TRY(op.output(0, op.dtype(0), out));

  // A letter that an operand has twice walks its diagonal; a dim of 1 is broadcast.
  const auto stride_of = [&](size_t i, int label) {
    const Dims dense = dense_strides(op.dims(i));
    int64_t sum = 0;
    for (size_t d = 0; d < op.rank(i); ++d)
      if (equation.inputs[i][d] == label && op.dims(i)[d] != 1) sum += dense[d];
    return sum;
  };
  if (op.inputs() == 2 && contracts(op.dtype(0))) {
    std::vector<Letter> letters;
    const Dims dense = dense_strides(out);
    for (size_t d = 0; d < out.size(); ++d)
      letters.push_back({out[d], stride_of(0, equation.output[d]), stride_of(1, equation.output[d]), dense[d]});
    for (const int label : summed) letters.push_back({sizes[label], stride_of(0, label), stride_of(1, label), 0});
    if (const auto product = contraction_of(letters)) return prepare_contraction(op, *product);
  }

  EinsumKernel kernel{out, {}, {}, {}, product(out), 1, op.inputs()};
  for (const int label : summed) kernel.inner_dims.push_back(sizes[label]);
  kernel.inner_count = product(kernel.inner_dims);
  for (size_t i = 0; i < op.inputs(); ++i) {
    Dims& outer = kernel.outer_strides.emplace_back();
    Dims& inner = kernel.inner_strides.emplace_back();
    for (const int label : equation.output) outer.push_back(stride_of(i, label));
    for (const int label : summed) inner.push_back(stride_of(i, label));
  }
  dispatch<kNumeric>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([kernel](const Run& run) { kernel.run<T>(run); });
  });
  return {};
}

}  // namespace

void add_einsum(Registry& registry) {
  registry.add(
      {.op = "Einsum", .prepare = prepare_einsum, .types = {kNumeric}, .max_inputs = 255, .ns_per_byte = 1});
}

}  // namespace belay::cpu
