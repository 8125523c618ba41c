// schedule/plan_cache.hpp: the plans of one graph, by what its inputs look like.
#pragma once

#include "plan/stage.hpp"

#include <atomic>
#include <functional>

namespace belay::schedule {

struct PlanCounters {
  std::atomic<uint64_t> hits{0}, misses{0};
};

// Keeps at most `entries`, the least recently used go; two threads that want two plans do not wait for each
// other, two that want the same one plan it once. A plan in use stays alive with its users.
class PlanCache {
 public:
  PlanCache(uint64_t entries, PlanCounters& counters)
      : entries_(entries ? entries : 1), counters_(counters) {}

  Result<plan::StagePtr> find(const std::string& key, const std::function<Result<plan::StagePtr>()>& build);
  uint64_t size() const;

 private:
  struct Entry {
    std::mutex building;
    plan::StagePtr stage;
  };
  const uint64_t entries_;
  PlanCounters& counters_;
  mutable std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<Entry>>> plans_;  // the latest first
};

}  // namespace belay::schedule
