#include "hal/model_files.h"

#include "core/base/text.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace belay::hal {
namespace {

constexpr uint64_t kCheckEveryNs = 1'000'000;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// " - did you mean 'model.onnx'?", from the names in the folder.
std::string nearest_file(const std::string& path) {
  const std::string folder = folder_of(path), name = path.substr(path.rfind('/') + 1);
  DIR* dir = opendir(folder.c_str());
  if (!dir) return " (folder '" + folder + "': " + std::strerror(errno) + ")";
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir))
    if (entry->d_name[0] != '.' && names.size() < 10000) names.emplace_back(entry->d_name);
  closedir(dir);
  return core::did_you_mean(name, names);
}

Status failed_to_open(const std::string& path, int error) {
  const std::string text = "Cannot open '" + path + "': " + std::strerror(error);
  switch (error) {
    case ENOENT:
      return {Code::kNotFound, "There is no file '" + path + "'" + nearest_file(path) + "."};
    case ENOTDIR:
      return {Code::kNotFound, text + "."};
    case EACCES:
    case EPERM:
      return {Code::kPermissionDenied, text + "; want a file and folders that this user may read."};
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return {Code::kResourceExhausted, text + "."};
    default:
      return {Code::kInvalidArgument, text + "."};
  }
}

uint64_t coarse_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

}  // namespace

// ---- one file
// --------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<ModelFile>> ModelFile::open(const std::string& path, bool copy) {
  if (path.empty()) return Status(Code::kInvalidArgument, "The path of the model is empty.");
  if (path.find('\0') != std::string::npos)
    return Status(Code::kInvalidArgument, "The path of the model has a NUL in it.");
  // O_NONBLOCK: opening a FIFO returns, so that it can be refused.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return failed_to_open(path, errno);
  return take(fd, path, copy);
}

