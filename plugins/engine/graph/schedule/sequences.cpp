// Operators on sequences and optionals, and the cutting and joining of tensors that they and loops need.
#include "schedule/session.hpp"

#include <algorithm>
#include <cstring>

namespace belay::schedule {
namespace {

// Bits of an element.
uint64_t width_of(uint32_t dtype) {
  if (dtype == BELAY_DT_STRING) return sizeof(belay_str) * 8;
  const DtypeInfo* info = find_dtype(dtype);
  return info ? info->bits : 0;
}

// Copies `bits` bits from bit `from_at` on to where they begin at bit `to_at`: elements of less than a byte begin anywhere.
void copy_bits(const Value& from, uint64_t from_at, Value& to, uint64_t to_at, uint64_t bits) {
  const auto* source = static_cast<const uint8_t*>(from.host);
  auto* target = static_cast<uint8_t*>(to.host);
  if (!bits) return;
  if (from_at % 8 == 0 && to_at % 8 == 0 && bits % 8 == 0) {
    std::memcpy(target + to_at / 8, source + from_at / 8, bits / 8);
    return;
  }
  for (uint64_t i = 0; i < bits; ++i) {
    const uint8_t bit = uint8_t(1u << ((to_at + i) % 8));
    uint8_t& byte = target[(to_at + i) / 8];
    byte = source[(from_at + i) / 8] >> ((from_at + i) % 8) & 1 ? uint8_t(byte | bit) : uint8_t(byte & ~bit);
  }
}

// Texts of string elements lie in the memory of the values they came from: the result keeps those.
void keep(Value& result, std::span<const Value> parts) {
  if (result.dtype == BELAY_DT_STRING)
    result.keeper = std::make_shared<std::vector<Value>>(parts.begin(), parts.end());
}

Result<int64_t> scalar(Session& session, Value value, const char* what) {
  BELAY_TRY(session.to_host(value));
  if (!value.is_tensor() || value.count() != 1 ||
      (value.dtype != BELAY_DT_INT64 && value.dtype != BELAY_DT_INT32))
    return Status(Code::kInvalidArgument,
                  std::string("The ") + what + " is " + ir::to_string(value.type()) + ", want one integer.");
  if (value.dtype == BELAY_DT_INT32) {
    int32_t narrow = 0;
    std::memcpy(&narrow, value.host, sizeof narrow);
    return narrow;
  }
  int64_t wide = 0;
  std::memcpy(&wide, value.host, sizeof wide);
  return wide;
}

// Position in a sequence of `size`; `end`: one past the last is allowed.
Result<size_t> position(int64_t at, size_t size, bool end) {
  const int64_t limit = int64_t(size) + (end ? 1 : 0);
  if (at < -int64_t(size) || at >= limit)
    return Status(Code::kOutOfRange, "Position " + std::to_string(at) + " is not in a sequence of " +
                                         std::to_string(size) + ".");
  return size_t(at < 0 ? at + int64_t(size) : at);
}

Result<Value> split(const ir::Node& node, Session& session, Value from, Value lengths, bool given) {
  BELAY_TRY(session.to_host(from));
  const int64_t rank = int64_t(from.dims.size());
  int64_t axis = node.int_or("axis", 0);
  if (axis < -rank || axis >= rank)
    return Status(Code::kInvalidArgument, "Axis " + std::to_string(axis) + " is out of range.");
  if (axis < 0) axis += rank;
  const int64_t dim = from.dims[size_t(axis)];
  ir::Dims sizes;
  bool drop = false;
  if (!given) {
    sizes.assign(size_t(dim), 1);
    drop = node.int_or("keepdims", 1) == 0;
  } else if (lengths.dims.empty()) {
    BELAY_ASSIGN(const int64_t each, scalar(session, lengths, "split"));
    if (each <= 0)
      return Status(Code::kInvalidArgument, "The split is " + std::to_string(each) + ", want more than 0.");
    for (int64_t at = 0; at < dim; at += each) sizes.push_back(std::min(each, dim - at));
  } else {
    BELAY_TRY(session.to_host(lengths));
    for (uint64_t i = 0; i < lengths.count(); ++i) {
      Value one = lengths;
      one.dims.clear();
      one.bytes = lengths.dtype == BELAY_DT_INT32 ? 4 : 8;
      one.host = static_cast<char*>(lengths.host) + i * one.bytes;
      BELAY_ASSIGN(const int64_t size, scalar(session, one, "split"));
      if (size < 0) return Status(Code::kInvalidArgument, "The split has a negative entry.");
      sizes.push_back(size);
    }
  }
  std::vector<Value> items;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    if (begin + size > dim)
      return Status(Code::kInvalidArgument, "The split adds up to more than " + std::to_string(dim) + ".");
    BELAY_ASSIGN(Value item, cut(session.pool(), from, axis, begin, begin + size, drop));
    items.push_back(std::move(item));
    begin += size;
  }
  if (begin != dim)
    return Status(Code::kInvalidArgument, "The split adds up to " + std::to_string(begin) + ", the dim is " +
                                              std::to_string(dim) + ".");
  Value out = make_sequence(std::move(items));
  out.dtype = from.dtype;
  return out;
}

Status run(const ir::Node& node, Session& session, Frame& frame, std::vector<Value>& outputs) {
  const auto in = [&](size_t i) -> const Value& { return frame.get(node.input(i)); };
  const auto items = [&]() -> std::vector<Value> {
    return in(0).items ? *in(0).items : std::vector<Value>();
  };
  if (node.op == "Identity") {
    outputs[0] = in(0);
  } else if (node.op == "SequenceConstruct") {
    std::vector<Value> all;
    for (const ir::ValueId id : node.inputs) all.push_back(frame.get(id));
    outputs[0] = make_sequence(std::move(all));
  } else if (node.op == "SequenceEmpty") {
    outputs[0] = make_sequence({});
    outputs[0].dtype = uint32_t(node.int_or("dtype", BELAY_DT_FLOAT32));
  } else if (node.op == "SequenceLength") {
    BELAY_ASSIGN(outputs[0], make_tensor(session.pool(), BELAY_DT_INT64, {}));
    const int64_t length = int64_t(in(0).items ? in(0).items->size() : 0);
    std::memcpy(outputs[0].host, &length, sizeof length);
  } else if (node.op == "SequenceAt") {
    const std::vector<Value> all = items();
    BELAY_ASSIGN(const int64_t at, scalar(session, in(1), "position"));
    BELAY_ASSIGN(const size_t index, position(at, all.size(), false));
    outputs[0] = all[index];
  } else if (node.op == "SequenceInsert") {
    std::vector<Value> all = items();
    size_t index = all.size();
    if (node.input(2) != BELAY_NONE) {
      BELAY_ASSIGN(const int64_t at, scalar(session, in(2), "position"));
      BELAY_ASSIGN(index, position(at, all.size(), true));
    }
    all.insert(all.begin() + long(index), in(1));
    outputs[0] = make_sequence(std::move(all));
  } else if (node.op == "SequenceErase") {
    std::vector<Value> all = items();
    int64_t at = -1;
    if (node.input(1) != BELAY_NONE) {
      BELAY_ASSIGN(at, scalar(session, in(1), "position"));
    }
    BELAY_ASSIGN(const size_t index, position(at, all.size(), false));
    all.erase(all.begin() + long(index));
    const uint32_t dtype = in(0).dtype;
    outputs[0] = make_sequence(std::move(all));
    outputs[0].dtype = dtype;
  } else if (node.op == "SplitToSequence") {
    BELAY_ASSIGN(outputs[0], split(node, session, in(0), in(1), node.input(1) != BELAY_NONE));
  } else if (node.op == "ConcatFromSequence") {
    std::vector<Value> all = items();
    for (Value& item : all) BELAY_TRY(session.to_host(item));
    BELAY_ASSIGN(outputs[0],
                 join(session.pool(), all, node.int_or("axis", 0), node.int_or("new_axis", 0) != 0));
  } else if (node.op == "Optional") {
    Value& out = outputs[0];
    out.kind = BELAY_TYPE_OPTIONAL;
    out.items = std::make_shared<std::vector<Value>>();
    if (node.input(0) != BELAY_NONE) {
      out.dtype = in(0).dtype;
      out.items->push_back(in(0));
    } else if (const ir::Attribute* type = node.find("type")) {
      const ir::Type* of = &type->type;
      while (of->element) of = of->element.get();
      out.dtype = of->dtype;
    }
  } else if (node.op == "OptionalHasElement") {
    BELAY_ASSIGN(outputs[0], make_tensor(session.pool(), BELAY_DT_BOOL, {}));
    const Value& of = in(0);
    *static_cast<uint8_t*>(outputs[0].host) =
        of.kind && (of.kind != BELAY_TYPE_OPTIONAL || (of.items && !of.items->empty()));
  } else {  // OptionalGetElement
    const Value& of = in(0);
    if (of.kind != BELAY_TYPE_OPTIONAL)
      outputs[0] = of;
    else if (of.items && !of.items->empty())
      outputs[0] = of.items->front();
    else
      return {Code::kInvalidArgument, "The optional is empty."};
  }
  return {};
}

}  // namespace

