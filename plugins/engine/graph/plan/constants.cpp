#include "plan/constants.hpp"

#include <algorithm>
#include <cstring>

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

Result<std::vector<ConstantPlace>> ConstantPool::place(const std::vector<ir::ConstantPtr>& constants) {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<const ir::Constant*, uint64_t>> fresh;  // with their offsets
  uint64_t bytes = 0;
  for (const ir::ConstantPtr& constant : constants) {
    if (places_.contains(constant->key)) continue;
    if (borrowable(*constant)) {
      const belay_span source = sources_[constant->source];
      places_[constant->key] = {source.ptr, nullptr, source.len,
                                uint64_t(constant->data - static_cast<const std::byte*>(source.ptr))};
      borrowed_ += constant->bytes;
      continue;
    }
    places_[constant->key] = {};
    fresh.emplace_back(constant.get(), bytes);
    bytes += (constant->bytes + 63) / 64 * 64;
  }
  if (!fresh.empty()) {
    Result<Buffer> made = Buffer::create(hal_, device_, bytes);
    if (!made.ok()) {
      for (const auto& [constant, offset] : fresh) places_.erase(constant->key);
      return std::move(made).status().while_doing("placing constants");
    }
    Buffer& buffer = made.value();
    std::vector<std::byte> staging(buffer.host ? 0 : bytes);
    std::byte* to = buffer.host ? static_cast<std::byte*>(buffer.host) : staging.data();
    for (const auto& [constant, offset] : fresh) {
      std::memcpy(to + offset, constant->data, constant->bytes);
      places_[constant->key] = {host_visible_ ? buffer.host : nullptr, buffer.object.get(), bytes, offset};
      copied_ += constant->bytes;
    }
    if (!buffer.host) {
      belay_obj* raw = nullptr;
      belay_hal_stream_req stream_req{};
      stream_req.hdr.struct_size = sizeof stream_req;
      BELAY_TRY(hal_.check(hal_.vt->stream_create(hal_.host, device_, &stream_req, &raw)));
      const Stream stream(hal_, raw);
      belay_copy_req copy{};
      copy.hdr.struct_size = sizeof copy;
      copy.dst = buffer.object.get();
      copy.host_src = staging.data();
      copy.bytes = bytes;
      belay_event done{};
      BELAY_TRY(hal_.check(hal_.vt->copy(hal_.host, stream.get(), &copy, &done)));
      BELAY_TRY(hal_.check(hal_.vt->synchronize(hal_.host, done, BELAY_FOREVER)));
    }
    buffers_.push_back(std::move(buffer));
  }
  std::vector<ConstantPlace> out;
  for (const ir::ConstantPtr& constant : constants) out.push_back(places_[constant->key]);
  return out;
}

void ConstantPool::trim() {
  std::lock_guard lock(mutex_);
  copies_.clear();
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
