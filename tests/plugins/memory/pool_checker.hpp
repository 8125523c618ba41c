// A pool driven by bytes and looked at from outside: what is placed where, and which events end the uses of what was
// released. Knows nothing of how the pool does it.
#pragma once

#include <placer/pool.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace belay::testing {

class PoolChecker {
 public:
  using Pool = pool::Pool;

  explicit PoolChecker(const pool::Options& options) : options_(options), pool_(options) {}

  Pool& pool() { return pool_; }
  const std::string& wrong() const { return wrong_; }  // the first thing that was, or ""
  size_t live() const { return blocks_.size(); }
  uint64_t waits() const { return waits_; }
  uint64_t reserved() const {
    uint64_t sum = 0;
    for (const auto& [id, segment] : segments_) sum += segment.bytes;
    return sum;
  }

  // Everything that was queued on the timeline up to the value is done.
  void reach(uint64_t timeline, uint64_t value) { reached_[timeline] = std::max(reached_[timeline], value); }
  void reach_all() {
    for (auto& [timeline, value] : queued_) reach(timeline, value);
  }
  uint64_t queue(uint64_t timeline) { return ++queued_[timeline]; }  // its event
  // Events are told to be reached only by those who ask with progress.
  bool is_reached(belay_event event) const {
    const auto at = reached_.find(event.timeline);
    return at != reached_.end() && at->second >= event.value;
  }

  struct Ask {
    uint64_t bytes = 256, align = 1, heap = 1, timeline = 1, room = 8;
    bool progress = true, grow = true;
  };
  // The cookie, or 0 where the pool does not give one. A host in small: adds the segment that is asked for.
  uint64_t place(const Ask& ask) {
    std::vector<belay_event> waits(ask.room);
    const belay_progress progress{
        [](void* user, belay_event event) BELAY_NOEXCEPT -> uint32_t {
          return static_cast<PoolChecker*>(user)->is_reached(event);
        },
        this};
    for (int tries = 0; tries < 3; ++tries) {
      belay_place_req req{};
      req.hdr.struct_size = sizeof req;
      req.bytes = ask.bytes;
      req.align = ask.align;
      req.heap = ask.heap;
      req.timeline = ask.timeline;
      req.owner = ask.timeline * 100;
      req.progress = ask.progress ? &progress : nullptr;
      belay_placed out{};
      out.hdr.struct_size = sizeof out;
      out.waits = waits.data();
      out.wait_count = waits.size();
      last_ = {};
      if (!pool_.place_at_once(req, out)) last_ = pool_.place(req, out);
      if (last_.ok()) return take(ask, out);
      if (last_.code() != Code::kNeedSegment || !ask.grow) return 0;
      if (out.need_bytes < ask.bytes) return fail("a segment is wanted that is too small");
      add(out.need_bytes, ask.heap);
    }
    return fail("segment after segment is wanted");
  }
  const Status& last() const { return last_; }