Result<std::unique_ptr<ModelFile>> ModelFile::open_beneath(const std::string& folder, std::string_view name,
                                                           bool copy) {
  const std::string shown = "side file '" + std::string(name.substr(0, 256)) + "'";
  const auto refused = [&](const char* why) {
    return Status(Code::kPermissionDenied, "The " + shown + " " + why +
                                               "; it must be named relative to the model's folder '" +
                                               folder + "' and lie in it.");
  };
  if (name.empty()) return Status(Code::kInvalidArgument, "The model names a side file with an empty name.");
  if (name.find('\0') != std::string_view::npos) return refused("has a NUL in its name");
  if (name.size() > 4096) return refused("has a name of more than 4096 bytes");
  if (name.front() == '/' || name.front() == '\\') return refused("has an absolute path");
  if (name.size() > 1 && name[1] == ':') return refused("has a drive letter");

  if (("/" + std::string(name) + "/").find("/../") != std::string::npos) return refused("has '..' in its path");

  int at = ::open(folder.empty() ? "." : folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (at < 0) return failed_to_open(folder, errno);
  const std::string full = folder + "/" + std::string(name);
  for (std::string_view rest = name;;) {
    const size_t slash = rest.find('/');
    const std::string part(rest.substr(0, slash));
    const bool last = slash == std::string_view::npos;
    if (part.empty() || part == ".") {
      if (last) {
        close(at);
        return refused("has a path that ends in a folder");
      }
      rest.remove_prefix(slash + 1);
      continue;
    }
    const int flags = last ? O_RDONLY | O_NONBLOCK | O_NOCTTY : O_PATH | O_DIRECTORY;
    const int next = openat(at, part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC);
    const int error = errno;
    struct stat link {};
    const bool is_link =
        next < 0 && fstatat(at, part.c_str(), &link, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(link.st_mode);
    close(at);
    if (is_link) return refused("leads through a symbolic link");
    if (next < 0) return failed_to_open(full, error);
    if (last) return take(next, full, copy);
    at = next;
    rest.remove_prefix(slash + 1);
  }
}

Result<std::unique_ptr<ModelFile>> ModelFile::take(int fd, std::string path, bool copy) {
  std::unique_ptr<ModelFile> file(new ModelFile);
  file->fd_ = fd;
  file->path_ = std::move(path);
  if (fstat(fd, &file->stat_) != 0) return failed_to_open(file->path_, errno);
  if (S_ISDIR(file->stat_.st_mode))
    return Status(Code::kInvalidArgument, "'" + file->path_ + "' is a folder, want a file.");
  if (!S_ISREG(file->stat_.st_mode))
    return Status(Code::kInvalidArgument,
                  "'" + file->path_ + "' is no regular file (a device, pipe or socket).");
  file->bytes_ = uint64_t(file->stat_.st_size);
  if (file->bytes_ == 0) return file;

  if (!copy) {
    BELAY_ASSIGN(file->mapping_, SharedMapping::of(fd, file->stat_, file->path_));
    file->address_ = file->mapping_->address();
    return file;
  }
  void* address = mmap(nullptr, file->bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return Status(Code::kResourceExhausted, "There is no memory for a copy of '" + file->path_ + "' (" +
                                                std::to_string(file->bytes_) +
                                                " bytes): " + std::strerror(errno) + ".");
  file->address_ = address;
  for (uint64_t done = 0; done < file->bytes_;) {
    const ssize_t got = pread(fd, static_cast<char*>(address) + done,
                              std::min<uint64_t>(file->bytes_ - done, 1u << 30), off_t(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return Status(Code::kDataLoss,
                    "'" + file->path_ + "' ended at " + std::to_string(done) + " of " +
                        std::to_string(file->bytes_) + " bytes while it was read" +
                        (got < 0 ? std::string(": ") + std::strerror(errno) : std::string()) + ".");
    done += uint64_t(got);
  }
  mprotect(address, file->bytes_, PROT_READ);
  close(fd);
  file->fd_ = -1;
  return file;
}

ModelFile::~ModelFile() {
  if (address_ && !mapping_) munmap(address_, bytes_);
  if (fd_ >= 0) close(fd_);
}

Status ModelFile::check() const {
  if (fd_ < 0) return {};
  struct stat now {};
  if (fstat(fd_, &now) != 0) return {};  // says nothing about the bytes, which stay mapped
  const auto changed = [&](const std::string& how) {
    return Status(Code::kDataLoss,
                  "'" + path_ + "' " + how +
                      " while a model used it; load it again, or set [models] weights = \"copy\".");
  };
  if (now.st_size != stat_.st_size)
    return changed("changed its size from " + std::to_string(stat_.st_size) + " to " +
                   std::to_string(now.st_size) + " bytes");
  if (now.st_mtim.tv_sec != stat_.st_mtim.tv_sec || now.st_mtim.tv_nsec != stat_.st_mtim.tv_nsec)
    return changed("was written to");
  return {};
}

// ---- all files of a model
// --------------------------------------------------------------------------------------------

ModelFiles::ModelFiles(belay_span bytes, std::string folder, bool copy)
    : folder_(std::move(folder)), copy_(copy) {
  sources_.push_back({"", bytes, nullptr});
}

ModelFiles::ModelFiles(std::unique_ptr<ModelFile> model, bool copy)
    : path_(model->path()), folder_(folder_of(path_)), copy_(copy) {
  const belay_span bytes = model->bytes();
  sources_.push_back({"", bytes, std::move(model)});
}

belay_model_reader* ModelFiles::reader(const belay_host& host) {
  reader_.hdr = {sizeof(belay_model_reader), 0, nullptr};
  reader_.path = to_str(path_);
  reader_.map = slot_map;
  reader_.open = slot_open;
  reader_.files = this;
  reader_.host = &host;
  return &reader_;
}

std::vector<belay_span> ModelFiles::spans() const {
  std::vector<belay_span> all;
  for (const Source& source : sources_) all.push_back(source.bytes);
  return all;
}

Status ModelFiles::check() const {
  const uint64_t now = coarse_now_ns(), before = checked_ns_.load(std::memory_order_relaxed);
  if (now - before < kCheckEveryNs) return {};
  for (const Source& source : sources_)
    if (source.file) BELAY_TRY(source.file->check());
  checked_ns_.store(now, std::memory_order_relaxed);
  return {};
}

Status ModelFiles::check_damage() const {
  for (const Source& source : sources_)
    if (source.file && source.file->damaged()) {
      BELAY_TRY(source.file->check());
      return {Code::kDataLoss,
              "'" + source.file->path() +
                  "' could not be read to its end while a model used it: it was "
                  "cut, or its device failed. Load it again, or set [models] weights = \"copy\"."};
    }
  return {};
}

Result<uint32_t> ModelFiles::open(std::string_view name) {
  for (size_t i = 1; i < sources_.size(); ++i)
    if (sources_[i].name == name) return uint32_t(i);
  if (folder_.empty())
    return Status(Code::kFailedPrecondition, "The model comes from memory and refers to the side file '" +
                                                 std::string(name) +
                                                 "'; say in which folder its side files lie.");
  if (sources_.size() >= 65536)
    return Status(Code::kResourceExhausted, "The model refers to more than 65535 side files.");
  BELAY_ASSIGN(std::unique_ptr<ModelFile> file, ModelFile::open_beneath(folder_, name, copy_));
  const belay_span bytes = file->bytes();
  sources_.push_back({std::string(name), bytes, std::move(file)});
  return uint32_t(sources_.size() - 1);
}

belay_status ModelFiles::slot_map(belay_model_reader* reader, uint32_t source, belay_span* out) noexcept {
  Reader& self = *static_cast<Reader*>(reader);
  return guard(*self.host, [&]() -> Status {
    if (source >= self.files->sources_.size())
      return {Code::kOutOfRange, "There is no source " + std::to_string(source) + "; there are " +
                                     std::to_string(self.files->sources_.size()) + "."};
    *out = self.files->sources_[source].bytes;
    return {};
  });
}

belay_status ModelFiles::slot_open(belay_model_reader* reader, belay_str name,
                                   uint32_t* out_source) noexcept {
  Reader& self = *static_cast<Reader*>(reader);
  return guard(*self.host, [&]() -> Status {
    BELAY_ASSIGN(*out_source, self.files->open(to_view(name)));
    return {};
  });
}

}  // namespace belay::hal
