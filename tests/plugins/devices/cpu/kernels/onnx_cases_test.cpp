// The single-node cases of ONNX's own backend tests (Debian package libonnx-testdata), given to the kernels
// directly. What has no kernel here is listed with its reason; BELAY_CASES_VERBOSE=1 prints the list. Skips
// where the data is missing.
#include "node_runner.hpp"

#include <belay/tensor_io/onnx_tensor.hpp>
#include <belay/tensor_io/wire.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace belay::cpu::testing {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Result<Tensor> tensor_from(std::string_view message) {
  BELAY_ASSIGN(const onnx::TensorProto proto, onnx::read_tensor(message, message.data()));
  if (proto.dtype == BELAY_DT_STRING) return Status(Code::kUnimplemented, "a tensor of strings");
  Tensor out{proto.dtype, proto.dims, std::string(proto.bytes, '\0')};
  if (proto.data == onnx::TensorProto::Data::kRaw)
    out.bytes = std::string(proto.raw);
  else
    BELAY_TRY(onnx::read_values(proto, {reinterpret_cast<std::byte*>(out.bytes.data()), out.bytes.size()}));
  return out;
}

struct Model {
  std::vector<std::string_view> nodes, inputs, outputs;
  std::map<std::string, Tensor> initializers;
  std::map<std::string, uint32_t> dtypes;  // of inputs and outputs; 0: no tensor
  std::map<std::string, int64_t> opsets;
};

Result<Model> model_from(const std::string& bytes) {
  Model model;
  wire::Message m(bytes, bytes.data(), "ModelProto");
  std::string_view graph;
  while (m.next()) {
    if (m.field() == 7) graph = m.bytes();
    if (m.field() == 8) {
      wire::Message o(m.bytes(), bytes.data(), "OperatorSetIdProto");
      std::string domain;
      int64_t version = 0;
      while (o.next())
        if (o.field() == 1)
          domain = o.bytes();
        else if (o.field() == 2)
          version = int64_t(o.number());
      model.opsets[domain] = version;
    }
  }
  wire::Message g(graph, bytes.data(), "GraphProto");
  while (g.next()) {
    if (g.field() == 1) model.nodes.push_back(g.bytes());
    if (g.field() == 5) {
      BELAY_ASSIGN(const onnx::TensorProto proto, onnx::read_tensor(g.bytes(), bytes.data()));
      BELAY_ASSIGN(model.initializers[std::string(proto.name)], tensor_from(g.bytes()));
    }
    if (g.field() == 11 || g.field() == 12) {
      wire::Message v(g.bytes(), bytes.data(), "ValueInfoProto");
      std::string_view name;
      uint32_t dtype = 0;
      while (v.next()) {
        if (v.field() == 1) name = v.bytes();
        if (v.field() != 2) continue;
        wire::Message type(v.bytes(), bytes.data(), "TypeProto");
        while (type.next()) {
          if (type.field() != 1) continue;
          wire::Message tensor(type.bytes(), bytes.data(), "TypeProto.Tensor");
          while (tensor.next())
            if (tensor.field() == 1) dtype = uint32_t(tensor.number());
        }
      }
      (g.field() == 11 ? model.inputs : model.outputs).push_back(name);
      model.dtypes[std::string(name)] = dtype;
    }
  }
  BELAY_TRY(Status(g.status()));
  return model;
}

Status add_attribute(Node& node, std::string_view message) {
  std::string name;
  uint64_t type = 0;
  int64_t i = 0;
  float f = 0;
  std::string s;
  std::string_view t;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string> strings;
  wire::Message m(message, message.data(), "AttributeProto");
  while (m.next()) switch (m.field()) {
      case 1:
        name = m.bytes();
        break;
      case 2:
        f = m.float32();
        break;
      case 3:
        i = int64_t(m.number());
        break;
      case 4:
        s = m.bytes();
        break;
      case 5:
        t = m.bytes();
        break;
      case 7:
        m.floats([&](float x) { floats.push_back(x); });
        break;
      case 8:
        m.numbers([&](uint64_t x) { ints.push_back(int64_t(x)); });
        break;
      case 9:
        strings.emplace_back(m.bytes());
        break;
      case 20:
        type = m.number();
        break;
      default:
        break;
    }
  BELAY_TRY(Status(m.status()));
  switch (type) {
    case 1:
      node.attr(name, f);
      return {};
    case 2:
      node.attr(name, i);
      return {};
    case 3:
      node.attr(name, s.c_str());
      return {};
    case 4: {
      BELAY_ASSIGN(Tensor tensor, tensor_from(t));
      node.attr(name, std::move(tensor));
      return {};
    }
    case 6:
      node.attr(name, floats);
      return {};
    case 7:
      node.attr(name, ints);
      return {};
    case 8:
      node.attr(name, strings);
      return {};
    default:
      return {Code::kUnimplemented, "attribute '" + name + "' holds a graph or type"};
  }
}

