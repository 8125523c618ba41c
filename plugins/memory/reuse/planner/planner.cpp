#include "planner/planner.hpp"

#include "planner/crises.hpp"
#include "planner/mender.hpp"
#include "planner/placer.hpp"
#include "planner/skyline.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <string>

namespace belay::reuse {
namespace {

using Clock = std::chrono::steady_clock;

// Above these numbers the exact search takes longer than it is worth.
constexpr size_t kExactBuffers = 2048, kExactEntries = size_t{1} << 20;
constexpr size_t kLightFrom = 4096;         // buffers: more are parted into heavy and light ones
constexpr uint64_t kMostBytes = INT64_MAX;  // of an arena

struct Traits {
  double bytes, life, first;
  double crisis;  // number of the moment that it was alive at, in the order of need
};

// Which buffer is placed earlier: the one with the larger key.
struct Rule {
  double (*key)(const Traits& of);
  Fit fit;
};

double class_of(double value) { return std::floor(std::log2(value)); }

// None is best for all; these are, each for some, the best of those tried on published problems.
constexpr Rule kRules[] = {
    {[](const Traits& of) { return class_of(of.bytes) * 1e9 - of.crisis; }, Fit::kLowest},
    {[](const Traits& of) { return of.bytes; }, Fit::kTightest},
    {[](const Traits& of) { return std::floor(std::log2(of.bytes) / 3) * 1e15 + of.life; }, Fit::kTightest},
    {[](const Traits& of) { return class_of(of.life) * 1e15 + of.bytes; }, Fit::kTightest},
    {[](const Traits& of) { return of.bytes * of.life; }, Fit::kLowest},
    {[](const Traits& of) { return std::sqrt(of.bytes) * of.life; }, Fit::kTightest},
    {[](const Traits& of) { return of.life; }, Fit::kTightest},
    {[](const Traits& of) { return -of.first; }, Fit::kTightest},
};

struct Limits {
  Clock::time_point deadline;
  Clock::time_point rules_until;  // where there is much to do: no further rule from then on
  bool timed = false;   // else a fixed amount of work
  uint64_t target = 0;  // bytes at which to stop
  const uint32_t* cancel = nullptr;
  uint64_t looks = 0;  // at pairs of buffers, of one rule

  bool cancelled() const { return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED); }
  bool over() const { return cancelled() || (timed && Clock::now() >= deadline); }
};

class Search {
 public:
  Search(const Arena& arena, const Limits& limits, uint64_t seed)
      : arena_(arena), limits_(limits), placer_(arena), random_(seed ^ kSeed) {
    best_.peak = UINT64_MAX;
  }

  Placement run() {
    part_light();
    try_rules();
    const bool exact = can_search_exactly();
    if (!light_.empty() || (!exact && !enough())) mend(limits_.timed && !exact ? UINT64_MAX : quick_looks());
    if (exact && !enough()) search_exactly();
    if (limits_.timed && exact && !enough()) mend(UINT64_MAX);
    return std::move(best_);
  }
  bool proved() const { return proved_; }

 private:
  bool enough() const { return best_.peak <= std::max(arena_.lower_bound, limits_.target); }
  bool keep(Placement made) {
    if (made.peak >= best_.peak) return false;
    best_ = std::move(made);
    return true;
  }

  // Small and short ones matter little and are most: they come last.
  void part_light() {
    const auto& buffers = arena_.buffers;
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < buffers.size(); ++i)
      (buffers[i].first < buffers[i].last ? all : idle_).push_back(i);
    if (all.size() <= kLightFrom) {
      heavy_ = std::move(all);
      return;
    }
    const auto area = [&](uint32_t i) { return double(buffers[i].bytes) * double(buffers[i].life); };
    std::vector<double> areas;
    for (const uint32_t i : all) areas.push_back(area(i));
    const double total = std::accumulate(areas.begin(), areas.end(), 0.0);
    std::sort(areas.begin(), areas.end(), std::greater<>());
    double sum = 0, least = 0;
    for (size_t k = 0; k < areas.size() && (sum < 0.995 * total || k < kLightFrom / 2); ++k)
      sum += least = areas[k];
    // Those that live longest first; numbers are cheaper to sort than what they stand for.
    std::vector<uint64_t> light;
    for (const uint32_t i : all)
      if (area(i) >= least || buffers[i].bytes > arena_.lower_bound / 1000 ||
          buffers[i].fixed != BELAY_OFFSET_FREE)
        heavy_.push_back(i);
      else
        light.push_back((UINT32_MAX - std::min<uint64_t>(buffers[i].life, UINT32_MAX)) << 32 | i);
    std::sort(light.begin(), light.end());
    for (const uint64_t key : light) light_.push_back(uint32_t(key));
  }

