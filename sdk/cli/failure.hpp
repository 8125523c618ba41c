// How the program ends: exit codes, and the one exception that carries a failure from where it is found to
// main().
#pragma once

#include <belay/status.hpp>

#include <filesystem>
#include <string>

namespace belay::cli {

enum class Exit : int {
  kOk = 0,
  kDiffers = 1,   // a comparison or a conformance case failed
  kUsage = 2,     // command line or configuration
  kInput = 3,     // an input, a model, or a file that cannot be read or written
  kDevice = 4,    // a device or plugin
  kResource = 5,  // memory, file descriptors, processes
  kTimeout = 6,
  kInternal = 7,
  kInterrupted = 130,  // Ctrl-C, as shells count it
};

// What was being done: one code means different things for a configuration and for a model.
enum class Stage { kConfigure, kModel, kDevice };

// Thrown inside the program only; nothing of it crosses into libbelay.
struct Failure {
  Exit exit = Exit::kInternal;
  std::string code;     // "NOT_FOUND", or "USAGE"
  std::string message;  // a sentence
  std::string hint;     // what to do, one line; may be empty
};

Exit exit_of(Code code, Stage stage);
std::string code_name(Code code);

[[noreturn]] void fail(Stage stage, const Status& status, std::string hint = {});
// The failure of the command line itself.
[[noreturn]] void fail_usage(std::string message, std::string hint = {});
[[noreturn]] void fail_input(std::string message, std::string hint = {});

// A file that was asked for, whole or not at all; fails where it cannot be. `what`: "picture".
void write_result(const std::string& path, std::string_view text, const char* what);

// Fails where a result would take the place of the file that was read.
void need_other_file(const std::string& input, const std::string& result, const char* option);

// What is at a path; that there is nothing is no failure, that nobody can tell is one, with its reason.
std::filesystem::file_status look_at(const std::string& path, Exit exit = Exit::kInput);

// Fails, with the nearest name, unless there is a folder.
void need_folder(const std::string& path);

// Takes over what a function of runtime.h returned; throws unless it is OK.
void check(belay_status raw, Stage stage);

template <class T>
T value_or_fail(Result<T> result, Stage stage, std::string hint = {}) {
  if (!result.ok()) fail(stage, result.status(), std::move(hint));
  return std::move(result).value();
}

}  // namespace belay::cli
