#include "pack_cache.hpp"

#include <sys/mman.h>
#include <algorithm>
#include <new>

namespace belay::cpu {

namespace {

// What is large is read from end to end in each run: in large pages that goes about a tenth faster.
constexpr uint64_t kLargePage = uint64_t{2} << 20;
std::align_val_t alignment_of(uint64_t size) { return std::align_val_t{size >= kLargePage ? kLargePage : 64}; }

}  // namespace

PackedBytes::PackedBytes(uint64_t size) : data(::operator new (std::max<uint64_t>(size, 1), alignment_of(size))) {
  bytes = size;
#ifdef MADV_HUGEPAGE
  // Whole pages only: the last part would take memory that nobody uses. Without large pages small ones do.
  if (size >= kLargePage) (void)madvise(data, size / kLargePage * kLargePage, MADV_HUGEPAGE);
#endif
}
PackedBytes::~PackedBytes() { ::operator delete (data, alignment_of(bytes)); }

std::shared_ptr<const Packed> PackCache::get(uint64_t key, std::string_view form, const Make& make) {
  if (key == 0) return make();
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    // What nobody holds any more goes here, so the table is no longer than what is in use plus what came
    // since.
    std::erase_if(entries_,
                  [](const auto& at) { return at.second.use_count() == 1 && at.second->packed.expired(); });
    std::shared_ptr<Entry>& at = entries_[{key, std::string(form)}];
    if (!at) at = std::make_shared<Entry>();
    entry = at;
  }
  std::lock_guard lock(entry->mutex);
  if (std::shared_ptr<const Packed> packed = entry->packed.lock()) return packed;
  std::shared_ptr<const Packed> packed = make();
  entry->packed = packed;
  return packed;
}

}  // namespace belay::cpu
