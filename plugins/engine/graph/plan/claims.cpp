#include "plan/claims.hpp"

#include <belay/graph/builder.hpp>
#include <belay/graph/view.hpp>

#include <algorithm>
#include <queue>

#include <fnmatch.h>

namespace belay::plan {
namespace {

struct Collected {
  std::vector<Claim> claims;
  std::vector<std::string> refusals;  // by image node
  const Provider* provider = nullptr;
  size_t nodes = 0, values = 0;
  std::string broken;  // what was wrong with a claim
};

bool in_bounds(const belay_claim& claim, const Collected& all) {
  for (uint64_t i = 0; i < claim.node_count; ++i)
    if (claim.nodes[i] >= all.nodes) return false;
  for (uint64_t i = 0; i < claim.input_count; ++i)
    if (claim.inputs[i] != BELAY_NONE && claim.inputs[i] >= all.values) return false;
  for (uint64_t i = 0; i < claim.output_count; ++i)
    if (claim.outputs[i] != BELAY_NONE && claim.outputs[i] >= all.values) return false;
  for (uint64_t i = 0; i < claim.in_place_count; ++i)
    if (claim.in_place[i].input >= claim.input_count || claim.in_place[i].output >= claim.output_count)
      return false;
  return claim.node_count > 0;
}

void on_claim(void* user, const belay_claim* claim) noexcept {
  auto& all = *static_cast<Collected*>(user);
  if (!in_bounds(*claim, all)) {
    all.broken = "a claim names a node, value or argument that is not there";
    return;
  }
  Claim& at = all.claims.emplace_back();
  at.provider = *all.provider;
  at.nodes.assign(claim->nodes, claim->nodes + claim->node_count);
  at.inputs.assign(claim->inputs, claim->inputs + claim->input_count);
  at.outputs.assign(claim->outputs, claim->outputs + claim->output_count);
  at.in_place.assign(claim->in_place, claim->in_place + claim->in_place_count);
  at.score = claim->score;
  at.cost_ns = claim->cost_ns;
  at.host_inputs = claim->host_inputs;
}

void on_refuse(void* user, uint32_t node, belay_str reason) noexcept {
  auto& all = *static_cast<Collected*>(user);
  if (node >= all.nodes) return;
  std::string& text = all.refusals[node];
  if (reason.len && reason.ptr[reason.len - 1] == '.') --reason.len;  // the sentence around it has its own
  if (!text.empty()) text += "; ";
  const std::string_view name = std::string_view(all.provider->key);
  text += std::string(name.substr(name.rfind(':') + 1)) + ": " + to_string(reason);
}

// Who makes and reads each image value.
struct Links {
  explicit Links(const belay::graph::View& view)
      : maker(view.values().size(), BELAY_NONE), readers(view.values().size()) {
    for (uint32_t n = 0; n < view.nodes().size(); ++n) {
      for (const uint32_t value : view.node(n).outputs())
        if (value != BELAY_NONE) maker[value] = n;
      for (const uint32_t value : view.node(n).inputs())
        if (value != BELAY_NONE) readers[value].push_back(n);
    }
  }
  std::vector<uint32_t> maker;
  std::vector<std::vector<uint32_t>> readers;
};

// True when what the claim's nodes make and others need is among its outputs, and what they read among its
// inputs.
bool closed(const Claim& claim, const belay::graph::View& view, const Links& links,
            const std::vector<bool>& needed) {
  const std::set<uint32_t> nodes(claim.nodes.begin(), claim.nodes.end());
  const std::set<uint32_t> outputs(claim.outputs.begin(), claim.outputs.end());
  const std::set<uint32_t> inputs(claim.inputs.begin(), claim.inputs.end());
  if (nodes.size() != claim.nodes.size()) return false;
  std::set<uint32_t> made;
  for (const uint32_t node : nodes) {
    for (const uint32_t value : view.node(node).outputs()) {
      if (value == BELAY_NONE) continue;
      made.insert(value);
      if (outputs.contains(value)) continue;
      if (needed[value]) return false;
      for (const uint32_t reader : links.readers[value])
        if (!nodes.contains(reader)) return false;
    }
  }
  for (const uint32_t value : outputs)
    if (value != BELAY_NONE && !made.contains(value)) return false;
  for (const uint32_t value : inputs)
    if (value != BELAY_NONE && made.contains(value)) return false;
  return true;
}

// Orders the units so that each runs after what it reads, keeping close to the order of the image; empty on a
// cycle.
std::vector<uint32_t> order_units(const std::vector<const Claim*>& units,
                                  const std::vector<uint32_t>& unit_of, const Links& links,
                                  const belay::graph::View& view, std::vector<uint32_t>& stuck) {
  std::vector<std::set<uint32_t>> after(units.size());
  std::vector<uint32_t> waits(units.size(), 0), first(units.size(), BELAY_NONE);
  for (uint32_t u = 0; u < units.size(); ++u)
    for (const uint32_t node : units[u]->nodes) {
      // A unit stands where its last node stood: all it reads has been made there.
      first[u] = first[u] == BELAY_NONE ? node : std::max(first[u], node);
      for (const uint32_t value : view.node(node).inputs()) {
        if (value == BELAY_NONE || links.maker[value] == BELAY_NONE) continue;
        const uint32_t before = unit_of[links.maker[value]];
        if (before != u && before != BELAY_NONE && after[before].insert(u).second) ++waits[u];
      }
    }
  using Entry = std::pair<uint32_t, uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (uint32_t u = 0; u < units.size(); ++u)
    if (!waits[u]) ready.emplace(first[u], u);
  std::vector<uint32_t> order;
  while (!ready.empty()) {
    const uint32_t u = ready.top().second;
    ready.pop();
    order.push_back(u);
    for (const uint32_t next : after[u])
      if (--waits[next] == 0) ready.emplace(first[next], next);
  }
  stuck.clear();
  for (uint32_t u = 0; u < units.size(); ++u)
    if (waits[u]) stuck.push_back(u);
  return order;
}

}  // namespace

std::string operators_of(const Image& image, const Claim& claim) {
  std::string out;
  for (const uint32_t node : claim.nodes) out += (out.empty() ? "" : "+") + image.nodes[node]->op;
  return out;
}

Result<Choice> choose_claims(const Hal& hal, const Image& image, const std::set<ir::ValueId>& needed_values,
                             std::span<const Provider> providers, const belay_device_info& device,
                             std::span<const std::string> disabled_fusions) {
  const belay::graph::View view(image.span());
  Collected all;
  all.nodes = view.nodes().size();
  all.values = view.values().size();
  all.refusals.resize(all.nodes);
  const belay_claim_sink sink{&all, on_claim, on_refuse};
  belay_claim_req req{};
  req.hdr.struct_size = sizeof req;
  req.image = image.span();
  req.device = &device;
  req.constants = image.constants.data();
  std::vector<size_t> rank_of;  // of each claim: its provider's place
  for (const Provider& provider : providers) {
    all.provider = &provider;
    BELAY_TRY(hal.check(provider.vt()->claim(provider.object, &req, &sink))
                  .while_doing("asking '" + provider.key + "' for claims"));
    rank_of.resize(all.claims.size(), size_t(&provider - providers.data()));
    if (!all.broken.empty()) {
      const std::string text = "'" + provider.key + "': " + all.broken;
      hal.host->misbehave(hal.host, to_str(provider.key), to_str(all.broken));
      return Status(Code::kInternal, text + ".");
    }
  }

  const Links links(view);
  std::vector<bool> needed(all.values, false);
  for (const ir::ValueId value : needed_values)
    if (const auto at = image.index_of.find(value); at != image.index_of.end()) needed[at->second] = true;
  std::vector<uint32_t> by_score;
  const auto disabled = [&](const Claim& claim) {
    if (claim.nodes.size() == 1 || disabled_fusions.empty()) return false;
    const std::string operators = operators_of(image, claim);
    return std::any_of(disabled_fusions.begin(), disabled_fusions.end(), [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), operators.c_str(), 0) == 0;
    });
  };
  for (uint32_t i = 0; i < all.claims.size(); ++i)
    if (closed(all.claims[i], view, links, needed) && !disabled(all.claims[i])) by_score.push_back(i);
  std::stable_sort(by_score.begin(), by_score.end(), [&](uint32_t a, uint32_t b) {
    const Claim &x = all.claims[a], &y = all.claims[b];
    if (rank_of[a] != rank_of[b])
      return rank_of[a] < rank_of[b];  // the better provider, then the better kernel
    return x.score != y.score ? x.score > y.score : x.nodes.size() > y.nodes.size();
  });

  // Two claims can each be fine and wait for each other: then the weaker of them goes and the choice is made
  // again.
  std::set<uint32_t> banned;
  for (;;) {
    std::vector<uint32_t> unit_of(all.nodes, BELAY_NONE), chosen;
    std::vector<const Claim*> units;
    for (const uint32_t i : by_score) {
      const Claim& claim = all.claims[i];
      const auto taken = [&](uint32_t node) { return unit_of[node] != BELAY_NONE; };
      if (banned.contains(i) || std::any_of(claim.nodes.begin(), claim.nodes.end(), taken)) continue;
      for (const uint32_t node : claim.nodes) unit_of[node] = uint32_t(units.size());
      units.push_back(&claim);
      chosen.push_back(i);
    }
    std::vector<uint32_t> stuck;
    const std::vector<uint32_t> order = order_units(units, unit_of, links, view, stuck);
    if (!stuck.empty()) {
      uint32_t worst = BELAY_NONE;
      for (const uint32_t u : stuck)
        if (units[u]->nodes.size() > 1 && (worst == BELAY_NONE || units[u]->score < units[worst]->score))
          worst = u;
      if (worst == BELAY_NONE) return Status(Code::kInternal, "The nodes of the graph wait for each other.");
      banned.insert(chosen[worst]);
      continue;
    }
    Choice out;
    for (const uint32_t u : order) out.claims.push_back(*units[u]);
    for (uint32_t node = 0; node < all.nodes; ++node)
      if (unit_of[node] == BELAY_NONE) out.refused.emplace_back(node, all.refusals[node]);
    return out;
  }
}

