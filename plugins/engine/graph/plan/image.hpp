// plan/image.hpp: nodes with what is known of their values, frozen into an image that providers read.
#pragma once

#include "ir/env.hpp"
#include "plan/constants.hpp"

#include <set>
#include <unordered_map>

namespace belay::plan {

struct Image {
  std::string bytes;
  std::vector<ir::ValueId> values;  // of each image value
  std::unordered_map<ir::ValueId, uint32_t> index_of;
  std::vector<const ir::Node*> nodes;  // of each image node
  std::vector<const void*> constants;  // of each image value, null: not constant
  std::vector<uint64_t> keys;

  belay_span span() const { return {bytes.data(), bytes.size()}; }
};

// How string tensors are shown. As opaque elements they have the element type complex128, which is as large
// as a belay_str and is only ever moved, and none is a constant: so kernels that move elements move strings.
enum class Strings { kAsTheyAre, kOpaque };

// `nodes` are in topological order; values in `needed` are outputs of the image's graph, and what no node
// makes are inputs. Values are resolved through the environment's aliases.
Result<Image> make_image(const ir::Env& env, std::span<const ir::Node* const> nodes,
                         const std::set<ir::ValueId>& needed, ConstantPool& pool,
                         Strings strings = Strings::kAsTheyAre);

}  // namespace belay::plan
