#include "plan/units.hpp"

#include "plan/stage.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

namespace belay::plan {
namespace {

// Larger constants are compared by their keys alone.
constexpr uint64_t kMostCompared = 1 << 16;

bool same_constant(const ir::ConstantPtr& a, const ir::ConstantPtr& b) {
  if (a == b) return true;
  if (!a || !b) return false;
  if (a->key && a->key == b->key) return true;
  return a->dtype != BELAY_DT_STRING && a->dtype == b->dtype && a->dims == b->dims && a->bytes == b->bytes &&
         a->bytes <= kMostCompared && std::memcmp(a->data, b->data, a->bytes) == 0;
}

Unit unit_of(const Image& image, const Claim& claim) {
  Unit unit;
  unit.provider = claim.provider;
  for (const uint32_t node : claim.nodes) unit.nodes.push_back(image.nodes[node]);
  const auto value_of = [&](uint32_t value) {
    return value == BELAY_NONE ? BELAY_NONE : image.values[value];
  };
  for (const uint32_t value : claim.inputs) unit.inputs.push_back(value_of(value));
  for (const uint32_t value : claim.outputs) unit.outputs.push_back(value_of(value));
  unit.in_place = claim.in_place;
  unit.cost_ns = claim.cost_ns;
  return unit;
}

Status prepare_unit(const Target& target, const Image& image, const Claim& claim, Unit& unit) {
  BELAY_ASSIGN(unit.kernel,
               prepare(target.hal, image, claim, target.info, target.threads(), target.options.precision));
  return {};
}

// No program can give it memory while it runs.
bool writes_shape(const Unit& unit) {
  return (unit.kernel->kernel().hdr.flags & BELAY_KERNEL_WRITES_SHAPE) != 0;
}

// What has become of a value since `like`.
enum class Change { kNone, kSize, kKind };

class Comparison {
 public:
  Comparison(const ir::Env& env, const ir::Env& before) : env_(env), before_(before) {}

  // Of the values that a node reads and makes, the largest.
  Change of(const ir::Node& node) {
    Change most = Change::kNone;
    for (const auto* list : {&node.inputs, &node.outputs})
      for (const ir::ValueId value : *list)
        if (value != BELAY_NONE) most = std::max(most, of(value));
    return most;
  }

 private:
  Change of(ir::ValueId named) {
    const ir::ValueId value = env_.resolve(named);
    if (value != before_.resolve(named)) return Change::kKind;
    const auto [at, fresh] = seen_.try_emplace(value, Change::kNone);
    if (fresh) at->second = compare(value);
    return at->second;
  }
  Change compare(ir::ValueId value) const {
    const ir::Type &now = env_.types[value], &then = before_.types[value];
    const ir::ConstantPtr &known = env_.constants[value], &known_then = before_.constants[value];
    if (!now.is_tensor() || !then.is_tensor() || now.dtype != then.dtype || !now.ranked || !then.ranked ||
        now.dims.size() != then.dims.size() || !known != !known_then)
      return Change::kKind;
    const auto alike = [](int64_t a, int64_t b) { return a == b || (a > 1 && b > 1); };
    if (!std::equal(now.dims.begin(), now.dims.end(), then.dims.begin(), alike)) return Change::kKind;
    return now.dims == then.dims && same_constant(known, known_then) ? Change::kNone : Change::kSize;
  }

