// passes/passes.hpp: rewrites of a model while it is loaded. A pass changes no rank, type or value beyond
// rounding, and looks at every reader of a value before it changes what makes it.
#pragma once

#include "ir/env.hpp"

#include <functional>
#include <set>

namespace belay::passes {

// Gives the outputs of a node whose inputs are constants, or nothing. Output types were inferred.
using Evaluator = std::function<std::optional<std::vector<ir::ConstantPtr>>(const ir::Env&, const ir::Node&)>;

// An operator that a pass puts in place of others. `inputs` and `output` are element types: b bytes, f
// float32, i int32.
struct Made {
  std::string_view domain, op;
  uint32_t version;
  std::string_view inputs;
  char output;
};

struct Pass {
  std::string_view name;
  std::string_view what;  // for documentation
  // Gives the number of changes.
  Result<uint64_t> (*run)(ir::Model&, const Evaluator&);
  std::span<const Made> makes = {};  // what a device must have kernels for
  // Operators of which a model has one where the pass finds anything; none: any model will do.
  std::span<const std::string_view> begins = {};
  bool concerns(const ir::Model& model) const;
};

// In the order in which they run; those of the middle run again as long as one changes something.
std::span<const Pass> all_passes();

struct Ran {
  std::string name;
  uint64_t changes = 0, ns = 0;
};

// Runs all but the disabled ones, then infers the types of all values once more. `now` is a clock in
// nanoseconds.
Result<std::vector<Ran>> run_passes(ir::Model& model, const Evaluator& evaluate,
                                    const std::set<std::string, std::less<>>& disabled,
                                    const std::function<uint64_t()>& now);

// The passes.
Result<uint64_t> lift_versions(ir::Model&, const Evaluator&);    // each node to one canonical form
Result<uint64_t> write_contrib(ir::Model&, const Evaluator&);    // com.microsoft as operators of ONNX
Result<uint64_t> expand_gradients(ir::Model&, const Evaluator&);  // Gradient becomes what computes it
Result<uint64_t> fold_constants(ir::Model&, const Evaluator&);   // runs what depends on constants only
Result<uint64_t> drop_identities(ir::Model&, const Evaluator&);  // Identity, Dropout
Result<uint64_t> inline_branches(ir::Model&, const Evaluator&);  // If with a constant condition
Result<uint64_t> fold_affine(ir::Model&,
                             const Evaluator&);  // scale and shift after Conv, ConvTranspose, Gemm
Result<uint64_t> join_common(ir::Model&, const Evaluator&);            // nodes that compute the same
Result<uint64_t> fold_padding(ir::Model&, const Evaluator&);           // Pad before Conv, AveragePool
Result<uint64_t> join_layer_norms(ir::Model&, const Evaluator&);       // LayerNormalization in parts
Result<uint64_t> join_gelus(ir::Model&, const Evaluator&);             // Gelu in parts
Result<uint64_t> quantize_products(ir::Model&, const Evaluator&);      // DQ, Conv or MatMul or Gemm, Q
Result<uint64_t> quantize_elementwise(ir::Model&, const Evaluator&);   // DQ, what looks at each element, Q
Result<uint64_t> join_dynamic_products(ir::Model&, const Evaluator&);  // MatMulInteger, Cast, Mul, Add
Result<uint64_t> fold_dequantized(ir::Model&, const Evaluator&);       // DQ of a constant
Result<uint64_t> remove_dead_code(ir::Model&, const Evaluator&);

// Infers all types with what the model declares of its inputs.
Result<ir::Env> infer_model(const ir::Model& model);

}  // namespace belay::passes
