#include "hal/operator_request.h"

#include <belay/graph/builder.hpp>
#include <belay/graph/dtype.hpp>
#include "hal/hal.h"

#include <span>
#include <vector>

namespace belay::hal {
namespace {

constexpr uint64_t kConstantBytes = 64 * 1024, kMostOperands = 1024, kMostAttributes = 1024;
constexpr uint32_t kNewestVersion =
    17;  // that kernels know every operator by, see belay/abi/kernel_provider.h

// ---- checks

Status check_attribute(const Hal& hal, const belay_op_req& req, uint64_t index) {
  const belay_op_attribute* attribute = req.attributes[index];
  const std::string who = "Attribute " + std::to_string(index) + " of operator " + operator_name(req);
  const auto wrong = [&](const std::string& text) { return Status(Code::kInvalidArgument, who + text); };
  if (!attribute) return wrong(" is NULL.");
  if (attribute->hdr.struct_size < sizeof *attribute)
    return wrong(" has struct_size " + std::to_string(attribute->hdr.struct_size) + ", want " +
                 std::to_string(sizeof *attribute) + ".");
  if (!attribute->name.ptr || !attribute->name.len) return wrong(" has no name.");
  const std::string name = ", '" + to_string(attribute->name) + "',";
  bool single = false;
  switch (attribute->kind) {
    case BELAY_ATTR_FLOAT:
    case BELAY_ATTR_INT:
    case BELAY_ATTR_STRING:
    case BELAY_ATTR_TENSOR:
      single = true;
      break;
    case BELAY_ATTR_FLOATS:
    case BELAY_ATTR_INTS:
    case BELAY_ATTR_STRINGS:
      break;
    default:
      return wrong(name + " is of kind " + std::to_string(attribute->kind) +
                   ", want FLOAT, INT, STRING, TENSOR, FLOATS, INTS or STRINGS.");
  }
  if (single && attribute->count != 1)
    return wrong(name + " is one value and has the count " + std::to_string(attribute->count) + ".");
  if (attribute->count > kConstantBytes / 8)
    return wrong(name + " has " + std::to_string(attribute->count) + " values, at most " +
                 std::to_string(kConstantBytes / 8) + " are possible.");
  if (attribute->count && !attribute->values) return wrong(name + " has its values at NULL.");
  if (attribute->kind == BELAY_ATTR_STRING || attribute->kind == BELAY_ATTR_STRINGS) {
    const auto* texts = static_cast<const belay_str*>(attribute->values);
    for (uint64_t i = 0; i < attribute->count; ++i)
      if ((texts[i].len && !texts[i].ptr) || texts[i].len > kConstantBytes)
        return wrong(name + " has a text of " + std::to_string(texts[i].len) +
                     (texts[i].ptr ? " bytes, which is too long." : " bytes at NULL."));
  }
  if (attribute->kind == BELAY_ATTR_TENSOR) {
    const auto* tensor = static_cast<const belay_tensor*>(attribute->values);
    BELAY_ASSIGN(const TensorView view, view_of(tensor, who + name, &hal));
    if (!view.in_host_memory(*tensor)) return wrong(name + " is a tensor that is not dense in host memory.");
    if (view.bytes > kConstantBytes)
      return wrong(name + " has " + std::to_string(view.bytes) + " bytes, at most " +
                   std::to_string(kConstantBytes) + " are possible.");
    BELAY_TRY(hal.ledger().check_mapped(who + name, tensor->data, view.bytes));
  }
  return {};
}

// ---- signatures

class Key {
 public:
  void word(uint64_t value) { text_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void bytes(const void* from, uint64_t count) {
    word(count);
    if (count) text_.append(static_cast<const char*>(from), count);
  }
  void text(belay_str text) { bytes(text.ptr, text.ptr ? text.len : 0); }
  void type(const belay_tensor& tensor) {
    word(tensor.dtype);
    bytes(tensor.dims, tensor.rank * sizeof(int64_t));
    const belay_quant* quant = quant_of(tensor);
    word(quant ? quant->kind : 0);
    if (!quant) return;
    word(uint64_t(quant->axis)), word(uint64_t(quant->block));
    contents(*quant->scale);
    word(quant->zero_point != nullptr);
    if (quant->zero_point) contents(*quant->zero_point);
  }
  void contents(const belay_tensor& tensor) {
    type(tensor);
    const auto count = element_count(std::vector<int64_t>(tensor.dims, tensor.dims + tensor.rank));
    bytes(tensor.data, dtype_bytes(tensor.dtype, count.value_or(0)).value_or(0));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string operator_name(const belay_op_req& req) {
  const std::string_view domain = to_view(req.domain);
  return "'" + (domain.empty() ? "" : std::string(domain) + ".") + to_string(req.op) + "'";
}
std::string operand(const belay_op_req& req, const char* kind, uint64_t index) {
  return std::string(kind) + " " + std::to_string(index) + " of operator " + operator_name(req);
}
bool is_constant(const belay_op_req& req, uint64_t input) {
  return input < 64 && (req.constant_inputs >> input & 1) && req.inputs[input];
}

Result<OperatorViews> check_operator(const Hal& hal, const belay_op_req& req) {
  const auto wrong = [&](const std::string& text) { return Status(Code::kInvalidArgument, text); };
  if (!req.op.ptr || !req.op.len) return wrong("The operator has no name; set op, such as \"MatMul\".");
  if (req.domain.len && !req.domain.ptr)
    return wrong("The domain of operator " + operator_name(req) + " is NULL, but its length is " +
                 std::to_string(req.domain.len) + ".");
  const auto counted = [&](const void* list, uint64_t count, uint64_t most, const char* name) -> Status {
    if (count > most)
      return wrong("Operator " + operator_name(req) + " has " + std::to_string(count) + " " + name +
                   ", at most " + std::to_string(most) + " are possible.");
    if (count && !list)
      return wrong("Operator " + operator_name(req) + " has " + std::to_string(count) + " " + name +
                   " at NULL.");
    return {};
  };
  BELAY_TRY(counted(req.attributes, req.attribute_count, kMostAttributes, "attributes"));
  BELAY_TRY(counted(req.inputs, req.input_count, kMostOperands, "inputs"));
  BELAY_TRY(counted(req.outputs, req.output_count, kMostOperands, "outputs"));
  if (req.version > INT32_MAX)
    return wrong("Operator " + operator_name(req) + " is of version " + std::to_string(req.version) +
                 ", which no operator set has.");
  if (req.input_count < 64 && req.constant_inputs >> req.input_count)
    return wrong("Operator " + operator_name(req) + " has " + std::to_string(req.input_count) +
                 " inputs; constant_inputs names others.");
  for (uint64_t i = 0; i < req.attribute_count; ++i) BELAY_TRY(check_attribute(hal, req, i));
  OperatorViews views{std::vector<TensorView>(req.input_count), std::vector<TensorView>(req.output_count)};
  for (uint64_t i = 0; i < req.input_count; ++i) {
    if (!req.inputs[i]) continue;
    const std::string label = operand(req, "Input", i);
    TensorView& view = views.inputs[i];
    BELAY_ASSIGN(view, view_of(req.inputs[i], label, &hal));
    if (!is_constant(req, i)) continue;
    if (view.bytes > kConstantBytes)
      return wrong(label + " is constant and has " + std::to_string(view.bytes) + " bytes, at most " +
                   std::to_string(kConstantBytes) + " are possible.");
    if (!view.in_host_memory(*req.inputs[i]))
      return wrong(label + " is constant, so it must be dense in host memory.");
    BELAY_TRY(hal.ledger().check_mapped(label, req.inputs[i]->data, view.bytes));
  }
  bool wanted = false;
  for (uint64_t i = 0; i < req.output_count; ++i) {
    if (!req.outputs[i]) continue;
    wanted = true;
    const std::string label = operand(req, "Output", i);
    BELAY_ASSIGN(views.outputs[i], view_of(req.outputs[i], label, &hal));
    BELAY_TRY(check_apart(views.outputs[i], label));
  }
  if (!wanted) return wrong("Operator " + operator_name(req) + " has no output that is wanted.");
  return views;
}

std::string signature_of(const belay_op_req& req) {
  Key key;
  key.text(req.op);
  key.text(to_view(req.domain) == "ai.onnx" ? belay_str{} : req.domain);
  key.word(req.version ? req.version : kNewestVersion);
  key.word(req.attribute_count);
  for (uint64_t i = 0; i < req.attribute_count; ++i) {
    const belay_op_attribute& attribute = *req.attributes[i];
    key.text(attribute.name);
    key.word(attribute.kind);
    key.word(attribute.count);
    switch (attribute.kind) {
      case BELAY_ATTR_STRING:
      case BELAY_ATTR_STRINGS:
        for (uint64_t k = 0; k < attribute.count; ++k)
          key.text(static_cast<const belay_str*>(attribute.values)[k]);
        break;
      case BELAY_ATTR_TENSOR:
        key.contents(*static_cast<const belay_tensor*>(attribute.values));
        break;
      case BELAY_ATTR_FLOAT:
      case BELAY_ATTR_FLOATS:
        key.bytes(attribute.values, attribute.count * sizeof(float));
        break;
      default:
        key.bytes(attribute.values, attribute.count * sizeof(int64_t));
    }
  }
  key.word(req.input_count);
  for (uint64_t i = 0; i < req.input_count; ++i) {
    key.word(!req.inputs[i] ? 0 : is_constant(req, i) ? 1 : 2);
    if (is_constant(req, i))
      key.contents(*req.inputs[i]);
    else if (req.inputs[i])
      key.type(*req.inputs[i]);
  }
  key.word(req.output_count);
  for (uint64_t i = 0; i < req.output_count; ++i) {
    key.word(req.outputs[i] != nullptr);
    if (req.outputs[i]) key.type(*req.outputs[i]);
  }
  return key.take();
}

// ---- graphs
// ----------------------------------------------------------------------------------------------------------

namespace {

class OneNode {
 public:
  explicit OneNode(const belay_op_req& req) : req_(req) {}

  Result<std::string> make() {
    builder_.set_graph_name(0, to_view(req_.op));
    std::vector<uint32_t> inputs, outputs;
    for (uint64_t i = 0; i < req_.input_count; ++i) inputs.push_back(input(i));
    for (uint64_t i = 0; i < req_.output_count; ++i) outputs.push_back(output(i));
    while (!outputs.empty() && outputs.back() == BELAY_NONE) outputs.pop_back();
    const std::string_view domain = to_view(req_.domain);
    const uint32_t node = builder_.add_node(
        0, domain == "ai.onnx" ? std::string_view() : domain, to_view(req_.op),
        req_.version ? uint32_t(req_.version) : kNewestVersion, to_view(req_.op), inputs, outputs);
    for (uint64_t i = 0; i < req_.attribute_count; ++i) attribute(node, *req_.attributes[i]);
    return builder_.freeze();
  }

 private:
  static std::span<const int64_t> dims_of(const belay_tensor& tensor) { return {tensor.dims, tensor.rank}; }

  uint32_t constant(const belay_tensor& tensor, std::string_view name) {
    const auto count = element_count(dims_of(tensor)).value_or(0);
    const uint64_t bytes = dtype_bytes(tensor.dtype, count).value_or(0);
    return builder_.add_constant(name, tensor.dtype, dims_of(tensor), {tensor.data, bytes});
  }
  uint32_t constant_value(const belay_tensor& tensor, const std::string& name) {
    return builder_.add_value(0, name, builder_.tensor_type(tensor.dtype, dims_of(tensor)),
                              constant(tensor, name));
  }

  // DequantizeLinear or QuantizeLinear between the stored numbers and the operator.
  void scale(const char* op, uint32_t from, uint32_t to, const belay_quant& quant, const std::string& name) {
    std::vector<uint32_t> inputs = {from, constant_value(*quant.scale, name + " scale")};
    if (quant.zero_point) inputs.push_back(constant_value(*quant.zero_point, name + " zero point"));
    // The newest definition that kernels know by opset 17, and the one that has blocks.
    const uint32_t version = quant.kind == BELAY_QUANT_BLOCK ? 21 : 13;
    const uint32_t node = builder_.add_node(0, "", op, version, name, inputs, std::span(&to, 1));
    if (quant.kind != BELAY_QUANT_TENSOR) builder_.set_int(node, "axis", quant.axis);
    if (quant.kind == BELAY_QUANT_BLOCK) builder_.set_int(node, "block_size", quant.block);
  }

  uint32_t input(uint64_t index) {
    const belay_tensor* tensor = req_.inputs[index];
    if (!tensor) return BELAY_NONE;
    const std::string name = "input " + std::to_string(index);
    uint32_t value = BELAY_NONE;
    if (is_constant(req_, index)) {
      value = constant_value(*tensor, name);
    } else {
      value = builder_.add_value(0, name, builder_.tensor_type(tensor->dtype, dims_of(*tensor)));
      builder_.add_input(0, value);
    }
    const belay_quant* quant = quant_of(*tensor);
    if (!quant) return value;
    const uint32_t real = builder_.add_value(0, name + " as real numbers", BELAY_NONE);
    scale("DequantizeLinear", value, real, *quant, name);
    return real;
  }

  uint32_t output(uint64_t index) {
    const belay_tensor* tensor = req_.outputs[index];
    if (!tensor) return BELAY_NONE;
    const std::string name = "output " + std::to_string(index);
    const uint32_t value = builder_.add_value(0, name, BELAY_NONE);
    builder_.add_output(0, value);
    const belay_quant* quant = quant_of(*tensor);
    if (!quant) return value;
    const uint32_t real = builder_.add_value(0, name + " as real numbers", BELAY_NONE);
    scale("QuantizeLinear", real, value, *quant, name);
    return real;
  }

  void attribute(uint32_t node, const belay_op_attribute& attribute) {
    const std::string_view name = to_view(attribute.name);
    const auto* ints = static_cast<const int64_t*>(attribute.values);
    const auto* floats = static_cast<const float*>(attribute.values);
    const auto* texts = static_cast<const belay_str*>(attribute.values);
    switch (attribute.kind) {
      case BELAY_ATTR_FLOAT:
        return builder_.set_float(node, name, *floats);
      case BELAY_ATTR_INT:
        return builder_.set_int(node, name, *ints);
      case BELAY_ATTR_STRING:
        return builder_.set_string(node, name, to_view(*texts));
      case BELAY_ATTR_TENSOR:
        return builder_.set_tensor(node, name,
                                   constant(*static_cast<const belay_tensor*>(attribute.values), name));
      case BELAY_ATTR_FLOATS:
        return builder_.set_floats(node, name, {floats, attribute.count});
      case BELAY_ATTR_INTS:
        return builder_.set_ints(node, name, {ints, attribute.count});
      default: {
        std::vector<std::string_view> views;
        for (uint64_t i = 0; i < attribute.count; ++i) views.push_back(to_view(texts[i]));
        builder_.set_strings(node, name, views);
      }
    }
  }

  const belay_op_req& req_;
  graph::Builder builder_;
};

}  // namespace

Result<std::string> image_of(const belay_op_req& req) { return OneNode(req).make(); }

}  // namespace belay::hal
