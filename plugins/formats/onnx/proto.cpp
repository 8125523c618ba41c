#include "proto.hpp"

#include <belay/tensor_io/wire.hpp>

namespace belay::onnx {
namespace {

Result<std::pair<std::string_view, std::string_view>> read_entry(std::string_view message, const char* base) {
  std::pair<std::string_view, std::string_view> out;
  wire::Message m(message, base, "StringStringEntryProto");
  while (m.next()) {
    if (m.field() == 1) out.first = m.bytes();
    if (m.field() == 2) out.second = m.bytes();
  }
  BELAY_TRY(m.status());
  return out;
}

Result<OpsetImport> read_opset(std::string_view message, const char* base) {
  OpsetImport out;
  wire::Message m(message, base, "OperatorSetIdProto");
  while (m.next()) {
    if (m.field() == 1) out.domain = m.bytes();
    if (m.field() == 2) out.version = int64_t(m.number());
  }
  BELAY_TRY(m.status());
  return out;
}

}  // namespace

Result<ModelProto> read_model(std::string_view file) {
  ModelProto out;
  wire::Message m(file, file.data(), "ModelProto");
  while (m.next()) switch (m.field()) {
      case 1:
        out.ir_version = int64_t(m.number());
        break;
      case 2:
        out.producer_name = m.bytes();
        break;
      case 3:
        out.producer_version = m.bytes();
        break;
      case 4:
        out.domain = m.bytes();
        break;
      case 5:
        out.model_version = int64_t(m.number());
        break;
      case 6:
        out.doc = m.bytes();
        break;
      case 7:
        if (out.graph) return Status(Code::kInvalidArgument, "The model has two graphs, want one.");
        out.graph = m.bytes();
        break;
      case 8: {
        BELAY_ASSIGN(const OpsetImport opset, read_opset(m.bytes(), file.data()));
        out.opsets.push_back(opset);
        break;
      }
      case 14: {
        BELAY_ASSIGN(const auto entry, read_entry(m.bytes(), file.data()));
        out.metadata.push_back(entry);
        break;
      }
      case 20:
        out.training = true;
        break;
      case 25:
        out.functions.push_back(m.bytes());
        break;
      default:
        break;
    }
  BELAY_TRY(m.status());
  return out;
}

Result<GraphProto> read_graph(std::string_view message, const char* base) {
  GraphProto out;
  wire::Message m(message, base, "GraphProto");
  while (m.next()) switch (m.field()) {
      case 1:
        out.nodes.push_back(m.bytes());
        break;
      case 2:
        out.name = m.bytes();
        break;
      case 5:
        out.initializers.push_back(m.bytes());
        break;
      case 11:
        out.inputs.push_back(m.bytes());
        break;
      case 12:
        out.outputs.push_back(m.bytes());
        break;
      case 13:
        out.value_infos.push_back(m.bytes());
        break;
      case 15:
        out.sparse_initializers.push_back(m.bytes());
        break;
      default:
        break;
    }
  BELAY_TRY(m.status());
  return out;
}

Result<NodeProto> read_node(std::string_view message, const char* base) {
  NodeProto out;
  wire::Message m(message, base, "NodeProto");
  while (m.next()) switch (m.field()) {
      case 1:
        out.inputs.push_back(m.bytes());
        break;
      case 2:
        out.outputs.push_back(m.bytes());
        break;
      case 3:
        out.name = m.bytes();
        break;
      case 4:
        out.op = m.bytes();
        break;
      case 5:
        out.attributes.push_back(m.bytes());
        break;
      case 7:
        out.domain = m.bytes();
        break;
      case 8:
        out.overload = m.bytes();
        break;
      default:
        break;
    }
  BELAY_TRY(m.status());
  return out;
}

Result<FunctionProto> read_function(std::string_view message, const char* base) {
  FunctionProto out;
  wire::Message m(message, base, "FunctionProto");
  while (m.next()) switch (m.field()) {
      case 1:
        out.name = m.bytes();
        break;
      case 4:
        out.inputs.push_back(m.bytes());
        break;
      case 5:
        out.outputs.push_back(m.bytes());
        break;
      case 6:
        out.attributes.push_back(m.bytes());
        break;
      case 7:
        out.nodes.push_back(m.bytes());
        break;
      case 9: {
        BELAY_ASSIGN(const OpsetImport opset, read_opset(m.bytes(), base));
        out.opsets.push_back(opset);
        break;
      }
      case 10:
        out.domain = m.bytes();
        break;
      case 11:
        out.defaults.push_back(m.bytes());
        break;
      case 12:
        out.value_infos.push_back(m.bytes());
        break;
      case 13:
        out.overload = m.bytes();
        break;
      default:
        break;
    }
  BELAY_TRY(m.status());
  return out;
}

Result<ValueInfoProto> read_value_info(std::string_view message, const char* base) {
  ValueInfoProto out;
  wire::Message m(message, base, "ValueInfoProto");
  while (m.next()) {
    if (m.field() == 1) out.name = m.bytes();
    if (m.field() == 2) out.type = m.bytes();
  }
  BELAY_TRY(m.status());
  return out;
}

Result<AttributeProto> read_attribute(std::string_view message, const char* base) {
  AttributeProto out;
  wire::Message m(message, base, "AttributeProto");
  const auto present = [&](int kind) { out.present |= 1u << kind; };
  while (m.next()) switch (m.field()) {
      case 1:
        out.name = m.bytes();
        break;
      case 2:
        out.f = m.float32(), present(1);
        break;
      case 3:
        out.i = int64_t(m.number()), present(2);
        break;
      case 4:
        out.s = m.bytes(), present(3);
        break;
      case 5:
        out.tensor = m.bytes(), present(4);
        break;
      case 6:
        out.graph = m.bytes(), present(5);
        break;
      case 7:
        m.floats([&](float value) { out.floats.push_back(value); }), present(6);
        break;
      case 8:
        m.numbers([&](uint64_t value) { out.ints.push_back(int64_t(value)); }), present(7);
        break;
      case 9:
        out.strings.push_back(m.bytes()), present(8);
        break;
      case 10:
        out.tensors.push_back(m.bytes()), present(9);
        break;
      case 11:
        out.graphs.push_back(m.bytes()), present(10);
        break;
      case 14:
        out.tp = m.bytes(), present(13);
        break;
      case 15:
        present(14);
        break;  // type_protos
      case 20:
        out.type = int64_t(m.number());
        break;
      case 21:
        out.reference = m.bytes();
        break;
      case 22:
        present(11);
        break;  // sparse_tensor
      case 23:
        present(12);
        break;  // sparse_tensors
      default:
        break;
    }
  BELAY_TRY(m.status());
  return out;
}

}  // namespace belay::onnx
