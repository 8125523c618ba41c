// core/base/shared_library.h: a library opened through Boost.DLL, with its traps kept away from the loader.
#pragma once

#include <belay/status.hpp>

#include <string>

namespace belay::core {

// Stays mapped unless close() is called: a plugin's threads, thread-local destructors and unique symbols make
// unmapping unsafe, so the end of this object does not unmap.
class SharedLibrary {
 public:
  SharedLibrary() = default;
  SharedLibrary(const SharedLibrary&) = delete;

  // `path`: canonical and absolute (a bare name would be taken from the working directory, the program's own
  // path would give the program). Resolves all symbols now, shows none to others. INVALID_ARGUMENT with the
  // linker's words; RESOURCE_EXHAUSTED where memory or a descriptor lacks.
  Status open(const std::string& path);
  // The address of a symbol that is defined in this very file and not in a library it needs. NOT_FOUND.
  Result<void*> symbol(const char* name) const;
  // dlclose, once. False: something keeps the library mapped.
  bool close();
  bool is_open() const { return open_; }

 private:
  std::string path_;
  bool open_ = false;
  alignas(void*) unsigned char library_[sizeof(void*)] =
      {};  // boost::dll::shared_library, without its destructor
};

}  // namespace belay::core
