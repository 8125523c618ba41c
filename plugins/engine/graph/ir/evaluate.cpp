#include "ir/evaluate.hpp"

#include "ir/infer.hpp"

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>

namespace belay::ir {
namespace {

using Outputs = std::optional<std::vector<ConstantPtr>>;

Outputs one(ConstantPtr constant) {
  if (!constant) return std::nullopt;
  return std::vector<ConstantPtr>{std::move(constant)};
}

// A constant of integer or bool type from int64 elements, wrapped as the type wraps.
ConstantPtr from_ints(uint32_t dtype, const std::vector<int64_t>& values, Dims dims) {
  auto out = make_constant(dtype, std::move(dims));
  if (!out) return nullptr;
  auto* to = const_cast<std::byte*>(out->data);
  const uint64_t width = find_dtype(dtype)->bits / 8;
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(to + i * width, &values[i], width);  // little-endian
  return out;
}

bool whole(uint32_t dtype) {
  switch (dtype) {
    case BELAY_DT_INT64:
    case BELAY_DT_INT32:
    case BELAY_DT_INT16:
    case BELAY_DT_INT8:
    case BELAY_DT_UINT32:
    case BELAY_DT_UINT16:
    case BELAY_DT_UINT8:
    case BELAY_DT_BOOL:
      return true;
    default:
      return false;  // uint64 does not fit the int64 that is computed in
  }
}

// Strides of an operand broadcast to `dims`: 0 where it is repeated.
std::vector<size_t> broadcast_strides(const Dims& from, const Dims& dims) {
  std::vector<size_t> out(dims.size(), 0);
  size_t stride = 1;
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t at = from.size() - 1 - i;
    if (from[at] != 1) out[dims.size() - 1 - i] = stride;
    stride *= size_t(from[at]);
  }
  return out;
}

template <class Body>
void for_each_index(const Dims& dims, std::span<const std::vector<size_t>> strides, Body body) {
  std::vector<size_t> index(dims.size(), 0), at(strides.size(), 0);
  const uint64_t count = element_count(dims).value_or(0);
  for (uint64_t i = 0; i < count; ++i) {
    body(i, at);
    for (size_t d = dims.size(); d-- > 0;) {
      for (size_t k = 0; k < strides.size(); ++k) at[k] += strides[k][d];
      if (++index[d] < size_t(dims[d])) break;
      for (size_t k = 0; k < strides.size(); ++k) at[k] -= strides[k][d] * index[d];
      index[d] = 0;
    }
  }
}

// Copies elements of any fixed width by a list of source indices.
ConstantPtr pick(const Constant& from, Dims dims, const std::vector<size_t>& indices) {
  auto out = make_constant(from.dtype, std::move(dims));
  if (!out) return nullptr;
  const uint64_t width = find_dtype(from.dtype)->bits / 8;
  for (size_t i = 0; i < indices.size(); ++i)
    std::memcpy(const_cast<std::byte*>(out->data) + i * width, from.data + indices[i] * width, width);
  return out;
}

ConstantPtr reshaped(const Constant& from, Dims dims) {
  auto out = make_constant(from.dtype, std::move(dims));
  if (out && out->bytes == from.bytes)
    std::memcpy(const_cast<std::byte*>(out->data), from.data, from.bytes);
  else
    return nullptr;
  return out;
}

Outputs binary(const Node& node, const Constant& a, const Constant& b, const Type& type) {
  const std::vector<size_t> strides[2] = {broadcast_strides(a.dims, type.dims),
                                          broadcast_strides(b.dims, type.dims)};
  const uint64_t count = element_count(type.dims).value_or(UINT64_MAX);
  const std::string& op = node.op;
  if (whole(a.dtype) && whole(b.dtype)) {
    const auto x = as_int64s(a), y = as_int64s(b);
    if (!x || !y) return std::nullopt;
    std::vector<int64_t> out(count);
    bool ok = true;
    for_each_index(type.dims, strides, [&](uint64_t i, const std::vector<size_t>& at) {
      const int64_t l = (*x)[at[0]], r = (*y)[at[1]];
      const auto wrap = [](auto f, int64_t p, int64_t q) { return int64_t(f(uint64_t(p), uint64_t(q))); };
      if (op == "Add")
        out[i] = wrap(std::plus<uint64_t>(), l, r);
      else if (op == "Sub")
        out[i] = wrap(std::minus<uint64_t>(), l, r);
      else if (op == "Mul")
        out[i] = wrap(std::multiplies<uint64_t>(), l, r);
      else if (op == "Div") {
        if (r == 0 || (l == INT64_MIN && r == -1))
          ok = false;
        else
          out[i] = l / r;
      } else if (op == "Mod") {
        if (r == 0 || r == -1 || node.int_or("fmod", 0))
          ok = false;
        else {
          out[i] = l % r;
          if (out[i] && (out[i] < 0) != (r < 0)) out[i] += r;
        }
      } else if (op == "Min")
        out[i] = std::min(l, r);
      else if (op == "Max")
        out[i] = std::max(l, r);
      else if (op == "Equal")
        out[i] = l == r;
      else if (op == "Less")
        out[i] = l < r;
      else if (op == "LessOrEqual")
        out[i] = l <= r;
      else if (op == "Greater")
        out[i] = l > r;
      else if (op == "GreaterOrEqual")
        out[i] = l >= r;
      else if (op == "And")
        out[i] = l && r;
      else if (op == "Or")
        out[i] = l || r;
      else if (op == "Xor")
        out[i] = (l != 0) != (r != 0);
      else
        ok = false;
    });
    return ok ? one(from_ints(type.dtype, out, type.dims)) : std::nullopt;
  }
  // Only float32 and float64: with halves the rounding of each kernel would have to be met.
  if (a.dtype != b.dtype || (a.dtype != BELAY_DT_FLOAT32 && a.dtype != BELAY_DT_FLOAT64)) return std::nullopt;
  const auto x = as_doubles(a), y = as_doubles(b);
  if (!x || !y) return std::nullopt;
  std::vector<double> out(count);
  std::vector<int64_t> flags(count);
  bool ok = true, compares = false;
  for_each_index(type.dims, strides, [&](uint64_t i, const std::vector<size_t>& at) {
    const double l = (*x)[at[0]], r = (*y)[at[1]];
    // One operation in double on float32 operands, rounded once to float32, is the float32 operation.
    if (op == "Add")
      out[i] = l + r;
    else if (op == "Sub")
      out[i] = l - r;
    else if (op == "Mul")
      out[i] = l * r;
    else if (op == "Div")
      out[i] = l / r;
    else if (op == "Equal") {
      compares = true;
      flags[i] = l == r;
    } else if (op == "Less") {
      compares = true;
      flags[i] = l < r;
    } else if (op == "LessOrEqual") {
      compares = true;
      flags[i] = l <= r;
    } else if (op == "Greater") {
      compares = true;
      flags[i] = l > r;
    } else if (op == "GreaterOrEqual") {
      compares = true;
      flags[i] = l >= r;
    } else
      ok = false;
  });
  if (!ok) return std::nullopt;
  return one(compares || type.dtype == BELAY_DT_BOOL ? from_ints(BELAY_DT_BOOL, flags, type.dims)
                                                     : make_floats(type.dtype, out, type.dims));
}

Outputs cast(const Constant& from, const Type& type) {
  if (from.dtype == type.dtype) return one(reshaped(from, from.dims));
  if (whole(from.dtype)) {
    const auto values = as_int64s(from);
    if (!values) return std::nullopt;
    if (type.dtype == BELAY_DT_BOOL) {
      std::vector<int64_t> flags;
      for (const int64_t value : *values) flags.push_back(value != 0);
      return one(from_ints(type.dtype, flags, from.dims));
    }
    if (whole(type.dtype)) return one(from_ints(type.dtype, *values, from.dims));
    if (type.dtype == BELAY_DT_FLOAT64)
      return one(make_floats(type.dtype, std::vector<double>(values->begin(), values->end()), from.dims));
    if (type.dtype == BELAY_DT_FLOAT32) {
      std::vector<double> rounded;
      for (const int64_t value : *values)
        rounded.push_back(double(float(value)));  // once, not by way of double
      return one(make_floats(type.dtype, rounded, from.dims));
    }
    return std::nullopt;
  }
  if (from.dtype != BELAY_DT_FLOAT32 && from.dtype != BELAY_DT_FLOAT64) return std::nullopt;
  const auto values = as_doubles(from);
  if (!values) return std::nullopt;
  if (type.dtype == BELAY_DT_FLOAT32 || type.dtype == BELAY_DT_FLOAT64)
    return one(make_floats(type.dtype, *values, from.dims));
  if (type.dtype != BELAY_DT_INT64 && type.dtype != BELAY_DT_INT32 && type.dtype != BELAY_DT_BOOL)
    return std::nullopt;
  std::vector<int64_t> out;
  for (const double value : *values) {
    if (type.dtype == BELAY_DT_BOOL) {
      out.push_back(value != 0);
      continue;
    }
    const double limit = type.dtype == BELAY_DT_INT32 ? 2147483648.0 : 9223372036854775808.0;
    if (!(std::trunc(value) >= -limit && std::trunc(value) < limit))
      return std::nullopt;  // not defined: leave it to the kernel
    out.push_back(int64_t(value));
  }
  return one(from_ints(type.dtype, out, from.dims));
}

Outputs unary(const std::string& op, const Constant& from) {
  if (whole(from.dtype) && (op == "Neg" || op == "Abs" || op == "Not" || op == "Sign")) {
    const auto values = as_int64s(from);
    if (!values) return std::nullopt;
    std::vector<int64_t> out;
    for (const int64_t value : *values) {
      const int64_t negated = int64_t(uint64_t{0} - uint64_t(value));
      out.push_back(op == "Not"                 ? !value
                    : op == "Sign"              ? (value > 0) - (value < 0)
                    : op == "Abs" && value >= 0 ? value
                                                : negated);
    }
    return one(from_ints(from.dtype, out, from.dims));
  }
  static const std::map<std::string_view, double (*)(double)> functions = {
      {"Floor", std::floor}, {"Ceil", std::ceil}, {"Round", std::nearbyint}, {"Abs", std::fabs}, {"Sqrt", std::sqrt},
      {"Neg", [](double x) { return -x; }}};
  const auto function = functions.find(op);
  if (function == functions.end() || (from.dtype != BELAY_DT_FLOAT32 && from.dtype != BELAY_DT_FLOAT64))
    return std::nullopt;
  auto values = as_doubles(from);
  if (!values) return std::nullopt;
  for (double& value : *values) value = function->second(value);
  return one(make_floats(from.dtype, *values, from.dims));
}

Outputs concat(const Env& env, const Node& node, const Type& type) {
  auto out = make_constant(type.dtype, type.dims);
  if (!out) return std::nullopt;
  const int64_t rank = int64_t(type.dims.size());
  const int64_t axis = node.int_or("axis", 1) < 0 ? node.int_or("axis", 1) + rank : node.int_or("axis", 1);
  const uint64_t width = find_dtype(type.dtype)->bits / 8;
  uint64_t outer = 1, inner = width;
  for (int64_t i = 0; i < axis; ++i) outer *= uint64_t(type.dims[size_t(i)]);
  for (int64_t i = axis + 1; i < rank; ++i) inner *= uint64_t(type.dims[size_t(i)]);
  auto* to = const_cast<std::byte*>(out->data);
  for (uint64_t o = 0; o < outer; ++o)
    for (const ValueId input : node.inputs) {
      const Constant& part = *env.constant(input);
      const uint64_t run = uint64_t(part.dims[size_t(axis)]) * inner;
      if (run) std::memcpy(to, part.data + o * run, run);
      to += run;
    }
  return one(out);
}

Outputs slice(const Env& env, const Node& node, const Type& type) {
  const Constant& from = *env.constant(node.inputs[0]);
  const auto starts = as_int64s(*env.constant(node.inputs[1]));
  const auto ends = as_int64s(*env.constant(node.inputs[2]));
  std::optional<std::vector<int64_t>> axes, steps;
  if (node.input(3) != BELAY_NONE) axes = as_int64s(*env.constant(node.inputs[3]));
  if (node.input(4) != BELAY_NONE) steps = as_int64s(*env.constant(node.inputs[4]));
  const size_t rank = from.dims.size();
  std::vector<int64_t> first(rank, 0), step(rank, 1), stride(rank, 1);
  for (size_t i = rank; i-- > 1;) stride[i - 1] = stride[i] * from.dims[i];
  for (size_t i = 0; i < starts->size(); ++i) {
    int64_t axis = axes ? (*axes)[i] : int64_t(i);
    if (axis < 0) axis += int64_t(rank);
    const int64_t dim = from.dims[size_t(axis)];
    step[size_t(axis)] = steps ? (*steps)[i] : 1;
    int64_t start = (*starts)[i];
    if (start < 0) start = std::max<int64_t>(start, -dim - 1) + dim;
    start =
        step[size_t(axis)] > 0 ? std::clamp<int64_t>(start, 0, dim) : std::clamp<int64_t>(start, -1, dim - 1);
    first[size_t(axis)] = start;
  }
  const uint64_t count = element_count(type.dims).value_or(UINT64_MAX);
  std::vector<size_t> indices;
  std::vector<int64_t> index(rank, 0);
  for (uint64_t i = 0; i < count; ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < rank; ++d) at += (first[d] + index[d] * step[d]) * stride[d];
    indices.push_back(size_t(at));
    for (size_t d = rank; d-- > 0;) {
      if (++index[d] < type.dims[d]) break;
      index[d] = 0;
    }
  }
  return one(pick(from, type.dims, indices));
}

