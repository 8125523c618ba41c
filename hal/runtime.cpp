#include "hal/runtime.h"

#include "core/base/text.h"
#include "core/services/services.h"
#include "hal/config_schema.h"

#include <belay/graph/verify.hpp>
#include <belay/kinds.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>

namespace belay::hal {
namespace {

constexpr std::chrono::seconds kUnloadDeadline{10};

std::string name_in(std::string_view key) { return std::string(key.substr(key.find(':') + 1)); }

core::HostOptions host_options(const RuntimeRequest& request, core::Config config) {
  core::HostOptions options;
  options.config = std::move(config);
  options.schema = runtime_schema();
  options.plugin_dirs = request.plugin_dirs;
  return options;
}

Result<std::unique_ptr<core::Host>> make_host(const RuntimeRequest& request) {
  for (const std::string& dir : request.plugin_dirs)
    if (dir.empty() || dir[0] != '/')
      return Status(Code::kInvalidArgument, "Plugin folder '" + dir +
                                                "' is not absolute; a folder relative to wherever "
                                                "the program runs could hold anybody's code.");
  BELAY_ASSIGN(core::Config config, read_config(request));
  return core::Host::create(host_options(request, std::move(config)));
}

}  // namespace

Result<core::Config> read_config(const RuntimeRequest& request) {
  core::Config config;
  const bool named = !request.files.empty();
  const std::vector<std::string> files = named ? request.files : core::Config::environment_files();
  if (files.empty()) BELAY_TRY(config.add_text("embedded cpu.toml", core::default_config()));
  for (const std::string& file : files) BELAY_TRY(config.add_file(file, named ? "" : "BELAY_CONFIG"));
  BELAY_TRY(config.add_environment());
  if (!request.text.empty()) BELAY_TRY(config.add_text("configuration text", request.text));
  for (const std::string& set : request.sets) BELAY_TRY(config.add_set(set));
  return config;
}

// ---- life
// ------------------------------------------------------------------------------------------------------------

Result<Runtime*> Runtime::create(const RuntimeRequest& request) {
  std::unique_ptr<Runtime, void (*)(Runtime*)> runtime(new Runtime,
                                                       [](Runtime* failed) { failed->let_go(); });
  BELAY_TRY(runtime->start(request));
  return runtime.release();
}

Status Runtime::start(const RuntimeRequest& request) {
  BELAY_ASSIGN(host_, make_host(request));
  for (const TableShape& kind : kComponentKinds) host_->add_kind(kind);
  const core::Config& config = host_->config();

  HalOptions options;
  const std::string_view full = config.get("runtime.queue_full").as_string("help");
  options.queue_full = full == "report"  ? QueueFull::kReport
                       : full == "block" ? QueueFull::kBlock
                                         : QueueFull::kHelp;
  options.memory_limit = uint64_t(config.get("memory.limit").as_int());
  options.checked = config.get("memory.checked").as_bool();
  copies_files_ = config.get("models.weights").as_string() == "copy";
  hal_ = std::make_unique<Hal>(*host_, options);
  host_->set_user(hal_.get());
  BELAY_TRY(host_->add_service(BELAY_HOST_HAL, &hal_table()));
  BELAY_TRY(core::Services::offer(*host_));
  BELAY_TRY(host_->start());

  BELAY_ASSIGN(std::vector<NamedObject> found, drivers());
  BELAY_TRY(acquire_all(BELAY_MEMORY_POLICY_KIND, "memory.policies", policies_));
  for (const NamedObject& policy : policies_)
    policy_views_.push_back(std::make_unique<PolicyView>(*hal_, policy));
  BELAY_TRY(acquire_all(BELAY_MODEL_FORMAT_KIND, "models.formats", formats_));
  BELAY_TRY(acquire_all(BELAY_DIAGNOSTICS_KIND, "diagnostics.use", diagnostics_));
  BELAY_TRY(listen());
  hal_->attach(std::move(found), policies_);
  if (const std::string_view engine = config.get("engine.use").as_string(); !engine.empty()) {
    BELAY_ASSIGN(engine_, acquire(std::string(BELAY_ENGINE_KIND) + ":" + std::string(engine)));
  }
  operators_ = std::make_unique<Operators>(*hal_, engine_, config.get("engine").raw(),
                                           uint64_t(config.get("engine.op_cache").as_int()));

  const std::string device(config.get("runtime.device").as_string("auto"));
  Result<uint64_t> index = hal_->devices().find(device);
  if (!index.ok())
    return Status(Code::kNotFound, index.status().message())
        .while_doing("looking for [runtime] device, " + config.where("runtime.device"));
  default_device_ = *index;
  hal_->set_holder(
      [](void* user, int by) {
        Runtime& self = *static_cast<Runtime*>(user);
        by > 0 ? self.hold() : self.let_go();
      },
      this);
  return {};
}

Result<PolicyView*> Runtime::policy(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < policies_.size(); ++i) {
    if (policies_[i].name == name) return policy_views_[i].get();
    known += (known.empty() ? "" : ", ") + policies_[i].name;
  }
  return Status(Code::kNotFound, "There is no memory policy '" + name + "' in [memory] policies, which has " +
                                     (known.empty() ? "none" : known) + ".");
}

