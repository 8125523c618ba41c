#include "plan/lanes.hpp"

#include <algorithm>
#include <numeric>
#include <queue>

namespace belay::plan {
namespace {

// Less than this is not worth the memory that values of lanes cannot share.
constexpr uint64_t kWorthNs = 50'000;
constexpr uint64_t kWorthPart = 8;  // of the whole time, one in so many
// Above this number of kernels, pairs that follow from others are too dear to find.
constexpr uint32_t kMostReduced = 4096;

Lanes in_order(size_t count) {
  Lanes out;
  out.order.resize(count);
  std::iota(out.order.begin(), out.order.end(), 0u);
  for (uint64_t i = 0; i < count; ++i) out.end.push_back(i + 1);
  return out;
}

}  // namespace

Lanes spread(const LaneRequest& req) {
  const auto count = uint32_t(req.cost_ns.size());
  const auto& cost = req.cost_ns;
  // Without estimates there is nothing to weigh, and drivers would not run it at once either.
  if (req.lanes < 2 || count < 2 || std::find(cost.begin(), cost.end(), 0u) != cost.end())
    return in_order(count);
  std::vector<std::vector<uint32_t>> next(count);
  std::vector<uint32_t> waits(count, 0);
  for (const auto& [before, after] : req.edges) {
    next[before].push_back(after);
    ++waits[after];
  }
  std::vector<uint64_t> remaining(count), ready_at(count, 0), begin(count), end(count);
  uint64_t total = 0;
  for (uint32_t k = count; k-- > 0;) {
    for (const uint32_t after : next[k]) remaining[k] = std::max(remaining[k], remaining[after]);
    remaining[k] += cost[k];
    total += cost[k];
  }

  // Of what is ready when a lane becomes free, the one with the longest way to go.
  const auto shorter = [&](uint32_t a, uint32_t b) {
    return remaining[a] != remaining[b] ? remaining[a] < remaining[b] : a > b;
  };
  const auto later = [&](uint32_t a, uint32_t b) {
    return ready_at[a] != ready_at[b] ? ready_at[a] > ready_at[b] : a > b;
  };
  std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(shorter)> ready(shorter);
  std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(later)> coming(later);
  for (uint32_t k = 0; k < count; ++k)
    if (!waits[k]) coming.push(k);
  std::vector<uint64_t> free(req.lanes, 0);
  std::vector<uint32_t> last(req.lanes, count);
  Pairs chains;
  uint64_t makespan = 0, now = 0;
  for (uint32_t done = 0; done < count; ++done) {
    const size_t lane = size_t(std::min_element(free.begin(), free.end()) - free.begin());
    // Where nothing was ready the time has passed a lane that is free longer: it may not go back there.
    now = std::max(now, free[lane]);
    if (ready.empty() && !coming.empty()) now = std::max(now, ready_at[coming.top()]);
    while (!coming.empty() && ready_at[coming.top()] <= now) {
      ready.push(coming.top());
      coming.pop();
    }
    if (ready.empty()) return in_order(count);  // a cycle, which the choice of claims has ruled out
    const uint32_t k = ready.top();
    ready.pop();
    begin[k] = now;
    end[k] = free[lane] = now + cost[k];
    makespan = std::max(makespan, end[k]);
    if (last[lane] != count) chains.emplace_back(last[lane], k);
    last[lane] = k;
    for (const uint32_t after : next[k]) {
      ready_at[after] = std::max(ready_at[after], end[k]);
      if (--waits[after] == 0) coming.push(after);
    }
  }
  if (!req.always && total - makespan < std::max(kWorthNs, total / kWorthPart)) return in_order(count);

  Lanes out = in_order(count);
  out.parallel = true;
  std::stable_sort(out.order.begin(), out.order.end(),
                   [&](uint32_t a, uint32_t b) { return begin[a] < begin[b]; });
  std::vector<uint32_t> position(count);
  std::vector<uint64_t> begins;
  for (uint32_t i = 0; i < count; ++i) {
    position[out.order[i]] = i;
    begins.push_back(begin[out.order[i]]);
  }
  for (uint32_t i = 0; i < count; ++i)
    out.end[i] = uint64_t(std::lower_bound(begins.begin(), begins.end(), end[out.order[i]]) - begins.begin());
  for (const auto& [before, after] : chains) out.chains.emplace_back(position[before], position[after]);
  return out;
}

Pairs reduce(Pairs pairs, uint32_t count) {
  // By the later one; of those before it, the nearest first: what they follow is then known.
  std::sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second < b.second : a.first > b.first;
  });
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  if (count > kMostReduced) return pairs;
  const size_t words = (count + 63) / 64;
  std::vector<uint64_t> reach(words * count, 0);
  std::erase_if(pairs, [&](const auto& pair) {
    uint64_t* to = &reach[pair.second * words];
    if (to[pair.first / 64] >> (pair.first % 64) & 1) return true;
    const uint64_t* from = &reach[pair.first * words];
    for (size_t w = 0; w < words; ++w) to[w] |= from[w];
    to[pair.first / 64] |= uint64_t{1} << (pair.first % 64);
    return false;
  });
  return pairs;
}

}  // namespace belay::plan
