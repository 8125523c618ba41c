// Gradient of ai.onnx.preview.training becomes the nodes that compute it: reverse differentiation of the part of the
// graph between the values that it names. What it makes are plain operators, so a Gradient of a Gradient is one, too.
#include "ir/infer.hpp"
#include "passes/passes.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <unordered_map>

namespace belay::passes {
namespace {

class Differentiation {
 public:
  Differentiation(ir::Model& model, ir::Env env, ir::NodeId gradient)
      : model_(model), env_(std::move(env)), gradient_(model.nodes[gradient]), graph_(gradient_.graph) {}

  Status run() {
    for (const ir::NodeId id : model_.graphs[graph_].nodes)
      for (const ir::ValueId output : model_.nodes[id].outputs)
        if (output != BELAY_NONE) maker_[output] = id;
    BELAY_TRY(find_names());
    BELAY_TRY(find_path());
    BELAY_TRY(copy_path());
    BELAY_ASSIGN(adjoints_[y_], filled(y_, 1));
    for (auto at = path_.rbegin(); at != path_.rend(); ++at) BELAY_TRY(go_back(model_.nodes[*at]));
    for (size_t i = 0; i < xs_.size(); ++i) {
      if (gradient_.output(i) == BELAY_NONE) continue;
      const auto found = adjoints_.find(xs_[i]);
      ir::ValueId from = BELAY_NONE;
      if (found != adjoints_.end()) {
        from = found->second;
      } else {
        BELAY_ASSIGN(from, filled(xs_[i], 0));
      }
      node("Identity", 16, {from}).outputs = {gradient_.outputs[i]};
    }
    return put_in_place();
  }

 private:
  using V = ir::ValueId;

  Status fail(const std::string& what) const {
    return {Code::kInvalidArgument, "Node " + gradient_.label().substr(5) + ": " + what};
  }

  // ---- what the node names

  Result<V> value_named(const std::string& name) const {
    for (V id = 0; id < model_.values.size(); ++id)
      if (model_.values[id].graph == graph_ && model_.values[id].name == name &&
          (maker_.contains(id) || model_.values[id].is_input || model_.values[id].constant))
        return id;
    return fail("its graph has no value '" + name + "'.");
  }

  Status find_names() {
    const ir::Attribute *xs = gradient_.find("xs"), *zs = gradient_.find("zs"), *y = gradient_.find("y");
    if (!xs || !y || xs->strings.empty()) return fail("want the names xs and y.");
    std::vector<std::string> names = xs->strings;
    if (zs) names.insert(names.end(), zs->strings.begin(), zs->strings.end());
    if (names.size() != gradient_.inputs.size())
      return fail("xs and zs name " + std::to_string(names.size()) + " values, it has " +
                  std::to_string(gradient_.inputs.size()) + " inputs.");
    for (size_t i = 0; i < names.size(); ++i) {
      BELAY_ASSIGN(const V value, value_named(names[i]));
      given_[value] = gradient_.inputs[i];
      if (i < xs->strings.size()) xs_.push_back(value);
    }
    BELAY_ASSIGN(y_, value_named(y->strings.at(0)));
    return {};
  }

  std::vector<V> reads_of(const ir::Node& node) const {
    std::vector<V> out;
    for (const V input : node.inputs)
      if (input != BELAY_NONE) out.push_back(input);
    for (const ir::GraphId sub : ir::subgraphs_of(node)) {
      const auto captures = ir::captures_of(model_, sub);
      out.insert(out.end(), captures.begin(), captures.end());
    }
    return out;
  }
  static bool is_active(const std::map<V, bool>& active, V value) {
    const auto at = active.find(value);
    return at != active.end() && at->second;
  }

