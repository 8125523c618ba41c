#include "core/value.h"

#include "core/schema.h"
#include "core/text.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>

namespace belay::core {
namespace {

const Node& node_of(const belay_value* value) { return *static_cast<const Node*>(value); }

constexpr belay_value_vt kTable = {
    .hdr = {sizeof(belay_value_vt), 0, nullptr},
    .type = [](const belay_value* v) { return node_of(v).type; },
    .as_bool = [](const belay_value* v) { return uint32_t(node_of(v).type == BELAY_VALUE_BOOL && node_of(v).flag); },
    .as_int = [](const belay_value* v) { return node_of(v).type == BELAY_VALUE_INT ? node_of(v).integer : 0; },
    .as_float = [](const belay_value* v) {
      const Node& node = node_of(v);
      return node.type == BELAY_VALUE_INT ? double(node.integer) : node.type == BELAY_VALUE_FLOAT ? node.real : 0.0;
    },
    .as_string = [](const belay_value* v) { return to_str(node_of(v).text); },
    .count = [](const belay_value* v) { return uint64_t(node_of(v).members.size()); },
    .at = [](const belay_value* v, uint64_t index) -> const belay_value* {
      const Node& node = node_of(v);
      return node.type == BELAY_VALUE_LIST && index < node.members.size() ? node.members[index].node.get() : nullptr;
    },
    .get = [](const belay_value* v, belay_str key) -> const belay_value* { return node_of(v).find(to_view(key)); },
    .key_at = [](const belay_value* v, uint64_t index) -> belay_str {
      const Node& node = node_of(v);
      if (node.type != BELAY_VALUE_TABLE || index >= node.members.size()) return {};
      return to_str(node.members[index].key);
    },
    .where = [](const belay_value* v, belay_sink sink) { write(sink, node_of(v).origin); },
};

auto lower_bound(auto& members, std::string_view key) {
  return std::lower_bound(members.begin(), members.end(), key, [](const auto& m, auto k) { return m.key < k; });
}

std::string place(const std::string& name, const toml::source_position& at) {
  return name + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
}

// Counts the parts of dotted keys without building them: the parser would nest a table for each, and destroying a
// hundred thousand nested tables overflows the stack. Gives the position of a key with too many parts, or npos.
size_t too_deep(std::string_view text, size_t depth) {
  size_t dots = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      dots = 0;
    } else if (c == '"' || c == '\'') {
      const std::string_view three = c == '"' ? "\"\"\"" : "'''";
      const size_t quotes = text.substr(i, 3) == three ? 3 : 1;
      for (i += quotes; i < text.size() && text.substr(i, quotes) != three.substr(0, quotes); ++i) {
        if (c == '"' && text[i] == '\\') ++i;
        if (quotes == 1 && i < text.size() && text[i] == '\n') break;  // not closed: the parser will say so
      }
      i += quotes - 1;
    } else if (c == '.') {
      if (++dots >= depth) return i;
    } else if (c == ',' || c == '=' || c == '[' || c == ']' || c == '{' || c == '}' || c == '\n') {
      dots = 0;
    }
  }
  return std::string_view::npos;
}

struct Builder {
  const std::string& name;
  const ParseLimits& limits;
  size_t values = 0;
  std::string error = {};  // "NAME:1:2: ..."

  std::unique_ptr<Node> build(const toml::node& from, size_t depth) {
    auto node = std::make_unique<Node>();
    node->origin = place(name, from.source().begin);
    if (++values > limits.values) fail(*node, "more than " + std::to_string(limits.values) + " values");
    if (depth > limits.depth) fail(*node, "nested deeper than " + std::to_string(limits.depth));
    if (!error.empty()) return node;
    if (const auto* table = from.as_table()) {
      node->type = BELAY_VALUE_TABLE;
      for (const auto& [key, value] : *table)  // sorted by key
        node->members.push_back({std::string(key.str()), place(name, key.source().begin), build(value, depth + 1)});
    } else if (const auto* list = from.as_array()) {
      node->type = BELAY_VALUE_LIST;
      for (const toml::node& value : *list) node->members.push_back({"", node->origin, build(value, depth + 1)});
    } else if (const auto* text = from.as_string()) {
      node->type = BELAY_VALUE_STRING;
      node->text = **text;
    } else if (const auto* integer = from.as_integer()) {
      node->type = BELAY_VALUE_INT;
      node->integer = **integer;
    } else if (const auto* real = from.as_floating_point()) {
      node->type = BELAY_VALUE_FLOAT;
      node->real = **real;
    } else if (const auto* flag = from.as_boolean()) {
      node->type = BELAY_VALUE_BOOL;
      node->flag = **flag;
    } else {
      fail(*node, "dates and times mean nothing here - write the value in quotes");
    }
    return node;
  }
  void fail(const Node& node, const std::string& what) {
    if (error.empty()) error = node.origin + ": " + what;
  }
};

}  // namespace

