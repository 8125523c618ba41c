#include "core/services/plugin_files.h"

#include "core/base/text.h"
#include "core/host_call.h"
#include "core/services/services.h"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace belay::core {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMostParts = 16, kPiece = 1 << 16;

// "sub/table.bin" -> sub, table.bin. INVALID_ARGUMENT.
Result<std::vector<std::string>> parts_of(std::string_view name, bool folders) {
  std::vector<std::string> parts;
  const auto bad = [&] {
    return Status(
        Code::kInvalidArgument,
        "File name " + quote(printable(name.substr(0, 300))) + ": want a name " +
            (folders ? "below its place such as sub/table.bin" : "without folders such as cache.bin") +
            ", without '.' or '..' as a part.");
  };
  for (std::string_view rest = name;;) {
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    if (part.empty() || part == "." || part == ".." || part.size() > 255 ||
        part.find('\0') != std::string_view::npos)
      return bad();
    parts.emplace_back(part);
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  if (parts.size() > (folders ? kMostParts : 1)) return bad();
  return parts;
}

// While one lives a file that grows over a limit is an error of write() and not the end of the process.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~NoSizeSignal() {
    const int saved = errno;
    const timespec now{0, 0};
    if (!sigismember(&before_, SIGXFSZ)) sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = saved;
  }
  NoSizeSignal(const NoSizeSignal&) = delete;

 private:
  sigset_t signal_, before_;
};

// 0, or an errno.
int write_all(int fd, belay_span bytes) {
  const NoSizeSignal none;
  for (uint64_t done = 0; done < bytes.len;) {
    const ssize_t n = ::write(fd, static_cast<const char*>(bytes.ptr) + done, bytes.len - done);
    if (n < 0 && errno != EINTR) return errno;
    if (n > 0) done += uint64_t(n);
  }
  return 0;
}

}  // namespace

PluginFiles::~PluginFiles() {
  while (!places_.empty()) {
    const std::string plugin = places_.begin()->first.first;  // a copy: its place goes
    static_cast<void>(take_back(plugin));
  }
}

Result<PluginFiles::Place> PluginFiles::data_of(const std::string& plugin) const {
  const FoundPlugin* const found = host_.plugins().catalog().find(plugin);
  if (!found) return Status(Code::kNotFound, "There is no plugin " + quote(plugin) + ", so no data of it.");
  Place place;
  place.path = fs::path(found->file).replace_extension(".data").string();
  const std::string what = "folder of data";
  OpenFile folder{Fd(::open(place.path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)), {}};
  if (folder.fd.get() < 0 || fstat(folder.fd.get(), &folder.stat) != 0)
    return open_error(what, place.path, errno);
  if (!host_.config().get("runtime.allow_insecure").as_bool())
    BELAY_TRY(check_not_replaceable(folder, place.path, what));
  place.folder = std::move(folder.fd);
  return place;
}