  // Nodes between the named inputs and y, in order, that y depends on the xs through.
  Status find_path() {
    std::map<V, bool> active;  // by value: depends on an x
    for (const auto& [value, input] : given_) active[value] = false;
    for (const V x : xs_) active[x] = true;
    enum State { kNew, kOpen, kDone };
    std::unordered_map<ir::NodeId, State> state;
    std::vector<V> stack{y_};
    while (!stack.empty()) {
      const V value = stack.back();
      const auto maker = maker_.find(value);
      if (active.contains(value) || maker == maker_.end()) {
        stack.pop_back();
        continue;
      }
      const ir::Node& node = model_.nodes[maker->second];
      if (node.id == gradient_.id) return fail("y depends on its own result.");
      State& at = state[node.id];
      if (at == kNew) {
        at = kOpen;
        for (const V input : reads_of(node)) stack.push_back(input);
        continue;
      }
      stack.pop_back();
      bool depends = false;
      for (const V input : reads_of(node)) depends |= is_active(active, input);
      for (const V output : node.outputs)
        if (output != BELAY_NONE) active.emplace(output, depends && ir::is_float(type(output).dtype));
      if (at == kOpen && depends) path_.push_back(node.id);
      at = kDone;
    }
    active_ = std::move(active);
    if (!ir::is_float(type(y_).dtype))
      return fail("y is " + ir::to_string(type(y_)) + ", want floating point.");
    return {};
  }

  // The inputs may be other values than those named: then the path is computed for them.
  Status copy_path() {
    for (const auto& [value, input] : given_)
      if (value != input) now_[value] = input;
    if (now_.empty()) return {};
    for (const ir::NodeId id : model_.graphs[graph_].nodes) {
      const ir::Node& from = model_.nodes[id];
      const std::vector<V> reads = reads_of(from);
      const bool changed = std::any_of(reads.begin(), reads.end(), [&](V in) { return now_.contains(in); });
      const bool wanted = std::any_of(from.outputs.begin(), from.outputs.end(),
                                      [&](V out) { return active_.contains(out) && !given_.contains(out); });
      if (!changed || !wanted || id == gradient_.id) continue;
      if (!ir::subgraphs_of(from).empty()) return no_rule(from, "");
      ir::Node& copy = model_.add_node(graph_, from.op, from.version, from.name);
      copy.domain = from.domain;
      copy.attributes = from.attributes;
      for (const V in : from.inputs) copy.inputs.push_back(now(in));
      for (const V out : from.outputs) {
        copy.outputs.push_back(out == BELAY_NONE ? out : model_.add_value(graph_, model_.values[out].name + ".at"));
        if (out != BELAY_NONE) now_[out] = copy.outputs.back();
      }
      made_.push_back(copy.id);
      env_.grow();
      (void)ir::infer(env_, copy).ok();  // what does not fit is told when the node is planned
    }
    return {};
  }
  const ir::Type& type(V value) const { return env_.type(now(value)); }

  V now(V value) const {
    const auto at = now_.find(value);
    return at == now_.end() ? value : at->second;
  }

  // ---- writing nodes

  ir::Node& node(const char* op, uint32_t version, std::vector<V> inputs) {
    ir::Node& made = model_.add_node(graph_, op, version, gradient_.name);
    made.inputs = std::move(inputs);
    made_.push_back(made.id);
    return made;
  }
  V named(ir::Node& made) {
    const V out = model_.add_value(graph_, gradient_.name + "." + made.op);
    made.outputs = {out};
    return out;
  }
  V op(const char* name, uint32_t version, std::vector<V> inputs) {
    return named(node(name, version, std::move(inputs)));
  }
  V constant(ir::ConstantPtr value) { return model_.add_value(graph_, gradient_.name + ".c", {}, std::move(value)); }
  V ints(std::vector<int64_t> values) { return constant(ir::make_int64s(values)); }
  V number(V like, double value) { return constant(ir::make_scalar(type(like).dtype, value)); }
  V shape(V value) { return op("Shape", 15, {value}); }
  V add(V a, V b) { return op("Add", 14, {a, b}); }
  V sub(V a, V b) { return op("Sub", 14, {a, b}); }
  V mul(V a, V b) { return op("Mul", 14, {a, b}); }
  V div(V a, V b) { return op("Div", 14, {a, b}); }
  V neg(V a) { return op("Neg", 13, {a}); }
  V with(const char* name, uint32_t version, std::vector<V> inputs,
         std::vector<std::pair<const char*, int64_t>> attributes) {
    ir::Node& made = node(name, version, std::move(inputs));
    for (const auto& [key, value] : attributes) made.set_int(key, value);
    return named(made);
  }

