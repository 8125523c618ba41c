#include "core/base/files.h"

#include "core/base/text.h"

#include <fcntl.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace belay::core {
namespace {

Status check_owner(const struct stat& stat, const std::string& what) {
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", unsigned(stat.st_mode & 07777));
  if (stat.st_uid != 0 && stat.st_uid != geteuid())
    return {Code::kPermissionDenied, "owner " + std::to_string(stat.st_uid) + " of " + what +
                                         " can replace code - want root" +
                                         (geteuid() ? " or user " + std::to_string(geteuid()) : "") +
                                         " (or [runtime] allow_insecure = true for development)"};
  if (stat.st_mode & (S_IWGRP | S_IWOTH) && !(S_ISDIR(stat.st_mode) && stat.st_mode & S_ISVTX))
    return {Code::kPermissionDenied,
            std::string("mode ") + mode + " on " + what + " lets others replace code - chmod go-w"};
  return {};
}

}  // namespace

Status open_error(const std::string& what, const std::string& path, int error) {
  const Code code =
      error == ENOENT || error == ENOTDIR ? Code::kNotFound
      : error == EACCES || error == EPERM ? Code::kPermissionDenied
      : error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC || error == EDQUOT
          ? Code::kResourceExhausted
      : error == ELOOP || error == ENXIO || error == ENAMETOOLONG ? Code::kInvalidArgument
                                                                  : Code::kUnavailable;
  return {code, what + " " + quote(path) + " cannot be opened: " +
                    (error == ELOOP ? "it is a symbolic link, want a regular file" : std::strerror(error))};
}

Result<OpenFile> open_regular(const std::string& path, uint64_t limit, const std::string& what, bool follow) {
  OpenFile file{Fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW))), {}};
  if (file.fd.get() < 0 || fstat(file.fd.get(), &file.stat) != 0) return open_error(what, path, errno);
  if (!S_ISREG(file.stat.st_mode)) {
    const char* kind = S_ISDIR(file.stat.st_mode)    ? "a directory"
                       : S_ISFIFO(file.stat.st_mode) ? "a pipe (FIFO)"
                       : S_ISSOCK(file.stat.st_mode) ? "a socket"
                                                     : "a device";
    return Status(Code::kInvalidArgument, what + " " + quote(path) + " is " + kind + ", want a regular file");
  }
  if (uint64_t(file.stat.st_size) > limit)
    return Status(Code::kInvalidArgument, what + " " + quote(path) + " has " +
                                              std::to_string(file.stat.st_size) + " bytes, want " +
                                              std::to_string(limit) + " at most");
  return file;
}

Result<std::string> read_at(const OpenFile& file, uint64_t offset, uint64_t bytes, const std::string& path) {
  std::string data(bytes, '\0');
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(file.fd.get(), data.data() + done, bytes - done, off_t(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return Status(Code::kDataLoss, quote(path) + " ends at byte " + std::to_string(offset + done) +
                                         ", want " + std::to_string(offset + bytes) +
                                         (got < 0 ? std::string(": ") + std::strerror(errno) : ""));
    done += uint64_t(got);
  }
  return data;
}

Result<std::string> read_small_file(const std::string& path, uint64_t limit, const std::string& what) {
  BELAY_ASSIGN(const OpenFile file, open_regular(path, limit, what, true));
  return read_at(file, 0, uint64_t(file.stat.st_size), path);
}

Status check_not_replaceable(const OpenFile& file, const std::string& canonical_path,
                             const std::string& what) {
  const std::filesystem::path path(canonical_path);
  const std::string head = what + " " + quote(canonical_path) + " refused: ";
  if (Status status = check_owner(file.stat, "the file"); !status.ok())
    return {status.code(), head + status.message()};
  for (auto dir = path.parent_path();; dir = dir.parent_path()) {
    struct stat stat;
    if (lstat(dir.c_str(), &stat) != 0) return open_error("directory", dir.string(), errno);
    const Status status = check_owner(stat, "directory " + quote(dir.string()));
    if (!status.ok()) return {status.code(), head + status.message()};
    if (dir == dir.root_path()) return {};
  }
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(':'), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace belay::core
