#include "core/config/config.h"

#include "core/base/files.h"
#include "core/base/text.h"
#include "core/config/value.h"

#include <sys/auxv.h>
#include <algorithm>
#include <filesystem>

namespace belay::core {
namespace {

const std::vector<Field>& plugin_fields() {
  using T = FieldType;
  static const std::vector<Field>* fields = new std::vector<Field>{
      {.key = "use",
       .type = T::kStringList,
       .doc = "keys to take of the plugin, e.g. \"belay.driver/1:cpu\"; not set: all"},
      {.key = "isolation",
       .type = T::kString,
       .default_value = "\"in-process\"",
       .doc = "where the plugin runs",
       .choices = {"in-process"}},
      {.key = "optional",
       .type = T::kBool,
       .default_value = "false",
       .doc = "the runtime starts without the plugin when it fails"},
      {.key = "memory_limit",
       .type = T::kSize,
       .doc = "host memory that the plugin may take through the host; not set: any"},
      {.key = "path",
       .type = T::kString,
       .doc = "its library; needs [runtime] allow_external",
       .flags = kPath},
      {.key = "sha256",
       .type = T::kString,
       .doc = "the SHA-256 that its library must have, 64 hexadecimal digits in lower case"},
      {.key = "config", .type = T::kTable, .doc = "the keys of the plugin's manifest"}};
  return *fields;
}

// "a.\"b.c\".d" -> a, b.c, d; empty when it is no path.
std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '.') {
      parts.emplace_back();
    } else if (path[i] == '"') {
      const size_t end = std::min(path.find('"', i + 1), path.size());
      parts.back() += path.substr(i + 1, end - i - 1);
      i = end;
    } else if (path[i] != ' ') {
      parts.back() += path[i];
    }
  }
  if (std::find(parts.begin(), parts.end(), "") != parts.end() || parts.size() > ParseLimits().depth)
    return {};
  return parts;
}

const Node* find_path(const Node* node, std::string_view path) {
  const std::vector<std::string> parts = split_path(path);
  if (parts.empty()) return nullptr;
  for (const std::string& part : parts)
    if (!(node = node->find(part))) return nullptr;
  return node;
}

void print_table(const Node& table, const std::string& path, std::string& out) {
  const auto is_table = [](const Node& node) {
    return node.type == BELAY_VALUE_TABLE && !node.members.empty();
  };
  bool headed = path.empty();
  for (const Node::Member& member : table.members) {
    if (is_table(*member.node)) continue;
    if (!std::exchange(headed, true)) out += (out.empty() ? "[" : "\n[") + path + "]\n";
    out += print_key(member.key) + " = " + print_value(*member.node) + "  # " + member.node->origin + "\n";
  }
  for (const Node::Member& member : table.members)
    if (is_table(*member.node))
      print_table(*member.node, (path.empty() ? "" : path + ".") + print_key(member.key), out);
}

}  // namespace

Config::Config()
    : root_(std::make_unique<Node>(BELAY_VALUE_TABLE)), empty_(std::make_unique<Node>(BELAY_VALUE_TABLE)) {
  empty_->origin = "default";
}
Config::~Config() = default;
Config::Config(Config&&) noexcept = default;
Config& Config::operator=(Config&&) noexcept = default;

Status Config::add_layer(std::unique_ptr<Node> layer) {
  merge(*root_, std::move(*layer));
  return {};
}

Status Config::add_file(const std::string& path, std::string_view named_by) {
  const Result<std::string> text = read_small_file(path, ParseLimits().bytes, "configuration");
  if (!text.ok()) {
    const Code code = text.status().code();
    return {code == Code::kResourceExhausted ? code : Code::kInvalidArgument,
            text.status().message() + (named_by.empty() ? "" : " (named by " + std::string(named_by) + ")")};
  }
  folders_[path] = std::filesystem::absolute(path).parent_path().string();
  return add_text(path, *text);
}

Status Config::add_text(const std::string& name, std::string_view text) {
  BELAY_ASSIGN(auto layer, parse_toml(name, text));
  return add_layer(std::move(layer));
}

Status Config::add_set(std::string_view assignment, const std::string& origin) {
  const size_t equals = assignment.find('=');
  const std::vector<std::string> parts = equals == std::string_view::npos
                                             ? std::vector<std::string>()
                                             : split_path(assignment.substr(0, equals));
  if (parts.empty())
    return {Code::kInvalidArgument, "config " + origin + ": " + quote(assignment.substr(0, 200)) +
                                        " is no assignment, want e.g. log.level=debug"};
  std::string_view text = assignment.substr(equals + 1);
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  auto value = parse_value(text, origin);
  if (!value) {  // not TOML: the text itself
    value = std::make_unique<Node>(BELAY_VALUE_STRING);
    value->text = text, value->origin = origin;
  }
  auto layer = std::make_unique<Node>(BELAY_VALUE_TABLE);
  layer->origin = origin;
  Node* table = layer.get();
  for (const std::string& part : parts) {
    Node::Member& member = table->member(part);
    member.key_origin = member.node->origin = origin;
    member.node->type = BELAY_VALUE_TABLE;
    table = member.node.get();
  }
  *table = std::move(*value);
  return add_layer(std::move(layer));
}