std::optional<Status> run_sequence_op(const ir::Node& node, Session& session, Frame& frame,
                                      std::vector<Value>& outputs) {
  if (!node.domain.empty() || node.op == "If" || node.op == "Loop" || node.op == "Scan" ||
      node.op == "SequenceMap")
    return std::nullopt;
  return run(node, session, frame, outputs);
}

Result<Value> join(StoragePool& pool, std::span<const Value> parts, int64_t axis, bool fresh) {
  if (parts.empty()) return Status(Code::kInvalidArgument, "An empty sequence cannot be joined.");
  ir::Dims dims = parts[0].dims;
  const int64_t rank = int64_t(dims.size()) + (fresh ? 1 : 0);
  if (axis < -rank || axis >= rank)
    return Status(Code::kInvalidArgument, "Axis " + std::to_string(axis) + " is out of range.");
  if (axis < 0) axis += rank;
  int64_t total = 0;
  for (const Value& part : parts) {
    if (part.dtype != parts[0].dtype || part.dims.size() != parts[0].dims.size())
      return Status(Code::kInvalidArgument, "Parts of " + ir::to_string(parts[0].type()) + " and " +
                                                ir::to_string(part.type()) + " do not join.");
    for (size_t i = 0; i < part.dims.size(); ++i)
      if ((fresh || int64_t(i) != axis) && part.dims[i] != parts[0].dims[i])
        return Status(Code::kInvalidArgument, "Parts of " + ir::to_string(parts[0].type()) + " and " +
                                                  ir::to_string(part.type()) + " do not join.");
    total += fresh ? 1 : part.dims[size_t(axis)];
  }
  const uint64_t width = width_of(parts[0].dtype);
  if (!width)
    return Status(Code::kUnimplemented,
                  "Tensors of " + std::string(dtype_name(parts[0].dtype)) + " cannot be joined.");
  if (fresh)
    dims.insert(dims.begin() + axis, total);
  else
    dims[size_t(axis)] = total;
  uint64_t outer = 1, inner = width;
  for (int64_t i = 0; i < axis; ++i) outer *= uint64_t(dims[size_t(i)]);
  for (int64_t i = axis + 1; i < rank; ++i) inner *= uint64_t(dims[size_t(i)]);
  BELAY_ASSIGN(Value out, make_tensor(pool, parts[0].dtype, std::move(dims)));
  uint64_t to = 0;
  for (uint64_t o = 0; o < outer; ++o)
    for (const Value& part : parts) {
      const uint64_t run = (fresh ? 1 : uint64_t(part.dims[size_t(axis)])) * inner;
      copy_bits(part, o * run, out, to, run);
      to += run;
    }
  keep(out, parts);
  return out;
}

