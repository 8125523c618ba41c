#include "core/services/thread_check.h"

#include "core/base/text.h"
#include "core/host_call.h"
#include "core/services/services.h"

#include <vector>

namespace belay::core {
namespace {

constexpr size_t kMostTold = 1024;

std::string names_of(uint32_t domains) {
  constexpr const char* kNames[] = {"outside", "entry", "init", "serial", "destroy", "io", "long"};
  std::vector<std::string> names;
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (domains >> i & 1) names.emplace_back(kNames[i]);
  return names.empty() ? "none" : joined(names, " or ");
}

// This service is also there where the host may not be called; a closed plugin gets nothing.
template <class Body>
belay_status look(const belay_host* host, Body&& body) noexcept try {
  const InsideHost inside(host);
  if (!inside.table.live) return BELAY_FAILED_PRECONDITION;
  return give(host, body(inside.table));
} catch (const std::exception&) {
  return BELAY_RESOURCE_EXHAUSTED;
}

}  // namespace

uint32_t ThreadCheck::domain() {
  return SlotCall::current ? SlotCall::current->domain : BELAY_THREAD_OUTSIDE;
}

Status ThreadCheck::check(std::string_view plugin, uint32_t allowed, std::string_view what) {
  const uint32_t now = domain();
  if (now & allowed) return {};
  const std::string thing = printable(what.substr(0, 128));
  std::string text = quote(thing) + " of plugin " + quote(plugin) + " was called from " + names_of(now);
  if (const SlotCall* call = SlotCall::current)
    text += " (" + std::string(call->slot) + " of plugin " + quote(call->plugin) + ")";
  text += ", want " + names_of(allowed);
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    first = told_.size() < kMostTold && told_.insert(std::string(plugin) + "\n" + thing).second;
  }
  if (first) log_.warning("core", "thread-check: " + text);
  return {Code::kFailedPrecondition, text + "."};
}

const belay_thread_check_vt kThreadCheckTable = {
    {sizeof(belay_thread_check_vt), 0, nullptr},
    [](const belay_host*) { return ThreadCheck::domain(); },
    [](const belay_host* host, belay_thread_info* inout) {
      return look(host, [&](HostTable&) -> Status {
        if (!inout || inout->hdr.struct_size < sizeof *inout)
          return {Code::kInvalidArgument, "info of a thread was given no belay_thread_info to fill."};
        const SlotCall* const call = SlotCall::current;
        inout->domain = ThreadCheck::domain();
        inout->plugin = to_str(call ? call->plugin : ""), inout->slot = to_str(call ? call->slot : "");
        return {};
      });
    },
    [](const belay_host* host, uint32_t allowed, belay_str what) {
      return look(host, [&](HostTable& table) {
        return services_of(table).threads.check(table.plugin, allowed, to_view(what));
      });
    }};

}  // namespace belay::core
