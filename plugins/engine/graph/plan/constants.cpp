#include "plan/constants.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

namespace belay::plan {

Result<std::string> ConstantPool::copy_reason(const ir::Constant& constant) const {
  if (constant.source == BELAY_NONE || constant.owner)
    return std::string("it was computed or decoded when the model was loaded, and lies in no file");
  if (copy_all_) return std::string("[engine] weights is \"copy\"");
  if (!host_visible_) return std::string("the device's memory is not the host's");
  return hal_.copy_reason(device_, constant.data, constant.bytes, BELAY_ACCESS_READ,
                          ir::alignment_of(constant.dtype));
}

const void* ConstantPool::readable(const ir::Constant& constant) {
  if (ir::is_aligned(constant.data, constant.dtype)) return constant.data;
  std::lock_guard lock(mutex_);
  auto& copy = copies_[constant.key];
  if (!copy) {
    copy = ir::make_constant(constant.dtype, {int64_t(constant.count())});
    if (!copy || copy->bytes != constant.bytes) {  // strings, whose bytes do not follow from their count
      copy = ir::make_constant(BELAY_DT_UINT8, {int64_t(constant.bytes)});
      if (!copy) throw std::bad_alloc();
    }
    std::memcpy(const_cast<std::byte*>(copy->data), constant.data, constant.bytes);
  }
  return copy->data;
}

namespace {

uint64_t room_of(const ir::Constant& constant) { return (constant.bytes + 63) / 64 * 64; }

}  // namespace

// New buffers with these constants are added to `to`, their places to `places`. What is read often for its
// size, the small ones, goes to memory made for constants as far as that has room.
Status ConstantPool::copy(std::vector<const ir::Constant*> constants, Places& places,
                          std::vector<Buffer>& to) const {
  size_t special = 0;
  if (heaps_.constants) {
    std::stable_sort(constants.begin(), constants.end(),
                     [](const ir::Constant* a, const ir::Constant* b) { return a->bytes < b->bytes; });
    BELAY_ASSIGN(const belay_heap_info heap, Heaps::info(hal_, device_, *heaps_.constants));
    for (uint64_t left = heap.free_bytes; special < constants.size(); ++special) {
      const uint64_t room = room_of(*constants[special]);
      if (room > left) break;
      left -= room;
    }
  }
  const std::span<const ir::Constant* const> all(constants);
  if (special) {
    Result<Buffer> buffer = copy_into(*heaps_.constants, all.first(special), places);
    // Somebody else may have taken the room meanwhile, or it is in pieces.
    if (!buffer.ok() && buffer.status().code() != Code::kResourceExhausted) return std::move(buffer).status();
    if (buffer.ok())
      to.push_back(std::move(buffer).value());
    else
      special = 0;
  }
  if (special == constants.size()) return {};
  BELAY_ASSIGN(Buffer buffer, copy_into(heaps_.working, all.subspan(special), places));
  to.push_back(std::move(buffer));
  return {};
}

Result<Buffer> ConstantPool::copy_into(uint64_t heap, std::span<const ir::Constant* const> constants,
                                       Places& places) const {
  uint64_t bytes = 0;
  std::vector<uint64_t> offsets;
  for (const ir::Constant* constant : constants) {
    offsets.push_back(bytes);
    bytes += room_of(*constant);
  }
  Result<Buffer> made = Buffer::create(hal_, device_, bytes, heap);
  if (!made.ok()) return std::move(made).status().while_doing("placing constants");
  Buffer& buffer = made.value();
  std::vector<std::byte> staging(buffer.host ? 0 : bytes);
  std::byte* to = buffer.host ? static_cast<std::byte*>(buffer.host) : staging.data();
  for (size_t i = 0; i < constants.size(); ++i)
    if (constants[i]->bytes) std::memcpy(to + offsets[i], constants[i]->data, constants[i]->bytes);
  if (!buffer.host) {
    belay_obj* raw = nullptr;
    belay_hal_stream_req stream_req{};
    stream_req.hdr.struct_size = sizeof stream_req;
    BELAY_TRY(hal_.check(hal_.vt->stream_create(hal_.host, device_, &stream_req, &raw)));
    const Stream stream(hal_, raw);
    belay_copy_req req{};
    req.hdr.struct_size = sizeof req;
    req.dst = buffer.object.get();
    req.host_src = staging.data();
    req.bytes = bytes;
    belay_event done{};
    BELAY_TRY(hal_.check(hal_.vt->copy(hal_.host, stream.get(), &req, &done)));
    BELAY_TRY(hal_.check(hal_.vt->synchronize(hal_.host, done, BELAY_FOREVER)));
  }
  for (size_t i = 0; i < constants.size(); ++i)
    places[constants[i]->key] = {host_visible_ ? buffer.host : nullptr, buffer.object.get(), bytes,
                                 offsets[i]};
  return made;
}

Result<std::vector<ConstantPlace>> ConstantPool::place(const std::vector<ir::ConstantPtr>& constants,
                                                       std::vector<Buffer>& own) {
  std::lock_guard lock(mutex_);
  std::vector<const ir::Constant*> fresh, later;
  std::vector<Copied> reasons;
  std::set<uint64_t> seen;
  for (const ir::ConstantPtr& constant : constants) {
    if (places_.contains(constant->key) || !seen.insert(constant->key).second) continue;
    BELAY_ASSIGN(std::string reason, copy_reason(*constant));
    if (reason.empty()) {
      const belay_span source = sources_[constant->source];
      places_[constant->key] = {source.ptr, nullptr, source.len,
                                uint64_t(constant->data - static_cast<const std::byte*>(source.ptr))};
      borrowed_ += constant->bytes;
    } else if (constant->key < first_later_) {
      fresh.push_back(constant.get());
      reasons.push_back({constant->key, constant->bytes, std::move(reason)});
    } else {
      later.push_back(constant.get());
    }
  }
  if (!fresh.empty()) {
    BELAY_TRY(copy(std::move(fresh), places_, buffers_));
    std::move(reasons.begin(), reasons.end(), std::back_inserter(copied_));
  }
  Places of_plan;
  if (!later.empty()) BELAY_TRY(copy(std::move(later), of_plan, own));
  std::vector<ConstantPlace> out;
  for (const ir::ConstantPtr& constant : constants) {
    const auto at = of_plan.find(constant->key);
    out.push_back(at == of_plan.end() ? places_.at(constant->key) : at->second);
  }
  return out;
}

std::vector<ConstantPool::Copied> ConstantPool::copied() const {
  std::lock_guard lock(mutex_);
  return copied_;
}

uint64_t ConstantPool::copied_bytes() const {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const Copied& one : copied_) bytes += one.bytes;
  return bytes;
}

uint64_t ConstantPool::borrowed_bytes() const {
  std::lock_guard lock(mutex_);
  return borrowed_;
}

}  // namespace belay::plan
