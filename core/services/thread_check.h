// core/services/thread_check.h: what the calling thread is doing, and whether it may.
#pragma once

#include <belay/abi/services.h>
#include <belay/status.hpp>
#include "core/base/log.h"

#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace belay::core {

// Reads the marks that call_slot leaves. Thread-safe.
class ThreadCheck {
 public:
  explicit ThreadCheck(Log& log) : log_(log) {}
  static uint32_t domain();
  // FAILED_PRECONDITION names both domains; the first breach of `what` by a plugin is logged.
  Status check(std::string_view plugin, uint32_t allowed, std::string_view what);

 private:
  Log& log_;
  std::mutex mutex_;
  std::set<std::string> told_;
};

}  // namespace belay::core
