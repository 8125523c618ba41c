// Files of ONNX test cases. Facts: onnx.proto and onnx-data.proto.
//   SequenceProto: 1 name, 2 elem_type, 3 tensors, 4 sparse, 5 sequences, 6 maps, 7 optionals
//   OptionalProto: the same numbers, one value at most
//   MapProto: 1 name, 2 key_type, 3 keys, 4 string_keys, 5 values (SequenceProto)
#include <belay/graph/dtype.hpp>
#include <belay/tensor_io.hpp>
#include <belay/tensor_io/onnx_tensor.hpp>

namespace belay {
namespace {

constexpr int kMaxMessageNesting = 32;
constexpr uint32_t kElementTensor = 1, kElementSequence = 3, kElementMap = 4, kElementOptional = 5;

Status nested_too_deep() { return {Code::kInvalidArgument, "The value is nested more than 32 deep."}; }

Result<HostTensor> tensor_of(std::string_view message, const char* base) {
  BELAY_ASSIGN(const onnx::TensorProto proto, onnx::read_tensor(message, base));
  if (proto.data == onnx::TensorProto::Data::kExternal)
    return Status(Code::kInvalidArgument,
                  "Tensor '" + wire::printable(proto.name) + "' has external data, want it in the file.");
  if (proto.data == onnx::TensorProto::Data::kRaw)
    return HostTensor::copy_of(proto.dtype, proto.dims, std::as_bytes(std::span(proto.raw)));
  BELAY_ASSIGN(HostTensor out, HostTensor::make(proto.dtype, proto.dims));
  if (proto.dtype == BELAY_DT_STRING) {
    BELAY_ASSIGN(const auto strings, onnx::read_strings(proto));
    for (size_t i = 0; i < strings.size(); ++i) out.strings[i] = strings[i];
  } else {
    BELAY_TRY(onnx::read_values(proto, out.bytes));
  }
  return out;
}

Result<HostDatum> list_of(std::string_view message, const char* base, uint32_t kind, int depth);
Result<HostDatum> map_of(std::string_view message, const char* base, int depth);

Result<HostDatum> datum_of(std::string_view message, const char* base, uint32_t kind, int depth) {
  if (depth > kMaxMessageNesting) return nested_too_deep();
  switch (kind) {
    case BELAY_TYPE_TENSOR: {
      BELAY_ASSIGN(HostTensor tensor, tensor_of(message, base));
      return HostDatum(std::move(tensor));
    }
    case BELAY_TYPE_SEQUENCE:
    case BELAY_TYPE_OPTIONAL:
      return list_of(message, base, kind, depth);
    case BELAY_TYPE_MAP:
      return map_of(message, base, depth);
    default:
      return Status(Code::kInvalidArgument,
                    "A value of kind " + std::to_string(kind) + " was asked for, want 1 to 4.");
  }
}

Result<HostDatum> list_of(std::string_view message, const char* base, uint32_t kind, int depth) {
  HostDatum out;
  out.kind = kind;
  wire::Message m(message, base, kind == BELAY_TYPE_SEQUENCE ? "SequenceProto" : "OptionalProto");
  while (m.next()) {
    uint32_t item_kind = 0;
    switch (m.field()) {
      case 3:
        item_kind = BELAY_TYPE_TENSOR;
        break;
      case 4:
        return Status(Code::kUnimplemented, "The file holds sparse tensors, which are not supported.");
      case 5:
        item_kind = BELAY_TYPE_SEQUENCE;
        break;
      case 6:
        item_kind = BELAY_TYPE_MAP;
        break;
      case 7:
        item_kind = BELAY_TYPE_OPTIONAL;
        break;
      default:
        continue;
    }
    const std::string_view bytes = m.bytes();
    BELAY_TRY(m.status());
    BELAY_ASSIGN(HostDatum item, datum_of(bytes, base, item_kind, depth + 1));
    out.items.push_back(std::move(item));
  }
  BELAY_TRY(m.status());
  if (kind == BELAY_TYPE_OPTIONAL && out.items.size() > 1)
    return Status(Code::kInvalidArgument,
                  "An OptionalProto has " + std::to_string(out.items.size()) + " values, want at most one.");
  return out;
}

Result<HostDatum> map_of(std::string_view message, const char* base, int depth) {
  int32_t key_type = 0;
  std::vector<HostTensor> keys;
  std::vector<int64_t> numbers;
  std::vector<std::string_view> texts;
  std::optional<HostDatum> values;
  wire::Message m(message, base, "MapProto");
  while (m.next()) switch (m.field()) {
      case 2:
        key_type = int32_t(m.number());
        break;
      case 3:
        m.numbers([&](uint64_t key) { numbers.push_back(int64_t(key)); });
        break;
      case 4:
        texts.push_back(m.bytes());
        break;
      case 5: {
        const std::string_view bytes = m.bytes();
        BELAY_TRY(m.status());
        BELAY_ASSIGN(values, datum_of(bytes, base, BELAY_TYPE_SEQUENCE, depth + 1));
        break;
      }
      default:
        break;
    }
  BELAY_TRY(m.status());
  const DtypeInfo* info = key_type > 0 ? find_dtype(uint32_t(key_type)) : nullptr;
  const bool strings = key_type == BELAY_DT_STRING;
  const bool integers =
      info && (info->name.starts_with("int") || info->name.starts_with("uint")) && info->bits >= 8;
  if (!strings && !integers)
    return Status(Code::kInvalidArgument,
                  "A MapProto has the key type " + std::to_string(key_type) + ", want integers or strings.");
  const size_t count = strings ? texts.size() : numbers.size(), items = values ? values->items.size() : 0;
  if (count != items || (strings ? !numbers.empty() : !texts.empty()))
    return Status(Code::kInvalidArgument, "A MapProto has " + std::to_string(count) + " keys and " +
                                              std::to_string(items) + " values.");
  HostDatum out;
  out.kind = BELAY_TYPE_MAP;
  for (size_t i = 0; i < count; ++i) {
    BELAY_ASSIGN(HostTensor key, HostTensor::make(uint32_t(key_type), {}));
    if (strings) {
      key.strings[0] = texts[i];
    } else {
      std::memcpy(key.bytes.data(), &numbers[i], key.bytes.size());
    }
    out.items.emplace_back(std::move(key));
    out.items.push_back(std::move(values->items[i]));
  }
  return out;
}

void put_tensor(std::string& out, const HostTensor& tensor, std::string_view name) {
  for (const int64_t dim : tensor.dims) wire::put_number(out, 1, uint64_t(dim));
  wire::put_number(out, 2, tensor.dtype);
  for (const std::string& text : tensor.strings) wire::put_bytes(out, 6, text);
  if (!name.empty()) wire::put_bytes(out, 8, name);
  if (tensor.dtype != BELAY_DT_STRING)
    wire::put_bytes(out, 9, {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
}

// Field of SequenceProto and OptionalProto that holds items of this kind, and the elem_type that goes with
// it.
struct Element {
  uint32_t field, type;
};
Element element_of(uint32_t kind) {
  switch (kind) {
    case BELAY_TYPE_SEQUENCE:
      return {5, kElementSequence};
    case BELAY_TYPE_MAP:
      return {6, kElementMap};
    case BELAY_TYPE_OPTIONAL:
      return {7, kElementOptional};
    default:
      return {3, kElementTensor};
  }
}

void put_datum(std::string& out, const HostDatum& datum, std::string_view name) {
  if (datum.kind == BELAY_TYPE_TENSOR) {
    put_tensor(out, datum.tensor, name);
    return;
  }
  if (!name.empty()) wire::put_bytes(out, 1, name);
  if (datum.kind == BELAY_TYPE_MAP) {
    HostDatum values;
    values.kind = BELAY_TYPE_SEQUENCE;
    // An empty map has lost its key type, which the format wants all the same.
    wire::put_number(out, 2, datum.items.empty() ? BELAY_DT_INT64 : datum.items[0].tensor.dtype);
    for (size_t i = 0; i + 1 < datum.items.size(); i += 2) {
      const HostTensor& key = datum.items[i].tensor;
      if (key.dtype == BELAY_DT_STRING) {
        wire::put_bytes(out, 4, key.strings.empty() ? std::string_view() : std::string_view(key.strings[0]));
      } else {
        const bool wide = key.bytes.size() == sizeof(int64_t);
        wire::put_number(out, 3, wide ? key.as<uint64_t>()[0] : uint64_t(int64_t(element_value(key, 0))));
      }
      values.items.push_back(datum.items[i + 1]);
    }
    std::string bytes;
    put_datum(bytes, values, {});
    wire::put_bytes(out, 5, bytes);
    return;
  }
  if (!datum.items.empty()) wire::put_number(out, 2, element_of(datum.items[0].kind).type);
  for (const HostDatum& item : datum.items) {
    std::string bytes;
    put_datum(bytes, item, {});
    wire::put_bytes(out, element_of(item.kind).field, bytes);
  }
}

}  // namespace

Result<HostDatum> parse_pb(std::string_view file, uint32_t kind) {
  return datum_of(file, file.data(), kind, 0);
}

std::string to_pb(const HostDatum& datum, std::string_view name) {
  std::string out;
  put_datum(out, datum, name);
  return out;
}

}  // namespace belay
