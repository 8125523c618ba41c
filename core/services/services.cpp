#include "core/services/services.h"

namespace belay::core {

Services::Services(Host& host)
    : faults(host.config()), layers(host), files(host), threads(host.log()), trace(host.executor()) {}

Status Services::offer(Host& host) {
  host.set_extension(std::unique_ptr<Services>(new Services(host)));
  const std::pair<const char*, const void*> tables[] = {
      {BELAY_HOST_LOG, &kLogTable},       {BELAY_HOST_METRICS, &kMetricsTable},
      {BELAY_HOST_TRACE, &kTraceTable},   {BELAY_HOST_FS, &kFilesTable},
      {BELAY_HOST_MEMORY, &kMemoryTable}, {BELAY_HOST_THREAD_CHECK, &kThreadCheckTable},
      {BELAY_HOST_FAULT, &kFaultTable}};
  for (const auto& [id, table] : tables) BELAY_TRY(host.add_service(id, table));
  return {};
}

std::vector<std::string> Services::take_back(HostTable& plugin) {
  std::vector<std::string> left = memory.take_back(plugin);
  for (std::string& what : files.take_back(plugin.plugin)) left.push_back(std::move(what));
  return left;
}

}  // namespace belay::core
