#include "registry.hpp"

#include "heavy/heavy.hpp"
#include "int8/int8.hpp"

#include <stdexcept>
#include <string>

namespace belay::cpu {

// Each adds the operators of one file.
void add_unary(Registry&);
void add_binary(Registry&);
void add_movement(Registry&);
void add_gather(Registry&);
void add_gather_block_quantized(Registry&);
void add_shaping(Registry&);
void add_reduce(Registry&);
void add_select(Registry&);
void add_sort(Registry&);
void add_cast(Registry&);
void add_quantize(Registry&);
void add_losses(Registry&);
void add_einsum(Registry&);
void add_detection(Registry&);
void add_signal(Registry&);
void add_misc(Registry&);
void add_random(Registry&);
void add_rotary(Registry&);
void add_col2im(Registry&);
void add_grid(Registry&);

Registry::Registry() {
  add_heavy(*this);
  add_int8(*this);
  add_unary(*this);
  add_binary(*this);
  add_movement(*this);
  add_gather(*this);
  add_gather_block_quantized(*this);
  add_shaping(*this);
  add_reduce(*this);
  add_select(*this);
  add_sort(*this);
  add_cast(*this);
  add_quantize(*this);
  add_losses(*this);
  add_einsum(*this);
  add_detection(*this);
  add_signal(*this);
  add_misc(*this);
  add_random(*this);
  add_rotary(*this);
  add_col2im(*this);
  add_grid(*this);
}

void Registry::add(const OpDef& def) {
  if (!ops_.emplace(std::pair{def.domain, def.op}, def).second)
    throw std::logic_error("Operator " + std::string(def.op) + " is registered twice.");
}

const OpDef* Registry::find(std::string_view domain, std::string_view op) const {
  const auto at = ops_.find({domain, op});
  return at == ops_.end() ? nullptr : &at->second;
}

uint32_t ClaimContext::only_consumer(uint32_t value) const {
  return uses[value] == 1 ? last_consumer[value] : BELAY_NONE;
}

}  // namespace belay::cpu