// Records of plugins go to the diagnostics that want them.
Status Runtime::listen() {
  for (const NamedObject& object : diagnostics_) {
    const auto& table = *static_cast<const belay_diagnostics_vt*>(object.object->table);
    if (!BELAY_HAS(&table, belay_diagnostics_vt, on_records)) continue;
    BELAY_ASSIGN(
        const uint64_t id,
        core::services_of(core::table_of(&host_->table()))
            .trace.listen([&table, object = object.object](std::span<const belay_trace_record> records) {
              table.on_records(object, records.data(), records.size());
            }));
    listeners_.push_back(id);
  }
  return {};
}

Result<NamedObject> Runtime::acquire(std::string_view key) {
  BELAY_ASSIGN(core::Service service, host_->services().find(key));
  BELAY_ASSIGN(core::Lease lease, host_->acquire(key));
  NamedObject object{name_in(key), service.plugin, lease.object()};
  leases_.push_back(std::move(lease));
  return object;
}

Status Runtime::acquire_all(std::string_view kind, std::string_view path, std::vector<NamedObject>& into) {
  const Value list = host_->config().get(path);
  for (uint64_t i = 0; i < list.count(); ++i) {
    BELAY_ASSIGN(NamedObject object, acquire(std::string(kind) + ":" + std::string(list.at(i).as_string())));
    into.push_back(std::move(object));
  }
  return {};
}

// The driver of the default device first, then those that are named, then any other that is loaded.
Result<std::vector<NamedObject>> Runtime::drivers() {
  std::vector<std::string> keys;
  const auto want = [&](std::string_view name) {
    const std::string key =
        std::string(BELAY_DRIVER_KIND) + ":" + std::string(name.substr(0, name.find(':')));
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  };
  const std::string_view device = host_->config().get("runtime.device").as_string("auto");
  if (device != "auto") want(device);
  const Value named = host_->config().get("runtime.drivers");
  for (uint64_t i = 0; i < named.count(); ++i) want(named.at(i).as_string());
  const size_t asked_for = keys.size();
  for (const core::Service& service : host_->services().candidates(BELAY_DRIVER_KIND))
    if (service.score > 0) want(service.name());

  std::vector<NamedObject> found;
  for (size_t i = 0; i < keys.size(); ++i) {
    Result<NamedObject> driver = acquire(keys[i]);
    if (driver.ok()) {
      driver_plugins_.push_back(driver->plugin);
      found.push_back(std::move(driver).value());
    } else if (i < asked_for) {
      return driver.status();
    } else {
      host_->log().info("hal", "Driver '" + name_in(keys[i]) + "' is left out: " + driver.status().message());
    }
  }
  if (found.empty())
    return Status(
        Code::kInvalidArgument,
        "No driver is configured; name a device under [runtime] device, such as \"cpu:0\", or give a "
        "complete configuration before the one that changes it.");
  return found;
}

