#include "bisect.hpp"

#include "show.hpp"

#include <algorithm>

namespace belay::cli {
namespace {

// So many values are kept at once: a bound of memory, and early differences are found early.
constexpr size_t kAtOnce = 64;

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

// Of the main graph, by the node or by what it runs inside.
std::vector<uint32_t> Bisection::reads_of(uint32_t index) const {
  std::vector<uint32_t> out;
  const auto add = [&](uint32_t value) {
    if (value != BELAY_NONE && view_.values()[value].graph == 0 &&
        std::find(out.begin(), out.end(), value) == out.end())
      out.push_back(value);
  };
  for (const uint32_t value : view_.node(index).inputs()) add(value);
  const belay_list attributes = view_.node(index).raw().attributes;
  for (const auto& at : view_.attributes().subspan(attributes.first, attributes.count))
    if (at.kind == BELAY_ATTR_GRAPH || at.kind == BELAY_ATTR_GRAPHS)
      for (const uint32_t graph : view_.indices(at.values))
        for (const uint32_t value : view_.indices(view_.graphs()[graph].captures)) add(value);
  return out;
}

// What the sides give for the values; nothing for one that a side refuses.
std::vector<std::optional<Bisection::Seen>> Bisection::look(std::span<const Candidate> at) {
  std::vector<std::optional<Seen>> out(at.size());
  std::vector<std::string> names;
  std::vector<size_t> place;
  for (size_t i = 0; i < at.size(); ++i)
    if (!skipped_.contains(at[i].value)) names.push_back(name_of(at[i].value)), place.push_back(i);
  if (names.empty()) return out;
  const Result<std::vector<HostDatum>> a = a_.run(inputs_, names);
  const Result<std::vector<HostDatum>> b = a.ok() ? b_.run(inputs_, names) : a.status();
  if (b.ok()) {
    for (size_t k = 0; k < names.size(); ++k) {
      const HostDatum& found = (*a)[a->size() - names.size() + k];
      const HostDatum& expected = (*b)[b->size() - names.size() + k];
      out[place[k]] = Seen{compare(found, expected, tolerance_), type_text(found)};
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
  Difference out;
  out.node = node.name();
  if (out.node.empty() && !node.outputs().empty() && node.outputs()[0] != BELAY_NONE)
    out.node = name_of(node.outputs()[0]);  // as engines call it
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

std::optional<Difference> Bisection::find(const std::string& output, const Output& progress) {
  if (auto found = with_all_kept(progress)) return found;
  return with_one_kept(output, progress);
}

}  // namespace belay::cli
