// Whether nodes, lists and totals of an arena agree; for tests.
#include "arena.hpp"

namespace belay::pool {

std::string Arena::check() const {
  std::vector<bool> seen(nodes_.size());
  uint64_t in_use = 0, resting = 0, listed_count = 0, reserved = 0;
  const auto node = [](uint32_t n) { return "node " + std::to_string(n); };
  for (const Segment& segment : segments_) {
    if (!segment.live) continue;
    uint64_t at = 0;
    uint32_t before = kNone;
    for (uint32_t n = segment.first; n != kNone; before = n, n = nodes_[n].after) {
      const Node& x = nodes_[n];
      if (seen[n]) return node(n) + " is twice in the order of addresses";
      seen[n] = true;
      if (x.begin != at || x.before != before || !x.size || x.segment != &segment - segments_.data())
        return node(n) + " is not where its neighbour ends";
      if (x.state == State::kSpare) return node(n) + " is spare and in a segment";
      at += x.size;
      if (x.state == State::kUsed) in_use += x.size;
      if (x.state == State::kResting) resting += x.size;
      if (x.state == State::kListed) ++listed_count;
      if (x.state == State::kListed && listed(before) && x.colour == nodes_[before].colour &&
          x.colour == kClean)
        return node(n) + " and the one before it are clean and apart";
    }
    if (at != segment.granules) return "segment " + std::to_string(segment.id) + " is not covered";
    reserved += segment.granules;
  }
  if (in_use != totals_.in_use || resting != resting_granules() || reserved != reserved_)
    return "the totals are not those of the nodes";
  for (uint32_t colour = 0; colour < 256; ++colour) {
    const Lists* const all = lanes_[colour].lists.get();
    for (uint32_t c = 0; all && c < kClasses; ++c) {
      if ((all->head[c] != kNone) != (all->bits[c / 64] >> c % 64 & 1) ||
          nodes_[all->head[c]].state == State::kUsed ||
          (all->bits[c / 64] != 0) != (all->words >> c / 64 & 1))
        return "the bits of class " + std::to_string(c) + " are wrong";
      for (uint32_t n = all->head[c], left = kNone; n != kNone; left = n, n = nodes_[n].right, --listed_count)
        if (!seen[n] || nodes_[n].state != State::kListed || nodes_[n].colour != colour ||
            class_of(nodes_[n].size) != c || nodes_[n].left != left)
          return node(n) + " is in a wrong list";
    }
  }
  if (listed_count) return "free nodes are in no list";
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket)
    for (uint32_t n = resting_[bucket]; n != kNone; n = nodes_[n].right) {
      if (!seen[n] || nodes_[n].state != State::kResting ||
          bucket_of(nodes_[n].size, nodes_[n].colour) != bucket)
        return node(n) + " does not rest where it should";
      resting -= nodes_[n].size;
    }
  return resting ? "nodes rest nowhere" : "";
}

}  // namespace belay::pool
