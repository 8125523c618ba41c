#include "hal/allocator.h"

#include "hal/hal.h"

#include <algorithm>
#include <array>

namespace belay::hal {
namespace {

const belay_memory_policy_vt& table_of(const NamedObject& policy) {
  return *static_cast<const belay_memory_policy_vt*>(policy.object->table);
}

constexpr int kMostSegmentsForOne = 4;  // that a policy may ask for before it places one buffer
constexpr size_t kMostWaits = 32;       // that a place may come with

uint32_t is_reached(void* hal, belay_event event) noexcept { return static_cast<Hal*>(hal)->reached(event); }

}  // namespace

void Policies::attach(Hal& hal, const std::vector<NamedObject>& all) {
  for (const NamedObject& policy : all) {
    const auto& vt = table_of(policy);
    const uint64_t serves = vt.serves(policy.object);
    if (serves & BELAY_POLICY_PLACE) {
      if (BELAY_HAS(&vt, belay_memory_policy_vt, place) && BELAY_HAS(&vt, belay_memory_policy_vt, release) &&
          BELAY_HAS(&vt, belay_memory_policy_vt, segment_add) &&
          BELAY_HAS(&vt, belay_memory_policy_vt, segment_remove) &&
          BELAY_HAS(&vt, belay_memory_policy_vt, trim))
        placing_.push_back(policy);
      else
        hal.host().misbehaved(policy.plugin, "serves PLACE, but some of its slots are null");
    }
    if (serves & BELAY_POLICY_BIND) {
      if (BELAY_HAS(&vt, belay_memory_policy_vt, bind))
        binding_.push_back(policy);
      else
        hal.host().misbehaved(policy.plugin, "serves BIND, but its slot is null");
    }
  }
}

uint64_t Allocator::heap_id(uint64_t heap) const { return uint64_t(device_.index()) << 8 | heap; }

Result<std::optional<Place>> Allocator::place(const belay_alloc_req& req, Stream* first) {
  const std::vector<NamedObject>& policies = device_.hal->policies().placing();
  if (policies.empty() || !req.bytes || !device_.subdivides() || req.align > BELAY_SEGMENT_ALIGNMENT)
    return std::optional<Place>();
  for (size_t i = 0; i < policies.size(); ++i) {
    Result<std::optional<Place>> place = ask(i, req, first);
    if (!place.ok())
      return std::move(place).status().while_doing("placing " + std::to_string(req.bytes) + " bytes on '" +
                                                   device_.name() + "' with policy '" + policies[i].name +
                                                   "'");
    if (*place) return place;
  }
  return std::optional<Place>();
}

Result<std::optional<Place>> Allocator::ask(size_t index, const belay_alloc_req& req, Stream* first) {
  Hal& hal = *device_.hal;
  const NamedObject& policy = hal.policies().placing()[index];
  std::array<belay_event, kMostWaits> waits{};
  const belay_progress progress{is_reached, &hal};
  belay_place_req wanted{};
  wanted.hdr.struct_size = sizeof wanted;
  wanted.bytes = req.bytes;
  wanted.align = std::max(req.align, device_.alignment(req.heap));
  wanted.heap = heap_id(req.heap);
  wanted.timeline = first ? first->timeline() : 0;
  wanted.progress = &progress;
  std::unique_lock growing(growing_, std::defer_lock);
  for (int segments = 0;;) {
    belay_placed placed{};
    placed.hdr.struct_size = sizeof placed;
    placed.waits = waits.data();
    placed.wait_count = waits.size();
    Place out;
    {
      std::shared_lock no_trim(trimming_);
      const belay_status raw = table_of(policy).place(policy.object, &wanted, &placed);
      if (raw == BELAY_OK) {
        try {
          if (Status checked = check(index, req, placed, out); !checked.ok()) {
            refuse(index, placed.cookie, {waits.data(), std::min<size_t>(placed.wait_count, kMostWaits)});
            return checked;
          }
        } catch (...) {
          refuse(index, placed.cookie, {waits.data(), std::min<size_t>(placed.wait_count, kMostWaits)});
          throw;
        }
      } else {
        Status status = hal.take(raw, policy.plugin, "place");
        if (status.code() == Code::kDeclined) return std::optional<Place>();
        if (status.code() != Code::kNeedSegment) return status;
      }
    }
    if (out.within) {
      if (growing.owns_lock()) growing.unlock();
      const std::span uses(waits.data(), placed.wait_count);
      try {
        Status waited = wait(uses, first);
        if (waited.ok()) return std::optional<Place>(out);
        end(out, uses);
        return waited;
      } catch (...) {
        end(out, uses);
        throw;
      }
    }
    if (!growing.owns_lock()) {
      growing.lock();
      continue;  // another one may have grown meanwhile
    }
    if (placed.need_bytes < req.bytes || segments++ == kMostSegmentsForOne) {
      hal.host().misbehaved(policy.plugin, "asks for segment after segment, or for one that is too small");
      return Status(Code::kInternal, "It wants segment " + std::to_string(segments) + ", of " +
                                         std::to_string(placed.need_bytes) + " bytes, for this.");
    }
    Status added = add_segment(index, placed.need_bytes, req.heap);
    if (added.code() == Code::kResourceExhausted) {
      // There may be a place after a wait. If not: a policy takes segments larger than what it places, and
      // the driver may have room for that much alone.
      if (wanted.hdr.flags & BELAY_PLACE_SHORT) return std::optional<Place>();
      wanted.hdr.flags |= BELAY_PLACE_SHORT;
      continue;
    }
    BELAY_TRY(std::move(added));
  }
}

Status Allocator::check(size_t policy, const belay_alloc_req& req, const belay_placed& placed, Place& out) {
  const NamedObject& named = device_.hal->policies().placing()[policy];
  const auto wrong = [&](const std::string& why) {
    const std::string text = "offset " + std::to_string(placed.offset) + " of segment " +
                             std::to_string(placed.segment) + ", " + why;
    device_.hal->host().misbehaved(named.plugin, "wrong place: " + text);
    return Status(Code::kInternal,
                  "It gave a wrong place: " + text + ". Take it out of [memory] policies and report this.");
  };
  std::lock_guard lock(mutex_);
  const auto at = segments_.find(placed.segment);
  if (at == segments_.end() || at->second.policy != policy || at->second.heap != req.heap)
    return wrong("which is none of its segments in that heap");
  Segment& segment = at->second;
  if (placed.offset > segment.bytes || req.bytes > segment.bytes - placed.offset)
    return wrong("which has " + std::to_string(segment.bytes) + " bytes");
  const uint64_t align = std::max(req.align, device_.alignment(req.heap));
  if (placed.offset % align) return wrong("which is not aligned to " + std::to_string(align));
  if (placed.wait_count > kMostWaits)
    return wrong("to be used after " + std::to_string(placed.wait_count) +
                 " events, more than there was room for");
  const uint64_t end = placed.offset + req.bytes;
  const auto next = segment.live.lower_bound(placed.offset);
  if ((next != segment.live.end() && next->first < end) ||
      (next != segment.live.begin() && std::prev(next)->second.end > placed.offset))
    return wrong("where a buffer lives");
  segment.live[placed.offset] = {end, placed.cookie};
  ++segment.inside;
  out = {policy, placed.segment, placed.offset, placed.cookie, &segment.object};
  return {};
}

// What may still use a place that is not taken is what it came with.
void Allocator::refuse(size_t policy, uint64_t cookie, std::span<const belay_event> uses) {
  Hal& hal = *device_.hal;
  for (uint64_t i = 0; i < hal.devices().count(); ++i)
    if (Device* device = hal.devices().opened(i); device && device->allocator().lives(policy, cookie)) return;
  const NamedObject& named = hal.policies().placing()[policy];
  hal.release(table_of(named).release(named.object, cookie, uses.data(), uses.size()));
}

bool Allocator::lives(size_t policy, uint64_t cookie) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, segment] : segments_)
    if (segment.policy == policy)
      for (const auto& [begin, block] : segment.live)
        if (block.cookie == cookie) return true;
  return false;
}

