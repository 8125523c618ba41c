#include "hal/shared_mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace belay::hal {
namespace {

// What a file is told from others and from itself before a change by.
using FileKey = std::tuple<dev_t, ino_t, off_t, time_t, long, time_t, long>;

// One list for the process, as the file is one whichever runtime reads it. Never destroyed: models may outlive statics.
struct MappedFiles {
  std::mutex mutex;
  std::map<FileKey, std::weak_ptr<const SharedMapping>> mapped;
};
MappedFiles& mapped_files() {
  static MappedFiles& all = *new MappedFiles;
  return all;
}

}  // namespace

Result<std::shared_ptr<const SharedMapping>> SharedMapping::of(int fd, const struct stat& now,
                                                               const std::string& path) {
  const FileKey key{now.st_dev,          now.st_ino,          now.st_size,        now.st_mtim.tv_sec,
                now.st_mtim.tv_nsec, now.st_ctim.tv_sec, now.st_ctim.tv_nsec};
  MappedFiles& all = mapped_files();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.mapped, [](const auto& entry) { return entry.second.expired(); });
  if (const auto at = all.mapped.find(key); at != all.mapped.end())
    // What lost bytes holds zeros, though the file may be whole again.
    if (std::shared_ptr<const SharedMapping> there = at->second.lock(); there && !there->damaged()) return there;
  const auto bytes = uint64_t(now.st_size);
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED)
    return Status(Code::kResourceExhausted, "Cannot map '" + path + "' (" + std::to_string(bytes) +
                                                " bytes): " + std::strerror(errno) + ".");
  std::shared_ptr<const SharedMapping> made;
  try {
    made.reset(new SharedMapping(address, bytes));
  } catch (...) {
    munmap(address, bytes);
    throw;
  }
  all.mapped.insert_or_assign(key, made);
  return made;
}

SharedMapping::~SharedMapping() {
  watch_ = FaultWatch();
  munmap(address_, bytes_);
}

}  // namespace belay::hal
