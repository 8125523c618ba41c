// The program `belay`: translates the command line to the hosting API of libbelay and its answers to text or
// JSON.
#include "command_line.hpp"

#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>

using namespace belay::cli;

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write(), see ReaderGone
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file that gets larger than a limit allows
  Output output;
  const auto report = [&](const Failure& failure) {
    try {
      output.failure(failure);
    } catch (...) {  // stdout is gone too; stderr has it
    }
    return int(failure.exit);
  };
  try {
    return int(main_with(argc, argv, output));
  } catch (const ReaderGone&) {
    return int(Exit::kOk);
  } catch (const Failure& failure) {
    return report(failure);
  } catch (const std::bad_alloc&) {
    return report({Exit::kResource, "RESOURCE_EXHAUSTED", "There is not enough memory.",
                   "Free some, or use a smaller model or batch."});
  } catch (const std::exception& error) {
    return report({Exit::kInternal, "INTERNAL", error.what(),
                   "This is a defect of belay: please report it with the command."});
  }
}
