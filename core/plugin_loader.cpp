#include "core/plugin_loader.h"

#include "core/base/bounded_call.h"
#include "core/base/process_state.h"
#include "core/base/shared_library.h"
#include "core/base/signals_blocked.h"
#include "core/base/slot_call.h"
#include "core/base/text.h"
#include "core/discovery/plugin_file.h"
#include "core/discovery/plugin_order.h"
#include "core/host.h"
#include "core/plugin_opening.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

namespace belay::core {
namespace {

constexpr auto kEndDeadline = std::chrono::seconds(5);  // of a plugin that did not start, or broke rules
constexpr auto kCloseDeadline = std::chrono::seconds(2);
using Nanoseconds = std::chrono::nanoseconds;

}  // namespace

const char* name_of(PluginState state) {
  constexpr const char* kNames[] = {"found",  "loaded",   "open",     "active", "draining",
                                    "closed", "resident", "unmapped", "failed", "quarantined", "zombie"};
  return kNames[size_t(state)];
}

struct PluginLoader::Plugin {
  const FoundPlugin* found;
  PluginState state = PluginState::kFound;
  std::string reason;  // of a failure
  bool needed = false;
  std::shared_ptr<SharedLibrary> library;
  const belay_plugin* api = nullptr;
  belay_ctx* ctx = nullptr;
  HostTable* table = nullptr;
  bool stuck = false;  // a slot has not returned
  const Manifest& manifest() const { return found->manifest; }
  const char* id() const { return found->manifest.id.c_str(); }
};

struct PluginLoader::State {
  State(Host& host_, Catalog catalog_) : host(host_), catalog(std::move(catalog_)) {
    for (const FoundPlugin& found : catalog.plugins())
      if (catalog.find(found.manifest.id) == &found) {
        auto plugin = std::make_unique<Plugin>();
        plugin->found = &found;
        plugins.emplace(found.manifest.id, std::move(plugin));
      }
  }

  Host& host;
  const Catalog catalog;
  std::mutex work;           // held by load and unload while they run plugins: they come one after the other
  mutable std::mutex mutex;  // of what list() reads: state, reason, needed
  std::map<std::string, std::unique_ptr<Plugin>, std::less<>> plugins;
  std::vector<Plugin*> opened;  // in order
  std::mutex enders_mutex;
  std::vector<std::thread> enders;  // each ends a plugin that broke rules
  bool down = false;                // no more of them

  void join() {
    std::vector<std::thread> all;
    {
      std::lock_guard lock(enders_mutex);
      down = true;
      all.swap(enders);
    }
    for (std::thread& thread : all) thread.join();
  }

  void set(Plugin& plugin, PluginState state, const std::string& reason = {}) {
    std::lock_guard lock(mutex);
    plugin.state = state, plugin.reason = reason;
  }
  // A zombie may be tried again, unless a slot of it has not returned.
  bool may_end(const Plugin& plugin) const {
    return running(plugin) || (plugin.state == PluginState::kZombie && !plugin.stuck);
  }
  // What is needed and runs or has not been tried.
  std::vector<const Manifest*> wanted() const {
    std::vector<const Manifest*> all;
    for (const auto& [id, plugin] : plugins)
      if (plugin->needed && (plugin->state == PluginState::kFound || running(*plugin)))
        all.push_back(&plugin->manifest());
    return all;
  }
  bool running(const Plugin& plugin) const {
    return plugin.state == PluginState::kActive || plugin.state == PluginState::kOpen;
  }

  Status fail(Plugin& plugin, Status status) {
    host.log().error("core", status.message());
    set(plugin, PluginState::kFailed, status.message());
    if (plugin.table) plugin.table->live = false;
    return status;
  }

