// plan/host_exec.hpp: runs a kernel on the calling thread, outside any stream: for constants folded at load,
// for nodes whose output shape depends on data, and for nodes that the device has no kernel for.
#pragma once

#include "ir/env.hpp"
#include "plan/claims.hpp"

#include <functional>

namespace belay::plan {

// Gives memory for output `index` of a kernel with BELAY_KERNEL_WRITES_SHAPE.
using OutputFn = std::function<void*(uint64_t index, std::span<const int64_t> dims)>;

// Runs `kernel`; a failure carries the kernel's sentence.
Status run_on_host(const Hal& hal, const belay_kernel& kernel, std::span<const uint64_t> args,
                   const OutputFn& output);

// A kernel for one node on the host.
struct HostKernel {
  PreparedPtr kernel;
  std::vector<ir::ValueId> inputs, outputs;  // in the order of the arguments; resolved, BELAY_NONE: absent
  bool writes_shape() const { return (*kernel)->kernel.hdr.flags & BELAY_KERNEL_WRITES_SHAPE; }
};

// Prepares `node` with what `env` knows. UNIMPLEMENTED where no provider claims it, with their reasons;
// NOT_FOUND where one does but must know inputs that `env` does not: `wanted` receives them.
Result<HostKernel> prepare_on_host(const Hal& hal, const ir::Env& env, const ir::Node& node,
                                   std::span<const Provider> providers, const belay_device_info& device,
                                   ConstantPool& pool, uint64_t precision, std::vector<ir::ValueId>* wanted);

// Whether string tensors are opaque elements to the node: it moves elements and looks at none that may be
// strings.
bool moves_strings(const ir::Env& env, const ir::Node& node);

// What folding may allocate: nodes may double their inputs again and again, each by little.
class FoldBudget {
 public:
  // `growth`: bytes that the outputs of one node may be larger than its inputs. All outputs together: eight
  // times the bytes of the model's constants and 64 times `growth`.
  FoldBudget(const ir::Model& model, uint64_t growth);
  // Counts a node's outputs; false, and nothing counted, where they are too large.
  bool take(uint64_t input_bytes, uint64_t output_bytes);

 private:
  uint64_t growth_, left_;
};

// The outputs of a node whose inputs are constants of `env`; nothing where it cannot be run or where the
// budget does not allow it. Output types were inferred.
std::optional<std::vector<ir::ConstantPtr>> evaluate_on_host(const Hal& hal, const ir::Env& env,
                                                             const ir::Node& node,
                                                             std::span<const Provider> providers,
                                                             const belay_device_info& device,
                                                             ConstantPool& pool, FoldBudget& budget);

}  // namespace belay::plan
