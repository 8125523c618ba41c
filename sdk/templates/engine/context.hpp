// One run at a time of a model.
#pragma once

#include "model.hpp"

// Memory of a caller, dense or not, of any alignment.
struct Lent {
  bool set = false;
  char* data = nullptr;
  std::vector<int64_t> dims, strides;  // in elements; strides are empty where it is dense
  uint64_t count = 0;
};

class Context {
 public:
  explicit Context(Model& model)
      : model_(model), inputs_(model.inputs.size()), outputs_(model.outputs.size()) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();
  static const belay_context_vt& table();

  belay::Status begin();  // takes its place in the pool
  belay::Status set_input(uint64_t index, const belay_datum* datum);
  belay::Status set_output(uint64_t index, const belay_tensor* tensor);
  belay::Status run();
  belay::Status run_async(belay_completion completion);
  belay::Status output(uint64_t index, const belay_datum** out);
  belay::Status input_memory(uint64_t index, belay_io_memory* inout) const;
  belay::Status output_memory(uint64_t index, belay_io_memory* inout) const;
  const belay_host& host() const { return model_.host; }

 private:
  struct Value {  // in a run
    const float* data = nullptr;
    std::vector<int64_t> dims;
    uint64_t count = 0;
    std::vector<float> storage;
  };
  struct Moved {  // bytes of the last run, and why they were copied
    uint64_t shared = 0, copied = 0;
    const char* reason = "";
  };
  struct Input {
    Lent from;
    Moved moved;
  };
  struct Output {
    belay_tensor tensor{};
    belay_datum datum{};
    Lent to;  // memory of the caller
    Moved moved;
  };

  belay::Status no_port(const char* what, uint64_t index, size_t count) const;
  static void fill(const Moved& moved, belay_io_memory* inout);
  belay::Result<Lent> lent(const belay_tensor& tensor, const Port& port, const char* what);

  Model& model_;
  bool in_pool_ = false;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<Value> values_;
  bool ran_ = false;
  belay_completion waiting_{};  // of run_async
};
