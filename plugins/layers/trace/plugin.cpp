// The plugin `trace`: a layer that writes down what is called.
#include "trace.hpp"

#include <cerrno>
#include <cstring>

namespace {

using belay::Code;
using belay::Status;
using belay::trace::Trace;

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::make_unique<Plugin>(Plugin{host});
  }
};

const char* const kTables[] = {
#define BELAY_NAME(table, name) name,
    BELAY_SLOT_TABLES(BELAY_NAME)
#undef BELAY_NAME
};

belay_status create(belay_ctx* ctx, const belay_value* raw, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    const belay::Value config(raw), list = config["kinds"];
    std::set<std::string> kinds;
    for (uint64_t i = 0; i < list.count(); ++i) {
      const std::string kind(list.at(i).as_string());
      std::string known;
      bool there = false;
      for (const char* table : kTables) {
        there |= kind == table;
        known += std::string(known.empty() ? "" : ", ") + table;
      }
      if (!there)
        return {Code::kInvalidArgument,
                "plugin.trace.config.kinds has '" + kind + "', want some of " + known + "."};
      kinds.insert(kind);
    }
    std::unique_ptr<std::FILE, Trace::File> file;
    if (const std::string name(config["file"].as_string()); !name.empty()) {
      file.reset(std::fopen(name.c_str(), "we"));
      if (!file)
        return {Code::kPermissionDenied, "plugin.trace.config.file, '" + name + "', cannot be written: " +
                                             std::string(std::strerror(errno)) + "."};
    }
    const auto records = belay::service<belay_trace_vt>(host);
    belay::give(
        out,
        std::make_unique<Trace>(host, std::move(file), std::move(kinds), records.ok() ? *records : nullptr),
        Trace::table());
    return {};
  });
}

constexpr belay_component kComponent{{sizeof(belay_component), 0, nullptr},
                                     belay::literal(BELAY_LAYER_KIND),
                                     belay::literal("trace"),
                                     nullptr,
                                     create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "trace", "0.1.0", kComponents)
