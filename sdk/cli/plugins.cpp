#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace belay::cli {
namespace {

using nlohmann::ordered_json;

ordered_json plugin_json(const PluginInfo& plugin) {
  return {{"id", plugin.id},       {"version", plugin.version}, {"abi", plugin.abi},  {"kinds", plugin.kinds},
          {"state", plugin.state}, {"reason", plugin.reason},   {"file", plugin.file}};
}

// "belay.driver/1:cpu belay.kernel-provider/1:cpu" as "driver kernel-provider": the rest says nothing new in
// a list.
std::string short_kinds(const std::string& kinds) {
  std::string out, word;
  for (const char c : kinds + " ") {
    if (c != ' ') {
      word += c;
      continue;
    }
    if (word.starts_with("belay.")) word = word.substr(6, word.find('/') - 6);
    if (!word.empty() && (" " + out + " ").find(" " + word + " ") == std::string::npos)
      out += (out.empty() ? "" : " ") + word;
    word.clear();
  }
  return out;
}

}  // namespace

const std::vector<std::string>& plugin_kinds() {
  static const std::vector<std::string> all{"driver", "memory-policy", "model-format", "kernel-provider",
                                            "engine", "diagnostics",   "layer"};
  return all;
}

Exit plugins_list(const Common& common, Output& output) {
  const std::vector<PluginInfo> found = find_plugins(common);
  if (output.json) {
    ordered_json list = ordered_json::array();
    for (const PluginInfo& plugin : found) list.push_back(plugin_json(plugin));
    output.document("belay.plugins/1", {{"plugins", list}});
    return Exit::kOk;
  }
  Table table;
  table.row({"id", "version", "state", "gives", "file"});
  for (const PluginInfo& plugin : found)
    table.row({printable(plugin.id), printable(plugin.version), plugin.state,
               printable(short_kinds(plugin.kinds)), printable(plugin.file)});
  std::string text =
      found.empty() ? "no plugins found; look elsewhere with --plugin-dir DIR\n" : table.text();
  for (const PluginInfo& plugin : found)
    if (!plugin.reason.empty()) text += printable(plugin.id) + ": " + printable(plugin.reason) + "\n";
  output.print(text);
  return Exit::kOk;
}

Exit plugins_info(const Common& common, const std::string& id, Output& output) {
  const std::vector<PluginInfo> found = find_plugins(common);
  std::vector<std::string> ids;
  for (const PluginInfo& plugin : found) ids.push_back(plugin.id);
  const auto at = std::find(ids.begin(), ids.end(), id);
  if (at == ids.end())
    throw Failure{Exit::kDevice, "NOT_FOUND",
                  "There is no plugin '" + id + "'; found: " + (ids.empty() ? "none" : joined(ids)) + ".",
                  did_you_mean(id, ids)};
  const PluginInfo& plugin = found[size_t(at - ids.begin())];
  if (output.json) {
    ordered_json json = plugin_json(plugin);
    json["manifest"] = plugin.manifest;
    output.document("belay.plugin/1", json);
    return Exit::kOk;
  }
  Table table;
  table.row({"id", printable(plugin.id)});
  table.row({"version", printable(plugin.version)});
  table.row({"abi", printable(plugin.abi)});
  table.row({"gives", printable(plugin.kinds)});
  table.row({"file", printable(plugin.file)});
  table.row(
      {"state", printable(plugin.state) + (plugin.reason.empty() ? "" : ": " + printable(plugin.reason))});
  std::string text = table.text() + "manifest\n", line;
  for (const char c : plugin.manifest + "\n") {
    if (c != '\n') {
      line += c;
      continue;
    }
    if (!line.empty()) text += "  " + printable(line) + "\n";
    line.clear();
  }
  output.print(text);
  return Exit::kOk;
}

Exit plugins_probe(const Common& common, const std::string& id, Output& output) {
  check(belay_plugins_probe(RuntimeRequest(common).get(), to_str(id)), Stage::kConfigure);
  if (output.json)
    output.document("belay.plugins-probe/1", {{"id", id}});
  else
    output.print("'" + printable(id) + "' was loaded, opened, started and ended.\n");
  return Exit::kOk;
}

Exit plugins_release(const Common& common, const std::string& id, Output& output) {
  check(belay_plugins_release(RuntimeRequest(common).get(), to_str(id)), Stage::kConfigure);
  if (output.json)
    output.document("belay.plugins-release/1", {{"id", id}});
  else
    output.print("'" + printable(id) + "' is loaded again when it is wanted.\n");
  return Exit::kOk;
}

Exit plugins_explain(const Common& common, const std::string& kind, Output& output) {
  std::string whole = kind;
  if (!kind.starts_with("belay.")) {
    if (std::find(plugin_kinds().begin(), plugin_kinds().end(), kind) == plugin_kinds().end())
      fail_usage("There is no kind '" + kind + "'; kinds are " + joined(plugin_kinds()) + ".",
                 did_you_mean(kind, plugin_kinds()));
    whole = "belay." + kind + "/1";
  }
  const Runtime runtime(common);
  StringSink text;
  check(belay_runtime_explain(runtime.get().get(), to_str(whole), text.sink()), Stage::kConfigure);
  std::string explanation = std::move(text).str();
  if (output.json) {
    output.document("belay.plugins-explain/1", {{"kind", whole}, {"explanation", explanation}});
    return Exit::kOk;
  }
  if (explanation.empty() || explanation.back() != '\n') explanation += "\n";
  output.print(explanation);
  return Exit::kOk;
}

}  // namespace belay::cli
