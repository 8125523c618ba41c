#include "completion.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <CLI/CLI.hpp>

namespace belay::cli {
namespace {

std::string words_of(const CLI::App& app) {
  std::string out;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!sub->get_group().empty()) out += sub->get_name() + " ";
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) out += "--" + name + " ";
  if (!out.empty()) out.pop_back();
  return out;
}

// One branch of the script's `case` for every verb.
void branches(const CLI::App& app, const std::string& path, std::string& out) {
  out += "    '" + path + "') words='" + words_of(app) + "' ;;\n";
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!sub->get_group().empty())
      branches(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), out);
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::string cases;
  branches(app, "", cases);
  return "# Completion of belay for bash: source <(belay completion bash)\n"
         "_belay() {\n"
         "  local word path='' words='' current=${COMP_WORDS[COMP_CWORD]} i\n"
         "  COMPREPLY=()\n"
         "  for ((i = 1; i < COMP_CWORD && i < 3; i++)); do\n"
         "    word=${COMP_WORDS[i]}\n"
         "    case $word in -*) break ;; esac\n"
         "    case \"$path $word\" in\n"
         "      ' plugins' | ' config' | ' conformance' | ' completion') path=$word ;;\n"
         "      ' '*) path=${path:+$path }$word; break ;;\n"
         "      *) path=\"$path $word\"; break ;;\n"
         "    esac\n"
         "  done\n"
         "  case $path in\n" +
         cases +
         "  esac\n"
         "  case $current in\n"
         "    -*) ;;\n"
         "    *)\n"
         "      case \"${COMP_WORDS[COMP_CWORD - 1]} $path\" in\n"
         "        --device\\ *) words=\"auto $(\"${COMP_WORDS[0]}\" devices 2>/dev/null | awk '/^[^ ]/ "
         "{print $1}')\" ;;\n"
         "        --output-format\\ *) words='npy pb both' ;;\n"
         "        -*) compopt -o default; return ;;\n"
         "        *\\ 'plugins info') words=$(\"${COMP_WORDS[0]}\" plugins list 2>/dev/null | awk 'NR > 1 "
         "{print $1}') ;;\n"
         "        *\\ 'plugins explain' | *\\ 'plugins new') words='" +
         joined(plugin_kinds(), " ") +
         "' ;;\n"
         "        *\\ explain) words=$(\"${COMP_WORDS[0]}\" explain 2>/dev/null | awk '{print $2}') ;;\n"
         "        *\\  | *\\ plugins | *\\ config | *\\ conformance | *\\ completion) ;;\n"
         "        *\\ help) words='" +
         words_of(app) +
         "' ;;\n"
         "        *) compopt -o default; return ;;\n"
         "      esac ;;\n"
         "  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "}\n"
         "complete -F _belay belay\n";
}

}  // namespace belay::cli
