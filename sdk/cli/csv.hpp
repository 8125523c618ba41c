// Tables of comma-separated values in files, plain or compressed by gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

namespace belay::cli {

// The lines of a file, without the mark of UTF-8 that it may begin with. Failures name it, and the line where
// that matters.
class Lines {
 public:
  explicit Lines(const std::string& path);
  ~Lines() { inflateEnd(&zip_); }  // does nothing where it never began
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  // False at the end.
  bool next(std::string& line);
  uint64_t number() const { return number_; }  // of the last one, from 1
  std::string name() const;                    // of the file, quoted

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  // More of the file into raw_, behind what is left there. False: there is no more.
  bool read();
  // The next text into buffer_. False at the end.
  bool fill();
  bool inflate_some();
  [[noreturn]] void fail(const std::string& why) const;

  const std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::string raw_ = std::string(1 << 16, '\0'), buffer_ = raw_;
  z_stream zip_{};  // next_in, avail_in: what is left of raw_, compressed or not
  bool begun_ = false, zipped_ = false, in_member_ = false;
  size_t at_ = 0, end_ = 0;
  uint64_t total_ = 0, number_ = 0;
};

// The first line of a table, which names its columns in any order.
class Header {
 public:
  // Fails where there is none, or where it names a column twice. `example`: "id,size".
  Header(Lines& lines, const std::string& example);
  std::optional<size_t> find(std::string_view name) const;
  size_t need(std::string_view name) const;  // fails where it is not there
  // Of the last line of `lines`, without the blanks around them, one for each column; fails where it has
  // others.
  std::vector<std::string_view> cells(const Lines& lines, std::string_view line) const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  const std::string file_, example_;
  std::string line_;
  std::vector<std::string_view> names_;
};

}  // namespace belay::cli