Outputs gather(const Node& node, const Constant& data, const Constant& at, const Type& type) {
  const auto indices = as_int64s(at);
  if (!indices) return std::nullopt;
  const int64_t rank = int64_t(data.dims.size());
  const int64_t axis = node.int_or("axis", 0) < 0 ? node.int_or("axis", 0) + rank : node.int_or("axis", 0);
  size_t outer = 1, inner = 1;
  for (int64_t i = 0; i < axis; ++i) outer *= size_t(data.dims[size_t(i)]);
  for (int64_t i = axis + 1; i < rank; ++i) inner *= size_t(data.dims[size_t(i)]);
  const int64_t dim = data.dims[size_t(axis)];
  std::vector<size_t> picked;
  for (size_t o = 0; o < outer; ++o)
    for (int64_t index : *indices) {
      if (index < 0) index += dim;
      if (index < 0 || index >= dim) return std::nullopt;
      for (size_t i = 0; i < inner; ++i) picked.push_back((o * size_t(dim) + size_t(index)) * inner + i);
    }
  return one(pick(data, type.dims, picked));
}

Outputs range(const Constant& start, const Constant& delta, const Type& type) {
  const uint64_t count = element_count(type.dims).value_or(UINT64_MAX);
  if (whole(start.dtype)) {
    std::vector<int64_t> out;
    const auto from = as_int64s(start), by = as_int64s(delta);
    for (uint64_t i = 0; i < count; ++i) 
      out.push_back(int64_t(uint64_t((*from)[0]) + i * uint64_t((*by)[0])));
    return one(from_ints(start.dtype, out, type.dims));
  }
  return std::nullopt;
}

