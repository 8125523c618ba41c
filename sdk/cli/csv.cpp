#include "csv.hpp"

#include "failure.hpp"
#include "text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace belay::cli {
namespace {

constexpr std::string_view kMember = "\x1f\x8b", kUtf8Mark = "\xef\xbb\xbf";
constexpr uint64_t kMostBytes = uint64_t{1} << 32;  // of text, so that a small file cannot fill the memory

// Without the blanks around them.
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

}  // namespace

Lines::Lines(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
  if (!file_)
    fail_input("Cannot open " + name() + ": " + std::strerror(errno) + ".", did_you_mean_file(path));
}

std::string Lines::name() const { return "'" + printable(path_) + "'"; }

void Lines::fail(const std::string& why) const { fail_input("Cannot read " + name() + ": " + why + "."); }

bool Lines::read() {
  const size_t left = zip_.avail_in;
  std::memmove(raw_.data(), zip_.next_in, left);
  const size_t got = std::fread(raw_.data() + left, 1, raw_.size() - left, file_.get());
  if (std::ferror(file_.get())) fail(std::strerror(errno));
  zip_.next_in = reinterpret_cast<Bytef*>(raw_.data());
  zip_.avail_in = uInt(left + got);
  return got > 0;
}

bool Lines::fill() {
  const auto begins_with = [&](std::string_view bytes) {
    while (zip_.avail_in < bytes.size() && read()) {
    }
    return zip_.avail_in >= bytes.size() && std::memcmp(zip_.next_in, bytes.data(), bytes.size()) == 0;
  };
  if (!std::exchange(begun_, true)) {
    zip_.next_in = reinterpret_cast<Bytef*>(raw_.data());
    zipped_ = begins_with(kMember);
  }
  at_ = end_ = 0;
  while (zipped_ && !end_) {
    if (!in_member_) {
      if (!zip_.avail_in && !read()) return false;
      if (!begins_with(kMember))
        fail(
            "behind its last member of gzip there are bytes that are none; cut them off, or compress it "
            "anew");
      inflateEnd(&zip_);
      if (inflateInit2(&zip_, 15 + 16) != Z_OK) throw std::bad_alloc();
      in_member_ = true;
    }
    if (!zip_.avail_in && !read()) fail("it is cut off");
    zip_.next_out = reinterpret_cast<Bytef*>(buffer_.data());
    zip_.avail_out = uInt(buffer_.size());
    const int code = inflate(&zip_, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      fail(zip_.msg ? zip_.msg : "it is not compressed by gzip");
    in_member_ = code != Z_STREAM_END;
    end_ = buffer_.size() - zip_.avail_out;
  }
  if (!zipped_) {
    if (!zip_.avail_in && !read()) return false;
    std::swap(buffer_, raw_);
    end_ = std::exchange(zip_.avail_in, 0);
  }
  if ((total_ += end_) > kMostBytes) fail_input(name() + " has more than 4 GiB of text.");
  return true;
}

bool Lines::next(std::string& line) {
  line.clear();
  for (;;) {
    if (at_ == end_ && !fill()) return !line.empty() && ++number_;
    const char c = buffer_[at_++];
    if (c == '\n') {
      ++number_;
      return true;
    }
    if (c != '\r') line += c;
    if (number_ == 0 && line == kUtf8Mark) line.clear();
    if (line.size() > 4096)
      fail_input("Line " + std::to_string(number_ + 1) + " of " + name() + " is longer than 4096 bytes.");
  }
}

Header::Header(Lines& lines, const std::string& example) : file_(lines.name()), example_(example) {
  if (!lines.next(line_)) fail_input(file_ + " is empty; want the header " + example_ + ".");
  names_ = cells_of(line_);
  for (size_t i = 0; i < names_.size(); ++i)
    if (!names_[i].empty() && find(names_[i]) != i)
      fail("names the column '" + printable(names_[i]) + "' twice");
}

std::optional<size_t> Header::find(std::string_view name) const {
  const auto at = std::find(names_.begin(), names_.end(), name);
  return at == names_.end() ? std::nullopt : std::optional(size_t(at - names_.begin()));
}

size_t Header::need(std::string_view name) const {
  const std::optional<size_t> at = find(name);
  if (!at) fail("lacks the column '" + std::string(name) + "'");
  return *at;
}

std::vector<std::string_view> Header::cells(const Lines& lines, std::string_view line) const {
  std::vector<std::string_view> cells = cells_of(line);
  if (cells.size() != names_.size())
    fail_input("Line " + std::to_string(lines.number()) + " of " + file_ + " has " +
               plural(cells.size(), "value") + ", want " + std::to_string(names_.size()) + ".");
  return cells;
}

void Header::fail(const std::string& what) const {
  fail_input("The header of " + file_ + " is '" + printable(line_) + "'; it " + what + ".",
             "Want the columns " + example_ + ".");
}

}  // namespace belay::cli
