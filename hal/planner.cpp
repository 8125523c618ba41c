#include "hal/planner.h"

#include "hal/hal.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace belay::hal {
namespace {

Status wrong(std::string text) { return {Code::kInvalidArgument, "Plan request: " + std::move(text)}; }

std::string buffer_text(const belay_plan_req& req, const belay_plan_result& result, uint64_t i) {
  return "buffer " + std::to_string(i) + " (" + std::to_string(req.bytes[i]) + " bytes at " +
         std::to_string(result.offset[i]) + (req.arena ? ", arena " + std::to_string(req.arena[i]) : "") +
         ")";
}

uint32_t arena_of(const belay_plan_req& req, uint64_t i) { return req.arena ? req.arena[i] : 0; }
uint64_t align_of(const belay_plan_req& req, uint64_t i) { return req.align ? req.align[i] : 64; }
bool overlap(const belay_plan_req& req, const belay_plan_result& r, uint64_t a, uint64_t b) {
  return req.bytes[a] && req.bytes[b] && arena_of(req, a) == arena_of(req, b) &&
         r.offset[a] < r.offset[b] + req.bytes[b] && r.offset[b] < r.offset[a] + req.bytes[a];
}

// A lifetime begins or ends. At one step ends come first: a lifetime ends just before its last step.
struct Change {
  uint64_t step;
  bool begins;
  uint32_t buffer;
  bool operator<(const Change& other) const {
    return std::tie(step, begins, buffer) < std::tie(other.step, other.begins, other.buffer);
  }
};

std::vector<Change> changes_of(const belay_plan_req& req) {
  std::vector<Change> changes;
  changes.reserve(2 * req.interval_first[req.count]);
  for (uint64_t i = 0; i < req.count; ++i) {
    if (req.bytes[i] == 0) continue;
    for (uint64_t k = req.interval_first[i]; k < req.interval_first[i + 1]; ++k) {
      if (req.intervals[k].begin == req.intervals[k].end) continue;
      changes.push_back({req.intervals[k].begin, true, uint32_t(i)});
      changes.push_back({req.intervals[k].end, false, uint32_t(i)});
    }
  }
  std::sort(changes.begin(), changes.end());
  return changes;
}

// The maximum of live bytes of each arena.
std::vector<uint64_t> lower_bounds(const belay_plan_req& req, const std::vector<Change>& changes) {
  std::vector<uint64_t> live(req.arena_count), most(req.arena_count);
  for (const Change& change : changes) {
    uint64_t& bytes = live[arena_of(req, change.buffer)];
    bytes += change.begins ? req.bytes[change.buffer] : -req.bytes[change.buffer];
    most[arena_of(req, change.buffer)] = std::max(most[arena_of(req, change.buffer)], bytes);
  }
  return most;
}

// What lives at once ends below 2^63; worth looking for only where all buffers together do not.
Status check_sum(const belay_plan_req& req) {
  uint64_t all = 0;
  for (uint64_t i = 0; i < req.count && all <= uint64_t(INT64_MAX); ++i) all += req.bytes[i];
  if (all <= uint64_t(INT64_MAX)) return {};
  std::vector<uint64_t> live(req.arena_count);
  for (const Change& change : changes_of(req)) {
    const uint32_t arena = arena_of(req, change.buffer);
    live[arena] += change.begins ? req.bytes[change.buffer] : -req.bytes[change.buffer];
    if (live[arena] > uint64_t(INT64_MAX))
      return wrong("the buffers of arena " + std::to_string(arena) + " that live at step " +
                   std::to_string(change.step) + " have " + std::to_string(live[arena]) +
                   " bytes together, want less than 2^63.");
  }
  return {};
}

}  // namespace

