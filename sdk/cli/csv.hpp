// Tables of comma-separated values in files, plain or compressed by gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

namespace belay::cli {

// The lines of a file. Failures name it, and the line where that matters.
class Lines {
 public:
  explicit Lines(const std::string& path);
  // False at the end.
  bool next(std::string& line);
  uint64_t number() const { return number_; }  // of the last one, from 1

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  const std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::string buffer_ = std::string(1 << 16, '\0');
  size_t at_ = 0, end_ = 0;
  uint64_t total_ = 0, number_ = 0;
};

// Without the blanks around them.
std::vector<std::string_view> cells_of(std::string_view line);

}  // namespace belay::cli
