// core/config/schema.h: what keys a table of a configuration may have, and the check of a table against it.
#pragma once

#include <belay/status.hpp>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

struct Node;

enum class FieldType : uint8_t {
  kBool,
  kInt,
  kFloat,
  kString,
  kSize,        // "64MiB" or a number of bytes; an int of bytes once checked
  kDuration,    // "5ms"; an int of nanoseconds once checked
  kStringList,  // a lone string is a list of one
  kTable,       // of `members`, or of anything where there are none
  kTableList,
  kAny,
};

enum FieldFlag : uint32_t {
  kRequired = 1,
  kSecret = 2,       // shown as "***"
  kReload = 4,       // may change while the plugin is open
  kPath = 8,         // absolute, or relative to the file that says it; '$' is refused
  kDeprecated = 16,  // accepted with a warning in the log
  kPowerOfTwo = 32,  // of an int or a size
};

// One key. Values are written as in TOML: Field{"threads", FieldType::kInt, "0", "lanes; 0: all cores"}.
struct Field {
  std::string key = {};
  FieldType type = FieldType::kAny;
  std::string default_value = {};  // TOML ("64", "\"64MiB\"", "[]"); empty: not set unless configured
  std::string doc = {};            // one sentence; units
  uint32_t flags = 0;
  double min =
      -std::numeric_limits<double>::infinity();  // of a number, a size or a duration in ns; items of a list
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  // of a string, or of each string of a list
  std::string unit = {};
  // The strings name components of this kind ("belay.memory-policy/1"; what follows a ':' in them is
  // ignored), each once in a list, so a configuration that says them needs their plugins. `choices` are then
  // further words, such as "auto".
  std::string names_kind = {};
  std::vector<Field> members = {};  // of a table, or of each table of a list
};

// The tables of the runtime, e.g. [engine], as the core and the layers above it declare them.
class Schema {
 public:
  // Adds keys to the table, which may have some already: [runtime] is shared.
  void add(const std::string& table, const std::vector<Field>& fields, const std::string& doc = {});
  const std::vector<Field>& tables() const { return tables_; }  // each of type kTable

 private:
  std::vector<Field> tables_;
};

// What the core itself reads: [runtime] plugin_dirs, plugins, allow_external, allow_insecure, override;
// [log]; [plugin.*].
Schema core_schema();

// Checks `table` and makes it complete: converts sizes and durations, fills defaults. `what` names the owner
// of the keys in messages: "belay.driver/1:ascend", "[engine]". INVALID_ARGUMENT holds up to ten lines such
// as
//   config belay.toml:14:3: unknown key 'queue_deph' for belay.driver/1:ascend - did you mean 'queue_depth'?
Status check_table(Node& table, const std::vector<Field>& fields, const std::string& what,
                   const std::string& file_word = "config");

// INVALID_ARGUMENT when the field itself is wrong: its default does not fit its type, range or choices.
Status check_field(const Field& field, const std::string& what);

// A commented example of the table in TOML: every key with its default, documentation, range and choices.
std::string example_of(const std::string& table, const std::vector<Field>& fields);

}  // namespace belay::core
