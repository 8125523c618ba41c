#include "plan/image.hpp"

#include <belay/graph/builder.hpp>

#include <cstring>

namespace belay::plan {
namespace {

class Freezer {
 public:
  Freezer(const ir::Env& env, ConstantPool& pool, Strings strings)
      : env_(env), pool_(pool), opaque_(strings == Strings::kOpaque) {}

  Result<Image> run(std::span<const ir::Node* const> nodes, const std::set<ir::ValueId>& needed) {
    std::set<ir::ValueId> made;
    for (const ir::Node* node : nodes)
      for (const ir::ValueId value : node->outputs)
        if (value != BELAY_NONE) made.insert(value);
    std::vector<uint32_t> inputs, outputs;
    for (const ir::Node* node : nodes) {
      inputs.clear();
      outputs.clear();
      for (const ir::ValueId value : node->inputs)
        inputs.push_back(value == BELAY_NONE ? BELAY_NONE : add(value, made));
      for (const ir::ValueId value : node->outputs)
        outputs.push_back(value == BELAY_NONE ? BELAY_NONE : add(value, made));
      const uint32_t index =
          builder_.add_node(0, node->domain, node->op, node->version, node->name, inputs, outputs);
      for (const ir::Attribute& attribute : node->attributes)
        BELAY_TRY(add_attribute(index, *node, attribute));
    }
    for (const ir::ValueId value : needed)
      if (const auto at = image_.index_of.find(value); at != image_.index_of.end() && made.contains(value))
        builder_.add_output(0, at->second);
    builder_.set_source_bytes(0, constant_bytes_);
    std::vector<uint32_t> order;
    BELAY_ASSIGN(image_.bytes, builder_.freeze(&order));
    for (const uint32_t from : order) image_.nodes.push_back(nodes[from]);
    return std::move(image_);
  }

 private:
  uint32_t add(ir::ValueId named, const std::set<ir::ValueId>& made) {
    const ir::ValueId value = env_.resolve(named);
    if (const auto at = image_.index_of.find(value); at != image_.index_of.end()) return at->second;
    const ir::Type& type = env_.types[value];
    uint32_t constant = BELAY_NONE;
    const ir::ConstantPtr& known = env_.constants[value];
    const bool text = known && known->dtype == BELAY_DT_STRING;
    if (text && !opaque_ && !made.contains(value)) {
      constant = add_tensor(*known);
    } else if (known && !text && !made.contains(value)) {
      constant = builder_.add_constant_at("", known->dtype, known->dims, 0, constant_bytes_, known->bytes);
      constant_bytes_ += (known->bytes + 63) / 64 * 64;
    }
    const uint32_t index = builder_.add_value(0, unique_name(value), add_type(type), constant);
    if (constant == BELAY_NONE && !made.contains(value)) builder_.add_input(0, index);
    image_.index_of[value] = index;
    image_.values.push_back(value);
    image_.constants.push_back(constant == BELAY_NONE ? nullptr : pool_.readable(*known));
    image_.keys.push_back(constant == BELAY_NONE ? 0 : known->key);
    return index;
  }

  // Values of inlined branches may share a name with others.
  std::string unique_name(ir::ValueId value) {
    const std::string& name = env_.model->values[value].name;
    if (names_.insert(name).second) return name;
    std::string other = name + "#" + std::to_string(value);
    names_.insert(other);
    return other;
  }

  uint32_t add_type(const ir::Type& type) {
    if (type.kind == BELAY_TYPE_TENSOR) {
      if (type.dtype == BELAY_DT_UNDEFINED) return BELAY_NONE;
      if (!type.ranked) return builder_.tensor_type(type.dtype, std::nullopt);
      ir::Dims dims = type.dims;
      for (int64_t& dim : dims)
        if (dim < 0) dim = -1;
      const bool opaque = opaque_ && type.dtype == BELAY_DT_STRING;
      return builder_.tensor_type(opaque ? uint32_t(BELAY_DT_COMPLEX128) : type.dtype, dims);
    }
    if ((type.kind != BELAY_TYPE_SEQUENCE && type.kind != BELAY_TYPE_OPTIONAL) || !type.element)
      return BELAY_NONE;
    const uint32_t element = add_type(*type.element);
    if (element == BELAY_NONE) return BELAY_NONE;
    return type.kind == BELAY_TYPE_SEQUENCE ? builder_.sequence_type(element)
                                            : builder_.optional_type(element);
  }

  uint32_t add_tensor(const ir::Constant& tensor) {
    if (tensor.dtype != BELAY_DT_STRING)
      return builder_.add_constant("", tensor.dtype, tensor.dims, {tensor.data, tensor.bytes});
    std::vector<std::string_view> elements;
    const auto* text = reinterpret_cast<const char*>(tensor.data) + (tensor.count() + 1) * 8;
    const auto offset = [&](uint64_t i) {
      uint64_t value = 0;
      std::memcpy(&value, tensor.data + i * 8, 8);
      return value;
    };
    for (uint64_t i = 0; i < tensor.count(); ++i)
      elements.emplace_back(text + offset(i), offset(i + 1) - offset(i));
    return builder_.add_string_constant("", tensor.dims, elements);
  }

  Status add_attribute(uint32_t node, const ir::Node& of, const ir::Attribute& at) {
    std::vector<std::string_view> strings(at.strings.begin(), at.strings.end());
    switch (at.kind) {
      case BELAY_ATTR_INT:
        builder_.set_int(node, at.name, at.ints[0]);
        break;
      case BELAY_ATTR_INTS:
        builder_.set_ints(node, at.name, at.ints);
        break;
      case BELAY_ATTR_FLOAT:
        builder_.set_float(node, at.name, at.floats[0]);
        break;
      case BELAY_ATTR_FLOATS:
        builder_.set_floats(node, at.name, at.floats);
        break;
      case BELAY_ATTR_STRING:
        builder_.set_string(node, at.name, at.strings[0]);
        break;
      case BELAY_ATTR_STRINGS:
        builder_.set_strings(node, at.name, strings);
        break;
      case BELAY_ATTR_TENSOR:
        builder_.set_tensor(node, at.name, add_tensor(*at.tensors[0]));
        break;
      case BELAY_ATTR_TENSORS: {
        std::vector<uint32_t> tensors;
        for (const ir::ConstantPtr& tensor : at.tensors) tensors.push_back(add_tensor(*tensor));
        builder_.set_tensors(node, at.name, tensors);
        break;
      }
      case BELAY_ATTR_TYPE:
        if (const uint32_t type = add_type(at.type); type != BELAY_NONE)
          builder_.set_type(node, at.name, type);
        break;
      default:
        return {Code::kUnimplemented,
                "The subgraph '" + at.name + "' of " + of.label() + " cannot be given to a kernel."};
    }
    return {};
  }

  const ir::Env& env_;
  ConstantPool& pool_;
  const bool opaque_;
  belay::graph::Builder builder_;
  Image image_;
  std::set<std::string> names_;
  uint64_t constant_bytes_ = 0;
};

}  // namespace

Result<Image> make_image(const ir::Env& env, std::span<const ir::Node* const> nodes,
                         const std::set<ir::ValueId>& needed, ConstantPool& pool, Strings strings) {
  return Freezer(env, pool, strings).run(nodes, needed);
}

}  // namespace belay::plan
