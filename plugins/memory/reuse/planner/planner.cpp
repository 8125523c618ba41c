#include "planner/planner.hpp"

#include "planner/sweep.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace belay::reuse {
namespace {

using Clock = std::chrono::steady_clock;

// One arena's share of a request; buffers by their place in it.
struct Instance {
  struct Buffer {
    uint32_t id = 0;  // in the request
    uint64_t bytes = 0, align = 1, fixed = BELAY_OFFSET_FREE;
    uint64_t begin = 0, life = 0;  // first step, number of steps
    uint64_t end = 0;              // one past the last step
    std::vector<uint32_t> meets;   // buffers that must not overlap this one
    std::vector<uint32_t> pairs;   // of these: may share this one's offset
  };
  std::vector<Buffer> buffers;
  uint64_t lower_bound = 0;
  bool crowded = false;  // so many buffers meet that `meets` is left empty
};

struct Placement {
  std::vector<uint64_t> offsets;
  uint64_t peak = 0;
};

struct Change {
  uint64_t step;
  bool begins;
  uint32_t buffer;
};

// Begins and ends of all lives in the order of time. At one step ends come first: an interval ends just
// before its last step.
std::vector<Change> changes_of(const belay_plan_req& req, Instance& at) {
  std::vector<Change> changes;
  for (uint32_t i = 0; i < at.buffers.size(); ++i) {
    Instance::Buffer& buffer = at.buffers[i];
    for (uint64_t k = req.interval_first[buffer.id]; k < req.interval_first[buffer.id + 1]; ++k) {
      const belay_interval& interval = req.intervals[k];
      if (interval.begin >= interval.end) continue;
      buffer.begin = buffer.life ? std::min(buffer.begin, interval.begin) : interval.begin;
      buffer.end = std::max(buffer.end, interval.end);
      buffer.life += interval.end - interval.begin;
      changes.push_back({interval.begin, true, i});
      changes.push_back({interval.end, false, i});
    }
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tie(a.step, a.begins, a.buffer) < std::tie(b.step, b.begins, b.buffer);
  });
  return changes;
}

// Finds the lower bound and, where they are no more than `most` pairs, which buffers meet.
void find_meetings(const belay_plan_req& req, Instance& at, uint64_t most) {
  const std::vector<Change> changes = changes_of(req, at);
  uint64_t bytes = 0, alive = 0, pairs = 0;
  for (const Change& change : changes) {
    if (change.begins) {
      pairs += alive++;
      bytes += at.buffers[change.buffer].bytes;
      at.lower_bound = std::max(at.lower_bound, bytes);
    } else {
      --alive;
      bytes -= at.buffers[change.buffer].bytes;
    }
  }
  at.crowded = pairs > most;
  if (at.crowded) return;
  std::vector<uint32_t> live;
  for (const Change& change : changes) {
    if (!change.begins) {
      const auto ended = std::find(live.begin(), live.end(), change.buffer);
      *ended = live.back();
      live.pop_back();
      continue;
    }
    for (const uint32_t other : live) {
      at.buffers[change.buffer].meets.push_back(other);
      at.buffers[other].meets.push_back(change.buffer);
    }
    live.push_back(change.buffer);
  }
}

Placement place_crowded(const Instance& at) {
  std::vector<SweepBuffer> buffers;
  std::vector<std::pair<uint32_t, uint32_t>> conflicts;
  for (uint32_t i = 0; i < at.buffers.size(); ++i) {
    const Instance::Buffer& buffer = at.buffers[i];
    buffers.push_back({buffer.bytes, buffer.align, buffer.begin, buffer.end, buffer.fixed});
    for (const uint32_t other : buffer.meets)
      if (i < other) conflicts.emplace_back(i, other);
  }
  Placement out;
  out.offsets = sweep(std::move(buffers), conflicts);
  for (uint32_t i = 0; i < at.buffers.size(); ++i)
    if (at.buffers[i].bytes) out.peak = std::max(out.peak, out.offsets[i] + at.buffers[i].bytes);
  return out;
}