Status Config::add_environment() {
  const char* sets = getauxval(AT_SECURE) ? nullptr : std::getenv("BELAY_SET");
  std::string_view rest = sets ? sets : "";
  while (!rest.empty()) {
    bool inside = false;  // of a string: a ';' there separates nothing
    size_t end = 0;
    for (; end < rest.size() && (inside || rest[end] != ';'); ++end) inside ^= rest[end] == '"';
    if (const std::string_view one = rest.substr(0, end);
        one.find_first_not_of(' ') != std::string_view::npos)
      BELAY_TRY(add_set(one, "BELAY_SET"));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

std::vector<std::string> Config::environment_files() {
  const char* files = getauxval(AT_SECURE) ? nullptr : std::getenv("BELAY_CONFIG");
  return split_list(files ? files : "");
}

Status Config::check(const Schema& schema) {
  BELAY_TRY(check_table(*root_, schema.tables(), "the configuration"));
  std::string errors;
  for (const std::string& id : plugin_ids()) {
    Node& table = *root_->find("plugin")->find(id);
    Status status;
    if (!valid_id(id))
      status = {Code::kInvalidArgument,
                "config " + table.origin + ": " + quote(id) + " is no id of a plugin"};
    else if (table.type != BELAY_VALUE_TABLE)
      status = {Code::kInvalidArgument, "config " + table.origin + ": plugin." + id + " is " +
                                            type_name(table.type) + ", want a table such as [plugin." + id +
                                            "]"};
    else
      status = check_table(table, plugin_fields(), "[plugin." + id + "]");
    if (!status.ok())
      errors += (errors.empty() ? "" : "\n") + status.message();
    else
      finish(table, plugin_fields());
  }
  if (!errors.empty()) return {Code::kInvalidArgument, errors};
  for (const Field& table : schema.tables())
    if (Node* node = root_->find(table.key)) finish(*node, table.members);
  return {};
}

// Resolves relative paths and notes which components are named.
void Config::finish(Node& table, const std::vector<Field>& fields) {
  const auto one = [&](Node& node, const Field& field) {
    if (field.flags & kPath && !node.text.empty() && node.text[0] != '/') {
      const std::string file = node.origin.substr(0, node.origin.rfind(':', node.origin.rfind(':') - 1));
      const auto at = folders_.find(file);
      node.text = at == folders_.end()
                      ? std::filesystem::absolute(node.text).lexically_normal().string()
                      : (std::filesystem::path(at->second) / node.text).lexically_normal().string();
    }
    if (field.names_kind.empty() || node.text.empty()) return;
    if (std::find(field.choices.begin(), field.choices.end(), node.text) != field.choices.end()) return;
    named_.push_back({field.names_kind + ":" + node.text.substr(0, node.text.find(':')), node.origin});
  };
  for (const Field& field : fields) {
    Node* node = table.find(field.key);
    if (!node) continue;
    if (field.flags & kDeprecated && node->origin != "default")
      warnings_.push_back("config " + node->origin + ": key " + quote(field.key) +
                          " is deprecated: " + field.doc);
    if (node->type == BELAY_VALUE_STRING) one(*node, field);
    if (node->type == BELAY_VALUE_LIST)
      for (const Node::Member& member : node->members) one(*member.node, field);
    if (node->type == BELAY_VALUE_TABLE) finish(*node, field.members);
  }
}

Status Config::check_plugin(const std::string& id, const std::vector<Field>& fields,
                            const std::string& what) {
  Node* table = root_.get();
  for (const std::string& part : {std::string("plugin"), id, std::string("config")}) {
    Node::Member& member = table->member(part);
    if (member.node->type == BELAY_VALUE_NONE) {
      member.node->type = BELAY_VALUE_TABLE;
      member.node->origin = "default";
    }
    table = member.node.get();
  }
  if (table->type != BELAY_VALUE_TABLE)
    return {Code::kInvalidArgument, "config " + table->origin + ": plugin." + id + ".config is " +
                                        type_name(table->type) + ", want a table"};
  BELAY_TRY(check_table(*table, fields, what));
  finish(*table, fields);
  return {};
}

Value Config::get(std::string_view path) const { return Value(find_path(root_.get(), path)); }

const belay_value* Config::plugin_config(const std::string& id) const {
  const Node* node = root_->find("plugin");
  if (node) node = node->find(id);
  if (node) node = node->find("config");
  return node ? node : empty_.get();
}

std::vector<std::string> Config::plugin_ids() const {
  std::vector<std::string> ids;
  if (const Node* plugins = root_->find("plugin"))
    for (const Node::Member& member : plugins->members) ids.push_back(member.key);
  return ids;
}

std::string Config::where(std::string_view path) const {
  const Node* node = find_path(root_.get(), path);
  return node ? node->origin : "";
}

std::string Config::print() const {
  std::string out;
  print_table(*root_, "", out);
  return out;
}

}  // namespace belay::core
