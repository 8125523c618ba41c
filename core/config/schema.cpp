#include "core/config/schema.h"

#include "core/base/log.h"
#include "core/base/status_catalogue.h"
#include "core/base/text.h"
#include "core/config/units.h"
#include "core/config/value.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

namespace belay::core {
namespace {

// Digits that no int64_t holds.
bool too_large(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc::result_out_of_range && end == text.data() + text.size();
}

// What a field wants, for messages and examples: "a size such as \"64MiB\"".
const char* want_of(FieldType type) {
  constexpr const char* kWants[] = {"true or false",
                                    "an int",
                                    "a number",
                                    "a string",
                                    "a size such as \"64MiB\"",
                                    "a duration such as \"5ms\"",
                                    "a list of strings",
                                    "a table",
                                    "a list of tables",
                                    "a value"};
  return kWants[size_t(type)];
}

constexpr const char* kPower = "a power of two";

// One end of what a field may be.
std::string print_limit(const Field& field, double value) {
  // Beyond what numbers of a configuration can be.
  const int64_t whole =
      value >= 0x1p63 ? std::numeric_limits<int64_t>::max() : int64_t(std::max(value, -0x1p63));
  if (field.type == FieldType::kSize) return print_size(whole);
  if (field.type == FieldType::kDuration) return print_duration(whole);
  if (field.type == FieldType::kInt) return std::to_string(whole);
  std::string text = std::to_string(value);  // "0.500000"
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string range_of(const Field& field) {
  const auto print = [&](double value) { return print_limit(field, value); };
  // Sizes and durations are printed with theirs.
  const bool plain = field.type != FieldType::kSize && field.type != FieldType::kDuration;
  const std::string unit = field.unit.empty() || !plain ? "" : " " + field.unit;
  if (std::isfinite(field.min) && std::isfinite(field.max))
    return print(field.min) + " to " + print(field.max) + unit;
  if (std::isfinite(field.min)) return print(field.min) + " or more" + unit;
  if (std::isfinite(field.max)) return print(field.max) + " or less" + unit;
  return "";
}

// The same for what is too large for any field: both ends, those of 64 bits where the field has none.
std::string whole_range(const Field& field) {
  const double least = field.type == FieldType::kInt ? field.min : std::max(field.min, 0.0);
  return print_limit(field, least) + " to " + print_limit(field, field.max);
}

class Checker {
 public:
  explicit Checker(const std::string& file_word) : file_word_(file_word) {}
  void table(Node& node, const std::vector<Field>& fields, const std::string& what) {
    std::vector<std::string> keys;
    for (const Field& field : fields) keys.push_back(field.key);
    for (const Node::Member& member : node.members)
      if (std::find(keys.begin(), keys.end(), member.key) == keys.end() && member.node->origin != "default") {
        const std::string near = did_you_mean(member.key, keys);
        fail(member.key_origin,
             "unknown key " + quote(member.key) + " for " + what +
                 (near.empty() ? " - want one of " + (keys.empty() ? "none" : joined(keys)) : near));
      }
    for (const Field& field : fields) {
      Node* value = node.find(field.key);
      if (!value && !field.default_value.empty()) {
        Node::Member& made = node.member(field.key);
        made.node = parse_value(field.default_value, "default");
        if (!made.node) made.node = std::make_unique<Node>();
        value = made.node.get();
      } else if (!value && field.type == FieldType::kTable && !field.members.empty()) {
        value = node.member(field.key).node.get();
        *value = Node(BELAY_VALUE_TABLE);
        value->origin = "default";
      }
      if (value) check(*value, field, what);
      if (!value && field.flags & kRequired)
        fail(node.origin,
             "key " + quote(field.key) + " of " + what + " is missing - want " + want_of(field.type));
    }
  }

  Status status() const {
    if (errors_.empty()) return {};
    return {Code::kInvalidArgument,
            joined(errors_, "\n") + (more_ ? "\n... and " + std::to_string(more_) + " more" : "")};
  }

 private:
  void fail(const std::string& origin, const std::string& text) {
    if (errors_.size() < 10)
      errors_.push_back(file_word_ + " " + (origin.empty() ? "" : origin + ": ") + text);
    else
      ++more_;
  }
  void wrong(const Node& node, const Field& field, const std::string& what, const std::string& want) {
    const std::string shown = field.flags & kSecret ? "a secret" : print_value(node).substr(0, 80);
    fail(node.origin, "key " + quote(field.key) + " of " + what + " is " + shown + ", want " + want);
  }

  void check(Node& node, const Field& field, const std::string& what) {
    node.secret = field.flags & kSecret;
    switch (field.type) {
      case FieldType::kBool:
        if (node.type != BELAY_VALUE_BOOL) wrong(node, field, what, want_of(field.type));
        return;
      case FieldType::kFloat:
        if (node.type == BELAY_VALUE_INT) node.type = BELAY_VALUE_FLOAT, node.real = double(node.integer);
        if (node.type != BELAY_VALUE_FLOAT) return wrong(node, field, what, want_of(field.type));
        if (!(node.real >= field.min && node.real <= field.max)) wrong(node, field, what, range_or(field));
        return;
      case FieldType::kInt:
      case FieldType::kSize:
      case FieldType::kDuration:
        return number(node, field, what);
      case FieldType::kString:
        if (node.type != BELAY_VALUE_STRING) return wrong(node, field, what, want_of(field.type));
        return text(node, field, what);
      case FieldType::kStringList:
        if (node.type == BELAY_VALUE_STRING) {
          auto item = std::make_unique<Node>(BELAY_VALUE_STRING);
          item->text = std::exchange(node.text, {}), item->origin = node.origin;
          node.type = BELAY_VALUE_LIST;
          node.members.push_back({"", node.origin, std::move(item)});
        }
        if (node.type != BELAY_VALUE_LIST) return wrong(node, field, what, want_of(field.type));
        for (const Node::Member& member : node.members) {
          if (member.node->type != BELAY_VALUE_STRING) return wrong(node, field, what, want_of(field.type));
          member.node->secret = node.secret;
          text(*member.node, field, what);
        }
        if (!field.names_kind.empty()) once_each(node, field, what);
        return;
      case FieldType::kTable:
        if (node.type != BELAY_VALUE_TABLE) return wrong(node, field, what, want_of(field.type));
        if (!field.members.empty()) table(node, field.members, "[" + field.key + "]");
        return;
      case FieldType::kTableList:
        if (node.type != BELAY_VALUE_LIST) return wrong(node, field, what, want_of(field.type));
        for (const Node::Member& member : node.members) {
          if (member.node->type != BELAY_VALUE_TABLE) return wrong(*member.node, field, what, "tables");
          table(*member.node, field.members, "[[" + field.key + "]]");
        }
        return;
      case FieldType::kAny:
        return;
    }
  }

  void number(Node& node, const Field& field, const std::string& what) {
    const bool size = field.type == FieldType::kSize, plain = field.type == FieldType::kInt;
    if (!plain && node.type == BELAY_VALUE_STRING) {
      const Result<int64_t> parsed = size ? parse_size(node.text) : parse_duration(node.text);
      if (!parsed.ok())
        return wrong(node, field, what,
                     parsed.status().code() == Code::kOutOfRange ? whole_range(field) : want_of(field.type));
      node.type = BELAY_VALUE_INT, node.integer = *parsed, node.text.clear();
    } else if (plain && node.type == BELAY_VALUE_STRING && too_large(node.text)) {  // of an assignment
      return wrong(node, field, what, whole_range(field));
    } else if (node.type != BELAY_VALUE_INT || (!plain && !size && node.integer != 0)) {
      return wrong(node, field, what, want_of(field.type));  // a duration without unit would be a guess
    }
    if (!plain) node.unit = size ? Node::Unit::kBytes : Node::Unit::kNanoseconds;
    if (!(double(node.integer) >= std::max(field.min, plain ? field.min : 0.0) &&
          double(node.integer) <= field.max))
      wrong(node, field, what, range_or(field));
    else if (field.flags & kPowerOfTwo && !std::has_single_bit(uint64_t(node.integer)))
      wrong(node, field, what, kPower);
  }

  void once_each(const Node& list, const Field& field, const std::string& what) {
    std::set<std::string_view> seen, told;
    for (const Node::Member& member : list.members)
      if (const std::string& name = member.node->text; !seen.insert(name).second && told.insert(name).second)
        fail(member.node->origin,
             "key " + quote(field.key) + " of " + what + " names " + quote(name) + " twice - once is enough");
  }

  void text(const Node& node, const Field& field, const std::string& what) {
    if (!field.choices.empty() && field.names_kind.empty() &&
        std::find(field.choices.begin(), field.choices.end(), node.text) == field.choices.end()) {
      const std::string near = did_you_mean(node.text, field.choices);
      return wrong(node, field, what, "one of " + joined(field.choices) + near);
    }
    if (field.flags & kPath && node.text.find('$') != std::string::npos)
      wrong(node, field, what, "a path without '$'");
  }

  static std::string range_or(const Field& field) {
    const std::string range = range_of(field);
    return range.empty() ? std::string(want_of(field.type)) : range;
  }

  const std::string file_word_;
  std::vector<std::string> errors_;
  size_t more_ = 0;
};

}  // namespace

void Schema::add(const std::string& table, const std::vector<Field>& fields, const std::string& doc) {
  auto at =
      std::find_if(tables_.begin(), tables_.end(), [&](const Field& known) { return known.key == table; });
  if (at == tables_.end()) at = tables_.insert(at, Field{.key = table, .type = FieldType::kTable});
  at->members.insert(at->members.end(), fields.begin(), fields.end());
  if (!doc.empty()) at->doc = doc;
}

Schema core_schema() {
  using T = FieldType;
  Schema schema;
  schema.add(
      "runtime",
      {{.key = "plugins",
        .type = T::kStringList,
        .default_value = "[]",
        .doc = "ids of plugins to load besides those that other keys name"},
       {.key = "plugin_dirs",
        .type = T::kStringList,
        .default_value = "[]",
        .doc = "directories of plugins, searched before the installed ones; of a build tree or an installation its "
               "lib/belay/plugins is searched as well",
        .flags = kPath},
       {.key = "allow_external",
        .type = T::kBool,
        .default_value = "false",
        .doc = "plugin.<id>.path may name a library outside of these directories"},
       {.key = "allow_insecure",
        .type = T::kBool,
        .default_value = "false",
        .doc = "load plugins whose files others could replace; for development only"},
       {.key = "require_digest",
        .type = T::kBool,
        .default_value = "false",
        .doc = "load only plugins whose library has the SHA-256 that plugin.<id>.sha256 or the manifest says"},
       {.key = "init_deadline",
        .type = T::kDuration,
        .default_value = "\"30s\"",
        .doc = "time that loading and opening a plugin, or starting it, may take; then it is left behind and "
               "the "
               "others go on",
        .min = 1e6},
       {.key = "scratch_dir",
        .type = T::kString,
        .default_value = "\"\"",
        .doc = "where scratch folders of plugins are made; empty: TMPDIR, else /tmp",
        .flags = kPath},
       {.key = "probe",
        .type = T::kString,
        .default_value = "\"external\"",
        .doc = "plugins that a child process loads first, once for each state of their file, where state_dir remembers "
               "it: those that are not installed with this library, all, or none",
        .choices = {"external", "all", "none"}},
       {.key = "state_dir",
        .type = T::kString,
        .default_value = "\"\"",
        .doc = "absolute folder where it is remembered which plugins ended a process while they were loaded; empty: BELAY_STATE, "
               "else belay in XDG_STATE_HOME or ~/.local/state; \"none\": nowhere"},
       {.key = "strikes",
        .type = T::kInt,
        .default_value = "3",
        .doc = "broken rules after which a plugin is ended; 0: they are only logged",
        .min = 0,
        .max = 1000000},
       {.key = "override",
        .type = T::kStringList,
        .default_value = "[]",
        .doc = "keys such as \"belay.driver/1:cpu\" for which a later plugin replaces an earlier one"}});
  schema.add("log", {{.key = "level",
                      .type = T::kString,
                      .default_value = "\"warning\"",
                      .doc = "the least that is written",
                      .choices = level_names()},
                     {.key = "file",
                      .type = T::kString,
                      .default_value = "\"\"",
                      .doc = "where lines are appended; empty: the standard error stream",
                      .flags = kPath},
                     {.key = "levels",
                      .type = T::kTable,
                      .default_value = "{}",
                      .doc = "levels of loggers, e.g. { \"plugin.cpu\" = \"debug\" }"}});
  std::vector<std::string> codes;
  for (uint32_t code = 0; code < BELAY_CODE_COUNT; ++code) codes.emplace_back(describe_code(code)->name);
  schema.add("fault",
             {{.key = "points",
               .type = T::kTableList,
               .doc = "failures to order, as [[fault.points]]",
               .members = {{.key = "point",
                            .type = T::kString,
                            .doc = "where: plugin, '.', point; a '*' at the end stands for anything",
                            .flags = kRequired},
                           {.key = "code",
                            .type = T::kString,
                            .default_value = "\"UNAVAILABLE\"",
                            .doc = "what the point gives; OK where it shall only wait",
                            .choices = codes},
                           {.key = "skip",
                            .type = T::kInt,
                            .default_value = "0",
                            .doc = "passes that go well before",
                            .min = 0},
                           {.key = "times",
                            .type = T::kInt,
                            .default_value = "1",
                            .doc = "passes that fail; 0: all",
                            .min = 0},
                           {.key = "delay",
                            .type = T::kDuration,
                            .default_value = "\"0s\"",
                            .doc = "time to wait in each of them",
                            .max = 3.6e12}}}},
             "Failures on order, for tests");
  schema.add("plugin", {}, "one table for each plugin, by id");
  return schema;
}

Status check_table(Node& table, const std::vector<Field>& fields, const std::string& what,
                   const std::string& file_word) {
  Checker checker(file_word);
  checker.table(table, fields, what);
  return checker.status();
}

Status check_field(const Field& field, const std::string& what) {
  if (field.default_value.empty()) return {};
  Node table(BELAY_VALUE_TABLE);
  return check_table(table, {field}, what);
}

std::string example_of(const std::string& table, const std::vector<Field>& fields) {
  std::string out = "[" + table + "]\n";
  for (const Field& field : fields) {
    std::string doc = field.doc, hints;
    for (const std::string& hint : {std::string(want_of(field.type)), range_of(field),
                                    field.choices.empty() ? "" : "one of " + joined(field.choices),
                                    std::string(field.flags & kPowerOfTwo ? kPower : ""),
                                    std::string(field.flags & kRequired ? "required" : "")})
      if (!hint.empty()) hints += (hints.empty() ? "" : "; ") + hint;
    out += "# " + (doc.empty() ? "" : doc + " ") + "(" + hints + ")\n";
    out += "# " + print_key(field.key) + " = " + (field.default_value.empty() ? "..." : field.default_value) +
           "\n";
  }
  return out + "\n";
}

}  // namespace belay::core