// In-place pairs: both live in the step where one is made from the other, and only there may they overlap.
// The bound falls where such a pair meets, so it is found again with the smaller of the two counted once.
uint64_t bound_with_pairs(const belay_plan_req& req, const Instance& at) {
  std::vector<std::pair<uint64_t, uint64_t>> shared;  // (step, bytes that a pair may save there)
  for (uint32_t i = 0; i < at.buffers.size(); ++i)
    for (const uint32_t other : at.buffers[i].pairs)
      if (i < other) {
        const auto& a =
            at.buffers[i].begin < at.buffers[other].begin ? at.buffers[other] : at.buffers[i];  // the later
        shared.emplace_back(a.begin, std::min(at.buffers[i].bytes, at.buffers[other].bytes));
      }
  std::sort(shared.begin(), shared.end());
  std::vector<std::pair<uint64_t, int64_t>> changes;
  for (const Instance::Buffer& buffer : at.buffers)
    for (uint64_t k = req.interval_first[buffer.id]; k < req.interval_first[buffer.id + 1]; ++k) {
      changes.emplace_back(req.intervals[k].begin, int64_t(buffer.bytes));
      changes.emplace_back(req.intervals[k].end, -int64_t(buffer.bytes));
    }
  std::sort(changes.begin(), changes.end());
  uint64_t bound = 0;
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
    bound = std::max(bound, longer ? uint64_t(live) : now);
  }
  return bound;
}

// Places buffers in an order, each at the tightest gap that fits among those it must not overlap.
class Placer {
 public:
  explicit Placer(const Instance& instance) : at_(instance), done_(instance.buffers.size()) {}

  // Gives up (peak UINT64_MAX) as soon as the peak reaches `limit`.
  Placement run(const std::vector<uint32_t>& order, uint64_t limit) {
    Placement out;
    out.offsets.assign(at_.buffers.size(), 0);
    std::fill(done_.begin(), done_.end(), false);
    for (uint32_t i = 0; i < at_.buffers.size(); ++i)
      if (at_.buffers[i].fixed != BELAY_OFFSET_FREE) put(i, at_.buffers[i].fixed, out);
    for (const uint32_t i : order) {
      if (done_[i]) continue;
      put(i, find(i, out), out);
      if (out.peak >= limit) {
        out.peak = UINT64_MAX;
        return out;
      }
    }
    return out;
  }

 private:
  void put(uint32_t i, uint64_t offset, Placement& out) {
    out.offsets[i] = offset;
    done_[i] = true;
    if (at_.buffers[i].bytes) out.peak = std::max(out.peak, offset + at_.buffers[i].bytes);
  }

  uint64_t find(uint32_t i, const Placement& out) {
    const Instance::Buffer& buffer = at_.buffers[i];
    if (!buffer.bytes) return 0;
    // Over its input, or under its output, nothing more is needed.
    for (const uint32_t other : buffer.pairs)
      if (done_[other] && at_.buffers[other].bytes && fits(i, out.offsets[other], other, out))
        return out.offsets[other];
    taken_.clear();
    for (const uint32_t other : buffer.meets)
      if (done_[other] && at_.buffers[other].bytes)
        taken_.emplace_back(out.offsets[other], out.offsets[other] + at_.buffers[other].bytes);
    std::sort(taken_.begin(), taken_.end());
    uint64_t best = UINT64_MAX, best_gap = UINT64_MAX, end = 0;
    for (const auto& [from, to] : taken_) {
      const uint64_t offset = align_up(end, buffer.align);
      if (from >= offset && from - offset >= buffer.bytes && from - end < best_gap) {
        best = offset;
        best_gap = from - end;
      }
      end = std::max(end, to);
    }
    return best != UINT64_MAX ? best : align_up(end, buffer.align);
  }

  bool fits(uint32_t i, uint64_t offset, uint32_t partner, const Placement& out) const {
    const Instance::Buffer& buffer = at_.buffers[i];
    if (offset % buffer.align) return false;
    for (const uint32_t other : buffer.meets) {
      if (other == partner || !done_[other]) continue;
      if (out.offsets[other] < offset + buffer.bytes &&
          offset < out.offsets[other] + at_.buffers[other].bytes)
        return false;
    }
    return true;
  }

