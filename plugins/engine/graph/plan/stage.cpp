#include "plan/stage.hpp"

#include "ir/evaluate.hpp"
#include "ir/infer.hpp"
#include "plan/program.hpp"

#include <algorithm>
#include <atomic>
#include <map>

namespace belay::plan {

bool is_engine_op(const ir::Node& node) {
  static const std::set<std::string_view> ops = {"If",
                                                 "Loop",
                                                 "Scan",
                                                 "SequenceMap",
                                                 "SequenceConstruct",
                                                 "SequenceEmpty",
                                                 "SequenceInsert",
                                                 "SequenceErase",
                                                 "SequenceAt",
                                                 "SequenceLength",
                                                 "SplitToSequence",
                                                 "ConcatFromSequence",
                                                 "Optional",
                                                 "OptionalGetElement",
                                                 "OptionalHasElement"};
  return node.domain.empty() && ops.contains(node.op);
}

bool is_text_op(const ir::Env& env, const ir::Node& node) {
  if (node.domain == "belay") return node.op == "StringIndex";
  if (!node.domain.empty()) return false;
  if (node.op == "StringNormalizer" || node.op == "StringConcat" || node.op == "StringSplit" ||
      node.op == "RegexFullMatch")
    return true;
  const auto text = [&](size_t i) { return env.type(node.input(i)).dtype == BELAY_DT_STRING; };
  if (node.op == "Cast") return text(0) || node.int_or("to", 0) == BELAY_DT_STRING;
  if (node.op == "CastLike" || node.op == "Equal") return text(0) || text(1);
  return (node.op == "Unique" || node.op == "NonZero") && text(0);
}

std::vector<ir::ValueId> reads_of(const ir::Model& model, const ir::Node& node) {
  std::vector<ir::ValueId> out;
  for (const ir::ValueId value : node.inputs)
    if (value != BELAY_NONE) out.push_back(value);
  for (const ir::GraphId graph : ir::subgraphs_of(node)) {
    const auto captures = ir::captures_of(model, graph);
    out.insert(out.end(), captures.begin(), captures.end());
  }
  return out;
}

namespace {

// Sorts the nodes of a seed into what runs in the program, on the host after it, and later.
class Sorter {
 public:
  Sorter(const ir::Model& model, const Target& target, ConstantPool& pool, FoldBudget budget,
         const Seed& seed, const std::set<ir::NodeId>& on_host, const ReadFirst& read_first)
      : env(seed.env),
        available(seed.available),
        model_(model),
        target_(target),
        pool_(pool),
        on_host_(on_host),
        read_first_(read_first),
        budget_(budget) {}

  ir::Env env;
  std::set<ir::ValueId> available;
  std::vector<const ir::Node*> now, rest;
  std::vector<HostStep> steps;

  Status sort(std::span<const ir::Node* const> nodes) {
    for (const ir::Node* node : nodes) BELAY_TRY(take(*node));
    return {};
  }

 private:
  bool ready(ir::ValueId value) const {
    value = env.resolve(value);
    return value == BELAY_NONE || env.constants[value] || available.contains(value);
  }

  void read(ir::ValueId value) {
    value = env.resolve(value);
    if (!reads_.insert(value).second) return;
    HostStep& step = steps.emplace_back();
    step.kind = HostStep::kRead;
    step.value = value;
  }

