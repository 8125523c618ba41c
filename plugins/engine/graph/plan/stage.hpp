// plan/stage.hpp: a plan is a chain of stages. A stage runs, as one program, every node whose shapes are
// known without running it; then, on the host, what its continuation waits for: nodes whose output shape
// depends on data, control flow, and reads of values that shapes depend on. The next stage is planned for
// what was seen then, and kept under it.
#pragma once

#include "plan/host_exec.hpp"
#include "plan/units.hpp"

namespace belay::plan {

// The device that an executable runs on, and what planning needs around it.
struct Target {
  Hal hal;
  belay_obj* device = nullptr;
  belay_device_info info{};  // of the device
  Heaps heaps;
  belay_device_info
      host_info{};  // of the device that host kernels are asked for: the same where the host sees it
  bool host_visible = true;
  std::vector<Provider> providers;       // that serve the device, best first
  std::vector<Provider> host_providers;  // that serve the host
  Options options;
  uint32_t threads() const {
    return uint32_t(options.threads ? options.threads : std::max<uint64_t>(1, info.threads));
  }
};

struct Binding {
  enum Kind { kArena, kConstant, kValue } kind = kArena;
  ConstantPlace place;             // kConstant
  ir::ValueId value = BELAY_NONE;  // kValue: a value from before, or one that this stage makes
};

// Memory of its own for what outlives the stage: a value, and others that are the same bytes under another
// shape.
struct Made {
  uint32_t binding = 0;
  uint64_t bytes = 0;
  std::vector<ir::ValueId> members;  // the first is what the binding names
};

struct HostStep {
  enum Kind { kRead, kKernel, kEngine } kind = kRead;
  ir::ValueId value = BELAY_NONE;  // kRead
  const ir::Node* node = nullptr;
  HostKernel kernel;  // kKernel
};

struct KernelInfo {  // for people
  std::string node, op, provider, implementation, reason;
  bool fallback = false;
  uint64_t cost_ns = 0;
};

// Nodes that wait until the bytes of values are known.
using ReadFirst = std::map<ir::NodeId, std::set<ir::ValueId>>;

struct Stage {
  explicit Stage(ir::Env known);

  ir::Env env;      // what is known after the program
  Outline outline;  // holds the program's kernels
  Program program;  // empty: nothing to launch
  uint64_t arena_bytes = 0, live_bytes = 0, packed_bytes = 0;
  std::vector<Binding> bindings;
  std::vector<Made> made;
  std::vector<std::pair<ir::ValueId, ir::ValueId>> views;  // (value, an older value with the same bytes)
  // (a value from before, one that is made): may be one memory, for who makes the second alone reads the
  // first, and said so.
  std::vector<std::pair<ir::ValueId, ir::ValueId>> shared;
  std::vector<HostStep> steps;
  std::vector<const ir::Node*> rest;
  std::set<ir::ValueId> available;  // values that exist when the program has run, but for constants
  std::set<ir::NodeId> on_host;     // nodes that the device did not take
  ReadFirst read_first;
  std::vector<KernelInfo> infos;

  const uint64_t id;              // from 1, unique in the process
  uint64_t program_bytes = 0;     // of the program and what is known of values
  std::vector<Buffer> constants;  // those that planning computed and kernels read
  uint64_t bytes = 0;             // that go with the plan
};
using StagePtr = std::shared_ptr<const Stage>;

// Where a stage begins.
struct Seed {
  ir::Env env;
  std::vector<const ir::Node*> nodes;
  std::set<ir::ValueId> available;
};

class Planner {
 public:
  Planner(const ir::Model& model, const Target& target, ConstantPool& pool)
      : model_(model), target_(target), pool_(pool), fold_budget_(model, target.options.fold_limit) {}

  // Errors: UNIMPLEMENTED (names the node, its types and the reasons), INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
  // `like`: a stage that began at the same place with other shapes, or null; what is the same there is not
  // made anew.
  Result<StagePtr> build(const Seed& seed, std::span<const ir::ValueId> outputs, const Stage* like) const;

  // Whether somebody claims every node, with what is known before shapes are: UNIMPLEMENTED names those
  // that nobody does. What is not claimed for want of knowledge (an element type or rank that is not known
  // yet) passes.
  Status check() const;

  const Target& target() const { return target_; }
  const ir::Model& model() const { return model_; }
  ConstantPool& pool() const { return pool_; }

 private:
  const ir::Model& model_;
  const Target& target_;
  ConstantPool& pool_;
  const FoldBudget fold_budget_;  // of each stage
};

// What the engine runs itself: control flow, sequences and optionals.
bool is_engine_op(const ir::Node& node);
// Whether the node reads or makes text, so that the engine runs it: Cast, CastLike, Equal and Unique are that
// only for some types, which `env` knows once the inputs are there.
bool is_text_op(const ir::Env& env, const ir::Node& node);
// What a node reads: inputs, and what its subgraphs capture.
std::vector<ir::ValueId> reads_of(const ir::Model& model, const ir::Node& node);

}  // namespace belay::plan
