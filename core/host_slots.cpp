#include "core/host_slots.h"

#include "core/base/text.h"
#include "core/host_call.h"

#include <chrono>
#include <cstdlib>

namespace belay::core {
namespace {

const void* get_service(const belay_host* host, belay_str id) {
  return host_call<const void*>(host, [&](HostTable& table) {
    const void* const service = table.host->service(to_view(id));
    if (!service)
      table.host->log().info(table.logger, "this host (belay " BELAY_VERSION ") has no service " +
                                               quote(to_view(id).substr(0, 64)) +
                                               ", which the plugin asked for");
    return service;
  });
}

void log(const belay_host* host, uint32_t level, belay_str message) {
  host_call<void>(host, [&](HostTable& table) {
    const Level at = level <= BELAY_LOG_CRITICAL ? Level(level) : Level::kError;
    table.host->log().write(table.logger, at, to_view(message));
  });
}

belay_status status_make(const belay_host* host, uint32_t code, belay_str message) {
  if (code == BELAY_OK) return BELAY_OK;
  if (SlotCall::forbidden()) return BELAY_FAILED_PRECONDITION;
  return make_status(code, to_view(message), table_of(host).plugin);
}

// Stands before every block, so that a wrong pointer is known as one.
struct alignas(32) BlockHead {
  uint64_t magic;
  HostTable* owner;
  uint64_t bytes;  // with the head and what aligns it
  void* begin;
};
constexpr uint64_t kBlockMagic = 0x6b636f6c62796c62;

void* alloc(const belay_host* host, uint64_t bytes, uint64_t align) {
  return host_call<void*>(host, [&](HostTable& table) -> void* {
    if (align == 0 || (align & (align - 1)) != 0 || align > 1u << 30) {
      table.host->misbehaved(table.plugin,
                             "alloc with alignment " + std::to_string(align) + ", want a power of two");
      return nullptr;
    }
    if (HostExtension* extension = table.extension; extension && !extension->fault(table, "alloc").ok()) return nullptr;
    const uint64_t unit = std::max<uint64_t>(align, sizeof(BlockHead));
    if (bytes > uint64_t(PTRDIFF_MAX) - unit || !table.memory.charge(unit + bytes)) return nullptr;
    void* begin = nullptr;
    if (posix_memalign(&begin, unit, unit + bytes) != 0) {
      table.memory.discharge(unit + bytes);
      return nullptr;
    }
    char* const block = static_cast<char*>(begin) + unit;
    new (block - sizeof(BlockHead))
        BlockHead{kBlockMagic ^ uint64_t(uintptr_t(block)), &table, unit + bytes, begin};
    return block;
  });
}

// Allowed everywhere, since a destroy may free.
void free_block(const belay_host* host, void* block) noexcept try {
  if (!block) return;
  const InsideHost inside(host);
  const auto broke = [&](const std::string& how) {
    if (inside.table.live) inside.table.host->misbehaved(inside.table.plugin, how);
  };
  BlockHead* const head = reinterpret_cast<BlockHead*>(static_cast<char*>(block) - sizeof(BlockHead));
  if (uintptr_t(block) % alignof(BlockHead) != 0 || head->magic != (kBlockMagic ^ uint64_t(uintptr_t(block))))
    return broke("free of memory that alloc of this host did not give, or that was freed before");
  HostTable* const owner = head->owner;
  head->magic = 0;
  owner->memory.discharge(head->bytes);
  std::free(head->begin);
  if (owner != &inside.table) broke("free of memory of plugin " + quote(owner->plugin));
} catch (...) {  // no memory for the report
}

uint64_t now_ns(const belay_host*) {
  return uint64_t(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

void misbehave(const belay_host* host, belay_str who, belay_str reason) {
  host_call<void>(host, [&](HostTable& table) {
    Host& self = *table.host;
    std::string plugin(to_view(who));
    if (const Result<Service> service = self.services().find(plugin); service.ok()) plugin = service->plugin;
    const std::string by = table.plugin.empty() ? "the application" : "plugin " + quote(table.plugin);
    const std::string text = printable(to_view(reason).substr(0, 1024)) + " (reported by " + by + ")";
    if (self.plugins().catalog().find(plugin))
      self.misbehaved(plugin, text);
    else
      self.log().warning("core", quote(printable(to_view(who).substr(0, 200))) + " broke a rule: " + text);
  });
}

// ---- executor
// Ends with an error where there is no task.
Result<Executor::Task> task_of(HostTable& table, uint32_t domain, const char* what, void (*task)(void*),
                               void* user) {
  if (!task) return Status(Code::kInvalidArgument, std::string(what) + " was given no task.");
  return Executor::Task([&host = *table.host, plugin = table.plugin, domain, task, user] {
    const Status thrown = call_slot(plugin.c_str(), "a task", domain, [&] { task(user); });
    if (!thrown.ok()) host.misbehaved(plugin, thrown.message());
  });
}

belay_status post(const belay_host* host, void (*task)(void*), void* user) {
  return host_call<belay_status>(host, [&](HostTable& table) -> Status {
    BELAY_ASSIGN(Executor::Task run, task_of(table, BELAY_THREAD_IO, "post", task, user));
    return table.host->executor().post(table.tasks, std::move(run));
  });
}

belay_status post_blocking(const belay_host* host, void (*task)(void*), void* user) {
  return host_call<belay_status>(host, [&](HostTable& table) -> Status {
    BELAY_ASSIGN(Executor::Task run, task_of(table, BELAY_THREAD_LONG, "post_blocking", task, user));
    return table.host->executor().post_blocking(table.tasks, std::move(run));
  });
}

belay_status timer(const belay_host* host, uint64_t delay_ns, uint64_t period_ns, void (*task)(void*),
                   void* user, uint64_t* out_id) {
  return host_call<belay_status>(host, [&](HostTable& table) -> Status {
    const auto span = [](uint64_t ns) { return std::chrono::nanoseconds(std::min(ns, uint64_t(INT64_MAX))); };
    BELAY_ASSIGN(Executor::Task run, task_of(table, BELAY_THREAD_IO, "timer", task, user));
    BELAY_ASSIGN(const uint64_t id,
                 table.host->executor().timer(table.tasks, span(delay_ns), span(period_ns), std::move(run)));
    if (out_id) *out_id = id;
    return {};
  });
}

void cancel(const belay_host* host, uint64_t id) {
  host_call<void>(host, [&](HostTable& table) { table.host->executor().cancel(id); });
}

belay_status strand(const belay_host* host, uint64_t* out_id) {
  return host_call<belay_status>(host, [&](HostTable& table) -> Status {
    if (!out_id) return {Code::kInvalidArgument, "strand was given no place for its id."};
    BELAY_ASSIGN(*out_id, table.host->executor().strand(table.tasks));
    return {};
  });
}

belay_status post_to(const belay_host* host, uint64_t strand, void (*task)(void*), void* user) {
  return host_call<belay_status>(host, [&](HostTable& table) -> Status {
    BELAY_ASSIGN(Executor::Task run, task_of(table, BELAY_THREAD_IO, "post_to", task, user));
    return table.host->executor().post(table.tasks, strand, std::move(run));
  });
}

belay_status watch_fd(const belay_host* host, int32_t fd, uint32_t write, void (*task)(void*), void* user,
                      uint64_t* out_id) {
  return host_call<belay_status>(host, [&](HostTable& table) -> Status {
    if (!out_id) return {Code::kInvalidArgument, "watch_fd was given no place for its id."};
    BELAY_ASSIGN(Executor::Task run, task_of(table, BELAY_THREAD_IO, "watch_fd", task, user));
    BELAY_ASSIGN(*out_id, table.host->executor().watch(table.tasks, fd, write != 0, std::move(run)));
    return {};
  });
}

// ---- registry
belay_status acquire(const belay_host* host, belay_str key, belay_lease* out) {
  return host_call<belay_status>(host, [&](HostTable& table) -> Status {
    if (!out) return {Code::kInvalidArgument, "acquire was given no belay_lease to fill."};
    BELAY_ASSIGN(Lease lease, table.host->objects().acquire(to_view(key), table.plugin));
    out->object = lease.object();
    out->id = lease.release();
    return {};
  });
}

void release(const belay_host* host, uint64_t id) {  // allowed in destroy too
  const InsideHost inside(host);
  if (inside.table.live) inside.table.host->objects().release(id);
}

belay_status enumerate(const belay_host* host, belay_str kind, void (*each)(void*, belay_str), void* user) {
  return host_call<belay_status>(host, [&](HostTable& table) -> Status {
    for (const Service& service : table.host->services().candidates(to_view(kind)))
      each(user, to_str(service.key()));
    return {};
  });
}

belay_status valid(const belay_host* host, uint64_t id) {
  return host_call<belay_status>(host, [&](HostTable& table) -> Status {
    if (table.host->objects().valid(id)) return {};
    return {Code::kNotFound, "Lease " + std::to_string(id) + " is revoked, given back or never was."};
  });
}

// What changes is told on a strand of the plugin that watches.
belay_status watch(const belay_host* host, belay_str kind, void (*changed)(void*, belay_str, uint32_t),
                   void* user, uint64_t* out_id) {
  return host_call<belay_status>(host, [&](HostTable& table) -> Status {
    if (!changed || !out_id)
      return {Code::kInvalidArgument, "watch was given no function, or no place for its id."};
    BELAY_ASSIGN(const uint64_t id, table.host->executor().strand(table.tasks));
    const auto note = [&table, id, changed, user](const std::string& key, bool there) {
      const Status told = table.host->executor().post(table.tasks, id, [&table, changed, user, key, there] {
        const Status thrown = call_slot(table.plugin.c_str(), "a watch", BELAY_THREAD_IO, [&] {
          changed(user, to_str(key), there ? BELAY_COMPONENT_ADDED : BELAY_COMPONENT_REMOVED);
        });
        if (!thrown.ok()) table.host->misbehaved(table.plugin, thrown.message());
      });
      if (!told.ok())
        table.host->log().warning(table.logger, "is not told of " + key + ": " + told.message());
    };
    *out_id = id;
    table.host->services().watch(id, table.plugin, to_view(kind), note);
    return {};
  });
}

void unwatch(const belay_host* host, uint64_t id) {
  host_call<void>(host, [&](HostTable& table) {
    table.host->services().unwatch(id, table.plugin);
    table.host->executor().cancel(id);
  });
}

constexpr belay_executor_vt kExecutor = {
    {sizeof(belay_executor_vt), 0, nullptr}, post, post_blocking, timer, cancel, strand, post_to, watch_fd};
constexpr belay_registry_vt kRegistry = {
    {sizeof(belay_registry_vt), 0, nullptr}, acquire, release, enumerate, valid, watch, unwatch};

}  // namespace

Status check_call(const HostTable& table) {
  if (!table.live)
    return {Code::kFailedPrecondition,
            "Plugin " + quote(table.plugin) + " is closed and may not call the host."};
  if (SlotCall::forbidden())
    return {Code::kFailedPrecondition,
            "The host may not be called inside " + std::string(SlotCall::current->slot) + "."};
  return table.host->check_process();
}

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
