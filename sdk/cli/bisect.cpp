#include "bisect.hpp"

#include "show.hpp"

#include <belay/graph/outputs.hpp>

#include <algorithm>

namespace belay::cli {
namespace {

// So many values are kept at once: a bound of memory, and early differences are found early.
constexpr size_t kAtOnce = 64;
// So many values inside of a node are looked at one at a time, each with a plan of its own.
constexpr size_t kAlone = 256;

}  // namespace

Bisection::Bisection(belay_span image, Side& a, Side& b, const std::vector<Input>& inputs,
                     const Tolerance& tolerance)
    : view_(image), a_(a), b_(b), inputs_(inputs), tolerance_(tolerance) {
  const belay_list nodes = view_.graphs()[0].nodes;
  for (uint32_t i = 0; i < nodes.count; ++i)
    for (const uint32_t value : view_.node(nodes.first + i).outputs())
      if (value != BELAY_NONE && !name_of(value).empty()) candidates_.push_back({nodes.first + i, value});
}

std::string Bisection::name_of(uint32_t value) const {
  return std::string(view_.string(view_.values()[value].name));
}

std::string Bisection::address_of(uint32_t value) const {
  return view_.values()[value].graph == 0 ? name_of(value) : graph::value_address(view_, value);
}

template <class F>
void Bisection::each_graph(uint32_t node, F&& f) const {
  const belay_list attributes = view_.node(node).raw().attributes;
  for (const auto& at : view_.attributes().subspan(attributes.first, attributes.count))
    if (at.kind == BELAY_ATTR_GRAPH || at.kind == BELAY_ATTR_GRAPHS)
      for (const uint32_t graph : view_.indices(at.values)) f(view_.string(at.name), graph);
}

// The nodes around a value, the outermost first.
std::vector<Bisection::Owner> Bisection::owners_of(uint32_t value) const {
  std::vector<Owner> out;
  for (uint32_t graph = view_.values()[value].graph; graph != 0; graph = view_.node(out.back().node).raw().graph)
    for (uint32_t n = 0; n < view_.nodes().size() && (out.empty() || out.back().graph != graph); ++n)
      each_graph(n, [&](std::string_view attribute, uint32_t sub) {
        if (sub == graph) out.push_back({n, graph, std::string(attribute), view_.node(n).op() != "If"});
      });
  std::reverse(out.begin(), out.end());
  return out;
}

// By the node or by what it runs inside.
std::vector<uint32_t> Bisection::reads_of(uint32_t index) const {
  std::vector<uint32_t> out;
  const auto add = [&](uint32_t value) {
    if (value != BELAY_NONE && std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  };
  for (const uint32_t value : view_.node(index).inputs()) add(value);
  each_graph(index, [&](std::string_view, uint32_t graph) {
    for (const uint32_t value : view_.indices(view_.graphs()[graph].captures)) add(value);
  });
  return out;
}

// What the graphs of a node make, in their order; what is made inside of another node comes before its own.
void Bisection::collect_inside(uint32_t node, std::vector<Candidate>& out) const {
  each_graph(node, [&](std::string_view, uint32_t graph) {
    const belay_list nodes = view_.graphs()[graph].nodes;
    for (uint32_t n = nodes.first; n < nodes.first + nodes.count; ++n) {
      collect_inside(n, out);
      for (const uint32_t value : view_.node(n).outputs())
        if (value != BELAY_NONE && !name_of(value).empty()) out.push_back({n, value});
    }
  });
}

// The comparison of the first iteration that differs, of as many loops as are around the value.
Bisection::Seen Bisection::seen(const HostDatum& found, const HostDatum& expected, size_t loops) const {
  if (loops > 0 && found.kind == BELAY_TYPE_SEQUENCE && found.items.size() == expected.items.size())
    for (size_t i = 0; i < found.items.size(); ++i)
      if (Seen one = seen(found.items[i], expected.items[i], loops - 1); !one.comparison.equal) {
        one.iterations.insert(one.iterations.begin(), int64_t(i));
        return one;
      }
  return {compare(found, expected, tolerance_), type_text(found), {}};
}

// What the sides give for the values; nothing for one that a side refuses.
std::vector<std::optional<Bisection::Seen>> Bisection::look(std::span<const Candidate> at) {
  std::vector<std::optional<Seen>> out(at.size());
  std::vector<std::string> names;
  std::vector<size_t> place;
  for (size_t i = 0; i < at.size(); ++i)
    if (!skipped_.contains(at[i].value)) names.push_back(address_of(at[i].value)), place.push_back(i);
  if (names.empty()) return out;
  const Result<std::vector<HostDatum>> a = a_.run(inputs_, names);
  const Result<std::vector<HostDatum>> b = a.ok() ? b_.run(inputs_, names) : a.status();
  if (b.ok()) {
    for (size_t k = 0; k < names.size(); ++k) {
      const HostDatum& found = (*a)[a->size() - names.size() + k];
      const HostDatum& expected = (*b)[b->size() - names.size() + k];
      const std::vector<Owner> owners = owners_of(at[place[k]].value);
      const auto loops = std::count_if(owners.begin(), owners.end(), [](const Owner& o) { return o.loops; });
      out[place[k]] = seen(found, expected, size_t(loops));
    }
    compared_ += names.size();
    return out;
  }
  if (names.size() == 1) {
    skipped_.insert(at[place[0]].value);
    return out;
  }
  const auto first = look(at.first(at.size() / 2)), second = look(at.subspan(at.size() / 2));
  std::copy(second.begin(), second.end(), std::copy(first.begin(), first.end(), out.begin()));
  return out;
}

Difference Bisection::difference(const Candidate& at, Seen seen) const {
  const belay::graph::NodeView node = view_.node(at.node);
  const auto called = [&](uint32_t index) {
    const belay::graph::NodeView of = view_.node(index);
    const bool nameless = of.name().empty() && !of.outputs().empty() && of.outputs()[0] != BELAY_NONE;
    return nameless ? name_of(of.outputs()[0]) : std::string(of.name());  // as engines call it
  };
  Difference out;
  out.index = at.node;
  out.node = called(at.node);
  size_t loop = 0;
  for (const Owner& owner : owners_of(at.value)) {
    Around& around = out.around.emplace_back();
    around.node = called(owner.node), around.op = view_.node(owner.node).op(), around.graph = owner.attribute;
    if (owner.loops && loop < seen.iterations.size()) around.iteration = seen.iterations[loop];
    loop += owner.loops;
  }
  out.op = node.op(), out.domain = node.domain(), out.version = node.version();
  out.value = name_of(at.value);
  out.comparison = std::move(seen.comparison), out.type = std::move(seen.type);
  for (const uint32_t value : reads_of(at.node)) out.inputs.push_back(name_of(value));
  out.kernel_a = a_.kernel_of(out.node), out.kernel_b = b_.kernel_of(out.node);
  return out;
}

std::optional<Difference> Bisection::with_all_kept(const Output& output) {
  Progress progress(output, "compare", candidates_.size());
  for (size_t at = 0; at < candidates_.size(); at += kAtOnce) {
    const auto some =
        std::span<const Candidate>(candidates_).subspan(at, std::min(kAtOnce, candidates_.size() - at));
    const auto seen = look(some);
    for (size_t i = 0; i < some.size(); ++i)
      if (seen[i] && !seen[i]->comparison.equal) return difference(some[i], *seen[i]);
    progress.at(at + some.size());
  }
  return std::nullopt;
}

std::optional<Difference> Bisection::differs_at(const Candidate& at) {
  const auto seen = look({&at, 1});
  if (!seen[0] || seen[0]->comparison.equal) return std::nullopt;
  Difference out = difference(at, *seen[0]);
  out.fused = true;
  return out;
}

// One value at a time is kept, so that everything else is fused as it is without. What leads to the output is
// searched by halves, as if all that follows a difference differed too; then each input of what was found is
// looked at, until none differs: so much is certain.
std::optional<Difference> Bisection::with_one_kept(const std::string& output, const Output& progress_to) {
  const auto made = std::find_if(candidates_.begin(), candidates_.end(),
                                 [&](const Candidate& c) { return name_of(c.value) == output; });
  if (made == candidates_.end()) return std::nullopt;
  std::set<uint32_t> needed{made->value};
  std::vector<Candidate> before;
  for (size_t i = size_t(made - candidates_.begin()) + 1; i-- > 0;) {
    if (!needed.contains(candidates_[i].value)) continue;
    before.push_back(candidates_[i]);
    const std::vector<uint32_t> reads = reads_of(candidates_[i].node);
    needed.insert(reads.begin(), reads.end());
  }
  std::reverse(before.begin(), before.end());  // in the order of the graph
  std::optional<Difference> found = differs_at(before.back());
  if (!found) return std::nullopt;
  Progress progress(progress_to, "compare", before.size());
  size_t low = 0, high = before.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (auto difference = differs_at(before[middle]))
      found = std::move(difference), high = middle;
    else
      low = middle + 1;
    progress.at(before.size() - (high - low));
  }
  for (bool earlier = true; earlier;) {
    earlier = false;
    for (const Candidate& at : before) {
      if (std::find(found->inputs.begin(), found->inputs.end(), name_of(at.value)) == found->inputs.end())
        continue;
      if (auto difference = differs_at(at)) {
        found = std::move(difference), earlier = true;
        break;
      }
    }
  }
  return found;
}

// The first iteration that differs, and in it the first value. Where none differs with all kept, each is kept alone.
std::optional<Difference> Bisection::inside(uint32_t node, const Output& progress_to) {
  std::vector<Candidate> all;
  collect_inside(node, all);
  Progress progress(progress_to, "compare", all.size());
  std::optional<std::pair<Candidate, Seen>> first;
  // As far as both know their iterations; a value deeper inside stands before what it goes into.
  const auto earlier = [](const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    const auto common = int64_t(std::min(a.size(), b.size()));
    return std::lexicographical_compare(a.begin(), a.begin() + common, b.begin(), b.begin() + common);
  };
  const auto take = [&](std::span<const Candidate> some) {
    const auto seen = look(some);
    for (size_t i = 0; i < some.size(); ++i)
      if (seen[i] && !seen[i]->comparison.equal && (!first || earlier(seen[i]->iterations, first->second.iterations)))
        first = {some[i], *seen[i]};
  };
  for (size_t at = 0; at < all.size(); at += kAtOnce) {
    take(std::span<const Candidate>(all).subspan(at, std::min(kAtOnce, all.size() - at)));
    progress.at(std::min(all.size(), at + kAtOnce));
  }
  const bool fused = !first;
  for (size_t at = 0; fused && at < std::min(all.size(), kAlone); ++at) take({&all[at], 1});
  if (!first) return std::nullopt;
  Difference out = difference(first->first, std::move(first->second));
  out.fused = fused;
  return out;
}

std::optional<Difference> Bisection::find(const std::string& output, const Output& progress) {
  std::optional<Difference> found = with_all_kept(progress);
  if (!found) found = with_one_kept(output, progress);
  if (found && a_.sees_inside() && b_.sees_inside())
    if (auto inner = inside(found->index, progress)) return inner;
  return found;
}

}  // namespace belay::cli
