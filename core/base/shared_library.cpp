#include "core/base/shared_library.h"

#include <boost/dll/shared_library.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace belay::core {
namespace {

namespace dll = boost::dll;
static_assert(sizeof(dll::shared_library) == sizeof(void*) && alignof(dll::shared_library) == alignof(void*));

dll::shared_library& of(const unsigned char* library) {
  return *std::launder(reinterpret_cast<dll::shared_library*>(const_cast<unsigned char*>(library)));
}

// What the linker may have lacked, tried without it, for it says "failed to map segment" whatever the cause: a
// descriptor, or address space for the file. 0: neither.
int lacking(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? errno : 0;
  struct stat info {};
  int lacks = 0;
  if (fstat(fd, &info) == 0 && info.st_size > 0) {
    const size_t bytes = 2 * size_t(info.st_size);  // segments lie apart, and have more than the file
    void* const space = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED)
      lacks = errno == ENOMEM ? ENOMEM : 0;
    else
      munmap(space, bytes);
  }
  ::close(fd);
  return lacks;
}

// The linker's own words of "boost::dll::... (dlerror system message: WORDS): whatever errno was".
std::string words_of(std::string text) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  const size_t at = text.find(kBefore), end = text.rfind("): ");
  if (at == std::string::npos || end == std::string::npos || end < at) return text;
  return text.substr(at + kBefore.size(), end - at - kBefore.size());
}

}  // namespace

Status SharedLibrary::open(const std::string& path) try {
  dll::shared_library library;
  library.load(path, dll::load_mode::rtld_now | dll::load_mode::rtld_local);  // throws with dlerror's text
  new (library_) dll::shared_library(std::move(library));
  path_ = path, open_ = true;
  return {};
} catch (const std::exception& error) {
  const int lacks = lacking(path);
  return {lacks ? Code::kResourceExhausted : Code::kInvalidArgument,
          "plugin file '" + path + "' cannot be loaded: " + words_of(error.what()) +
              (lacks ? std::string(" (") + std::strerror(lacks) + ")" : "")};
}

Result<void*> SharedLibrary::symbol(const char* name) const {
  void* const address = open_ ? dlsym(of(library_).native(), name) : nullptr;
  Dl_info info{};
  struct stat here, there;
  if (address && dladdr(address, &info) && info.dli_fname && stat(info.dli_fname, &there) == 0 &&
      stat(path_.c_str(), &here) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino)
    return address;
  return Status(Code::kNotFound,
                "plugin file '" + path_ + "' defines no symbol " + name +
                    (info.dli_fname ? std::string("; it comes from ") + info.dli_fname : ""));
}

bool SharedLibrary::close() {
  if (!std::exchange(open_, false)) return true;
  of(library_).~shared_library();
  void* const still = dlopen(path_.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  if (still) dlclose(still);  // only asked
  return !still;
}

}  // namespace belay::core
