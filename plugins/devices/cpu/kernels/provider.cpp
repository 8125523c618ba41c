#include "provider.hpp"

#include "preparation.hpp"
#include "registry.hpp"

#include <belay/abi/kernel_provider.h>
#include <belay/fill.hpp>
#include <belay/plugin.hpp>

#include <algorithm>

namespace belay::cpu {
namespace {

struct Provider {
  const belay_host* host;
  Registry registry;
  PackCache cache;
};

// Shapes can be such that an estimate is more than any number of nanoseconds.
uint64_t whole_ns(double ns) { return uint64_t(std::min(ns, 1e15)); }

uint64_t operand_bytes(const graph::View& view, uint32_t value) {
  if (value == BELAY_NONE) return 0;
  const auto shape = view.shape(value);
  const auto count = shape ? element_count(*shape) : std::nullopt;
  return count ? *count * element_bytes(view.dtype(value)) : 0;
}

bool same_place(const graph::View& view, uint32_t a, uint32_t b) {
  const auto a_shape = view.shape(a), b_shape = view.shape(b);
  if (!a_shape || !b_shape) return false;
  const auto a_count = element_count(*a_shape), b_count = element_count(*b_shape);
  return a_count && b_count && *a_count == *b_count &&
         element_bytes(view.dtype(a)) == element_bytes(view.dtype(b)) && element_bytes(view.dtype(a)) != 0;
}

// Why a single operator cannot be claimed; empty: it can.
std::string refusal(const graph::View& view, graph::NodeView node, const OpDef* def) {
  std::string label(node.op());
  if (!node.domain().empty()) label = std::string(node.domain()) + "." + label;
  label = "Operator " + label + " version " + std::to_string(node.version());
  if (!def) return label + ": there is no kernel for it.";
  const size_t inputs = node.inputs().size();
  if (inputs < def->min_inputs || (def->max_inputs != 255 && inputs > def->max_inputs))
    return label + ": it has " + std::to_string(inputs) + " inputs, want " + std::to_string(def->min_inputs) +
           " to " + (def->max_inputs == 255 ? "any number" : std::to_string(def->max_inputs)) + ".";
  if (def->max_outputs != 255 && node.outputs().size() > def->max_outputs)
    return label + ": it has " + std::to_string(node.outputs().size()) + " outputs, want " +
           std::to_string(def->max_outputs) + " at most.";
  TypeMask mask = 0;
  for (size_t i = 0; i < inputs; ++i) {
    if (i < std::size(def->types) && def->types[i]) mask = def->types[i];
    const uint32_t value = node.inputs()[i];
    if (value == BELAY_NONE) {
      if (i < def->min_inputs && def->max_inputs != 255 && !(def->optional >> i & 1))
        return label + ": input " + std::to_string(i) + " is missing.";
      continue;
    }
    const uint32_t dtype = view.dtype(value);
    if (mask & type_bit(dtype)) continue;
    const belay_graph_type* type = view.type(value);
    const std::string found = !type                             ? "a type that is not known"
                              : type->kind != BELAY_TYPE_TENSOR ? "a type that is no tensor"
                                                                : "type " + std::string(dtype_name(dtype));
    return label + ": input " + std::to_string(i) + " is of " + found + ", want " + type_names(mask) + ".";
  }
  return {};
}

void claim_single(const graph::View& view, graph::NodeView node, const OpDef& def,
                  const ClaimContext& context, const belay_claim_sink& sink) {
  const uint32_t index = node.index();
  belay_in_place pairs[4];
  belay_claim claim{};
  claim.hdr.struct_size = sizeof claim;
  claim.nodes = &index;
  claim.node_count = 1;
  claim.inputs = node.inputs().data();
  claim.input_count = node.inputs().size();
  claim.outputs = node.outputs().data();
  claim.output_count = node.outputs().size();
  claim.score = 500;
  uint64_t bytes = 0;
  for (const uint32_t value : node.inputs()) bytes += operand_bytes(view, value);
  for (const uint32_t value : node.outputs()) bytes += operand_bytes(view, value);
  claim.cost_ns = 300 + whole_ns(double(bytes) * def.ns_per_byte);
  if (def.in_place != InPlace::kNone && node.output(0) != BELAY_NONE)
    for (uint32_t i = 0; i < (def.in_place == InPlace::kFirst ? 1u : 2u); ++i) {
      const uint32_t value = node.input(i);
      if (value != BELAY_NONE && !context.constant(value) && same_place(view, value, node.output(0)))
        pairs[claim.in_place_count++] = {i, 0};
    }
  for (const belay_in_place& pair : def.shared) {
    const uint32_t from = node.input(pair.input), to = node.output(pair.output);
    if (pair.output != 0 && from != BELAY_NONE && to != BELAY_NONE && !context.constant(from) && same_place(view, from, to))
      pairs[claim.in_place_count++] = pair;
  }
  claim.in_place = pairs;
  const bool shape_known =
      def.host_for_shape && view.shape(node.output(0)) && element_count(*view.shape(node.output(0)));
  for (uint32_t i = 0; i < std::min<size_t>(node.inputs().size(), 64) && !shape_known; ++i)
    if ((def.host_inputs >> i & 1) && node.inputs()[i] != BELAY_NONE && !context.constant(node.inputs()[i]))
      claim.host_inputs |= uint64_t{1} << i;
  sink.claim(sink.user, &claim);
}

void claim_match(const Match& match, const belay_claim_sink& sink) {
  belay_claim claim{};
  claim.hdr.struct_size = sizeof claim;
  claim.nodes = match.nodes.data();
  claim.node_count = match.nodes.size();
  claim.inputs = match.inputs.data();
  claim.input_count = match.inputs.size();
  claim.outputs = match.outputs.data();
  claim.output_count = match.outputs.size();
  claim.score = match.score;
  claim.cost_ns = match.cost_ns;
  claim.in_place = match.in_place.data();
  claim.in_place_count = match.in_place.size();
  claim.host_inputs = match.host_inputs;
  sink.claim(sink.user, &claim);
}

struct Slots {
  static uint32_t serves(belay_obj*, const belay_device_info* device) noexcept {
    return to_view(device->driver) == "cpu" && (device->hdr.flags & BELAY_DEVICE_HOST_VISIBLE) ? 500 : 0;
  }

