#include "core/base/shared_library.h"

#include <boost/dll/shared_library.hpp>

#include <dlfcn.h>
#include <sys/stat.h>
#include <new>
#include <utility>

namespace belay::core {
namespace {

namespace dll = boost::dll;
static_assert(sizeof(dll::shared_library) == sizeof(void*) && alignof(dll::shared_library) == alignof(void*));

dll::shared_library& of(const unsigned char* library) {
  return *std::launder(reinterpret_cast<dll::shared_library*>(const_cast<unsigned char*>(library)));
}

}  // namespace

Status SharedLibrary::open(const std::string& path) try {
  dll::shared_library library;
  library.load(path, dll::load_mode::rtld_now | dll::load_mode::rtld_local);  // throws with dlerror's text
  new (library_) dll::shared_library(std::move(library));
  path_ = path, open_ = true;
  return {};
} catch (const std::exception& error) {
  return {Code::kInvalidArgument, "plugin file '" + path + "' cannot be loaded: " + error.what()};
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