  // Runs code of the plugin; false: it has not returned by the deadline, and the plugin is a zombie now.
  bool bounded(Plugin& plugin, const char* slot, Nanoseconds deadline, std::function<void()> body) {
    const auto late = [&](std::chrono::seconds time) {
      host.log().warning("core", "plugin " + quote(plugin.id()) + ": " + slot + " has been running for " +
                                     std::to_string(time.count()) + " s");
    };
    if (call_bounded(std::move(body), deadline, late)) return true;
    plugin.stuck = true;
    plugin.table->live = false;  // it may go on, but not with this host
    host.objects().revoke(plugin.id());
    host.services().remove_all(plugin.id());
    return false;
  }
  Status stuck(Plugin& plugin, const char* slot, Nanoseconds deadline) {
    const Status status(
        Code::kDeadlineExceeded,
        "plugin " + quote(plugin.id()) + ": " + slot + " has not returned after " +
            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count()) +
            " ms. It stays mapped.");
    set(plugin, PluginState::kZombie, status.message());
    host.log().error("core", status.message());
    return status;
  }
  Nanoseconds init_deadline() const {
    return Nanoseconds(host.config().get("runtime.init_deadline").as_int());
  }

  Value setting(const Plugin& plugin, const char* key) const {
    return host.config().get("plugin.\"" + plugin.manifest().id + "\"." + key);
  }
  bool optional(const Plugin& plugin) const { return setting(plugin, "optional").as_bool(); }
  std::vector<std::string> use_of(const Plugin& plugin) const {
    const Value listed = setting(plugin, "use");
    std::vector<std::string> use;
    for (uint64_t i = 0; i < listed.count(); ++i) use.emplace_back(listed.at(i).as_string());
    return use;
  }
  // `keys`: what the plugin offers.
  Status check_use(const Plugin& plugin, const std::vector<std::string>& use,
                   const std::vector<std::string>& keys) const {
    for (const std::string& key : use)
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        return {Code::kInvalidArgument,
                "config " + host.config().where("plugin.\"" + plugin.manifest().id + "\".use") + ": plugin " +
                    quote(plugin.id()) + " offers no " + quote(key) + did_you_mean(key, keys) +
                    " (it offers " + joined(keys) + ")"};
    return {};
  }

  Status open(Plugin& plugin) {
    if (!plugin.found->refused.ok()) return plugin.found->refused;
    const std::string_view probe = host.config().get("runtime.probe").as_string();
    if (probe == "all" || (probe == "external" && !plugin.found->installed))
      BELAY_TRY(catalog.probe(*plugin.found, host.config().get("runtime.allow_insecure").as_bool(), init_deadline()));
    plugin.table = &host.table_for(plugin.manifest().id);
    plugin.table->tasks.closed = false;
    const std::vector<std::string> use = use_of(plugin);
    const auto opening = std::make_shared<PluginOpening>(*plugin.found, *plugin.table,
                                                         host.config().plugin_config(plugin.id()));
    const std::string key = "plugin.\"" + plugin.manifest().id + "\".sha256";
    opening->pinned = host.config().get(key).as_string();
    opening->require_digest = host.config().get("runtime.require_digest").as_bool();
    set(plugin, PluginState::kLoaded);
    const Nanoseconds deadline = init_deadline();
    if (!bounded(plugin, "open", deadline,
                 [opening, use, all = !setting(plugin, "use").set()] { opening->run(all ? nullptr : &use); }))
      return stuck(plugin, "open", deadline);
    plugin.library = opening->library;
    report_changes(plugin, "loading", opening->changes);
    if (!opening->loaded.ok()) {
      if (plugin.library->is_open()) plugin.library->close();  // nothing of it ran but its constructors
      return opening->loaded;
    }
    plugin.api = opening->api, plugin.ctx = opening->ctx;
    Status status = opening->thrown.ok() ? host.take(opening->raw, plugin.id(), "open") : opening->thrown;
    if (!status.ok()) {
      report_leaks(plugin);
      return std::move(status).while_doing("opening plugin " + quote(plugin.id()));
    }
    set(plugin, PluginState::kOpen);
    opened.push_back(&plugin);
    status = register_components(plugin, *opening, use);
    if (!status.ok()) abort(plugin);
    return status;
  }

