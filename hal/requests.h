// hal/requests.h: how much of each request of devices and memory policies a caller has to know.
#pragma once

#include <belay/abi/hal.h>
#include <belay/fill.hpp>

namespace belay {

#define BELAY_LEAST(type, field) \
  template <>                    \
  struct LeastSize<type> : UpTo<BELAY_SIZE_TO(type, field)> {}

BELAY_LEAST(belay_alloc_req, bytes);
BELAY_LEAST(belay_hal_stream_req, hdr);
BELAY_LEAST(belay_copy_req, bytes);
BELAY_LEAST(belay_fill_req, pattern_bytes);
BELAY_LEAST(belay_launch_req, arg_count);
BELAY_LEAST(belay_program_req, node_count);
BELAY_LEAST(belay_node, arg_count);
BELAY_LEAST(belay_package_req, bytes);
BELAY_LEAST(belay_plan_req, intervals);
BELAY_LEAST(belay_plan_result, lower_bound);
BELAY_LEAST(belay_bind_req, access);
BELAY_LEAST(belay_place_req, heap);

#undef BELAY_LEAST

}  // namespace belay
