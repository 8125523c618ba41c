#include "core/base/process_state.h"

#include <sys/stat.h>
#include <unistd.h>
#include <cfenv>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <memory>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace belay::core {
namespace {

std::string directory() {
  char buffer[4096];
  return getcwd(buffer, sizeof buffer) ? buffer : "";
}

// Asking with umask() would set it for a moment, under the feet of other threads. -1: not known.
int current_umask() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> status(std::fopen("/proc/self/status", "re"),
                                                               std::fclose);
  char line[128];
  unsigned value = 0;
  while (status && std::fgets(line, sizeof line, status.get()))
    if (std::sscanf(line, "Umask: %o", &value) == 1) return int(value);
  return -1;
}

uint32_t float_mode() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~uint32_t(_MM_EXCEPT_MASK);  // what has happened is no mode
#else
  return uint32_t(std::fegetround());
#endif
}

void set_float_mode(uint32_t mode) {
#if defined(__x86_64__)
  _mm_setcsr(mode);
#else
  std::fesetround(int(mode));
#endif
}

bool same_handler(const struct sigaction& a, const struct sigaction& b) {
  return a.sa_flags == b.sa_flags && a.sa_handler == b.sa_handler;
}

}  // namespace

ProcessState::ProcessState() : directory_(directory()), umask_(current_umask()), float_mode_(float_mode()) {
  std::memset(signals_.data(), 0, sizeof signals_);
  for (int i = 1; i <= SIGRTMAX && size_t(i) < signals_.size(); ++i)
    sigaction(i, nullptr, &signals_[size_t(i)]);
  const char* locale = std::setlocale(LC_ALL, nullptr);
  locale_ = locale ? locale : "C";
}

std::vector<std::string> ProcessState::restore() const {
  const ProcessState now;
  std::vector<std::string> changed;
  for (size_t i = 1; i < signals_.size(); ++i)
    if (!same_handler(signals_[i], now.signals_[i])) {
      const char* name = sigabbrev_np(int(i));
      changed.push_back("the handler of SIG" + (name ? std::string(name) : std::to_string(i)));
      sigaction(int(i), &signals_[i], nullptr);
    }
  if (now.locale_ != locale_) {
    changed.push_back("the locale (" + now.locale_ + ")");
    std::setlocale(LC_ALL, locale_.c_str());
  }
  if (now.directory_ != directory_) {
    changed.push_back("the working directory (" + now.directory_ + ")");
    if (chdir(directory_.c_str()) != 0) changed.back() += ", which cannot be restored";
  }
  if (now.umask_ != umask_ && umask_ >= 0) {
    changed.push_back("the umask");
    umask(mode_t(umask_));
  }
  if (now.float_mode_ != float_mode_) {
    changed.push_back("the floating-point mode");
    set_float_mode(float_mode_);
  }
  return changed;
}

}  // namespace belay::core
