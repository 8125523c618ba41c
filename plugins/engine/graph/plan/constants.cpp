#include "plan/constants.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace belay::plan {

bool ConstantPool::borrowable(const ir::Constant& constant) const {
  return host_visible_ && !copy_all_ && constant.source != BELAY_NONE && !constant.owner &&
         ir::is_aligned(constant.data, constant.dtype);
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

// A new buffer with these constants; their places in it are added to `places`.
Result<Buffer> ConstantPool::copy(const std::vector<const ir::Constant*>& constants, Places& places) const {
  uint64_t bytes = 0;
  std::vector<uint64_t> offsets;
  for (const ir::Constant* constant : constants) {
    offsets.push_back(bytes);
    bytes += (constant->bytes + 63) / 64 * 64;
  }
  Result<Buffer> made = Buffer::create(hal_, device_, bytes);
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
  std::set<uint64_t> seen;
  for (const ir::ConstantPtr& constant : constants) {
    if (places_.contains(constant->key) || !seen.insert(constant->key).second) continue;
    if (borrowable(*constant)) {
      const belay_span source = sources_[constant->source];
      places_[constant->key] = {source.ptr, nullptr, source.len,
                                uint64_t(constant->data - static_cast<const std::byte*>(source.ptr))};
      borrowed_ += constant->bytes;
    } else {
      (constant->key < first_later_ ? fresh : later).push_back(constant.get());
    }
  }
  if (!fresh.empty()) {
    BELAY_ASSIGN(Buffer buffer, copy(fresh, places_));
    for (const ir::Constant* constant : fresh) copied_ += constant->bytes;
    buffers_.push_back(std::move(buffer));
  }
  Places of_plan;
  if (!later.empty()) {
    BELAY_ASSIGN(Buffer buffer, copy(later, of_plan));
    own.push_back(std::move(buffer));
  }
  std::vector<ConstantPlace> out;
  for (const ir::ConstantPtr& constant : constants) {
    const auto at = of_plan.find(constant->key);
    out.push_back(at == of_plan.end() ? places_.at(constant->key) : at->second);
  }
  return out;
}

uint64_t ConstantPool::copied_bytes() const {
  std::lock_guard lock(mutex_);
  return copied_;
}

uint64_t ConstantPool::borrowed_bytes() const {
  std::lock_guard lock(mutex_);
  return borrowed_;
}

}  // namespace belay::plan
