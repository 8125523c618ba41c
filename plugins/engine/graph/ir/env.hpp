// ir/env.hpp: what is known of a model's values in one situation: while loading, or for one set of input
// shapes.
#pragma once

#include "ir/model.hpp"

#include <unordered_map>

namespace belay::ir {

struct Env {
  const Model* model = nullptr;
  std::vector<Type> types;             // by value
  std::vector<ConstantPtr> constants;  // by value; null: not known
  std::vector<ValueId> aliases;        // by value; itself unless it is another name of that value
  // Elements of small integer tensors of rank 0 or 1 that are known in part (codes as in dims): shape
  // arithmetic over symbols. Only kept while loading.
  std::unordered_map<ValueId, Dims> partial;

  // Knows the constants of the model, and types only of these: a declared shape need not be what comes.
  explicit Env(const Model& of)
      : model(&of), types(of.values.size()), constants(of.values.size()), aliases(of.values.size()) {
    for (ValueId i = 0; i < of.values.size(); ++i) {
      aliases[i] = i;
      if (const ConstantPtr& constant = of.constant_of(i)) set_constant(i, constant);
    }
  }
  // The model has grown: knows nothing of the new values but their constants.
  void grow() {
    for (ValueId i = ValueId(types.size()); i < model->values.size(); ++i) {
      types.emplace_back();
      constants.emplace_back();
      aliases.push_back(i);
      if (const ConstantPtr& constant = model->constant_of(i)) set_constant(i, constant);
    }
  }

  ValueId resolve(ValueId value) const {
    while (value != BELAY_NONE && aliases[value] != value) value = aliases[value];
    return value;
  }
  const Type& type(ValueId value) const {
    static const Type nothing;
    return value == BELAY_NONE ? nothing : types[resolve(value)];
  }
  const Constant* constant(ValueId value) const {
    return value == BELAY_NONE ? nullptr : constants[resolve(value)].get();
  }
  void set_constant(ValueId value, ConstantPtr constant) {
    types[value] = constant->type();
    constants[value] = std::move(constant);
  }
};

}  // namespace belay::ir
