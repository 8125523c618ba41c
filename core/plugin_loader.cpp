#include "core/plugin_loader.h"

#include "core/base/process_state.h"
#include "core/base/text.h"
#include "core/discovery/plugin_file.h"
#include "core/discovery/plugin_order.h"
#include "core/host.h"
#include "core/shared_library.h"
#include "core/slot_call.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

namespace belay::core {
namespace {

constexpr uint64_t kMostComponents = 1024;
constexpr auto kFailedStartDeadline = std::chrono::seconds(5);

// All that the host reads of the table, before it calls anything in it.
Status check_plugin_table(const belay_plugin* api, const Manifest& manifest, const std::string& who) {
  const auto bad = [&](const std::string& why) {
    return Status(Code::kInternal, who + " is built wrongly: " + why + ".");
  };
  constexpr uint64_t kWanted = offsetof(belay_plugin, get_extension) + sizeof(void*);
  if (api->hdr.struct_size < kWanted || api->hdr.struct_size > 65536)
    return bad("struct_size of its table is " + std::to_string(api->hdr.struct_size) + ", want " +
               std::to_string(kWanted) + " to 65536");
  if (to_view(api->id) != manifest.id)
    return bad("its table has the id " + quote(to_view(api->id).substr(0, 64)) + ", its manifest " +
               quote(manifest.id));
  if (!api->open || !api->close)
    return bad(std::string("required slot ") + (api->open ? "close" : "open") + " is null");
  if (api->component_count == 0 || api->component_count > kMostComponents || !api->components)
    return bad("it has " + std::to_string(api->component_count) + " components, want 1 to " +
               std::to_string(kMostComponents));
  std::vector<std::string> keys, declared;
  for (uint64_t i = 0; i < api->component_count; ++i) {
    const belay_component* component = api->components[i];
    if (!component || component->hdr.struct_size < sizeof(belay_component) ||
        component->hdr.struct_size > 65536)
      return bad("component " + std::to_string(i) + " is null or has a wrong struct_size");
    const size_t slash = to_view(component->kind).find('/');
    if (slash == std::string_view::npos || !valid_id(to_view(component->kind).substr(0, slash)) ||
        !valid_id(to_view(component->name)))
      return bad("component " + std::to_string(i) + " has no proper kind and name");
    keys.push_back(to_string(component->kind) + ":" + to_string(component->name));
    if (!component->create) return bad("required slot create of component " + keys.back() + " is null");
  }
  if (manifest.components.empty()) return {};  // no manifest: nothing was promised
  for (const ManifestComponent& component : manifest.components) declared.push_back(component.key());
  std::sort(keys.begin(), keys.end());
  std::sort(declared.begin(), declared.end());
  return keys == declared
             ? Status()
             : bad("it has the components " + joined(keys) + ", its manifest says " + joined(declared));
}

}  // namespace

const char* name_of(PluginState state) {
  constexpr const char* kNames[] = {"found",  "loaded",   "open",     "active", "draining",
                                    "closed", "resident", "unmapped", "failed", "zombie"};
  return kNames[size_t(state)];
}

struct PluginLoader::Plugin {
  const FoundPlugin* found;
  PluginState state = PluginState::kFound;
  std::string reason;  // of a failure
  bool needed = false;
  SharedLibrary library;
  const belay_plugin* api = nullptr;
  belay_ctx* ctx = nullptr;
  HostTable* table = nullptr;
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

