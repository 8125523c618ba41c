#include "help.hpp"

#include <CLI/CLI.hpp>

#include <sstream>
#include <string_view>
#include <vector>

namespace belay::cli {
namespace {

constexpr size_t kColumns = 100, kNames = 30;

// "  name    description", wrapped between words.
std::string entry(const std::string& name, const std::string& description) {
  std::string out = "  " + name;
  if (out.size() + 2 > kNames)
    out += "\n" + std::string(kNames, ' ');
  else
    out += std::string(kNames - out.size(), ' ');
  size_t column = kNames;
  std::istringstream words(description);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(kNames, ' ');
      column = kNames;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

std::string option_name(const CLI::Option* option) {
  std::string out;
  for (const std::string& name : option->get_snames()) out += "-" + name + ", ";
  for (const std::string& name : option->get_lnames()) out += "--" + name + ", ";
  if (!out.empty()) out.resize(out.size() - 2);
  // A flag has no value; --random[=SEED] says its own in its description.
  if (option->get_items_expected_max() > 0 && option->get_expected_min() > 0)
    out += " " + option->get_type_name();
  return out;
}

}  // namespace

std::string path_of(const CLI::App* app) {
  return app->get_parent() ? path_of(app->get_parent()) + " " + app->get_name() : "belay";
}

std::string help_text(const CLI::App* app) {
  const auto verbs = app->get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); });
  const auto places = app->get_options([](const CLI::Option* option) { return option->get_positional(); });
  std::string out = app->get_description() + "\n\nUsage: " + path_of(app) + (verbs.empty() ? "" : " VERB");
  for (const CLI::Option* place : places) out += " " + place->get_type_name();
  out += " [options]\n";
  for (const CLI::Option* place : places) out += entry(place->get_type_name(), place->get_description());
  if (!verbs.empty()) out += "\nVerbs:\n";
  for (const CLI::App* verb : verbs) out += entry(verb->get_name(), verb->get_description());
  // The group that CLI11 puts the help flag into comes last: it says the least.
  std::vector<std::string> groups = app->get_groups();
  std::erase(groups, "Options");
  groups.push_back("Options");
  for (const std::string& group : groups) {
    const auto options = app->get_options(
        [&](const CLI::Option* option) { return option->get_group() == group && option->nonpositional(); });
    if (options.empty() || group.empty()) continue;
    out += "\n" + group + ":\n";
    for (const CLI::Option* option : options) out += entry(option_name(option), option->get_description());
  }
  const std::string footer = app->get_footer();
  return footer.empty() ? out : out + "\n" + footer + "\n";
}

}  // namespace belay::cli
