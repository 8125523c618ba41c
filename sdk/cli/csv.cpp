#include "csv.hpp"

#include "failure.hpp"
#include "text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace belay::cli {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 32;  // of text, so that a small file cannot fill the memory

}  // namespace

Lines::Lines(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
  if (!file_) fail_input("Cannot open '" + printable(path) + "'.", did_you_mean_file(path));
}

bool Lines::next(std::string& line) {
  line.clear();
  for (;;) {
    if (at_ == end_) {
      const int got = gzread(file_.get(), buffer_.data(), unsigned(buffer_.size()));
      int code = Z_OK;
      const char* const why = gzerror(file_.get(), &code);
      if (got < 0 || (got == 0 && code == Z_BUF_ERROR))  // the latter: cut off
        fail_input("Cannot read '" + printable(path_) + "': " +
                   (code == Z_ERRNO       ? std::strerror(errno)
                    : code == Z_BUF_ERROR ? "it is cut off"
                                          : why) +
                   ".");
      if (got == 0) return !line.empty() && ++number_;
      at_ = 0;
      end_ = size_t(got);
      if ((total_ += end_) > kMostBytes)
        fail_input("'" + printable(path_) + "' has more than 4 GiB of text.");
    }
    const char c = buffer_[at_++];
    if (c == '\n') {
      ++number_;
      return true;
    }
    if (c != '\r') line += c;
    if (line.size() > 4096)
      fail_input("Line " + std::to_string(number_ + 1) + " of '" + printable(path_) +
                 "' is longer than 4096 bytes.");
  }
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    std::string_view cell = line.substr(begin, end - begin);
    while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
    while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t')) cell.remove_suffix(1);
    cells.push_back(cell);
    begin = end + 1;
  }
  return cells;
}

}  // namespace belay::cli
