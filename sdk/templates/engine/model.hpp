// An executable of the engine: the graph as steps, what is known of its inputs and outputs, and the pool of
// contexts.
#pragma once

#include <belay/abi/engine.h>
#include <belay/plugin.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

// An input or output. A deque of these keeps them in place: what `info` points to lives as long as the model.
struct Port {
  uint32_t value;  // of the graph
  std::string name;
  std::vector<int64_t> dims;
  std::vector<std::string> symbols;
  std::vector<belay_str> symbol_views;
  belay_io_info info{};
};

struct Step {         // one Relu
  uint32_t from, to;  // values
  std::string name;
};

class Model {
 public:
  Model(const belay_host& from, const belay_load_req& req);
  static const belay_executable_vt& table();

  // Errors: UNIMPLEMENTED names the node or value that this engine does not run.
  belay::Status read(belay_span image);

  const belay_host& host;
  const std::string name;
  std::vector<Step> steps;
  std::deque<Port> inputs, outputs;
  uint64_t value_count = 0;

  // Counted by contexts when a run has ended.
  std::atomic<uint64_t> runs{0}, arena_bytes{0}, input_copied{0}, input_shared{0}, output_copied{0};

  // One of at most [engine] max_contexts; beyond these an error or a turn, as [engine] contexts_full says.
  belay::Status take_context();
  void give_back_context();
  void fill(belay_executable_stats& all);
  std::string describe() const;

 private:
  const uint64_t max_contexts_;
  const bool waits_;
  uint64_t create_ns_ = 0;
  std::mutex mutex_;
  std::condition_variable given_back_;
  uint64_t contexts_ = 0;  // in use
};