  Status register_components(Plugin& plugin, const PluginOpening& opening,
                             const std::vector<std::string>& use) {
    std::vector<Service> services;
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < plugin.api->component_count; ++i) {
      Service service{
          .component = plugin.api->components[i], .plugin = plugin.manifest().id, .file = plugin.found->file};
      const PluginOpening::Scored& scored = opening.scores[i];
      keys.push_back(scored.key);
      if (!scored.asked) continue;
      for (const ManifestComponent& component : plugin.manifest().components)
        if (component.key() == scored.key) service.priority = component.priority;
      BELAY_TRY(scored.thrown);
      BELAY_TRY(host.take(scored.raw, plugin.id(), "score"));
      service.score = std::min<uint64_t>(scored.score, 1000);
      service.reason = printable(scored.reason);
      services.push_back(std::move(service));
    }
    BELAY_TRY(check_use(plugin, use, keys));
    BELAY_TRY(host.services().add(std::move(services)));
    host.objects().offer(plugin.manifest().id, plugin.ctx);
    return {};
  }

  // Runs a slot that may block, such as start, and gives what it says.
  Status run_slot(Plugin& plugin, const char* slot, uint32_t domain, Nanoseconds deadline,
                  std::function<belay_status(const belay_plugin*, belay_ctx*)> call) {
    struct Answer {
      Status thrown;
      belay_status raw = BELAY_OK;
      std::vector<std::string> changes;
    };
    const auto answer = std::make_shared<Answer>();
    if (!bounded(plugin, slot, deadline,
                 [answer, slot, domain, call, &table = *plugin.table, api = plugin.api, ctx = plugin.ctx] {
                   const ProcessState before;
                   answer->thrown =
                       call_slot(table.plugin.c_str(), slot, domain, [&] { answer->raw = call(api, ctx); });
                   answer->changes = before.restore();
                 }))
      return stuck(plugin, slot, deadline);
    report_changes(plugin, slot, answer->changes);
    if (!answer->thrown.ok()) host.misbehaved(plugin.id(), answer->thrown.message());
    return answer->thrown.ok() ? host.take(answer->raw, plugin.id(), slot) : answer->thrown;
  }

  Status start(Plugin& plugin) {
    if (BELAY_HAS(plugin.api, belay_plugin, start)) {
      Status status = run_slot(plugin, "start", BELAY_THREAD_INIT, init_deadline(),
                               [](const belay_plugin* api, belay_ctx* ctx) { return api->start(ctx); });
      if (!status.ok()) return std::move(status).while_doing("starting plugin " + quote(plugin.id()));
    }
    set(plugin, PluginState::kActive);
    return {};
  }

  void report_changes(Plugin& plugin, const char* what, const std::vector<std::string>& changes) {
    if (!changes.empty())
      host.misbehaved(plugin.id(), std::string(what) + " changed " + joined(changes) +
                                       " of the process; it was put back.");
  }

  void report_leaks(Plugin& plugin) {
    std::vector<std::string> left = host.objects().held_by(plugin.id());
    for (std::string& key : left) key = "a lease of " + key;
    if (HostExtension* extension = plugin.table->extension)
      for (std::string& what : extension->take_back(*plugin.table)) left.push_back(std::move(what));
    if (const uint64_t blocks = plugin.table->memory.blocks)
      left.push_back(std::to_string(blocks) + " blocks of " + std::to_string(plugin.table->memory.bytes) +
                     " bytes");
    if (!left.empty())
      host.log().warning("core", "plugin " + quote(plugin.id()) + " leaves behind " + joined(left) + ".");
  }

  // `failure(id)`: why that plugin cannot be built on; empty where it can.
  template <class Failure>
  Status requirements(const Manifest& manifest, const std::vector<const Manifest*>& wanted,
                      Failure&& failure) const {
    return check_requirements(
        manifest, wanted, [&](std::string_view id) { return host.service(id) != nullptr; }, failure);
  }

  // Ends a plugin that is open but did not start; what stands in its way is logged.
  void abort(Plugin& plugin) {
    std::erase(opened, &plugin);
    if (!plugin.stuck) static_cast<void>(end(plugin, kEndDeadline));
  }

  Status end(Plugin& plugin, std::chrono::nanoseconds deadline, bool keep_mapped = false) {
    const auto until = std::chrono::steady_clock::now() + deadline;
    const auto left = [&] {
      return std::max(std::chrono::nanoseconds(0),
                      std::chrono::nanoseconds(until - std::chrono::steady_clock::now()));
    };
    set(plugin, PluginState::kDraining);
    host.objects().revoke(plugin.id());
    host.services().remove_all(plugin.id());
    Status status;
    if (BELAY_HAS(plugin.api, belay_plugin, quiesce)) {
      status = run_slot(plugin, "quiesce", BELAY_THREAD_SERIAL, std::max<Nanoseconds>(left(), kCloseDeadline),
                        [ns = uint64_t(left().count())](const belay_plugin* api, belay_ctx* ctx) {
                          return api->quiesce(ctx, ns);
                        });
      if (plugin.stuck) return status;
      if (!status.ok()) host.log().warning("core", status.message());
    }
    status = host.objects().withdraw(plugin.manifest().id, left());
    if (status.ok() && !host.executor().drain(plugin.table->tasks, left()))
      status = {Code::kDeadlineExceeded, "Plugin " + quote(plugin.id()) + " is still in use: " +
                                             std::to_string(plugin.table->tasks.tasks) +
                                             " of its tasks have not ended."};
    if (!status.ok()) {
      set(plugin, PluginState::kZombie, status.message());
      host.log().error("core", status.message() + " It stays mapped.");
      return status;
    }
    status = run_slot(
        plugin, "close", BELAY_THREAD_INIT, std::max<Nanoseconds>(left(), kCloseDeadline),
        [](const belay_plugin* api, belay_ctx* ctx) { return api->close(ctx), belay_status(BELAY_OK); });
    if (plugin.stuck) return status;
    plugin.ctx = nullptr;
    host.services().remove_all(plugin.id());  // what it watched since
    report_leaks(plugin);
    plugin.table->live = false;
    set(plugin, PluginState::kClosed);
    if (!keep_mapped) unmap(plugin);
    return {};
  }

  void unmap(Plugin& plugin) {
#if BELAY_SANITIZER == BELAY_SANITIZER_NONE  // a report needs the library's symbols
    if (plugin.manifest().unload_supported) {
      const bool gone = plugin.library->close();
      return set(plugin, gone ? PluginState::kUnmapped : PluginState::kResident,
                 gone ? "" : "something keeps the library mapped");
    }
#endif
    set(plugin, PluginState::kResident);
  }
};

