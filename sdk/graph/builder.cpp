#include "state.hpp"

#include <belay/graph/dtype.hpp>

#include <cstring>

namespace belay::graph {

uint32_t Builder::State::intern(std::string_view text) {
  if (const auto at = string_ids.find(text); at != string_ids.end()) return at->second;
  const uint32_t index = next(strings.size(), "strings");
  strings.push_back({bytes.size(), text.size()});
  bytes.append(text);
  string_ids.emplace(text, index);
  return index;
}

uint32_t Builder::State::type(const belay_graph_type& type) {
  const auto [at, added] =
      type_ids.try_emplace({type.kind, type.dtype, type.shape, type.element}, next(types.size(), "types"));
  if (added) types.push_back(type);
  return at->second;
}

belay_list Builder::State::constant_dims(std::span<const int64_t> values) {
  std::vector<belay_graph_dim> records;
  records.reserve(values.size());
  for (const int64_t value : values) records.push_back({value, BELAY_NONE, 0});
  return append<belay_graph_dim>(dims, records, "dims");
}

uint32_t Builder::State::constant(std::string_view name, uint32_t dtype, std::span<const int64_t> of,
                                  uint32_t source, uint64_t offset, uint64_t size) {
  const uint32_t index = next(constants.size(), "constants");
  constants.push_back({intern(name), dtype, constant_dims(of), source, 0, offset, size});
  return index;
}

void Builder::State::attribute(uint32_t node, std::string_view name, uint32_t kind, belay_list list) {
  if (!check(node, nodes.size(), "node")) return;
  const belay_graph_attribute record{intern(name), kind, list};
  for (belay_graph_attribute& old : nodes[node].attributes)
    if (old.name == record.name) {
      old = record;
      return;
    }
  nodes[node].attributes.push_back(record);
}

Builder::Builder() : state_(std::make_unique<State>()) {
  state_->sources.push_back({state_->intern(""), 0, 0});
  state_->graphs.push_back({state_->intern(""), BELAY_NONE, {}, {}});
}
Builder::~Builder() = default;
Builder::Builder(Builder&&) noexcept = default;
Builder& Builder::operator=(Builder&&) noexcept = default;

// ---- types
// ----------------------------------------------------------------------------------------------------------

uint32_t Builder::tensor_type(uint32_t dtype, const std::optional<std::vector<Dim>>& shape) {
  State& s = *state_;
  uint32_t shape_id = BELAY_NONE;
  if (shape) {
    const auto [at, added] = s.shape_ids.try_emplace(*shape, s.next(s.shapes.size(), "shapes"));
    if (added) {
      std::vector<belay_graph_dim> records;
      for (const Dim& dim : *shape)
        records.push_back({dim.value, dim.symbol.empty() ? BELAY_NONE : s.intern(dim.symbol), 0});
      s.shapes.push_back({s.append<belay_graph_dim>(s.dims, records, "dims")});
    }
    shape_id = at->second;
  }
  return s.type({BELAY_TYPE_TENSOR, dtype, shape_id, BELAY_NONE});
}

uint32_t Builder::tensor_type(uint32_t dtype, std::span<const int64_t> dims) {
  std::vector<Dim> shape;
  for (const int64_t dim : dims) shape.push_back({dim, {}});
  return tensor_type(dtype, shape);
}

uint32_t Builder::sequence_type(uint32_t element) {
  if (!state_->check(element, state_->types.size(), "type")) return BELAY_NONE;
  return state_->type({BELAY_TYPE_SEQUENCE, BELAY_DT_UNDEFINED, BELAY_NONE, element});
}
uint32_t Builder::optional_type(uint32_t element) {
  if (!state_->check(element, state_->types.size(), "type")) return BELAY_NONE;
  return state_->type({BELAY_TYPE_OPTIONAL, BELAY_DT_UNDEFINED, BELAY_NONE, element});
}
uint32_t Builder::map_type(uint32_t key_dtype, uint32_t element) {
  if (!state_->check(element, state_->types.size(), "type")) return BELAY_NONE;
  return state_->type({BELAY_TYPE_MAP, key_dtype, BELAY_NONE, element});
}

// ---- sources and constants
// ------------------------------------------------------------------------------------------

uint32_t Builder::add_source(std::string_view name, uint64_t bytes) {
  const uint32_t index = state_->next(state_->sources.size(), "sources");
  state_->sources.push_back({state_->intern(name), 0, bytes});
  return index;
}
void Builder::set_source_bytes(uint32_t source, uint64_t bytes) {
  if (state_->check(source, state_->sources.size(), "source")) state_->sources[source].bytes = bytes;
}

uint32_t Builder::add_constant(std::string_view name, uint32_t dtype, std::span<const int64_t> dims,
                               belay_span inline_bytes) {
  State& s = *state_;
  s.data.resize((s.data.size() + 7) / 8 * 8);
  const uint64_t offset = s.data.size();
  s.data.append(static_cast<const char*>(inline_bytes.ptr), inline_bytes.len);
  return s.constant(name, dtype, dims, BELAY_NONE, offset, inline_bytes.len);
}

uint32_t Builder::add_constant_at(std::string_view name, uint32_t dtype, std::span<const int64_t> dims,
                                  uint32_t source, uint64_t offset, uint64_t bytes) {
  state_->check(source, state_->sources.size(), "source");
  return state_->constant(name, dtype, dims, source, offset, bytes);
}

uint32_t Builder::add_string_constant(std::string_view name, std::span<const int64_t> dims,
                                      std::span<const std::string_view> elements) {
  std::string bytes((elements.size() + 1) * sizeof(uint64_t), '\0');
  uint64_t end = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    end += elements[i].size();
    std::memcpy(bytes.data() + (i + 1) * sizeof(uint64_t), &end, sizeof end);
  }
  for (const std::string_view element : elements) bytes.append(element);
  return add_constant(name, BELAY_DT_STRING, dims, {bytes.data(), bytes.size()});
}