  Status take(const ir::Node& node) {
    if (node.is("If")) return take_if(node);
    const bool engine = is_engine_op(node) || is_text_op(env, node);
    for (const ir::ValueId value : engine ? reads_of(model_, node) : node.inputs)
      if (!ready(value)) {
        rest.push_back(&node);
        return {};
      }
    if (const auto first = read_first_.find(node.id); first != read_first_.end()) {
      bool all = true;
      for (const ir::ValueId value : first->second)
        if (!env.constants[env.resolve(value)]) {
          read(value);
          all = false;
        }
      if (!all) {
        rest.push_back(&node);
        return {};
      }
    }
    bool plain = !engine;  // tensors that kernels understand
    for (const ir::ValueId value : node.inputs)
      if (value != BELAY_NONE && !env.type(value).is_tensor()) plain = false;
    if (!plain) return engine || node.is("Identity") ? host(HostStep::kEngine, node) : host_kernel(node);

    BELAY_TRY(ir::infer(env, node));
    if (fold(node)) return {};
    bool concrete = true;
    for (const ir::ValueId value : node.outputs) {
      if (value == BELAY_NONE) continue;
      if (!env.types[value].concrete()) concrete = false;
      if (env.types[value].concrete() && env.types[value].dtype != BELAY_DT_STRING)
        BELAY_TRY(check_size(node, value));
    }
    if (!concrete) {
      const uint64_t bits = ir::shape_inputs(node);
      bool waits = false;
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if ((bits >> i & 1) && node.inputs[i] != BELAY_NONE && !env.constant(node.inputs[i])) {
          read(node.inputs[i]);
          waits = true;
        }
      if (!waits) return host_kernel(node);
      rest.push_back(&node);
      return {};
    }
    if (ir::writes_shape(node) || on_host_.contains(node.id) || has_strings(node)) return host_kernel(node);
    now.push_back(&node);
    for (const ir::ValueId value : node.outputs)
      if (value != BELAY_NONE) available.insert(value);
    return {};
  }

  bool has_strings(const ir::Node& node) const {
    const auto is_string = [&](ir::ValueId value) { return env.type(value).dtype == BELAY_DT_STRING; };
    return std::any_of(node.inputs.begin(), node.inputs.end(), is_string) ||
           std::any_of(node.outputs.begin(), node.outputs.end(), is_string);
  }

  // A branch whose condition is known stands in place of its node; its outputs are other names of the
  // branch's.
  Status take_if(const ir::Node& node) {
    if (node.inputs.empty() || !ready(node.inputs[0])) {
      rest.push_back(&node);
      return {};
    }
    const ir::Constant* condition = env.constant(node.inputs[0]);
    if (!condition) {
      read(node.inputs[0]);
      rest.push_back(&node);
      return {};
    }
    const auto flag = ir::as_int64s(*condition);
    if (!flag || flag->size() != 1)
      return {Code::kInvalidArgument, "The condition of " + node.label() + " is " +
                                          ir::to_string(condition->type()) + ", want one bool."};
    const ir::GraphId branch = node.graph_or_none((*flag)[0] ? "then_branch" : "else_branch");
    const ir::Graph& graph = model_.graphs[branch];
    for (const ir::NodeId id : graph.nodes) BELAY_TRY(take(model_.nodes[id]));
    for (size_t i = 0; i < node.outputs.size() && i < graph.outputs.size(); ++i)
      if (node.outputs[i] != BELAY_NONE) env.aliases[node.outputs[i]] = env.resolve(graph.outputs[i]);
    return {};
  }

  // True when the outputs are known now.
  bool fold(const ir::Node& node) {
    const bool dims_only = node.is("Shape") || node.is("Size");
    if (!dims_only)
      for (const ir::ValueId value : node.inputs)
        if (value != BELAY_NONE && !env.constant(value)) return false;
    if (ir::is_random(node) || node.outputs.empty()) return false;
    if (is_view(env, node) && env.constant(node.inputs[0])) {
      auto same = std::make_shared<ir::Constant>(*env.constant(node.inputs[0]));
      same->dims = env.types[node.outputs[0]].dims;
      env.set_constant(node.outputs[0], std::move(same));
      return true;
    }
    auto made = ir::evaluate_small(env, node);
    if (!made && !dims_only)
      made =
          evaluate_on_host(target_.hal, env, node, target_.host_providers, target_.host_info, pool_, budget_);
    if (!made || made->size() < node.outputs.size()) return false;
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != BELAY_NONE) env.set_constant(node.outputs[i], (*made)[i]);
    return true;
  }

  Status check_size(const ir::Node& node, ir::ValueId value) const {
    const ir::Type& type = env.types[value];
    const auto count = element_count(type.dims);
    const auto bytes = count ? dtype_bytes(type.dtype, *count) : std::nullopt;
    const uint64_t limit =
        target_.options.memory_limit ? target_.options.memory_limit : target_.info.memory_bytes;
    if (!bytes || *bytes > uint64_t(INT64_MAX) / 4)
      return {Code::kInvalidArgument, "The output " + model_.value_label(value) + " of " + node.label() +
                                          " would be " + ir::to_string(type) + ", which overflows."};
    if (limit && *bytes > limit)
      return {Code::kResourceExhausted, "The output " + model_.value_label(value) + " of " + node.label() +
                                            " would be " + ir::to_string(type) + ", " +
                                            std::to_string(*bytes) + " bytes; the limit is " +
                                            std::to_string(limit) + "."};
    return {};
  }

