// A configuration of any bytes: an error or a configuration that prints, reads again and prints the same. The
// first line is an assignment as of --set, the rest a file.
#include "core/config/config.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using belay::core::FieldType;

belay::core::Schema schema() {
  belay::core::Schema schema = belay::core::core_schema();
  schema.add(
      "engine",
      {{.key = "threads", .type = FieldType::kInt, .default_value = "0", .min = 0, .max = 1024},
       {.key = "limit", .type = FieldType::kSize, .default_value = "\"64MiB\""},
       {.key = "wait", .type = FieldType::kDuration, .default_value = "\"5ms\""},
       {.key = "ratio", .type = FieldType::kFloat, .default_value = "0.5"},
       {.key = "use", .type = FieldType::kStringList, .names_kind = "belay.engine/1"},
       {.key = "list", .type = FieldType::kTableList, .members = {{.key = "x", .type = FieldType::kAny}}}});
  return schema;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(text.find('\n'), text.size());
  belay::core::Config config;
  static_cast<void>(config.add_set(text.substr(0, line)));
  if (!config.add_text("fuzz.toml", text.substr(std::min(line + 1, text.size()))).ok()) return 0;
  if (!config.check(schema()).ok()) return 0;
  for (const std::string& id : config.plugin_ids())
    static_cast<void>(
        config.check_plugin(id, {{.key = "size", .type = FieldType::kSize, .default_value = "1"}}, "plugin"));
  const std::string printed = config.print();
  belay::core::Config again;
  if (const belay::Status status = again.add_text("printed", printed); !status.ok()) {
    __builtin_printf("%s\n%s\n", status.message().c_str(), printed.c_str());
    std::abort();
  }
  return 0;
}
