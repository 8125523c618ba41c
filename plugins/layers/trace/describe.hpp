// How the arguments of slots look in a line of the trace.
#pragma once

#include <belay/abi/driver.h>
#include <belay/abi/engine.h>
#include <belay/abi/memory_policy.h>
#include <belay/abi/virtual_memory.h>

#include <string>
#include <type_traits>

namespace belay::trace {

// "buffer 3": as the layer numbers objects; "NULL", or "object" of which it knows nothing.
std::string name_of(const belay_obj* object);

std::string describe(const belay_obj* object);
std::string describe(belay_str text);
std::string describe(belay_event event);
std::string describe(const belay_copy_req* req);
std::string describe(const belay_fill_req* req);
std::string describe(const belay_launch_req* req);
std::string describe(const belay_alloc_req* req);
std::string describe(const belay_stream_req* req);
std::string describe(const belay_program_req* req);
std::string describe(const belay_place_req* req);
std::string describe(const belay_plan_req* req);
std::string describe(const belay_bind_req* req);
std::string describe(const belay_load_req* req);
std::string describe(const belay_tensor* tensor);
std::string describe(const belay_datum* datum);

template <class T>
std::string describe_any(const T& value) {
  if constexpr (requires { describe(value); })
    return describe(value);
  else if constexpr (std::is_integral_v<T>)
    return std::to_string(value);
  else
    return {};  // places for results, functions
}

}  // namespace belay::trace
