// belay/graph/view.hpp: reads a verified frozen graph (belay/graph/verify.hpp). Nothing is copied; views are as valid as
// the image. Header-only.
#pragma once

#include <belay/abi/graph.h>
#include <belay/status.hpp>

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay::graph {


class View;

// One node with its attributes. Lookups of attributes are by name; getters with a default give it when the attribute is
// absent or of another kind.
class NodeView {
 public:
  NodeView(const View& view, uint32_t index) : view_(&view), index_(index) {}

  uint32_t index() const { return index_; }
  const belay_graph_node& raw() const;
  std::string_view domain() const;
  std::string_view op() const;
  std::string_view name() const;
  uint32_t version() const { return raw().since_version; }
  std::span<const uint32_t> inputs() const;   // values, BELAY_NONE: absent
  std::span<const uint32_t> outputs() const;  // values, BELAY_NONE: not wanted
  // Value `i`, or BELAY_NONE when it is absent or past the end.
  uint32_t input(size_t i) const { return i < inputs().size() ? inputs()[i] : BELAY_NONE; }
  uint32_t output(size_t i) const { return i < outputs().size() ? outputs()[i] : BELAY_NONE; }

  const belay_graph_attribute* attribute(std::string_view name) const;
  bool has(std::string_view name) const { return attribute(name) != nullptr; }
  int64_t int_or(std::string_view name, int64_t otherwise) const;
  float float_or(std::string_view name, float otherwise) const;
  std::string_view string_or(std::string_view name, std::string_view otherwise) const;
  std::optional<std::span<const int64_t>> ints(std::string_view name) const;
  std::optional<std::span<const float>> floats(std::string_view name) const;
  std::vector<std::string_view> strings(std::string_view name) const;
  uint32_t constant(std::string_view name) const;  // index of a TENSOR attribute's constant, or BELAY_NONE
  uint32_t graph(std::string_view name) const;     // index of a GRAPH attribute's graph, or BELAY_NONE

 private:
  const View* view_;
  uint32_t index_;
};

class View {
 public:
  explicit View(belay_span image) : base_(static_cast<const char*>(image.ptr)), bytes_(image.len) {}

  const belay_graph_image& header() const { return *reinterpret_cast<const belay_graph_image*>(base_); }
  belay_span image() const { return {base_, bytes_}; }

  template <class T>
  std::span<const T> section(const belay_section& where) const {
    return {reinterpret_cast<const T*>(base_ + where.offset), where.count};
  }
  std::span<const belay_graph_value> values() const { return section<belay_graph_value>(header().values); }
  std::span<const belay_graph_node> nodes() const { return section<belay_graph_node>(header().nodes); }
  std::span<const belay_graph_graph> graphs() const { return section<belay_graph_graph>(header().graphs); }
  std::span<const belay_graph_constant> constants() const { return section<belay_graph_constant>(header().constants); }
  std::span<const belay_graph_type> types() const { return section<belay_graph_type>(header().types); }
  std::span<const belay_graph_source> sources() const { return section<belay_graph_source>(header().sources); }
  std::span<const belay_graph_attribute> attributes() const {
    return section<belay_graph_attribute>(header().attributes);
  }
  std::span<const uint32_t> indices(belay_list list) const {
    return section<uint32_t>(header().indices).subspan(list.first, list.count);
  }
  std::span<const belay_graph_dim> dims(belay_list list) const {
    return section<belay_graph_dim>(header().dims).subspan(list.first, list.count);
  }
  std::string_view string(uint32_t index) const {
    if (index == BELAY_NONE) return {};
    const belay_graph_string& at = section<belay_graph_string>(header().strings)[index];
    return {base_ + header().bytes.offset + at.offset, at.len};
  }
  NodeView node(uint32_t index) const { return {*this, index}; }

  // Type of a value; null: not known.
  const belay_graph_type* type(uint32_t value) const {
    const uint32_t at = values()[value].type;
    return at == BELAY_NONE ? nullptr : &types()[at];
  }
  // Element type of a tensor value; BELAY_DT_UNDEFINED: not known or no tensor.
  uint32_t dtype(uint32_t value) const {
    const belay_graph_type* at = value == BELAY_NONE ? nullptr : type(value);
    return at && at->kind == BELAY_TYPE_TENSOR ? at->dtype : BELAY_DT_UNDEFINED;
  }
  // Dims of a tensor value, -1 where one is not known; nothing: unknown rank or no tensor.
  std::optional<std::vector<int64_t>> shape(uint32_t value) const {
    const belay_graph_type* at = value == BELAY_NONE ? nullptr : type(value);
    if (!at || at->kind != BELAY_TYPE_TENSOR || at->shape == BELAY_NONE) return std::nullopt;
    std::vector<int64_t> out;
    for (const belay_graph_dim& dim : dims(section<belay_graph_shape>(header().shapes)[at->shape].dims))
      out.push_back(dim.value);
    return out;
  }
  std::vector<int64_t> constant_dims(const belay_graph_constant& constant) const {
    std::vector<int64_t> out;
    for (const belay_graph_dim& dim : dims(constant.dims)) out.push_back(dim.value);
    return out;
  }
  // Bytes of a constant; `sources` are those of the image, in order.
  belay_span constant_bytes(const belay_graph_constant& constant, std::span<const belay_span> sources) const {
    const char* from = constant.source == BELAY_NONE ? base_ + header().data.offset
                                                     : static_cast<const char*>(sources[constant.source].ptr);
    return {from + constant.offset, constant.bytes};
  }

 private:
  const char* base_;
  uint64_t bytes_;
};

inline const belay_graph_node& NodeView::raw() const { return view_->nodes()[index_]; }
inline std::string_view NodeView::domain() const { return view_->string(raw().domain); }
inline std::string_view NodeView::op() const { return view_->string(raw().op); }
inline std::string_view NodeView::name() const { return view_->string(raw().name); }
inline std::span<const uint32_t> NodeView::inputs() const { return view_->indices(raw().inputs); }
inline std::span<const uint32_t> NodeView::outputs() const { return view_->indices(raw().outputs); }

inline const belay_graph_attribute* NodeView::attribute(std::string_view name) const {
  const belay_list list = raw().attributes;
  for (const belay_graph_attribute& at : view_->attributes().subspan(list.first, list.count))
    if (view_->string(at.name) == name) return &at;
  return nullptr;
}
inline int64_t NodeView::int_or(std::string_view name, int64_t otherwise) const {
  const belay_graph_attribute* at = attribute(name);
  if (!at || at->kind != BELAY_ATTR_INT) return otherwise;
  return view_->section<int64_t>(view_->header().ints)[at->values.first];
}
inline float NodeView::float_or(std::string_view name, float otherwise) const {
  const belay_graph_attribute* at = attribute(name);
  if (!at || at->kind != BELAY_ATTR_FLOAT) return otherwise;
  return view_->section<float>(view_->header().floats)[at->values.first];
}
inline std::string_view NodeView::string_or(std::string_view name, std::string_view otherwise) const {
  const belay_graph_attribute* at = attribute(name);
  if (!at || at->kind != BELAY_ATTR_STRING) return otherwise;
  return view_->string(view_->indices(at->values)[0]);
}
inline std::optional<std::span<const int64_t>> NodeView::ints(std::string_view name) const {
  const belay_graph_attribute* at = attribute(name);
  if (!at || at->kind != BELAY_ATTR_INTS) return std::nullopt;
  return view_->section<int64_t>(view_->header().ints).subspan(at->values.first, at->values.count);
}
inline std::optional<std::span<const float>> NodeView::floats(std::string_view name) const {
  const belay_graph_attribute* at = attribute(name);
  if (!at || at->kind != BELAY_ATTR_FLOATS) return std::nullopt;
  return view_->section<float>(view_->header().floats).subspan(at->values.first, at->values.count);
}
inline std::vector<std::string_view> NodeView::strings(std::string_view name) const {
  const belay_graph_attribute* at = attribute(name);
  std::vector<std::string_view> out;
  if (at && at->kind == BELAY_ATTR_STRINGS)
    for (const uint32_t index : view_->indices(at->values)) out.push_back(view_->string(index));
  return out;
}
inline uint32_t NodeView::constant(std::string_view name) const {
  const belay_graph_attribute* at = attribute(name);
  return at && at->kind == BELAY_ATTR_TENSOR ? view_->indices(at->values)[0] : BELAY_NONE;
}
inline uint32_t NodeView::graph(std::string_view name) const {
  const belay_graph_attribute* at = attribute(name);
  return at && at->kind == BELAY_ATTR_GRAPH ? view_->indices(at->values)[0] : BELAY_NONE;
}

}  // namespace belay::graph
