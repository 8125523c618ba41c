// plan/options.hpp: the table [engine] of the configuration as the engine reads it.
#pragma once

#include <belay/abi/kernel_provider.h>
#include <belay/plugin.hpp>

#include <set>
#include <string>
#include <vector>

namespace belay::plan {

struct Options {
  uint64_t threads = 0;  // 0: the device's
  uint64_t streams = 0;  // that kernels are spread over; 0: where it is worth it
  uint64_t precision = BELAY_PRECISION_WINOGRAD;
  uint64_t plan_cache = 16;       // plans kept for each graph and each point where shapes depend on data
  uint64_t plan_cache_bytes = 0;  // of arenas, packed constants and programs of kept plans; 0: not bounded
  // Buffers whose sizes change with the shapes are placed for so many percent more than they need; a plan
  // for other shapes begins from the latest. 0: each is made by itself.
  uint64_t plan_growth = 25;
  uint64_t max_contexts = 16;
  bool wait_for_context = false;  // else RESOURCE_EXHAUSTED where all are taken
  bool fallback = true;           // nodes that no provider of the device claims go to the host
  bool copy_weights = false;
  bool open_shapes = false;       // what the model declares of its inputs' shapes does not bind
  uint64_t fold_limit = 1 << 20;  // bytes that a folded constant may grow beyond its inputs
  uint64_t memory_limit = 0;      // bytes of one plan's arena; 0: the device's memory
  std::set<std::string, std::less<>> disabled_passes;
  std::vector<std::string> disabled_fusions;  // patterns of kernels that do several nodes: "Conv+*"

  static Options read(Value table) {
    Options out;
    const auto number = [&](const char* key, uint64_t otherwise) {
      const int64_t value = table[key].as_int(int64_t(otherwise));
      return value < 0 ? otherwise : uint64_t(value);
    };
    out.threads = number("threads", out.threads);
    out.streams = number("streams", out.streams);
    out.precision =
        (table["precision"].as_string() == "fast" ? BELAY_PRECISION_FAST : BELAY_PRECISION_FLOAT32) |
        (table["winograd"].as_bool(true) ? BELAY_PRECISION_WINOGRAD : 0u);
    out.plan_cache = number("plan_cache", out.plan_cache);
    out.plan_cache_bytes = number("plan_cache_bytes", out.plan_cache_bytes);
    out.plan_growth = number("plan_growth", out.plan_growth);
    out.max_contexts = number("max_contexts", out.max_contexts);
    out.wait_for_context = table["contexts_full"].as_string("error") == "wait";
    out.fallback = table["fallback"].as_string("cpu") != "error";
    out.copy_weights = table["weights"].as_string("borrow") == "copy";
    out.open_shapes = table["input_shapes"].as_string("declared") == "open";
    out.fold_limit = number("fold_limit", out.fold_limit);
    out.memory_limit = number("memory_limit", out.memory_limit);
    const Value passes = table["disable_passes"];
    for (uint64_t i = 0; i < passes.count(); ++i) out.disabled_passes.emplace(passes.at(i).as_string());
    const Value fusions = table["disable_fusions"];
    for (uint64_t i = 0; i < fusions.count(); ++i)
      out.disabled_fusions.emplace_back(fusions.at(i).as_string());
    return out;
  }
};

}  // namespace belay::plan