  Status host(HostStep::Kind kind, const ir::Node& node) {
    HostStep& step = steps.emplace_back();
    step.kind = kind;
    step.node = &node;
    return {};
  }

  Status host_kernel(const ir::Node& node) {
    std::vector<ir::ValueId> wanted;
    Result<HostKernel> kernel = prepare_on_host(target_.hal, env, node, target_.host_providers,
                                                target_.host_info, pool_, target_.options.precision, &wanted);
    if (!kernel.ok() && !wanted.empty()) {
      for (const ir::ValueId value : wanted) read(value);
      rest.push_back(&node);
      return {};
    }
    if (!kernel.ok()) return std::move(kernel).status();
    for (const ir::ValueId value :
         kernel->inputs) {  // the step reads constants where they lie: keep an aligned copy
      if (value == BELAY_NONE || !env.constants[value]) continue;
      const ir::Constant& from = *env.constants[value];
      if (ir::is_aligned(from.data, from.dtype) || from.dtype == BELAY_DT_STRING) continue;
      auto copy = ir::make_constant(from.dtype, from.dims);
      if (!copy) return {Code::kResourceExhausted, "No memory to align a constant of " + node.label() + "."};
      std::copy_n(from.data, from.bytes, const_cast<std::byte*>(copy->data));
      copy->key = from.key;
      env.constants[value] = std::move(copy);
    }
    HostStep& step = steps.emplace_back();
    step.kind = HostStep::kKernel;
    step.node = &node;
    step.kernel = std::move(kernel).value();
    return {};
  }

  const ir::Model& model_;
  const Target& target_;
  ConstantPool& pool_;
  const std::set<ir::NodeId>& on_host_;
  const ReadFirst& read_first_;
  FoldBudget budget_;
  std::set<ir::ValueId> reads_;
};

// Shape arithmetic, and what only gives bytes another shape: it is gone when shapes are known, and needs no
// kernel.
bool may_fold(const ir::Env& env, const ir::Node& node) {
  static const std::set<std::string_view> reshaping = {"Shape",     "Size",    "Reshape", "Squeeze",
                                                       "Unsqueeze", "Flatten", "Identity"};
  if (node.domain.empty() && reshaping.contains(node.op)) return true;
  const ir::Type& type = env.type(node.output(0));
  const bool whole =
      type.dtype == BELAY_DT_INT64 || type.dtype == BELAY_DT_INT32 || type.dtype == BELAY_DT_BOOL;
  return whole && (!type.ranked || type.dims.size() <= 1);
}

// The nodes that a program is to stand for, and what must be there after it.
Outline outline_of(const Seed& seed, const Sorter& sorter, std::span<const ir::ValueId> outputs) {
  Outline out;
  out.before = seed.available;
  const auto need = [&](ir::ValueId value) {
    value = sorter.env.resolve(value);
    if (value != BELAY_NONE && !sorter.env.constants[value]) out.needed.insert(value);
  };
  for (const ir::ValueId value : outputs) need(value);
  for (const ir::Node* node : sorter.rest)
    for (const ir::ValueId value : reads_of(*sorter.env.model, *node)) need(value);
  for (const HostStep& step : sorter.steps) {
    if (step.kind == HostStep::kRead)
      need(step.value);
    else
      for (const ir::ValueId value : reads_of(*sorter.env.model, *step.node)) need(value);
  }
  // What only served shapes that are known by now is not run.
  std::set<ir::ValueId> live = out.needed;
  for (auto at = sorter.now.rbegin(); at != sorter.now.rend(); ++at) {
    const auto wanted = [&](ir::ValueId value) { return value != BELAY_NONE && live.contains(value); };
    if (!std::any_of((*at)->outputs.begin(), (*at)->outputs.end(), wanted)) continue;
    out.nodes.push_back(*at);
    for (const ir::ValueId value : (*at)->inputs)
      if (value != BELAY_NONE) live.insert(sorter.env.resolve(value));
  }
  std::reverse(out.nodes.begin(), out.nodes.end());
  return out;
}

// Nodes of the main graph and of all graphs below it that kernels run.
void collect_nodes(const ir::Model& model, ir::GraphId graph, std::vector<const ir::Node*>& out) {
  for (const ir::NodeId id : model.graphs[graph].nodes) {
    const ir::Node& node = model.nodes[id];
    for (const ir::GraphId sub : ir::subgraphs_of(node)) collect_nodes(model, sub, out);
    if (!is_engine_op(node) && !node.is("Identity")) out.push_back(&node);
  }
}

}  // namespace

