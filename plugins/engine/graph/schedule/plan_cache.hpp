// schedule/plan_cache.hpp: the plans of one executable, by what was seen where they begin.
#pragma once

#include "plan/stage.hpp"

#include <atomic>
#include <functional>
#include <list>
#include <unordered_map>
#include <unordered_set>

namespace belay::schedule {

struct PlanCounters {
  std::atomic<uint64_t> hits{0}, misses{0};
};

// Plans form trees: the roots are the first stages of graphs, below a stage are the stages that continue it.
// Keeps at most `entries` below each place, and `bytes` in all (0: not bounded); the least recently used go,
// and with a stage all that continue it. Two threads that want two plans do not wait for each other, two that
// want the same one plan it once. A plan in use stays alive with its users.
class PlanCache {
 public:
  PlanCache(uint64_t entries, uint64_t bytes, PlanCounters& counters)
      : entries_(entries ? entries : 1), most_bytes_(bytes), counters_(counters) {}

  // `place`: root_of(graph), or the id of the stage that ended. `build` gets the latest plan of the place, or
  // null: it may begin from that.
  using Build = std::function<Result<plan::StagePtr>(const plan::Stage* like)>;
  Result<plan::StagePtr> find(uint64_t place, const std::string& key, const Build& build);
  static uint64_t root_of(ir::GraphId graph) { return kRoots + graph; }

  uint64_t size() const;
  uint64_t bytes() const;

 private:
  static constexpr uint64_t kRoots = uint64_t{1} << 63;  // above the ids of stages
  struct Building {
    std::mutex mutex;
    plan::StagePtr stage;
  };
  struct Entry {
    uint64_t place;
    std::string key;
    std::shared_ptr<Building> plan;
    uint64_t stage = 0, bytes = 0;  // of the plan, when it is there
  };
  using Entries = std::list<Entry>;
  struct Place {
    std::unordered_map<std::string, Entries::iterator> entries;
    plan::StagePtr latest;  // of those
  };

  void drop(Entries::iterator entry, std::vector<std::shared_ptr<Building>>& dropped);
  void shrink(std::vector<std::shared_ptr<Building>>& dropped);

  const uint64_t entries_, most_bytes_;
  PlanCounters& counters_;
  mutable std::mutex mutex_;
  Entries plans_;                               // the latest first
  std::unordered_map<uint64_t, Place> places_;  // none is empty
  std::unordered_set<uint64_t> stages_;         // that are kept: only these have continuations
  uint64_t bytes_ = 0;
};

}  // namespace belay::schedule
