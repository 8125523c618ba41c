// core/config/value.h: a tree of configuration values with the place each came from; what a belay_value
// points to.
#pragma once

#include <belay/abi/value.h>
#include <belay/status.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace belay::core {

struct Node : belay_value {
  struct Member {
    std::string key;         // empty in a list
    std::string key_origin;  // where the key stands
    std::unique_ptr<Node> node;
  };

  Node();
  explicit Node(uint32_t type_) : Node() { type = type_; }

  Node* find(std::string_view key) const;  // nullptr: not there
  // The member, made when it is not there; tables keep their members sorted.
  Member& member(std::string_view key);
  void erase(std::string_view key);

  uint32_t type = BELAY_VALUE_NONE;
  enum class Unit : uint8_t { kNone, kBytes, kNanoseconds } unit = Unit::kNone;  // of an int, for printing
  bool secret = false;
  bool flag = false;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<Member> members;  // of a table or list
  std::string origin;           // "belay.toml:14:3", "default"
};

struct ParseLimits {
  size_t bytes = 1 << 20, depth = 16, values = 10000;
};

// Reads TOML into a table. INVALID_ARGUMENT: "config NAME:line:column: ..."; `what` is that first word.
Result<std::unique_ptr<Node>> parse_toml(const std::string& name, std::string_view text,
                                         const char* what = "config", const ParseLimits& limits = {});
// One value; nothing when it is none.
std::unique_ptr<Node> parse_value(std::string_view text, const std::string& origin);

// Members of `from` win; tables are merged, the rest is replaced.
void merge(Node& into, Node&& from);

std::string quote_toml(std::string_view text);  // "a \"basic\" string"
std::string print_key(std::string_view key);    // bare where it can be
// One value on one line; secrets as "***".
std::string print_value(const Node& node);
// "an int", "a list", ...
const char* type_name(uint32_t type);

}  // namespace belay::core
