#include "replay.hpp"

#include "failure.hpp"

#include <belay/runtime.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <span>

namespace belay::cli {
namespace {

using Op = AllocTrace::Op;

double thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) * 1e9 + double(now.tv_nsec);
}

// Which events are reached: those that lie `lag` rows back, and those that were waited for.
struct Reached {
  uint64_t row = 0, lag = 0, first_timeline = 1;
  std::vector<uint64_t> waited;

  bool reached(belay_event event) const {
    if (event.timeline < first_timeline || event.timeline - first_timeline >= waited.size()) return true;
    return (lag != kNeverReached && row >= lag && event.value <= row - lag) ||
           event.value <= waited[event.timeline - first_timeline];
  }
};

// The uses that end with each kReleaseUsed, one event of each stream. They follow from the trace alone, so that they are
// put together before the clock runs.
class SharedUses {
 public:
  SharedUses(const AllocTrace& trace, uint64_t first_timeline) {
    std::vector<std::vector<belay_event>> by_slot(trace.slots);
    uint64_t row_number = 0;
    for (const AllocTrace::Row& row : trace.rows) {
      const belay_event now{first_timeline + row.stream, ++row_number};
      if (row.op != Op::kUse && row.op != Op::kReleaseUsed) continue;
      // The row's stream has used the block up to now; of others it stays as it was.
      std::vector<belay_event>& uses = by_slot[row.slot];
      std::erase_if(uses, [&](const belay_event& use) { return use.timeline == now.timeline; });
      uses.push_back(now);
      if (row.op == Op::kUse) continue;
      events_.insert(events_.end(), uses.begin(), uses.end());
      ends_.push_back(events_.size());
      uses.clear();
    }
  }
  // Of the next such release.
  std::span<const belay_event> next() {
    const uint64_t begin = begin_;
    begin_ = ends_[next_++];
    return {events_.data() + begin, begin_ - begin};
  }

 private:
  std::vector<belay_event> events_;
  std::vector<uint64_t> ends_;  // in events_
  uint64_t next_ = 0, begin_ = 0;
};

// What the policy says against what it was told, with nothing of the policy's own: blocks that live in one
// place, ends of segments, alignment, and events that are not reached, not waited for and not of the block's
// timeline.
class Checker {
 public:
  Checker(const Reservation& reservation, const Reached& reached, uint64_t rounding)
      : reservation_(reservation), reached_(reached), rounding_(rounding) {}

  std::string place(uint32_t slot, uint64_t bytes, uint64_t align, uint64_t timeline, const belay_placed& out) {
    const uint64_t begin = out.offset, room = reservation_.bytes_of(out.segment);
    const std::string name =
        "the block at " + std::to_string(begin) + " of segment " + std::to_string(out.segment);
    if (bytes > room || begin > room - bytes)
      return name + " ends past the segment's " + std::to_string(room) + " bytes";
    if (begin % align) return name + " is not aligned to " + std::to_string(align);
    auto& [live, freed] = segments_[out.segment];
    const uint64_t end = begin + std::max<uint64_t>(1, bytes);
    const auto next = live.lower_bound(begin);
    if ((next != live.end() && next->first < end) ||
        (next != live.begin() && std::prev(next)->second > begin))
      return name + " overlaps another";
    live.emplace(begin, end);
    blocks_[slot] = {out.segment, begin, end};
    const uint64_t rounded = begin + (end - begin + rounding_ - 1) / rounding_ * rounding_;
    auto at = freed.lower_bound(begin);
    if (at != freed.begin() && std::prev(at)->second.end > begin) --at;
    while (at != freed.end() && at->first < rounded) {
      const Freed old = at->second;
      const uint64_t from = at->first;
      if (from < end && old.end > begin)
        for (const belay_event& use : old.uses)
          if (use.timeline != timeline && !reached_.reached(use))
            return name + " is given to timeline " + std::to_string(timeline) + " before value " +
                   std::to_string(use.value) + " of timeline " + std::to_string(use.timeline) + " is reached";
      at = freed.erase(at);
      if (from < begin) freed.emplace(from, Freed{begin, old.uses});
      if (old.end > rounded) at = freed.emplace(rounded, Freed{old.end, old.uses}).first;
    }
    return "";
  }
  void release(uint32_t slot, const belay_event* uses, uint64_t count) {
    const Block block = blocks_[slot];
    auto& [live, freed] = segments_[block.segment];
    live.erase(block.begin);
    freed[block.begin] = {block.end, {uses, uses + count}};
  }

 private:
  struct Freed {
    uint64_t end;
    std::vector<belay_event> uses;
  };
  struct Segment {
    std::map<uint64_t, uint64_t> live;  // begin, end
    std::map<uint64_t, Freed> freed;    // by begin
  };
  struct Block {
    uint64_t segment, begin, end;
  };
  const Reservation& reservation_;
  const Reached& reached_;
  const uint64_t rounding_;
  std::map<uint64_t, Segment> segments_;
  std::map<uint32_t, Block> blocks_;
};

}  // namespace

