#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

namespace belay::cli {
namespace {

std::string effective(const Common& common) {
  const RuntimeRequest request(common);
  StringSink text;
  check(belay_config_check(request.get(), text.sink()), Stage::kConfigure);
  return std::move(text).str();
}

std::string origin(const Common& common) {
  return common.configs.empty() ? "the embedded CPU configuration" : joined(common.configs, " + ");
}

void print_toml(const char* schema, const std::string& toml, Output& output) {
  if (output.json)
    output.document(schema, {{"toml", toml}});
  else
    output.print(toml);
}

}  // namespace

Exit config_check(const Common& common, Output& output) {
  effective(common);
  if (output.json)
    output.document("belay.config-check/1", {{"ok", true}, {"files", common.configs}});
  else
    output.print("ok: " + printable(origin(common)) + "\n");
  return Exit::kOk;
}

Exit config_show(const Common& common, Output& output) {
  print_toml("belay.config-show/1", effective(common), output);
  return Exit::kOk;
}

Exit config_example(const Common& common, Output& output) {
  const RuntimeRequest request(common);
  StringSink text;
  check(belay_config_example(request.get(), text.sink()), Stage::kConfigure);
  print_toml("belay.config-example/1", std::move(text).str(), output);
  return Exit::kOk;
}

}  // namespace belay::cli