  const Instance& at_;
  std::vector<bool> done_;
  std::vector<std::pair<uint64_t, uint64_t>> taken_;
};

template <class Key>
std::vector<uint32_t> ordered(const Instance& at, Key key) {
  std::vector<uint32_t> order(at.buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return key(at.buffers[a]) < key(at.buffers[b]); });
  return order;
}

// The best of several orders; then the buffers that reach highest move forward in the order, one at a time,
// as long as there is budget and the bound is not reached.
Placement search(const Instance& at, uint64_t capacity, Clock::time_point deadline, uint64_t seed,
                 const uint32_t* cancel) {
  using B = Instance::Buffer;
  // Products in double: bytes times steps need not fit 64 bits.
  const std::vector<uint32_t> orders[] = {
      ordered(at, [](const B& b) { return std::tuple(~b.bytes, ~b.life, b.begin); }),
      ordered(at, [](const B& b) { return std::tuple(-double(b.bytes) * double(b.life), b.begin); }),
      ordered(at, [](const B& b) { return std::tuple(~b.life, ~b.bytes, b.begin); }),
      ordered(at, [](const B& b) { return std::tuple(b.begin, ~b.bytes); }),
      ordered(at, [](const B& b) { return std::tuple(~(b.begin + b.life), ~b.bytes); }),
      ordered(at,
              [](const B& b) {
                return std::tuple(-double(b.bytes) * double(b.bytes) * double(b.life), b.begin);
              }),
  };
  Placer placer(at);
  Placement best;
  best.peak = UINT64_MAX;
  std::vector<uint32_t> order;
  const auto enough = [&] { return best.peak <= std::max(at.lower_bound, capacity); };
  const auto stop = [&] { return enough() || (cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED)); };
  for (const std::vector<uint32_t>& candidate : orders) {
    Placement made = placer.run(candidate, best.peak);
    if (made.peak < best.peak) {
      best = std::move(made);
      order = candidate;
    }
    if (stop()) return best;
    if (&candidate != orders && Clock::now() >= deadline) return best;
  }
  if (at.buffers.size() < 3) return best;
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  while (!stop() && Clock::now() < deadline) {
    std::vector<uint32_t> next = order;
    // A buffer at the top has to come down: it, or one that it meets, is placed earlier.
    std::vector<uint32_t> top;
    for (uint32_t i = 0; i < at.buffers.size(); ++i)
      if (best.offsets[i] + at.buffers[i].bytes == best.peak) top.push_back(i);
    uint32_t moved = top[below(top.size())];
    if (const auto& meets = at.buffers[moved].meets; !meets.empty() && below(2))
      moved = meets[below(meets.size())];
    const auto from = std::find(next.begin(), next.end(), moved);
    const auto to = next.begin() + long(below(uint64_t(from - next.begin()) + 1));
    std::rotate(to, from, from + 1);
    if (below(4) == 0) std::swap(next[below(next.size())], next[below(next.size())]);
    Placement made = placer.run(next, best.peak + 1);  // equal is taken too: it leads out of flat places
    if (made.peak > best.peak) continue;
    best = std::move(made);
    order = std::move(next);
  }
  return best;
}

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
    // Even all of them one after another must have an address.
    uint64_t room = 0;
    if (__builtin_add_overflow(req.bytes[i], align, &room) ||
        __builtin_add_overflow(total[arena], room, &total[arena]))
      return wrong(i, "of " + std::to_string(req.bytes[i]) +
                          " bytes does not fit into 2^64 bytes with those before it");
    if (req.fixed_offset && req.fixed_offset[i] != BELAY_OFFSET_FREE) {
      if (req.fixed_offset[i] % align || req.fixed_offset[i] + req.bytes[i] < req.bytes[i])
        return wrong(i, "is fixed at " + std::to_string(req.fixed_offset[i]) + ", which does not suit it");
      fixed_end[arena] = std::max(fixed_end[arena], req.fixed_offset[i] + req.bytes[i]);
    }
  }
  for (uint64_t arena = 0; arena < req.arena_count; ++arena)
    if (uint64_t end = 0; __builtin_add_overflow(fixed_end[arena], total[arena], &end))
      return {Code::kInvalidArgument, "A buffer of arena " + std::to_string(arena) +
                                          " is fixed up to offset " + std::to_string(fixed_end[arena]) +
                                          ", above which the " + std::to_string(total[arena]) +
                                          " bytes of all buffers do not fit into 2^64 bytes."};
  return {};
}

}  // namespace

