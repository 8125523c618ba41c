// Runs a small graph of several nodes through the kernel provider, with one kernel for each node or with the
// claims of several nodes where there are any; both must give the same.
#pragma once

#include "node_runner.hpp"

#include <map>
#include <string>
#include <vector>

namespace belay::cpu::testing {

struct NodeAttributes {
  std::vector<std::pair<std::string, int64_t>> ints = {};
  std::vector<std::pair<std::string, float>> floats = {};
  std::vector<std::pair<std::string, std::vector<int64_t>>> lists = {};
};

class Graph {
 public:
  using Value = uint32_t;
  static constexpr Value kAbsent = BELAY_NONE;

  Value input(Tensor tensor) { return add(std::move(tensor), false); }
  Value constant(Tensor tensor) { return add(std::move(tensor), true); }
  // A node with one float32 output of shape `dims`.
  Value node(std::string op, std::vector<Value> inputs, std::vector<int64_t> dims,
             const NodeAttributes& attributes = {});
  void precision(uint64_t bits) { precision_ = bits; }  // BELAY_PRECISION_...
  void output(Value value) { builder_.add_output(0, value); }

  struct Outcome {
    std::map<Value, Tensor> values;     // of what was computed
    std::vector<uint64_t> claim_sizes;  // nodes of each claim that ran
    std::string message;                // of a failure
  };
  Outcome run(bool fused, uint32_t threads, bool in_place);

 private:
  Value add(Tensor tensor, bool constant);
  graph::Builder builder_;
  uint64_t precision_ = BELAY_PRECISION_FLOAT32;
  std::map<Value, Tensor> given_;
  std::map<Value, bool> constant_;
};

}  // namespace belay::cpu::testing