// ---- graphs and values
// ----------------------------------------------------------------------------------------------

uint32_t Builder::add_graph(std::string_view name, uint32_t parent) {
  state_->check(parent, state_->graphs.size(), "graph");
  const uint32_t index = state_->next(state_->graphs.size(), "graphs");
  state_->graphs.push_back({state_->intern(name), parent, {}, {}});
  return index;
}
void Builder::set_graph_name(uint32_t graph, std::string_view name) {
  if (state_->check(graph, state_->graphs.size(), "graph")) state_->graphs[graph].name = state_->intern(name);
}

uint32_t Builder::add_value(uint32_t graph, std::string_view name, uint32_t type, uint32_t constant) {
  state_->check(graph, state_->graphs.size(), "graph");
  const uint32_t index = state_->next(state_->values.size(), "values");
  state_->values.push_back(
      {state_->intern(name), BELAY_NONE, BELAY_NONE, BELAY_NONE, graph, BELAY_NONE, 0, 0});
  set_value_type(index, type);
  set_value_constant(index, constant);
  return index;
}
void Builder::set_value_type(uint32_t value, uint32_t type) {
  if (!state_->check(value, state_->values.size(), "value")) return;
  if (type == BELAY_NONE || state_->check(type, state_->types.size(), "type"))
    state_->values[value].type = type;
}
void Builder::set_value_constant(uint32_t value, uint32_t constant) {
  if (!state_->check(value, state_->values.size(), "value")) return;
  if (constant == BELAY_NONE || state_->check(constant, state_->constants.size(), "constant"))
    state_->values[value].constant = constant;
}
void Builder::set_value_quant(uint32_t value, const belay_graph_quant& quant) {
  if (!state_->check(value, state_->values.size(), "value")) return;
  const uint32_t index = state_->next(state_->quants.size(), "quantisations");
  state_->quants.push_back(quant);
  state_->values[value].quant = index;
}
void Builder::add_input(uint32_t graph, uint32_t value) {
  if (!state_->check(graph, state_->graphs.size(), "graph") ||
      !state_->check(value, state_->values.size(), "value"))
    return;
  state_->graphs[graph].inputs.push_back(value);
  state_->values[value].flags |= BELAY_VALUE_IS_INPUT;
}
void Builder::add_output(uint32_t graph, uint32_t value) {
  if (state_->check(graph, state_->graphs.size(), "graph") &&
      state_->check(value, state_->values.size(), "value"))
    state_->graphs[graph].outputs.push_back(value);
}

// ---- nodes
// ----------------------------------------------------------------------------------------------------------