Result<PluginFiles::Place> PluginFiles::make_scratch(const std::string& plugin) const {
  Place place;
  std::error_code error;
  std::string base(host_.config().get("runtime.scratch_dir").as_string());
  if (base.empty()) base = secure_getenv("TMPDIR") ? secure_getenv("TMPDIR") : "/tmp";
  if (!base.starts_with('/')) base = "/tmp";
  place.path = base + "/belay-" + plugin + "-XXXXXX";
  const std::string what = "scratch folder";
  if (!mkdtemp(place.path.data())) return open_error(what, base, errno);
  place.folder = Fd(::open(place.path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (place.folder.get() >= 0) return place;
  const Status status = open_error(what, place.path, errno);
  fs::remove(place.path, error);
  return status;
}

Result<const PluginFiles::Place*> PluginFiles::find(const std::string& plugin, uint32_t place) {
  if (place != BELAY_FS_DATA && place != BELAY_FS_SCRATCH)
    return Status(Code::kInvalidArgument,
                  "Place " + std::to_string(place) + " is none: want BELAY_FS_DATA or _SCRATCH.");
  std::lock_guard lock(mutex_);
  const auto at = places_.find({plugin, place});
  if (at != places_.end()) return &at->second;
  BELAY_ASSIGN(Place made, place == BELAY_FS_DATA ? data_of(plugin) : make_scratch(plugin));
  return &places_.emplace(std::pair(plugin, place), std::move(made)).first->second;
}

Result<std::string> PluginFiles::path(const std::string& plugin, uint32_t place) {
  BELAY_ASSIGN(const Place* const found, find(plugin, place));
  return found->path;
}

Result<Fd> PluginFiles::open(const std::string& plugin, uint32_t place, std::string_view name, bool write) {
  if (write && place != BELAY_FS_SCRATCH)
    return Status(Code::kPermissionDenied, "The data of plugin " + quote(plugin) + " is read-only.");
  BELAY_ASSIGN(const std::vector<std::string> parts, parts_of(name, place == BELAY_FS_DATA));
  BELAY_ASSIGN(const Place* const found, find(plugin, place));
  const std::string what = "file of plugin " + quote(plugin);
  const Fd* folder = &found->folder;
  Fd below;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {  // one part at a time, so that no link leads out
    Fd next(openat(folder->get(), parts[i].c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (next.get() < 0) return open_error(what, std::string(name), errno);
    below = std::move(next), folder = &below;
  }
  const int flags = (write ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Fd file(openat(folder->get(), parts.back().c_str(), flags, 0600));
  struct stat stat;
  if (file.get() < 0 || fstat(file.get(), &stat) != 0) return open_error(what, std::string(name), errno);
  if (!S_ISREG(stat.st_mode))
    return Status(Code::kInvalidArgument, what + " " + quote(name) + " is no regular file.");
  return file;
}

Status PluginFiles::read(const std::string& plugin, uint32_t place, std::string_view name, belay_sink sink) {
  BELAY_ASSIGN(const Fd file, open(plugin, place, name, false));
  std::string piece(kPiece, '\0');
  for (;;) {
    const ssize_t n = ::read(file.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return {Code::kDataLoss, "File " + quote(name) + " of plugin " + quote(plugin) +
                                   " cannot be read: " + std::strerror(errno) + "."};
    if (n == 0) return {};
    belay::write(sink, std::string_view(piece).substr(0, size_t(n)));
  }
}

Status PluginFiles::write(const std::string& plugin, std::string_view name, belay_span bytes) {
  BELAY_ASSIGN(const std::vector<std::string> parts, parts_of(name, false));
  BELAY_ASSIGN(const Place* const found, find(plugin, BELAY_FS_SCRATCH));
  std::string temporary;
  {
    std::lock_guard lock(mutex_);
    temporary = ".belay-" + std::to_string(++temporary_);
  }
  const int folder = found->folder.get();
  const std::string what = "file of plugin " + quote(plugin);
  Fd file(openat(folder, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0) return open_error(what, std::string(name), errno);
  int error = write_all(file.get(), bytes);
  file = Fd();  // some file systems tell only now; a full one has told before
  if (error == 0 && renameat(folder, temporary.c_str(), folder, parts[0].c_str()) != 0) error = errno;
  if (error == 0) return {};
  unlinkat(folder, temporary.c_str(), 0);
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG || error == ENOMEM;
  return {full              ? Code::kResourceExhausted
          : error == EISDIR ? Code::kInvalidArgument
                            : Code::kUnavailable,
          what + " " + quote(name) + " with " + std::to_string(bytes.len) + " bytes cannot be written in " +
              found->path + ": " + std::strerror(error) + "; it is as it was."};
}

Status PluginFiles::remove(const std::string& plugin, std::string_view name) {
  BELAY_ASSIGN(const std::vector<std::string> parts, parts_of(name, false));
  BELAY_ASSIGN(const Place* const found, find(plugin, BELAY_FS_SCRATCH));
  if (unlinkat(found->folder.get(), parts[0].c_str(), 0) == 0) return {};
  return open_error("file of plugin " + quote(plugin), std::string(name), errno);
}

std::vector<std::string> PluginFiles::take_back(const std::string& plugin) {
  std::vector<std::string> left;
  std::lock_guard lock(mutex_);
  for (const uint32_t place : {BELAY_FS_DATA, BELAY_FS_SCRATCH}) {
    const auto at = places_.find({plugin, place});
    if (at == places_.end()) continue;
    std::error_code error;
    if (place == BELAY_FS_SCRATCH) fs::remove_all(at->second.path, error);
    if (error) left.push_back("the scratch folder " + at->second.path + " (" + error.message() + ")");
    places_.erase(at);
  }
  return left;
}

const belay_fs_vt kFilesTable = {
    {sizeof(belay_fs_vt), 0, nullptr},
    [](const belay_host* host, uint32_t place, belay_sink sink) {
      return host_call<belay_status>(host, [&](HostTable& table) -> Status {
        BELAY_ASSIGN(const std::string path, services_of(table).files.path(table.plugin, place));
        write(sink, path);
        return {};
      });
    },
    [](const belay_host* host, uint32_t place, belay_str name, uint32_t write, int32_t* out_fd) {
      return host_call<belay_status>(host, [&](HostTable& table) -> Status {
        if (!out_fd) return {Code::kInvalidArgument, "open of a file was given no place for the descriptor."};
        BELAY_ASSIGN(Fd file, services_of(table).files.open(table.plugin, place, to_view(name), write != 0));
        *out_fd = file.release();
        return {};
      });
    },
    [](const belay_host* host, uint32_t place, belay_str name, belay_sink sink) {
      return host_call<belay_status>(host, [&](HostTable& table) {
        return services_of(table).files.read(table.plugin, place, to_view(name), sink);
      });
    },
    [](const belay_host* host, belay_str name, belay_span bytes) {
      return host_call<belay_status>(host, [&](HostTable& table) {
        return services_of(table).files.write(table.plugin, to_view(name), bytes);
      });
    },
    [](const belay_host* host, belay_str name) {
      return host_call<belay_status>(host, [&](HostTable& table) {
        return services_of(table).files.remove(table.plugin, to_view(name));
      });
    }};

}  // namespace belay::core