  Result<V> filled(V like, double value) {
    if (!ir::is_float(type(like).dtype))
      return fail("'" + model_.values[like].name + "' is " + ir::to_string(type(like)) +
                  ", want floating point.");
    return op("Expand", 13, {number(like, value), shape(now(like))});
  }

  // `grad` has the shape of `whole`; sums what was broadcast from the shape of `part`, which is made now.
  V reduced(V grad, const ir::Type& whole, const ir::Type& part_type, V part) {
    if (whole.ranked && part_type.ranked && whole.dims == part_type.dims &&
        std::find(whole.dims.begin(), whole.dims.end(), ir::kUnknown) == whole.dims.end())
      return grad;
    const V from = shape(grad), to = shape(part);
    const V missing = op("Expand", 13, {ints({1}), sub(shape(from), shape(to))});
    const V same = op("Equal", 13, {with("Concat", 13, {missing, to}, {{"axis", 0}}), from});
    const V axes = op("Squeeze", 13, {op("NonZero", 13, {op("Not", 1, {same})}), ints({0})});
    const V sum = with("ReduceSum", 13, {grad, axes}, {{"keepdims", 1}, {"noop_with_empty_axes", 1}});
    return op("Reshape", 14, {sum, to});
  }
  V reduced(V grad, const ir::Node& at, size_t input) {
    return reduced(grad, type(at.output(0)), type(at.input(input)), in(at, input));
  }

  V in(const ir::Node& at, size_t i) const { return now(at.input(i)); }
  V out(const ir::Node& at) const { return now(at.output(0)); }

  void give(V to, V grad) {
    const auto [at, fresh] = adjoints_.emplace(to, grad);
    if (!fresh) at->second = add(at->second, grad);
  }

  // ---- derivatives

  // Adds to the adjoints of the node's inputs what that of its output says.
  Status go_back(const ir::Node& at) {
    for (size_t i = 1; i < at.outputs.size(); ++i)
      if (adjoints_.contains(at.outputs[i])) return no_rule(at, "with several outputs");
    const auto found = adjoints_.find(at.output(0));
    if (found == adjoints_.end()) return {};
    const V g = found->second;
    std::vector<bool> wanted;
    for (const V input : at.inputs) wanted.push_back(is_active(active_, input));
    if (!at.domain.empty() || !ir::subgraphs_of(at).empty()) return no_rule(at, "");
    if (at.op == "MatMul") return mat_mul(at, g, wanted);
    if (at.op == "Concat") return concat(at, g, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) continue;
      const V grad = derivative(at, g, i);
      if (grad == BELAY_NONE) return no_rule(at, "by input " + std::to_string(i));
      give(at.inputs[i], grad);
    }
    return {};
  }

  Status no_rule(const ir::Node& at, const std::string& how) const {
    return {Code::kUnimplemented, "Node " + gradient_.label().substr(5) + ": there is no derivative of " + at.label() +
                                      (how.empty() ? "" : " " + how) + "."};
  }

  // BELAY_NONE: there is no rule.
  V derivative(const ir::Node& at, V g, size_t i) {
    const V grad = elementwise(at, g, i);
    return grad == BELAY_NONE ? shaping(at, g, i) : grad;
  }

