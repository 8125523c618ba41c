#include "schedule/text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cwctype>
#include <limits>

namespace belay::schedule {
namespace {

constexpr char32_t kCapitalDotted = 0x130, kSmallDotless = 0x131;

void encode(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += char(c);
  } else if (c < 0x800) {
    out += {char(0xc0 | c >> 6), char(0x80 | (c & 0x3f))};
  } else if (c < 0x10000) {
    out += {char(0xe0 | c >> 12), char(0x80 | (c >> 6 & 0x3f)), char(0x80 | (c & 0x3f))};
  } else {
    out += {char(0xf0 | c >> 18), char(0x80 | (c >> 12 & 0x3f)), char(0x80 | (c >> 6 & 0x3f)),
            char(0x80 | (c & 0x3f))};
  }
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

// Bytes of white space at `at`; 0: there is none. What is no UTF-8 is none.
size_t space_at(std::string_view text, size_t at) {
  const size_t begin = at;
  return is_space(next_character(text, at)) ? at - begin : 0;
}

// language[_territory][.charset][@modifier]
bool is_locale_name(std::string_view name) {
  size_t at = 0;
  const auto word = [&](auto fits) {
    const size_t begin = at;
    while (at < name.size() && fits(name[at])) ++at;
    return at - begin;
  };
  const auto letter = [](char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; };
  const auto sign = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '-'; };
  const size_t language = word(letter);
  if (language < 2 || language > 8) return false;
  for (const char mark : {'_', '.', '@'}) {
    const bool dash = mark == '_' && at < name.size() && name[at] == '-';
    if (at >= name.size() || (name[at] != mark && !dash)) continue;
    ++at;
    if (!word(sign)) return false;
  }
  return at == name.size();
}

std::string_view trimmed(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || (c >= 9 && c <= 13); };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

// from_chars takes no '+'.
bool unsigned_part(std::string_view& text) {
  text = trimmed(text);
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    return text.empty() || (text.front() != '-' && text.front() != '+');
  }
  return true;
}

template <class T>
bool parse_float(std::string_view text, T& out) {
  if (!unsigned_part(text) || text.empty()) return false;
  // Forms like nan(1) are C's, not a number's.
  if (text.find('(') != std::string_view::npos) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return false;
  if (error == std::errc::result_out_of_range) {
    // Too large or too small: a wider type tells, and beyond that the text itself.
    long double wide = 0;
    const bool negative = text.front() == '-';
    bool large = false;
    if (std::from_chars(text.data(), text.data() + text.size(), wide).ec == std::errc()) {
      large = std::fabs(wide) > 1;
    } else if (const size_t exponent = text.find_first_of("eE"); exponent != std::string_view::npos) {
      large = text.find('-', exponent) == std::string_view::npos;
    } else {
      large = !text.substr(negative).starts_with("0.") && !text.substr(negative).starts_with('.');
    }
    out = large ? std::numeric_limits<T>::infinity() : T(0);
    if (negative) out = -out;
  }
  return true;
}

template <class T>
bool parse_whole(std::string_view text, T& out) {
  if (!unsigned_part(text) || text.empty()) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (end == text.data() + text.size() && error == std::errc()) return true;
  double real = 0;
  if (!parse_float(text, real) || !std::isfinite(real)) return false;
  real = std::trunc(real);
  // The limits as doubles: the upper one is a power of two that does not fit any more.
  const double high = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (real >= high || real < (std::is_signed_v<T> ? -high : 0.0)) return false;
  out = T(real);
  return true;
}

template <class T>
std::string float_text(T value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-INF" : "INF";
  char digits[512];  // the smallest double has 324 places and at most 17 digits
  return {digits, std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed).ptr};
}

}  // namespace

char32_t next_character(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  const uint8_t first = byte(at);
  if (first < 0x80) return ++at, first;
  const size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  if (first < 0xc2 || first > 0xf4) return kNoCharacter;
  char32_t out = first & (0x3f >> more);
  for (size_t i = 1; i <= more; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return kNoCharacter;
    out = out << 6 | (byte(at + i) & 0x3f);
  }
  const bool long_form = (more == 2 && out < 0x800) || (more == 3 && out < 0x10000);
  if (long_form || out > 0x10ffff || (out >= 0xd800 && out < 0xe000)) return kNoCharacter;
  at += more + 1;
  return out;
}

Result<CaseMap> CaseMap::of(std::string_view locale) {
  CaseMap out;
  if (locale == "C" || locale == "POSIX") return out;
  if (!locale.empty() && !is_locale_name(locale))
    return Status(Code::kInvalidArgument,
                  "'" + std::string(locale) + "' is no name of a locale; want one like en_US.");
  const locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (!unicode) return Status(Code::kFailedPrecondition, "The system has no locale C.UTF-8: install it.");
  out.unicode_ = std::shared_ptr<std::remove_pointer_t<locale_t>>(unicode, Free{});
  const std::string_view language = locale.substr(0, locale.find_first_of("_-.@"));
  for (const std::string_view other : {"tr", "az", "ku", "crh"}) out.dotless_ |= language == other;
  return out;
}

char32_t CaseMap::lower(char32_t c) const {
  if (!unicode_) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return dotless_ && c == 'I' ? kSmallDotless : char32_t(towlower_l(wint_t(c), unicode_.get()));
}

char32_t CaseMap::upper(char32_t c) const {
  if (!unicode_) return c >= 'a' && c <= 'z' ? c - 32 : c;
  return dotless_ && c == 'i' ? kCapitalDotted : char32_t(towupper_l(wint_t(c), unicode_.get()));
}

Result<std::string> CaseMap::change(std::string_view text, bool upper) const {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    char32_t c = next_character(text, at);
    if (c == kNoCharacter)
      return Status(Code::kInvalidArgument,
                    "its bytes from " + std::to_string(at) + " on are no UTF-8, so it has no case");
    c = upper ? this->upper(c) : lower(c);
    encode(c, out);
  }
  return out;
}

std::vector<std::string_view> split_text(std::string_view text, std::string_view delimiter, int64_t most) {
  std::vector<std::string_view> parts;
  const auto full = [&] { return most >= 0 && int64_t(parts.size()) >= most; };
  if (!delimiter.empty()) {
    size_t begin = 0;
    for (size_t at; !full() && (at = text.find(delimiter, begin)) != std::string_view::npos;
         begin = at + delimiter.size())
      parts.push_back(text.substr(begin, at - begin));
    parts.push_back(text.substr(begin));
    return parts;
  }
  for (size_t at = 0;;) {
    while (const size_t width = at < text.size() ? space_at(text, at) : 0) at += width;
    if (at == text.size()) return parts;
    if (full()) return parts.push_back(text.substr(at)), parts;
    const size_t begin = at;
    while (at < text.size() && !space_at(text, at)) ++at;
    parts.push_back(text.substr(begin, at - begin));
  }
}

std::string number_text(float value) { return float_text(value); }
std::string number_text(double value) { return float_text(value); }
bool parse_number(std::string_view text, float& out) { return parse_float(text, out); }
bool parse_number(std::string_view text, double& out) { return parse_float(text, out); }
bool parse_number(std::string_view text, int64_t& out) { return parse_whole(text, out); }
bool parse_number(std::string_view text, uint64_t& out) { return parse_whole(text, out); }

}  // namespace belay::schedule
