#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

#include <sstream>

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
  constexpr std::string_view kNote = "# note: ";
  std::vector<std::string> notes;
  std::istringstream lines(effective(common));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(kNote)) notes.push_back(line.substr(kNote.size()));
  if (output.json) {
    output.document("belay.config-check/1", {{"ok", true}, {"files", common.configs}, {"notes", notes}});
    return Exit::kOk;
  }
  std::string text = "ok: " + printable(origin(common)) + "\n";
  for (const std::string& note : notes) text += "note: " + printable(note) + "\n";
  output.print(text);
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
