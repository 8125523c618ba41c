#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <optional>

namespace belay::cli {
namespace {

using nlohmann::ordered_json;

struct CodeText {
  std::optional<uint32_t> number;  // nothing: no code of a status, but one of this program
  std::string name, title, cause, remedy;
};

std::vector<CodeText> catalogue() {
  std::vector<CodeText> out;
  for (uint32_t number = 0; number < BELAY_CODE_COUNT; ++number) {
    belay_code_info info{};
    info.hdr.struct_size = sizeof info;
    check(belay_code_describe(number, &info), Stage::kConfigure);
    out.push_back(
        {number, to_string(info.name), to_string(info.title), to_string(info.cause), to_string(info.remedy)});
  }
  out.push_back(
      {{},
       "USAGE",
       "Command line",
       "The command line has a word, an option or a value that the program does not know, or lacks one.",
       "Look at `belay VERB --help`, which has examples; the message names the word."});
  return out;
}

std::string number_text(const CodeText& code) { return code.number ? std::to_string(*code.number) : "-"; }

ordered_json code_json(const CodeText& code) {
  return {{"code", code.number ? ordered_json(*code.number) : ordered_json(nullptr)},
          {"name", code.name},
          {"title", code.title},
          {"cause", code.cause},
          {"remedy", code.remedy}};
}

}  // namespace

Exit explain(const Common&, const std::string& code, Output& output) {
  const std::vector<CodeText> all = catalogue();
  if (code.empty()) {
    if (output.json) {
      ordered_json list = ordered_json::array();
      for (const CodeText& one : all) list.push_back(code_json(one));
      output.document("belay.codes/1", {{"codes", list}});
    } else {
      Table table(0, {0});
      for (const CodeText& one : all) table.row({number_text(one), one.name, one.title});
      output.print(table.text());
    }
    return Exit::kOk;
  }
  std::string wanted = code;
  for (char& c : wanted) c = c == '-' || c == ' ' ? '_' : char(std::toupper(uint8_t(c)));
  if (wanted.starts_with("BELAY_")) wanted = wanted.substr(6);
  const auto at = std::find_if(all.begin(), all.end(), [&](const CodeText& one) {
    return one.name == wanted || (one.number && std::to_string(*one.number) == wanted);
  });
  if (at == all.end()) {
    std::vector<std::string> names;
    for (const CodeText& one : all) names.push_back(one.name);
    std::string near = did_you_mean(wanted, names);
    fail_usage("There is no code '" + code + "'.",
               near.empty() ? "'belay explain' lists them all." : std::move(near));
  }
  if (output.json) {
    output.document("belay.code/1", code_json(*at));
  } else {
    Table table;
    table.row({at->name, at->title});
    table.row({"cause", at->cause});
    table.row({"remedy", at->remedy});
    table.row({"number", number_text(*at)});
    output.print(table.text());
  }
  return Exit::kOk;
}

}  // namespace belay::cli
