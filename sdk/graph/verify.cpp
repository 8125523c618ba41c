#include <belay/graph/verify.hpp>

#include <belay/graph/dtype.hpp>
#include <belay/graph/string_table.hpp>
#include <belay/graph/view.hpp>

#include <algorithm>
#include <type_traits>

namespace belay::graph {
namespace {

constexpr uint32_t kMaxRank = 32;       // BELAY_MAX_RANK of abi/tensor.h
constexpr uint32_t kMaxTypeDepth = 32;  // readers of types may recurse

// Looks at every record once. Lists of one pool must not add up to more than the pool, so that the work stays
// linear however the lists overlap.
class Verifier {
 public:
  explicit Verifier(belay_span image) : image_(image), view_(image) {}

  Status run() {
    BELAY_TRY(check_sections());
    BELAY_TRY(check_strings());
    BELAY_TRY(check_types());
    BELAY_TRY(check_constants());
    BELAY_TRY(check_values());
    BELAY_TRY(check_attributes());
    BELAY_TRY(check_graphs());
    BELAY_TRY(check_nodes());
    BELAY_TRY(check_outputs());
    return check_metadata();
  }

 private:
  // "Frozen graph: nodes[3].op is 99, want less than 12."
  static Status wrong(std::string_view section, uint64_t index, std::string_view field, uint64_t found,
                      std::string_view want) {
    std::string text = "Frozen graph: " + std::string(section) + "[" + std::to_string(index) + "]";
    if (!field.empty()) text.append(".").append(field);
    text += " is " + (found == BELAY_NONE ? std::string("none") : std::to_string(found)) + ", want ";
    return {Code::kDataLoss, text.append(want).append(".")};
  }
  static Status wrong_header(std::string text) {
    return {Code::kDataLoss, "Frozen graph: " + std::move(text) + "."};
  }

  static Status below(std::string_view section, uint64_t index, std::string_view field, uint32_t found,
                      uint64_t end) {
    return found < end ? Status() : wrong(section, index, field, found, "less than " + std::to_string(end));
  }
  static Status below_or_none(std::string_view section, uint64_t index, std::string_view field,
                              uint32_t found, uint64_t end) {
    return found == BELAY_NONE ? Status() : below(section, index, field, found, end);
  }
  static Status is_zero(std::string_view section, uint64_t index, std::string_view field, uint64_t found) {
    return found == 0 ? Status() : wrong(section, index, field, found, "0");
  }
  // `used` counts what all lists of this pool have taken so far.
  static Status list_in(std::string_view section, uint64_t index, std::string_view field, belay_list list,
                        uint64_t pool, uint64_t& used) {
    if (list.first > pool || list.count > pool - list.first)
      return wrong(section, index, field, uint64_t{list.first} + list.count,
                   "an end at or before " + std::to_string(pool));
    used += list.count;
    return used <= pool ? Status()
                        : wrong(section, index, field, used, "lists that add up to no more than their pool");
  }

  template <class T>
  Status check_section(std::string_view name, const belay_section& at, uint64_t most = BELAY_NONE - 1) const {
    if (at.offset % 8 != 0 || at.offset < sizeof(belay_graph_image) || at.offset > image_.len)
      return wrong_header("section '" + std::string(name) + "' is at " + std::to_string(at.offset) +
                          ", want a multiple of 8 inside the image of " + std::to_string(image_.len) +
                          " bytes");
    if (at.count > most || at.count > (image_.len - at.offset) / sizeof(T))
      return wrong_header("section '" + std::string(name) + "' has " + std::to_string(at.count) +
                          " records, which do not fit into the image");
    return {};
  }

