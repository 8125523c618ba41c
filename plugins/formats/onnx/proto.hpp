// The messages of onnx.proto that a reader needs, as views of the file; nothing is copied but lists. What is
// nested (nodes, tensors, graphs, types) stays a view until it is asked for, so that nesting costs nothing
// before it is bounded.
#pragma once

#include <belay/status.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace belay::onnx {

using Views = std::vector<std::string_view>;

struct OpsetImport {
  std::string_view domain;
  int64_t version = 0;
};

struct ModelProto {
  std::optional<int64_t> ir_version;
  std::string_view producer_name, producer_version, domain, doc;
  int64_t model_version = 0;
  std::optional<std::string_view> graph;
  std::vector<OpsetImport> opsets;
  std::vector<std::pair<std::string_view, std::string_view>> metadata;
  Views functions;
  bool training = false;
};

struct GraphProto {
  std::string_view name;
  Views nodes, initializers, sparse_initializers, inputs, outputs, value_infos;
};

struct NodeProto {
  std::string_view name, op, domain, overload;
  Views inputs, outputs, attributes;
};

struct FunctionProto {
  std::string_view name, domain, overload;
  Views inputs, outputs, attributes, defaults, nodes,
      value_infos;  // attributes: names; defaults: AttributeProto
  std::vector<OpsetImport> opsets;
};

struct ValueInfoProto {
  std::string_view name;
  std::optional<std::string_view> type;
};

struct AttributeProto {
  std::string_view name, reference;  // reference: attribute of the function that stands for the value
  int64_t type = 0;                  // 0: the file does not say
  uint32_t present = 0;              // bit k: a field of kind k (AttributeProto.type) was there
  float f = 0;
  int64_t i = 0;
  std::string_view s, tensor, graph, tp;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  Views strings, tensors, graphs;

  bool has(int64_t kind) const { return present >> kind & 1; }
};

// Each reads one message of the file that begins at `base`. Errors: DATA_LOSS.
Result<ModelProto> read_model(std::string_view file);
Result<GraphProto> read_graph(std::string_view message, const char* base);
Result<NodeProto> read_node(std::string_view message, const char* base);
Result<FunctionProto> read_function(std::string_view message, const char* base);
Result<ValueInfoProto> read_value_info(std::string_view message, const char* base);
Result<AttributeProto> read_attribute(std::string_view message, const char* base);

}  // namespace belay::onnx