void Runtime::destroy() {
  if (const uint64_t left = holders_.load(std::memory_order_relaxed) - 1; left > 0) {
    std::string what;
    const auto add = [&](const std::string& text) { what += (what.empty() ? "" : ", ") + text; };
    models_.each([&](Model& model) { add("model '" + model.name() + "'"); });
    for (uint64_t i = 0; i < hal_->devices().count(); ++i)
      if (Device* device = hal_->devices().opened(i)) {
        device->retired().sweep(SIZE_MAX);
        add(std::to_string(device->live_buffers()) + " buffers, " + std::to_string(device->live_streams()) +
            " streams, " + std::to_string(device->live_programs()) + " programs and " +
            std::to_string(device->live_packages()) + " packages on '" + device->name() + "'");
      }
    host_->log().warning("runtime",
                         "A runtime was destroyed before what was made from it; it stays until that is gone. "
                         "Left are " +
                             std::to_string(left) + " objects of the application, of: " + what + ".");
    hal_->report_leaks("kept until destroyed");
  }
  magic_ = 0;
  let_go();
}

Runtime::~Runtime() {
  if (!host_) return;
  operators_.reset();
  if (!listeners_.empty() && !host_->forked()) {
    core::Trace& trace = core::services_of(core::table_of(&host_->table())).trace;
    trace.flush();
    for (const uint64_t id : listeners_) trace.unlisten(id);
  }
  // Whoever holds devices through the HAL ends first, then the HAL's own devices, then drivers and the rest.
  std::vector<NamedObject> users = diagnostics_;
  if (engine_.object) users.push_back(engine_);
  for (const NamedObject& user : users) {
    for (core::Lease& lease : leases_)
      if (lease.object() == user.object) lease.reset();
    if (std::find(driver_plugins_.begin(), driver_plugins_.end(), user.plugin) != driver_plugins_.end())
      continue;
    if (Status ended = host_->plugins().unload(user.plugin, kUnloadDeadline, true); !ended.ok())
      host_->log().error("runtime", ended.message());
  }
  host_->set_user(nullptr);  // what calls late is refused
  hal_.reset();
  leases_.clear();
  host_.reset();
}

// ---- looking around
// --------------------------------------------------------------------------------------------------

Status Runtime::print(const ModelRequest& request, belay_sink text) {
  BELAY_ASSIGN(ReadModel read, read_model(*this, request));
  graph::print(read.span(), text);
  BELAY_TRY(read.files->check_damage());
  return read.usable;
}

Status Runtime::freeze(const ModelRequest& request, belay_sink image) {
  BELAY_ASSIGN(ReadModel read, read_model(*this, request));
  BELAY_TRY(read.files->check_damage());
  BELAY_TRY(read.usable);
  image.write(image.user, read.image.data(), read.image_bytes);
  return {};
}

