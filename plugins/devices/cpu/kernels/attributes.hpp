// The attributes of one node, owned, so that they outlive the image they came from.
#pragma once

#include "shape.hpp"

#include <belay/graph/view.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace belay::cpu {

struct Attribute {
  std::string name;
  uint32_t kind = 0;  // BELAY_ATTR_...
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string> strings;
  uint32_t dtype = 0;  // TENSOR whose bytes are in the image
  Dims dims;
  std::string bytes;
};

// Getters with a default give it when the attribute is absent or of another kind.
class Attributes {
 public:
  Attributes() = default;
  Attributes(const graph::View& view, graph::NodeView node);

  const Attribute* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  int64_t int_or(std::string_view name, int64_t otherwise) const;
  float float_or(std::string_view name, float otherwise) const;
  std::string_view string_or(std::string_view name, std::string_view otherwise) const;
  std::optional<std::vector<int64_t>> ints(std::string_view name) const;
  std::optional<std::vector<float>> floats(std::string_view name) const;
  std::vector<std::string> strings(std::string_view name) const;

 private:
  std::vector<Attribute> all_;
};

}  // namespace belay::cpu