Stage::Stage(ir::Env known)
    : env(std::move(known)), id([] {
        static std::atomic<uint64_t> last{0};
        return last.fetch_add(1, std::memory_order_relaxed) + 1;
      }()) {}

Status Planner::check() const {
  const ConstantPool::Use use(pool_);
  ir::Env env(model_);
  for (ir::ValueId i = 0; i < model_.values.size(); ++i)
    if (!env.constants[i]) env.types[i] = model_.values[i].type;
  std::vector<const ir::Node*> nodes;
  collect_nodes(model_, 0, nodes);
  std::map<const ir::Node*, std::string> reasons;
  constexpr size_t kShownMissing = 8;
  size_t missing = 0;
  std::string text;
  // Graph by graph: an image is one graph, and values of others are its inputs.
  for (ir::GraphId graph = 0; graph < model_.graphs.size(); ++graph) {
    std::vector<const ir::Node*> own;
    for (const ir::Node* node : nodes)
      if (node->graph == graph && !is_text_op(env, *node)) own.push_back(node);
    for (const auto* providers : {&target_.providers, &target_.host_providers}) {
      const bool host = providers == &target_.host_providers;
      if (own.empty() || (host && !target_.options.fallback)) break;
      std::set<ir::ValueId> needed;
      for (const ir::Node* node : own)
        for (const ir::ValueId value : node->outputs)
          if (value != BELAY_NONE) needed.insert(value);
      BELAY_ASSIGN(const Image image, make_image(env, own, needed, pool_));
      BELAY_ASSIGN(const Choice choice,
                   choose_claims(target_.hal, image, needed, *providers,
                                 host ? target_.host_info : target_.info, target_.options.disabled_fusions));
      own.clear();
      for (const auto& [node, reason] : choice.refused) {
        own.push_back(image.nodes[node]);
        reasons[own.back()] = reason;
      }
    }
    for (const ir::Node* node : own) {
      bool known = !may_fold(env, *node);
      for (const ir::ValueId value : node->inputs)
        if (value != BELAY_NONE)
          known &= env.types[value].dtype != BELAY_DT_UNDEFINED && env.types[value].ranked;
      const std::string& why = reasons[node];
      if (known && target_.options.fallback && moves_strings(env, *node)) {
        const std::set<ir::ValueId> needed(node->outputs.begin(), node->outputs.end());
        BELAY_ASSIGN(const Image image, make_image(env, {&node, 1}, needed, pool_, Strings::kOpaque));
        BELAY_ASSIGN(const Choice choice, choose_claims(target_.hal, image, needed, target_.host_providers,
                                                        target_.host_info, target_.options.disabled_fusions));
        known = choice.claims.empty();
      }
      if (known && ++missing <= kShownMissing)
        text += (missing == 1 ? "No kernel runs " : "; nor ") + describe_node(env, *node) +
                (why.empty() ? "" : ": " + why);
    }
  }
  if (missing == 0) return {};
  if (missing > kShownMissing) text += "; nor " + std::to_string(missing - kShownMissing) + " nodes more";
  return {Code::kUnimplemented, text + "."};
}