Status check_plan_request(const belay_plan_req& req) {
  if (req.count > UINT32_MAX)
    return wrong("count is " + std::to_string(req.count) + ", want less than 2^32.");
  if (req.arena_count == 0) return wrong("arena_count is 0, want 1 or more.");
  if (!req.interval_first) return wrong("interval_first is NULL.");
  if (req.count && !req.bytes) return wrong("bytes is NULL.");
  if (req.interval_first[0] != 0)
    return wrong("interval_first[0] is " + std::to_string(req.interval_first[0]) + ", want 0.");
  if (req.conflict_count && !req.conflicts) return wrong("conflicts is NULL.");
  if (req.in_place_count && !req.in_place) return wrong("in_place is NULL.");
  // All of it before any interval is read: the last is how many there are.
  for (uint64_t i = 0; i < req.count; ++i)
    if (const uint64_t first = req.interval_first[i], last = req.interval_first[i + 1]; last < first)
      return wrong("buffer " + std::to_string(i) + " has its intervals from " + std::to_string(first) + " to " +
                   std::to_string(last) + "; want a list that grows.");
  for (uint64_t i = 0; i < req.count; ++i) {
    const auto of = [&](const std::string& text) {
      return wrong("buffer " + std::to_string(i) + " " + text);
    };
    const uint64_t first = req.interval_first[i], last = req.interval_first[i + 1];
    if (last > first && !req.intervals) return wrong("intervals is NULL.");
    for (uint64_t k = first; k < last; ++k) {
      if (req.intervals[k].begin > req.intervals[k].end ||
          (k > first && req.intervals[k].begin < req.intervals[k - 1].end))
        return of("has lifetimes that are not sorted and disjoint, see interval " +
                  std::to_string(k - first) + ": " + std::to_string(req.intervals[k].begin) + " to " +
                  std::to_string(req.intervals[k].end) + ".");
    }
    if (!std::has_single_bit(align_of(req, i)))
      return of("has align " + std::to_string(align_of(req, i)) + ", want a power of two.");
    if (req.bytes[i] > uint64_t(INT64_MAX))
      return of("has " + std::to_string(req.bytes[i]) + " bytes, want less than 2^63.");
    if (arena_of(req, i) >= req.arena_count)
      return of("is in arena " + std::to_string(arena_of(req, i)) + "; there are " +
                std::to_string(req.arena_count) + ".");
    if (req.fixed_offset && req.fixed_offset[i] != BELAY_OFFSET_FREE) {
      if (req.fixed_offset[i] % align_of(req, i))
        return of("is fixed at " + std::to_string(req.fixed_offset[i]) + ", which is not aligned to " +
                  std::to_string(align_of(req, i)) + ".");
      if (req.fixed_offset[i] + req.bytes[i] < req.bytes[i]) return of("is fixed so that it ends past 2^64.");
    }
  }
  const auto check_pairs = [&](const belay_pair* pairs, uint64_t count, const char* name) -> Status {
    for (uint64_t i = 0; i < count; ++i)
      if (pairs[i].first >= req.count || pairs[i].second >= req.count)
        return wrong(std::string(name) + "[" + std::to_string(i) + "] is (" + std::to_string(pairs[i].first) +
                     ", " + std::to_string(pairs[i].second) + "); there are " + std::to_string(req.count) +
                     " buffers.");
    return {};
  };
  BELAY_TRY(check_pairs(req.conflicts, req.conflict_count, "conflicts"));
  BELAY_TRY(check_pairs(req.in_place, req.in_place_count, "in_place"));
  return check_sum(req);
}

Status check_plan_lists(const belay_plan_req& req, const belay_plan_result& result) {
  const auto null = [](const char* list) {
    return wrong("the result's list " + std::string(list) + " is NULL.");
  };
  if (req.count && !result.offset) return null("offset");
  if (!result.peak) return null("peak");
  return result.lower_bound ? Status() : null("lower_bound");
}