  std::vector<uint32_t> ordered(const std::vector<double>& keys) const {
    std::vector<uint32_t> order = heavy_;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return keys[a] != keys[b] ? keys[a] > keys[b] : arena_.buffers[a].align > arena_.buffers[b].align;
    });
    order.insert(order.end(), idle_.begin(), idle_.end());
    return order;
  }

  void try_rules() {
    const std::vector<uint32_t> crises = crises_of(arena_, heavy_);
    for (const Rule& rule : kRules) {
      std::vector<double> keys(arena_.buffers.size());
      for (const uint32_t i : heavy_) {
        const Buffer& b = arena_.buffers[i];
        keys[i] = rule.key({double(b.bytes), double(b.life), double(b.first), double(crises[i])});
      }
      const std::vector<uint32_t> order = ordered(keys);
      // The first runs to its end whatever the budget: what is cut lies on top, far worse than what is not.
      const auto& stop = &rule == kRules ? cancelled_ : over_;
      keep(placer_.run(order, rule.fit, best_.peak, limits_.looks, stop));
      if (enough() || limits_.over()) return;
      // Where there is much to do, what makes a placement better is worth more than another.
      const bool much = heavy_.size() > kLightFrom;
      if (much && (limits_.timed ? Clock::now() >= limits_.rules_until : &rule - kRules >= 1)) return;
    }
  }

  // Buffers that are placed as one: each alone, or a chain of which each is made in place from the one
  // before.
  std::vector<std::vector<uint32_t>> groups() const {
    const auto& buffers = arena_.buffers;
    std::vector<uint8_t> follows(buffers.size());
    std::vector<uint32_t> next(buffers.size(), UINT32_MAX);
    for (const uint32_t i : heavy_)
      for (const uint32_t other : arena_.partners(i))
        if (buffers[i].first < buffers[other].first && buffers[i].bytes == buffers[other].bytes &&
            next[i] == UINT32_MAX && !follows[other]) {
          next[i] = other;
          follows[other] = 1;
        }
    std::vector<std::vector<uint32_t>> all;
    for (const uint32_t i : heavy_) {
      if (follows[i]) continue;
      all.emplace_back();
      for (uint32_t at = i; at != UINT32_MAX; at = next[at]) all.back().push_back(at);
    }
    return all;
  }

  // When one of a group lives, as disjoint ranges of moments.
  std::vector<std::pair<uint32_t, uint32_t>> lives_of(const std::vector<uint32_t>& group) const {
    std::vector<std::pair<uint32_t, uint32_t>> all;
    for (const uint32_t i : group)
      arena_.each_life(i, [&](uint32_t first, uint32_t last) {
        if (!all.empty() && first <= all.back().second)
          all.back().second = std::max(all.back().second, last);
        else
          all.emplace_back(first, last);
      });
    return all;
  }

  bool can_search_exactly() const {
    return arena_.lifetimes_only() && !heavy_.empty() && heavy_.size() + light_.size() <= kExactBuffers;
  }

  // As spans over the largest sets that live at once, where nothing but lifetimes keeps buffers apart.
  void search_exactly() {
    const std::vector<std::vector<uint32_t>> together = groups();
    uint64_t align = 1, unit = 0;
    for (const uint32_t i : heavy_) align = std::max(align, arena_.buffers[i].align);
    for (const uint32_t i : heavy_) unit = std::gcd(unit, align_up(arena_.buffers[i].bytes, align));
    // Offsets in units must stay below 2^30.
    while (best_.peak / unit >= uint64_t{1} << 29) unit *= 2;
    const auto in_units = [&](uint64_t bytes) { return int32_t((align_up(bytes, align) + unit - 1) / unit); };

    // A section ends where something ends after something began.
    std::vector<uint8_t> begins(arena_.moments + 1), ends(arena_.moments + 1);
    for (const auto& group : together)
      for (const auto& [first, last] : lives_of(group)) begins[first] = ends[last] = 1;
    std::vector<int32_t> section(arena_.moments + 1);  // sections that end at or before the moment
    bool begun = false;
    for (uint32_t m = 0; m <= arena_.moments; ++m) {
      section[m] = m ? section[m - 1] : 0;
      if (ends[m] && begun) {
        ++section[m];
        begun = false;
      }
      begun = begun || begins[m];
    }
    const int32_t sections = section[arena_.moments];
    const auto least_of = [&](const std::vector<SpanBuffer>& of) {
      std::vector<int64_t> live(size_t(sections) + 1, 0);
      for (const SpanBuffer& s : of)
        for (const auto& [first, end] : s.spans) {
          live[size_t(first)] += s.size;
          live[size_t(end)] -= s.size;
        }
      std::partial_sum(live.begin(), live.end(), live.begin());
      return std::max(*std::max_element(live.begin(), live.end()), int64_t(limits_.target / unit));
    };
    std::vector<SpanBuffer> spans;
    size_t entries = 0;
    bool exact = arena_.plain();
    for (const auto& group : together) {
      SpanBuffer& span = spans.emplace_back();
      span.size = in_units(arena_.buffers[group.front()].bytes);
      for (const auto& [first, last] : lives_of(group)) {
        span.spans.emplace_back(section[first], section[last]);
        entries += size_t(section[last] - section[first]);
      }
      exact = exact && uint64_t(span.size) * unit == arena_.buffers[group.front()].bytes;
    }
    if (entries > kExactEntries) return;
    // Searches that learn apart: one at the least that may be possible, and one that goes down from the best,
    // in steps that grow where they succeed and shrink where they fail. Where there are gaps these take them
    // for life, which is easier, and a third goes below that.
    struct Side {
      Skyline skyline;
      const bool down;
      int64_t& least;
      int64_t step = INT64_MAX;  // at most half of the way
      uint64_t attempts = 0, failures = 0;
    };
    int64_t least = least_of(spans), least_without = least;
    std::vector<SpanBuffer> whole = spans;
    if (arena_.gaps) {
      for (SpanBuffer& s : whole) s.spans = {{s.spans.front().first, s.spans.back().second}};
      least_without = least_of(whole);
    }
    std::deque<Side> sides;
    sides.push_back({{whole, sections, random_()}, false, least_without});
    sides.push_back({{whole, sections, random_()}, true, least_without});
    if (arena_.gaps) sides.push_back({{spans, sections, random_()}, true, least});
    const auto keep_found = [&](const Skyline& skyline) {
      Placement made;
      made.offsets.assign(arena_.buffers.size(), 0);
      for (const uint32_t i : idle_) made.peak = std::max(made.peak, arena_.buffers[i].bytes);
      for (size_t k = 0; k < together.size(); ++k)
        for (const uint32_t i : together[k]) {
          made.offsets[i] = uint64_t(skyline.offsets()[k]) * unit;
          made.peak = std::max(made.peak, made.offsets[i] + arena_.buffers[i].bytes);
        }
      keep(std::move(made));
    };
    int64_t& last = arena_.gaps ? least : least_without;
    for (uint64_t attempts = 0; int64_t(best_.peak / unit) > last && !over_(); ++attempts) {
      if (!limits_.timed && attempts >= kUntimedAttempts) return;
      // The one that has worked least; where the least is possible it is mostly found soon.
      const uint64_t share = sides[0].attempts < kBottomFirst ? 8 : 1;
      Side* side = nullptr;
      uint64_t worked = UINT64_MAX;
      for (Side& one : sides) {
        const uint64_t work = one.skyline.work() * (one.down ? share : 1);
        if (int64_t(best_.peak / unit) <= one.least || work >= worked) continue;
        side = &one;
        worked = work;
      }
      const auto best = int64_t((best_.peak - 1) / unit);
      side->step = std::clamp<int64_t>(side->step, 1, std::max<int64_t>(1, (best + 1 - side->least) / 2));
      const int64_t capacity = side->down ? best + 1 - side->step : side->least;
      switch (side->skyline.attempt(int32_t(capacity), luby(++side->attempts) * spans.size(), over_)) {
        case Skyline::Outcome::kFound:
          keep_found(side->skyline);
          if (side->down) side->step *= 2;
          side->failures = 0;
          continue;
        case Skyline::Outcome::kNone:
          side->least = capacity + 1;
          break;
        case Skyline::Outcome::kStopped:
          break;
      }
      if (!side->down || ++side->failures < kPatience) continue;
      side->step /= 4;
      side->failures = 0;
    }
    proved_ = exact && int64_t(best_.peak / unit) <= last && !limits_.target;
  }

  static uint64_t luby(uint64_t i) {
    for (;;) {
      const uint64_t power = std::bit_ceil(i + 1);
      if (power == i + 1) return power / 2;
      i -= power / 2 - 1;
    }
  }

  uint64_t quick_looks() const { return std::min(kMostQuickLooks, kQuickLooks * arena_.buffers.size()); }

  void mend(uint64_t looks) {
    std::vector<uint32_t> placed = heavy_;
    placed.insert(placed.end(), idle_.begin(), idle_.end());
    Mender mender(arena_, std::move(best_), placed);
    const uint64_t goal = std::max(arena_.lower_bound, limits_.target);
    // What is easier without the light ones is done without them.
    if (!light_.empty()) {
      mender.lower(goal, limits_.timed ? kMostQuickLooks : quick_looks(), over_);
      mender.add(light_, limits_.looks, over_);
    }
    mender.lower(goal, looks, over_);
    best_ = mender.placement();
  }

  static constexpr uint64_t kUntimedAttempts = 3, kPatience = 3, kBottomFirst = 32;
  static constexpr uint64_t kQuickLooks = 16, kMostQuickLooks = uint64_t{1} << 23;
  static constexpr uint64_t kSeed = 227;  // with the usual seed, 1, the published problems are solved soonest

  const Arena& arena_;
  const Limits limits_;
  const std::function<bool()> over_ = [this] { return limits_.over(); };
  const std::function<bool()> cancelled_ = [this] { return limits_.cancelled(); };
  Placer placer_;
  std::mt19937_64 random_;
  std::vector<uint32_t> heavy_, light_;
  std::vector<uint32_t> idle_;  // never alive
  Placement best_;
  bool proved_ = false;
};