std::string Runtime::used(std::string_view kind) const {
  const auto listed = [](const std::vector<NamedObject>& objects, const std::string& order, auto&& about) {
    std::string text;
    for (const NamedObject& object : objects) text += (text.empty() ? "" : ", ") + object.name + about(object);
    return (text.empty() ? "none" : text) + ": " + order;
  };
  const auto nothing = [](const NamedObject&) { return std::string(); };
  if (kind == BELAY_MEMORY_POLICY_KIND)
    return listed(policies_, "for each class the first that serves it is asked first ([memory] policies)",
                  [](const NamedObject& policy) {
                    static constexpr std::pair<uint64_t, const char*> kClasses[] = {
                        {BELAY_POLICY_PLAN, "PLAN"}, {BELAY_POLICY_PLACE, "PLACE"}, {BELAY_POLICY_BIND, "BIND"}};
                    const uint64_t serves =
                        static_cast<const belay_memory_policy_vt*>(policy.object->table)->serves(policy.object);
                    std::string classes;
                    for (const auto& [bit, name] : kClasses)
                      if (serves & bit) classes += (classes.empty() ? "" : " ") + std::string(name);
                    return " (" + classes + ")";
                  });
  if (kind == BELAY_MODEL_FORMAT_KIND)
    return listed(formats_, "of each file the surest, then the first ([models] formats)", nothing);
  if (kind == BELAY_DIAGNOSTICS_KIND) return listed(diagnostics_, "all of them ([diagnostics] use)", nothing);
  if (kind == BELAY_DRIVER_KIND)
    return hal_->devices().names() + ": '" + hal_->devices().name(default_device_) +
           "' where a model names none ([runtime] device)";
  if (kind == BELAY_KERNEL_PROVIDER_KIND) {
    std::string text;
    for (const core::Service& service : host_->services().candidates(kind))
      if (service.score > 0) text += (text.empty() ? "" : ", ") + service.name();
    return text.empty() ? text : text + ": for each node the first of those for the device that claims it";
  }
  return {};
}

Status Runtime::explain(std::string_view kind, belay_sink text) {
  std::string all = host_->services().explain(kind, used(kind));
  if (all.empty()) return {Code::kNotFound, "No component of kind '" + std::string(kind) + "' is loaded."};
  write(text, all);
  return {};
}

namespace {

// On tables [plugin.<id>] that do less than whoever wrote them may think.
std::string notes_on_plugins(core::Host& host) {
  const core::Config& config = host.config();
  std::string notes;
  for (const core::PluginInfo& plugin : host.plugins().list()) {
    const std::string table = "plugin." + plugin.id, where = config.where(table);
    if (where.empty() || where == "default") continue;
    // What is used only where a key names it; drivers and kernels serve without.
    bool by_name = !plugin.keys.empty(), used = false;
    std::istringstream keys(plugin.keys);
    for (std::string key; keys >> key;) {
      by_name &= key.starts_with(BELAY_MEMORY_POLICY_KIND) || key.starts_with(BELAY_MODEL_FORMAT_KIND) ||
                 key.starts_with(BELAY_DIAGNOSTICS_KIND) || key.starts_with(BELAY_ENGINE_KIND);
      for (const core::Config::NamedComponent& named : config.named_components()) used |= named.key == key;
    }
    if (by_name && !used) {
      notes += "# note: [" + table + "] is set, " + where + ", but no key names what plugin '" + plugin.id +
               "' offers (" + plugin.keys + "), so it is not used.\n";
      continue;
    }
    const Value settings = config.get(table + ".config");
    bool set = false;
    for (uint64_t i = 0; i < settings.count(); ++i)
      set |= config.where(table + ".config." + std::string(settings.key_at(i))) != "default";
    if (set)
      notes += "# note: how values of [" + table + ".config] go with each other and with this machine is checked by "
               "plugin '" + plugin.id + "' when it starts.\n";
  }
  return notes;
}

}  // namespace

Status check_config(const RuntimeRequest& request, belay_sink effective) {
  BELAY_ASSIGN(std::unique_ptr<core::Host> host, make_host(request));
  // What plugins may require of a runtime's host.
  BELAY_TRY(host->add_service(BELAY_HOST_HAL, &hal_table()));
  BELAY_TRY(core::Services::offer(*host));
  BELAY_TRY(host->plugins().check());
  const core::Config& config = host->config();
  std::string lacks;
  const auto want = [&](bool there, const char* what) {
    if (!there) (lacks += lacks.empty() ? "" : ", ") += what;
  };
  // Plugins that are named bring drivers, which are known when they are loaded.
  want(config.get("runtime.device").as_string("auto") != "auto" ||
           config.get("runtime.drivers").count() > 0 || config.get("runtime.plugins").count() > 0,
       "a device ([runtime] device, or drivers)");
  want(config.get("models.formats").count() > 0, "a model format ([models] formats)");
  want(!config.get("engine.use").as_string().empty(), "an engine ([engine] use)");
  if (!lacks.empty())
    write(effective, "# note: no model can run with this configuration, it lacks " + lacks +
                         ". A file that says only what differs comes after one that says the rest, such as "
                         "configs/cpu.toml.\n\n");
  write(effective, notes_on_plugins(*host));
  write(effective, host->config().print());
  return {};
}

