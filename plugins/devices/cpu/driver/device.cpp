#include "device.h"

#include "program.h"
#include "thread_state.h"
#include "waiting.h"

#include <utility>
#include <vector>

namespace belay::cpu {
namespace {

// After so many ticks without anything queued the tick rests.
constexpr uint64_t kIdleTicks = 50;

}  // namespace

Device::Device(const belay_host& host, Ticks& ticks, const Options& options, uint64_t index)
    : host_(host),
      options_(options),
      index_(index),
      name_("cpu:" + std::to_string(index)),
      short_name_("cpu" + std::to_string(index)),
      memory_(name_, options.memory_bytes, options.huge_pages),
      tick_(ticks.attach(*this)),
      lanes_(host, options.threads),
      sharing_(*this, options.threads),
      workers_(*this, options.threads, options.blocking_threads) {
  AsymmetricFence::prepare();
}

Device::~Device() {
  tick_.detach();
  workers_.stop();
  for (auto& [id, timeline] : timelines_)
    if (timeline->stream()) timeline->stream()->retire();
  for (auto& [id, timeline] : timelines_) timeline->unref();
}

// ---- timelines ---------------------------------------------------------------------------------------------------------
Timeline* Device::find_timeline(uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto at = timelines_.find(id);
  if (at == timelines_.end()) return nullptr;
  at->second->ref();
  return at->second;
}

Status Device::add_timeline(Timeline* timeline) {
  std::lock_guard lock(mutex_);
  if (!timelines_.try_emplace(timeline->id(), timeline).second)
    return {Code::kAlreadyExists, "Device " + name_ + " has a timeline " + std::to_string(timeline->id()) +
                                      " already; give each stream an id of its own."};
  timeline->set_tick_off(!tick_armed_ && options_.tick_ns != 0);
  return {};
}

void Device::remove_timeline(Timeline* timeline) {
  {
    std::lock_guard lock(mutex_);
    timelines_.erase(timeline->id());
  }
  timeline->close(std::make_shared<Failure>(
      Failure{BELAY_ABORTED, "Timeline " + std::to_string(timeline->id()) + " of " + name_ +
                                 " was destroyed before it reached the awaited value; it stood at " +
                                 std::to_string(timeline->reached()) + "."}));
  timeline->unref();
}

Status Device::signal(uint64_t id, uint64_t value, FailurePtr failure) {
  Timeline* timeline = nullptr;
  {
    std::lock_guard lock(mutex_);
    Timeline*& slot = timelines_[id];
    if (!slot) slot = new Timeline(id, nullptr);
    timeline = slot;
    timeline->ref();
  }
  Status status;
  if (timeline->stream())
    status = {Code::kAlreadyExists,
              "Timeline " + std::to_string(id) + " of " + name_ + " is a stream's: only its operations advance it."};
  else
    timeline->signal(value, std::move(failure));
  timeline->unref();
  return status;
}

void Device::destroy_external(uint64_t id) {
  Timeline* const timeline = find_timeline(id);
  if (!timeline) return;
  if (!timeline->stream()) remove_timeline(timeline);
  timeline->unref();
}

belay_status Device::drain() {
  std::vector<std::pair<Stream*, uint64_t>> pending;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, timeline] : timelines_) {
      Stream* const stream = timeline->stream();
      if (!stream) continue;
      stream->ref();
      pending.emplace_back(stream, stream->last_value());
    }
  }
  belay_status first = BELAY_OK;
  for (const auto& [stream, value] : pending) {
    const belay_status status = wait_for(*stream, value, kForever);
    if (first == BELAY_OK)
      first = status;
    else if (status != BELAY_OK)
      host_.status_release(&host_, status);
    stream->unref();
  }
  return first;
}

// ---- around operations -------------------------------------------------------------------------------------------------
Exec Device::make_exec(ThreadState& thread) {
  Exec exec;
  exec.api = {.hdr = {sizeof(belay_exec), 0, nullptr},
              .user = this,
              .threads = uint32_t(options_.threads),
              .stream = 0,
              .parallel_for =
                  [](const belay_exec* api, uint64_t count, void (*body)(void*, uint64_t), void* arg) noexcept {
                    // On the thread that calls: it may be in a tile of another thread's loop.
                    const Exec& self = *reinterpret_cast<const Exec*>(api);
                    cpu::parallel_for(*self.device, this_thread(), count, body, arg, self.cost_ns);
                  },
              .scratch = [](const belay_exec* api, uint64_t bytes) noexcept -> void* {
                ThreadState& me = this_thread();
                try {
                  if (!me.scratch) me.scratch = static_cast<Device*>(api->user)->scratch_.lend();
                } catch (const std::bad_alloc&) {
                  return nullptr;
                }
                return me.scratch->take(bytes);
              },
              .output = [](const belay_exec* api, uint64_t index, const int64_t* dims, uint32_t rank) noexcept -> void* {
                const Exec& self = *reinterpret_cast<const Exec*>(api);
                return self.output ? self.output(self.output_user, index, dims, rank) : nullptr;
              },
              .fail = [](const belay_exec* api, uint32_t code, belay_str message) noexcept {
                const belay_host& host = static_cast<Device*>(api->user)->host_;
                return host.status_make(&host, code, message);
              },
              .cancelled = &never_cancelled_};
  exec.device = this;
  exec.thread = &thread;
  return exec;
}

void Device::return_scratch(ThreadState& thread) {
  if (!thread.scratch) return;
  thread.scratch->owner().give_back(thread.scratch);
  thread.scratch = nullptr;
}

void Device::skip(const Packet& packet) {
  if (packet.flags & kWorkerOnly) foreign_ended();
  if (packet.kind == Kind::kProgram) Program::unbind(*pointer<Instance>(packet.words[0]));
}

// ---- the progress tick --------------------------------------------------------------------------------------------------
bool Device::start_tick() {
  std::lock_guard lock(mutex_);
  if (tick_armed_) return true;
  if (!tick_.arm(options_.tick_ns)) return false;
  tick_armed_ = true;
  tick_idle_ = 0;
  for (const auto& [id, timeline] : timelines_) timeline->set_tick_off(false);
  return true;
}

void Device::tick() {
  std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  bool pending = false;
  const auto look = [&] {
    for (const auto& [id, timeline] : timelines_) {
      Stream* const stream = timeline->stream();
      if (!stream) continue;
      const uint64_t last = stream->last_value();
      sum += last;
      if (stream->reached() >= last) {
        stream->stood_at = kForever;
        continue;
      }
      pending = true;
      // Only what has stood still for a whole tick, and that nobody runs: else its producer is about to wait for it.
      const uint64_t stands = stream->reached();
      if (stands == stream->stood_at && !stream->owner()) stream->flush(last);
      stream->stood_at = stands;
    }
  };
  look();
  tick_idle_ = pending || sum != tick_sum_ ? 0 : tick_idle_ + 1;
  tick_sum_ = sum;
  if (tick_idle_ >= kIdleTicks) {
    for (const auto& [id, timeline] : timelines_) timeline->set_tick_off(true);
    // Pairs with Stream::commit: a producer sees the flag, or we see what it has queued.
    AsymmetricFence::heavy();
    look();
    if (!pending) {
      tick_armed_ = false;
      return;
    }
    for (const auto& [id, timeline] : timelines_) timeline->set_tick_off(false);
  }
  if (!tick_.arm(options_.tick_ns)) {
    tick_armed_ = false;
    for (const auto& [id, timeline] : timelines_) timeline->set_tick_off(true);
  }
}

}  // namespace belay::cpu
