#include "hal/buffer.h"

#include <algorithm>
#include <iterator>

namespace belay::hal {

bool MappedRanges::covers(uint64_t offset, uint64_t bytes) const {
  if (offset > reserved_ || bytes > reserved_ - offset) return false;
  std::lock_guard lock(mutex_);
  return first(false, offset, bytes) == offset + bytes;
}

uint64_t MappedRanges::first(bool mapped, uint64_t offset, uint64_t bytes) const {
  const uint64_t end = offset + bytes;
  auto at = ranges_.upper_bound(offset);
  const bool inside = at != ranges_.begin() && std::prev(at)->second > offset;
  if (mapped) return inside ? offset : at == ranges_.end() ? end : std::min(at->first, end);
  if (!inside) return offset;
  return std::min(std::prev(at)->second, end);  // ranges that touch are one, so what follows has none
}

void MappedRanges::add(uint64_t offset, uint64_t bytes) {
  uint64_t begin = offset, end = offset + bytes;
  auto next = ranges_.lower_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second == begin) {
    --next;
    begin = next->first;
    next = ranges_.erase(next);
  }
  if (next != ranges_.end() && next->first == end) {
    end = next->second;
    ranges_.erase(next);
  }
  ranges_[begin] = end;
  total_ += bytes;
}

void MappedRanges::remove(uint64_t offset, uint64_t bytes) {
  const auto at = std::prev(ranges_.upper_bound(offset));
  const uint64_t begin = at->first, end = at->second;
  if (offset + bytes < end) ranges_[offset + bytes] = end;
  if (begin < offset)
    at->second = offset;
  else
    ranges_.erase(at);
  total_ -= bytes;
}

void MappedRanges::clear() {
  std::lock_guard lock(mutex_);
  ranges_.clear();
  total_ = 0;
}

std::string MappedRanges::extent() const {
  std::lock_guard lock(mutex_);
  return "which has " + std::to_string(reserved_) + " bytes reserved, " + std::to_string(total_) +
         " of them mapped";
}

std::string ReservedPart::text() const {
  return "bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " + std::to_string(bytes) +
         " of a buffer, " + ranges->extent();
}

std::string Buffer::extent() const {
  if (reserved()) return mapped->extent();
  return "which has " + std::to_string(bytes) + " bytes" +
         (mapped ? " from byte " + std::to_string(mapped_from) + " of one on, " + mapped->extent() : "");
}

}  // namespace belay::hal
