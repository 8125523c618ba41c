// Builder::freeze: checks what was built, finds captures, sorts the nodes and writes the image.
#include "state.hpp"

#include <belay/graph/dtype.hpp>
#include <belay/graph/string_table.hpp>

#include <algorithm>
#include <cstring>
#include <queue>
#include <unordered_set>

namespace belay::graph {
namespace {

class Freezer {
 public:
  explicit Freezer(const Builder::State& state) : state_(state) {}

  Result<std::string> run(std::vector<uint32_t>* node_order) {
    if (!state_.misuse.ok()) return state_.misuse;
    BELAY_TRY(check_shapes());
    BELAY_TRY(check_constants());
    BELAY_TRY(find_producers());
    BELAY_TRY(find_owners());
    BELAY_TRY(check_interfaces());
    BELAY_TRY(resolve_uses());
    BELAY_TRY(sort_nodes());
    if (node_order) *node_order = order_;
    return write();
  }

 private:
  std::string quoted(uint32_t string) const { return "'" + std::string(state_.text(string)) + "'"; }
  std::string node_text(uint32_t node) const {
    const NodeRecord& n = state_.nodes[node];
    return "node " + quoted(n.name) + " (" + std::string(state_.text(n.op)) + ")";
  }
  std::string value_text(uint32_t value) const {
    const uint32_t name = state_.values[value].name;
    return state_.text(name).empty() ? "value " + std::to_string(value) : "value " + quoted(name);
  }
  std::string graph_text(uint32_t graph) const { return "graph " + quoted(state_.graphs[graph].name); }
  static Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

  Status check_shapes() const {
    for (const auto& [shape, id] : state_.shape_ids) {
      if (shape.size() > kMaxRank)
        return invalid("A shape has " + std::to_string(shape.size()) + " dims, want at most 32.");
      for (const Dim& dim : shape)
        if (dim.value < -1)
          return invalid("A dim is " + std::to_string(dim.value) + ", want 0 or more, or -1.");
    }
    return {};
  }

  Status check_constants() const {
    for (const belay_graph_constant& c : state_.constants) {
      const std::string what = "Constant " + quoted(c.name);
      std::vector<int64_t> dims;
      for (uint32_t i = 0; i < c.dims.count; ++i) dims.push_back(state_.dims[c.dims.first + i].value);
      if (dims.size() > kMaxRank)
        return invalid(what + " has " + std::to_string(dims.size()) + " dims, want at most 32.");
      const auto count = element_count(dims);
      if (!count) return invalid(what + " has a negative dim, or more elements than 64 bits count.");
      if (!find_dtype(c.dtype))
        return invalid(what + " has the element type " + std::to_string(c.dtype) + ", which is not known.");
      if (c.dtype == BELAY_DT_STRING) {  // made by add_string_constant
        if (c.source != BELAY_NONE) return invalid(what + " holds strings, which must be inline.");
        if (!is_string_table({state_.data.data() + c.offset, c.bytes}, *count))
          return invalid(what + " has another number of strings than its dims say, " +
                         std::to_string(*count) + ".");
        continue;
      }
      const auto bytes = dtype_bytes(c.dtype, *count);
      if (!bytes || *bytes != c.bytes)
        return invalid(what + " has " + std::to_string(c.bytes) + " bytes, want " +
                       (bytes ? std::to_string(*bytes) : "fewer than 2^64") + " for " +
                       std::to_string(*count) + " of " + std::string(dtype_name(c.dtype)) + ".");
      if (c.source == BELAY_NONE) continue;
      const belay_graph_source& source = state_.sources[c.source];
      if (c.bytes > source.bytes || c.offset > source.bytes - c.bytes)
        return invalid(what + " lies at " + std::to_string(c.offset) + " with " + std::to_string(c.bytes) +
                       " bytes, past the end of its file of " + std::to_string(source.bytes) + " bytes.");
    }
    return {};
  }

