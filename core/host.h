// core/host.h: the host: what embedding code makes first and destroys last.
//
//   Config config;                                     // files, environment, sets
//   Schema schema = core_schema();                     // schema.add("engine", {...}): tables of your own
//   auto made = Host::create({.config = std::move(config), .schema = std::move(schema)});
//   Host& host = **made;                               // checked against manifests; nothing is loaded yet
//   for (const TableShape& kind : kComponentKinds) host.add_kind(kind);      // belay/kinds.hpp
//   host.set_user(this);                               // user_of(table) in the slots of your services
//   host.add_service("belay.host.hal/1", &hal_table);  // before start()
//   BELAY_TRY(host.start());                           // loads what the configuration names
//   BELAY_ASSIGN(Lease driver, host.acquire("belay.driver/1:cpu"));          // driver.object()
#pragma once

#include <belay/abi/host.h>
#include <belay/abi/plugin.h>
#include <belay/status.hpp>
#include <belay/table_shape.hpp>
#include "core/base/executor.h"
#include "core/base/fork_guard.h"
#include "core/base/log.h"
#include "core/base/memory_account.h"
#include "core/config/config.h"
#include "core/objects.h"
#include "core/plugin_loader.h"
#include "core/service_registry.h"

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

class HostExtension;

// The belay_host that one plugin was given, and what is counted for it. A plugin's pointer is a pointer to
// `abi`.
struct HostTable {
  belay_host abi;
  Host* host;
  std::atomic<void*> user;  // of the embedding code
  std::atomic<HostExtension*> extension;
  std::string plugin;  // id; empty: the host's own table
  std::string logger;  // "plugin.cpu"
  TaskCount tasks;
  MemoryAccount memory;
  std::atomic<uint64_t> misbehaved;
  std::atomic<uint64_t> inside;  // calls that have not returned
  std::atomic<bool> live;        // false: closed, every slot refuses
};
inline HostTable& table_of(const belay_host* host) {
  return *reinterpret_cast<HostTable*>(const_cast<belay_host*>(host));
}
// What Host::set_user was given: two loads, fit for a hot path.
inline void* user_of(const belay_host* host) { return table_of(host).user.load(std::memory_order_relaxed); }
inline std::string_view plugin_of(const belay_host* host) { return table_of(host).plugin; }

// What offers services from above the core. It outlives the plugins and ends before the executor.
class HostExtension {
 public:
  virtual ~HostExtension() = default;
  // Takes back what a plugin has left when it is closed, and says what it was: "a pinned block of 4096
  // bytes".
  virtual std::vector<std::string> take_back(HostTable& plugin) = 0;
  // Whether a failure is ordered at this point of a plugin.
  virtual Status fault(const HostTable& plugin, std::string_view point) = 0;
  // An object that a plugin has made, from `parent` (NULL: a component), before anybody calls it; on failure it
  // is destroyed. And its end, after destroy.
  virtual Status attach(belay_obj& object, const TableShape& shape, const std::string& plugin,
                        belay_obj* parent) = 0;
  virtual void detach(belay_obj& object) = 0;
};

struct HostOptions {
  Config config = {};  // layers added, not checked
  Schema schema = core_schema();
  std::vector<std::string> plugin_dirs = {};  // absolute; searched before the configured ones
  bool standard_plugin_dirs = true;
};

// An object: two hosts with different configurations live in one process. Thread-safe but for create, start
// and the destructor. In a forked child calls fail with FAILED_PRECONDITION and the destructor does nothing.
class Host {
 public:
  // Finds plugins, checks the configuration against the schema and the manifests; loads nothing.
  // INVALID_ARGUMENT (file:line:column), NOT_FOUND (a plugin that the configuration names).
  static Result<std::unique_ptr<Host>> create(HostOptions options);
  // shutdown(10 s). Leases must be gone.
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Teaches the host a kind: objects of components of other kinds cannot be acquired. Before start().
  void add_kind(const TableShape& kind);
  // What plugins get from get_service(id); the table outlives the host. ALREADY_EXISTS. Before start().
  Status add_service(const std::string& id, const void* table);
  void set_user(void* user);  // before start()
  // What stands behind the tables that were added. Before start().
  void set_extension(std::unique_ptr<HostExtension> extension);
  // For whoever makes objects of what plugins' slots give: before it is used, and after its destroy. See
  // HostExtension.
  Status attach(belay_obj& object, const TableShape& shape, const std::string& plugin, belay_obj* parent) {
    return extension_ ? extension_->attach(object, shape, plugin, parent) : Status();
  }
  void detach(belay_obj& object) {
    if (extension_) extension_->detach(object);
  }

  // Adds a plugin that the configuration does not name: by key "belay.driver/1:cpu", kind or id. Its
  // configuration is checked now. NOT_FOUND, INVALID_ARGUMENT; `why` begins the message. Before start().
  Status need(std::string_view requirement, const std::string& why);

  // Loads, opens and starts the plugins that the configuration names and what they require. What can be
  // started is, and the host works with it; the status is that of the first plugin that failed and is not
  // `optional`.
  Status start();
  // Ends all plugins in reverse order. DEADLINE_EXCEEDED: some are zombies and stay mapped. Once; later calls
  // do nothing.
  Status shutdown(std::chrono::nanoseconds deadline);

  // The shared object of a component, made at the first call. NOT_FOUND (and why), UNAVAILABLE (its score is
  // 0), what its create says.
  Result<Lease> acquire(std::string_view key);

  // The host's own table, for calls into plugins and for status conversion (to_c, from_c of status.hpp).
  const belay_host& table() const { return own_->abi; }
  // A status that a slot of `plugin` returned, taken over. An unknown code or a foreign handle becomes
  // INTERNAL and is counted as misbehaviour of the plugin.
  Status take(belay_status raw, std::string_view plugin, std::string_view slot);
  // Logs that a plugin broke a rule and counts it; the strike that is one too many ends the plugin, as soon
  // as nothing else loads or ends. Gives the count.
  uint64_t misbehaved(std::string_view plugin, std::string_view reason);

  // FAILED_PRECONDITION in a forked child.
  Status check_process() const { return process_.check("This runtime"); }
  bool forked() const { return process_.forked(); }

  const Config& config() const { return config_; }
  const Schema& schema() const { return schema_; }
  Log& log() { return log_; }
  Executor& executor() { return executor_; }
  ServiceRegistry& services() { return *services_; }
  Objects& objects() { return objects_; }
  PluginLoader& plugins() { return *plugins_; }

  // For the loader: the table of a plugin, made at the first call, alive as long as the host.
  HostTable& table_for(const std::string& plugin);
  const void* service(std::string_view id) const;  // nullptr: none

 private:
  explicit Host(HostOptions options);
  Status prepare(const std::vector<std::string>& plugin_dirs, bool standard_plugin_dirs);
  Status check_needed();

  const ForkGuard process_;
  Config config_;
  Schema schema_;
  Log log_;
  Executor executor_;
  std::unique_ptr<HostExtension> extension_;
  std::unique_ptr<ServiceRegistry> services_;
  Objects objects_;
  std::unique_ptr<PluginLoader> plugins_;
  mutable std::mutex mutex_;  // of the next three
  std::map<std::string, const void*, std::less<>> service_tables_;
  std::map<std::string, std::unique_ptr<HostTable>, std::less<>> tables_;
  std::atomic<void*> user_{nullptr};
  HostTable* own_ = nullptr;
  std::set<std::string> checked_;  // plugins whose configuration was
  uint64_t strikes_ = 0;           // that end a plugin; 0: none does
  bool down_ = false;
};

}  // namespace belay::core
