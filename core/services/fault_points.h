// core/services/fault_points.h: failures that a configuration orders.
#pragma once

#include <belay/abi/services.h>
#include <belay/status.hpp>
#include "core/config/config.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

// The rules of [[fault.points]]; each counts the passes of its point for itself. Without rules `at` is one
// load. Thread-safe.
class FaultPoints {
 public:
  explicit FaultPoints(const Config& config);
  // What a rule orders at "<plugin>.<point>"; waits where it orders a delay.
  Status at(std::string_view plugin, std::string_view point) {
    return rules_.empty() ? Status() : look(plugin, point);
  }

 private:
  struct Rule {
    std::string point, where;  // a '*' at the end of `point` stands for anything
    Code code = Code::kOk;
    uint64_t skip = 0, times = 0;  // 0 times: always
    std::chrono::nanoseconds delay{0};
    std::atomic<uint64_t> passed{0};
  };
  Status look(std::string_view plugin, std::string_view point);
  std::vector<std::unique_ptr<Rule>> rules_;
};

}  // namespace belay::core
