// schedule/session.hpp: one run of a graph: stages, host steps, subgraphs. Single-threaded: it belongs to one
// context.
#pragma once

#include "schedule/plan_cache.hpp"
#include "schedule/value.hpp"

#include <map>
#include <unordered_map>

namespace belay::schedule {

// What all contexts of an executable share.
struct Shared {
  const ir::Model& model;
  const plan::Target& target;
  plan::Planner& planner;
  PlanCache& plans;
  std::vector<std::vector<ir::ValueId>> captures;  // by graph
};

class Session;

// The values of one graph while it runs.
class Frame {
 public:
  Frame(Session& session, ir::GraphId graph) : session_(session), graph_(graph) {}

  // Sets a value that exists when the graph begins: an input or a capture.
  void set(ir::ValueId value, Value to);
  // Runs the stages from `stage` to the end of the graph.
  Status run(plan::StagePtr stage);
  // A value of the current stage's environment; kind 0: it does not exist.
  const Value& get(ir::ValueId value);
  const plan::Stage& stage() const { return *stage_; }
  ir::GraphId graph() const { return graph_; }
  // Memory of the user for results: what is made there need not be copied. Data null: not to be written while the
  // graph runs.
  struct ResultMemory {
    ir::ValueId value;
    const belay_tensor* tensor;
    void* data;
  };
  std::vector<ResultMemory> results;
  void clear();
  // For a plan of one stage without host steps: what `run` does before and after the launch.
  Status bind(plan::StagePtr stage);
  std::vector<belay_binding>& bindings() { return bindings_; }

 private:
  Status launch();
  // Where the user wants a value that is made with this type and shape; nullptr: nowhere.
  void* result_memory(ir::ValueId value, uint32_t dtype, std::span<const int64_t> dims) const;
  Status make_values();
  Status fill_bindings();
  Status run_step(const plan::HostStep& step, std::string& key);
  Status run_kernel(const plan::HostStep& step);
  Status follow(const std::string& key);
  Status learn(plan::Seed& seed);
  Value& slot(ir::ValueId value);

  Session& session_;
  const ir::GraphId graph_;
  plan::StagePtr stage_;
  std::unordered_map<ir::ValueId, Value> values_;
  std::unordered_map<ir::ValueId, Value> constants_;
  std::vector<belay_binding> bindings_;
};

class Session {
 public:
  Session(Shared& shared, belay_obj* stream)
      : shared_(shared),
        stream_(stream),
        pool_(shared.target.hal, shared.target.device, shared.target.host_visible) {}
  ~Session();

  Shared& shared() { return shared_; }
  StoragePool& pool() { return pool_; }
  const plan::Hal& hal() const { return shared_.target.hal; }
  belay_obj* stream() const { return stream_; }

  // The plan of a graph for inputs (and captures) that look like these. `known`: those whose bytes belong to
  // the key (an input's default is known by its name).
  Result<plan::StagePtr> plan_for(ir::GraphId graph,
                                  std::span<const std::pair<ir::ValueId, const Value*>> inputs,
                                  const std::map<ir::ValueId, ir::ConstantPtr>& known);
  // Runs a subgraph with `inputs` for its inputs; captures come from `outer`.
  Result<std::vector<Value>> call(ir::GraphId graph, std::span<const Value> inputs, Frame& outer);
  // Launches a program and waits for its end; after a failure the stream works again.
  Status launch(belay_obj* program, std::span<const belay_binding> bindings);
  // The arena that all stages of this context share: only one program of it runs at a time.
  Result<const plan::Buffer*> arena(uint64_t bytes);
  // Brings a tensor to where the host, or the device, sees it. `into` (may be null): where on the host.
  Status to_host(Value& value, void* into = nullptr);
  Status to_device(Value& value);
  // Copies between tensors of the host of one type and shape, by the device where that pays.
  Status copy(const belay_tensor& to, const belay_tensor& from);
  // Runs a node that is the engine's own (control flow, sequences, optionals, text).
  Status run_engine_op(const ir::Node& node, Frame& frame, std::vector<Value>& outputs);
  // The stages of a run, each once, in the order they were first met.
  void forget_stages() { stages_.clear(); }
  void begin_run() { met_ = 0, stages_changed_ = false; }
  void meet(const plan::StagePtr& stage);
  bool stages_changed() const { return stages_changed_ || met_ != stages_.size(); }  // since the run before
  std::vector<plan::StagePtr> stages() { return stages_.resize(met_), stages_; }
  static constexpr size_t kMostStages = 64;  // a loop may meet a new one in each turn

 private:
  Status finish(belay_status raw, belay_event done);
  Shared& shared_;
  belay_obj* const stream_;
  StoragePool pool_;
  plan::Buffer arena_;
  std::map<ir::GraphId, std::vector<std::unique_ptr<Frame>>> idle_;  // frames of subgraphs, to be used again
  std::vector<plan::StagePtr> stages_;  // of this run the first `met_`, then what is left of the one before
  size_t met_ = 0;
  bool stages_changed_ = false;
};

// Appends what a value looks like to a key: kind, element type, dims.
void append_type(std::string& key, const Value& value);

// The operators of run_engine_op, by family; each gives nothing for an operator that is not its own.
std::optional<Status> run_text_op(const ir::Node& node, Session& session, Frame& frame,
                                  std::vector<Value>& outputs);
std::optional<Status> run_sequence_op(const ir::Node& node, Session& session, Frame& frame,
                                      std::vector<Value>& outputs);
std::optional<Status> run_control_op(const ir::Node& node, Session& session, Frame& frame,
                                     std::vector<Value>& outputs);

// Joins tensors of the host along an axis; `fresh`: along a new one.
Result<Value> join(StoragePool& pool, std::span<const Value> parts, int64_t axis, bool fresh);
// Elements [begin, end) of an axis of a host tensor; `drop`: without that axis (then end is begin + 1).
Result<Value> cut(StoragePool& pool, const Value& from, int64_t axis, int64_t begin, int64_t end, bool drop);

}  // namespace belay::schedule