  V elementwise(const ir::Node& at, V g, size_t i) {
    const std::string& name = at.op;
    const V x = in(at, i), y = out(at), like = at.output(0);
    const auto one = [&](double value) { return number(like, value); };
    if (name == "Identity") return g;
    if (name == "Add" || name == "Sum") return reduced(g, at, i);
    if (name == "Sub") return reduced(i == 0 ? g : neg(g), at, i);
    if (name == "Mul") return reduced(mul(g, in(at, 1 - i)), at, i);
    if (name == "Mean") return reduced(div(g, one(double(at.inputs.size()))), at, i);
    if (name == "Div")
      return reduced(i == 0 ? div(g, in(at, 1)) : neg(div(mul(g, y), in(at, 1))), at, i);
    if (name == "Pow") {
      const V base = in(at, 0);
      const V power = with("Cast", 13, {in(at, 1)}, {{"to", type(like).dtype}});
      if (i == 0) return reduced(mul(g, mul(power, op("Pow", 15, {base, sub(power, one(1))}))), at, i);
      if (type(at.inputs[0]).dtype != type(at.inputs[1]).dtype) return BELAY_NONE;
      return reduced(mul(g, mul(y, op("Log", 13, {base}))), at, i);
    }
    if (name == "Where" && i > 0) {
      const V zero = one(0), condition = in(at, 0);
      return reduced(i == 1 ? op("Where", 16, {condition, g, zero}) : op("Where", 16, {condition, zero, g}), at, i);
    }
    if (i > 0) return BELAY_NONE;  // from here on the others are parameters
    if (name == "Neg") return neg(g);
    if (name == "Abs") return mul(g, op("Sign", 13, {x}));
    if (name == "Exp") return mul(g, y);
    if (name == "Log") return div(g, x);
    if (name == "Sqrt") return div(g, mul(one(2), y));
    if (name == "Reciprocal") return neg(mul(g, mul(y, y)));
    if (name == "Sin") return mul(g, op("Cos", 7, {x}));
    if (name == "Cos") return neg(mul(g, op("Sin", 7, {x})));
    if (name == "Tanh") return mul(g, sub(one(1), mul(y, y)));
    if (name == "Sigmoid") return mul(g, mul(y, sub(one(1), y)));
    if (name == "Softplus") return mul(g, op("Sigmoid", 13, {x}));
    if (name == "Erf")
      return mul(g, mul(one(2 * std::numbers::inv_sqrtpi), op("Exp", 13, {neg(mul(x, x))})));
    if (name == "Relu") return op("Where", 16, {op("Greater", 13, {x, one(0)}), g, one(0)});
    if (name == "LeakyRelu")
      return op("Where", 16,
                {op("Less", 13, {x, one(0)}), mul(g, one(double(at.float_or("alpha", 0.01f)))), g});
    if (name == "Clip") {
      V grad = g;
      if (at.input(1) != BELAY_NONE) grad = op("Where", 16, {op("Less", 13, {x, in(at, 1)}), one(0), grad});
      if (at.input(2) != BELAY_NONE) grad = op("Where", 16, {op("Greater", 13, {x, in(at, 2)}), one(0), grad});
      return grad;
    }
    if (name == "Cast") return with("Cast", 13, {g}, {{"to", type(at.inputs[0]).dtype}});
    return BELAY_NONE;
  }

