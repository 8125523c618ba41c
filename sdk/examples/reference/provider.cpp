#include "provider.h"

#include "op.h"
#include "plugin_state.h"

#include <belay/abi/kernel_provider.h>
#include <belay/plugin.hpp>

#include <set>

namespace reference {

const Table& operators() {
  static const Table table = [] {
    Table all;
    add_elementwise(all);
    add_movement(all);
    add_reductions(all);
    add_neural(all);
    add_windows(all);
    add_recurrent(all);
    add_quantised(all);
    return all;
  }();
  return table;
}

namespace {

using belay::Code;
using belay::Status;
using belay::graph::NodeView;
using belay::graph::View;

struct Kernel {
  const Operator* op;
  Node node;
};

struct Provider {
  const belay_host& host;
};

// Runs a prepared node. `args`: inputs, then outputs.
belay_status run(const belay_exec* exec, const void* state, const uint64_t* args) noexcept {
  const Kernel& kernel = *static_cast<const Kernel*>(state);
  try {
    Call call{kernel.node, kernel.node.inputs, kernel.node.outputs, exec};
    for (Tensor& in : call.in) in.data = reinterpret_cast<void*>(*args++);
    for (Tensor& out : call.out) out.data = reinterpret_cast<void*>(*args++);
    kernel.op->run(call);
    return BELAY_OK;
  } catch (const std::bad_alloc&) {
    return BELAY_RESOURCE_EXHAUSTED;
  } catch (const std::exception& error) {
    return exec->fail(exec, BELAY_INVALID_ARGUMENT, belay::to_str(kernel.node.op + ": " + error.what()));
  }
}

uint32_t serves(belay_obj*, const belay_device_info* device) noexcept {
  return belay::to_view(device->driver) == "reference" ? 1000 : 0;
}

// Attributes that an operator is not served with: an int other than 0, a string of this value, or any other
// kind.
struct Refused {
  std::string_view op, attribute, value;
};
constexpr Refused kRefused[] = {
    {"BatchNormalization", "training_mode", ""},
    {"LSTM", "clip", ""},
    {"LSTM", "layout", ""},
    {"GRU", "clip", ""},
    {"GRU", "layout", ""},
    {"Resize", "antialias", ""},
    {"Resize", "axes", ""},
    {"Resize", "coordinate_transformation_mode", "half_pixel_symmetric"},
    {"Resize", "keep_aspect_ratio_policy", "not_larger"},
    {"Resize", "keep_aspect_ratio_policy", "not_smaller"},
    {"ScatterND", "reduction", "add"},
    {"ScatterND", "reduction", "mul"},
    {"ScatterND", "reduction", "max"},
    {"ScatterND", "reduction", "min"},
    {"ScatterElements", "reduction", "add"},
    {"ScatterElements", "reduction", "mul"},
    {"ScatterElements", "reduction", "max"},
    {"ScatterElements", "reduction", "min"},
};

// Operators that only move elements take complex numbers and strings too; strings reach a kernel as elements
// of 16 bytes.
const std::set<std::string_view> kMoves{
    "Identity", "Reshape",        "Flatten",  "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice",
    "Gather",   "GatherElements", "GatherND", "Expand",  "Tile",      "Where",     "Shape",  "Size"};

// Why a node cannot be run here; empty when it can.
std::string refusal(const View& view, const NodeView& node) {
  if (!node.domain().empty())
    return "domain '" + std::string(node.domain()) + "' is not served by the reference device";
  if (!operators().contains(node.op()))
    return "operator " + std::string(node.op()) + " is not served by the reference device";
  if (node.op() == "Dropout" && node.input(2) != BELAY_NONE)
    return "training of Dropout is not served by the reference device";
  for (const auto& [op, attribute, value] : kRefused)
    if (node.op() == op && node.has(attribute) && (value.empty() || node.string_or(attribute, "") == value) &&
        (!value.empty() || node.int_or(attribute, 1)))
      return "operator " + std::string(op) + " with " + std::string(attribute) +
             (value.empty() ? "" : " " + std::string(value)) + " is not served by the reference device";
  for (const auto values : {node.inputs(), node.outputs()})
    for (const uint32_t value : values) {
      if (value == BELAY_NONE) continue;
      const uint32_t dtype = view.dtype(value);
      const Tensor probe{dtype, {}, nullptr};
      const bool integer = dtype == BELAY_DT_BOOL || (dtype >= BELAY_DT_UINT8 && dtype <= BELAY_DT_INT64) ||
                           dtype == BELAY_DT_UINT32 || dtype == BELAY_DT_UINT64;
      const bool moved =
          kMoves.contains(node.op()) &&
          (dtype == BELAY_DT_STRING || dtype == BELAY_DT_COMPLEX64 || dtype == BELAY_DT_COMPLEX128);
      if (!integer && !probe.is_float() && !moved)
        return "element type " + std::string(belay::dtype_name(dtype)) + " of '" +
               std::string(view.string(view.values()[value].name)) +
               "' is not served by the reference device";
    }
  return {};
}

bool known(const View& view, uint32_t value) {
  const auto dims = view.shape(value);
  return dims && std::none_of(dims->begin(), dims->end(), [](int64_t dim) { return dim < 0; });
}

belay_status claim(belay_obj* object, const belay_claim_req* req, const belay_claim_sink* sink) noexcept {
  return belay::guard(belay::self<Provider>(object).host, [&]() -> Status {
    const View view(req->image);
    const belay_list nodes = view.graphs()[req->graph].nodes;
    for (uint32_t index = nodes.first; index < nodes.first + nodes.count; ++index) {
      const NodeView node = view.node(index);
      if (const std::string reason = refusal(view, node); !reason.empty()) {
        sink->refuse(sink->user, index, belay::to_str(reason));
        continue;
      }
      const Operator& op = operators().at(node.op());
      uint64_t host_inputs = 0;
      for (const uint32_t out : node.outputs())
        if (out != BELAY_NONE && !op.writes_shape && !known(view, out)) host_inputs = op.host_inputs;
      for (size_t i = 0; i < 64; ++i)
        if (node.input(i) == BELAY_NONE || req->constants[node.input(i)]) host_inputs &= ~(uint64_t{1} << i);
      belay_claim claim{};
      claim.hdr.struct_size = sizeof(claim);
      claim.nodes = &index;
      claim.node_count = 1;
      claim.inputs = node.inputs().data();
      claim.input_count = node.inputs().size();
      claim.outputs = node.outputs().data();
      claim.output_count = node.outputs().size();
      claim.score = 500;
      claim.host_inputs = host_inputs;
      sink->claim(sink->user, &claim);
    }
    return {};
  });
}

belay::Result<Tensor> operand(const View& view, uint32_t value, bool shape_needed) {
  if (value == BELAY_NONE) return Tensor{};
  const auto dims = view.shape(value);
  if (shape_needed && !known(view, value))
    return Status(Code::kInvalidArgument, "The dims of '" +
                                              std::string(view.string(view.values()[value].name)) +
                                              "' are not known; all but those that depend on data must be.");
  return Tensor{view.dtype(value), dims.value_or(Dims{}), nullptr};
}

Attribute attribute(const View& view, const NodeView& node, const belay_graph_attribute& raw) {
  Attribute out;
  const std::string_view name = view.string(raw.name);
  out.i = node.int_or(name, 0);
  out.f = node.float_or(name, 0);
  out.s = node.string_or(name, "");
  if (const auto ints = node.ints(name)) out.ints.assign(ints->begin(), ints->end());
  if (const auto floats = node.floats(name)) out.floats.assign(floats->begin(), floats->end());
  for (const std::string_view text : node.strings(name)) out.strings.emplace_back(text);
  if (const uint32_t index = node.constant(name); index != BELAY_NONE) {
    const belay_graph_constant& constant = view.constants()[index];
    const belay_span bytes = view.constant_bytes(constant, {});  // constants of attributes are inline
    out.storage.assign(static_cast<const char*>(bytes.ptr), bytes.len);
    out.tensor = {constant.dtype, view.constant_dims(constant), nullptr};
  }
  return out;
}

belay_status prepare(belay_obj* object, const belay_prepare_req* req, belay_prepared* out) noexcept {
  return belay::guard(belay::self<Provider>(object).host, [&]() -> Status {
    const View view(req->image);
    const NodeView node = view.node(req->claim->nodes[0]);
    auto kernel = std::make_unique<Kernel>();
    kernel->op = &operators().at(node.op());
    kernel->node.op = node.op();
    kernel->node.name = node.name();
    kernel->node.version = node.version();
    for (const uint32_t value : node.inputs()) {
      BELAY_ASSIGN(Tensor in, operand(view, value, true));
      kernel->node.inputs.push_back(in);
    }
    for (const uint32_t value : node.outputs()) {
      BELAY_ASSIGN(Tensor result, operand(view, value, !kernel->op->writes_shape));
      kernel->node.outputs.push_back(result);
    }
    const belay_list list = node.raw().attributes;
    for (const belay_graph_attribute& raw : view.attributes().subspan(list.first, list.count))
      kernel->node.attributes.emplace(view.string(raw.name), attribute(view, node, raw));
    for (auto& [name, value] : kernel->node.attributes) value.tensor.data = value.storage.data();

    out->kernel = {};
    out->kernel.hdr = {sizeof(belay_kernel), kernel->op->writes_shape ? BELAY_KERNEL_WRITES_SHAPE : 0,
                       nullptr};
    out->kernel.fn = run;
    out->kernel.state = kernel.get();
    out->kernel.name = belay::to_str(kernel->node.op);
    out->workspace_bytes = out->packed_bytes = out->unused_inputs = 0;
    out->implementation = belay::literal("loops");
    out->reason = belay::literal("the reference device has no other");
    out->handle = kernel.release();
    return {};
  });
}

void release(belay_obj*, void* handle) noexcept { delete static_cast<Kernel*>(handle); }
void destroy(belay_obj* object) noexcept { delete &belay::self<Provider>(object); }

constexpr belay_kernel_provider_vt kTable{
    {sizeof(belay_kernel_provider_vt), 0, nullptr}, serves, claim, prepare, release, destroy};

belay_status create(belay_ctx* ctx, const belay_value*, belay_created* out) noexcept {
  const belay_host& host = *belay::state<PluginState>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    belay::give(out, std::make_unique<Provider>(Provider{host}), kTable);
    return {};
  });
}

}  // namespace

const belay_component* provider_component() {
  static constexpr belay_component component{{sizeof(belay_component), 0, nullptr},
                                             belay::literal(BELAY_KERNEL_PROVIDER_KIND),
                                             belay::literal("reference"),
                                             nullptr,
                                             create};
  return &component;
}

}  // namespace reference
