// The program `belay`: translates the command line to the hosting API of libbelay and its answers to text or
// JSON.
#include "command_line.hpp"

#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>

using namespace belay::cli;

namespace {

// Without memory for an exception the C++ library ends the program by a signal; with this much there is some.
// Before the objects of CLI11 are made, which need memory too.
__attribute__((constructor(101))) void want_memory_to_begin_with() {
  void* const some = std::malloc(size_t{1} << 20);
  std::free(some);
  if (some) return;
  constexpr char kText[] = "belay: There is not enough memory.\n";
  static_cast<void>(!write(STDERR_FILENO, kText, sizeof kText - 1));
  _exit(int(Exit::kResource));
}

}  // namespace

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