PluginLoader::PluginLoader(Host& host, Catalog catalog)
    : state_(std::make_unique<State>(host, std::move(catalog))) {}
PluginLoader::~PluginLoader() { state_->join(); }

Status PluginLoader::need(std::string_view requirement, const std::string& why) {
  State& state = *state_;
  Plugin* chosen = nullptr;
  const auto rank = [&](const Plugin& plugin) {  // a name given is better than priorities
    int64_t priority = 0;
    for (const ManifestComponent& component : plugin.manifest().components)
      if (component.key() == requirement || component.kind == requirement)
        priority = std::max(priority, component.priority);
    return std::tuple(plugin.manifest().id == requirement, plugin.found->refused.ok(), priority);
  };
  for (const auto& [id, plugin] : state.plugins) {
    if (!offers(plugin->manifest(), requirement)) continue;
    if (plugin->needed) return {};
    if (!chosen || rank(*plugin) > rank(*chosen)) chosen = plugin.get();
  }
  if (!chosen) {
    const Status missing = state.catalog.not_found(requirement);
    return {missing.code(), why + ": " + missing.message()};
  }
  {
    std::lock_guard lock(state.mutex);
    chosen->needed = true;
  }
  for (const std::string& next : all_requirements(chosen->manifest()))
    if (!next.starts_with("belay.host."))
      BELAY_TRY(need(next, "plugin " + quote(chosen->id()) + " requires " + quote(next)));
  return {};
}

