// The command line: every verb with its options, help and examples, and the mistakes that are made with them.
#pragma once

#include "output.hpp"

namespace belay::cli {

// Parses, does what was asked and gives the exit code. Throws Failure and ReaderGone; sets output.json and
// .quiet as soon as they are known, so that a failure is shown as asked.
Exit main_with(int argc, char** argv, Output& output);

}  // namespace belay::cli
