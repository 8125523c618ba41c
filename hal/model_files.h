// hal/model_files.h: the files of a model: the model itself and what it refers to.
#pragma once

#include <belay/abi/model_format.h>
#include <belay/status.hpp>
#include "hal/shared_mapping.h"

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace belay::hal {

// One file, read-only: mapped, once for all that read it, or copied into memory. Its bytes stay where they are as long as it lives.
class ModelFile {
 public:
  // NOT_FOUND (names the nearest file of the folder), PERMISSION_DENIED, INVALID_ARGUMENT (no regular file).
  static Result<std::unique_ptr<ModelFile>> open(const std::string& path, bool copy);
  // The side file `name` of a model in `folder`, which it may not leave: no absolute path, no "..", no
  // symbolic link, regular files only. NOT_FOUND, PERMISSION_DENIED (says which rule), INVALID_ARGUMENT.
  static Result<std::unique_ptr<ModelFile>> open_beneath(const std::string& folder, std::string_view name,
                                                         bool copy);
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  const std::string& path() const { return path_; }
  belay_span bytes() const { return {address_, bytes_}; }
  // DATA_LOSS: the file has changed since it was opened, or reading met its new end.
  Status check() const;
  bool damaged() const { return mapping_ && mapping_->damaged(); }

 private:
  ModelFile() = default;
  static Result<std::unique_ptr<ModelFile>> take(int fd, std::string path, bool copy);

  std::string path_;
  int fd_ = -1;  // kept open while mapped, for check()
  void* address_ = nullptr;
  uint64_t bytes_ = 0;
  struct stat stat_ {};
  std::shared_ptr<const SharedMapping> mapping_;  // null: copied
};

// The reader that a model format gets, and the owner of all that it opened. Not thread-safe but for check().
class ModelFiles {
 public:
  // A model in memory; `folder` may be empty.
  ModelFiles(belay_span bytes, std::string folder, bool copy);
  // A model in a file.
  ModelFiles(std::unique_ptr<ModelFile> model, bool copy);

  // `host` makes the statuses of the reader's slots.
  belay_model_reader* reader(const belay_host& host);
  belay_span model() const { return sources_[0].bytes; }
  // Of all sources, in the order of their numbers.
  std::vector<belay_span> spans() const;
  const std::string& path() const { return path_; }  // empty: from memory

  // DATA_LOSS names a file that changed. Looks at most once in a millisecond.
  Status check() const;
  // DATA_LOSS: zeros were read in place of what a file had lost.
  Status check_damage() const;

 private:
  struct Source {
    std::string name;  // as the model says it
    belay_span bytes;
    std::unique_ptr<ModelFile> file;  // null: in memory
  };
  struct Reader : belay_model_reader {
    ModelFiles* files;
    const belay_host* host;
  };
  Result<uint32_t> open(std::string_view name);
  static belay_status slot_map(belay_model_reader*, uint32_t source, belay_span* out) noexcept;
  static belay_status slot_open(belay_model_reader*, belay_str name, uint32_t* out_source) noexcept;

  std::string path_, folder_;
  const bool copy_;
  std::vector<Source> sources_;
  Reader reader_{};
  mutable std::atomic<uint64_t> checked_ns_{0};
};

}  // namespace belay::hal
