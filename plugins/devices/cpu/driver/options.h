// The device's configuration: table [plugin.<id>.config]; the manifest has the same keys, ranges and defaults.
#pragma once

#include <belay/plugin.hpp>

#include <cstdint>

namespace belay::cpu {

struct Options {
  uint64_t devices = 1;            // how many devices the driver shows; each has its own threads and memory limit
  uint64_t memory_bytes = 0;       // limit of one device; 0: the machine's memory
  uint64_t threads = 0;            // that run operations at once, callers included; 0: the cores of this process
  uint64_t queue_depth = 1024;     // operations of one stream before QUEUE_FULL
  uint64_t backlog_hard = 65536;   // the same while a host callback or user kernel is queued on the device
  uint64_t spin_ns = 20'000;       // how long a thread polls before it sleeps; at most 20 us
  uint64_t wake_backlog_ns = 100'000;  // a worker is woken once this much estimated work is queued
  uint64_t tick_ns = 1'000'000;    // period of the progress tick for work that nobody waits for; 0: none
  uint64_t blocking_threads = 4;   // extra workers for host callbacks and kernels that may block
  bool huge_pages = true;          // ask for huge pages for large allocations

  static Options read(Value config) {
    Options o;
    const auto number = [&](const char* key, uint64_t otherwise) {
      return uint64_t(config[key].as_int(int64_t(otherwise)));
    };
    o.devices = number("devices", o.devices);
    o.memory_bytes = number("memory_size", o.memory_bytes);
    o.threads = number("threads", o.threads);
    o.queue_depth = number("queue_depth", o.queue_depth);
    o.backlog_hard = number("backlog_hard", o.backlog_hard);
    o.spin_ns = number("spin_us", o.spin_ns / 1000) * 1000;
    o.wake_backlog_ns = number("wake_backlog_us", o.wake_backlog_ns / 1000) * 1000;
    o.tick_ns = number("tick_us", o.tick_ns / 1000) * 1000;
    o.blocking_threads = number("blocking_threads", o.blocking_threads);
    o.huge_pages = config["huge_pages"].as_bool(o.huge_pages);
    return o;
  }
};

}  // namespace belay::cpu
