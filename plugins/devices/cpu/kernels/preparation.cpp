#include "preparation.hpp"

#include <array>

namespace belay::cpu {

Uses::Uses(const graph::View& view, uint32_t graph)
    : count(view.values().size(), 0), last(view.values().size(), BELAY_NONE) {
  const belay_list nodes = view.graphs()[graph].nodes;
  for (uint32_t n = nodes.first; n < nodes.first + nodes.count; ++n)
    for (const uint32_t value : view.node(n).inputs()) {
      if (value == BELAY_NONE) continue;
      ++count[value];
      last[value] = n;
    }
  for (const uint32_t value : view.indices(view.graphs()[graph].outputs)) ++count[value];
  for (const belay_graph_graph& other : view.graphs())
    for (const uint32_t value : view.indices(other.captures)) ++count[value];
}

namespace {

Operand operand(const graph::View& view, uint32_t value, const belay_prepare_req& request) {
  Operand out;
  if (value == BELAY_NONE) return out;
  out.present = true;
  out.dtype = view.dtype(value);
  out.dims = view.shape(value);
  out.name = view.string(view.values()[value].name);
  if (request.constants) out.constant = request.constants[value];
  if (request.constant_keys) out.constant_key = request.constant_keys[value];
  return out;
}

Status check_inputs(const Signature& signature) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const Operand& in = signature.inputs[i];
    if (!in.present) continue;
    const std::string label =
        signature.op + ": input " + std::to_string(i) + (in.name.empty() ? "" : " '" + in.name + "'");
    if (!in.dims)
      return {Code::kFailedPrecondition, label + " has an unknown rank; a kernel is prepared for one shape."};
    for (const int64_t dim : *in.dims)
      if (dim < 0)
        return {Code::kFailedPrecondition,
                label + " has the shape " + text_of(*in.dims) + "; a kernel is prepared for one shape."};
    if (in.dims->size() > kMaxRank)
      return {Code::kUnimplemented,
              label + " has rank " + std::to_string(in.dims->size()) + ", want 32 at most."};
    const auto count = element_count(*in.dims);
    if (!count || *count > uint64_t(INT64_MAX) / 16)
      return {Code::kInvalidArgument,
              label + " has the shape " + text_of(*in.dims) + ", too large to address."};
  }
  return {};
}

bool outputs_known(const Signature& signature) {
  for (const Operand& out : signature.outputs) {
    if (!out.present) continue;
    if (!out.dims) return false;
    for (const int64_t dim : *out.dims)
      if (dim < 0) return false;
  }
  return true;
}

}  // namespace

void Preparation::take(Unit& unit, OpContext& context) {
  unit.box = std::move(context.box_);
  unit.inputs = uint32_t(unit.signature.inputs.size());
  unit.outputs = uint32_t(unit.signature.outputs.size());
  unit.declared = std::move(context.declared_);
  unit.resize = context.resize_ && !context.dynamic_;
  unit.writes_shape = context.resize_ || context.dynamic_;
  unit.implementation = std::move(context.implementation_);
  unit.reason = std::move(context.reason_);
  unit.workspace_bytes = context.workspace_bytes_;
  unit.packed_bytes = context.packed_bytes_;
  unit.unused_inputs = context.unused_inputs_;
  unit.cost_ns = context.cost_ns_;
}

Status Preparation::fill(Unit& unit, const Signature& signature) {
  OpContext context(signature, unit.cache, unit.threads, unit.precision);
  BELAY_TRY(signature.def->prepare(context));
  if (!context.box_) return context.bad("no kernel was made", Code::kInternal);
  take(unit, context);
  return {};
}

Status Preparation::prepare_pattern(Unit& unit, const belay_prepare_req& request,
                                    const graph::View& view) const {
  const std::vector<uint32_t> nodes(request.claim->nodes, request.claim->nodes + request.claim->node_count);
  const Uses uses(view, request.graph);
  const ClaimContext context{view, request.graph, request.constants, uses.count, uses.last};
  for (const uint32_t root : nodes) {
    const auto [first, last] = registry_.patterns(view.node(root).op());
    for (auto at = first; at != last; ++at) {
      Match match;
      if (!at->second.match(context, root, match) || match.nodes != nodes) continue;
      unit.signature.op = at->second.name;
      OpContext op(unit.signature, &cache_, unit.threads, unit.precision);
      PatternContext pattern{op, view, nodes};
      BELAY_TRY(at->second.prepare(pattern));
      if (!op.box_) return op.bad("no kernel was made", Code::kInternal);
      take(unit, op);
      return {};
    }
  }
  return {Code::kInvalidArgument,
          "The claim of " + std::to_string(nodes.size()) + " nodes is none of this provider."};
}

