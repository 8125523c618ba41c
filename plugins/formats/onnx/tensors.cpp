#include "importer.hpp"

#include <belay/graph/dtype.hpp>
#include <belay/tensor_io/wire.hpp>

#include <algorithm>

namespace belay::onnx {
namespace {

constexpr int kMaxTypeDepth = 16;
constexpr size_t kMaxRank = 32;

// The location of external data without "." and "a/..": relative, below the model's folder. Decided by the
// text alone, before anything is looked up, so that whether a file outside exists does not show.
Result<std::string> safe_location(std::string_view location, const std::string& tensor) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kPermissionDenied,
                  tensor + " has its data in " + quoted(location) + ", which " + why + ".");
  };
  if (location.empty()) return refuse("is empty");
  if (location.find('\0') != std::string_view::npos) return refuse("has a zero byte");
  if (location.find('\\') != std::string_view::npos) return refuse("has a backslash; want / between folders");
  if (location.front() == '/') return refuse("is absolute; want a name relative to the model");
  if (location.size() >= 2 && location[1] == ':')
    return refuse("has a drive letter; want a name relative to the model");
  std::vector<std::string_view> parts;
  for (std::string_view rest = location; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (parts.empty()) return refuse("leaves the model's folder");
      parts.pop_back();
    } else {
      parts.push_back(part);
    }
  }
  if (parts.empty()) return refuse("names no file");
  std::string out;
  for (const std::string_view part : parts) out.append(out.empty() ? "" : "/").append(part);
  return out;
}

}  // namespace

Result<Importer::Constant> Importer::add_tensor(const TensorProto& tensor, std::string_view name) {
  const std::string text = wire::utf8(name);
  const uint32_t type = builder_.tensor_type(tensor.dtype, tensor.dims);
  switch (tensor.data) {
    case TensorProto::Data::kExternal:
      return add_external(tensor, name);
    case TensorProto::Data::kRaw:
      // A bool of another value than 0 and 1 is undefined behaviour in whatever kernel reads it as one.
      if (tensor.dtype == BELAY_DT_BOOL)
        for (const char c : tensor.raw)
          if (uint8_t(c) > 1)
            return invalid("Tensor " + quoted(tensor.name) + " has a bool of value " +
                           std::to_string(uint8_t(c)) + ", want 0 or 1.");
      if (tensor.bytes == 0)
        return Constant{builder_.add_constant(text, tensor.dtype, tensor.dims, {"", 0}), type};
      return Constant{builder_.add_constant_at(text, tensor.dtype, tensor.dims, 0,
                                               uint64_t(tensor.raw.data() - base_), tensor.bytes),
                      type};
    case TensorProto::Data::kTyped:
      break;
  }
  if (tensor.dtype == BELAY_DT_STRING) {
    BELAY_ASSIGN(const auto strings, read_strings(tensor));
    return Constant{builder_.add_string_constant(text, tensor.dims, strings), type};
  }
  std::vector<std::byte> values(tensor.bytes);  // as many as the file has, at most 8 times its size
  BELAY_TRY(read_values(tensor, values));
  return Constant{builder_.add_constant(text, tensor.dtype, tensor.dims, {values.data(), values.size()}),
                  type};
}

Result<Importer::Constant> Importer::add_external(const TensorProto& tensor, std::string_view name) {
  const std::string text = "Tensor " + quoted(tensor.name.empty() ? name : tensor.name);
  BELAY_ASSIGN(const std::string location, safe_location(tensor.location, text));
  auto opened = files_.open(location);
  if (!opened.ok())
    return std::move(opened).status().while_doing("opening external data " + quoted(tensor.location) +
                                                  " of tensor " +
                                                  quoted(tensor.name.empty() ? name : tensor.name));
  const Files::Side side = *opened;
  const std::string file = text + " has its data in " + quoted(tensor.location);
  if (tensor.offset > side.bytes.size() || tensor.bytes > side.bytes.size() - tensor.offset)
    return invalid(file + " at byte " + std::to_string(tensor.offset) + ", " + std::to_string(tensor.bytes) +
                   " bytes; the file has " + std::to_string(side.bytes.size()) + ".");
  if (!tensor.length && tensor.bytes != side.bytes.size() - tensor.offset)
    return invalid(file + " from byte " + std::to_string(tensor.offset) + " to its end, " +
                   std::to_string(side.bytes.size() - tensor.offset) + " bytes; want " +
                   std::to_string(tensor.bytes) + ".");
  for (; sources_ <= side.source; ++sources_) builder_.add_source(sources_ == side.source ? location : "", 0);
  builder_.set_source_bytes(side.source, side.bytes.size());
  if (tensor.dtype == BELAY_DT_BOOL)
    for (const char c : side.bytes.substr(tensor.offset, tensor.bytes))
      if (uint8_t(c) > 1)
        return invalid(file + ", where a bool has the value " + std::to_string(uint8_t(c)) +
                       ", want 0 or 1.");
  return Constant{builder_.add_constant_at(wire::utf8(name), tensor.dtype, tensor.dims, side.source,
                                           tensor.offset, tensor.bytes),
                  builder_.tensor_type(tensor.dtype, tensor.dims)};
}

