// schedule/text.hpp: what operators on text need of characters and numbers, apart from tensors.
#pragma once

#include <belay/status.hpp>

#include <clocale>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace belay::schedule {

inline constexpr char32_t kNoCharacter = 0xffffffff;
// The character at `at`, which moves behind it; kNoCharacter, and it stays, where there is no UTF-8.
char32_t next_character(std::string_view text, size_t& at);

// Lower and upper case of UTF-8, one character for one, by Unicode's tables. Of languages only those with a
// dotless i differ, so that a result depends on the locale's name and never on what the machine has installed.
class CaseMap {
 public:
  // `locale`: "en_US", "tr_TR.UTF-8", "C" (ASCII only). Errors: INVALID_ARGUMENT (no name of a locale).
  static Result<CaseMap> of(std::string_view locale);
  char32_t lower(char32_t c) const;
  char32_t upper(char32_t c) const;
  // Errors: INVALID_ARGUMENT (no UTF-8).
  Result<std::string> lower(std::string_view text) const { return change(text, false); }
  Result<std::string> upper(std::string_view text) const { return change(text, true); }

 private:
  struct Free {
    void operator()(locale_t at) const { freelocale(at); }
  };
  Result<std::string> change(std::string_view text, bool upper) const;
  std::shared_ptr<std::remove_pointer_t<locale_t>> unicode_;  // null: ASCII
  bool dotless_ = false;
};

// Parts of a text as Python's str.split gives them: at each `delimiter`, at most `most` times (negative:
// everywhere); an empty one stands for runs of white space, which at the ends give no part.
std::vector<std::string_view> split_text(std::string_view text, std::string_view delimiter, int64_t most);

// A number in plain decimal digits, as few as bring the same number back; "NaN", "INF", "-INF".
std::string number_text(float value);
std::string number_text(double value);

// The number that `text` is, with white space around it: digits, an exponent, INF, NaN in any case. False: none.
// Too large a number is infinite.
bool parse_number(std::string_view text, float& out);
bool parse_number(std::string_view text, double& out);
// The same, cut to an integer. False: none, or out of range.
bool parse_number(std::string_view text, int64_t& out);
bool parse_number(std::string_view text, uint64_t& out);

}  // namespace belay::schedule
