// schedule/regex.hpp: regular expressions in the syntax of RE2, for whole texts. All states of the automaton move on
// together, so time is linear in the text, and a pattern from a model cannot make it more.
#pragma once

#include "schedule/text.hpp"

#include <optional>

namespace belay::schedule {

class Regex {
 public:
  // Errors: INVALID_ARGUMENT (shows the pattern and says where and what), UNIMPLEMENTED (classes of Unicode, \C).
  static Result<Regex> compile(std::string_view pattern);
  // Whether it matches the whole text. What is no UTF-8 matches nothing.
  bool matches(std::string_view text) const;

  struct Range {
    char32_t first, last;
  };
  struct Class {
    std::vector<Range> ranges;
    bool negated = false, folds = false;  // folds: in either case
  };
  enum class Op : uint8_t { kClass, kSplit, kBegin, kEnd, kLineBegin, kLineEnd, kWord, kNoWord, kMatch };
  struct Step {
    Op op;
    uint32_t next = 0, other = 0;  // other: of a split; of a class: its number
  };

 private:
  struct States {
    std::vector<uint32_t> list;
    std::vector<uint64_t> seen;  // by step: the round in which it was last met
    uint64_t round = 0;
  };
  bool has(const Class& of, char32_t c) const;
  void follow(States& to, uint32_t step, char32_t before, char32_t after) const;

  std::vector<Step> steps_;
  std::vector<Class> classes_;
  uint32_t begin_ = 0;
  std::optional<CaseMap> cases_;  // where a class folds
};

}  // namespace belay::schedule
