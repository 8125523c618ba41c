#include "planner/arena.hpp"

#include <algorithm>

namespace belay::reuse {

void Arena::Lists::finish(size_t count) {
  if (pairs.empty()) return;
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  first.assign(count + 1, 0);
  for (const auto& [buffer, other] : pairs) {
    ++first[buffer + 1];
    others.push_back(other);
  }
  for (size_t i = 0; i < count; ++i) first[i + 1] += first[i];
}

Arena::Arena(const belay_plan_req& request, uint32_t index) : req(request) {
  const auto arena_of = [&](uint32_t i) { return req.arena ? req.arena[i] : 0; };
  std::vector<uint32_t> local;
  if (req.conflict_count || req.in_place_count) local.resize(req.count);
  for (uint32_t i = 0; i < req.count; ++i) {
    if (arena_of(i) != index) continue;
    if (!local.empty()) local[i] = uint32_t(buffers.size());
    Buffer& buffer = buffers.emplace_back();
    buffer.id = i;
    buffer.bytes = req.bytes[i];
    buffer.align = req.align ? req.align[i] : 64;
    if (req.fixed_offset) buffer.fixed = req.fixed_offset[i];
    if (buffer.fixed != BELAY_OFFSET_FREE) lifetimes_only_ = false;
  }
  number_moments();

  for (uint64_t i = 0; i < req.conflict_count; ++i) {
    const auto [a, b] = req.conflicts[i];
    if (a == b || arena_of(a) != index || arena_of(b) != index) continue;
    conflicts_.pairs.emplace_back(local[a], local[b]);
    conflicts_.pairs.emplace_back(local[b], local[a]);
  }
  conflicts_.finish(buffers.size());
  for (uint64_t i = 0; i < req.in_place_count; ++i) {
    const auto [a, b] = req.in_place[i];
    if (a == b || arena_of(a) != index || arena_of(b) != index) continue;
    const auto against = conflicts(local[a]);
    if (std::find(against.begin(), against.end(), local[b]) != against.end()) continue;
    // Only where they meet in nothing but the kernel's step; a longer common life would be spoilt by sharing.
    const uint64_t begin = req.interval_first[a], end = req.interval_first[a + 1];
    if (begin == end || req.interval_first[b] == req.interval_first[b + 1]) continue;
    if (req.intervals[end - 1].end != req.intervals[req.interval_first[b]].begin + 1) continue;
    partners_.pairs.emplace_back(local[a], local[b]);
    partners_.pairs.emplace_back(local[b], local[a]);
  }
  partners_.finish(buffers.size());
  lifetimes_only_ = lifetimes_only_ && conflicts_.pairs.empty();
  find_bound();
}

void Arena::number_moments() {
  std::vector<uint64_t>& steps = steps_;
  const auto each_interval = [&](Buffer& buffer, auto&& visit) {
    for (uint64_t k = req.interval_first[buffer.id]; k < req.interval_first[buffer.id + 1]; ++k)
      if (req.intervals[k].begin < req.intervals[k].end) visit(req.intervals[k]);
  };
  for (Buffer& buffer : buffers) {
    if (!buffer.bytes) continue;
    each_interval(buffer, [&](const belay_interval& at) {
      steps.push_back(at.begin);
      steps.push_back(at.end);
    });
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  moments = uint32_t(steps.size());
  for (Buffer& buffer : buffers) {
    if (!buffer.bytes) continue;
    uint64_t end = 0;
    each_interval(buffer, [&](const belay_interval& at) {
      if (!buffer.life)
        buffer.first = moment_of(at.begin);
      else if (at.begin > end)
        gaps = buffer.gaps = true;
      buffer.last = moment_of(at.end);
      buffer.life += at.end - at.begin;
      end = at.end;
    });
  }
  if (!gaps) steps_ = {};
}

bool Arena::meet_in_steps(uint32_t a, uint32_t b) const {
  const Buffer &x = buffers[a], &y = buffers[b];
  uint64_t i = req.interval_first[x.id], k = req.interval_first[y.id];
  while (i < req.interval_first[x.id + 1] && k < req.interval_first[y.id + 1]) {
    const belay_interval &p = req.intervals[i], &q = req.intervals[k];
    if (p.begin < q.end && q.begin < p.end && p.begin < p.end && q.begin < q.end) return true;
    if (p.end <= q.end)
      ++i;
    else
      ++k;
  }
  return false;
}

void Arena::find_bound() {
  // What pairs may save in the step in which they meet.
  std::vector<std::pair<uint64_t, uint64_t>> shared;
  for (const auto& [a, b] : partners_.pairs)
    if (a < b) {
      const Buffer& later = buffers[a].first < buffers[b].first ? buffers[b] : buffers[a];
      shared.emplace_back(req.intervals[req.interval_first[later.id]].begin,
                          std::min(buffers[a].bytes, buffers[b].bytes));
    }
  std::sort(shared.begin(), shared.end());
  std::vector<std::pair<uint64_t, int64_t>> changes;
  for (const Buffer& buffer : buffers)
    for (uint64_t k = req.interval_first[buffer.id]; k < req.interval_first[buffer.id + 1]; ++k) {
      changes.emplace_back(req.intervals[k].begin, int64_t(buffer.bytes));
      changes.emplace_back(req.intervals[k].end, -int64_t(buffer.bytes));
    }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0;
  for (size_t i = 0, s = 0; i < changes.size();) {
    const uint64_t step = changes[i].first;
    for (; i < changes.size() && changes[i].first == step; ++i) live += changes[i].second;
    uint64_t saved = 0;
    while (s < shared.size() && shared[s].first < step) ++s;
    for (; s < shared.size() && shared[s].first == step; ++s) saved += shared[s].second;
    // What happens between this change and the next is not at a pair's step, but for its first step.
    const bool longer = i < changes.size() && changes[i].first > step + 1;
    const uint64_t now = uint64_t(live) - std::min<uint64_t>(saved, uint64_t(live));
    lower_bound = std::max(lower_bound, longer ? uint64_t(live) : now);
  }
}

}  // namespace belay::reuse
