// plan/claims.hpp: which provider runs which nodes.
#pragma once

#include "plan/image.hpp"
#include "plan/providers.hpp"

namespace belay::plan {

// A claim that was chosen: one kernel.
struct Claim {
  Provider provider;
  std::vector<uint32_t> nodes, inputs, outputs;  // of the image
  uint64_t score = 0, cost_ns = 0, host_inputs = 0;
  std::vector<belay_in_place> in_place;
};

struct Choice {
  std::vector<Claim> claims;  // in an order that they can run in
  std::vector<std::pair<uint32_t, std::string>>
      refused;  // image nodes that nobody claims, with the reasons given
};

// Asks the providers for claims and chooses: higher scores first; a claim of several nodes only where nothing
// else reads what passes between them, no path leaves it and comes back, and none of `disabled_fusions`
// matches its operators ("Conv+Relu"; * stands for anything).
Result<Choice> choose_claims(const Hal& hal, const Image& image, const std::set<ir::ValueId>& needed,
                             std::span<const Provider> providers, const belay_device_info& device,
                             std::span<const std::string> disabled_fusions);
// "Conv+Relu"
std::string operators_of(const Image& image, const Claim& claim);

// An operator on tensors of any shape, as far as a provider must know it to claim it.
struct OperatorForm {
  std::string_view domain, op;
  uint32_t version = 1;
  std::vector<uint32_t> inputs;  // element types
  uint32_t output = BELAY_DT_UNDEFINED;
};
// Whether each of them is claimed by one of the providers.
Result<bool> claim_all(const Hal& hal, std::span<const Provider> providers, const belay_device_info& device,
                       std::span<const OperatorForm> forms);

Result<PreparedPtr> prepare(const Hal& hal, const Image& image, const Claim& claim,
                            const belay_device_info& device, uint32_t threads, uint64_t precision);

// "node 'x' (Conv), version 11 of domain 'ai.onnx', on (float32[1,3,8,8], ...)": for refusals.
std::string describe_node(const ir::Env& env, const ir::Node& node);

}  // namespace belay::plan
