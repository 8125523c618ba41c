// Any bytes as .npy and .pb: refused, or a tensor that comes back when it is written and read again.
#include <belay/tensor_io.hpp>

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  if (const auto tensor = belay::parse_npy(file); tensor.ok()) {
    const auto again = belay::parse_npy(belay::to_npy(*tensor), tensor->dtype);
    if (!again.ok() || again->dims != tensor->dims || again->bytes != tensor->bytes) std::abort();
  }
  for (const uint32_t kind : {BELAY_TYPE_TENSOR, BELAY_TYPE_SEQUENCE, BELAY_TYPE_OPTIONAL, BELAY_TYPE_MAP}) {
    const auto datum = belay::parse_pb(file, kind);
    if (!datum.ok()) continue;
    const auto again = belay::parse_pb(belay::to_pb(*datum), kind);
    if (!again.ok()) std::abort();
    (void)belay::compare(*datum, *datum);
  }
  return 0;
}