uint32_t Builder::add_node(uint32_t graph, std::string_view domain, std::string_view op,
                           uint32_t since_version, std::string_view name, std::span<const uint32_t> inputs,
                           std::span<const uint32_t> outputs) {
  State& s = *state_;
  s.check(graph, s.graphs.size(), "graph");
  for (const auto& list : {inputs, outputs})
    for (const uint32_t value : list)
      if (value != BELAY_NONE) s.check(value, s.values.size(), "value");
  const uint32_t index = s.next(s.nodes.size(), "nodes");
  s.nodes.push_back({s.intern(domain),
                     s.intern(op),
                     since_version,
                     s.intern(name),
                     graph,
                     {inputs.begin(), inputs.end()},
                     {outputs.begin(), outputs.end()},
                     {},
                     {}});
  return index;
}
void Builder::add_control_input(uint32_t node, uint32_t before) {
  if (state_->check(node, state_->nodes.size(), "node") &&
      state_->check(before, state_->nodes.size(), "node"))
    state_->nodes[node].control_inputs.push_back(before);
}

void Builder::set_int(uint32_t node, std::string_view name, int64_t value) {
  state_->attribute(node, name, BELAY_ATTR_INT,
                    state_->append<int64_t>(state_->ints, {&value, 1}, "integers"));
}
void Builder::set_float(uint32_t node, std::string_view name, float value) {
  state_->attribute(node, name, BELAY_ATTR_FLOAT,
                    state_->append<float>(state_->floats, {&value, 1}, "floats"));
}
void Builder::set_string(uint32_t node, std::string_view name, std::string_view value) {
  const uint32_t id = state_->intern(value);
  state_->attribute(node, name, BELAY_ATTR_STRING,
                    state_->append<uint32_t>(state_->indices, {&id, 1}, "indices"));
}
void Builder::set_ints(uint32_t node, std::string_view name, std::span<const int64_t> values) {
  state_->attribute(node, name, BELAY_ATTR_INTS, state_->append<int64_t>(state_->ints, values, "integers"));
}
void Builder::set_floats(uint32_t node, std::string_view name, std::span<const float> values) {
  state_->attribute(node, name, BELAY_ATTR_FLOATS, state_->append<float>(state_->floats, values, "floats"));
}
void Builder::set_strings(uint32_t node, std::string_view name, std::span<const std::string_view> values) {
  std::vector<uint32_t> ids;
  ids.reserve(values.size());
  for (const std::string_view value : values) ids.push_back(state_->intern(value));
  state_->attribute(node, name, BELAY_ATTR_STRINGS,
                    state_->append<uint32_t>(state_->indices, ids, "indices"));
}
void Builder::set_tensor(uint32_t node, std::string_view name, uint32_t constant) {
  if (!state_->check(constant, state_->constants.size(), "constant")) return;
  state_->attribute(node, name, BELAY_ATTR_TENSOR,
                    state_->append<uint32_t>(state_->indices, {&constant, 1}, "indices"));
}
void Builder::set_tensors(uint32_t node, std::string_view name, std::span<const uint32_t> constants) {
  for (const uint32_t constant : constants)
    if (!state_->check(constant, state_->constants.size(), "constant")) return;
  state_->attribute(node, name, BELAY_ATTR_TENSORS,
                    state_->append<uint32_t>(state_->indices, constants, "indices"));
}
void Builder::set_graph(uint32_t node, std::string_view name, uint32_t graph) {
  if (!state_->check(graph, state_->graphs.size(), "graph")) return;
  state_->attribute(node, name, BELAY_ATTR_GRAPH,
                    state_->append<uint32_t>(state_->indices, {&graph, 1}, "indices"));
}
void Builder::set_graphs(uint32_t node, std::string_view name, std::span<const uint32_t> graphs) {
  for (const uint32_t graph : graphs)
    if (!state_->check(graph, state_->graphs.size(), "graph")) return;
  state_->attribute(node, name, BELAY_ATTR_GRAPHS,
                    state_->append<uint32_t>(state_->indices, graphs, "indices"));
}
void Builder::set_type(uint32_t node, std::string_view name, uint32_t type) {
  if (!state_->check(type, state_->types.size(), "type")) return;
  state_->attribute(node, name, BELAY_ATTR_TYPE,
                    state_->append<uint32_t>(state_->indices, {&type, 1}, "indices"));
}

void Builder::add_metadata(std::string_view key, std::string_view value) {
  state_->metadata.push_back({state_->intern(key), state_->intern(value)});
}

}  // namespace belay::graph