Status check(const belay_plan_req& req) {
  const auto wrong = [](uint64_t i, const std::string& what) {
    return Status(Code::kInvalidArgument, "Buffer " + std::to_string(i) + " " + what + ".");
  };
  std::vector<uint64_t> total(req.arena_count, 0);  // of all buffers one after another
  std::vector<uint64_t> fixed_end(req.arena_count, 0);
  for (uint64_t i = 0; i < req.count; ++i) {
    const uint64_t align = req.align ? req.align[i] : 64;
    if (!std::has_single_bit(align))
      return wrong(i, "has align " + std::to_string(align) + ", want a power of two");
    const uint32_t arena = req.arena ? req.arena[i] : 0;
    if (arena >= req.arena_count)
      return wrong(i, "is in arena " + std::to_string(arena) + " of " + std::to_string(req.arena_count));
    // Even all of them one after another must have an address, and sums of bytes are also taken with a sign.
    uint64_t room = 0;
    if (__builtin_add_overflow(req.bytes[i], align, &room) ||
        __builtin_add_overflow(total[arena], room, &total[arena]) || total[arena] > kMostBytes)
      return wrong(i, "of " + std::to_string(req.bytes[i]) +
                          " bytes does not fit into 2^63 bytes with those before it");
    if (req.fixed_offset && req.fixed_offset[i] != BELAY_OFFSET_FREE) {
      if (req.fixed_offset[i] % align || req.fixed_offset[i] + req.bytes[i] < req.bytes[i])
        return wrong(i, "is fixed at " + std::to_string(req.fixed_offset[i]) + ", which does not suit it");
      fixed_end[arena] = std::max(fixed_end[arena], req.fixed_offset[i] + req.bytes[i]);
    }
  }
  for (uint64_t arena = 0; arena < req.arena_count; ++arena)
    if (uint64_t end = 0; __builtin_add_overflow(fixed_end[arena], total[arena], &end) || end > kMostBytes)
      return {Code::kInvalidArgument, "A buffer of arena " + std::to_string(arena) +
                                          " is fixed up to offset " + std::to_string(fixed_end[arena]) +
                                          ", above which the " + std::to_string(total[arena]) +
                                          " bytes of all buffers do not fit into 2^63 bytes."};
  return {};
}

}  // namespace

