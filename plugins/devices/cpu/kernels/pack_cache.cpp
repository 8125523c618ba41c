#include "pack_cache.hpp"

#include <algorithm>
#include <new>

namespace belay::cpu {

PackedBytes::PackedBytes(uint64_t size)
    : data(::operator new (std::max<uint64_t>(size, 1), std::align_val_t{64})) {
  bytes = size;
}
PackedBytes::~PackedBytes() { ::operator delete (data, std::align_val_t{64}); }

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