  Status find_producers() {
    producer_.assign(state_.values.size(), BELAY_NONE);
    output_.assign(state_.values.size(), 0);
    for (uint32_t n = 0; n < state_.nodes.size(); ++n) {
      const NodeRecord& node = state_.nodes[n];
      for (uint32_t i = 0; i < node.outputs.size(); ++i) {
        const uint32_t v = node.outputs[i];
        if (v == BELAY_NONE) continue;
        const belay_graph_value& value = state_.values[v];
        if (value.graph != node.graph)
          return invalid("The " + node_text(n) + " makes the " + value_text(v) + " of another graph.");
        if (producer_[v] != BELAY_NONE)
          return invalid("The " + value_text(v) + " is made by " + node_text(producer_[v]) + " and by " +
                         node_text(n) + "; want one producer.");
        if (value.flags & BELAY_VALUE_IS_INPUT || value.constant != BELAY_NONE)
          return invalid("The " + value_text(v) + " is an input or constant and also made by " +
                         node_text(n) + ".");
        producer_[v] = n;
        output_[v] = i;
      }
      for (const uint32_t before : node.control_inputs)
        if (state_.nodes[before].graph != node.graph)
          return invalid("The " + node_text(n) + " waits for " + node_text(before) + " of another graph.");
    }
    return {};
  }

  // Each subgraph belongs to one node of its parent.
  Status find_owners() {
    owner_.assign(state_.graphs.size(), BELAY_NONE);
    depth_.assign(state_.graphs.size(), 0);
    for (uint32_t n = 0; n < state_.nodes.size(); ++n)
      for (const belay_graph_attribute& at : state_.nodes[n].attributes) {
        if (at.kind != BELAY_ATTR_GRAPH && at.kind != BELAY_ATTR_GRAPHS) continue;
        for (uint32_t i = 0; i < at.values.count; ++i) {
          const uint32_t g = state_.indices[at.values.first + i];
          if (state_.graphs[g].parent != state_.nodes[n].graph)
            return invalid("The " + node_text(n) + " has the " + graph_text(g) +
                           ", whose parent is another graph.");
          if (owner_[g] != BELAY_NONE)
            return invalid("The " + graph_text(g) + " belongs to " + node_text(owner_[g]) + " and to " +
                           node_text(n) + ".");
          owner_[g] = n;
        }
      }
    for (uint32_t g = 1; g < state_.graphs.size(); ++g) {
      if (owner_[g] == BELAY_NONE) return invalid("The " + graph_text(g) + " belongs to no node.");
      depth_[g] = depth_[state_.graphs[g].parent] + 1;
      if (depth_[g] > BELAY_GRAPH_MAX_DEPTH)
        return invalid("The " + graph_text(g) + " lies " + std::to_string(depth_[g]) +
                       " graphs deep, want at most " + std::to_string(BELAY_GRAPH_MAX_DEPTH) + ".");
    }
    return {};
  }

  Status check_interfaces() const {
    std::vector<bool> seen(state_.values.size());
    for (uint32_t g = 0; g < state_.graphs.size(); ++g)
      for (const uint32_t v : state_.graphs[g].inputs) {
        if (state_.values[v].graph != g || seen[v])
          return invalid("Input " + value_text(v) + " of " + graph_text(g) +
                         " is an input twice, or of another graph.");
        seen[v] = true;
      }
    return {};
  }

  bool defined(uint32_t v) const {
    const belay_graph_value& value = state_.values[v];
    return producer_[v] != BELAY_NONE || value.constant != BELAY_NONE || value.flags & BELAY_VALUE_IS_INPUT;
  }

  // Notes that graph `g` uses value `v`: captures on the way out, and what the owner nodes must wait for.
  Status use(uint32_t g, uint32_t v, const std::string& user) {
    if (!defined(v))
      return invalid("The " + user + " uses the " + value_text(v) + ", which nothing defines.");
    const uint32_t home = state_.values[v].graph;
    while (g != home) {
      if (g == 0)
        return invalid("The " + user + " uses the " + value_text(v) + " of a graph that it cannot see.");
      if (!captured_.insert(uint64_t{g} << 32 | v).second) return {};
      captures_[g].push_back(v);
      if (state_.graphs[g].parent == home) depends(owner_[g], producer_[v]);
      g = state_.graphs[g].parent;
    }
    return {};
  }

