#include "schedule/plan_cache.hpp"

#include <algorithm>

namespace belay::schedule {

// Plans that go are freed after the lock is given back: they end programs and kernels.
Result<plan::StagePtr> PlanCache::find(uint64_t place, const std::string& key, const Build& build) {
  std::shared_ptr<Building> plan;
  plan::StagePtr like;
  std::vector<std::shared_ptr<Building>> dropped;
  {
    std::unique_lock lock(mutex_);
    if (place < kRoots && !stages_.contains(place)) {  // it has gone; what continues it would stay for ever
      lock.unlock();
      counters_.misses.fetch_add(1, std::memory_order_relaxed);
      return build(nullptr);
    }
    Place& here = places_[place];
    like = here.latest;
    if (const auto at = here.entries.find(key); at != here.entries.end()) {
      plans_.splice(plans_.begin(), plans_, at->second);
    } else {
      if (here.entries.size() >= entries_) {
        const auto last = std::find_if(plans_.rbegin(), plans_.rend(),
                                       [&](const Entry& entry) { return entry.place == place; });
        drop(std::next(last).base(), dropped);
      }
      plans_.push_front({place, key, std::make_shared<Building>()});
      places_[place].entries.emplace(key, plans_.begin());
    }
    plan = plans_.front().plan;
  }
  std::lock_guard building(plan->mutex);
  if (plan->stage) {
    counters_.hits.fetch_add(1, std::memory_order_relaxed);
    return plan->stage;
  }
  counters_.misses.fetch_add(1, std::memory_order_relaxed);
  Result<plan::StagePtr> made = build(like.get());
  std::lock_guard lock(mutex_);
  const auto here = places_.find(place);
  if (here == places_.end()) return made;
  const auto at = here->second.entries.find(key);
  if (at == here->second.entries.end() || at->second->plan != plan) return made;  // it had to go meanwhile
  if (!made.ok()) {
    drop(at->second, dropped);  // the next one tries again
    return made;
  }
  plan->stage = here->second.latest = *made;
  at->second->stage = (*made)->id;
  at->second->bytes = (*made)->bytes;
  bytes_ += (*made)->bytes;
  stages_.insert((*made)->id);
  shrink(dropped);
  return made;
}

void PlanCache::drop(Entries::iterator entry, std::vector<std::shared_ptr<Building>>& dropped) {
  std::vector<Entries::iterator> all{entry};
  while (!all.empty()) {
    const Entries::iterator at = all.back();
    all.pop_back();
    if (const auto below = places_.find(at->stage); at->stage && below != places_.end())
      for (const auto& [key, child] : below->second.entries) all.push_back(child);
    const auto here = places_.find(at->place);
    here->second.entries.erase(at->key);
    if (here->second.latest && here->second.latest->id == at->stage) here->second.latest.reset();
    if (here->second.entries.empty()) places_.erase(here);
    bytes_ -= at->bytes;
    stages_.erase(at->stage);
    dropped.push_back(std::move(at->plan));
    plans_.erase(at);
  }
}

void PlanCache::shrink(std::vector<std::shared_ptr<Building>>& dropped) {
  while (most_bytes_ && bytes_ > most_bytes_ && plans_.size() > 1) {
    // What is being planned holds nothing yet, and the latest is about to be used.
    const auto last = std::find_if(plans_.rbegin(), std::prev(plans_.rend()),
                                   [](const Entry& entry) { return entry.bytes > 0; });
    if (last == std::prev(plans_.rend())) return;
    drop(std::next(last).base(), dropped);
  }
}

uint64_t PlanCache::size() const {
  std::lock_guard lock(mutex_);
  return plans_.size();
}

uint64_t PlanCache::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace belay::schedule
