// From a claim to a kernel: reads the operands from the image, asks the operator or pattern, keeps what it
// made.
#pragma once

#include "registry.hpp"

#include <belay/abi/kernel_provider.h>

#include <memory>

namespace belay::cpu {

// A prepared kernel and all it needs; belay_prepared.handle.
struct alignas(64) Unit {
  // What a run reads is one cache line: a chain of small kernels costs what it fetches.
  std::unique_ptr<KernelBox> box;  // null: deferred
  uint64_t workspace_bytes = 0;
  uint32_t inputs = 0, outputs = 0;  // how many
  bool resize = false;               // give the outputs' dims at the run

  Signature signature;  // kept whole: a deferred unit prepares from it at each run
  std::vector<std::optional<Dims>> declared;
  std::string name, implementation, reason;
  uint64_t packed_bytes = 0, unused_inputs = 0;
  double cost_ns = 0;
  bool writes_shape = false;
  uint32_t threads = 1;
  uint64_t precision = 0;
  PackCache* cache = nullptr;
};

class Preparation {
 public:
  Preparation(const Registry& registry, PackCache& cache) : registry_(registry), cache_(cache) {}
  Result<std::unique_ptr<Unit>> prepare(const belay_prepare_req& request) const;

  // Runs the operator's prepare function over `signature` into `unit`. Used again by deferred units.
  static Status fill(Unit& unit, const Signature& signature);

 private:
  static void take(Unit& unit, OpContext& context);
  Status prepare_pattern(Unit& unit, const belay_prepare_req& request, const graph::View& view) const;
  const Registry& registry_;
  PackCache& cache_;
};

// The belay_kernel_fn of every unit.
belay_status run_unit(const belay_exec* exec, const void* state, const uint64_t* args) BELAY_NOEXCEPT;

// How often each value is read in a graph, and by whom.
struct Uses {
  std::vector<uint32_t> count, last;
  Uses(const graph::View& view, uint32_t graph);
};

}  // namespace belay::cpu
