#include "attributes.hpp"

namespace belay::cpu {

Attributes::Attributes(const graph::View& view, graph::NodeView node) {
  const belay_list list = node.raw().attributes;
  for (const belay_graph_attribute& from : view.attributes().subspan(list.first, list.count)) {
    Attribute to;
    to.name = view.string(from.name);
    to.kind = from.kind;
    switch (from.kind) {
      case BELAY_ATTR_INT:
      case BELAY_ATTR_INTS: {
        const auto values =
            view.section<int64_t>(view.header().ints).subspan(from.values.first, from.values.count);
        to.ints.assign(values.begin(), values.end());
        break;
      }
      case BELAY_ATTR_FLOAT:
      case BELAY_ATTR_FLOATS: {
        const auto values =
            view.section<float>(view.header().floats).subspan(from.values.first, from.values.count);
        to.floats.assign(values.begin(), values.end());
        break;
      }
      case BELAY_ATTR_STRING:
      case BELAY_ATTR_STRINGS:
        for (const uint32_t index : view.indices(from.values)) to.strings.emplace_back(view.string(index));
        break;
      case BELAY_ATTR_TENSOR: {
        const belay_graph_constant& constant = view.constants()[view.indices(from.values)[0]];
        to.dtype = constant.dtype;
        to.dims = view.constant_dims(constant);
        if (constant.source == BELAY_NONE) {
          const belay_span bytes = view.constant_bytes(constant, {});
          to.bytes.assign(static_cast<const char*>(bytes.ptr), bytes.len);
        }
        break;
      }
      default:
        break;
    }
    all_.push_back(std::move(to));
  }
}

const Attribute* Attributes::find(std::string_view name) const {
  for (const Attribute& at : all_)
    if (at.name == name) return &at;
  return nullptr;
}
int64_t Attributes::int_or(std::string_view name, int64_t otherwise) const {
  const Attribute* at = find(name);
  return at && at->kind == BELAY_ATTR_INT && !at->ints.empty() ? at->ints[0] : otherwise;
}
float Attributes::float_or(std::string_view name, float otherwise) const {
  const Attribute* at = find(name);
  return at && at->kind == BELAY_ATTR_FLOAT && !at->floats.empty() ? at->floats[0] : otherwise;
}
std::string_view Attributes::string_or(std::string_view name, std::string_view otherwise) const {
  const Attribute* at = find(name);
  return at && at->kind == BELAY_ATTR_STRING && !at->strings.empty() ? std::string_view(at->strings[0])
                                                                     : otherwise;
}
std::optional<std::vector<int64_t>> Attributes::ints(std::string_view name) const {
  const Attribute* at = find(name);
  if (!at || at->kind != BELAY_ATTR_INTS) return std::nullopt;
  return at->ints;
}
std::optional<std::vector<float>> Attributes::floats(std::string_view name) const {
  const Attribute* at = find(name);
  if (!at || at->kind != BELAY_ATTR_FLOATS) return std::nullopt;
  return at->floats;
}
std::vector<std::string> Attributes::strings(std::string_view name) const {
  const Attribute* at = find(name);
  return at && at->kind == BELAY_ATTR_STRINGS ? at->strings : std::vector<std::string>{};
}

}  // namespace belay::cpu
