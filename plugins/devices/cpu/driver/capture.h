// What is queued on a stream between capture_begin and capture_end: kernels with fixed words, as nodes of a program.
#pragma once

#include "packet.h"

#include <belay/abi/driver.h>
#include <belay/status.hpp>

#include <memory>
#include <string>
#include <vector>

namespace belay::cpu {

class Device;
class Program;
struct Instance;

class Recorder {
 public:
  // Adds a node that runs `kernel` with these words.
  void add(const belay_kernel& kernel, const uint64_t* words, uint64_t count);
  // A launch of another program becomes a node; the instance stays bound as long as the recorded program lives.
  void add_program(Instance& instance, uint32_t cost_ns, bool foreign);
  void add_copy(void* to, const void* from, uint64_t bytes);
  void add_fill(void* to, uint64_t bytes, uint64_t pattern, uint64_t pattern_bytes);
  void add_host_call(void (*fn)(void*), void* user);
  void add_shaped(const belay_launch_req& req);

  Result<std::unique_ptr<Program>> finish(Device& device);
  ~Recorder();
  Recorder() = default;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

 private:
  struct Recorded {
    const belay_kernel* kernel;
    std::vector<belay_arg> args;
  };
  // A kernel of ours with a name and cost of its own; the program keeps it.
  const belay_kernel& own(const char* name, belay_kernel_fn fn, uint64_t cost_ns, uint32_t flags);

  std::vector<Recorded> nodes_;
  std::vector<std::unique_ptr<belay_kernel>> own_;
  std::vector<Instance*> launched_;
};

}  // namespace belay::cpu