  void depends(uint32_t node, uint32_t before) {
    if (before == BELAY_NONE) return;
    users_[before].push_back(node);
    ++waits_[node];
  }

  Status resolve_uses() {
    captures_.resize(state_.graphs.size());
    users_.resize(state_.nodes.size());
    waits_.assign(state_.nodes.size(), 0);
    for (uint32_t n = 0; n < state_.nodes.size(); ++n) {
      const NodeRecord& node = state_.nodes[n];
      for (const uint32_t v : node.inputs) {
        if (v == BELAY_NONE) continue;
        BELAY_TRY(use(node.graph, v, node_text(n)));
        if (state_.values[v].graph == node.graph) depends(n, producer_[v]);
      }
      for (const uint32_t before : node.control_inputs) depends(n, before);
    }
    for (uint32_t g = 0; g < state_.graphs.size(); ++g)
      for (const uint32_t v : state_.graphs[g].outputs) BELAY_TRY(use(g, v, graph_text(g)));
    for (auto& list : captures_) std::sort(list.begin(), list.end());
    for (const belay_graph_quant& quant : state_.quants)
      if (quant.scale >= state_.values.size() ||
          (quant.zero_point != BELAY_NONE && quant.zero_point >= state_.values.size()))
        return invalid("A quantisation names a scale or zero point that is no value.");
    return {};
  }

  // Kahn's algorithm with the smallest ready index first: a sorted graph keeps its order.
  Status sort_nodes() {
    std::vector<std::vector<uint32_t>> of_graph(state_.graphs.size());
    std::vector<std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>> ready(
        state_.graphs.size());
    for (uint32_t n = 0; n < state_.nodes.size(); ++n)
      if (waits_[n] == 0) ready[state_.nodes[n].graph].push(n);
    place_.assign(state_.nodes.size(), BELAY_NONE);
    for (uint32_t g = 0; g < state_.graphs.size(); ++g) {
      first_.push_back(uint32_t(order_.size()));
      while (!ready[g].empty()) {
        const uint32_t n = ready[g].top();
        ready[g].pop();
        place_[n] = uint32_t(order_.size());
        order_.push_back(n);
        for (const uint32_t user : users_[n])  // of the same graph
          if (--waits_[user] == 0) ready[g].push(user);
      }
    }
    first_.push_back(uint32_t(order_.size()));
    return order_.size() == state_.nodes.size() ? Status() : cycle();
  }

  // An output of `from` that `to` reads itself; BELAY_NONE: only its subgraphs do, or it is a control input.
  uint32_t value_between(uint32_t from, uint32_t to) const {
    for (const uint32_t v : state_.nodes[to].inputs)
      if (v != BELAY_NONE && producer_[v] == from) return v;
    return BELAY_NONE;
  }

  // Some node was never ready: walk to what it waits for until a node comes again.
  Status cycle() const {
    std::vector<uint32_t> waits_for(state_.nodes.size(), BELAY_NONE);
    uint32_t at = BELAY_NONE;
    for (uint32_t n = 0; n < state_.nodes.size(); ++n) {
      if (place_[n] != BELAY_NONE) continue;
      at = n;
      for (const uint32_t user : users_[n]) waits_for[user] = n;
    }
    std::vector<uint32_t> path;
    std::vector<bool> seen(state_.nodes.size());
    for (; !seen[at]; at = waits_for[at]) {
      seen[at] = true;
      path.push_back(at);
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), at));
    // path[0] is `at`, and what follows in it comes before in the flow of data.
    std::string text = node_text(at);
    constexpr size_t kShown = 8;
    const size_t hidden = path.size() > kShown ? path.size() - kShown : 0;
    for (size_t i = path.size(); i-- > hidden;) {
      const uint32_t value = value_between(i + 1 < path.size() ? path[i + 1] : at, path[i]);
      text += " -> " + (value == BELAY_NONE ? "" : value_text(value) + " -> ") + node_text(path[i]);
    }
    if (hidden > 0) text += " -> " + std::to_string(hidden) + " more";
    return invalid("The " + graph_text(state_.nodes[at].graph) + " has a cycle: " + text + ".");
  }

