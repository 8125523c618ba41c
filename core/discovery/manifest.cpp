#include "core/discovery/manifest.h"

#include "core/base/text.h"
#include "core/config/config.h"
#include "core/config/units.h"
#include "core/config/value.h"

#include <algorithm>
#include <charconv>
#include <span>

namespace belay::core {
namespace {

using T = FieldType;

constexpr std::string_view kTypes[] = {"bool", "int",      "float",       "string",
                                       "size", "duration", "string_list", "table"};
constexpr std::string_view kFlags[] = {"required", "secret", "reload", "path", "deprecated", "power_of_two"};

std::vector<std::string> choices_of(std::span<const std::string_view> names) {
  return {names.begin(), names.end()};
}

std::vector<Field> manifest_fields() {
  const std::vector<Field> field = {
      {.key = "key", .type = T::kString, .flags = kRequired},
      {.key = "type", .type = T::kString, .flags = kRequired, .choices = choices_of(kTypes)},
      {.key = "doc", .type = T::kString, .flags = kRequired},
      {.key = "default"},
      {.key = "min"},
      {.key = "max"},
      {.key = "choices", .type = T::kStringList},
      {.key = "flags", .type = T::kStringList, .choices = choices_of(kFlags)},
      {.key = "unit", .type = T::kString},
      {.key = "since", .type = T::kString}};
  const std::vector<Field> component = {
      {.key = "kind", .type = T::kString, .flags = kRequired},
      {.key = "name", .type = T::kString, .flags = kRequired},
      {.key = "doc", .type = T::kString},
      {.key = "priority", .type = T::kInt, .default_value = "0", .min = -1000000, .max = 1000000},
      {.key = "requires", .type = T::kStringList},
      {.key = "after", .type = T::kStringList},
      {.key = "field", .type = T::kTableList, .members = field}};
  return {
      {.key = "format", .type = T::kInt, .flags = kRequired, .min = 1, .max = 1},
      {.key = "id", .type = T::kString, .flags = kRequired},
      {.key = "version", .type = T::kString, .flags = kRequired},
      {.key = "abi", .type = T::kString, .flags = kRequired},
      {.key = "library", .type = T::kString, .flags = kRequired},
      {.key = "doc", .type = T::kString},
      {.key = "license", .type = T::kString},
      {.key = "arch", .type = T::kStringList},
      {.key = "threads", .type = T::kString, .default_value = "\"host\"", .choices = {"host", "own"}},
      {.key = "unload", .type = T::kString, .default_value = "\"never\"", .choices = {"never", "supported"}},
      {.key = "isolation", .type = T::kString, .choices = {"in-process", "process"}},
      {.key = "requires", .type = T::kStringList},
      {.key = "after", .type = T::kStringList},
      {.key = "integrity", .type = T::kTable, .members = {{.key = "sha256", .type = T::kString}}},
      {.key = "component", .type = T::kTableList, .flags = kRequired, .members = component}};
}

std::string text_of(Value table, std::string_view key) { return std::string(table[key].as_string()); }

std::vector<std::string> list_of(Value table, std::string_view key) {
  std::vector<std::string> all;
  for (uint64_t i = 0; i < table[key].count(); ++i) all.emplace_back(table[key].at(i).as_string());
  return all;
}

Status bad(Value at, const std::string& text) {
  return {Code::kInvalidArgument, "manifest " + static_cast<const Node*>(at.raw())->origin + ": " + text};
}

Result<double> limit_of(Value table, const char* key, FieldType type, double otherwise) {
  const Value value = table[key];
  if (!value.set()) return otherwise;
  const uint32_t kind = value.raw()->vt->type(value.raw());
  if (kind == BELAY_VALUE_STRING && (type == T::kSize || type == T::kDuration)) {
    const auto parsed = type == T::kSize ? parse_size(value.as_string()) : parse_duration(value.as_string());
    if (parsed.ok()) return double(*parsed);
  } else if (kind == BELAY_VALUE_INT || kind == BELAY_VALUE_FLOAT) {
    return value.as_float();
  }
  return bad(value,
             std::string(key) + " of field " + quote(text_of(table, "key")) + " is no limit of its type");
}

Result<Field> field_of(Value table) {
  Field field;
  field.key = text_of(table, "key");
  if (field.key.empty() || field.key.size() > 64) return bad(table["key"], "want a key of 1 to 64 letters");
  field.type = FieldType(std::ranges::find(kTypes, table["type"].as_string()) - kTypes);
  if (field.type == FieldType(7)) field.type = T::kTable;
  field.doc = text_of(table, "doc"), field.unit = text_of(table, "unit");
  field.choices = list_of(table, "choices");
  for (const std::string& flag : list_of(table, "flags"))
    field.flags |= 1u << (std::ranges::find(kFlags, flag) - kFlags);
  BELAY_ASSIGN(field.min, limit_of(table, "min", field.type, field.min));
  BELAY_ASSIGN(field.max, limit_of(table, "max", field.type, field.max));
  if (const Value value = table["default"]; value.set()) {
    field.default_value = print_value(*static_cast<const Node*>(value.raw()));
    if (const Status status = check_field(field, "the default"); !status.ok())
      return bad(value, status.message().substr(status.message().find("key ")));
  }
  return field;
}

}  // namespace

std::string Manifest::keys() const {
  std::vector<std::string> all;
  for (const ManifestComponent& component : components) all.push_back(component.key());
  return joined(all, " ");
}

std::string Manifest::what() const {
  return components.size() == 1 ? components[0].key() : "plugin " + quote(id);
}

Result<Manifest> parse_manifest(const std::string& name, std::string_view text) {
  BELAY_ASSIGN(auto root,
               parse_toml(name, text, "manifest", {.bytes = 256 << 10, .depth = 8, .values = 10000}));
  if (Status status = check_table(*root, manifest_fields(), "a manifest", "manifest"); !status.ok())
    return status;
  const Value top(root.get());
  Manifest manifest;
  manifest.text = text;
  manifest.id = text_of(top, "id"), manifest.version = text_of(top, "version"),
  manifest.library = text_of(top, "library");
  manifest.doc = text_of(top, "doc"), manifest.license = text_of(top, "license");
  manifest.arch = list_of(top, "arch");
  manifest.requires_ = list_of(top, "requires"), manifest.after = list_of(top, "after");
  manifest.own_threads = top["threads"].as_string() == "own";
  manifest.unload_supported = top["unload"].as_string() == "supported";
  if (!valid_id(manifest.id))
    return bad(top["id"], quote(manifest.id) + " is no id, want [a-z][a-z0-9._-]{0,63}");
  if (manifest.library.empty() || manifest.library.find_first_of("/$") != std::string::npos)
    return bad(top["library"],
               "library is " + quote(manifest.library) + ", want a bare name beside the manifest");
  if (const Value integrity = top["integrity"]; integrity["sha256"].set()) {
    manifest.library_sha256 = text_of(integrity, "sha256");
    if (manifest.library_sha256.size() != 64 ||
        manifest.library_sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
      return bad(integrity["sha256"], quote(manifest.library_sha256) +
                                          " is no SHA-256 of the library, want 64 hexadecimal digits");
  }
  const std::string abi = text_of(top, "abi");
  const char* end = abi.data() + abi.size();
  const auto major = std::from_chars(abi.data(), end, manifest.abi_major);
  const auto minor = std::from_chars(major.ptr + (major.ptr != end), end, manifest.abi_minor);
  if (major.ec != std::errc() || minor.ec != std::errc() || minor.ptr != end || *major.ptr != '.')
    return bad(top["abi"],
               "abi is " + quote(abi) + ", want \"major.minor\" of the headers it was built with");
  for (uint64_t i = 0; i < top["component"].count(); ++i) {
    const Value from = top["component"].at(i);
    ManifestComponent component{.kind = text_of(from, "kind"),
                                .name = text_of(from, "name"),
                                .priority = from["priority"].as_int(),
                                .requires_ = list_of(from, "requires"),
                                .after = list_of(from, "after")};
    const size_t slash = component.kind.find('/');
    if (slash == std::string::npos || !valid_id(component.kind.substr(0, slash)) ||
        component.kind.find_first_not_of("0123456789", slash + 1) != std::string::npos ||
        slash + 1 == component.kind.size())
      return bad(from["kind"], quote(component.kind) + " is no kind, want e.g. \"belay.driver/1\"");
    if (!valid_id(component.name))
      return bad(from["name"], quote(component.name) + " is no name of a component");
    for (const ManifestComponent& other : manifest.components)
      if (other.key() == component.key())
        return bad(from, "component " + quote(component.key()) + " is listed twice");
    for (uint64_t f = 0; f < from["field"].count(); ++f) {
      BELAY_ASSIGN(Field field, field_of(from["field"].at(f)));
      for (const Field& other : manifest.fields)
        if (other.key == field.key)
          return bad(from["field"].at(f), "field " + quote(field.key) + " is declared twice");
      manifest.fields.push_back(std::move(field));
    }
    manifest.components.push_back(std::move(component));
  }
  if (manifest.components.empty()) return bad(top["component"], "a plugin has at least one component");
  return manifest;
}

}  // namespace belay::core