  void set(Plugin& plugin, PluginState state, const std::string& reason = {}) {
    std::lock_guard lock(mutex);
    plugin.state = state, plugin.reason = reason;
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

  Status load_file(Plugin& plugin) {
    const Manifest& manifest = plugin.manifest();
    const std::string who = "plugin " + quote(manifest.id);
    if (!plugin.found->refused.ok()) return plugin.found->refused;
    BELAY_TRY(check_same_file(plugin.found->file, plugin.found->device, plugin.found->inode));
    BELAY_TRY(plugin.library.open(plugin.found->file));
    BELAY_TRY(check_same_file(plugin.found->file, plugin.found->device, plugin.found->inode));
    BELAY_ASSIGN(void* const address, plugin.library.symbol(BELAY_ENTRY_NAME));
    plugin.table = &host.table_for(manifest.id);
    belay_handshake hands{{sizeof hands, 0, nullptr}, BELAY_ABI_MINOR, 0, 0, 0, 0};
    const belay_plugin* api = nullptr;
    BELAY_TRY(call_slot(plugin.id(), BELAY_ENTRY_NAME, true, [&] {
      api = reinterpret_cast<belay_entry_fn>(address)(&plugin.table->abi, &hands);
    }));
    const std::string abi = std::to_string(BELAY_ABI_MAJOR) + "." + std::to_string(hands.plugin_minor);
    if (hands.needs != 0)  // this host has no feature bits yet, so it cannot know their names
      return {Code::kUnimplemented, who + " refused: needs feature bits " + std::to_string(hands.needs) +
                                        " of ABI " + abi + ", this host has minor " +
                                        std::to_string(BELAY_ABI_MINOR) + " - install a newer host"};
    if (!api)
      return {Code::kUnimplemented,
              who + " refused: it says that it cannot work with this host (ABI " + host_abi() + ")"};
    if (hands.layout != BELAY_ABI_LAYOUT)
      return {Code::kUnimplemented, who + " refused: built for layout " + std::to_string(hands.layout) +
                                        " of ABI " + abi + ", this host has layout " +
                                        std::to_string(BELAY_ABI_LAYOUT) +
                                        " - build it again with the headers of this host"};
    BELAY_TRY(check_plugin_table(api, manifest, who));
    plugin.api = api;
    set(plugin, PluginState::kLoaded);
    return {};
  }

  Status open(Plugin& plugin) {
    belay_status raw = BELAY_OK;
    plugin.table->live = true;
    plugin.table->tasks.closed = false;
    Status status = call_slot(plugin.id(), "open", false, [&] {
      raw = plugin.api->open(&plugin.table->abi, host.config().plugin_config(plugin.id()), &plugin.ctx);
    });
    if (status.ok()) status = host.take(raw, plugin.id(), "open");
    if (!status.ok()) {
      report_leaks(plugin);
      return std::move(status).while_doing("opening plugin " + quote(plugin.id()));
    }
    set(plugin, PluginState::kOpen);
    opened.push_back(&plugin);
    return register_components(plugin);
  }

  Status register_components(Plugin& plugin) {
    const Value use = host.config().get("plugin.\"" + plugin.manifest().id + "\".use");
    std::vector<Service> services;
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < plugin.api->component_count; ++i) {
      Service service{
          .component = plugin.api->components[i], .plugin = plugin.manifest().id, .file = plugin.found->file};
      keys.push_back(service.key());
      bool wanted = !use.set();
      for (uint64_t u = 0; u < use.count(); ++u) wanted |= use.at(u).as_string() == keys.back();
      if (!wanted) continue;
      for (const ManifestComponent& component : plugin.manifest().components)
        if (component.key() == keys.back()) service.priority = component.priority;
      BELAY_TRY(score(plugin, service));
      services.push_back(std::move(service));
    }
    for (uint64_t u = 0; u < use.count(); ++u)
      if (const std::string key(use.at(u).as_string());
          std::find(keys.begin(), keys.end(), key) == keys.end())
        return {Code::kInvalidArgument,
                "config " + host.config().where("plugin.\"" + plugin.manifest().id + "\".use") + ": plugin " +
                    quote(plugin.id()) + " offers no " + quote(key) + did_you_mean(key, keys) +
                    " (it offers " + joined(keys) + ")"};
    BELAY_TRY(host.services().add(std::move(services)));
    host.objects().offer(plugin.manifest().id, plugin.ctx);
    return {};
  }

