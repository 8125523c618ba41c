// hal/planner.h: static placement of buffers through the configured policies.
#pragma once

#include <belay/abi/memory_policy.h>
#include <belay/status.hpp>
#include "hal/device_manager.h"

#include <vector>

namespace belay::hal {

class Hal;

// Asks the policies that serve PLAN in their order, until one does not decline, and checks its answer.
// Thread-safe.
class Planner {
 public:
  explicit Planner(Hal& hal) : hal_(hal) {}
  void attach(std::vector<NamedObject> policies) { policies_ = std::move(policies); }

  // INVALID_ARGUMENT (of the request), INTERNAL (a wrong answer: names policy and buffers), what the policy
  // says.
  Status plan(const belay_plan_req& req, belay_plan_result& result);

 private:
  Hal& hal_;
  std::vector<NamedObject> policies_;
};

// The request itself: lists there, sorted and disjoint lifetimes, alignments, indices, and less than 2^63
// bytes that live at once. INVALID_ARGUMENT.
Status check_plan_request(const belay_plan_req& req);
// The lists of the result are there. INVALID_ARGUMENT.
Status check_plan_lists(const belay_plan_req& req, const belay_plan_result& result);
// Whether `result` is an answer to the (checked) request: nothing that lives at once, or conflicts, overlaps,
// offsets are aligned and fixed ones kept, peaks are the true ones. Takes n log n. INTERNAL names the
// buffers.
Status check_plan(const belay_plan_req& req, const belay_plan_result& result);
// A place of its own for each buffer; fixed offsets are kept. RESOURCE_EXHAUSTED: the sum passes 2^64.
Status plan_apart(const belay_plan_req& req, belay_plan_result& result);

}  // namespace belay::hal
