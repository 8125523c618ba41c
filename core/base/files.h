// core/base/files.h: reading files that somebody else may have written.
#pragma once

#include <belay/status.hpp>

#include <sys/stat.h>
#include <unistd.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace belay::core {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept { return std::swap(fd_, other.fd_), *this; }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// What an errno of opening says; `what`: "plugin file".
Status open_error(const std::string& what, const std::string& path, int error);

struct OpenFile {
  Fd fd;
  struct stat stat;
};

// Opens a regular file for reading and never blocks. NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a
// regular file, a symbolic link unless `follow`, over `limit` bytes), RESOURCE_EXHAUSTED (no file descriptor,
// no memory). `what`: "plugin file".
Result<OpenFile> open_regular(const std::string& path, uint64_t limit, const std::string& what, bool follow);
// Its bytes. DATA_LOSS: it shrank meanwhile, or an error of the device.
Result<std::string> read_at(const OpenFile& file, uint64_t offset, uint64_t bytes, const std::string& path);
// The whole of a file, e.g. a configuration, through symbolic links.
Result<std::string> read_small_file(const std::string& path, uint64_t limit, const std::string& what);

// PERMISSION_DENIED when somebody other than root and this user could replace the file: owner or mode of the
// file or of a directory above it. A sticky directory such as a temporary one is accepted: there nobody can
// replace what is another's.
Status check_not_replaceable(const OpenFile& file, const std::string& canonical_path,
                             const std::string& what);

// "a:b::c" -> a, b, c
std::vector<std::string> split_list(std::string_view text);

}  // namespace belay::core