Status PluginLoader::check() const {
  const State& state = *state_;
  const std::vector<const Manifest*> wanted = state.wanted();
  const PluginOrder order = order_plugins(wanted);
  std::map<std::string, std::string> failed;  // by id
  Status all;
  const auto note = [&](const std::string& id, const Status& status) {
    if (status.ok()) return;
    failed.emplace(id, status.message());
    if (state.optional(*state.plugins.find(id)->second)) return;
    all = all.ok() ? status : Status(all.code(), all.message() + "\n" + status.message());
  };
  for (const auto& [id, refused] : order.cycles) note(id, refused);
  for (const std::string& id : order.order) {
    const Plugin& plugin = *state.plugins.find(id)->second;
    std::vector<std::string> keys;
    for (const ManifestComponent& component : plugin.manifest().components) keys.push_back(component.key());
    Status status = state.requirements(plugin.manifest(), wanted,
                                       [&](const std::string& other) { return failed[other]; });
    if (status.ok()) status = plugin.found->refused;
    if (status.ok()) status = state.check_use(plugin, state.use_of(plugin), keys);
    note(id, status);
  }
  return all;
}

Status PluginLoader::load() {
  State& state = *state_;
  BELAY_TRY(state.host.check_process());
  std::lock_guard work(state.work);
  const std::vector<const Manifest*> wanted = state.wanted();
  const PluginOrder order = order_plugins(wanted);
  Status first;
  const auto note = [&](Plugin& plugin, Status status) {
    if (status.ok()) return;
    if (plugin.state != PluginState::kZombie) status = state.fail(plugin, std::move(status));
    if (first.ok() && !state.optional(plugin)) first = status;
  };
  const auto plugin_of_id = [&](const std::string& id) -> Plugin& { return *state.plugins.find(id)->second; };
  for (const auto& [id, refused] : order.cycles) note(plugin_of_id(id), refused);
  Quarantine::Journal journal(state.catalog.quarantine());
  for (const std::string& id : order.order) {
    Plugin& plugin = plugin_of_id(id);
    if (plugin.state != PluginState::kFound) continue;
    journal.loading(id, plugin.found->file);
    Status status = state.requirements(plugin.manifest(), wanted, [&](const std::string& id_of_other) {
      const Plugin& other = plugin_of_id(id_of_other);
      return state.running(other) ? "" : other.reason.empty() ? name_of(other.state) : other.reason;
    });
    note(plugin, status.ok() ? state.open(plugin) : status);
  }
  const std::vector<Plugin*> opened = state.opened;
  for (Plugin* plugin : opened) {
    if (plugin->state != PluginState::kOpen) continue;
    if (BELAY_HAS(plugin->api, belay_plugin, start)) journal.loading(plugin->id(), plugin->found->file);
    Status status = state.start(*plugin);
    if (status.ok()) {
      state.host.log().debug("core", "plugin " + quote(plugin->id()) + " " + plugin->manifest().version +
                                         " runs, from " + plugin->found->file);
      continue;
    }
    state.abort(*plugin);
    note(*plugin, std::move(status));
  }
  return first;
}

Status PluginLoader::unload(const std::string& id, std::chrono::nanoseconds deadline, bool keep_mapped) {
  State& state = *state_;
  BELAY_TRY(state.host.check_process());
  std::lock_guard work(state.work);
  const auto at = state.plugins.find(id);
  if (at == state.plugins.end()) return state.catalog.not_found(id);
  Plugin& plugin = *at->second;
  if (!state.may_end(plugin))
    return {Code::kFailedPrecondition,
            "plugin " + quote(id) + " is " + name_of(plugin.state) + ", so it cannot be ended."};
  std::erase(state.opened, &plugin);
  return state.end(plugin, deadline, keep_mapped);
}

