// hal/policy_view.h: a memory policy as an application computes with it.
#pragma once

#include <belay/abi/memory_policy.h>
#include <belay/status.hpp>
#include "hal/device_manager.h"

namespace belay::hal {

class Hal;

// The policy's slots behind checks of what an application gives them, which policies rely on: lists that are
// there, alignments, lifetimes, sums, and segments and heaps that are not the runtime's own. As an object it
// has the impl of the policy's, so that slots take it as that. Immutable; ends with the runtime.
class PolicyView : public belay_obj {
 public:
  PolicyView(Hal& hal, const NamedObject& policy);
  PolicyView(const PolicyView&) = delete;
  PolicyView& operator=(const PolicyView&) = delete;

  belay_obj* object() { return this; }
  const belay_memory_policy_vt* table() const { return &table_; }

 private:
  struct Slots;
  Hal& hal_;
  const belay_memory_policy_vt& raw_;
  belay_memory_policy_vt table_;  // slots that the policy lacks are null here too
};

// INVALID_ARGUMENT of a request to share host memory, which begins with "bind".
Status check_bind_request(const belay_bind_req& req);

}  // namespace belay::hal