  Status score(Plugin& plugin, Service& service) {
    if (!service.component->score) return {};
    StringSink reason;
    belay_score score{{sizeof score, 0, nullptr}, 0, reason.sink()};
    belay_status raw = BELAY_OK;
    BELAY_TRY(
        call_slot(plugin.id(), "score", false, [&] { raw = service.component->score(plugin.ctx, &score); }));
    BELAY_TRY(host.take(raw, plugin.id(), "score"));
    service.score = std::min<uint64_t>(score.score, 1000);
    service.reason = printable(reason.text());
    return {};
  }

  Status start(Plugin& plugin) {
    if (!running(plugin)) return {};
    if (BELAY_HAS(plugin.api, belay_plugin, start)) {
      belay_status raw = BELAY_OK;
      BELAY_TRY(call_slot(plugin.id(), "start", false, [&] { raw = plugin.api->start(plugin.ctx); }));
      if (Status status = host.take(raw, plugin.id(), "start"); !status.ok())
        return std::move(status).while_doing("starting plugin " + quote(plugin.id()));
    }
    set(plugin, PluginState::kActive);
    return {};
  }

  void report_leaks(Plugin& plugin) {
    std::vector<std::string> left = host.objects().held_by(plugin.id());
    for (std::string& key : left) key = "a lease of " + key;
    if (const uint64_t blocks = plugin.table->blocks)
      left.push_back(std::to_string(blocks) + " blocks of " + std::to_string(plugin.table->block_bytes) +
                     " bytes");
    if (!left.empty())
      host.log().warning("core", "plugin " + quote(plugin.id()) + " leaves behind " + joined(left) + ".");
  }

  Status check_requirements(const Manifest& manifest, const std::vector<const Manifest*>& wanted) {
    const std::string who = "plugin " + quote(manifest.id) + " refused: ";
    for (const std::string& requirement : all_requirements(manifest)) {
      if (requirement.starts_with("belay.host.") && !host.service(requirement))
        return {Code::kUnimplemented,
                who + "this host has no service " + quote(requirement) + " - install a newer host"};
      const Plugin* failed = nullptr;
      bool there = offers(manifest, requirement);
      for (const Manifest* other : wanted)
        if (const Plugin& plugin = *plugins.find(other->id)->second; offers(*other, requirement))
          running(plugin) ? void(there = true) : void(failed = &plugin);
      if (failed && !there)
        return {Code::kFailedPrecondition, who + "it requires " + quote(requirement) + ", and plugin " +
                                               quote(failed->id()) + " failed: " + failed->reason};
    }
    return {};
  }

  // Calls `body`, which runs code of the plugin, and puts back what it changed in the process.
  template <class Body>
  Status watched(Plugin& plugin, const char* what, Body&& body) {
    const ProcessState before;
    Status status = body();
    for (const std::string& change : before.restore())
      host.misbehaved(plugin.id(),
                      std::string(what) + " changed " + change + " of the process; it was put back.");
    return status;
  }

  // Ends a plugin that is open but did not start; what stands in its way is logged.
  void abort(Plugin& plugin) {
    static_cast<void>(end(plugin, kFailedStartDeadline));
    std::erase(opened, &plugin);
  }

