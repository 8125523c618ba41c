#include <belay/graph/outputs.hpp>

#include <belay/graph/view.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace belay::graph {
namespace {

// An image whose lists grow. What changes is written behind the rest, so that nothing else moves.
class Growing {
 public:
  explicit Growing(const View& view)
      : view_(view), graphs_(copy(view.graphs())), values_(copy(view.values())), types_(copy(view.types())) {
    for (uint32_t i = 0; i < view.nodes().size(); ++i) nodes_.push_back(view.node(i).raw());
    pool_ = copy(view.section<uint32_t>(view.header().indices));
    for (uint32_t i = 0; i < values_.size(); ++i)
      if (values_[i].graph == 0) names_.emplace(view.string(values_[i].name), i);
  }

  // The value that `name` leads to, brought out of the graphs that it is in.
  Result<uint32_t> find(const std::string& name) {
    if (const auto at = names_.find(name); at != names_.end() && !name.empty()) return at->second;
    const std::optional<uint32_t> inner = at_index(name);
    if (!inner)
      return Status(Code::kNotFound, "The main graph has no value '" + name + "' that could be an output.");
    uint32_t value = *inner;
    while (values_[value].graph != 0) {
      BELAY_ASSIGN(value, out_of_graph(value));
    }
    return value;
  }
  void append_outputs(uint32_t graph, std::span<const uint32_t> values) { append(graphs_[graph].outputs, values); }

  void write(std::vector<uint64_t>& image) const {
    const auto put = [&](const auto& records) {
      const size_t begin = image.size(), bytes = records.size() * sizeof(records[0]);
      image.resize(begin + (bytes + 7) / 8);
      if (bytes) std::memcpy(image.data() + begin, records.data(), bytes);
      return belay_section{begin * sizeof(uint64_t), records.size()};
    };
    const belay_section graphs = put(graphs_), nodes = put(nodes_), values = put(values_), pool = put(pool_),
                        types = put(types_);
    auto* const header = reinterpret_cast<belay_graph_image*>(image.data());
    header->graphs = graphs, header->nodes = nodes, header->values = values, header->indices = pool, header->types = types;
    header->total_bytes = image.size() * sizeof(uint64_t);
  }
  size_t pool_size() const { return pool_.size(); }

 private:
  template <class T>
  static std::vector<T> copy(std::span<const T> from) {
    return {from.begin(), from.end()};
  }

  // "#17:name", where value 17 has that name.
  std::optional<uint32_t> at_index(std::string_view name) const {
    const size_t colon = name.find(':');
    if (!name.starts_with('#') || colon == name.npos) return std::nullopt;
    uint32_t index = 0;
    const auto [end, error] = std::from_chars(name.data() + 1, name.data() + colon, index);
    if (error != std::errc() || end != name.data() + colon || index >= view_.values().size() ||
        view_.string(values_[index].name) != name.substr(colon + 1))
      return std::nullopt;
    return index;
  }

  void append(belay_list& list, std::span<const uint32_t> values) {
    const belay_list old = list;
    list.first = uint32_t(pool_.size());
    for (uint32_t i = 0; i < old.count; ++i) pool_.push_back(pool_[old.first + i]);
    pool_.insert(pool_.end(), values.begin(), values.end());
    list.count = old.count + uint32_t(values.size());
  }
  void append(belay_list& list, uint32_t value) { append(list, {&value, 1}); }

  // Captures are in ascending order.
  void capture(belay_list& list, uint32_t value) {
    std::vector<uint32_t> all(pool_.begin() + list.first, pool_.begin() + list.first + list.count);
    const auto at = std::lower_bound(all.begin(), all.end(), value);
    if (at != all.end() && *at == value) return;
    all.insert(at, value);
    list = {uint32_t(pool_.size()), uint32_t(all.size())};
    pool_.insert(pool_.end(), all.begin(), all.end());
  }

  // Makes the value an output of its graph and of the node that runs that; gives the node's output.
  Result<uint32_t> out_of_graph(uint32_t value) {
    const uint32_t graph = values_[value].graph;
    for (uint32_t n = 0; n < nodes_.size(); ++n) {
      std::vector<uint32_t> others;
      bool owner = false;
      const belay_list attributes = nodes_[n].attributes;
      for (const auto& at : view_.attributes().subspan(attributes.first, attributes.count))
        if (at.kind == BELAY_ATTR_GRAPH || at.kind == BELAY_ATTR_GRAPHS)
          for (const uint32_t sub : view_.indices(at.values)) {
            owner |= sub == graph;
            if (sub != graph) others.push_back(sub);
          }
      if (!owner) continue;
      const std::string_view op = view_.string(nodes_[n].op);
      append(graphs_[graph].outputs, value);
      // Another branch gives the condition that both look at.
      for (const uint32_t other : others) {
        if (!nodes_[n].inputs.count)
          return Status(Code::kNotFound, "The node that runs the graph of the value has no condition.");
        const uint32_t condition = pool_[nodes_[n].inputs.first];
        capture(graphs_[other].captures, condition);
        append(graphs_[other].outputs, condition);
      }
      // The first output of a Loop's body is its condition.
      const uint32_t place = graphs_[graph].outputs.count - 1 - (op == "Loop" ? 1 : 0);
      while (nodes_[n].outputs.count < place) append(nodes_[n].outputs, BELAY_NONE);
      belay_graph_value made = values_[value];
      made.constant = made.quant = BELAY_NONE;
      if (op != "If") {
        // What an element is counts for nothing where no tensor is declared anywhere.
        uint32_t element = made.type;
        for (uint32_t t = 0; element == BELAY_NONE && t < types_.size(); ++t)
          if (types_[t].kind == BELAY_TYPE_TENSOR) element = t;
        if (element == BELAY_NONE) return Status(Code::kNotFound, "The graph declares no type.");
        made.type = uint32_t(types_.size());
        types_.push_back({BELAY_TYPE_SEQUENCE, BELAY_DT_UNDEFINED, BELAY_NONE, element});
      }
      made.graph = nodes_[n].graph, made.producer = n, made.output = place, made.flags = 0;
      values_.push_back(made);
      append(nodes_[n].outputs, uint32_t(values_.size() - 1));
      return uint32_t(values_.size() - 1);
    }
    return Status(Code::kNotFound, "No node runs the graph of value " + std::to_string(value) + ".");
  }

  const View view_;
  std::vector<belay_graph_graph> graphs_;
  std::vector<belay_graph_node> nodes_;
  std::vector<belay_graph_value> values_;
  std::vector<belay_graph_type> types_;
  std::vector<uint32_t> pool_;
  std::unordered_map<std::string_view, uint32_t> names_;  // of the main graph
};

}  // namespace

Status add_outputs(std::vector<uint64_t>& image, std::span<const std::string> names) {
  const View view({image.data(), image.size() * sizeof(uint64_t)});
  Growing growing(view);
  std::vector<uint32_t> values;
  for (const std::string& name : names) {
    BELAY_ASSIGN(const uint32_t value, growing.find(name));
    values.push_back(value);
    if (growing.pool_size() + values.size() > std::numeric_limits<uint32_t>::max() / 2)
      return {Code::kOutOfRange, "The graph cannot have " + std::to_string(names.size()) + " more outputs."};
  }
  growing.append_outputs(0, values);
  growing.write(image);
  return {};
}

}  // namespace belay::graph