  Status check_sections() {
    if (!image_.ptr || reinterpret_cast<uintptr_t>(image_.ptr) % 8 != 0)
      return wrong_header("the image is not aligned to 8 bytes");
    if (image_.len < sizeof(belay_graph_image))
      return wrong_header("the image has " + std::to_string(image_.len) + " bytes, want at least " +
                          std::to_string(sizeof(belay_graph_image)));
    const belay_graph_image& h = view_.header();
    if (h.magic != BELAY_GRAPH_MAGIC) return wrong_header("the magic number is " + std::to_string(h.magic));
    if (h.version != BELAY_GRAPH_VERSION)
      return wrong_header("the version is " + std::to_string(h.version) + ", want " +
                          std::to_string(BELAY_GRAPH_VERSION));
    if (h.total_bytes != image_.len)
      return wrong_header("total_bytes is " + std::to_string(h.total_bytes) + ", the image has " +
                          std::to_string(image_.len));
    BELAY_TRY(check_section<char>("bytes", h.bytes, UINT64_MAX));
    BELAY_TRY(check_section<belay_graph_string>("strings", h.strings));
    BELAY_TRY(check_section<uint32_t>("indices", h.indices));
    BELAY_TRY(check_section<int64_t>("ints", h.ints));
    BELAY_TRY(check_section<float>("floats", h.floats));
    BELAY_TRY(check_section<belay_graph_dim>("dims", h.dims));
    BELAY_TRY(check_section<belay_graph_shape>("shapes", h.shapes));
    BELAY_TRY(check_section<belay_graph_type>("types", h.types));
    BELAY_TRY(check_section<belay_graph_quant>("quants", h.quants));
    BELAY_TRY(check_section<belay_graph_constant>("constants", h.constants));
    BELAY_TRY(check_section<belay_graph_source>("sources", h.sources));
    BELAY_TRY(check_section<belay_graph_value>("values", h.values));
    BELAY_TRY(check_section<belay_graph_attribute>("attributes", h.attributes));
    BELAY_TRY(check_section<belay_graph_node>("nodes", h.nodes));
    BELAY_TRY(check_section<belay_graph_graph>("graphs", h.graphs));
    BELAY_TRY(check_section<belay_graph_pair>("metadata", h.metadata));
    BELAY_TRY(check_section<char>("data", h.data, UINT64_MAX));
    if (h.graphs.count == 0) return wrong_header("there is no graph");
    if (h.sources.count == 0) return wrong_header("there is no source, want the model file as source 0");
    return {};
  }

  Status check_strings() {
    const belay_graph_image& h = view_.header();
    const auto strings = view_.section<belay_graph_string>(h.strings);
    uint64_t used = 0;
    for (size_t i = 0; i < strings.size(); ++i) {
      if (strings[i].offset > h.bytes.count || strings[i].len > h.bytes.count - strings[i].offset)
        return wrong("strings", i, "len", strings[i].len, "text inside the bytes");
      used += strings[i].len;
      if (used > h.bytes.count)
        return wrong("strings", i, "len", used, "strings that add up to no more than the bytes");
    }
    for (size_t i = 0; i < view_.sources().size(); ++i) {
      BELAY_TRY(below("sources", i, "name", view_.sources()[i].name, h.strings.count));
      BELAY_TRY(is_zero("sources", i, "reserved", view_.sources()[i].reserved));
    }
    return {};
  }

