// belay/graph/builder.hpp: makes a frozen graph. Strings, types and shapes are interned; nodes may be added in any order
// within a graph as long as freeze() can sort them. In library belay::graph. Not thread-safe.
#pragma once

#include <belay/abi/graph.h>
#include <belay/status.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay::graph {

struct Dim {
  int64_t value = -1;  // >= 0, or -1: not known
  std::string symbol;  // may be empty
  bool operator==(const Dim&) const = default;
  auto operator<=>(const Dim&) const = default;
};

class Builder {
 public:
  struct State;  // known to the library only

  Builder();
  ~Builder();
  Builder(Builder&&) noexcept;
  Builder& operator=(Builder&&) noexcept;

  // Types. A shape of nullopt is an unknown rank.
  uint32_t tensor_type(uint32_t dtype, const std::optional<std::vector<Dim>>& shape);
  uint32_t tensor_type(uint32_t dtype, std::span<const int64_t> dims);
  uint32_t sequence_type(uint32_t element);
  uint32_t optional_type(uint32_t element);
  uint32_t map_type(uint32_t key_dtype, uint32_t element);

  // Sources, in the order of the reader's numbers; the model file is 0 and exists from the start.
  uint32_t add_source(std::string_view name, uint64_t bytes);
  void set_source_bytes(uint32_t source, uint64_t bytes);

  // Constants. `bytes` must be what dtype and dims need (checked by freeze).
  uint32_t add_constant(std::string_view name, uint32_t dtype, std::span<const int64_t> dims, belay_span inline_bytes);
  uint32_t add_constant_at(std::string_view name, uint32_t dtype, std::span<const int64_t> dims, uint32_t source,
                           uint64_t offset, uint64_t bytes);
  uint32_t add_string_constant(std::string_view name, std::span<const int64_t> dims,
                               std::span<const std::string_view> elements);

  // Graphs. The main graph is 0 and exists from the start; captures are found by freeze.
  uint32_t add_graph(std::string_view name, uint32_t parent);
  void set_graph_name(uint32_t graph, std::string_view name);

  // Values. `type`: BELAY_NONE where it is not known.
  uint32_t add_value(uint32_t graph, std::string_view name, uint32_t type, uint32_t constant = BELAY_NONE);
  void set_value_type(uint32_t value, uint32_t type);
  void set_value_constant(uint32_t value, uint32_t constant);
  void set_value_quant(uint32_t value, const belay_graph_quant& quant);
  void add_input(uint32_t graph, uint32_t value);
  void add_output(uint32_t graph, uint32_t value);

  // Nodes. Each output value has one producer.
  uint32_t add_node(uint32_t graph, std::string_view domain, std::string_view op, uint32_t since_version,
                    std::string_view name, std::span<const uint32_t> inputs, std::span<const uint32_t> outputs);
  void add_control_input(uint32_t node, uint32_t before);
  void set_int(uint32_t node, std::string_view name, int64_t value);
  void set_float(uint32_t node, std::string_view name, float value);
  void set_string(uint32_t node, std::string_view name, std::string_view value);
  void set_ints(uint32_t node, std::string_view name, std::span<const int64_t> values);
  void set_floats(uint32_t node, std::string_view name, std::span<const float> values);
  void set_strings(uint32_t node, std::string_view name, std::span<const std::string_view> values);
  void set_tensor(uint32_t node, std::string_view name, uint32_t constant);
  void set_tensors(uint32_t node, std::string_view name, std::span<const uint32_t> constants);
  void set_graph(uint32_t node, std::string_view name, uint32_t graph);
  void set_graphs(uint32_t node, std::string_view name, std::span<const uint32_t> graphs);
  void set_type(uint32_t node, std::string_view name, uint32_t type);

  void add_metadata(std::string_view key, std::string_view value);

  // Sorts each graph topologically (stable: a sorted graph keeps its order) and writes the image, which verify()
  // accepts. Errors: INVALID_ARGUMENT names the node or value (a cycle with its path, an undefined value, two producers,
  // constant bytes that do not fit), RESOURCE_EXHAUSTED (more than 2^32 - 2 records). Builder indices of values,
  // constants, types and graphs are kept in the image; those of nodes are not: `node_order`, if not null, receives for
  // each node of the image its index in the builder.
  Result<std::string> freeze(std::vector<uint32_t>* node_order = nullptr) const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace belay::graph
