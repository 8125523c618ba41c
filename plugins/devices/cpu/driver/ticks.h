// The timers behind the devices' progress ticks. A timer of the host may fire after its device has gone, and no call
// to the host is allowed while a device is destroyed; so what a timer points at belongs to the plugin, which cancels
// what is still to come when it is closed.
#pragma once

#include <belay/abi/host.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace belay::cpu {

class Device;

class Tick {
 public:
  // Lets Device::tick run once after `delay_ns`. False: the host has no executor, or it gave no timer.
  bool arm(uint64_t delay_ns);
  // Afterwards the device is not called any more; waits for a call that runs. Makes no call to the host.
  void detach();

 private:
  friend class Ticks;
  Tick(const belay_host& host, const belay_executor_vt* executor) : host_(host), executor_(executor) {}

  const belay_host& host_;
  const belay_executor_vt* const executor_;
  std::mutex mutex_;  // held while the device is called
  Device* device_ = nullptr;
  std::atomic<uint64_t> timer_{0};
  std::atomic<bool> pending_{false};
};

// Owns them all; lives as long as the plugin.
class Ticks {
 public:
  explicit Ticks(const belay_host& host);
  ~Ticks();
  Ticks(const Ticks&) = delete;
  Ticks& operator=(const Ticks&) = delete;

  Tick& attach(Device& device);
  bool possible() const { return executor_ != nullptr; }

 private:
  const belay_host& host_;
  const belay_executor_vt* const executor_;  // null: the host has none
  std::mutex mutex_;
  std::vector<std::unique_ptr<Tick>> all_;
};

}  // namespace belay::cpu
