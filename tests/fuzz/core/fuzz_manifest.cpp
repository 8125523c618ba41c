// A manifest of any bytes: an error, or a manifest whose example is a configuration.
#include "core/config/config.h"
#include "core/discovery/manifest.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto manifest =
      belay::core::parse_manifest("fuzz.plugin.toml", {reinterpret_cast<const char*>(data), size});
  if (!manifest.ok()) return 0;
  belay::core::Config config;
  const belay::Status status = config.check_plugin(manifest->id, manifest->fields, manifest->what());
  for (const belay::core::Field& field : manifest->fields)
    if (field.flags & belay::core::kRequired && field.default_value.empty()) return 0;  // nobody said a value
  if (!status.ok()) {  // every default was checked when the manifest was read
    __builtin_printf("%s\n", status.message().c_str());
    std::abort();
  }
  return 0;
}