Outputs reduce(const std::string& op, const Constant& from, const Type& type) {
  if (element_count(type.dims) != 1 || !whole(from.dtype)) return std::nullopt;
  const auto values = as_int64s(from);
  if (!values) return std::nullopt;
  uint64_t total = op == "ReduceProd" ? 1 : 0;
  for (const int64_t value : *values)
    total = op == "ReduceProd" ? total * uint64_t(value) : total + uint64_t(value);
  return one(from_ints(from.dtype, {int64_t(total)}, type.dims));
}

}  // namespace

std::optional<std::vector<ConstantPtr>> evaluate_small(const Env& env, const Node& node) {
  if (!node.domain.empty()) return std::nullopt;
  const std::string& op = node.op;
  if (op == "Constant") {
    const Attribute* value = node.attributes.empty() ? nullptr : &node.attributes[0];
    if (!value) return std::nullopt;
    if (value->kind == BELAY_ATTR_TENSOR) return one(value->tensors[0]);
    if (value->kind == BELAY_ATTR_INT) return one(make_int64s(value->ints, {}));
    if (value->kind == BELAY_ATTR_INTS) return one(make_int64s(value->ints));
    const std::vector<double> floats(value->floats.begin(), value->floats.end());
    if (value->kind == BELAY_ATTR_FLOAT) return one(make_floats(BELAY_DT_FLOAT32, floats, {}));
    if (value->kind == BELAY_ATTR_FLOATS)
      return one(make_floats(BELAY_DT_FLOAT32, floats, {int64_t(floats.size())}));
    if (value->kind == BELAY_ATTR_STRING || value->kind == BELAY_ATTR_STRINGS) {
      auto bytes = std::make_shared<std::vector<uint64_t>>();
      std::string text;
      bytes->push_back(0);
      for (const std::string& each : value->strings) bytes->push_back((text += each).size());
      const size_t table = bytes->size() * 8;
      bytes->resize((table + text.size() + 7) / 8);
      std::memcpy(reinterpret_cast<char*>(bytes->data()) + table, text.data(), text.size());
      auto out = std::make_shared<Constant>();
      out->dtype = BELAY_DT_STRING;
      if (value->kind == BELAY_ATTR_STRINGS) out->dims = {int64_t(value->strings.size())};
      out->data = reinterpret_cast<const std::byte*>(bytes->data());
      out->bytes = table + text.size();
      out->owner = bytes;
      out->key = next_constant_key();
      return one(out);
    }
    return std::nullopt;
  }
  const Type& type = env.type(node.output(0));
  if (!find_dtype(type.dtype) || !type.concrete() ||
      element_count(type.dims).value_or(UINT64_MAX) > kSmallElements)
    return std::nullopt;
  if (op == "Shape" || op == "Size") {  // only the dims of their input matter
    const Type& of = env.type(node.input(0));
    if (!of.concrete()) return std::nullopt;
    if (op == "Size") {
      const auto count = element_count(of.dims);
      return count ? one(make_int64s(std::vector<int64_t>{int64_t(*count)}, {})) : std::nullopt;
    }
    const int64_t rank = int64_t(of.dims.size());
    int64_t start = node.int_or("start", 0);
    start = std::clamp<int64_t>(start < 0 ? start + rank : start, 0, rank);
    return one(make_int64s(std::span(of.dims).subspan(size_t(start), size_t(type.dims[0]))));
  }
  for (const ValueId input : node.inputs) {
    if (input == BELAY_NONE) continue;
    const Constant* at = env.constant(input);
    if (!at || at->count() > kSmallElements || at->dtype == BELAY_DT_STRING || !find_dtype(at->dtype) ||
        find_dtype(at->dtype)->bits % 8 || !is_aligned(at->data, at->dtype))
      return std::nullopt;
  }
  const auto in = [&](size_t i) -> const Constant& { return *env.constant(node.inputs[i]); };
  if (type.dtype == BELAY_DT_STRING || find_dtype(type.dtype)->bits % 8 || node.inputs.empty() ||
      node.inputs[0] == BELAY_NONE)
    return std::nullopt;
  if (op == "Reshape" || op == "Squeeze" || op == "Unsqueeze" || op == "Flatten" || op == "Identity")
    return one(reshaped(in(0), type.dims));
  if (op == "Concat") return concat(env, node, type);
  if (op == "Slice") return slice(env, node, type);
  if (op == "Gather") return gather(node, in(0), in(1), type);
  if (op == "Cast") return cast(in(0), type);
  if (op == "Range" && node.inputs.size() == 3) return range(in(0), in(2), type);
  if (op == "ReduceProd" || op == "ReduceSum") return reduce(op, in(0), type);
  if (op == "Expand") {
    const std::vector<size_t> strides[1] = {broadcast_strides(in(0).dims, type.dims)};
    std::vector<size_t> picked;
    for_each_index(type.dims, strides,
                   [&](uint64_t, const std::vector<size_t>& at) { picked.push_back(at[0]); });
    return one(pick(in(0), type.dims, picked));
  }
  if (op == "Where" && node.inputs.size() == 3 && in(1).dtype == in(2).dtype) {
    const auto flags = as_int64s(in(0));
    if (!flags) return std::nullopt;
    const std::vector<size_t> strides[3] = {broadcast_strides(in(0).dims, type.dims),
                                            broadcast_strides(in(1).dims, type.dims),
                                            broadcast_strides(in(2).dims, type.dims)};
    auto out = make_constant(type.dtype, type.dims);
    if (!out) return std::nullopt;
    const uint64_t width = find_dtype(type.dtype)->bits / 8;
    for_each_index(type.dims, strides, [&](uint64_t i, const std::vector<size_t>& at) {
      const size_t side = (*flags)[at[0]] ? 1 : 2;
      std::memcpy(const_cast<std::byte*>(out->data) + i * width, in(side).data + at[side] * width, width);
    });
    return one(out);
  }
  if (op == "ConstantOfShape") {
    auto out = make_constant(type.dtype, type.dims);
    const Attribute* value = node.find("value");
    if (out && value && !value->tensors.empty() && value->tensors[0]->count() == 1) {
      const uint64_t width = find_dtype(type.dtype)->bits / 8;
      for (uint64_t i = 0; i < out->bytes; i += width)
        std::memcpy(const_cast<std::byte*>(out->data) + i, value->tensors[0]->data, width);
    }
    return one(out);
  }
  if (node.inputs.size() == 1) return unary(op, in(0));
  static const std::set<std::string_view> arithmetic = {
      "Add", "Sub", "Mul",   "Div",  "Mod",         "Min",     "Max",           "And",
      "Or",  "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"};
  if (node.inputs.size() == 2 && node.inputs[1] != BELAY_NONE && arithmetic.contains(op))
    return binary(node, in(0), in(1), type);
  return std::nullopt;
}

}  // namespace belay::ir
