// Any bytes as a frozen graph: what the verifier accepts can be printed without a read out of bounds.
#include <belay/graph/verify.hpp>

#include <cstring>
#include <memory>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto copy = std::make_unique<uint64_t[]>(size / 8 + 1);  // aligned
  std::memcpy(copy.get(), data, size);
  const belay_span image{copy.get(), size};
  if (!belay::graph::verify(image).ok()) return 0;
  belay::StringSink text;
  belay::graph::print(image, text.sink());
  return 0;
}
