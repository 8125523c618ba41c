#include "rules.hpp"

#include <belay/slots.hpp>

#include <charconv>
#include <sstream>

namespace belay::inject {
namespace {

constexpr const char* kCodes[] = {"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
                                  "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
                                  "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
                                  "UNAUTHENTICATED", "DEFERRED", "QUEUE_FULL", "DEVICE_LOST", "NEED_SEGMENT", "DECLINED"};
static_assert(std::size(kCodes) == BELAY_CODE_COUNT);

struct Unit {
  const char* name;
  uint64_t factor;
};
constexpr Unit kTimes[] = {{"ns", 1}, {"us", 1000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};
constexpr Unit kSizes[] = {{"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};

// A whole number; what follows stays in `text`.
bool number(std::string_view& text, uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(size_t(end - text.data()));
  return true;
}

template <size_t n>
bool with_unit(std::string_view text, const Unit (&units)[n], uint64_t& value) {
  if (!number(text, value)) return false;
  for (const Unit& unit : units)
    if (text == unit.name) return !__builtin_mul_overflow(value, unit.factor, &value);
  return false;
}

// Whether there is such a slot; `status`: that gives one.
bool known(std::string_view table, std::string_view slot, bool& status) {
  bool found = false;
  const auto look = [&]<class Table>() {
    if (table != SlotsOf<Table>::name) return;
    SlotsOf<Table>::each([&]<auto, bool gives_status>(const char* name) {
      if (slot == name) found = true, status = gives_status;
    });
  };
#define BELAY_LOOK(type, text) look.template operator()<type>();
  BELAY_SLOT_TABLES(BELAY_LOOK)
#undef BELAY_LOOK
  return found;
}

}  // namespace

Result<Rule> parse_rule(std::string_view text) {
  const auto wrong = [&](const std::string& why) {
    return Status(Code::kInvalidArgument, "plugin.inject.config.rules has '" + std::string(text) + "': " + why);
  };
  Rule rule;
  rule.text = text;
  std::istringstream words(rule.text);
  std::string where, when, what, more;
  words >> where >> when >> what;
  if (what.empty() || words >> more) return wrong("want three words, such as 'device.alloc 3 RESOURCE_EXHAUSTED'.");

  const size_t dot = where.find('.');
  bool gives_status = false;
  if (dot != std::string::npos) rule.table = where.substr(0, dot), rule.slot = where.substr(dot + 1);
  if (!known(rule.table, rule.slot, gives_status))
    return wrong("there is no slot '" + where + "'; the layer trace shows which are called.");

  std::string_view rest = when;
  uint64_t count = 0;
  if (!number(rest, count)) return wrong("'" + when + "' is no time; want 3, 3+ or 10%.");
  if (rest == "%" && count <= 100)
    rule.chance = double(count) / 100;
  else if ((rest.empty() || rest == "+") && count > 0)
    rule.nth = count, rule.and_later = !rest.empty();
  else
    return wrong("'" + when + "' is no time; want a call from 1 on such as 3 or 3+, or a chance of 0% to 100%.");

  if (what.starts_with("delay=")) {
    rule.what = Rule::What::kDelay;
    if (!with_unit(std::string_view(what).substr(6), kTimes, rule.amount))
      return wrong("'" + what + "' is no delay; want one such as delay=5ms.");
    return rule;
  }
  if (!gives_status) return wrong(where + " gives no status, so it can only be late: want delay=5ms.");
  if (what.starts_with("short=")) {
    rule.what = Rule::What::kShort;
    if (where != "model_format.parse") return wrong("only model_format.parse reads a file.");
    if (!with_unit(std::string_view(what).substr(6), kSizes, rule.amount))
      return wrong("'" + what + "' is no size; want one such as short=1KiB.");
    return rule;
  }
  if (what == "lost") {
    rule.what = Rule::What::kLost;
    if (rule.table != "device" && rule.table != "stream" && rule.table != "program" && rule.table != "package")
      return wrong("no device is lost by " + where + "; want a slot of device, stream, program or package.");
    return rule;
  }
  for (uint32_t code = 1; code < BELAY_CODE_COUNT; ++code)
    if (what == kCodes[code]) {
      rule.code = static_cast<Code>(code);
      return rule;
    }
  return wrong("'" + what + "' is no failure; want the name of a status, delay=5ms, lost or short=1KiB.");
}

Rules::Rules(std::vector<Rule> rules, uint64_t seed) : random_(seed) {
  for (Rule& rule : rules) all_.push_back({std::move(rule)});
}

std::vector<const Rule*> Rules::met(std::string_view table, std::string_view slot) {
  std::vector<const Rule*> found;
  const std::lock_guard lock(mutex_);
  for (Counted& each : all_) {
    const Rule& rule = each.rule;
    if (rule.slot != slot || rule.table != table) continue;
    const uint64_t call = ++each.calls;
    const bool meets = rule.nth ? call == rule.nth || (rule.and_later && call > rule.nth)
                                : double(random_() >> 11) * 0x1p-53 < rule.chance;
    if (!meets) continue;
    ++each.met;
    found.push_back(&rule);
  }
  return found;
}

void Rules::report(belay_sink sink) {
  const std::lock_guard lock(mutex_);
  for (const Counted& each : all_)
    write(sink, "'" + each.rule.text + "': met by " + std::to_string(each.met) + " of " + std::to_string(each.calls) +
                    " calls\n");
}

}  // namespace belay::inject