  // ---- the image
  // --------------------------------------------------------------------------------------------------

  belay_list list(std::span<const uint32_t> items) {
    const belay_list at{uint32_t(indices_.size()), uint32_t(items.size())};
    indices_.insert(indices_.end(), items.begin(), items.end());
    return at;
  }

  template <class T>
  void section(belay_section& where, const T* records, uint64_t count) {
    image_.resize((image_.size() + 7) / 8 * 8);
    where = {image_.size(), count};
    image_.append(reinterpret_cast<const char*>(records), count * sizeof(T));
  }
  template <class Records>
  void section(belay_section& where, const Records& records) {
    section(where, records.data(), records.size());
  }

  Result<std::string> write() {
    std::vector<belay_graph_value> values = state_.values;
    for (uint32_t v = 0; v < values.size(); ++v) {
      values[v].producer = producer_[v] == BELAY_NONE ? BELAY_NONE : place_[producer_[v]];
      values[v].output = output_[v];
    }
    indices_ = state_.indices;
    std::vector<belay_graph_attribute> attributes;
    std::vector<belay_graph_node> nodes;
    for (const uint32_t n : order_) {
      const NodeRecord& node = state_.nodes[n];
      std::vector<uint32_t> before;
      for (const uint32_t c : node.control_inputs) before.push_back(place_[c]);
      const belay_list own{uint32_t(attributes.size()), uint32_t(node.attributes.size())};
      attributes.insert(attributes.end(), node.attributes.begin(), node.attributes.end());
      nodes.push_back({node.domain, node.op, node.since_version, node.name, node.graph, 0, list(node.inputs),
                       list(node.outputs), list(before), own});
    }
    std::vector<belay_graph_graph> graphs;
    for (uint32_t g = 0; g < state_.graphs.size(); ++g) {
      const GraphRecord& graph = state_.graphs[g];
      graphs.push_back({graph.name,
                        graph.parent,
                        list(graph.inputs),
                        list(graph.outputs),
                        list(captures_[g]),
                        {first_[g], first_[g + 1] - first_[g]}});
    }
    if (indices_.size() > kMaxRecords || attributes.size() > kMaxRecords ||
        state_.bytes.size() > UINT64_MAX / 2)
      return Status(Code::kResourceExhausted,
                    "The graph has more than 2^32 - 2 inputs, outputs and attributes.");

    belay_graph_image header{};
    image_.assign(sizeof header, '\0');
    section(header.bytes, state_.bytes);
    section(header.strings, state_.strings);
    section(header.indices, indices_);
    section(header.ints, state_.ints);
    section(header.floats, state_.floats);
    section(header.dims, state_.dims);
    section(header.shapes, state_.shapes);
    section(header.types, state_.types);
    section(header.quants, state_.quants);
    section(header.constants, state_.constants);
    section(header.sources, state_.sources);
    section(header.values, values);
    section(header.attributes, attributes);
    section(header.nodes, nodes);
    section(header.graphs, graphs);
    section(header.metadata, state_.metadata);
    section(header.data, state_.data);
    image_.resize((image_.size() + 7) / 8 * 8);
    header.magic = BELAY_GRAPH_MAGIC;
    header.version = BELAY_GRAPH_VERSION;
    header.total_bytes = image_.size();
    std::memcpy(image_.data(), &header, sizeof header);
    return std::move(image_);
  }

  const Builder::State& state_;
  std::vector<uint32_t> producer_, output_;  // of each value
  std::vector<uint32_t> owner_, depth_;      // of each graph
  std::vector<std::vector<uint32_t>> captures_;
  std::unordered_set<uint64_t> captured_;     // graph and value of each capture
  std::vector<std::vector<uint32_t>> users_;  // of each node: who waits for it, once for each reason
  std::vector<uint32_t> waits_, order_, place_, first_;
  std::vector<uint32_t> indices_;
  std::string image_;
};

}  // namespace

Result<std::string> Builder::freeze(std::vector<uint32_t>* node_order) const {
  return Freezer(*state_).run(node_order);
}

}  // namespace belay::graph