Node::Node() : belay_value{&kTable} {}

Node* Node::find(std::string_view key) const {
  if (type != BELAY_VALUE_TABLE) return nullptr;
  const auto at = lower_bound(members, key);
  return at != members.end() && at->key == key ? at->node.get() : nullptr;
}

Node::Member& Node::member(std::string_view key) {
  auto at = lower_bound(members, key);
  if (at == members.end() || at->key != key)
    at = members.insert(at, Member{std::string(key), origin, std::make_unique<Node>()});
  return *at;
}

void Node::erase(std::string_view key) {
  std::erase_if(members, [&](const Member& member) { return member.key == key; });
}

Result<std::unique_ptr<Node>> parse_toml(const std::string& name, std::string_view text, const char* what,
                                         const ParseLimits& limits) {
  const auto bad = [&](const std::string& message) {
    return Status(Code::kInvalidArgument, std::string(what) + " " + message);
  };
  if (text.size() > limits.bytes)
    return bad(name + ": " + std::to_string(text.size()) + " bytes, want " + std::to_string(limits.bytes) + " at most");
  if (const size_t at = too_deep(text, limits.depth); at != std::string_view::npos)
    return bad(name + ":" + std::to_string(1 + std::count(text.begin(), text.begin() + ptrdiff_t(at), '\n')) + ":" +
               std::to_string(at - (at ? text.rfind('\n', at - 1) + 1 : 0) + 1) + ": a key has more than " +
               std::to_string(limits.depth) + " parts");
  const toml::parse_result parsed = toml::parse(text, name);
  if (!parsed)
    return bad(place(name, parsed.error().source().begin) + ": " + std::string(parsed.error().description()));
  Builder builder{name, limits};
  auto root = builder.build(parsed.table(), 0);
  if (!builder.error.empty()) return bad(builder.error);
  return root;
}

std::unique_ptr<Node> parse_value(std::string_view text, const std::string& origin) {
  const auto parsed = parse_toml(origin, "v = " + std::string(text) + "\n");
  if (!parsed.ok() || (*parsed)->members.size() != 1) return nullptr;
  auto node = std::move((*parsed)->members[0].node);
  const auto mark = [&](auto& self, Node& n) -> void {
    n.origin = origin;
    for (auto& member : n.members) member.key_origin = origin, self(self, *member.node);
  };
  mark(mark, *node);
  return node;
}

void merge(Node& into, Node&& from) {
  if (into.type != BELAY_VALUE_TABLE || from.type != BELAY_VALUE_TABLE) {
    into = std::move(from);
    return;
  }
  for (Node::Member& theirs : from.members) {
    Node::Member& ours = into.member(theirs.key);
    ours.key_origin = theirs.key_origin;
    merge(*ours.node, std::move(*theirs.node));
  }
}

std::string quote_toml(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    char code[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      std::snprintf(code, sizeof code, "\\u%04X", unsigned(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string print_key(std::string_view key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return bare ? std::string(key) : quote_toml(key);
}

std::string print_value(const Node& node) {
  if (node.secret) return "\"***\"";
  char number[40];
  std::string all;
  switch (node.type) {
    case BELAY_VALUE_BOOL: return node.flag ? "true" : "false";
    case BELAY_VALUE_INT:
      if (node.unit == Node::Unit::kBytes) return quote_toml(print_size(node.integer));
      if (node.unit == Node::Unit::kNanoseconds) return quote_toml(print_duration(node.integer));
      return std::to_string(node.integer);
    case BELAY_VALUE_FLOAT:
      if (!std::isfinite(node.real)) return std::isnan(node.real) ? "nan" : node.real < 0 ? "-inf" : "inf";
      std::snprintf(number, sizeof number, "%.17g", node.real);
      return std::string(number).find_first_of(".e") == std::string::npos ? std::string(number) + ".0" : number;
    case BELAY_VALUE_STRING: return quote_toml(node.text);
    case BELAY_VALUE_LIST:
    case BELAY_VALUE_TABLE:
      for (const Node::Member& member : node.members)
        all += (all.empty() ? "" : ", ") + (member.key.empty() ? "" : print_key(member.key) + " = ") +
               print_value(*member.node);
      return node.type == BELAY_VALUE_LIST ? "[" + all + "]" : all.empty() ? "{}" : "{ " + all + " }";
    default: return "";
  }
}

const char* type_name(uint32_t type) {
  constexpr const char* kNames[] = {"nothing", "a bool", "an int", "a float", "a string", "a list", "a table"};
  return type < std::size(kNames) ? kNames[type] : "nothing";
}

}  // namespace belay::core
