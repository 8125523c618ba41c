// Tensors as text and as JSON.
#pragma once

#include "hosting.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace belay::cli {

struct Statistics {
  uint64_t count = 0, nan = 0, infinite = 0;
  double min = 0, max = 0, mean = 0, deviation = 0;  // of the finite elements
};
Statistics statistics(const HostTensor& tensor);

// "float32 [1,10]", "sequence of 3"
std::string type_text(const HostDatum& datum);
// All elements of a small tensor; of a larger one its statistics, largest values and first elements. Indented
// lines.
std::string values_text(const HostDatum& datum, int indent = 2);
// "145 KiB, of them 0 B used in the file and 620 B copied; 129 KiB packed for kernels"
std::string weights_text(const belay_executable_stats& stats);
// Bytes that inputs or outputs shared with the caller and that were copied, with the first reason: "256 B shared, 40 B
// copied ('x' because ...)".
struct MovedBytes {
  uint64_t shared = 0, copied = 0;
  std::string first;  // "'x' because ..."
  void add(const std::string& name, const IoMemory& memory);
};
std::string moved_text(const MovedBytes& moved);
// Members shared_bytes, copied_bytes and copy_reason (null: nothing was copied).
void add_memory(nlohmann::ordered_json& to, const IoMemory& memory);
nlohmann::ordered_json datum_json(const HostDatum& datum);
nlohmann::ordered_json io_json(const IoInfo& info);

// "equal within the tolerance (10 elements)", or "DIFFERS: " and why.
std::string comparison_text(const Comparison& comparison);
nlohmann::ordered_json comparison_json(const Comparison& comparison);

}  // namespace belay::cli