namespace {

Result<StagePtr> finish(const Target& target, ConstantPool& pool, Sorter sorter,
                        const std::set<ir::NodeId>& on_host, const ReadFirst& read_first, Outline outline,
                        const Outline* like) {
  auto stage = std::make_shared<Stage>(std::move(sorter.env));
  stage->available = std::move(sorter.available);
  stage->steps = std::move(sorter.steps);
  stage->rest = std::move(sorter.rest);
  stage->on_host = on_host;
  stage->read_first = read_first;
  stage->outline = std::move(outline);
  for (const HostStep& step : stage->steps) {
    if (step.kind != HostStep::kKernel) continue;
    const Prepared& kernel = *step.kernel.kernel;
    stage->infos.push_back({step.node->name, step.node->op, "", to_string(kernel->implementation),
                            to_string(kernel->reason), on_host.contains(step.node->id), 0});
  }
  BELAY_TRY(make_program(target, pool, like, *stage));
  // What is known of each value costs as much again as a small program.
  stage->program_bytes += stage->env.types.size() * (sizeof(ir::Type) + sizeof(ir::ConstantPtr) + 8);
  stage->bytes = sizeof(Stage) + stage->arena_bytes + stage->packed_bytes + stage->program_bytes;
  for (const Buffer& buffer : stage->constants) stage->bytes += buffer.bytes;
  return StagePtr(std::move(stage));
}

}  // namespace

Result<StagePtr> Planner::build(const Seed& seed, std::span<const ir::ValueId> outputs,
                                const Stage* like) const {
  const ConstantPool::Use use(pool_);
  std::set<ir::NodeId> on_host;
  ReadFirst read_first;
  if (like && target_.options.plan_growth) {
    // What had to go to the host there goes there at once.
    Sorter sorter(model_, target_, pool_, fold_budget_, seed, like->on_host, like->read_first);
    if (sorter.sort(seed.nodes).ok()) {
      Outline outline = outline_of(seed, sorter, outputs);
      const Outline& before = like->outline;
      if (outline.nodes == before.nodes && outline.needed == before.needed &&
          outline.before == before.before) {
        const Result<bool> made = make_units_like(target_, pool_, sorter.env, {like->env, before}, outline);
        // An error is told by the long way, if it is one there too.
        if (made.ok() && *made)
          return finish(target_, pool_, std::move(sorter), like->on_host, like->read_first,
                        std::move(outline), &before);
      }
    }
  }
  for (;;) {  // ends: each turn moves a node to the host or makes one wait for one more value
    Sorter sorter(model_, target_, pool_, fold_budget_, seed, on_host, read_first);
    BELAY_TRY(sorter.sort(seed.nodes));
    Outline outline = outline_of(seed, sorter, outputs);
    BELAY_ASSIGN(const Image image, make_image(sorter.env, outline.nodes, outline.needed, pool_));
    BELAY_ASSIGN(const Choice choice, choose_claims(target_.hal, image, outline.needed, target_.providers,
                                                    target_.info, target_.options.disabled_fusions));
    bool again = false;
    for (const auto& [node, why] : choice.refused) {
      if (is_view(sorter.env, *image.nodes[node])) continue;
      const bool other = target_.options.fallback && !target_.host_providers.empty() && !target_.host_visible;
      const bool same = target_.options.fallback && target_.host_visible;
      if (!other && !same)
        return Status(Code::kUnimplemented, "No kernel of the device runs " +
                                                describe_node(sorter.env, *image.nodes[node]) +
                                                (why.empty() ? "." : ": " + why + "."));
      again |= on_host.insert(image.nodes[node]->id).second;
    }
    for (const Claim& claim : choice.claims)
      for (size_t i = 0; i < claim.inputs.size() && i < 64; ++i)
        if ((claim.host_inputs >> i & 1) && claim.inputs[i] != BELAY_NONE &&
            !image.constants[claim.inputs[i]]) {
          // The first node of the claim that reads it waits; the others follow from what it makes.
          const ir::ValueId value = image.values[claim.inputs[i]];
          for (const uint32_t node : claim.nodes)
            again |= read_first[image.nodes[node]->id].insert(value).second;
        }
    if (again) continue;
    BELAY_ASSIGN(const std::vector<ir::NodeId> unfit,
                 make_units(target_, sorter.env, image, choice, outline));
    if (unfit.empty())
      return finish(target_, pool_, std::move(sorter), on_host, read_first, std::move(outline), nullptr);
    on_host.insert(unfit.begin(), unfit.end());
  }
}

}  // namespace belay::plan
