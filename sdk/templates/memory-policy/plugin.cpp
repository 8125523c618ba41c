// The plugin @ID@: a memory policy that places blocks for dynamic use first-fit: each at the lowest offset
// that is free, in the first segment of its heap with room. It computes with numbers and touches no memory.
#include <belay/abi/memory_policy.h>
#include <belay/fill.hpp>
#include <belay/plugin.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

using belay::Code;
using belay::Status;

// Thread-safe, as all slots of a policy must be.
class FirstFit {
 public:
  FirstFit(const belay_host& from, uint64_t segment_bytes) : host(from), segment_bytes_(segment_bytes) {}

  const belay_host& host;

  Status place(const belay_place_req& req, belay_placed& out) {
    const uint64_t align = std::max<uint64_t>(req.align, 1), bytes = std::max<uint64_t>(req.bytes, 1);
    if (align > BELAY_SEGMENT_ALIGNMENT || bytes > kMostBytes)
      return {Code::kDeclined, "'@ID@' leaves " + std::to_string(req.bytes) + " bytes at a multiple of " +
                                   std::to_string(align) + " to others."};
    const std::lock_guard lock(mutex_);
    end_reached(req.progress);
    for (auto& [id, segment] : segments_) {
      if (segment.heap != req.heap) continue;
      uint64_t at = 0;
      for (const auto& [begin, end] : segment.taken) {
        if (at <= begin && bytes <= begin - at) break;
        at = (end + align - 1) / align * align;
      }
      if (at > segment.bytes || bytes > segment.bytes - at) continue;
      const auto taken = segment.taken.emplace(at, at + bytes).first;
      try {
        blocks_.emplace(last_cookie_ + 1, Block{id, at, req.bytes});
      } catch (...) {  // no memory: nothing was placed
        segment.taken.erase(taken);
        throw;
      }
      in_use_ += bytes, requested_ += req.bytes, peak_in_use_ = std::max(peak_in_use_, in_use_), ++places_;
      out.segment = id, out.offset = at, out.cookie = ++last_cookie_, out.wait_count = 0;
      return {};
    }
    ++need_segments_;
    out.need_bytes = std::max(bytes, segment_bytes_);
    return {Code::kNeedSegment, "There is no free range of " + std::to_string(bytes) + " bytes."};
  }

  // What is queued may still use the block: it is free when all of `uses` are reached.
  Status release(uint64_t cookie, const belay_event* uses, uint64_t count) {
    const std::lock_guard lock(mutex_);
    const auto at = blocks_.find(cookie);
    if (at == blocks_.end())
      return {Code::kNotFound, "'@ID@' has no block with the cookie " + std::to_string(cookie) + "."};
    const Block block = at->second;
    Segment& segment = segments_.at(block.segment);
    const auto taken = segment.taken.find(block.offset);
    const uint64_t bytes = taken->second - taken->first;
    if (count)
      pending_.push_back({block.segment, block.offset, bytes, {uses, uses + count}});
    else
      segment.taken.erase(taken);
    in_use_ -= bytes, requested_ -= block.requested, ++releases_;
    blocks_.erase(at);
    return {};
  }

  Status add(uint64_t id, uint64_t bytes, uint64_t heap) {
    const std::lock_guard lock(mutex_);
    if (!segments_.try_emplace(id, Segment{bytes, heap, {}}).second)
      return {Code::kAlreadyExists, "'@ID@' has a segment " + std::to_string(id) + " already."};
    reserved_ += bytes, peak_reserved_ = std::max(peak_reserved_, reserved_);
    return {};
  }

  Status remove(uint64_t id) {
    const std::lock_guard lock(mutex_);
    const auto segment = segments_.find(id);
    if (segment == segments_.end())
      return {Code::kNotFound, "'@ID@' has no segment " + std::to_string(id) + "."};
    std::erase_if(pending_, [&](const Pending& pending) { return pending.segment == id; });
    std::erase_if(blocks_, [&](const auto& entry) {
      const Block& block = entry.second;
      if (block.segment != id) return false;
      in_use_ -= segment->second.taken.at(block.offset) - block.offset, requested_ -= block.requested;
      return true;
    });
    reserved_ -= segment->second.bytes;
    segments_.erase(segment);
    return {};
  }

  // Segments that hold nothing in use, until `bytes` are named.
  std::vector<uint64_t> unused(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    std::vector<uint64_t> found;
    uint64_t sum = 0;
    for (const auto& [id, segment] : segments_) {
      if (sum >= bytes) break;
      const bool used = std::any_of(blocks_.begin(), blocks_.end(),
                                    [&, id = id](const auto& entry) { return entry.second.segment == id; });
      if (!used) found.push_back(id), sum += segment.bytes;
    }
    trimmed_ += found.size();
    return found;
  }