  void release(uint64_t cookie, const std::vector<belay_event>& uses) {
    const bool known = blocks_.contains(cookie);
    if ((pool_.release_at_once(cookie, uses.data(), uses.size()) ||
         pool_.release(cookie, uses.data(), uses.size()).ok()) != known)
      fail(known ? "a block in use is not taken back" : "a block that is not in use is taken back");
    if (!known) return;
    const Block block = blocks_[cookie];
    blocks_.erase(cookie);
    Segment& segment = segments_.at(block.segment);
    segment.live.erase(block.begin);
    segment.freed.push_back({block.begin, block.end, uses});
  }
  void release_any(uint64_t which, const std::vector<belay_event>& uses) {
    if (!blocks_.empty()) release(std::next(blocks_.begin(), long(which % blocks_.size()))->first, uses);
  }
  void add(uint64_t bytes, uint64_t heap) {
    const Status status = pool_.add_segment(++last_segment_, bytes, heap);
    if (!status.ok()) return void(fail("segment " + std::to_string(last_segment_) + ": " + status.message()));
    segments_[last_segment_] = {bytes / options_.block_size * options_.block_size, heap, {}, {}};
  }
  void remove_any(uint64_t which) {
    if (segments_.empty()) return;
    const auto at = std::next(segments_.begin(), long(which % segments_.size()));
    std::erase_if(blocks_, [&](const auto& block) { return block.second.segment == at->first; });
    if (!pool_.remove_segment(at->first).ok()) fail("a segment cannot be removed");
    if (pool_.remove_segment(at->first).code() != Code::kNotFound) fail("a segment is removed twice");
    segments_.erase(at);
  }
  // Removes what the pool names.
  void trim(uint64_t bytes) {
    std::vector<uint64_t> named;
    pool_.trim(bytes, [](void* user, uint64_t id) { static_cast<std::vector<uint64_t>*>(user)->push_back(id); },
               &named);
    for (const uint64_t id : named) {
      const auto at = segments_.find(id);
      if (at == segments_.end() || !at->second.live.empty()) return void(fail("a segment in use is given back"));
      for (const Freed& freed : at->second.freed)
        for (const belay_event& use : freed.uses)
          if (use.timeline && !is_reached(use)) return void(fail("a segment is given back that is still written to"));
      if (!pool_.remove_segment(id).ok()) fail("a segment that was named cannot be removed");
      segments_.erase(at);
    }
  }
  // What the pool says of itself against what was seen.
  void compare() {
    const belay_policy_stats stats = pool_.stats();
    uint64_t in_use = 0, requested = 0, covered = 0;
    for (const auto& [cookie, block] : blocks_) {
      requested += block.bytes;
      in_use += block.end - block.begin;
    }
    if (stats.in_use != in_use || stats.requested != requested || stats.blocks != blocks_.size() ||
        stats.reserved != reserved() || stats.segments != segments_.size())
      fail("the statistics are wrong");
    if (stats.largest_free + stats.in_use > stats.reserved || stats.pending + stats.in_use > stats.reserved ||
        stats.peak_in_use < stats.in_use || stats.peak_reserved < stats.reserved)
      fail("the statistics contradict themselves");
    StringSink json;
    pool_.snapshot(json.sink());
    for (size_t at = 0; (at = json.text().find("\"state\": \"used\"", at)) != std::string::npos; ++at) ++covered;
    if (covered != blocks_.size()) fail("the snapshot shows another number of blocks");
    if (const std::string inside = pool_.check(); !inside.empty()) fail(inside);
  }
  // With all released and reached, all is one again: a block of the size of each segment fits.
  void end() {
    while (!blocks_.empty()) release(blocks_.begin()->first, {{1, queue(1)}, {2, queue(2)}});
    reach_all();
    std::multimap<uint64_t, uint64_t, std::greater<>> whole;  // bytes and heap, the largest first
    for (const auto& [id, segment] : segments_) whole.emplace(segment.bytes, segment.heap);
    for (const auto& [bytes, heap] : whole)
      if (!place({.bytes = bytes, .heap = heap, .timeline = 7, .room = 0, .grow = false}))
        return void(fail("what is free all over is not one block again"));
    compare();
    while (!blocks_.empty()) release(blocks_.begin()->first, {});
    trim(UINT64_MAX);
    if (!segments_.empty()) fail("an empty segment is not given back");
  }

 private:
  struct Freed {
    uint64_t begin, end;
    std::vector<belay_event> uses;
  };
  struct Segment {
    uint64_t bytes, heap;
    std::map<uint64_t, uint64_t> live;  // begin, end
    std::vector<Freed> freed;
  };
  struct Block {
    uint64_t segment, begin, end, bytes;  // to the end of the last block_size that it has a part of
  };

