#include "registry.hpp"

#include "heavy/heavy.hpp"

namespace belay::cpu {

Registry::Registry() {
  add_heavy(*this);
  add_unary(*this);
  add_binary(*this);
  add_movement(*this);
  add_gather(*this);
  add_shaping(*this);
  add_reduce(*this);
  add_select(*this);
  add_cast(*this);
  add_quantize(*this);
  add_losses(*this);
  add_einsum(*this);
}

const OpDef* Registry::find(std::string_view domain, std::string_view op) const {
  const auto at = ops_.find({domain, op});
  return at == ops_.end() ? nullptr : &at->second;
}

uint32_t ClaimContext::only_consumer(uint32_t value) const { return uses[value] == 1 ? last_consumer[value] : BELAY_NONE; }

}  // namespace belay::cpu
