// The program's two ends: results to stdout with every write checked, progress and notes to stderr.
#pragma once

#include "failure.hpp"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace belay::cli {

// The reader of stdout has gone away (`belay ... | head`): nothing more to do and nothing to complain about.
struct ReaderGone {};

class Output {
 public:
  bool json = false;
  bool quiet = false;

  // To stdout, at once. Throws Failure for a full disk, ReaderGone for a closed pipe.
  void print(std::string_view text);
  // The one JSON document of a verb, with its schema ("belay.run/1") as the first member.
  void document(std::string_view schema, const nlohmann::ordered_json& members);
  // "belay: warning: ..." on stderr unless quiet.
  void note(std::string_view text) const;
  // "belay: ..." and its hint on stderr; with --json also {"schema": "belay.error/1"} on stdout.
  void failure(const Failure& failure);
};

// One line on stderr that is overwritten; shows nothing unless stderr is a terminal.
class Progress {
 public:
  Progress(const Output& output, std::string title, uint64_t total);
  ~Progress();  // wipes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void at(uint64_t done, std::string_view text = {});

 private:
  const std::string title_;
  const uint64_t total_;
  bool shown_;
  std::chrono::steady_clock::time_point last_{};
};

// Ctrl-C while one of these lives sets a flag, and a second one ends the program; before and after it ends at
// once.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
  static bool interrupted();
};

// Ends the process with Exit::kTimeout after `seconds`, whatever it is doing then; 0: never.
void set_deadline(double seconds, bool json, std::string_view doing);

}  // namespace belay::cli