  Status check_types() {
    const belay_graph_image& h = view_.header();
    const auto dims = view_.section<belay_graph_dim>(h.dims);
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i].value < -1) return wrong("dims", i, "value", uint64_t(dims[i].value), "-1, 0 or more");
      BELAY_TRY(below_or_none("dims", i, "symbol", dims[i].symbol, h.strings.count));
      BELAY_TRY(is_zero("dims", i, "reserved", dims[i].reserved));
    }
    const auto shapes = view_.section<belay_graph_shape>(h.shapes);
    for (size_t i = 0; i < shapes.size(); ++i) {
      BELAY_TRY(list_in("shapes", i, "dims", shapes[i].dims, dims.size(), dims_used_));
      if (shapes[i].dims.count > kMaxRank)
        return wrong("shapes", i, "dims.count", shapes[i].dims.count, "at most 32");
    }
    const auto types = view_.types();
    std::vector<uint8_t> depth(types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      const belay_graph_type& type = types[i];
      if (type.kind == BELAY_TYPE_TENSOR) {
        if (!find_dtype(type.dtype)) return wrong("types", i, "dtype", type.dtype, "a known element type");
        BELAY_TRY(below_or_none("types", i, "shape", type.shape, shapes.size()));
        if (type.element != BELAY_NONE)
          return wrong("types", i, "element", type.element, "none for a tensor");
        continue;
      }
      if (type.kind > BELAY_TYPE_MAP || type.kind == 0) return wrong("types", i, "kind", type.kind, "1 to 4");
      if (type.kind == BELAY_TYPE_MAP ? !find_dtype(type.dtype) : type.dtype != BELAY_DT_UNDEFINED)
        return wrong("types", i, "dtype", type.dtype, "the key type of a map, else 0");
      if (type.shape != BELAY_NONE)
        return wrong("types", i, "shape", type.shape, "none for what is no tensor");
      BELAY_TRY(below("types", i, "element", type.element, i));
      depth[i] = uint8_t(depth[type.element] + 1);
      if (depth[i] > kMaxTypeDepth)
        return wrong("types", i, "element", type.element, "types nested at most 32 deep");
    }
    return {};
  }

  Status check_constants() {
    const belay_graph_image& h = view_.header();
    const auto constants = view_.constants();
    uint64_t string_bytes = 0;
    for (size_t i = 0; i < constants.size(); ++i) {
      const belay_graph_constant& c = constants[i];
      BELAY_TRY(below("constants", i, "name", c.name, h.strings.count));
      BELAY_TRY(is_zero("constants", i, "reserved", c.reserved));
      if (!find_dtype(c.dtype)) return wrong("constants", i, "dtype", c.dtype, "a known element type");
      BELAY_TRY(list_in("constants", i, "dims", c.dims, h.dims.count, dims_used_));
      if (c.dims.count > kMaxRank) return wrong("constants", i, "dims.count", c.dims.count, "at most 32");
      for (const belay_graph_dim& dim : view_.dims(c.dims))
        if (dim.value < 0 || dim.symbol != BELAY_NONE)
          return wrong("constants", i, "dims", uint64_t(dim.value), "dims that are known");
      const auto count = element_count(view_.constant_dims(c));
      if (!count) return wrong("constants", i, "dims", c.dims.count, "dims whose product fits 64 bits");
      uint64_t room = h.data.count;
      if (c.source != BELAY_NONE) {
        BELAY_TRY(below("constants", i, "source", c.source, h.sources.count));
        room = view_.sources()[c.source].bytes;
      } else if (c.offset % 8 != 0) {
        return wrong("constants", i, "offset", c.offset, "a multiple of 8 for inline data");
      }
      if (c.bytes > room || c.offset > room - c.bytes)
        return wrong("constants", i, "bytes", c.bytes,
                     "bytes inside " + std::to_string(room) + " of its source");
      if (c.dtype == BELAY_DT_STRING) {
        string_bytes += c.bytes;
        if (c.source != BELAY_NONE || string_bytes > h.data.count ||
            !is_string_table(view_.constant_bytes(c, {}), *count))
          return wrong("constants", i, "bytes", c.bytes,
                       "an inline table of " + std::to_string(*count) + " strings");
      } else if (const auto bytes = dtype_bytes(c.dtype, *count); bytes != c.bytes) {
        return wrong("constants", i, "bytes", c.bytes, bytes ? std::to_string(*bytes) : "fewer than 2^64");
      }
    }
    return {};
  }

  Status check_values() {
    const belay_graph_image& h = view_.header();
    const auto values = view_.values();
    for (size_t i = 0; i < values.size(); ++i) {
      const belay_graph_value& v = values[i];
      BELAY_TRY(below("values", i, "name", v.name, h.strings.count));
      BELAY_TRY(below_or_none("values", i, "type", v.type, h.types.count));
      BELAY_TRY(below_or_none("values", i, "constant", v.constant, h.constants.count));
      BELAY_TRY(below_or_none("values", i, "quant", v.quant, h.quants.count));
      BELAY_TRY(below("values", i, "graph", v.graph, h.graphs.count));
      BELAY_TRY(below_or_none("values", i, "producer", v.producer, h.nodes.count));
      if (v.flags & ~BELAY_VALUE_IS_INPUT) return wrong("values", i, "flags", v.flags, "known flags");
      if (v.producer == BELAY_NONE) {
        BELAY_TRY(is_zero("values", i, "output", v.output));
      } else if (v.constant != BELAY_NONE || v.flags & BELAY_VALUE_IS_INPUT) {
        return wrong("values", i, "producer", v.producer, "none for an input or constant");
      }
    }
    const auto quants = view_.section<belay_graph_quant>(h.quants);
    for (size_t i = 0; i < quants.size(); ++i) {
      if (quants[i].kind == 0 || quants[i].kind > BELAY_QUANT_BLOCK)
        return wrong("quants", i, "kind", quants[i].kind, "1 to 3");
      BELAY_TRY(below("quants", i, "scale", quants[i].scale, values.size()));
      BELAY_TRY(below_or_none("quants", i, "zero_point", quants[i].zero_point, values.size()));
      BELAY_TRY(is_zero("quants", i, "reserved", quants[i].reserved));
    }
    return {};
  }

  Status check_attributes() {
    const belay_graph_image& h = view_.header();
    const auto attributes = view_.attributes();
    uint64_t ints_used = 0, floats_used = 0;
    for (size_t i = 0; i < attributes.size(); ++i) {
      const belay_graph_attribute& at = attributes[i];
      BELAY_TRY(below("attributes", i, "name", at.name, h.strings.count));
      uint64_t end = 0;  // of what the indices lead to
      switch (at.kind) {
        case BELAY_ATTR_FLOAT:
        case BELAY_ATTR_FLOATS:
          BELAY_TRY(list_in("attributes", i, "values", at.values, h.floats.count, floats_used));
          break;
        case BELAY_ATTR_INT:
        case BELAY_ATTR_INTS:
          BELAY_TRY(list_in("attributes", i, "values", at.values, h.ints.count, ints_used));
          break;
        case BELAY_ATTR_STRING:
        case BELAY_ATTR_STRINGS:
          end = h.strings.count;
          break;
        case BELAY_ATTR_TENSOR:
        case BELAY_ATTR_TENSORS:
          end = h.constants.count;
          break;
        case BELAY_ATTR_GRAPH:
        case BELAY_ATTR_GRAPHS:
          end = h.graphs.count;
          break;
        case BELAY_ATTR_TYPE:
          end = h.types.count;
          break;
        default:
          return wrong("attributes", i, "kind", at.kind, "a known kind");
      }
      const bool many = at.kind >= BELAY_ATTR_FLOATS && at.kind <= BELAY_ATTR_GRAPHS;
      if (!many && at.values.count != 1) return wrong("attributes", i, "values.count", at.values.count, "1");
      const bool numbers = at.kind == BELAY_ATTR_FLOAT || at.kind == BELAY_ATTR_FLOATS ||
                           at.kind == BELAY_ATTR_INT || at.kind == BELAY_ATTR_INTS;
      if (numbers) continue;
      BELAY_TRY(list_in("attributes", i, "values", at.values, h.indices.count, indices_used_));
      for (const uint32_t index : view_.indices(at.values))
        BELAY_TRY(below("attributes", i, "values", index, end));
    }
    return {};
  }

  // Ranges of nodes, owners, depth and inputs of graphs; that captures are sorted and come from outside.
  Status check_graphs() {
    const belay_graph_image& h = view_.header();
    const auto graphs = view_.graphs();
    const auto values = view_.values();
    owner_.assign(graphs.size(), BELAY_NONE);
    std::vector<uint8_t> depth(graphs.size());
    std::vector<bool> is_input(values.size());
    uint64_t nodes_used = 0, attributes_used = 0;
    for (size_t g = 0; g < graphs.size(); ++g) {
      const belay_graph_graph& graph = graphs[g];
      BELAY_TRY(below("graphs", g, "name", graph.name, h.strings.count));
      if (g == 0 && graph.parent != BELAY_NONE) return wrong("graphs", 0, "parent", graph.parent, "none");
      if (g > 0) {
        BELAY_TRY(below("graphs", g, "parent", graph.parent, g));
        depth[g] = uint8_t(depth[graph.parent] + 1);
        if (depth[g] > BELAY_GRAPH_MAX_DEPTH) return wrong("graphs", g, "depth", depth[g], "at most 32");
      }
      BELAY_TRY(list_in("graphs", g, "nodes", graph.nodes, h.nodes.count, nodes_used));
      BELAY_TRY(list_in("graphs", g, "inputs", graph.inputs, h.indices.count, indices_used_));
      BELAY_TRY(list_in("graphs", g, "outputs", graph.outputs, h.indices.count, indices_used_));
      BELAY_TRY(list_in("graphs", g, "captures", graph.captures, h.indices.count, indices_used_));
      for (const uint32_t v : view_.indices(graph.inputs)) {
        BELAY_TRY(below("graphs", g, "inputs", v, values.size()));
        if (values[v].graph != g || !(values[v].flags & BELAY_VALUE_IS_INPUT) || is_input[v])
          return wrong("graphs", g, "inputs", v, "a value of this graph, marked as input, once");
        is_input[v] = true;
      }
      const auto captures = view_.indices(graph.captures);
      for (size_t i = 0; i < captures.size(); ++i) {
        BELAY_TRY(below("graphs", g, "captures", captures[i], values.size()));
        if (g == 0 || values[captures[i]].graph == g || (i > 0 && captures[i] <= captures[i - 1]))
          return wrong("graphs", g, "captures", captures[i], "values of outer graphs in ascending order");
      }
      // The nodes of the graph know it; with the sum of all lists no node is in two graphs.
      for (uint32_t n = graph.nodes.first; n < graph.nodes.first + graph.nodes.count; ++n) {
        const belay_graph_node& node = view_.nodes()[n];
        if (node.graph != g) return wrong("nodes", n, "graph", node.graph, std::to_string(g));
        BELAY_TRY(list_in("nodes", n, "attributes", node.attributes, h.attributes.count, attributes_used));
        for (const auto& at : view_.attributes().subspan(node.attributes.first, node.attributes.count)) {
          if (at.kind != BELAY_ATTR_GRAPH && at.kind != BELAY_ATTR_GRAPHS) continue;
          for (const uint32_t sub : view_.indices(at.values)) {
            if (graphs[sub].parent != g || owner_[sub] != BELAY_NONE)
              return wrong("nodes", n, "attributes", sub,
                           "a subgraph of the node's graph that no other node has");
            owner_[sub] = n;
          }
        }
      }
    }
    if (nodes_used != h.nodes.count)
      return wrong("nodes", nodes_used, "graph", h.nodes.count, "nodes that graphs hold");
    for (size_t g = 1; g < graphs.size(); ++g)
      if (owner_[g] == BELAY_NONE)
        return wrong("graphs", g, "owner", BELAY_NONE, "a node that has this graph");
    for (size_t i = 0; i < values.size(); ++i)
      if ((values[i].flags & BELAY_VALUE_IS_INPUT) && !is_input[i])
        return wrong("values", i, "flags", values[i].flags, "an input that is in the list of its graph");
    // A capture is visible in the parent, before the node that has the graph. Parents come first, so this is
    // complete.
    for (size_t g = 1; g < graphs.size(); ++g)
      for (const uint32_t v : view_.indices(graphs[g].captures))
        BELAY_TRY(visible(graphs[g].parent, owner_[g], v, "graphs", g, "captures"));
    return {};
  }

  // That value `v` may be used in graph `g` by something that runs at node `before`.
  Status visible(uint32_t g, uint32_t before, uint32_t v, std::string_view section, uint64_t index,
                 std::string_view field) const {
    const belay_graph_value& value = view_.values()[v];
    if (value.graph != g) {
      const auto captures = view_.indices(view_.graphs()[g].captures);
      if (std::binary_search(captures.begin(), captures.end(), v)) return {};
      return wrong(section, index, field, v, "a value of this graph or one of its captures");
    }
    if (value.producer == BELAY_NONE) {
      if (value.constant != BELAY_NONE || value.flags & BELAY_VALUE_IS_INPUT) return {};
      return wrong(section, index, field, v, "a value that is an input, a constant or made by a node");
    }
    if (value.producer >= before)
      return wrong(section, index, field, v, "a value that an earlier node makes");
    return {};
  }

  Status check_nodes() {
    const belay_graph_image& h = view_.header();
    const auto nodes = view_.nodes();
    const auto values = view_.values();
    for (uint32_t n = 0; n < nodes.size(); ++n) {
      const belay_graph_node& node = nodes[n];
      BELAY_TRY(below("nodes", n, "domain", node.domain, h.strings.count));
      BELAY_TRY(below("nodes", n, "op", node.op, h.strings.count));
      BELAY_TRY(below("nodes", n, "name", node.name, h.strings.count));
      BELAY_TRY(is_zero("nodes", n, "reserved", node.reserved));
      BELAY_TRY(list_in("nodes", n, "inputs", node.inputs, h.indices.count, indices_used_));
      BELAY_TRY(list_in("nodes", n, "outputs", node.outputs, h.indices.count, indices_used_));
      BELAY_TRY(list_in("nodes", n, "control_inputs", node.control_inputs, h.indices.count, indices_used_));
      for (const uint32_t v : view_.indices(node.inputs)) {
        if (v == BELAY_NONE) continue;
        BELAY_TRY(below("nodes", n, "inputs", v, values.size()));
        BELAY_TRY(visible(node.graph, n, v, "nodes", n, "inputs"));
      }
      const auto outputs = view_.indices(node.outputs);
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i] == BELAY_NONE) continue;
        BELAY_TRY(below("nodes", n, "outputs", outputs[i], values.size()));
        const belay_graph_value& value = values[outputs[i]];
        if (value.producer != n || value.output != i || value.graph != node.graph)
          return wrong("nodes", n, "outputs", outputs[i],
                       "a value of its graph that names this node as producer");
      }
      for (const uint32_t before : view_.indices(node.control_inputs)) {
        BELAY_TRY(below("nodes", n, "control_inputs", before, n));
        if (nodes[before].graph != node.graph)
          return wrong("nodes", n, "control_inputs", before, "a node of the same graph");
      }
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].producer == BELAY_NONE) continue;
      const auto outputs = view_.indices(nodes[values[i].producer].outputs);
      if (values[i].output >= outputs.size() || outputs[values[i].output] != i)
        return wrong("values", i, "output", values[i].output, "an output of its producer");
    }
    return {};
  }

  Status check_outputs() const {
    for (size_t g = 0; g < view_.graphs().size(); ++g)
      for (const uint32_t v : view_.indices(view_.graphs()[g].outputs)) {
        BELAY_TRY(below("graphs", g, "outputs", v, view_.values().size()));
        BELAY_TRY(visible(uint32_t(g), BELAY_NONE, v, "graphs", g, "outputs"));
      }
    return {};
  }

  Status check_metadata() const {
    const belay_graph_image& h = view_.header();
    const auto pairs = view_.section<belay_graph_pair>(h.metadata);
    for (size_t i = 0; i < pairs.size(); ++i) {
      BELAY_TRY(below("metadata", i, "key", pairs[i].key, h.strings.count));
      BELAY_TRY(below("metadata", i, "value", pairs[i].value, h.strings.count));
    }
    return {};
  }

  belay_span image_;
  View view_;
  uint64_t dims_used_ = 0, indices_used_ = 0;
  std::vector<uint32_t> owner_;  // node of each subgraph
};

}  // namespace

Status verify(belay_span image) { return Verifier(image).run(); }

}  // namespace belay::graph
