// core/services/services.h: the services of a host that the core itself does without.
#pragma once

#include "core/host.h"
#include "core/services/fault_points.h"
#include "core/services/host_memory.h"
#include "core/services/layers.h"
#include "core/services/metrics.h"
#include "core/services/plugin_files.h"
#include "core/services/thread_check.h"
#include "core/services/trace.h"

namespace belay::core {

// What stands behind belay/abi/services.h in one host. Thread-safe.
class Services final : public HostExtension {
 public:
  // Makes them and adds their tables to the host, which owns them from then on. Before start().
  static Status offer(Host& host);

  std::vector<std::string> take_back(HostTable& plugin) override;
  Status fault(const HostTable& plugin, std::string_view point) override {
    return faults.at(plugin.plugin, point);
  }
  Status attach(belay_obj& object, const TableShape& shape, const std::string& plugin,
                belay_obj* parent) override {
    return layers.attach(object, shape, plugin, parent);
  }
  void detach(belay_obj& object) override { layers.detach(object); }

  FaultPoints faults;
  HostMemory memory;
  Layers layers;
  Metrics metrics;
  PluginFiles files;
  ThreadCheck threads;
  Trace trace;

 private:
  explicit Services(Host& host);
};

// Of a host that has them; usable in the slots of their tables.
inline Services& services_of(const HostTable& table) {
  return static_cast<Services&>(*table.extension.load(std::memory_order_relaxed));
}

// The tables. That of the log needs nothing but the host's log.
extern const belay_log_vt kLogTable;
extern const belay_metrics_vt kMetricsTable;
extern const belay_trace_vt kTraceTable;
extern const belay_fs_vt kFilesTable;
extern const belay_memory_vt kMemoryTable;
extern const belay_thread_check_vt kThreadCheckTable;
extern const belay_fault_vt kFaultTable;

}  // namespace belay::core