Status plan(const belay_plan_req& req, belay_plan_result& result) {
  BELAY_TRY(check(req));
  const auto begin = Clock::now();
  const auto budget = std::chrono::nanoseconds(std::min<uint64_t>(req.budget_ns, uint64_t{1} << 60));
  result.optimal = 1;
  for (uint32_t a = 0; a < req.arena_count; ++a) {
    const Arena arena(req, a);
    Limits limits;
    // The budget is shared out: an arena may use what those before it left.
    limits.deadline = begin + budget * (a + 1) / req.arena_count;
    limits.rules_until = Clock::now() + (limits.deadline - Clock::now()) / 8;
    limits.timed = req.budget_ns != 0;
    limits.looks = std::clamp<uint64_t>(req.budget_ns / 4, uint64_t{1} << 25, uint64_t{1} << 30);
    limits.target = req.capacity ? req.capacity[a] : 0;
    limits.cancel = req.cancel;
    Search search(arena, limits, req.seed);
    const Placement made = search.run();
    for (uint32_t i = 0; i < arena.buffers.size(); ++i) result.offset[arena.buffers[i].id] = made.offsets[i];
    result.peak[a] = made.peak;
    result.lower_bound[a] = arena.lower_bound;
    if (made.peak > arena.lower_bound && !search.proved()) result.optimal = 0;
  }
  return {};
}

}  // namespace belay::reuse
