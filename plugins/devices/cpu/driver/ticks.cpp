#include "ticks.h"

#include "device.h"

#include <belay/status.hpp>

namespace belay::cpu {

bool Tick::arm(uint64_t delay_ns) {
  if (!executor_) return false;
  const auto run = [](void* user) BELAY_NOEXCEPT {
    Tick& self = *static_cast<Tick*>(user);
    std::lock_guard lock(self.mutex_);
    self.pending_.store(false);
    if (self.device_) self.device_->tick();
  };
  uint64_t id = 0;
  pending_.store(true);
  if (const belay_status status = executor_->timer(&host_, delay_ns, 0, run, this, &id); status != BELAY_OK) {
    host_.status_release(&host_, status);
    pending_.store(false);
    return false;
  }
  timer_.store(id);
  return true;
}

void Tick::detach() {
  std::lock_guard lock(mutex_);
  device_ = nullptr;
}

Ticks::Ticks(const belay_host& host)
    : host_(host),
      executor_(static_cast<const belay_executor_vt*>(host.get_service(&host, to_str(BELAY_HOST_EXECUTOR)))) {}

Ticks::~Ticks() {
  for (const auto& tick : all_)
    if (tick->pending_.load()) executor_->cancel(&host_, tick->timer_.load());
}

Tick& Ticks::attach(Device& device) {
  std::lock_guard lock(mutex_);
  for (const auto& tick : all_) {
    std::lock_guard of_tick(tick->mutex_);
    if (tick->device_ || tick->pending_.load()) continue;
    tick->device_ = &device;
    return *tick;
  }
  all_.push_back(std::unique_ptr<Tick>(new Tick(host_, executor_)));
  all_.back()->device_ = &device;
  return *all_.back();
}

}  // namespace belay::cpu
