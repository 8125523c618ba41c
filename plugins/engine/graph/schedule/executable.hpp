// schedule/executable.hpp: a loaded model and its execution contexts, behind the tables of
// belay/abi/engine.h.
#pragma once

#include "schedule/session.hpp"

#include <belay/abi/engine.h>

#include <condition_variable>
#include <map>
#include <optional>
#include <thread>

namespace belay::schedule {

struct PassCount {
  std::string name;
  uint64_t changes = 0, ns = 0;
};

// What loading did before there was an executable; for describe().
struct LoadReport {
  std::string name;
  std::vector<PassCount> passes;
  uint64_t import_ns = 0, passes_ns = 0, plan_ns = 0;
};

class Context;

class Executable {
 public:
  // Plans at once where all inputs' shapes are known. `sources` are those of the model. Takes the model over.
  static Result<std::unique_ptr<Executable>> create(std::unique_ptr<ir::Model> model, plan::Target target,
                                                    LoadReport report);
  ~Executable();

  // From the pool, or a new one; fails, or waits, where `max_contexts` are in use.
  Result<std::unique_ptr<Context>> take_context();
  void give_back(std::unique_ptr<Context> context);

  void stats(belay_executable_stats& out) const;
  void describe(belay_sink sink) const;

  struct Io {
    ir::ValueId value;
    std::string name;
    uint32_t kind, dtype, rank, optional;
    std::vector<int64_t> dims;
    std::vector<std::string> symbol_texts;
    std::vector<belay_str> symbols;
  };
  const std::vector<Io>& inputs() const { return inputs_; }
  const std::vector<Io>& outputs() const { return outputs_; }
  Shared& shared() { return shared_; }
  const ir::Model& model() const { return *model_; }
  const plan::Target& target() const { return target_; }
  const std::string& name() const { return report_.name; }
  // The plan that stats and describe speak of: the stages of a run, each once.
  void remember(std::vector<plan::StagePtr> stages);
  static const belay_executable_vt& table();

 private:
  Executable(std::unique_ptr<ir::Model> model, plan::Target target, LoadReport report);
  Io io_of(ir::ValueId value) const;
  Status plan_ahead();
  bool is_output(const plan::Stage& stage, const plan::Made& made) const;

  const std::unique_ptr<ir::Model> model_;
  const plan::Target target_;
  LoadReport report_;
  plan::ConstantPool pool_;
  plan::Planner planner_;
  PlanCounters counters_;
  PlanCache plans_;
  Shared shared_;
  std::vector<Io> inputs_, outputs_;
  uint64_t weight_bytes_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable context_free_;
  std::vector<std::unique_ptr<Context>> idle_;
  std::vector<Context*> all_;
  std::vector<plan::StagePtr> latest_;
};

// One run at a time.
class Context {
 public:
  static Result<std::unique_ptr<Context>> create(Executable& of);

  Status set_input(uint64_t index, const belay_datum* datum);
  Status set_output(uint64_t index, const belay_tensor* tensor);
  Status run();
  // True: it was started and `completion` will be called.
  Result<bool> run_async(belay_completion completion);
  // Queues a run on a stream of the caller's; the event of its end.
  Result<belay_event> enqueue(belay_obj* stream);
  Result<const belay_datum*> output(uint64_t index);
  // Forgets what was set, for the next user.
  void reset();
  // Returns when no asynchronous run goes on, but for one whose completion is what calls this.
  void wait_for_run();
  // Returns when what was queued on a stream of the caller's has ended, well or not: the stream tells.
  void settle();

  Executable& executable() { return executable_; }
  // What the last run shared and copied.
  Status input_memory(uint64_t index, belay_io_memory& out) const;
  Status output_memory(uint64_t index, belay_io_memory& out) const;
  // Read by stats while the context runs; written by one thread at a time.
  std::atomic<uint64_t> runs{0};
  struct Totals {
    std::atomic<uint64_t> shared{0}, copied{0};
  };
  Totals of_inputs, of_outputs;
  static const belay_context_vt& table();

 private:
  // Bytes between the caller and the kernels, in one run.
  struct Moved {
    uint64_t shared = 0, copied = 0;
    std::string reason;  // of a copy: what follows "because"
  };
  struct HostCopy {  // of the caller's data into a block of ours, at the begin of each run
    uint32_t dtype;
    ir::Dims dims, strides;  // strides empty: dense
    void *from, *to;
    uint64_t bytes;
  };
  struct Taken {  // of an input, when it is set
    std::vector<HostCopy> copies;
    Moved moved;
  };
  struct Input {
    bool set = false;
    Value value;
    Taken taken;
    Moved moved;
  };
  struct Output {
    belay_tensor user{};  // data or buffer null: the context's own memory
    std::vector<int64_t> user_dims;
    void* user_data = nullptr;
    std::string not_lent;    // why kernels cannot write to the user's memory; empty: they can
    std::string not_direct;  // the same of this run, in which it may be an input's memory
    Moved moved;
    // What `output` gives; items nest.
    std::vector<std::unique_ptr<belay_tensor>> tensors;
    std::vector<std::unique_ptr<belay_datum>> data;
    std::vector<std::unique_ptr<std::vector<const belay_datum*>>> lists;
    std::vector<Value> keep;
    const belay_datum* datum = nullptr;
  };

  Context(Executable& of, plan::Stream stream);
  Result<Value> take_tensor(uint64_t index, const belay_tensor& tensor, Taken& taken);
  Result<Value> take_datum(uint64_t index, const belay_datum& datum, Taken& taken, uint32_t depth = 0);
  Status check_type(uint64_t index, const Value& value) const;
  Status check_symbols() const;
  Status prepare();
  Status rebind();
  Status run_frame();
  Status collect();
  template <class Copy>
  Status each_input_copy(Copy&& copy) const;
  Status copy_inputs();
  Status queue_input_copies(belay_obj* stream);
  Status copy_results();
  Status collect_output(size_t index);
  // Why a result is not made where it is wanted.
  std::string why_made_elsewhere(size_t output, const Value& value) const;
  static Moved describe_move(const Value& value);
  static Status fill(const Moved& moved, belay_io_memory& out);
  void account();    // of a run with what is bound now
  void count_run();  // that has ended
  Status check_queueable() const;
  const belay_datum* describe_value(Output& to, const Value& value);
  // The input whose memory an output shares and must not; nothing: none.
  std::optional<size_t> spoiled_input(uint64_t output) const;
  bool meets_output(const void* data, uint64_t bytes) const;

  Executable& executable_;
  plan::Stream stream_;
  Session session_;
  Frame frame_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  plan::StagePtr stage_;
  bool shapes_changed_ = true;  // the plan must be looked up
  bool memory_changed_ = true;  // addresses must be bound again
  bool simple_ = false;         // one stage, nothing on the host: bindings hold over runs
  bool copies_ = false;         // results must be copied after a run
  bool input_copies_ = false;   // inputs must be copied before it
  Moved run_inputs_, run_outputs_;  // sums over what is bound now
  bool collected_ = false;
  bool needs_recover_ = false;  // an asynchronous run failed
  belay_event queued_{};        // of the last enqueue; timeline 0: it has ended
  std::vector<std::vector<uint32_t>> bindings_of_input_;

  // Outlives the context: a completion may destroy that.
  struct Pending {
    std::mutex mutex;
    std::condition_variable ended;
    uint64_t runs = 0;
    std::thread::id completing;  // the thread inside a completion
  };
  void complete(belay_status status);
  const std::shared_ptr<Pending> pending_ = std::make_shared<Pending>();
  belay_completion waiting_{};
};

}  // namespace belay::schedule
