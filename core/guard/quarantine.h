// core/guard/quarantine.h: plugins that ended the process which loaded them are not loaded again until they
// change.
#pragma once

#include <belay/status.hpp>
#include "core/base/files.h"
#include "core/guard/crash_mark.h"

#include <optional>
#include <string>
#include <vector>

namespace belay::core {

// Kept in a folder of the user's: a file for each plugin in quarantine, and one for each process that loads
// plugins at this moment, where a crash inside a plugin leaves its mark (CrashMark). Of a process that is
// gone with a mark, the plugin comes into quarantine; one that was killed from outside has none. Other
// processes of the same user may use the folder at the same time. Thread-safe.
class Quarantine {
 public:
  // [runtime] state_dir, or the standard place: BELAY_STATE in a program that is not set-uid, else belay in
  // XDG_STATE_HOME, else ~/.local/state/belay. Empty: there is none, or "none" is configured.
  static std::string directory(const std::string& configured);

  // Empty: nothing is kept. A folder that others can write to is not used either.
  explicit Quarantine(std::string directory);

  // FAILED_PRECONDITION with the reason, where this file, as it is now, is in quarantine.
  Status check(const std::string& id, const std::string& file) const;
  Status add(const std::string& id, const std::string& file, const std::string& reason) const;
  // Whether this file, as it is now, was loaded by a probe and did no harm; and that it was. Nothing kept:
  // true.
  bool harmless(const std::string& file) const;
  void set_harmless(const std::string& id, const std::string& file) const;
  // NOT_FOUND names those there are.
  Status release(const std::string& id) const;
  struct Entry {
    std::string id, file, reason;
  };
  // Those whose files are as they were, by id.
  std::vector<Entry> list() const;
  // Puts what ended other processes into quarantine.
  void look_for_the_dead() const;

  // What this process loads, from loading() to the next one or to the end of the journal.
  class Journal {
   public:
    explicit Journal(const Quarantine& quarantine) : quarantine_(quarantine) {}
    ~Journal();
    Journal(const Journal&) = delete;
    Journal& operator=(const Journal&) = delete;
    void loading(const std::string& id, const std::string& file);

   private:
    const Quarantine& quarantine_;
    std::string path_, boot_, begin_;  // of the file; of this process, the same for all that it loads
    Fd fd_;
    std::optional<CrashMark> mark_;
  };

 private:
  std::string entry_of(const std::string& file, const char* end) const;
  Status keep(const std::string& path, const std::string& text, const std::string& id) const;
  const std::string directory_;  // empty: none
};

}  // namespace belay::core