Result<bool> claim_all(const Hal& hal, std::span<const Provider> providers, const belay_device_info& device,
                       std::span<const OperatorForm> forms) {
  belay::graph::Builder builder;
  uint32_t values = 0;
  const auto value = [&](uint32_t dtype) {
    return builder.add_value(0, "v" + std::to_string(values++), builder.tensor_type(dtype, std::nullopt));
  };
  for (const OperatorForm& form : forms) {
    std::vector<uint32_t> inputs;
    for (const uint32_t dtype : form.inputs) {
      inputs.push_back(value(dtype));
      builder.add_input(0, inputs.back());
    }
    const uint32_t output = value(form.output);
    builder.add_node(0, form.domain, form.op, form.version, form.op, inputs, {&output, 1});
    builder.add_output(0, output);
  }
  BELAY_ASSIGN(const std::string image, builder.freeze());
  const std::vector<const void*> constants(values, nullptr);
  belay_claim_req req{};
  req.hdr.struct_size = sizeof req;
  req.image = {image.data(), image.size()};
  req.device = &device;
  req.constants = constants.data();
  Collected all;
  all.nodes = forms.size();
  all.values = values;
  all.refusals.resize(all.nodes);
  const belay_claim_sink sink{&all, on_claim, on_refuse};
  std::set<uint32_t> claimed;
  for (const Provider& provider : providers) {
    all.provider = &provider;
    BELAY_TRY(hal.check(provider.vt()->claim(provider.object, &req, &sink))
                  .while_doing("asking '" + provider.key + "' for claims"));
  }
  for (const Claim& claim : all.claims)
    if (claim.nodes.size() == 1) claimed.insert(claim.nodes[0]);
  return claimed.size() == forms.size();
}

