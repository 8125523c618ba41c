#include <belay/graph/dtype.hpp>
#include <belay/tensor_io.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <utility>

namespace belay {
namespace {

Code code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EACCES:
    case EPERM:
      return Code::kPermissionDenied;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return Code::kResourceExhausted;
    default:
      return Code::kDataLoss;
  }
}
Status io_error(const std::string& what, const std::string& path, int error) {
  return {code_of(error), what + " '" + path + "': " + std::strerror(error) + "."};
}

struct Descriptor {  // closes a file
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const Descriptor file{
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a FIFO must not make us wait
  if (file.fd < 0) return io_error("Cannot open", path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return io_error("Cannot read", path, errno);
  if (!S_ISREG(info.st_mode)) return Status(Code::kInvalidArgument, "'" + path + "' is not a regular file.");
  std::string out;
  try {
    out.resize(size_t(info.st_size));
  } catch (const std::exception&) {
    return Status(Code::kResourceExhausted,
                  "There is no memory for the " + std::to_string(info.st_size) + " bytes of '" + path + "'.");
  }
  size_t at = 0;
  while (at < out.size()) {
    const ssize_t n = ::read(file.fd, out.data() + at, out.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("Cannot read", path, errno);
    if (n == 0) return Status(Code::kDataLoss, "'" + path + "' shrank while it was read.");
    at += size_t(n);
  }
  return out;
}

Status write_file(const std::string& path, std::string_view bytes) {
  Descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  if (file.fd < 0) return io_error("Cannot create", path, errno);
  int error = 0;
  while (!bytes.empty() && error == 0) {
    const ssize_t n = ::write(file.fd, bytes.data(), bytes.size());
    if (n >= 0)
      bytes.remove_prefix(size_t(n));
    else if (errno != EINTR)
      error = errno;
  }
  struct stat info {};
  const bool regular = ::fstat(file.fd, &info) == 0 && S_ISREG(info.st_mode);
  // Some file systems say only now that there is no room.
  if (::close(std::exchange(file.fd, -1)) != 0 && error == 0 && errno != EINTR) error = errno;
  if (error == 0) return {};
  if (regular) ::unlink(path.c_str());  // half a file would pass for a whole one
  return io_error("Cannot write", path, error);
}

Result<HostTensor> read_raw(const std::string& path, uint32_t dtype, std::span<const int64_t> dims) {
  BELAY_ASSIGN(const std::string file, read_file(path));
  // Such a file, taken for numbers, would give a wrong answer without a word.
  if (file.starts_with("\x93NUMPY"))
    return Status(Code::kInvalidArgument, "'" + path + "' is a NumPy array: want a name that ends in .npy.");
  if (file.starts_with("PK\x03\x04"))
    return Status(
        Code::kInvalidArgument,
        "'" + path + "' is an archive (zip, as .npz is), want one array: save it with numpy.save as .npy.");
  const DtypeInfo* info = find_dtype(dtype);
  if (!info || info->bits == 0)
    return Status(Code::kInvalidArgument, "Raw file '" + path + "' needs a type of fixed width, got " +
                                              std::string(dtype_name(dtype)) + ".");
  std::vector<int64_t> shape(dims.begin(), dims.end());
  int64_t* open = nullptr;
  for (int64_t& dim : shape)
    if (dim == -1 && !open) {
      open = &dim;
      dim = 1;
    }
  if (open)
    if (const auto count = element_count(shape); count && *count > 0) {
      const uint64_t elements = uint64_t(file.size()) * 8 / info->bits;
      *open = int64_t(elements / *count);
    }
  auto tensor = HostTensor::copy_of(dtype, shape, std::as_bytes(std::span(file)));
  if (!tensor.ok()) return std::move(tensor).status().while_doing("reading raw file " + path);
  return tensor;
}

Status write_raw(const std::string& path, const HostTensor& tensor) {
  if (tensor.dtype == BELAY_DT_STRING)
    return {Code::kInvalidArgument,
            "Strings cannot be written to the raw file '" + path + "': want .npy or .pb."};
  return write_file(path, {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
}

Result<HostTensor> read_npy(const std::string& path, uint32_t dtype) {
  BELAY_ASSIGN(const std::string file, read_file(path));
  auto tensor = parse_npy(file, dtype);
  if (!tensor.ok()) return std::move(tensor).status().while_doing("reading " + path);
  return tensor;
}
Status write_npy(const std::string& path, const HostTensor& tensor) {
  return write_file(path, to_npy(tensor));
}

Result<HostDatum> read_pb(const std::string& path, uint32_t kind) {
  BELAY_ASSIGN(const std::string file, read_file(path));
  auto datum = parse_pb(file, kind);
  if (!datum.ok()) return std::move(datum).status().while_doing("reading " + path);
  return datum;
}
Status write_pb(const std::string& path, const HostDatum& datum, std::string_view name) {
  return write_file(path, to_pb(datum, name));
}

Result<HostDatum> read_datum(const std::string& path, uint32_t kind, uint32_t dtype,
                             const std::optional<std::vector<int64_t>>& dims) {
  if (path.ends_with(".pb")) return read_pb(path, kind);
  if (kind != BELAY_TYPE_TENSOR)
    return Status(Code::kInvalidArgument,
                  "'" + path + "' is to hold a sequence, optional or map: want a .pb file.");
  if (path.ends_with(".npy")) {
    BELAY_ASSIGN(HostTensor tensor, read_npy(path, dtype));
    return HostDatum(std::move(tensor));
  }
  if (!dims)
    return Status(Code::kInvalidArgument,
                  "Raw file '" + path + "' needs a shape; files that have their own end in .npy or .pb.");
  BELAY_ASSIGN(HostTensor tensor, read_raw(path, dtype, *dims));
  return HostDatum(std::move(tensor));
}

}  // namespace belay