// ---- types: TypeProto 1 tensor, 4 sequence, 5 map, 7 opaque, 8 sparse tensor, 9 optional
// ---------------------------------

namespace {

struct TensorType {
  int64_t dtype = 0;
  std::optional<std::vector<graph::Dim>> shape;
};

Result<graph::Dim> read_dim(std::string_view message, const char* base, std::string_view value,
                            size_t index) {
  graph::Dim out;
  wire::Message m(message, base, "TensorShapeProto.Dimension");
  while (m.next()) {
    if (m.field() == 1) {
      out.value = int64_t(m.number());
      if (out.value < 0 && m.status().ok())
        return invalid("Value " + quoted(value) + " has the dim " + std::to_string(out.value) + " at " +
                       std::to_string(index) + ", want 0 or more, or a name.");
    }
    if (m.field() == 2) out.symbol = wire::utf8(m.bytes());
  }
  BELAY_TRY(m.status());
  if (out.value >= 0) out.symbol.clear();
  return out;
}

// TypeProto.Tensor: 1 elem_type, 2 shape (TensorShapeProto: 1 dim).
Result<TensorType> read_tensor_type(std::string_view message, const char* base, std::string_view value) {
  TensorType out;
  wire::Message m(message, base, "TypeProto.Tensor");
  while (m.next()) {
    if (m.field() == 1) out.dtype = int32_t(m.number());
    if (m.field() != 2) continue;
    out.shape.emplace();
    wire::Message dims(m.bytes(), base, "TensorShapeProto");
    while (dims.next()) {
      if (dims.field() != 1) continue;
      BELAY_ASSIGN(graph::Dim dim, read_dim(dims.bytes(), base, value, out.shape->size()));
      if (out.shape->size() == kMaxRank) return invalid("Value " + quoted(value) + " has more than 32 dims.");
      out.shape->push_back(std::move(dim));
    }
    BELAY_TRY(dims.status());
  }
  BELAY_TRY(m.status());
  return out;
}

// A shape that is known must be one that can be: the product of its dims, in bytes, below 2^63.
Status check_size(const TensorType& type, std::string_view value) {
  std::vector<int64_t> known;
  for (const graph::Dim& dim : *type.shape)
    if (dim.value >= 0) known.push_back(dim.value);
  const auto count = element_count(known);
  const auto bytes =
      count && type.dtype != BELAY_DT_STRING ? dtype_bytes(uint32_t(type.dtype), *count) : count;
  if (!count || !bytes || *bytes > uint64_t(INT64_MAX))
    return invalid("Value " + quoted(value) + " has more bytes than 63 bits count.");
  return {};
}

}  // namespace

// BELAY_NONE for a type that is left open: an empty one, or a tensor of no element type.
Result<uint32_t> Importer::add_type(std::string_view message, std::string_view value, int depth) {
  if (depth > kMaxTypeDepth)
    return invalid("The type of value " + quoted(value) + " is nested more than 16 deep.");
  uint32_t out = BELAY_NONE;
  wire::Message m(message, base_, "TypeProto");
  while (m.next()) switch (m.field()) {
      case 1: {
        BELAY_ASSIGN(const TensorType type, read_tensor_type(m.bytes(), base_, value));
        if (type.dtype == 0) break;
        if (type.dtype < 0 || type.dtype > BELAY_DT_INT2)
          return invalid("Value " + quoted(value) + " has the element type " + std::to_string(type.dtype) +
                         ", which is not known.");
        if (type.shape) BELAY_TRY(check_size(type, value));
        out = builder_.tensor_type(uint32_t(type.dtype), type.shape);
        break;
      }
      case 4:
      case 9: {
        std::optional<std::string_view> element;
        wire::Message inner(m.bytes(), base_, "TypeProto.Sequence");
        const bool sequence = m.field() == 4;
        while (inner.next())
          if (inner.field() == 1) element = inner.bytes();
        BELAY_TRY(inner.status());
        if (!element) break;
        BELAY_ASSIGN(const uint32_t type, add_type(*element, value, depth + 1));
        if (type != BELAY_NONE) out = sequence ? builder_.sequence_type(type) : builder_.optional_type(type);
        break;
      }
      case 5: {
        int64_t key = 0;
        std::optional<std::string_view> element;
        wire::Message inner(m.bytes(), base_, "TypeProto.Map");
        while (inner.next()) {
          if (inner.field() == 1) key = int32_t(inner.number());
          if (inner.field() == 2) element = inner.bytes();
        }
        BELAY_TRY(inner.status());
        if (key < 1 || key > BELAY_DT_INT2)
          return invalid("Value " + quoted(value) + " is a map with the key type " + std::to_string(key) +
                         ", which is not known.");
        if (!element) break;
        BELAY_ASSIGN(const uint32_t type, add_type(*element, value, depth + 1));
        if (type != BELAY_NONE) out = builder_.map_type(uint32_t(key), type);
        break;
      }
      case 7:
        return Status(Code::kUnimplemented,
                      "Value " + quoted(value) + " is of an opaque type, which is not supported.");
      case 8:
        return Status(Code::kUnimplemented,
                      "Value " + quoted(value) + " is a sparse tensor, which is not supported.");
      default:
        break;
    }
  BELAY_TRY(m.status());
  return out;
}

}  // namespace belay::onnx