bool PluginLoader::end_later(std::string_view id, const std::string& why) try {
  State& state = *state_;
  const auto at = state.plugins.find(id);
  std::lock_guard lock(state.enders_mutex);
  if (at == state.plugins.end() || state.down) return false;
  const SignalsBlocked blocked;
  state.enders.emplace_back([&state, &plugin = *at->second, why] {
    std::lock_guard work(state.work);
    if (!state.running(plugin)) return;
    std::erase(state.opened, &plugin);
    const Status status = state.end(plugin, kEndDeadline);
    state.set(plugin, plugin.state, status.ok() ? why : why + "; " + status.message());
  });
  return true;
} catch (const std::exception&) {  // no thread, no memory: it stays
  return false;
}

Status PluginLoader::unload_all(std::chrono::nanoseconds deadline) {
  State& state = *state_;
  BELAY_TRY(state.host.check_process());
  state.join();
  std::lock_guard work(state.work);
  const auto until = std::chrono::steady_clock::now() + deadline;
  Status first;
  std::vector<Plugin*> left;
  for (auto& [id, plugin] : state.plugins)  // whoever held them may have let go
    if (plugin->state == PluginState::kZombie && !plugin->stuck) left.push_back(plugin.get());
  left.insert(left.end(), state.opened.begin(), state.opened.end());
  state.opened.clear();
  std::reverse(left.begin(), left.end());
  for (Plugin* plugin : left) {
    Status status = state.end(*plugin,
                              std::max(std::chrono::nanoseconds(0),
                                       std::chrono::nanoseconds(until - std::chrono::steady_clock::now())),
                              true);
    if (first.ok()) first = std::move(status);
  }
  for (auto& [id, plugin] : state.plugins)
    if (plugin->state == PluginState::kClosed) state.unmap(*plugin);
  return first;
}

std::vector<PluginInfo> PluginLoader::list() const {
  std::lock_guard lock(state_->mutex);
  std::vector<PluginInfo> all;
  for (const FoundPlugin& found : state_->catalog.plugins()) {
    const Manifest& manifest = found.manifest;
    PluginInfo info{.id = manifest.id,
                    .version = manifest.version,
                    .abi = std::to_string(manifest.abi_major) + "." + std::to_string(manifest.abi_minor),
                    .file = found.file,
                    .manifest = manifest.text,
                    .keys = manifest.keys(),
                    .reason = found.refused.message()};
    const auto at = state_->plugins.find(manifest.id);
    if (at != state_->plugins.end() && at->second->found == &found) {
      info.state = at->second->state;
      if (!at->second->reason.empty()) info.reason = at->second->reason;
    }
    if (!found.refused.ok()) info.state = found.quarantined ? PluginState::kQuarantined : PluginState::kFailed;
    all.push_back(std::move(info));
  }
  return all;
}

const Catalog& PluginLoader::catalog() const { return state_->catalog; }

bool PluginLoader::zombie(std::string_view id) const {
  std::lock_guard lock(state_->mutex);
  const auto at = state_->plugins.find(id);
  return at != state_->plugins.end() && at->second->state == PluginState::kZombie;
}

std::set<std::string> PluginLoader::needed() const {
  std::lock_guard lock(state_->mutex);
  std::set<std::string> ids;
  for (const auto& [id, plugin] : state_->plugins)
    if (plugin->needed) ids.insert(id);
  return ids;
}

std::string PluginLoader::why_not(std::string_view key) const {
  std::lock_guard lock(state_->mutex);
  for (const auto& [id, plugin] : state_->plugins)
    for (const ManifestComponent& component : plugin->manifest().components)
      if (component.key() == key)
        return "plugin " + quote(id) + " offers it and " +
               (!plugin->reason.empty() ? std::string(name_of(plugin->state)) + ": " + plugin->reason
                : !plugin->needed       ? "is not named in the configuration (add it to [runtime] plugins)"
                                        : std::string("is ") + name_of(plugin->state)) +
               ".";
  return "";
}

}  // namespace belay::core
