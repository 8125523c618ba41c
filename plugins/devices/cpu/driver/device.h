// A CPU device: memory, threads, and the timelines of its streams.
#pragma once

#include "cpu_info.h"
#include "fork_guard.h"
#include "lanes.h"
#include "memory.h"
#include "options.h"
#include "packet.h"
#include "parallel.h"
#include "scratch.h"
#include "stream.h"
#include "thread_state.h"
#include "ticks.h"
#include "workers.h"

#include <belay/abi/driver.h>
#include <belay/abi/host.h>
#include <belay/abi/virtual_memory.h>
#include <belay/status.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace belay::cpu {

extern const belay_device_vt kDeviceTable;
extern const belay_stream_vt kStreamTable;
extern const belay_driver_virtual_memory_vt kVirtualMemoryTable;

class Device {
 public:
  // `options`: with all values settled (threads and memory_bytes are not 0).
  Device(const belay_host& host, Ticks& ticks, const Options& options, uint64_t index);
  // Streams, programs and buffers were destroyed before. Ends the threads.
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The device behind an object of the kind BELAY_OBJ_DEVICE that this driver made.
  static Device& of(const belay_obj* object) { return *static_cast<Device*>(object->impl); }

  const belay_host& host() const { return host_; }
  const Options& options() const { return options_; }
  const std::string& name() const { return name_; }             // "cpu:0"
  const std::string& short_name() const { return short_name_; }  // "cpu0", for names of threads
  uint64_t index() const { return index_; }
  Memory& memory() { return memory_; }
  Workers& workers() { return workers_; }
  Sharing& sharing() { return sharing_; }
  Lanes& lanes() { return lanes_; }
  // Of a thread that has one.
  void give_lane_back(ThreadState& thread) {
    if (thread.lane != this) return;
    thread.lane = nullptr;
    lanes_.release();
  }
  uint64_t now_ns() const { return host_.now_ns(&host_); }

  belay_status fail(uint32_t code, const std::string& message) const {
    return host_.status_make(&host_, code, to_str(message));
  }
  // A status for a failure that a timeline carries.
  belay_status fail(const Failure& failure) const { return fail(failure.code, failure.message); }

  bool in_child() const { return fork_guard_.in_child(); }
  const std::atomic<uint64_t>* sure_word() const { return fork_guard_.sure_word(); }
  belay_status refuse_in_child() const { return fail(BELAY_FAILED_PRECONDITION, fork_guard_.sentence(name_)); }

  // ---- timelines ---------------------------------------------------------------------------------------------------
  // With a reference for the caller; null: there is none with this id.
  Timeline* find_timeline(uint64_t id);
  // Takes the caller's reference. ALREADY_EXISTS.
  Status add_timeline(Timeline* timeline);
  // Afterwards it is not found; gives the table's reference back.
  void remove_timeline(Timeline* timeline);
  // Makes a timeline without a stream where there is none. Errors: ALREADY_EXISTS (a stream's).
  Status signal(uint64_t id, uint64_t value, FailurePtr failure);
  void destroy_external(uint64_t id);
  // Waits until everything queued so far on every stream has ended.
  belay_status drain();

  // ---- around operations -------------------------------------------------------------------------------------------
  Exec make_exec(ThreadState& thread);
  void return_scratch(ThreadState& thread);
  // An operation that does not run because an earlier one failed.
  void skip(const Packet& packet);

  // Host callbacks and user kernels that are queued and have not ended.
  uint64_t foreign_pending() const { return foreign_pending_.load(std::memory_order_relaxed); }
  void foreign_queued() { foreign_pending_.fetch_add(1, std::memory_order_relaxed); }
  void foreign_ended() { foreign_pending_.fetch_sub(1, std::memory_order_relaxed); }

  // Starts the progress tick, which lets workers run what nobody waits for or flushes. False: the host has no
  // executor for it, so what is queued must be flushed at once.
  bool start_tick();
  // The tick itself, called by its timer.
  void tick();

 private:
  const belay_host& host_;
  const Options options_;
  const uint64_t index_;
  const std::string name_, short_name_;
  ForkGuard fork_guard_;
  Memory memory_;
  ScratchPool scratch_;
  std::atomic<uint64_t> foreign_pending_{0};
  const uint32_t never_cancelled_ = 0;

  std::mutex mutex_;  // of what follows; taken before a timeline's and the workers' lock
  std::unordered_map<uint64_t, Timeline*> timelines_;
  bool tick_armed_ = false;
  uint64_t tick_sum_ = 0, tick_idle_ = 0;

  Tick& tick_;
  Lanes lanes_;
  Sharing sharing_;
  Workers workers_;
};

}  // namespace belay::cpu
