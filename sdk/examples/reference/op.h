// op.h: what an operator's loop sees, and the list of all operators.
#pragma once

#include "tensor.h"

#include <belay/abi/kernel.h>
#include <belay/graph/view.hpp>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reference {

struct Attribute {
  int64_t i = 0;
  double f = 0;
  std::string s;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
  Tensor tensor;
  std::string storage;  // of `tensor`
};

// A node with its types, copied out of the image so that it outlives it.
struct Node {
  std::string op, name;
  uint32_t version = 0;
  std::map<std::string, Attribute, std::less<>> attributes;
  std::vector<Tensor> inputs, outputs;  // types and dims; no data

  const Attribute* find(std::string_view key) const {
    const auto at = attributes.find(key);
    return at == attributes.end() ? nullptr : &at->second;
  }
  int64_t int_or(std::string_view key, int64_t otherwise) const {
    return find(key) ? find(key)->i : otherwise;
  }
  double float_or(std::string_view key, double otherwise) const {
    return find(key) ? find(key)->f : otherwise;
  }
  std::string string_or(std::string_view key, std::string otherwise) const {
    return find(key) ? find(key)->s : otherwise;
  }
  std::vector<int64_t> ints_or(std::string_view key, std::vector<int64_t> otherwise) const {
    return find(key) ? find(key)->ints : otherwise;
  }
};

// One call: the node and its operands. Absent operands are there with present() == false.
struct Call {
  const Node& node;
  std::vector<Tensor> in, out;
  const belay_exec* exec = nullptr;

  bool has(size_t i) const { return i < in.size() && in[i].present(); }
  bool wants(size_t i) const { return i < out.size() && out[i].present(); }
  // For outputs whose dims depend on data.
  void resize(size_t i, Dims dims) {
    out[i].data = exec->output ? exec->output(exec, i, dims.data(), uint32_t(dims.size())) : nullptr;
    if (!out[i].data)
      throw std::runtime_error("no memory for output " + std::to_string(i) + " of dims " + to_text(dims));
    out[i].dims = std::move(dims);
  }
};

struct Operator {
  void (*run)(Call&);
  uint64_t host_inputs = 0;   // bit i: the shape of an output depends on the value of input i
  bool writes_shape = false;  // the shape of an output depends on data
};

using Table = std::map<std::string_view, Operator>;
void add_elementwise(Table&);
void add_movement(Table&);
void add_reductions(Table&);
void add_neural(Table&);
void add_windows(Table&);
void add_recurrent(Table&);
void add_quantised(Table&);
const Table& operators();

}  // namespace reference
