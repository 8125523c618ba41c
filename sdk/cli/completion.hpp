// A completion script for bash, made from the command line's own description.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace belay::cli {

std::string bash_completion(const CLI::App& app);

}  // namespace belay::cli
