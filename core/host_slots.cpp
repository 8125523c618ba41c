#include "core/host_slots.h"

#include "core/base/status_table.h"
#include "core/base/text.h"
#include "core/host.h"
#include "core/slot_call.h"

#include <malloc.h>
#include <chrono>
#include <cstdlib>
#include <type_traits>

namespace belay::core {
namespace {

// Why a plugin may not call now; ok when it may.
Status check_call(const belay_host* host) {
  const HostTable& table = table_of(host);
  if (!table.live)
    return {Code::kFailedPrecondition,
            "Plugin " + quote(table.plugin) + " is closed and may not call the host."};
  if (SlotCall::forbidden())
    return {Code::kFailedPrecondition,
            "The host may not be called inside " + std::string(SlotCall::current->slot) + "."};
  return table.host->check_process();
}

belay_status give(const belay_host* host, const Status& status) {
  return status.ok() ? BELAY_OK
                     : make_status(uint32_t(status.code()), status.message(), table_of(host).plugin);
}

// The body of a slot; nothing that it throws leaves the host.
template <class Body>
auto slot(const belay_host* host, Body&& body) noexcept -> std::invoke_result_t<Body, HostTable&> {
  using R = std::invoke_result_t<Body, HostTable&>;
  try {
    const Status allowed = check_call(host);
    if (allowed.ok()) return body(table_of(host));
    if constexpr (std::is_same_v<R, belay_status>) return give(host, allowed);
  } catch (const std::exception& error) {
    if constexpr (std::is_same_v<R, belay_status>) return make_status(BELAY_RESOURCE_EXHAUSTED, error.what());
  }
  if constexpr (!std::is_void_v<R>) return R{};
}

const void* get_service(const belay_host* host, belay_str id) {
  return slot(host, [&](HostTable& table) { return table.host->service(to_view(id)); });
}

void log(const belay_host* host, uint32_t level, belay_str message) {
  slot(host, [&](HostTable& table) {
    const Level at = level <= BELAY_LOG_CRITICAL ? Level(level) : Level::kError;
    table.host->log().write(table.logger, at, to_view(message));
  });
}

belay_status status_make(const belay_host* host, uint32_t code, belay_str message) {
  if (code == BELAY_OK) return BELAY_OK;
  if (SlotCall::forbidden()) return BELAY_FAILED_PRECONDITION;
  return make_status(code, to_view(message), table_of(host).plugin);
}

void* alloc(const belay_host* host, uint64_t bytes, uint64_t align) {
  return slot(host, [&](HostTable& table) -> void* {
    if (align == 0 || (align & (align - 1)) != 0 || align > 1u << 30) {
      table.host->misbehaved(table.plugin,
                             "alloc with alignment " + std::to_string(align) + ", want a power of two");
      return nullptr;
    }
    if (bytes > uint64_t(PTRDIFF_MAX)) return nullptr;
    void* block = nullptr;
    if (posix_memalign(&block, std::max<uint64_t>(align, sizeof(void*)), std::max<uint64_t>(bytes, 1)) != 0)
      return nullptr;
    ++table.blocks;
    table.block_bytes += malloc_usable_size(block);
    return block;
  });
}

void free_block(const belay_host* host, void* block) {  // allowed everywhere: a destroy may free
  if (!block) return;
  HostTable& table = table_of(host);
  --table.blocks;
  table.block_bytes -= malloc_usable_size(block);
  std::free(block);
}

uint64_t now_ns(const belay_host*) {
  return uint64_t(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

void misbehave(const belay_host* host, belay_str reason) {
  slot(host, [&](HostTable& table) {
    table.host->misbehaved(table.plugin, "reported by it: " + printable(to_view(reason).substr(0, 1024)));
  });
}

// ---- executor
Executor::Task task_of(const std::string& plugin, void (*task)(void*), void* user, Host& host) {
  return [&host, plugin, task, user] {
    const Status thrown = call_slot(plugin.c_str(), "a task", false, [&] { task(user); });
    if (!thrown.ok()) host.misbehaved(plugin, thrown.message());
  };
}

Status no_task(const char* what) {
  return {Code::kInvalidArgument, std::string(what) + " was given no task."};
}

belay_status post(const belay_host* host, void (*task)(void*), void* user) {
  return slot(host, [&](HostTable& table) {
    if (!task) return give(host, no_task("post"));
    return give(host,
                table.host->executor().post(table.tasks, task_of(table.plugin, task, user, *table.host)));
  });
}

belay_status post_blocking(const belay_host* host, void (*task)(void*), void* user) {
  return slot(host, [&](HostTable& table) {
    if (!task) return give(host, no_task("post_blocking"));
    return give(host, table.host->executor().post_blocking(table.tasks,
                                                           task_of(table.plugin, task, user, *table.host)));
  });
}

belay_status timer(const belay_host* host, uint64_t delay_ns, uint64_t period_ns, void (*task)(void*),
                   void* user, uint64_t* out_id) {
  return slot(host, [&](HostTable& table) {
    if (!task) return give(host, no_task("timer"));
    const auto span = [](uint64_t ns) { return std::chrono::nanoseconds(std::min(ns, uint64_t(INT64_MAX))); };
    const auto id = table.host->executor().timer(table.tasks, span(delay_ns), span(period_ns),
                                                 task_of(table.plugin, task, user, *table.host));
    if (!id.ok()) return give(host, id.status());
    if (out_id) *out_id = *id;
    return belay_status(BELAY_OK);
  });
}

void cancel(const belay_host* host, uint64_t id) {
  slot(host, [&](HostTable& table) { table.host->executor().cancel(id); });
}

// ---- registry
belay_status acquire(const belay_host* host, belay_str key, belay_lease* out) {
  return slot(host, [&](HostTable& table) {
    if (!out) return give(host, Status(Code::kInvalidArgument, "acquire was given no belay_lease to fill."));
    Result<Lease> lease = table.host->objects().acquire(to_view(key), table.plugin);
    if (!lease.ok()) return give(host, lease.status());
    out->object = lease->object();
    out->id = lease->release();
    return belay_status(BELAY_OK);
  });
}

void release(const belay_host* host, uint64_t id) {  // allowed in destroy too
  if (table_of(host).live) table_of(host).host->objects().release(id);
}

belay_status enumerate(const belay_host* host, belay_str kind, void (*each)(void*, belay_str), void* user) {
  return slot(host, [&](HostTable& table) {
    for (const Service& service : table.host->services().candidates(to_view(kind)))
      each(user, to_str(service.key()));
    return belay_status(BELAY_OK);
  });
}

constexpr belay_executor_vt kExecutor = {
    {sizeof(belay_executor_vt), 0, nullptr}, post, post_blocking, timer, cancel};
constexpr belay_registry_vt kRegistry = {
    {sizeof(belay_registry_vt), 0, nullptr}, acquire, release, enumerate};

}  // namespace

belay_host host_slots() {
  return {.hdr = {sizeof(belay_host), 0, nullptr},
          .product = to_str("belay"),
          .version = to_str(BELAY_VERSION),
          .get_service = get_service,
          .log = log,
          .status_make = status_make,
          .status_text = [](const belay_host*, belay_status status,
                            belay_sink sink) { status_text(status, sink); },
          .status_release = [](const belay_host*, belay_status status) { release_status(status); },
          .alloc = alloc,
          .free = free_block,
          .now_ns = now_ns,
          .misbehave = misbehave};
}

std::map<std::string, const void*, std::less<>> host_services() {
  return {{BELAY_HOST_EXECUTOR, &kExecutor}, {BELAY_HOST_REGISTRY, &kRegistry}};
}

}  // namespace belay::core