// The file of an input or output. Those of bfloat16 hold the same bits as uint16.
Result<Tensor> value_from(const fs::path& path, uint32_t dtype) {
  if (dtype == BELAY_DT_UNDEFINED) return Status(Code::kUnimplemented, "a value that is no tensor");
  BELAY_ASSIGN(Tensor tensor, tensor_from(read_file(path)));
  if (dtype == BELAY_DT_BFLOAT16 && tensor.dtype == BELAY_DT_UINT16) tensor.dtype = dtype;
  return tensor;
}

// kUnimplemented: no case of ours. The case's expected outputs that are wanted go to `expected`.
Result<Node> node_from(const fs::path& folder, std::vector<Tensor>* expected) {
  const std::string bytes = read_file(folder / "model.onnx");
  BELAY_ASSIGN(Model model, model_from(bytes));
  if (model.nodes.size() != 1)
    return Status(Code::kUnimplemented, std::to_string(model.nodes.size()) + " nodes");
  const fs::path data = folder / "test_data_set_0";
  std::map<std::string, Tensor> values = std::move(model.initializers);
  size_t file = 0;
  for (const std::string_view name : model.inputs) {
    const fs::path path = data / ("input_" + std::to_string(file) + ".pb");
    if (values.contains(std::string(name)) || !fs::exists(path)) continue;
    ++file;
    BELAY_ASSIGN(values[std::string(name)], value_from(path, model.dtypes[std::string(name)]));
  }
  std::string op, domain;
  std::vector<std::string_view> inputs, outputs, attributes;
  wire::Message n(model.nodes[0], bytes.data(), "NodeProto");
  while (n.next()) switch (n.field()) {
      case 1:
        inputs.push_back(n.bytes());
        break;
      case 2:
        outputs.push_back(n.bytes());
        break;
      case 4:
        op = n.bytes();
        break;
      case 5:
        attributes.push_back(n.bytes());
        break;
      case 7:
        domain = n.bytes();
        break;
      default:
        break;
    }
  if (domain == "ai.onnx") domain.clear();
  Node node(op, uint32_t(model.opsets[domain]), domain);
  for (const std::string_view name : inputs) {
    if (name.empty())
      node.absent();
    else
      node.in(values[std::string(name)]);
  }
  for (const std::string_view name : outputs) {
    const auto at = std::find(model.outputs.begin(), model.outputs.end(), name);
    if (name.empty() || at == model.outputs.end()) {
      node.no_out();
      continue;
    }
    const fs::path path = data / ("output_" + std::to_string(at - model.outputs.begin()) + ".pb");
    BELAY_ASSIGN(Tensor tensor, value_from(path, model.dtypes[std::string(name)]));
    node.out(tensor.dtype);
    expected->push_back(std::move(tensor));
  }
  for (const std::string_view attribute : attributes) BELAY_TRY(add_attribute(node, attribute));
  return node;
}

TEST(OnnxCasesTest, SingleNodeCasesGiveTheReferenceOutputs) {
  const fs::path root = "/usr/share/libonnx-testdata/data/node";
  if (!fs::is_directory(root)) GTEST_SKIP() << root << " is missing: install libonnx-testdata.";
  const bool verbose = std::getenv("BELAY_CASES_VERBOSE") != nullptr;
  int passed = 0, failed = 0, unsupported = 0;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename();
    // What a random generator made cannot match.
    if (name.starts_with("test_bernoulli") ||
        (name.starts_with("test_training_dropout") && name.find("zero_ratio") == name.npos))
      continue;
    if (name == "test_adam_multiple")
      continue;  // its data were made with an epsilon that the node does not have
    SCOPED_TRACE(name);
    std::vector<Tensor> expected;
    Result<Node> node = node_from(folder, &expected);
    Outcome outcome;
    if (node.ok()) outcome = node->run();
    const Status status = node.ok() ? outcome.status : node.status();
    if (status.code() == Code::kUnimplemented) {
      ++unsupported;
      if (verbose) printf("unsupported %s: %s\n", name.c_str(), status.message().c_str());
      continue;
    }
    bool good = status.ok();
    EXPECT_TRUE(good) << status.message();
    if (good) {
      size_t k = 0;
      for (const Tensor& actual : outcome.outputs) {
        if (actual.dtype == BELAY_DT_UNDEFINED) continue;
        // The bfloat16 data were cut, not rounded: they may differ in the last of 8 bits.
        const auto same =
            close(actual, expected[k++], actual.dtype == BELAY_DT_BFLOAT16 ? 0x1p-7 : 1e-3, 1e-7);
        EXPECT_TRUE(same) << "output " << k - 1;
        good = good && same;
      }
    }
    ++(good ? passed : failed);
  }
  printf("ONNX single-node cases: %d passed, %d failed, %d without a kernel here or of several nodes\n",
         passed, failed, unsupported);
  EXPECT_GE(passed, 700);
}

}  // namespace
}  // namespace belay::cpu::testing
