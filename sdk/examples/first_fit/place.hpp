// Dynamic use: each block at the lowest offset that is free, in the first segment of its heap that has room.
#pragma once

#include <belay/abi/memory_policy.h>
#include <belay/status.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

// Thread-safe.
class Places {
 public:
  static constexpr uint64_t kSegment = uint64_t(64) << 20;  // bytes of a segment, at least

  explicit Places(uint64_t gap) : gap_(gap) {}

  belay::Status place(const belay_place_req& req, belay_placed& out) {
    const uint64_t align = std::max<uint64_t>(req.align, 1);
    if (align > BELAY_SEGMENT_ALIGNMENT || req.bytes > UINT64_MAX / 2)
      return {belay::Code::kDeclined, std::to_string(req.bytes) + " bytes at a multiple of " +
                                          std::to_string(align) + " are left to others."};
    std::lock_guard lock(mutex_);
    end_pending(req.progress);
    const uint64_t bytes = std::max<uint64_t>(req.bytes, 1) + gap_;
    for (auto& [id, segment] : segments_) {
      if (segment.heap != req.heap) continue;
      uint64_t at = 0;
      for (const auto& [begin, end] : segment.taken) {
        if (at + bytes <= begin) break;
        at = (end + align - 1) / align * align;
      }
      if (at > segment.bytes || bytes > segment.bytes - at) continue;
      const auto taken = segment.taken.emplace(at, at + bytes).first;
      try {
        blocks_.emplace(last_cookie_ + 1, Block{id, at, req.bytes});
      } catch (...) {
        segment.taken.erase(taken);
        throw;
      }
      in_use_ += bytes, peak_ = std::max(peak_, in_use_), requested_ += req.bytes;
      out.segment = id, out.offset = at, out.cookie = ++last_cookie_, out.wait_count = 0;
      return {};
    }
    out.need_bytes = std::max(bytes, kSegment);
    return {belay::Code::kNeedSegment, "There is no free range of " + std::to_string(bytes) + " bytes."};
  }

  belay::Status release(uint64_t cookie, const belay_event* uses, uint64_t count) {
    std::lock_guard lock(mutex_);
    const auto at = blocks_.find(cookie);
    if (at == blocks_.end())
      return {belay::Code::kNotFound, "No block has the cookie " + std::to_string(cookie) + "."};
    if (count) pending_.push_back({at->second, {uses, uses + count}});
    Segment& segment = segments_.at(at->second.segment);
    const auto taken = segment.taken.find(at->second.offset);
    in_use_ -= taken->second - taken->first, requested_ -= at->second.requested;
    if (!count) segment.taken.erase(taken);
    blocks_.erase(at);
    return {};
  }

  void add(uint64_t id, uint64_t bytes, uint64_t heap) {
    std::lock_guard lock(mutex_);
    segments_[id] = {bytes, heap, {}};
  }

  belay::Status remove(uint64_t id) {
    std::lock_guard lock(mutex_);
    if (segments_.erase(id) == 0)
      return {belay::Code::kNotFound, "There is no segment " + std::to_string(id) + "."};
    std::erase_if(pending_, [&](const Pending& pending) { return pending.block.segment == id; });
    for (auto at = blocks_.begin(); at != blocks_.end();)
      at = at->second.segment == id ? blocks_.erase(at) : std::next(at);
    return {};
  }

  // The segments with nothing in them that make up `bytes`.
  std::vector<uint64_t> empty(uint64_t bytes) const {
    std::lock_guard lock(mutex_);
    std::vector<uint64_t> found;
    uint64_t sum = 0;
    for (const auto& [id, segment] : segments_)
      if (sum < bytes && segment.taken.empty()) found.push_back(id), sum += segment.bytes;
    return found;
  }

  void fill(belay_policy_stats& out) const {
    std::lock_guard lock(mutex_);
    out.in_use = in_use_, out.peak_in_use = peak_, out.requested = requested_;
    out.blocks = blocks_.size(), out.segments = segments_.size();
    for (const auto& [id, segment] : segments_) {
      out.reserved += segment.bytes;
      uint64_t at = 0;
      const auto free_to = [&](uint64_t end) {
        if (end > at) ++out.free_blocks, out.largest_free = std::max(out.largest_free, end - at);
      };
      for (const auto& [begin, end] : segment.taken) free_to(begin), at = end;
      free_to(segment.bytes);
    }
  }

 private:
  struct Block {
    uint64_t segment, offset, requested;
  };
  struct Segment {
    uint64_t bytes, heap;
    std::map<uint64_t, uint64_t> taken;  // begin, end
  };
  struct Pending {  // released, and still used by what was queued
    Block block;
    std::vector<belay_event> uses;
  };

  void end_pending(const belay_progress* progress) {
    if (!progress) return;
    std::erase_if(pending_, [&](const Pending& pending) {
      for (const belay_event& use : pending.uses)
        if (!progress->reached(progress->user, use)) return false;
      segments_.at(pending.block.segment).taken.erase(pending.block.offset);
      return true;
    });
  }

  const uint64_t gap_;
  mutable std::mutex mutex_;  // of all below
  std::map<uint64_t, Segment> segments_;
  std::map<uint64_t, Block> blocks_;  // by cookie
  std::vector<Pending> pending_;
  uint64_t last_cookie_ = 0, in_use_ = 0, peak_ = 0, requested_ = 0;
};
