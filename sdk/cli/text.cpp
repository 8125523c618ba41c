#include "text.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace belay::cli {
namespace {

// Length of the UTF-8 character at the start of `text`, 0 when it is broken.
size_t character(std::string_view text) {
  const auto lead = uint8_t(text[0]);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((uint8_t(text[i]) & 0xc0) != 0x80) return 0;
  return length;
}

size_t width(std::string_view text) {  // columns, taking each character for one
  size_t columns = 0;
  for (const char c : text) columns += (uint8_t(c) & 0xc0) != 0x80;
  return columns;
}

// Edits (insert, remove, replace, swap of neighbours) from one word to the other, case ignored.
size_t distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) { return std::tolower(uint8_t(x)) == std::tolower(uint8_t(y)); };
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::optional<uint64_t> size_of(std::string_view text) {
  static constexpr std::pair<std::string_view, uint64_t> kUnits[] = {
      {"", 1},          {"B", 1},          {"KB", 1000},          {"MB", 1'000'000},
      {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20},
      {"GiB", 1ull << 30}, {"TiB", 1ull << 40}};
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = number_of<uint64_t>(text.substr(0, digits));
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  uint64_t bytes = 0;
  for (const auto& [name, factor] : kUnits)
    if (number && unit == name && !__builtin_mul_overflow(*number, factor, &bytes)) return bytes;
  return std::nullopt;
}

std::string bytes_text(uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = double(bytes);
  int unit = -1;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0) + " " + "KMGTP"[unit] + "iB";
}

std::string time_text(double nanoseconds) {
  const char* const units[] = {"ns", "us", "ms", "s"};
  int unit = 0;
  while (nanoseconds >= 1000 && unit < 3) nanoseconds /= 1000, ++unit;
  return fixed(nanoseconds, nanoseconds < 10 ? 2 : nanoseconds < 100 ? 1 : 0) + " " + units[unit];
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = character(text);
    const auto lead = uint8_t(text[0]);
    const bool control =
        lead < 0x20 || lead == 0x7f || (length == 2 && lead == 0xc2 && uint8_t(text[1]) < 0xa0);
    if (length == 0 || control) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x", lead);
      out += code;
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string joined(std::span<const std::string> words, std::string_view separator) {
  std::string out;
  for (const std::string& word : words) (out += out.empty() ? "" : separator) += word;
  return out;
}

std::string plural(uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string nearest(std::string_view word, std::span<const std::string> words) {
  constexpr size_t kLongest = 200;  // the cost is the product of the lengths
  std::string best;
  size_t best_edits = SIZE_MAX;
  if (word.empty() || word.size() > kLongest) return best;
  for (const std::string& candidate : words) {
    if (candidate.size() > kLongest) continue;
    size_t edits = distance(word, candidate);
    // A beginning of a word stands for it: "insp" for "inspect".
    if (word.size() >= 3 && candidate.starts_with(word)) edits = std::min<size_t>(edits, 1);
    if (edits < best_edits) best = candidate, best_edits = edits;
  }
  const size_t allowed = word.size() <= 3 ? 1 : word.size() <= 7 ? 2 : word.size() / 3;
  return best_edits <= allowed ? best : "";
}

std::string did_you_mean(std::string_view word, std::span<const std::string> words) {
  const std::string near = nearest(word, words);
  return near.empty() ? "" : "did you mean '" + printable(near) + "'?";
}

std::string did_you_mean_file(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path wanted(path);
  const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : ".";
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end && names.size() < 5000;
       it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());  // the same answer each time
  const std::string near = nearest(wanted.filename().string(), names);
  if (near.empty() || near == wanted.filename()) return "";  // it is there, but is not what is wanted
  return "did you mean '" + printable(wanted.has_parent_path() ? (folder / near).string() : near) + "'?";
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const auto& cells : rows_)
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      if (i + 1 < cells.size() || std::find(right_.begin(), right_.end(), i) != right_.end())
        widths[i] = std::max(widths[i], width(cells[i]));
    }
  std::string out;
  for (const auto& cells : rows_) {
    std::string line(size_t(indent_), ' ');
    for (size_t i = 0; i < cells.size(); ++i) {
      const size_t cell = width(cells[i]);
      const std::string pad(widths[i] > cell ? widths[i] - cell : 0, ' ');
      const bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      line += i == 0 ? "" : "  ";
      line += right ? pad + cells[i] : cells[i] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace belay::cli
