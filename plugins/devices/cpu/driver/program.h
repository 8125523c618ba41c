// Recorded work: nodes with their arguments, laid out once as a flat array and replayed for one set of buffers.
#pragma once

#include "packet.h"
#include "parallel.h"

#include <belay/abi/driver.h>
#include <belay/status.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace belay::cpu {

class Program;
class Stream;
struct TaskRun;

extern const belay_driver_program_vt kProgramTable;

// A program with its arguments resolved for one set of buffers. Read only while launches of it are queued, so launches
// with the same buffers share it, even at the same time.
struct Instance {
  Program* program = nullptr;
  std::vector<char*> bases;     // one for each binding
  std::vector<uint64_t> words;  // of all nodes
  std::atomic<uint32_t> launches{0};  // queued or running
};

// How the nodes of a program depend on each other, where running some at once is worth it: chains of nodes (tasks)
// that become ready when as many tasks before them have ended.
struct TaskGraph {
  struct Task {
    uint32_t first_node, node_count;    // in `nodes`
    uint32_t first_next, next_count;    // in `next`
    uint32_t before;                    // tasks that must end first
    uint64_t priority;                  // estimated time from its start to the end of the program: the longest first
  };
  std::vector<Task> tasks;
  std::vector<uint32_t> nodes, next;
  uint32_t width = 1;  // threads that can be busy at once, at most
};

class Program {
 public:
  // Checks and copies the request. Errors: INVALID_ARGUMENT, naming node and argument.
  static Result<std::unique_ptr<Program>> create(Device& device, const belay_program_req& req);
  // No launch is queued any more.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Device& device() const { return device_; }
  uint64_t binding_count() const { return needed_.size(); }
  // Of all nodes on one thread; kUnknownCost where a node's is not known.
  uint32_t cost_ns() const { return cost_ns_; }
  bool foreign() const { return foreign_; }  // contains a host callback or user kernel
  bool parallel() const { return tasks_ != nullptr; }

  // An instance for these buffers, counted as one launch more. Any thread. Errors: INVALID_ARGUMENT, OUT_OF_RANGE.
  Result<Instance*> bind(const belay_binding* bindings, uint64_t count);
  static void unbind(Instance& instance) { instance.launches.fetch_sub(1, std::memory_order_release); }

  // Runs all nodes. A failure names the node.
  belay_status run(Exec& exec, const Instance& instance);

  // Instances of other programs that nodes of this one launch: kept bound as long as this lives.
  std::vector<Instance*> launched;
  // Kernels made for a recorded program.
  std::vector<std::unique_ptr<belay_kernel>> own_kernels;

 private:
  friend struct TaskRun;
  struct Node {  // what the replay reads: half a cache line
    belay_kernel_fn fn;
    const void* state;
    uint32_t first_word;
    uint32_t cost_ns;
    uint64_t reserved;
  };
  struct Patch {  // words[word] = base of the binding + offset
    uint32_t word;
    uint32_t binding;
    uint64_t offset;
  };
  // Instances kept although nothing uses them.
  static constexpr size_t kKeptInstances = 8;

  explicit Program(Device& device);

  Status add_node(const belay_node& node, uint64_t index, uint64_t binding_count);
  Status add_argument(const belay_arg& arg, uint64_t index, const belay_node& node, uint64_t node_index,
                      uint64_t binding_count);
  Status check_dependencies(const belay_program_req& req) const;
  std::string node_name(uint64_t index) const;  // "node 3 'conv1' (kernel 'direct')"
  std::unique_ptr<TaskGraph> plan_tasks(const uint32_t* pairs, uint64_t count) const;
  Result<Instance*> make_instance(const std::vector<char*>& bases);
  void patch(Instance& instance, const std::vector<char*>& bases, bool all) const;

  belay_status run_in_order(Exec& exec, const Instance& instance);
  belay_status run_tasks(Exec& exec, const Instance& instance);
  // Runs one node; the failure's status, with the node's name.
  belay_status run_node(Exec& exec, const Instance& instance, uint32_t index);
  belay_status name_failure(belay_status status, uint32_t index) const;

  Device& device_;
  std::vector<Node> nodes_;
  std::vector<const belay_kernel*> kernels_;
  std::vector<std::string> names_;
  std::vector<uint64_t> words_;            // scalars and addresses of bytes; where a buffer stands: 0
  std::vector<Patch> patches_;
  std::vector<uint64_t> needed_;           // bytes of each binding that the arguments cover
  std::vector<std::unique_ptr<char, void (*)(void*)>> blobs_;  // copies of BYTES arguments
  uint32_t cost_ns_ = 0;
  bool foreign_ = false;
  std::unique_ptr<TaskGraph> tasks_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::vector<std::unique_ptr<TaskRun>> free_runs_;
};

// The operation that replays an instance (words[0]), and then unbinds it.
belay_status run_program(Exec& exec, const Packet& packet);

}  // namespace belay::cpu