// What may still use the memory was queued before it was released.
Status Allocator::wait(std::span<const belay_event> waits, Stream* first) {
  Hal& hal = *device_.hal;
  for (const belay_event& event : waits) {
    if (first) {
      BELAY_TRY(hal.take(first->wait(event), device_.driver(), "wait"));
    } else if (const Timelines::Pin stream(hal.timelines(), event.timeline); stream) {
      hal.release(stream->synchronize(event.value, BELAY_FOREVER));  // a failure has ended too
    }
  }
  return {};
}

Status Allocator::release(const Place& place, std::span<const belay_event> uses) {
  Hal& hal = *device_.hal;
  const NamedObject& policy = hal.policies().placing()[place.policy];
  // Out of the list before anyone else can be placed there.
  std::map<uint64_t, Block>::node_type live;
  {
    std::lock_guard lock(mutex_);
    live = segments_.at(place.segment).live.extract(place.offset);
  }
  Status status = hal.take(table_of(policy).release(policy.object, place.cookie, uses.data(), uses.size()),
                           policy.plugin, "release");
  if (status.ok()) return status;
  std::lock_guard lock(mutex_);
  segments_.at(place.segment).live.insert(std::move(live));
  return std::move(status).while_doing("giving memory back to policy '" + policy.name + "'");
}

void Allocator::end(const Place& place, std::span<const belay_event> uses) {
  if (!place.released)
    if (const Status status = release(place, uses); !status.ok())
      device_.hal->host().log().error("hal", status.message());
  std::lock_guard lock(mutex_);
  --segments_.at(place.segment).inside;
}

