#include "schedule/plan_cache.hpp"

#include <algorithm>

namespace belay::schedule {

Result<plan::StagePtr> PlanCache::find(const std::string& key,
                                       const std::function<Result<plan::StagePtr>()>& build) {
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    const auto at =
        std::find_if(plans_.begin(), plans_.end(), [&](const auto& plan) { return plan.first == key; });
    if (at != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, at);
    } else {
      plans_.emplace_front(key, std::make_shared<Entry>());
      if (plans_.size() > entries_) plans_.pop_back();
    }
    entry = plans_.front().second;
  }
  std::lock_guard building(entry->building);
  if (entry->stage) {
    counters_.hits.fetch_add(1, std::memory_order_relaxed);
    return entry->stage;
  }
  counters_.misses.fetch_add(1, std::memory_order_relaxed);
  Result<plan::StagePtr> made = build();
  if (made.ok()) entry->stage = *made;
  return made;
}

uint64_t PlanCache::size() const {
  std::lock_guard lock(mutex_);
  return plans_.size();
}

}  // namespace belay::schedule