  V shaping(const ir::Node& at, V g, size_t i) {
    const std::string& name = at.op;
    if (name == "Gemm") return gemm(at, g, i);
    if (i > 0) return BELAY_NONE;
    const V x = in(at, 0), y = out(at);
    if (name == "Reshape" || name == "Flatten" || name == "Squeeze" || name == "Unsqueeze")
      return op("Reshape", 14, {g, shape(x)});
    if (name == "Expand") return reduced(g, at, 0);
    if (name == "Transpose") {
      ir::Node& back = node("Transpose", 13, {g});
      if (const auto* perm = at.ints("perm")) {
        std::vector<int64_t> inverse(perm->size());
        for (size_t d = 0; d < perm->size(); ++d) {
          if ((*perm)[d] < 0 || size_t((*perm)[d]) >= perm->size()) return BELAY_NONE;
          inverse[size_t((*perm)[d])] = int64_t(d);
        }
        back.set_ints("perm", std::move(inverse));
      }
      return named(back);
    }
    if (name == "ReduceSum" || name == "ReduceMean") {
      const auto* list = at.ints("axes");
      const V axes = list ? ints(*list) : at.input(1) == BELAY_NONE ? V(BELAY_NONE) : in(at, 1);
      const bool dropped = !at.int_or("keepdims", 1) && axes != BELAY_NONE;
      V grad = dropped ? op("Unsqueeze", 13, {g, axes}) : g;
      grad = op("Expand", 13, {grad, shape(x)});
      if (name == "ReduceSum") return grad;
      const V count = div(op("Size", 13, {x}), op("Size", 13, {y}));
      return div(grad, with("Cast", 13, {count}, {{"to", type(at.output(0)).dtype}}));
    }
    if (name == "Softmax" || name == "LogSoftmax") {
      const int64_t axis = at.int_or("axis", -1);
      const auto sum = [&](V of) { return with("ReduceSum", 13, {of, ints({axis})}, {{"keepdims", 1}}); };
      if (name == "Softmax") return mul(y, sub(g, sum(mul(g, y))));
      return sub(g, mul(op("Exp", 13, {y}), sum(g)));
    }
    return BELAY_NONE;
  }

  V gemm(const ir::Node& at, V g, size_t i) {
    const int64_t ta = at.int_or("transA", 0) != 0, tb = at.int_or("transB", 0) != 0;
    const auto scaled = [&](V of, const char* factor) {
      return mul(of, number(at.output(0), double(at.float_or(factor, 1))));
    };
    if (i == 2) return reduced(scaled(g, "beta"), at, 2);
    const V a = in(at, 0), b = in(at, 1);
    const auto product = [&](V left, int64_t tl, V right, int64_t tr) {
      return scaled(with("Gemm", 13, {left, right}, {{"transA", tl}, {"transB", tr}}), "alpha");
    };
    if (i == 0) return ta ? product(b, tb, g, 1) : product(g, 0, b, !tb);
    return tb ? product(g, 1, a, ta) : product(a, !ta, g, 0);
  }

  // A vector is a matrix of one row, or of one column, without that dim.
  Status mat_mul(const ir::Node& at, V g, const std::vector<bool>& wanted) {
    const ir::Type types[] = {type(at.input(0)), type(at.input(1))};
    if (!types[0].ranked || !types[1].ranked) return no_rule(at, "of unknown rank");
    V operands[] = {in(at, 0), in(at, 1)};
    const bool vector[] = {types[0].dims.size() == 1, types[1].dims.size() == 1};
    if (vector[0]) operands[0] = op("Unsqueeze", 13, {operands[0], ints({0})});
    if (vector[1]) operands[1] = op("Unsqueeze", 13, {operands[1], ints({1})});
    if (vector[1]) g = op("Unsqueeze", 13, {g, ints({-1})});
    if (vector[0]) g = op("Unsqueeze", 13, {g, ints({-2})});
    const auto transposed = [&](size_t side) {
      std::vector<int64_t> perm(std::max<size_t>(2, types[side].dims.size()));
      for (size_t d = 0; d < perm.size(); ++d) perm[d] = int64_t(d);
      std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
      ir::Node& made = node("Transpose", 13, {operands[side]});
      made.set_ints("perm", std::move(perm));
      return named(made);
    };
    for (size_t side = 0; side < 2; ++side) {
      if (!wanted[side]) continue;
      V grad = side == 0 ? op("MatMul", 13, {g, transposed(1)}) : op("MatMul", 13, {transposed(0), g});
      const bool batched = types[0].dims.size() > 2 || types[1].dims.size() > 2;
      if (batched) grad = reduced(grad, {}, {}, operands[side]);
      if (vector[side]) grad = op("Reshape", 14, {grad, shape(in(at, side))});
      give(at.inputs[side], grad);
    }
    return {};
  }

