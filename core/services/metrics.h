// core/services/metrics.h: numbers that plugins keep and others read.
#pragma once

#include <belay/abi/services.h>
#include <belay/status.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

// Metrics are never taken away, so that a plugin which is opened anew goes on counting, and what is read late
// is still there. Thread-safe; add, set and observe take no lock.
class Metrics {
 public:
  static constexpr uint64_t kMost = 4096;

  Metrics() : metrics_(std::make_unique<std::array<std::atomic<Metric*>, kMost>>()) {}
  Metrics(const Metrics&) = delete;
  ~Metrics();

  Result<uint64_t> define(std::string_view plugin, const belay_metric_req& req);
  void add(uint64_t metric, int64_t by);
  void set(uint64_t metric, int64_t value);
  void observe(uint64_t metric, uint64_t value);
  void each(const std::function<void(const belay_metric_info&)>& body) const;

 private:
  struct alignas(64) Metric {
    std::string plugin, name, unit, doc;
    uint64_t kind = 0;
    std::atomic<int64_t> value{0};
    std::atomic<uint64_t> count{0}, sum{0};
    std::unique_ptr<std::array<std::atomic<uint64_t>, BELAY_METRIC_BUCKETS>> buckets;
  };
  Metric* find(uint64_t metric, uint64_t kinds) const;

  std::unique_ptr<std::array<std::atomic<Metric*>, kMost>> metrics_;
  mutable std::mutex mutex_;  // of definitions
  uint64_t defined_ = 0;
};

}  // namespace belay::core