Status Allocator::add_segment(size_t index, uint64_t bytes, uint64_t heap) {
  Hal& hal = *device_.hal;
  const NamedObject& policy = hal.policies().placing()[index];
  Status room = device_.take_room("A segment", bytes);
  if (!room.ok() && trim(bytes)) room = device_.take_room("A segment", bytes);
  BELAY_TRY(std::move(room));
  const uint64_t id = hal.policies().next_segment();
  Segment* segment;
  try {
    std::lock_guard lock(mutex_);  // from here on its object stays where it is
    segment = &segments_[id];
    *segment = {index, bytes, heap, {BELAY_OBJ_MAGIC, BELAY_OBJ_BUFFER, 1, nullptr, nullptr, {}}, {}, 0};
  } catch (...) {
    device_.leave_room(bytes);
    throw;
  }
  belay_alloc_req req{};
  req.hdr.struct_size = sizeof req;
  req.bytes = bytes;
  req.align = BELAY_SEGMENT_ALIGNMENT;
  req.heap = heap;
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  Status status = hal.take(device_.vt().alloc(&device_, &req, &made), device_.driver(), "alloc");
  if (status.ok()) status = device_.adopt_buffer(segment->object, made.impl);
  if (!status.ok()) {
    device_.leave_room(bytes);
    std::lock_guard lock(mutex_);
    segments_.erase(id);
    return status;
  }
  device_.use_room(bytes);
  status = hal.take(table_of(policy).segment_add(policy.object, id, bytes, heap_id(heap)),
                           policy.plugin, "segment_add");
  if (status.ok()) return {};
  std::lock_guard lock(mutex_);
  free_segment(*segment);
  segments_.erase(id);
  return status;
}

void Allocator::free_segment(Segment& segment) {
  device_.free_of_driver(segment.object);
  device_.give_room(segment.bytes);
}

uint64_t Allocator::trim(uint64_t bytes) {
  Hal& hal = *device_.hal;
  std::unique_lock nothing_is_placed(trimming_);
  uint64_t freed = 0;
  for (const NamedObject& policy : hal.policies().placing()) {
    if (freed >= bytes) break;
    std::vector<uint64_t> empty;
    const Status asked = hal.take(table_of(policy).trim(
                                      policy.object, bytes - freed,
                                      [](void* user, uint64_t segment) {
                                        static_cast<std::vector<uint64_t>*>(user)->push_back(segment);
                                      },
                                      &empty),
                                  policy.plugin, "trim");
    if (!asked.ok()) continue;
    for (const uint64_t id : empty) {
      std::lock_guard lock(mutex_);
      const auto at = segments_.find(id);
      if (at == segments_.end()) continue;  // of another device
      if (!at->second.live.empty()) {
        hal.host().misbehaved(policy.plugin,
                              "gives back segment " + std::to_string(id) + ", in which buffers live");
        continue;
      }
      if (at->second.inside) continue;  // of released ones, whose work has not ended
      if (!hal.take(table_of(policy).segment_remove(policy.object, id), policy.plugin, "segment_remove").ok())
        continue;
      freed += at->second.bytes;
      free_segment(at->second);
      segments_.erase(at);
    }
  }
  return freed;
}

Result<std::optional<std::string>> Allocator::copy_reason(const belay_bind_req& req) {
  Hal& hal = *device_.hal;
  belay_bind_req wanted = req;
  wanted.device_flags = device_.info().hdr.flags;
  for (const NamedObject& policy : hal.policies().binding()) {
    StringSink reason;
    belay_bound bound{};
    bound.hdr.struct_size = sizeof bound;
    bound.reason = reason.sink();
    Status status = hal.take(table_of(policy).bind(policy.object, &wanted, &bound), policy.plugin, "bind");
    if (status.code() == Code::kDeclined) continue;
    if (!status.ok())
      return std::move(status).while_doing("binding host memory with policy '" + policy.name + "'");
    if (bound.mode == BELAY_BIND_SHARE) return std::optional<std::string>();
    std::string why = std::move(reason).str();
    return std::optional<std::string>(why.empty() ? "policy '" + policy.name + "' says so" : std::move(why));
  }
  return std::optional<std::string>();
}

void Allocator::close() {
  Hal& hal = *device_.hal;
  std::lock_guard lock(mutex_);
  for (auto& [id, segment] : segments_) {
    const NamedObject& policy = hal.policies().placing()[segment.policy];
    const Status gone =
        hal.take(table_of(policy).segment_remove(policy.object, id), policy.plugin, "segment_remove");
    if (!gone.ok())
      hal.host().log().error("hal",
                             "Policy '" + policy.name + "' keeps a segment that ends: " + gone.message());
    free_segment(segment);
  }
  segments_.clear();
}

}  // namespace belay::hal