  uint64_t fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
    return 0;
  }
  uint64_t take(const Ask& ask, const belay_placed& out) {
    const auto at = segments_.find(out.segment);
    if (at == segments_.end() || at->second.heap != ask.heap) return fail("it is in no segment of the heap");
    Segment& segment = at->second;
    const uint64_t begin = out.offset, blocks = (ask.bytes + options_.block_size - 1) / options_.block_size;
    const uint64_t end = begin + std::max<uint64_t>(1, blocks) * options_.block_size;
    if (end > segment.bytes) return fail("it ends past the segment");
    if (begin % std::max(ask.align, options_.alignment)) return fail("it is not aligned");
    const auto next = segment.live.lower_bound(begin);
    if ((next != segment.live.end() && next->first < end) ||
        (next != segment.live.begin() && std::prev(next)->second > begin))
      return fail("it overlaps another block");
    if (out.wait_count > ask.room) return fail("there are more waits than there is room for");
    waits_ += out.wait_count;
    std::map<uint64_t, uint64_t> waits;
    for (uint64_t i = 0; i < out.wait_count; ++i) {
      if (out.waits[i].timeline == ask.timeline) return fail("it waits for its own timeline");
      if (!waits.emplace(out.waits[i].timeline, out.waits[i].value).second) return fail("it waits twice for one");
    }
    std::vector<Freed> left;
    for (const Freed& freed : segment.freed) {
      if (freed.end <= begin || freed.begin >= end) {
        left.push_back(freed);
        continue;
      }
      for (const belay_event& use : freed.uses) {
        const auto wait = waits.find(use.timeline);
        if (use.timeline != 0 && use.timeline != ask.timeline && !is_reached(use) &&
            (wait == waits.end() || wait->second < use.value))
          return fail("it is used on timeline " + std::to_string(ask.timeline) + " before an event of timeline " +
                      std::to_string(use.timeline));
      }
      if (freed.begin < begin) left.push_back({freed.begin, begin, freed.uses});
      if (freed.end > end) left.push_back({end, freed.end, freed.uses});
    }
    segment.freed = std::move(left);
    segment.live[begin] = end;
    if (!out.cookie || !blocks_.emplace(out.cookie, Block{out.segment, begin, end, ask.bytes}).second)
      return fail("its cookie is one that is in use");
    return out.cookie;
  }

  const pool::Options options_;
  Pool pool_;
  std::map<uint64_t, Segment> segments_;
  std::map<uint64_t, Block> blocks_;  // by cookie
  std::map<uint64_t, uint64_t> reached_, queued_;
  uint64_t last_segment_ = 0, waits_ = 0;
  Status last_;
  std::string wrong_;
};

// What a program does with a pool, out of bytes; "" or what is wrong.
inline std::string drive_pool(const uint8_t* data, size_t size, uint64_t* waits = nullptr) {
  const uint8_t* const last = data + size;
  const auto next = [&](uint64_t below) -> uint64_t { return data < last ? *data++ % below : 0; };
  pool::Options options;
  options.block_size = 64u << next(5);
  options.alignment = 1u << next(13);
  options.pool_size = next(64) << 10;
  options.growth = next(64) << 8;
  options.growth_percent = next(200);
  options.wait_first = next(2);
  options.cache_percent = double(next(4)) * next(13);
  options.hard_limit = next(3) ? 0 : (1 + next(64)) << 12;
  options.soft_limit = options.hard_limit && next(2) ? options.hard_limit / 2 : 0;
  if (!options.check().ok()) return "";
  PoolChecker checker(options);
  std::vector<uint64_t> old;  // cookies that were given
  const auto events = [&] {
    std::vector<belay_event> uses;
    for (uint64_t timeline = next(4), count = next(8) < 6 ? timeline > 0 : next(5); count--; ++timeline)
      uses.push_back({timeline, checker.queue(timeline)});
    return uses;
  };
  while (data < last && checker.wrong().empty()) {
    switch (const uint64_t what = next(32)) {
      case 0: checker.reach(1 + next(4), next(256)); break;
      case 1: checker.reach_all(); break;
      case 2: checker.trim(next(256) << 10); break;
      case 3: next(8) ? checker.compare() : checker.remove_any(next(256)); break;
      case 4:
        if (!old.empty()) checker.release(old[next(256) % old.size()], {});
        break;
      case 5: checker.release(next(256) << next(56), {}); break;
      default:
        if (what < 20 && checker.live() < 200) {
          const uint64_t kind = next(8);
          const uint64_t cookie =
              checker.place({.bytes = kind == 0   ? next(256) << next(12)
                                      : kind == 1 ? next(3)
                                                  : (1 + next(8)) * 512,
                             .align = kind == 2 ? uint64_t{1} << next(16) : 1,
                             .heap = kind == 3 ? 1 + next(3) : 1,
                             .timeline = next(4),
                             .room = kind == 4 ? next(3) : 8,
                             .progress = kind != 5,
                             .grow = kind != 6});
          if (cookie) old.push_back(cookie);
        } else {
          checker.release_any(next(256), events());
        }
    }
  }
  checker.compare();
  checker.end();
  if (waits) *waits += checker.waits();
  return checker.wrong();
}

}  // namespace belay::testing