Status plan(const belay_plan_req& req, belay_plan_result& result) {
  BELAY_TRY(check(req));
  const auto begin = Clock::now();
  std::vector<Instance> arenas(req.arena_count);
  std::vector<uint32_t> local(req.count);
  for (uint32_t i = 0; i < req.count; ++i) {
    Instance& at = arenas[req.arena ? req.arena[i] : 0];
    local[i] = uint32_t(at.buffers.size());
    Instance::Buffer& buffer = at.buffers.emplace_back();
    buffer.id = i;
    buffer.bytes = req.bytes[i];
    buffer.align = req.align ? req.align[i] : 64;
    if (req.fixed_offset) buffer.fixed = req.fixed_offset[i];
  }
  // A pair costs some nanoseconds in each order that is tried, and 8 bytes.
  const uint64_t most = std::clamp<uint64_t>(req.budget_ns / 20, uint64_t{1} << 21, uint64_t{1} << 26);
  for (Instance& at : arenas) find_meetings(req, at, most);
  const auto arena_of = [&](uint32_t i) { return req.arena ? req.arena[i] : 0; };
  std::set<std::pair<uint32_t, uint32_t>> conflicts;
  for (uint64_t i = 0; i < req.conflict_count; ++i) {
    const uint32_t a = req.conflicts[i].first, b = req.conflicts[i].second;
    if (a == b || arena_of(a) != arena_of(b)) continue;
    conflicts.insert(std::minmax(a, b));
    arenas[arena_of(a)].buffers[local[a]].meets.push_back(local[b]);
    arenas[arena_of(a)].buffers[local[b]].meets.push_back(local[a]);
  }
  for (uint64_t i = 0; i < req.in_place_count; ++i) {
    const uint32_t a = req.in_place[i].first, b = req.in_place[i].second;
    if (a == b || arena_of(a) != arena_of(b) || conflicts.contains(std::minmax(a, b))) continue;
    // Only where they meet in nothing but the kernel's step; a longer common life would be spoilt by sharing.
    const uint64_t first = req.interval_first[a], last = req.interval_first[a + 1];
    if (first == last || req.interval_first[b] == req.interval_first[b + 1]) continue;
    if (req.intervals[last - 1].end != req.intervals[req.interval_first[b]].begin + 1) continue;
    Instance& at = arenas[arena_of(a)];
    at.buffers[local[a]].pairs.push_back(local[b]);
    at.buffers[local[b]].pairs.push_back(local[a]);
  }
  result.optimal = 1;
  const auto budget = std::chrono::nanoseconds(std::min<uint64_t>(req.budget_ns, uint64_t{1} << 60));
  for (uint64_t a = 0; a < arenas.size(); ++a) {
    Instance& at = arenas[a];
    for (Instance::Buffer& buffer : at.buffers) {
      std::sort(buffer.meets.begin(), buffer.meets.end());
      buffer.meets.erase(std::unique(buffer.meets.begin(), buffer.meets.end()), buffer.meets.end());
    }
    if (req.in_place_count) at.lower_bound = bound_with_pairs(req, at);
    // The budget is shared out: an arena may use what those before it left.
    const Placement made = at.crowded
                               ? place_crowded(at)
                               : search(at, req.capacity ? req.capacity[a] : 0,
                                        begin + budget * (a + 1) / arenas.size(), req.seed, req.cancel);
    for (uint32_t i = 0; i < at.buffers.size(); ++i) result.offset[at.buffers[i].id] = made.offsets[i];
    result.peak[a] = made.peak;
    result.lower_bound[a] = at.lower_bound;
    if (made.peak > at.lower_bound) result.optimal = 0;
  }
  return {};
}

}  // namespace belay::reuse