Result<PreparedPtr> prepare(const Hal& hal, const Image& image, const Claim& claim,
                            const belay_device_info& device, uint32_t threads, uint64_t precision) {
  belay_claim raw{};
  raw.hdr.struct_size = sizeof raw;
  raw.nodes = claim.nodes.data();
  raw.node_count = claim.nodes.size();
  raw.inputs = claim.inputs.data();
  raw.input_count = claim.inputs.size();
  raw.outputs = claim.outputs.data();
  raw.output_count = claim.outputs.size();
  raw.score = claim.score;
  raw.cost_ns = claim.cost_ns;
  raw.in_place = claim.in_place.data();
  raw.in_place_count = claim.in_place.size();
  raw.host_inputs = claim.host_inputs;
  belay_prepare_req req{};
  req.hdr.struct_size = sizeof req;
  req.image = image.span();
  req.threads = threads;
  req.claim = &raw;
  req.device = &device;
  req.constants = image.constants.data();
  req.constant_keys = image.keys.data();
  req.precision = precision;
  belay_prepared out{};
  out.hdr.struct_size = sizeof out;
  out.kernel.hdr.struct_size = sizeof out.kernel;
  const auto* vt = claim.provider.vt();
  Status status = hal.check(vt->prepare(claim.provider.object, &req, &out));
  if (!status.ok())
    return std::move(status).while_doing("preparing " + image.nodes[claim.nodes.back()]->label());
  if (!out.kernel.fn) {
    vt->release(claim.provider.object, out.handle);
    return Status(Code::kInternal, "'" + claim.provider.key + "' prepared " +
                                       image.nodes[claim.nodes.back()]->label() + " without a function.");
  }
  return PreparedPtr(std::make_shared<const Prepared>(claim.provider, out));
}

std::string describe_node(const ir::Env& env, const ir::Node& node) {
  std::string text = node.label() + ", version " + std::to_string(node.version) + " of domain '" +
                     (node.domain.empty() ? "ai.onnx" : node.domain) + "', on (";
  for (size_t i = 0; i < node.inputs.size(); ++i)
    text += (i ? ", " : "") +
            (node.inputs[i] == BELAY_NONE ? std::string("none") : ir::to_string(env.type(node.inputs[i])));
  return text + ")";
}

}  // namespace belay::plan
