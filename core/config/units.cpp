#include "core/config/units.h"

#include "core/base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace belay::core {
namespace {

struct UnitName {
  std::string_view name;
  int64_t factor;
};
constexpr UnitName kSizes[] = {{"TiB", 1ll << 40}, {"GiB", 1ll << 30},    {"MiB", 1ll << 20},
                               {"KiB", 1ll << 10}, {"TB", 1000000000000}, {"GB", 1000000000},
                               {"MB", 1000000},    {"KB", 1000},          {"B", 1}};
constexpr UnitName kDurations[] = {{"h", 3600000000000}, {"min", 60000000000}, {"s", 1000000000},
                                   {"ms", 1000000},      {"us", 1000},         {"ns", 1}};

constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();

template <size_t n>
Result<int64_t> parse_unit(std::string_view text, const UnitName (&units)[n], const char* want) {
  double number = 0;
  const char* const begin = text.data();
  const auto [end, error] = std::from_chars(begin, begin + text.size(), number, std::chars_format::fixed);
  std::string_view unit = text.substr(size_t(end - begin));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const bool read = error == std::errc() && number >= 0;
  if (read && number == 0 && unit.empty()) return 0;
  const auto known = std::find_if(units, units + n, [&](const UnitName& one) { return one.name == unit; });
  uint64_t whole = 0;
  const auto digits = std::from_chars(begin, end, whole);
  const bool exact = digits.ptr == end && digits.ec == std::errc();
  // What is too large is that without a unit too.
  if (read && (known != units + n || unit.empty())) {
    const uint64_t factor = known != units + n ? uint64_t(known->factor) : 1;
    if (exact ? whole > kMost / factor : number * double(factor) >= 0x1p63)
      return Status(Code::kOutOfRange, quote(text) + " is more than " + std::to_string(kMost) +
                                           std::string(units[n - 1].name) + ", the largest " + want);
    if (!unit.empty()) return exact ? int64_t(whole * factor) : std::llround(number * double(factor));
  }
  return Status(Code::kInvalidArgument, quote(text) + " is no " + want);
}

template <size_t n>
std::string print_unit(int64_t value, const UnitName (&units)[n]) {
  for (const UnitName& unit : units)
    if (value != 0 && value % unit.factor == 0 && (unit.name.size() != 2 || unit.name[1] != 'B'))
      return std::to_string(value / unit.factor) + std::string(unit.name);
  return std::to_string(value) + std::string(units[n - 1].name);
}

}  // namespace

Result<int64_t> parse_size(std::string_view text) { return parse_unit(text, kSizes, "size"); }
Result<int64_t> parse_duration(std::string_view text) { return parse_unit(text, kDurations, "duration"); }
std::string print_size(int64_t bytes) { return print_unit(bytes, kSizes); }
std::string print_duration(int64_t nanoseconds) { return print_unit(nanoseconds, kDurations); }

}  // namespace belay::core
