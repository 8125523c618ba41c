// belay/fill.hpp: answers in structs of the C ABI that a caller may know fewer fields of.
#pragma once

#include <belay/abi/base.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace belay {

// `value` without its header, as far as the caller, who set inout->hdr, knows the struct.
template <class T>
void fill(T* inout, const T& value) {
  const belay_hdr header = inout->hdr;
  std::memcpy(static_cast<void*>(inout), &value, std::min<size_t>(header.struct_size, sizeof(T)));
  inout->hdr = header;
}

}  // namespace belay
