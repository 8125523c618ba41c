// hal/operator_request.h: what a caller asks of a single operator: checked, as a key, and as a graph.
#pragma once

#include "hal/tensor_view.h"

#include <belay/runtime.h>
#include <belay/status.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace belay::hal {

// Views of the operands; empty ones of those that are not there.
struct OperatorViews {
  std::vector<TensorView> inputs, outputs;
};
// Names the operator and what is wrong. INVALID_ARGUMENT, OUT_OF_RANGE, UNIMPLEMENTED.
Result<OperatorViews> check_operator(const Hal& hal, const belay_op_req& req);

// Of a request that was checked:
// Equal for requests that one executable serves: all that a kernel is prepared for, but the device. Memory of
// operands is no part of it, bytes of constant ones are.
std::string signature_of(const belay_op_req& req);
// A frozen graph of the one node, with those that bring quantised operands to real numbers and back around
// it.
Result<std::string> image_of(const belay_op_req& req);

std::string operator_name(const belay_op_req& req);  // "'com.microsoft.Gelu'"
std::string operand(const belay_op_req& req, const char* kind,
                    uint64_t index);  // "Input 1 of operator 'Add'"
bool is_constant(const belay_op_req& req, uint64_t input);

}  // namespace belay::hal
