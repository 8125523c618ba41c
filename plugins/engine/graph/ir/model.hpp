// ir/model.hpp: the engine's mutable form of a frozen graph. Values and nodes have numbers that are unique
// over all graphs of a model and never reused, so what is known of them can be kept in plain arrays beside
// the model.
#pragma once

#include "ir/types.hpp"

#include <belay/abi/base.h>
#include <belay/status.hpp>

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace belay::ir {

using ValueId = uint32_t;  // BELAY_NONE: an absent input, an output that is not wanted
using NodeId = uint32_t;
using GraphId = uint32_t;

struct Attribute {
  std::string name;
  uint32_t kind = 0;  // BELAY_ATTR_...
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string> strings;
  std::vector<ConstantPtr> tensors;
  std::vector<GraphId> graphs;
  Type type;
};

struct Node {
  NodeId id = 0;
  GraphId graph = 0;
  std::string domain, op, name;
  uint32_t version = 0;
  std::vector<ValueId> inputs, outputs;
  std::vector<Attribute> attributes;

  const Attribute* find(std::string_view attribute) const;
  int64_t int_or(std::string_view attribute, int64_t otherwise) const;
  float float_or(std::string_view attribute, float otherwise) const;
  std::string_view string_or(std::string_view attribute, std::string_view otherwise) const;
  const std::vector<int64_t>* ints(std::string_view attribute) const;  // null: absent or of another kind
  GraphId graph_or_none(std::string_view attribute) const;
  void set_int(std::string_view attribute, int64_t value);
  void set_ints(std::string_view attribute, std::vector<int64_t> values);
  void set_float(std::string_view attribute, float value);
  void set_string(std::string_view attribute, std::string value);
  void erase(std::string_view attribute);
  ValueId input(size_t i) const { return i < inputs.size() ? inputs[i] : BELAY_NONE; }
  ValueId output(size_t i) const { return i < outputs.size() ? outputs[i] : BELAY_NONE; }
  bool is(std::string_view which) const { return op == which && domain.empty(); }
  // "node 'conv1' (Conv)"; with domain where it is not ONNX's own.
  std::string label() const;
};

struct Value {
  std::string name;
  Type type;             // as declared or inferred
  ConstantPtr constant;  // of an input: its default
  GraphId graph = 0;
  bool is_input = false;
};

struct Graph {
  std::string name;
  GraphId parent = BELAY_NONE;
  std::vector<ValueId> inputs, outputs;
  std::vector<NodeId> nodes;  // in topological order
};

struct Model {
  std::deque<Value> values;
  std::deque<Node> nodes;
  std::deque<Graph> graphs;               // the first is the main one
  std::vector<std::string> symbols;       // names of symbolic dims, see symbol_of
  std::vector<std::string> output_names;  // of the main graph, as the file has them
  std::vector<belay_span> sources;
  uint64_t source_nodes = 0;  // nodes of the image, subgraphs included

  ValueId add_value(GraphId graph, std::string name, Type type = {}, ConstantPtr constant = nullptr);
  // The node is not yet in the graph's list.
  Node& add_node(GraphId graph, std::string op, uint32_t version, std::string name);
  // What a reader may take as constant: an input's default is not.
  const ConstantPtr& constant_of(ValueId value) const {
    static const ConstantPtr none;
    return value == BELAY_NONE || values[value].is_input ? none : values[value].constant;
  }
  // The name of a symbolic dim (code kFirstSymbol - index); empty for every other dim.
  std::string symbol_of(int64_t dim) const {
    const uint64_t index = uint64_t(kFirstSymbol) - uint64_t(dim);  // a huge one where the dim is no code
    return index < symbols.size() ? symbols[index] : std::string();
  }
  std::string value_label(ValueId value) const;  // "value 'x'"
};

// Who reads each value: nodes of any graph, and graphs whose output it is. A node whose subgraph reads a
// value is not listed as a reader: the reading node inside is.
struct Uses {
  struct Use {
    NodeId node;     // BELAY_NONE: an output of `graph`
    uint32_t index;  // position in the inputs or outputs
    GraphId graph;
  };
  explicit Uses(const Model& model);
  const std::vector<Use>& of(ValueId value) const { return of_[value]; }
  // Makes every reader of `from`, in all graphs, read `to`, whose readers they are from now on.
  void replace(Model& model, ValueId from, ValueId to);

 private:
  std::vector<std::vector<Use>> of_;
};

// Values of outer graphs that `graph` or its subgraphs read, in the order of first use.
std::vector<ValueId> captures_of(const Model& model, GraphId graph);

// The nodes' graph attributes.
std::vector<GraphId> subgraphs_of(const Node& node);

// Copies a verified image; constants are borrowed from the image and the sources, which outlive the model.
Result<Model> import_image(belay_span image, std::span<const belay_span> sources);

}  // namespace belay::ir
