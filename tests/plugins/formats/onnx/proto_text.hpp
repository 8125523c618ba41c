// ONNX messages written by hand, field by field: models that no library would write.
#pragma once

#include <belay/tensor_io/wire.hpp>

#include <bit>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace belay::onnx::text {

inline std::string bytes(uint32_t field, std::string_view value) {
  std::string out;
  wire::put_bytes(out, field, value);
  return out;
}
inline std::string number(uint32_t field, int64_t value) {
  std::string out;
  wire::put_number(out, field, uint64_t(value));
  return out;
}
inline std::string fixed32(uint32_t field, float value) {
  std::string out;
  wire::put_varint(out, uint64_t{field} << 3 | wire::kFixed32);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int i = 0; i < 4; ++i) out += char(bits >> 8 * i);
  return out;
}

using Names = std::initializer_list<std::string_view>;

inline std::string node(std::string_view op, Names in, Names out, const std::string& rest = {},
                        std::string_view name = {}) {
  std::string text;
  for (const auto value : in) text += bytes(1, value);
  for (const auto value : out) text += bytes(2, value);
  return text + bytes(3, name.empty() ? std::string(op) + "_node" : std::string(name)) + bytes(4, op) + rest;
}
inline std::string domain(std::string_view name) { return bytes(7, name); }

// AttributeProto as a field of a node (5) or a function's default (11).
inline std::string attribute(std::string_view name, int kind, const std::string& value, uint32_t field = 5) {
  return bytes(field, bytes(1, name) + value + number(20, kind));
}
inline std::string int_attribute(std::string_view name, int64_t value, uint32_t field = 5) {
  return attribute(name, 2, number(3, value), field);
}
inline std::string reference(std::string_view name, int kind, std::string_view to) {
  return attribute(name, kind, bytes(21, to));
}
inline std::string graph_attribute(std::string_view name, const std::string& graph) {
  return attribute(name, 5, bytes(6, graph));
}

inline std::string tensor(std::string_view name, int dtype, std::initializer_list<int64_t> dims,
                          const std::string& data) {
  std::string text;
  for (const int64_t dim : dims) text += number(1, dim);
  return text + number(2, dtype) + (name.empty() ? "" : bytes(8, name)) + data;
}
template <class T>
std::string raw(std::initializer_list<T> values) {
  std::string data(values.size() * sizeof(T), '\0');
  std::memcpy(data.data(), std::data(values), data.size());
  return bytes(9, data);
}

// TypeProto of a tensor; a dim is a number or, from a string, a name.
inline std::string tensor_type(int dtype, std::initializer_list<std::string_view> dims) {
  std::string shape;
  for (const auto dim : dims) {
    const bool digits = !dim.empty() && dim.find_first_not_of("0123456789") == std::string_view::npos;
    shape += bytes(1, digits ? number(1, std::stoll(std::string(dim))) : dim.empty() ? "" : bytes(2, dim));
  }
  return bytes(1, number(1, dtype) + bytes(2, shape));
}
inline std::string value(std::string_view name, const std::string& type = {}) {
  return bytes(1, name) + (type.empty() ? "" : bytes(2, type));
}

struct Graph {
  std::string text;
  Graph& name(std::string_view value) { return add(2, value); }
  Graph& node(const std::string& message) { return add(1, message); }
  Graph& initializer(const std::string& message) { return add(5, message); }
  Graph& input(std::string_view name, int dtype = 1, std::initializer_list<std::string_view> dims = {"2"}) {
    return add(11, value(name, tensor_type(dtype, dims)));
  }
  Graph& output(std::string_view name) { return add(12, value(name)); }
  Graph& info(std::string_view name, const std::string& type) { return add(13, value(name, type)); }
  Graph& add(uint32_t field, std::string_view message) {
    wire::put_bytes(text, field, message);
    return *this;
  }
};

inline std::string opset(std::string_view domain, int64_t version, uint32_t field = 8) {
  return bytes(field, (domain.empty() ? "" : bytes(1, domain)) + number(2, version));
}
inline std::string model(const Graph& graph, int64_t version = 13, int64_t ir = 8,
                         const std::string& rest = {}) {
  return number(1, ir) + bytes(7, graph.text) + opset("", version) + rest;
}

}  // namespace belay::onnx::text
