// Text for people: numbers with units, tables, safe printing of foreign names, and the nearest of some words.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay::cli {

std::string bytes_text(uint64_t bytes);     // "96.2 KiB"
std::string time_text(double nanoseconds);  // "1.23 ms"
std::string fixed(double value, int decimals);

// Names come from files: control characters and broken UTF-8 become \xHH, so that none reaches the terminal.
std::string printable(std::string_view text);
// The same for XML.
std::string xml_text(std::string_view text);

// The number that the whole text is; nothing: it is none, or T does not hold it.
template <class T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Bytes: a whole number, alone or with B, KiB, MiB, GiB, TiB, KB, MB, GB or TB. Nothing: it is none, or 64 bits do not
// hold it.
std::optional<uint64_t> size_of(std::string_view text);

std::string joined(std::span<const std::string> words, std::string_view separator = ", ");
std::string plural(uint64_t count, std::string_view noun);  // "1 node", "2 nodes"

// The word nearest to `word`, or "" when none is near.
std::string nearest(std::string_view word, std::span<const std::string> words);
// "did you mean 'x'?" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> words);
// For a path that is not there: the nearest name in its folder, as "did you mean 'models/digits.onnx'?", or
// "".
std::string did_you_mean_file(const std::string& path);

// Rows of cells under each other, two spaces between, `indent` before; no space at the end of a line. Columns
// named in `right` (by index) are aligned right.
class Table {
 public:
  explicit Table(int indent = 0, std::vector<size_t> right = {})
      : indent_(indent), right_(std::move(right)) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  std::string text() const;

 private:
  int indent_;
  std::vector<size_t> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace belay::cli
