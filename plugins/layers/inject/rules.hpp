// What fails when.
#pragma once

#include <belay/status.hpp>

#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace belay::inject {

struct Rule {
  enum class What { kStatus, kDelay, kLost, kShort };

  std::string text, table, slot;
  uint64_t nth = 0;  // call, from 1; 0: by chance
  bool and_later = false;
  double chance = 0;
  What what = What::kStatus;
  Code code = Code::kOk;
  uint64_t amount = 0;  // ns of a delay, bytes of a file
};

// INVALID_ARGUMENT quotes the rule and says what is wrong in it.
Result<Rule> parse_rule(std::string_view text);

// Counts calls, and says which of them meet a rule. Thread-safe.
class Rules {
 public:
  Rules(std::vector<Rule> rules, uint64_t seed);
  // The rules that this call meets, in their order; nothing for most.
  std::vector<const Rule*> met(std::string_view table, std::string_view slot);
  void report(belay_sink sink);

 private:
  struct Counted {
    Rule rule;
    uint64_t calls = 0, met = 0;
  };
  std::mutex mutex_;  // of the rest
  std::vector<Counted> all_;
  std::mt19937_64 random_;
};

}  // namespace belay::inject
