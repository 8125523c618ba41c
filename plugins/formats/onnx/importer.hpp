// Turns an ONNX file into a frozen graph. The file is untrusted: it is read in place, nothing is allocated
// that its own size does not pay for, nesting is bounded, and every error names the object it is about. One
// import, one thread.
//
//   importer.cpp    the model: versions, imports, functions
//   graphs.cpp      graphs and their scopes
//   nodes.cpp       nodes, calls of functions, Constant
//   attributes.cpp  attributes of nodes, and what they say about subgraphs
//   tensors.cpp     constants, external data, types
#pragma once

#include "operators.hpp"
#include "proto.hpp"

#include <belay/graph/builder.hpp>
#include <belay/status.hpp>
#include <belay/tensor_io/onnx_tensor.hpp>
#include <belay/tensor_io/wire.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace belay::onnx {

inline Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
inline std::string quoted(std::string_view name) { return "'" + wire::printable(name) + "'"; }

// Where the bytes come from and where remarks go: the host's reader and sink, or a test.
class Files {
 public:
  struct Side {
    uint32_t source = 0;
    std::string_view bytes;
  };
  virtual ~Files() = default;
  virtual std::string_view model() = 0;  // valid as long as the import
  // A file beside the model; the name is relative, normal and stays below the model's folder.
  virtual Result<Side> open(std::string_view name) = 0;
  virtual void warn(const std::string& text) = 0;
};

class Importer {
 public:
  explicit Importer(Files& files) : files_(files), file_(files.model()), base_(file_.data()) {}

  // The image. Errors: DATA_LOSS (not a whole ModelProto), INVALID_ARGUMENT (against the rules of ONNX),
  // UNIMPLEMENTED, RESOURCE_EXHAUSTED (functions that would grow without end), and those of Files::open.
  Result<std::string> run();
  // Behind run(): UNIMPLEMENTED with the operators of the image that are not known, if there are any.
  Status check_operators() const;

 private:
  using Opsets = std::map<std::string_view, int64_t>;  // by plain domain

  struct Function {
    FunctionProto proto;
    Opsets opsets;
    bool running = false;  // on the stack of calls
  };

  struct Constant {  // in the builder
    uint32_t index = BELAY_NONE, type = BELAY_NONE;
  };

  struct Name {
    uint32_t value = BELAY_NONE;  // BELAY_NONE: an optional parameter of a function that the caller left out
    bool ready = false;           // made by what comes before; else the nodes are not sorted
    bool open = false;            // output of a function: waits for the node that makes it
  };

  // What a node of a function may refer to: the attributes of the call.
  struct Call {
    const Function* function = nullptr;
    std::map<std::string_view, std::string_view> attributes;  // by name, the message; refers to no other
  };

  struct Scope {
    const Scope* parent = nullptr;  // null in the main graph and in the body of a function
    uint32_t graph = 0;
    int depth = 0;  // of the graph
    const Opsets* opsets = nullptr;
    const Call* call = nullptr;
    std::string prefix;  // of names in the body of a function
    std::map<std::string_view, Name> names;
    std::map<std::string_view, std::string_view> types;  // TypeProto by name, from value_info
  };

  // importer.cpp
  Status read_versions(const ModelProto& model);
  Result<Opsets> read_opsets(const std::vector<OpsetImport>& imports, const std::string& what) const;
  Status read_functions(const ModelProto& model);
  void add_metadata(const ModelProto& model);
  void warn_once(const std::string& text);

  // graphs.cpp
  Status import_graph(const GraphProto& graph, Scope& scope, std::string_view what);
  Status add_inputs(const GraphProto& graph, Scope& scope,
                    const std::map<std::string_view, Constant>& initializers);
  Result<std::map<std::string_view, Constant>> add_initializers(const GraphProto& graph);
  Status add_outputs(const GraphProto& graph, Scope& scope);
  Status import_nodes(std::span<const std::string_view> messages, Scope& scope);
  Status declare_outputs(const NodeProto& node, Scope& scope);
  Result<uint32_t> new_value(Scope& scope, std::string_view name);
  Name* find(const Scope& scope, std::string_view name) const;

  // nodes.cpp
  Status import_node(const NodeProto& node, Scope& scope);
  Status import_call(const NodeProto& node, Function& function, Scope& scope,
                     std::span<const uint32_t> inputs);
  Status call_body(const NodeProto& node, Function& function, Scope& body, std::span<const uint32_t> inputs,
                   const Scope& scope);
  Status import_constant(const NodeProto& node, const std::vector<AttributeProto>& attributes,
                         uint32_t value);
  Result<Constant> constant_of(const AttributeProto& attribute, std::string_view name);
  Status set_attribute(uint32_t node, const AttributeProto& attribute, Scope& scope);
  Status set_graphs(uint32_t node, const AttributeProto& attribute, Scope& scope);
  static std::string node_text(const NodeProto& node);
  Function* find_function(const NodeProto& node);

  // attributes.cpp
  struct Attributes {
    std::vector<AttributeProto> list;  // resolved, and `type` is set
    Views messages;                    // of the same
  };
  Result<Attributes> read_attributes(const NodeProto& node, const Call* call, const Operator& op) const;
  Status check_body(const NodeProto& node, uint32_t since_version,
                    const std::vector<AttributeProto>& attributes) const;
  Result<size_t> count_inputs(const GraphProto& body) const;

  // tensors.cpp
  Result<Constant> add_tensor(const TensorProto& tensor, std::string_view name);
  Result<Constant> add_external(const TensorProto& tensor, std::string_view name);
  Result<uint32_t> add_type(std::string_view message, std::string_view value, int depth = 0);

  Files& files_;
  const std::string_view file_;
  const char* const base_;
  graph::Builder builder_;
  int64_t ir_version_ = 0;
  Opsets opsets_;
  std::map<std::tuple<std::string_view, std::string_view, std::string_view>, Function> functions_;
  uint32_t sources_ = 1;  // known to the builder
  uint64_t inlined_ = 0;  // cost of the function bodies inlined so far
  uint64_t calls_ = 0;    // number of them, for names
  int call_depth_ = 0;
  std::vector<std::string> unknown_;  // operators that are not known, described
  std::set<std::string> warned_;
};

}  // namespace belay::onnx