Result<std::unique_ptr<Unit>> Preparation::prepare(const belay_prepare_req& request) const {
  const graph::View view(request.image);
  const belay_claim& claim = *request.claim;
  if (claim.node_count == 0) return Status(Code::kInvalidArgument, "The claim has no node.");
  const graph::NodeView node = view.node(claim.nodes[0]);

  auto unit = std::make_unique<Unit>();
  unit->threads = std::max<uint32_t>(request.threads, 1);
  unit->precision = request.precision;
  unit->cache = &cache_;
  Signature& signature = unit->signature;
  signature.op = node.op();
  signature.domain = node.domain();
  signature.name = node.name();
  signature.version = node.version();
  signature.attributes = Attributes(view, node);
  for (uint64_t i = 0; i < claim.input_count; ++i)
    signature.inputs.push_back(operand(view, claim.inputs[i], request));
  for (uint64_t i = 0; i < claim.output_count; ++i)
    signature.outputs.push_back(operand(view, claim.outputs[i], request));
  BELAY_TRY(check_inputs(signature));

  if (claim.node_count > 1) {
    BELAY_TRY(prepare_pattern(*unit, request, view));
  } else {
    signature.def = registry_.find(node.domain(), node.op());
    if (!signature.def)
      return Status(Code::kUnimplemented, "There is no kernel for operator " + std::string(node.op()) + ".");
    Status status = fill(*unit, signature);
    if (status.code() == kDeferred) {
      unit->box = nullptr;
      unit->implementation = "deferred";
      unit->reason = status.message() + ", so the kernel is chosen at the run";
      unit->writes_shape = !outputs_known(signature);
      status = {};
    }
    BELAY_TRY(std::move(status));
  }
  for (Operand& in : signature.inputs) in.constant = nullptr;  // borrowed until now
  unit->name = signature.name.empty() ? signature.op : signature.op + " " + signature.name;
  return unit;
}

namespace {

belay_status run_ready(const Unit& unit, const belay_exec* exec, const uint64_t* args) {
  const bool has_workspace = unit.workspace_bytes != 0;
  if (!unit.resize) return unit.box->run(Run(exec, args, unit.inputs, unit.outputs, nullptr, has_workspace));
  std::vector<void*> memory(unit.outputs, nullptr);
  for (uint32_t o = 0; o < unit.outputs; ++o) {
    if (!unit.signature.outputs[o].present || o >= unit.declared.size() || !unit.declared[o]) continue;
    memory[o] = exec->output(exec, o, unit.declared[o]->data(), uint32_t(unit.declared[o]->size()));
    if (!memory[o]) throw std::bad_alloc();
  }
  return unit.box->run(Run(exec, args, unit.inputs, unit.outputs, memory.data(), has_workspace));
}

// All inputs have bytes now: prepare with them as constants, for this run only.
belay_status run_deferred(const Unit& unit, const belay_exec* exec, const uint64_t* args) {
  Unit now;
  now.cache = unit.cache;
  now.threads = unit.threads;
  now.precision = unit.precision;
  now.signature = unit.signature;
  for (size_t i = 0; i < now.signature.inputs.size(); ++i) {
    now.signature.inputs[i].constant = reinterpret_cast<const void*>(args[i]);
    now.signature.inputs[i].constant_key = 0;
  }
  Status status = Preparation::fill(now, now.signature);
  if (status.ok() && now.writes_shape != unit.writes_shape)
    status = {Code::kInternal, unit.name + ": the output's shape depends on data that came too late."};
  if (status.ok() && now.workspace_bytes != 0)
    status = {Code::kInternal, unit.name + ": no workspace for a kernel chosen at the run."};
  if (!status.ok()) return exec->fail(exec, uint32_t(status.code()), to_str(status.message()));
  return run_ready(now, exec, args);
}

}  // namespace

belay_status run_unit(const belay_exec* exec, const void* state, const uint64_t* args) BELAY_NOEXCEPT {
  const Unit& unit = *static_cast<const Unit*>(state);
  try {
    return unit.box ? run_ready(unit, exec, args) : run_deferred(unit, exec, args);
  } catch (const std::bad_alloc&) {
    return BELAY_RESOURCE_EXHAUSTED;
  } catch (const std::exception& error) {
    return exec->fail(exec, BELAY_INTERNAL, to_str(error.what()));
  }
}

}  // namespace belay::cpu