Status config_example(const RuntimeRequest& request, belay_sink text) {
  const core::Schema schema = runtime_schema();
  const auto headed = [](const std::string& doc) { return doc.empty() ? "" : "# " + doc + "\n"; };
  for (const core::Field& table : schema.tables())
    write(text, headed(table.doc) + core::example_of(table.key, table.members) + "\n");
  BELAY_ASSIGN(std::vector<core::PluginInfo> plugins, find_plugins(request));
  for (const core::PluginInfo& plugin : plugins) {
    const Result<core::Manifest> manifest = core::parse_manifest(plugin.file, plugin.manifest);
    if (!manifest.ok() || manifest->fields.empty()) continue;
    write(text, headed(manifest->doc) +
                    core::example_of("plugin." + plugin.id + ".config", manifest->fields) + "\n");
  }
  return {};
}

Result<std::vector<core::PluginInfo>> find_plugins(const RuntimeRequest& request) {
  // A configuration that names a missing plugin must not hide which there are, so only its folders are read.
  BELAY_ASSIGN(core::Config config, read_config(request));
  BELAY_TRY(config.check(runtime_schema()));
  core::CatalogOptions options;
  options.first_dirs = request.plugin_dirs;
  const Value dirs = config.get("runtime.plugin_dirs");
  for (uint64_t i = 0; i < dirs.count(); ++i) options.config_dirs.emplace_back(dirs.at(i).as_string());
  options.allow_insecure = config.get("runtime.allow_insecure").as_bool();
  options.state_dir = config.get("runtime.state_dir").as_string();
  const core::Catalog catalog = core::Catalog::search(options);
  std::vector<core::PluginInfo> found;
  for (const core::FoundPlugin& plugin : catalog.plugins()) {
    core::PluginInfo info;
    info.id = plugin.manifest.id;
    info.version = plugin.manifest.version;
    info.abi = std::to_string(plugin.manifest.abi_major) + "." + std::to_string(plugin.manifest.abi_minor);
    info.file = plugin.file;
    info.manifest = plugin.manifest.text;
    info.keys = plugin.manifest.keys();
    info.state = plugin.refused.ok()   ? core::PluginState::kFound
                 : plugin.quarantined ? core::PluginState::kQuarantined
                                      : core::PluginState::kFailed;
    info.reason = plugin.refused.message();
    found.push_back(std::move(info));
  }
  return found;
}

Status probe_plugin(const RuntimeRequest& request, const std::string& id) {
  core::Config config;
  for (const std::string& set : request.sets) BELAY_TRY(config.add_set(set));
  BELAY_TRY(config.add_set("runtime.probe=none"));
  BELAY_TRY(config.add_set("runtime.state_dir=none"));
  BELAY_ASSIGN(const auto host, core::Host::create(host_options(request, std::move(config))));
  for (const TableShape& kind : kComponentKinds) host->add_kind(kind);
  auto hal = std::make_unique<Hal>(*host, HalOptions());
  host->set_user(hal.get());
  BELAY_TRY(host->add_service(BELAY_HOST_HAL, &hal_table()));
  BELAY_TRY(core::Services::offer(*host));
  BELAY_TRY(host->need(id, "the probe"));
  const Status started = host->start(), ended = host->shutdown(kUnloadDeadline);
  return started.ok() ? ended : started;
}

Status release_plugin(const RuntimeRequest& request, const std::string& id) {
  BELAY_ASSIGN(core::Config config, read_config(request));
  BELAY_TRY(config.check(runtime_schema()));
  const std::string place(config.get("runtime.state_dir").as_string());
  return core::Quarantine(core::Quarantine::directory(place)).release(id);
}

}  // namespace belay::hal