Reservation::~Reservation() {
  for (uint64_t i = 0; i < bytes_.size(); ++i)
    belay_status_release(policy_.table->segment_remove(policy_.object, BELAY_SEGMENT_CALLER + i));
}

bool Reservation::add(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (capacity_ && (bytes > *capacity_ || reserved_ > *capacity_ - bytes)) return false;
  check(policy_.table->segment_add(policy_.object, BELAY_SEGMENT_CALLER + bytes_.size(), bytes,
                                   BELAY_HEAP_CALLER),
        Stage::kModel);
  bytes_.push_back(bytes);
  reserved_ += bytes;
  return true;
}

uint64_t Reservation::bytes_of(uint64_t segment) const {
  const std::lock_guard lock(mutex_);
  const uint64_t index = segment - BELAY_SEGMENT_CALLER;
  return segment >= BELAY_SEGMENT_CALLER && index < bytes_.size() ? bytes_[index] : 0;
}

ReplayResult replay(Policy policy, const AllocTrace& trace, Reservation& reservation,
                    const ReplayOptions& options) {
  ReplayResult result;
  Reached reached;
  reached.lag = options.lag;
  reached.first_timeline = options.first_timeline;
  reached.waited.resize(trace.streams);
  Checker checker(reservation, reached, options.rounding);
  const belay_progress asked{[](void* user, belay_event event) BELAY_NOEXCEPT -> uint32_t {
                               return static_cast<const Reached*>(user)->reached(event);
                             },
                             &reached};
  std::vector<uint64_t> cookies(trace.slots);
  SharedUses shared(trace, options.first_timeline);
  std::array<belay_event, 64> waits;
  belay_place_req req{};
  req.hdr.struct_size = sizeof req;
  req.heap = BELAY_HEAP_CALLER;
  req.progress = &asked;
  belay_placed out{};
  out.hdr.struct_size = sizeof out;
  out.waits = waits.data();
  const auto ask = [&] {
    out.wait_count = waits.size();
    return policy.table->place(policy.object, &req, &out);
  };
  const auto place = [&] {
    req.hdr.flags = 0;
    for (int segments = 0; segments < 4;) {
      const belay_status raw = ask();
      if (raw == BELAY_OK) return true;
      if (BELAY_STATUS_CODE(raw) == BELAY_RESOURCE_EXHAUSTED) {
        belay_status_release(raw);
        out.need_bytes = 0;
        return false;
      }
      if (BELAY_STATUS_CODE(raw) == BELAY_DECLINED) {
        StringSink why;
        belay_status_text(raw, why.sink());
        belay_status_release(raw);
        fail_input("Row " + std::to_string(reached.row) + " is declined: " + why.text());
      }
      if (BELAY_STATUS_CODE(raw) != BELAY_NEED_SEGMENT) check(raw, Stage::kModel);
      belay_status_release(raw);
      if (reservation.add(out.need_bytes)) {
        ++segments;
      } else if (!(req.hdr.flags & BELAY_PLACE_SHORT)) {
        req.hdr.flags |= BELAY_PLACE_SHORT;  // there may be a place after a wait
      } else {
        return false;
      }
    }
    return false;
  };

  const double begin = thread_time();
  for (const AllocTrace::Row& row : trace.rows) {
    ++reached.row;
    const uint64_t timeline = options.first_timeline + row.stream;
    if (row.op == Op::kPlace) {
      req.bytes = row.bytes;
      req.align = uint64_t{1} << row.align_bits;
      req.timeline = timeline;
      if (!place()) {
        result.row = reached.row;
        result.need_bytes = out.need_bytes;
        return result;
      }
      cookies[row.slot] = out.cookie;
      for (uint64_t i = 0; i < out.wait_count; ++i) {
        ++result.waits;
        const uint64_t stream = waits[i].timeline - options.first_timeline;
        if (stream < reached.waited.size())
          reached.waited[stream] = std::max(reached.waited[stream], waits[i].value);
      }
      if (options.checked)
        if (result.wrong = checker.place(row.slot, row.bytes, req.align, timeline, out); !result.wrong.empty()) {
          result.row = reached.row;
          return result;
        }
    } else if (row.op != Op::kUse) {
      const belay_event own{timeline, reached.row};
      const std::span<const belay_event> uses = row.op == Op::kReleaseUsed ? shared.next() : std::span(&own, 1);
      if (options.checked) checker.release(row.slot, uses.data(), uses.size());
      if (const belay_status raw =
              policy.table->release(policy.object, cookies[row.slot], uses.data(), uses.size()))
        check(raw, Stage::kModel);
    }
    if (options.checked && reached.row == trace.fullest && options.at_fullest) options.at_fullest();
  }
  result.nanoseconds = thread_time() - begin;
  result.finished = true;
  return result;
}

}  // namespace belay::cli
