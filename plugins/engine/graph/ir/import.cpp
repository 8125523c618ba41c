#include "ir/model.hpp"

#include <belay/graph/view.hpp>

#include <unordered_map>

namespace belay::ir {
namespace {

// Copies the tables of one image into a model.
class Importer {
 public:
  Importer(belay_span image, std::span<const belay_span> sources) : view_(image), sources_(sources) {}

  Result<Model> run() {
    model_.sources.assign(sources_.begin(), sources_.end());
    for (const belay_graph_constant& constant : view_.constants())
      constants_.push_back(import_constant(constant));
    for (const belay_graph_value& value : view_.values()) {
      Value& at = model_.values.emplace_back();
      at.name = view_.string(value.name);
      if (value.type != BELAY_NONE) at.type = import_type(value.type);
      if (value.constant != BELAY_NONE) {
        at.constant = constants_[value.constant];
        if (!(value.flags & BELAY_VALUE_IS_INPUT)) at.type = at.constant->type();
      }
      at.graph = value.graph;
      at.is_input = value.flags & BELAY_VALUE_IS_INPUT;
    }
    for (const belay_graph_graph& graph : view_.graphs()) {
      Graph& at = model_.graphs.emplace_back();
      at.name = view_.string(graph.name);
      at.parent = graph.parent;
      const auto inputs = view_.indices(graph.inputs), outputs = view_.indices(graph.outputs);
      at.inputs.assign(inputs.begin(), inputs.end());
      at.outputs.assign(outputs.begin(), outputs.end());
      for (uint32_t i = 0; i < graph.nodes.count; ++i) at.nodes.push_back(graph.nodes.first + i);
    }
    for (uint32_t i = 0; i < view_.nodes().size(); ++i) import_node(i);
    for (const ValueId output : model_.graphs[0].outputs)
      model_.output_names.push_back(model_.values[output].name);
    model_.source_nodes = model_.nodes.size();
    return std::move(model_);
  }

 private:
  ConstantPtr import_constant(const belay_graph_constant& constant) {
    auto at = std::make_shared<Constant>();
    at->dtype = constant.dtype;
    at->dims = view_.constant_dims(constant);
    const belay_span bytes = view_.constant_bytes(constant, sources_);
    at->data = static_cast<const std::byte*>(bytes.ptr);
    at->bytes = bytes.len;
    at->source = constant.source;
    at->key = next_constant_key();
    if (constant.source == BELAY_NONE && constant.dtype != BELAY_DT_STRING) {
      // The image may go after loading, so what is inline in it is taken along.
      auto copy = make_constant(constant.dtype, at->dims);
      if (!copy) throw std::bad_alloc();
      std::memcpy(const_cast<std::byte*>(copy->data), bytes.ptr, std::min(copy->bytes, bytes.len));
      return copy;
    }
    if (constant.source == BELAY_NONE) {
      auto copy = std::make_shared<std::vector<uint64_t>>((bytes.len + 7) / 8);
      std::memcpy(copy->data(), bytes.ptr, bytes.len);
      at->data = reinterpret_cast<const std::byte*>(copy->data());
      at->owner = copy;
    }
    return at;
  }

  Type import_type(uint32_t index) {
    const belay_graph_type& type = view_.types()[index];
    Type out;
    out.kind = type.kind;
    out.dtype = type.dtype;
    if (type.kind == BELAY_TYPE_TENSOR && type.shape != BELAY_NONE) {
      out.ranked = true;
      const auto& shape = view_.section<belay_graph_shape>(view_.header().shapes)[type.shape];
      for (const belay_graph_dim& dim : view_.dims(shape.dims)) {
        if (dim.value >= 0 || dim.symbol == BELAY_NONE) {
          out.dims.push_back(dim.value);
          continue;
        }
        const auto [at, fresh] =
            symbols_.try_emplace(dim.symbol, kFirstSymbol - int64_t(model_.symbols.size()));
        if (fresh) model_.symbols.emplace_back(view_.string(dim.symbol));
        out.dims.push_back(at->second);
      }
    }
    if (type.element != BELAY_NONE) out.element = std::make_shared<const Type>(import_type(type.element));
    return out;
  }

  void import_node(uint32_t index) {
    const belay::graph::NodeView from = view_.node(index);
    Node& node = model_.nodes.emplace_back();
    node.id = index;
    node.graph = from.raw().graph;
    node.domain = from.domain() == "ai.onnx" ? "" : from.domain();
    node.op = from.op();
    node.name = from.name();
    node.version = from.version();
    const auto inputs = from.inputs(), outputs = from.outputs();
    node.inputs.assign(inputs.begin(), inputs.end());
    node.outputs.assign(outputs.begin(), outputs.end());
    if (node.name.empty() && !node.outputs.empty() && node.outputs[0] != BELAY_NONE)
      node.name = model_.values[node.outputs[0]].name;  // messages need something to call it
    const belay_list list = from.raw().attributes;
    for (const belay_graph_attribute& attribute : view_.attributes().subspan(list.first, list.count))
      node.attributes.push_back(import_attribute(attribute));
  }

  Attribute import_attribute(const belay_graph_attribute& from) {
    Attribute at;
    at.name = view_.string(from.name);
    at.kind = from.kind;
    const auto run = [&](const auto& pool) { return pool.subspan(from.values.first, from.values.count); };
    switch (from.kind) {
      case BELAY_ATTR_FLOAT:
      case BELAY_ATTR_FLOATS: {
        const auto values = run(view_.section<float>(view_.header().floats));
        at.floats.assign(values.begin(), values.end());
        break;
      }
      case BELAY_ATTR_INT:
      case BELAY_ATTR_INTS: {
        const auto values = run(view_.section<int64_t>(view_.header().ints));
        at.ints.assign(values.begin(), values.end());
        break;
      }
      default:
        for (const uint32_t index : view_.indices(from.values)) {
          if (from.kind == BELAY_ATTR_STRING || from.kind == BELAY_ATTR_STRINGS)
            at.strings.emplace_back(view_.string(index));
          else if (from.kind == BELAY_ATTR_TENSOR || from.kind == BELAY_ATTR_TENSORS)
            at.tensors.push_back(constants_[index]);
          else if (from.kind == BELAY_ATTR_GRAPH || from.kind == BELAY_ATTR_GRAPHS)
            at.graphs.push_back(index);
          else if (from.kind == BELAY_ATTR_TYPE)
            at.type = import_type(index);
        }
    }
    return at;
  }

  belay::graph::View view_;
  std::span<const belay_span> sources_;
  Model model_;
  std::vector<ConstantPtr> constants_;
  std::unordered_map<uint32_t, int64_t> symbols_;
};

}  // namespace

Result<Model> import_image(belay_span image, std::span<const belay_span> sources) {
  const belay::graph::View view(image);
  if (sources.size() < view.sources().size())
    return Status(Code::kInvalidArgument, "The graph names " + std::to_string(view.sources().size()) +
                                              " sources of constants, " + std::to_string(sources.size()) +
                                              " came.");
  for (size_t i = 0; i < view.sources().size(); ++i)
    if (sources[i].len < view.sources()[i].bytes)
      return Status(Code::kDataLoss, "Source " + std::to_string(i) + " of the graph has " +
                                         std::to_string(sources[i].len) + " bytes, want " +
                                         std::to_string(view.sources()[i].bytes) + ".");
  return Importer(image, sources).run();
}

}  // namespace belay::ir