Result<Value> cut(StoragePool& pool, const Value& from, int64_t axis, int64_t begin, int64_t end, bool drop) {
  const uint64_t width = width_of(from.dtype);
  if (!width)
    return Status(Code::kUnimplemented,
                  "Tensors of " + std::string(dtype_name(from.dtype)) + " cannot be cut.");
  ir::Dims dims = from.dims;
  uint64_t outer = 1, inner = width;
  for (int64_t i = 0; i < axis; ++i) outer *= uint64_t(dims[size_t(i)]);
  for (size_t i = size_t(axis) + 1; i < dims.size(); ++i) inner *= uint64_t(dims[i]);
  const uint64_t row = uint64_t(dims[size_t(axis)]) * inner, run = uint64_t(end - begin) * inner;
  if (drop)
    dims.erase(dims.begin() + axis);
  else
    dims[size_t(axis)] = end - begin;
  const uint64_t first = uint64_t(begin) * inner;
  if (outer == 1 && run && first % 8 == 0 && run % 8 == 0) {  // the bytes lie together: the same memory
    Value out = from;
    out.dims = std::move(dims);
    out.host = static_cast<char*>(from.host) + first / 8;
    out.bytes = run / 8;
    return out;
  }
  BELAY_ASSIGN(Value out, make_tensor(pool, from.dtype, std::move(dims)));
  for (uint64_t o = 0; o < outer; ++o) copy_bits(from, o * row + first, out, o * run, run);
  keep(out, {&from, 1});
  return out;
}

}  // namespace belay::schedule