  static belay_status claim(belay_obj* object, const belay_claim_req* request,
                            const belay_claim_sink* sink) noexcept {
    const Provider& provider = self<Provider>(object);
    return guard(*provider.host, [&]() -> Status {
      const graph::View view(request->image);
      if (request->graph >= view.graphs().size())
        return {Code::kOutOfRange, "Graph " + std::to_string(request->graph) +
                                       " is asked for, the image has " +
                                       std::to_string(view.graphs().size()) + "."};
      const Uses uses(view, request->graph);
      const ClaimContext context{view, request->graph, request->constants, uses.count, uses.last};
      const belay_list nodes = view.graphs()[request->graph].nodes;
      std::vector<bool> covered(nodes.count, false);
      for (uint32_t i = 0; i < nodes.count; ++i) {
        const graph::NodeView node = view.node(nodes.first + i);
        const auto [first, last] = provider.registry.patterns(node.op());
        for (auto at = first; at != last; ++at) {
          Match match;
          if (!at->second.match(context, node.index(), match)) continue;
          claim_match(match, *sink);
          for (const uint32_t n : match.nodes) covered[n - nodes.first] = true;
        }
      }
      for (uint32_t i = 0; i < nodes.count; ++i) {
        const graph::NodeView node = view.node(nodes.first + i);
        const OpDef* def = provider.registry.find(node.domain(), node.op());
        const std::string why = refusal(view, node, def);
        if (why.empty())
          claim_single(view, node, *def, context, *sink);
        else if (!covered[i])
          sink->refuse(sink->user, node.index(), to_str(why));
      }
      return {};
    });
  }

  static belay_status prepare(belay_obj* object, const belay_prepare_req* request,
                              belay_prepared* out) noexcept {
    Provider& provider = self<Provider>(object);
    return guard(*provider.host, [&]() -> Status {
      BELAY_ASSIGN(std::unique_ptr<Unit> unit,
                   Preparation(provider.registry, provider.cache).prepare(*request));
      belay_prepared result{};
      result.kernel.hdr = {sizeof(belay_kernel), unit->writes_shape ? BELAY_KERNEL_WRITES_SHAPE : 0u,
                           nullptr};
      result.kernel.fn = run_unit;
      result.kernel.state = unit.get();
      result.kernel.cost_ns = whole_ns(unit->cost_ns);
      result.kernel.name = to_str(unit->name);
      result.workspace_bytes = unit->workspace_bytes;
      result.packed_bytes = unit->packed_bytes;
      result.unused_inputs = unit->unused_inputs;
      result.implementation = to_str(unit->implementation);
      result.reason = to_str(unit->reason);
      result.handle = unit.release();
      belay::fill(out, result);
      return {};
    });
  }

  static void release(belay_obj*, void* handle) noexcept { delete static_cast<Unit*>(handle); }
  static void destroy(belay_obj* object) noexcept { delete static_cast<Provider*>(object->impl); }

  static belay_status create(belay_ctx* ctx, const belay_value*, belay_created* out) noexcept;
};

constexpr belay_kernel_provider_vt kTable{
    .hdr = {sizeof(belay_kernel_provider_vt), 0, nullptr},
    .serves = Slots::serves,
    .claim = Slots::claim,
    .prepare = Slots::prepare,
    .release = Slots::release,
    .destroy = Slots::destroy,
};

belay_status Slots::create(belay_ctx* ctx, const belay_value*, belay_created* out) noexcept {
  const belay_host& host = *reinterpret_cast<const PluginState*>(ctx)->host;
  return guard(host, [&]() -> Status {
    auto provider = std::make_unique<Provider>();
    provider->host = &host;
    give(out, std::move(provider), kTable);
    return {};
  });
}

constexpr belay_component kComponent{
    .hdr = {sizeof(belay_component), 0, nullptr},
    .kind = literal(BELAY_KERNEL_PROVIDER_KIND),
    .name = literal("cpu"),
    .score = nullptr,
    .create = Slots::create,
};

}  // namespace
}  // namespace belay::cpu

const belay_component* belay_cpu_kernel_provider_component() { return &belay::cpu::kComponent; }
