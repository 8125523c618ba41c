// The help of a verb, made from the command line's own description.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace belay::cli {

// What is typed to get to the verb: "belay plugins list".
std::string path_of(const CLI::App* app);
// Usage, places, verbs, options by group, then the footer; at most 100 columns.
std::string help_text(const CLI::App* app);

}  // namespace belay::cli