  Status concat(const ir::Node& at, V g, const std::vector<bool>& wanted) {
    const int64_t axis = at.int_or("axis", 0);
    std::vector<V> sizes;
    for (size_t i = 0; i < at.inputs.size(); ++i)
      sizes.push_back(with("Gather", 13, {shape(in(at, i)), ints({axis})}, {{"axis", 0}}));
    const V all = with("Concat", 13, std::move(sizes), {{"axis", 0}});
    ir::Node& split = node("Split", 13, {g, all});
    split.set_int("axis", axis);
    for (size_t i = 0; i < at.inputs.size(); ++i)
      split.outputs.push_back(wanted[i] ? model_.add_value(graph_, gradient_.name + ".Split") : V(BELAY_NONE));
    const std::vector<V> parts = split.outputs;
    for (size_t i = 0; i < parts.size(); ++i)
      if (wanted[i]) give(at.inputs[i], parts[i]);
    return {};
  }

  // ---- the list

  // The new nodes come in place of the Gradient, which may have stood before what it depends on by name.
  Status put_in_place() {
    std::vector<ir::NodeId> from;
    for (const ir::NodeId id : model_.graphs[graph_].nodes) {
      if (id == gradient_.id)
        from.insert(from.end(), made_.begin(), made_.end());
      else
        from.push_back(id);
    }
    std::unordered_map<V, ir::NodeId> makers;
    for (const ir::NodeId id : from)
      for (const V output : model_.nodes[id].outputs)
        if (output != BELAY_NONE) makers[output] = id;
    std::unordered_map<ir::NodeId, int> state;  // 1: waits for its inputs, 2: placed
    std::vector<ir::NodeId> sorted, stack;
    for (const ir::NodeId first : from) {
      stack.push_back(first);
      while (!stack.empty()) {
        const ir::NodeId id = stack.back();
        int& at = state[id];
        if (at) {
          stack.pop_back();
          if (at == 1) sorted.push_back(id);
          at = 2;
          continue;
        }
        at = 1;
        for (const V value : reads_of(model_.nodes[id]))
          if (const auto maker = makers.find(value); maker != makers.end()) {
            const auto known = state.find(maker->second);
            if (known == state.end() || known->second == 0) stack.push_back(maker->second);
            if (known != state.end() && known->second == 1)
              return fail("what it is computed from depends on its result.");
          }
      }
    }
    model_.graphs[graph_].nodes = std::move(sorted);
    return {};
  }

  ir::Model& model_;
  ir::Env env_;
  const ir::Node gradient_;  // a copy: nodes are added
  const ir::GraphId graph_;
  std::unordered_map<V, ir::NodeId> maker_;
  std::map<V, V> given_;            // a named input: what the node is given for it
  std::vector<V> xs_;               // as named
  V y_ = BELAY_NONE;
  std::vector<ir::NodeId> path_;    // from the xs to y, in order
  std::map<V, bool> active_;        // values on the way: whether they depend on an x
  std::unordered_map<V, V> now_;    // of values of the path: those computed for what is given
  std::unordered_map<V, V> adjoints_;  // of values of the path: derivative of y by them
  std::vector<ir::NodeId> made_;
};

ir::NodeId next_gradient(const ir::Model& model) {
  for (const ir::Graph& graph : model.graphs)
    for (const ir::NodeId id : graph.nodes)
      if (const ir::Node& node = model.nodes[id];
          node.domain == "ai.onnx.preview.training" && node.op == "Gradient")
        return id;
  return BELAY_NONE;
}

}  // namespace

Result<uint64_t> expand_gradients(ir::Model& model, const Evaluator&) {
  uint64_t changes = 0;
  for (ir::NodeId id; (id = next_gradient(model)) != BELAY_NONE; ++changes) {
    BELAY_ASSIGN(ir::Env env, infer_model(model));
    BELAY_TRY(Differentiation(model, std::move(env), id).run());
  }
  return changes;
}

}  // namespace belay::passes