  Status end(Plugin& plugin, std::chrono::nanoseconds deadline) {
    const auto until = std::chrono::steady_clock::now() + deadline;
    const auto left = [&] {
      return std::max(std::chrono::nanoseconds(0),
                      std::chrono::nanoseconds(until - std::chrono::steady_clock::now()));
    };
    set(plugin, PluginState::kDraining);
    host.services().remove_all(plugin.id());
    host.objects().revoke(plugin.id());
    Status status;
    if (BELAY_HAS(plugin.api, belay_plugin, quiesce)) {
      belay_status raw = BELAY_OK;
      status = call_slot(plugin.id(), "quiesce", false,
                         [&] { raw = plugin.api->quiesce(plugin.ctx, uint64_t(left().count())); });
      if (status.ok()) status = host.take(raw, plugin.id(), "quiesce");
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
    status = watched(plugin, "close", [&] {
      return call_slot(plugin.id(), "close", false, [&] { plugin.api->close(plugin.ctx); });
    });
    if (!status.ok()) host.misbehaved(plugin.id(), status.message());
    plugin.ctx = nullptr;
    report_leaks(plugin);
    plugin.table->live = false;
    set(plugin, PluginState::kClosed);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // their reports need the library's symbols
    if (plugin.manifest().unload_supported) {
      const bool gone = plugin.library.close();
      set(plugin, gone ? PluginState::kUnmapped : PluginState::kResident,
          gone ? "" : "something keeps the library mapped");
      return {};
    }
#endif
    set(plugin, PluginState::kResident);
    return {};
  }
};

PluginLoader::PluginLoader(Host& host, Catalog catalog)
    : state_(std::make_unique<State>(host, std::move(catalog))) {}
PluginLoader::~PluginLoader() = default;

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

Status PluginLoader::load() {
  State& state = *state_;
  BELAY_TRY(state.host.check_process());
  std::lock_guard work(state.work);
  std::vector<const Manifest*> wanted;
  for (auto& [id, plugin] : state.plugins)
    if (plugin->needed && (plugin->state == PluginState::kFound || state.running(*plugin)))
      wanted.push_back(&plugin->manifest());
  const PluginOrder order = order_plugins(wanted);
  Status first;
  const auto note = [&](Plugin& plugin, Status status) {
    if (status.ok()) return;
    status = state.fail(plugin, std::move(status));
    if (first.ok() && !state.host.config().get("plugin.\"" + plugin.manifest().id + "\".optional").as_bool())
      first = status;
  };
  const auto plugin_of_id = [&](const std::string& id) -> Plugin& { return *state.plugins.find(id)->second; };
  for (const auto& [id, cycle] : order.cycles)
    note(plugin_of_id(id),
         {Code::kInvalidArgument, "plugin " + quote(id) + " refused: requirements go in a circle: " + cycle});
  for (const std::string& id : order.order) {
    Plugin& plugin = plugin_of_id(id);
    if (plugin.state != PluginState::kFound) continue;
    Status status = state.check_requirements(plugin.manifest(), wanted);
    if (status.ok())
      status = state.watched(plugin, "loading", [&]() -> Status {
        Status loaded = state.load_file(plugin);
        if (loaded.ok()) return state.open(plugin);
        if (plugin.library.is_open()) plugin.library.close();  // nothing of it ran but its constructors
        return loaded;
      });
    if (!status.ok() && state.running(plugin)) state.abort(plugin);
    note(plugin, std::move(status));
  }
  const std::vector<Plugin*> opened = state.opened;
  for (Plugin* plugin : opened) {
    if (plugin->state != PluginState::kOpen) continue;
    Status status = state.start(*plugin);
    if (status.ok()) continue;
    state.abort(*plugin);
    note(*plugin, std::move(status));
  }
  return first;
}

Status PluginLoader::unload(const std::string& id, std::chrono::nanoseconds deadline) {
  State& state = *state_;
  BELAY_TRY(state.host.check_process());
  std::lock_guard work(state.work);
  const auto at = state.plugins.find(id);
  if (at == state.plugins.end()) return state.catalog.not_found(id);
  Plugin& plugin = *at->second;
  if (!state.running(plugin))
    return {Code::kFailedPrecondition,
            "plugin " + quote(id) + " is " + name_of(plugin.state) + ", so it cannot be ended."};
  std::erase(state.opened, &plugin);
  return state.end(plugin, deadline);
}

Status PluginLoader::unload_all(std::chrono::nanoseconds deadline) {
  State& state = *state_;
  BELAY_TRY(state.host.check_process());
  std::lock_guard work(state.work);
  const auto until = std::chrono::steady_clock::now() + deadline;
  Status first;
  while (!state.opened.empty()) {
    Plugin& plugin = *state.opened.back();
    state.opened.pop_back();
    Status status =
        state.end(plugin, std::max(std::chrono::nanoseconds(0),
                                   std::chrono::nanoseconds(until - std::chrono::steady_clock::now())));
    if (first.ok()) first = std::move(status);
  }
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
    if (!found.refused.ok()) info.state = PluginState::kFailed;
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