Status check_plan(const belay_plan_req& req, const belay_plan_result& result) {
  const auto bad = [&](std::string text) { return Status(Code::kInternal, std::move(text)); };
  std::vector<uint64_t> ends(req.arena_count);
  for (uint64_t i = 0; i < req.count; ++i) {
    if (req.bytes[i] == 0) continue;
    const uint64_t offset = result.offset[i];
    if (offset + req.bytes[i] < offset) return bad(buffer_text(req, result, i) + " ends past 2^64");
    if (offset % align_of(req, i))
      return bad(buffer_text(req, result, i) + " is not aligned to " + std::to_string(align_of(req, i)));
    if (req.fixed_offset && req.fixed_offset[i] != BELAY_OFFSET_FREE && req.fixed_offset[i] != offset)
      return bad(buffer_text(req, result, i) + " was fixed at " + std::to_string(req.fixed_offset[i]));
    ends[arena_of(req, i)] = std::max(ends[arena_of(req, i)], offset + req.bytes[i]);
  }
  const std::vector<Change> changes = changes_of(req);
  const std::vector<uint64_t> least = lower_bounds(req, changes);
  for (uint64_t a = 0; a < req.arena_count; ++a) {
    if (result.peak[a] < ends[a])
      return bad("the peak of arena " + std::to_string(a) + " is said to be " +
                 std::to_string(result.peak[a]) + ", but a buffer ends at " + std::to_string(ends[a]));
    if (result.lower_bound[a] > std::max(least[a], ends[a]))
      return bad("the lower bound of arena " + std::to_string(a) + " is said to be " +
                 std::to_string(result.lower_bound[a]) + ", but at most " + std::to_string(least[a]) +
                 " bytes live at once");
  }

  // A pair may share an offset where one is made from the other in place: there their lifetimes touch.
  std::set<std::pair<uint32_t, uint32_t>> in_place;
  for (uint64_t i = 0; i < req.in_place_count; ++i)
    in_place.insert(std::minmax(req.in_place[i].first, req.in_place[i].second));
  const auto allowed = [&](uint32_t a, uint32_t b) {
    return result.offset[a] == result.offset[b] && in_place.contains(std::minmax(a, b));
  };
  // Live buffers by offset. As they do not overlap, one that is added can meet only its neighbours; a pair in
  // place shares an offset, so those are compared as a run.
  std::vector<std::multimap<uint64_t, uint32_t>> live(req.arena_count);
  for (const Change& change : changes) {
    auto& arena = live[arena_of(req, change.buffer)];
    const uint64_t offset = result.offset[change.buffer];
    if (!change.begins) {
      for (auto [at, end] = arena.equal_range(offset); at != end; ++at)
        if (at->second == change.buffer) {
          arena.erase(at);
          break;
        }
      continue;
    }
    const auto meets = [&](uint32_t other) {
      return overlap(req, result, change.buffer, other) && !allowed(change.buffer, other);
    };
    const auto report = [&](uint32_t other) {
      return bad(buffer_text(req, result, change.buffer) + " and " + buffer_text(req, result, other) +
                 " overlap, but both live at step " + std::to_string(change.step));
    };
    auto at = arena.lower_bound(offset);
    for (auto next = at; next != arena.end() && next->first < offset + req.bytes[change.buffer]; ++next)
      if (meets(next->second)) return report(next->second);
    if (at != arena.begin()) {
      const uint64_t before = std::prev(at)->first;
      for (auto [same, end] = arena.equal_range(before); same != end; ++same)
        if (meets(same->second)) return report(same->second);
    }
    arena.emplace(offset, change.buffer);
  }
  for (uint64_t i = 0; i < req.conflict_count; ++i) {
    const uint32_t a = req.conflicts[i].first, b = req.conflicts[i].second;
    if (a != b && overlap(req, result, a, b))
      return bad(buffer_text(req, result, a) + " and " + buffer_text(req, result, b) +
                 " overlap, but they conflict");
  }
  return {};
}

Status plan_apart(const belay_plan_req& req, belay_plan_result& result) {
  std::vector<uint64_t> ends(req.arena_count);
  const auto fixed = [&](uint64_t i) { return req.fixed_offset && req.fixed_offset[i] != BELAY_OFFSET_FREE; };
  for (uint64_t i = 0; i < req.count; ++i) {
    if (!fixed(i)) continue;
    result.offset[i] = req.fixed_offset[i];
    ends[arena_of(req, i)] = std::max(ends[arena_of(req, i)], result.offset[i] + req.bytes[i]);
  }
  for (uint64_t i = 0; i < req.count; ++i) {
    if (fixed(i)) continue;
    uint64_t& end = ends[arena_of(req, i)];
    const uint64_t mask = align_of(req, i) - 1, offset = (end + mask) & ~mask;
    if (offset < end || offset + req.bytes[i] < offset)
      return {Code::kResourceExhausted, "Plan request: the buffers together have more than 2^64 bytes."};
    result.offset[i] = offset;
    end = offset + req.bytes[i];
  }
  const std::vector<uint64_t> least = lower_bounds(req, changes_of(req));
  std::copy(ends.begin(), ends.end(), result.peak);
  std::copy(least.begin(), least.end(), result.lower_bound);
  result.optimal = ends == least;
  return {};
}

Status Planner::plan(const belay_plan_req& req, belay_plan_result& result) {
  BELAY_TRY(check_plan_request(req));
  BELAY_TRY(check_plan_lists(req, result));
  for (const NamedObject& policy : policies_) {
    const auto& vt = *static_cast<const belay_memory_policy_vt*>(policy.object->table);
    if (!(vt.serves(policy.object) & BELAY_POLICY_PLAN)) continue;
    if (!BELAY_HAS(&vt, belay_memory_policy_vt, plan)) {
      hal_.host().misbehaved(policy.plugin, "serves PLAN, but its slot is null");
      continue;
    }
    const belay_status raw = vt.plan(policy.object, &req, &result);
    if (raw != BELAY_OK) {
      Status status = hal_.take(raw, policy.plugin, "plan");
      if (status.code() == Code::kDeclined || status.code() == Code::kUnimplemented) continue;
      return std::move(status).while_doing("planning memory with policy '" + policy.name + "'");
    }
    Status checked = check_plan(req, result);
    if (checked.ok()) return {};
    hal_.host().misbehaved(policy.plugin, "wrong plan: " + checked.message());
    return {Code::kInternal, "Memory policy '" + policy.name + "' gave a wrong plan: " + checked.message() +
                                 ". Take it out of [memory] policies and report this."};
  }
  return plan_apart(req, result);
}

}  // namespace belay::hal