  belay_policy_stats stats() const {
    const std::lock_guard lock(mutex_);
    belay_policy_stats all{};
    all.reserved = reserved_, all.in_use = in_use_, all.peak_in_use = peak_in_use_,
    all.requested = requested_;
    all.blocks = blocks_.size(), all.peak_reserved = peak_reserved_, all.segments = segments_.size();
    all.places = places_, all.releases = releases_, all.need_segments = need_segments_,
    all.trimmed = trimmed_;
    for (const Pending& pending : pending_) all.pending += pending.bytes;
    for (const auto& [id, segment] : segments_) {
      uint64_t at = 0;
      const auto free_to = [&](uint64_t end) {
        if (end > at) ++all.free_blocks, all.largest_free = std::max(all.largest_free, end - at);
      };
      for (const auto& [begin, end] : segment.taken) free_to(begin), at = end;
      free_to(segment.bytes);
    }
    return all;
  }

 private:
  static constexpr uint64_t kMostBytes = uint64_t(1) << 62;  // so that no sum below passes 2^64

  struct Segment {
    uint64_t bytes, heap;
    std::map<uint64_t, uint64_t> taken;  // begin, end
  };
  struct Block {
    uint64_t segment, offset, requested;
  };
  struct Pending {  // released, and perhaps still used by what was queued
    uint64_t segment, offset, bytes;
    std::vector<belay_event> uses;
  };

  void end_reached(const belay_progress* progress) {
    if (!progress) return;
    std::erase_if(pending_, [&](const Pending& pending) {
      for (const belay_event& use : pending.uses)
        if (!progress->reached(progress->user, use)) return false;
      segments_.at(pending.segment).taken.erase(pending.offset);
      return true;
    });
  }

  const uint64_t segment_bytes_;
  mutable std::mutex mutex_;  // of all below
  std::map<uint64_t, Segment> segments_;
  std::map<uint64_t, Block> blocks_;  // by cookie
  std::vector<Pending> pending_;
  uint64_t last_cookie_ = 0, in_use_ = 0, peak_in_use_ = 0, requested_ = 0, reserved_ = 0, peak_reserved_ = 0;
  uint64_t places_ = 0, releases_ = 0, need_segments_ = 0, trimmed_ = 0;
};

// Calls body(policy), which may throw and gives a Status, and turns what comes out into a word of the C ABI.
template <class Body>
belay_status with(belay_obj* object, Body&& body) noexcept {
  FirstFit& policy = belay::self<FirstFit>(object);
  return belay::guard(policy.host, [&]() -> Status { return body(policy); });
}

uint64_t serves(belay_obj*) noexcept { return BELAY_POLICY_PLACE; }

belay_status place(belay_obj* object, const belay_place_req* req, belay_placed* out) noexcept {
  return with(object, [&](FirstFit& policy) { return policy.place(*req, *out); });
}
belay_status release(belay_obj* object, uint64_t cookie, const belay_event* uses, uint64_t count) noexcept {
  return with(object, [&](FirstFit& policy) { return policy.release(cookie, uses, count); });
}
belay_status segment_add(belay_obj* object, uint64_t id, uint64_t bytes, uint64_t heap) noexcept {
  return with(object, [&](FirstFit& policy) { return policy.add(id, bytes, heap); });
}
belay_status segment_remove(belay_obj* object, uint64_t id) noexcept {
  return with(object, [&](FirstFit& policy) { return policy.remove(id); });
}
belay_status trim(belay_obj* object, uint64_t bytes, void (*each)(void*, uint64_t), void* user) noexcept {
  return with(object, [&](FirstFit& policy) {
    for (const uint64_t id : policy.unused(bytes)) each(user, id);
    return Status();
  });
}
belay_status stats(belay_obj* object, belay_policy_stats* inout) noexcept {
  return with(object, [&](FirstFit& policy) {
    belay::fill(inout, policy.stats());
    return Status();
  });
}
void destroy(belay_obj* object) noexcept { delete &belay::self<FirstFit>(object); }

constexpr belay_memory_policy_vt kTable{.hdr = {sizeof(belay_memory_policy_vt), 0, nullptr},
                                        .serves = serves,
                                        .plan = nullptr,  // of a class that it does not serve
                                        .place = place,
                                        .release = release,
                                        .segment_add = segment_add,
                                        .segment_remove = segment_remove,
                                        .trim = trim,
                                        .bind = nullptr,  // the same
                                        .stats = stats,
                                        .destroy = destroy,
                                        .snapshot = nullptr};

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::unique_ptr<Plugin>(new Plugin{host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    const uint64_t segment = uint64_t(belay::Value(config)["segment"].as_int(16 << 20));
    belay::give(out, std::make_unique<FirstFit>(host, segment), kTable);
    return {};
  });
}

constexpr belay_component kComponent{.hdr = {sizeof(belay_component), 0, nullptr},
                                     .kind = belay::literal(BELAY_MEMORY_POLICY_KIND),
                                     .name = belay::literal("@ID@"),
                                     .score = nullptr,
                                     .create = create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "@ID@", "0.1.0", kComponents)
