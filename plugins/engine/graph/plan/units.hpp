// plan/units.hpp: the kernels of a stage in terms of the model, and how much of them a stage for other shapes
// may use again.
#pragma once

#include "plan/claims.hpp"
#include "plan/lanes.hpp"
#include "plan/memory.hpp"

#include <optional>

namespace belay::plan {

struct Target;

// One kernel; values are resolved.
struct Unit {
  Provider provider;
  std::vector<const ir::Node*> nodes;
  std::vector<ir::ValueId> inputs, outputs;
  std::vector<belay_in_place> in_place;
  uint64_t cost_ns = 0;
  PreparedPtr kernel;
};

// What a stage is but for the shapes of its values. Another stage of the same nodes begins from it.
struct Outline {
  std::vector<const ir::Node*> nodes;  // all that the program stands for, in an order that can run
  std::set<ir::ValueId> before, needed;
  std::vector<Unit> units;
  std::vector<const ir::Node*> views;  // not run: their output is their input
  Lanes lanes;
  ArenaLayout layout;
};

// A stage of the same nodes that was made for other shapes.
struct Like {
  const ir::Env& env;
  const Outline& outline;
};

// Whether the node only gives its input another shape: where it stands alone it is not run.
bool is_view(const ir::Env& env, const ir::Node& node);

// Fills units and views from what was chosen and prepares the kernels. Gives the nodes whose kernels turned
// out to need the host lane.
Result<std::vector<ir::NodeId>> make_units(const Target& target, const ir::Env& env, const Image& image,
                                           const Choice& choice, Outline& to);

// Fills units and views with those of `like`. A kernel whose nodes read and make values of the same types,
// and the same constants, is used again; for the others the providers are asked as if for a graph of these
// alone, and must give the same answer as for `like`. False where they do not, or where a dim became 0 or 1
// or ceased to be that, which patterns of kernels may look at: then nothing is known and all must be chosen
// anew.
Result<bool> make_units_like(const Target& target, ConstantPool& pool, const ir::Env& env, const Like& like,
                             Outline& to);

}  // namespace belay::plan
