// core/guard/crash_mark.h: tells, of a process that died while it loaded plugins, whether a plugin was what
// killed it.
#pragma once

#include <string>

namespace belay::core {

// While one of these lives, a deadly signal on a thread that is inside a plugin (SlotCall), or exit() called
// there, appends two lines of TOML to the file: crash = "SIGSEGV in open", of = "<plugin>". The signal then
// takes its way as before. Any number of them at a time; more than 16 are not served.
class CrashMark {
 public:
  explicit CrashMark(int fd);  // of a file opened with O_APPEND; borrowed
  ~CrashMark();
  CrashMark(const CrashMark&) = delete;
  CrashMark& operator=(const CrashMark&) = delete;

 private:
  int place_ = -1;
};

}  // namespace belay::core