  const ir::Env &env_, &before_;
  std::unordered_map<ir::ValueId, Change> seen_;
};

}  // namespace

bool is_view(const ir::Env& env, const ir::Node& node) {
  if (!node.domain.empty() || (node.op != "Reshape" && node.op != "Squeeze" && node.op != "Unsqueeze" &&
                               node.op != "Flatten" && node.op != "Identity"))
    return false;
  const ir::Type &in = env.type(node.input(0)), &out = env.type(node.output(0));
  return in.concrete() && out.concrete() && in.dtype == out.dtype && in.dtype != BELAY_DT_STRING &&
         element_count(in.dims) == element_count(out.dims);
}

Result<std::vector<ir::NodeId>> make_units(const Target& target, const ir::Env& env, const Image& image,
                                           const Choice& choice, Outline& to) {
  std::vector<ir::NodeId> unfit;
  std::set<const ir::Node*> fused;
  for (const Claim& claim : choice.claims)
    if (claim.nodes.size() > 1)
      for (const uint32_t node : claim.nodes) fused.insert(image.nodes[node]);
  std::set<const ir::Node*> views;
  for (const ir::Node* node : to.nodes)
    if (!fused.contains(node) && is_view(env, *node)) {
      to.views.push_back(node);
      views.insert(node);
    }
  for (const Claim& claim : choice.claims) {
    if (claim.nodes.size() == 1 && views.contains(image.nodes[claim.nodes[0]])) continue;
    Unit unit = unit_of(image, claim);
    BELAY_TRY(prepare_unit(target, image, claim, unit));
    if (writes_shape(unit))
      for (const ir::Node* node : unit.nodes) unfit.push_back(node->id);
    to.units.push_back(std::move(unit));
  }
  return unfit;
}

Result<bool> make_units_like(const Target& target, ConstantPool& pool, const ir::Env& env, const Like& like,
                             Outline& to) {
  Comparison comparison(env, like.env);
  std::set<const ir::Node*> changed;
  for (const ir::Node* node : to.nodes) {
    const Change change = comparison.of(*node);
    if (change == Change::kKind) return false;
    if (change == Change::kSize) changed.insert(node);
  }
  for (const ir::Node* view : like.outline.views)
    if (!is_view(env, *view)) return false;
  std::set<const Unit*> again;  // those to be prepared
  for (const Unit& unit : like.outline.units) {
    const auto is_changed = [&](const ir::Node* node) { return changed.contains(node); };
    if (std::none_of(unit.nodes.begin(), unit.nodes.end(), is_changed)) continue;
    changed.insert(unit.nodes.begin(), unit.nodes.end());
    again.insert(&unit);
  }
  // The others may read what a changed node makes where that is not what changed.
  std::set<ir::ValueId> needed = to.needed;
  std::vector<const ir::Node*> nodes;
  for (const ir::Node* node : to.nodes)
    if (changed.contains(node))
      nodes.push_back(node);
    else
      for (const ir::ValueId value : node->inputs)
        if (value != BELAY_NONE) needed.insert(env.resolve(value));
  std::map<const ir::Node*, std::pair<Unit, const Claim*>> chosen;  // by the first node
  Image image;
  Choice choice;
  if (!again.empty()) {
    BELAY_ASSIGN(image, make_image(env, nodes, needed, pool));
    BELAY_ASSIGN(choice, choose_claims(target.hal, image, needed, target.providers, target.info,
                                       target.options.disabled_fusions));
    for (const Claim& claim : choice.claims) {
      for (size_t i = 0; i < claim.inputs.size() && i < 64; ++i)
        if ((claim.host_inputs >> i & 1) && claim.inputs[i] != BELAY_NONE &&
            !image.constants[claim.inputs[i]])
          return false;
      Unit unit = unit_of(image, claim);
      const ir::Node* first = unit.nodes[0];
      chosen.try_emplace(first, std::move(unit), &claim);
    }
  }
  for (const Unit& unit : like.outline.units) {
    if (!again.contains(&unit)) {
      to.units.push_back(unit);
      continue;
    }
    const auto at = chosen.find(unit.nodes[0]);
    if (at == chosen.end()) return false;
    auto& [made, claim] = at->second;
    if (made.nodes != unit.nodes || made.inputs != unit.inputs || made.outputs != unit.outputs ||
        made.provider.key != unit.provider.key)
      return false;
    BELAY_TRY(prepare_unit(target, image, *claim, made));
    if (writes_shape(made)) return false;
    to.units.push_back(std::move(made));
  }
  to.views = like.outline.views;
  return true;
}

}  // namespace belay::plan
