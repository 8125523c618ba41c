#include "core/host.h"

#include "core/base/status_catalogue.h"
#include "core/base/status_table.h"
#include "core/base/text.h"
#include "core/host_slots.h"

#include <chrono>
#include <set>
#include <thread>

namespace belay::core {
namespace {

std::vector<std::string> strings(Value list) {
  std::vector<std::string> all;
  for (uint64_t i = 0; i < list.count(); ++i) all.emplace_back(list.at(i).as_string());
  return all;
}

Result<LogOptions> log_options(const Config& config) {
  LogOptions options;
  BELAY_ASSIGN(options.level, parse_level(config.get("log.level").as_string("warning")));
  options.file = config.get("log.file").as_string();
  const Value levels = config.get("log.levels");
  for (uint64_t i = 0; i < levels.count(); ++i) {
    const std::string logger(levels.key_at(i));
    const Result<Level> level = parse_level(levels[logger].as_string());
    if (!level.ok())
      return Status(Code::kInvalidArgument, "config " + config.where("log.levels.\"" + logger + "\"") +
                                                ": log.levels: " + level.status().message());
    options.levels.emplace_back(logger, *level);
  }
  return options;
}

}  // namespace

Host::Host(HostOptions options)
    : config_(std::move(options.config)), schema_(std::move(options.schema)), objects_(*this) {
  own_ = &table_for("");
  own_->live = true;
  service_tables_ = host_services();
}

Result<std::unique_ptr<Host>> Host::create(HostOptions options) {
  const std::vector<std::string> dirs = std::move(options.plugin_dirs);
  const bool standard = options.standard_plugin_dirs;
  std::unique_ptr<Host> host(new Host(std::move(options)));
  BELAY_TRY(host->prepare(dirs, standard));
  return host;
}

Status Host::prepare(const std::vector<std::string>& plugin_dirs, bool standard_plugin_dirs) {
  const std::vector<std::string> named = config_.plugin_ids();
  BELAY_TRY(config_.check(schema_));
  BELAY_ASSIGN(LogOptions log, log_options(config_));
  if (const Status status = log_.configure(std::move(log)); !status.ok())
    return {status.code() == Code::kResourceExhausted ? status.code() : Code::kInvalidArgument,
            "config " + config_.where("log.file") + ": " + status.message()};
  const std::vector<std::string> overrides = strings(config_.get("runtime.override"));
  services_ = std::make_unique<ServiceRegistry>(std::set<std::string>(overrides.begin(), overrides.end()));

  CatalogOptions search{.first_dirs = plugin_dirs,
                        .config_dirs = strings(config_.get("runtime.plugin_dirs")),
                        .allow_insecure = config_.get("runtime.allow_insecure").as_bool(),
                        .state_dir = std::string(config_.get("runtime.state_dir").as_string()),
                        .standard_dirs = standard_plugin_dirs};
  strikes_ = uint64_t(config_.get("runtime.strikes").as_int());
  for (const std::string& id : named) {
    const std::string path = "plugin.\"" + id + "\".path";
    if (!config_.get(path).set()) continue;
    if (!config_.get("runtime.allow_external").as_bool())
      return {Code::kInvalidArgument,
              "config " + config_.where(path) + ": plugin." + id +
                  ".path names a library outside of the plugin directories - set [runtime] "
                  "allow_external = true if you trust it"};
    search.files.emplace_back(config_.get(path).as_string());
  }
  plugins_ = std::make_unique<PluginLoader>(*this, Catalog::search(search));
  for (const std::string& warning : plugins_->catalog().warnings()) log_.warning("core", warning);

  for (const std::string& id : named)
    BELAY_TRY(plugins_->need(id, "config " + config_.where("plugin.\"" + id + "\"")));
  for (const std::string& id : strings(config_.get("runtime.plugins")))
    BELAY_TRY(plugins_->need(id, "config " + config_.where("runtime.plugins")));
  for (const Config::NamedComponent& component : config_.named_components())
    BELAY_TRY(plugins_->need(component.key, "config " + component.where));
  const Status status = check_needed();
  for (const std::string& warning : config_.warnings()) log_.warning("core", warning);
  return status;
}

Status Host::need(std::string_view requirement, const std::string& why) {
  BELAY_TRY(plugins_->need(requirement, why));
  return check_needed();
}

Status Host::check_needed() {
  std::string errors;
  for (const std::string& id : plugins_->needed()) {
    const FoundPlugin& found = *plugins_->catalog().find(id);
    if (!found.refused.ok() && found.manifest.fields.empty()) continue;  // load() says why it is refused
    if (!checked_.insert(id).second) continue;
    const Status status = config_.check_plugin(id, found.manifest.fields, found.manifest.what());
    if (!status.ok()) errors += (errors.empty() ? "" : "\n") + status.message();
  }
  return errors.empty() ? Status() : Status(Code::kInvalidArgument, errors);
}

Host::~Host() {
  if (forked()) {
    // Threads, locks and plugins are the parent's: nothing of them may be touched here.
    static_cast<void>(plugins_.release());
    static_cast<void>(services_.release());
    static_cast<void>(extension_.release());
    return;
  }
  if (const Status status = shutdown(std::chrono::seconds(10)); !status.ok())
    log_.error("core", status.message());
  bool zombies = false;
  for (auto& [id, table] : tables_) {
    table->live = false;
    if (!plugins_ || !plugins_->zombie(id)) continue;
    zombies = true;
    // What it is inside of at this moment ends first; what it calls later is refused by its table.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (table->inside > 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    static_cast<void>(table.release());  // it may still call: its table stays for ever
  }
  if (!zombies) return;
  executor_.abandon();                                // one of its tasks may never end
  static_cast<void>(extension_.release());                // it may still have what that gave
  static_cast<void>(new Config(std::move(config_)));  // NOLINT: and read its configuration
}

void Host::add_kind(const TableShape& kind) { objects_.add_kind(kind); }

Status Host::add_service(const std::string& id, const void* table) {
  std::lock_guard lock(mutex_);
  if (service_tables_.emplace(id, table).second) return {};
  return {Code::kAlreadyExists, "This host has a service " + quote(id) + " already."};
}

void Host::set_extension(std::unique_ptr<HostExtension> extension) {
  std::lock_guard lock(mutex_);
  extension_ = std::move(extension);
  for (auto& [id, table] : tables_) table->extension = extension_.get();
}

void Host::set_user(void* user) {
  std::lock_guard lock(mutex_);
  user_ = user;
  for (auto& [id, table] : tables_) table->user = user;
}

Status Host::start() {
  BELAY_TRY(check_process());
  return plugins_->load();
}

Status Host::shutdown(std::chrono::nanoseconds deadline) {
  BELAY_TRY(check_process());
  if (down_ || !plugins_) return {};
  down_ = true;
  return plugins_->unload_all(deadline);
}

Result<Lease> Host::acquire(std::string_view key) { return objects_.acquire(key, ""); }

Status Host::take(belay_status raw, std::string_view plugin, std::string_view slot) {
  if (raw == BELAY_OK) return {};
  const Result<StatusDetail> detail = status_detail(raw);
  release_status(raw);
  if (detail.ok()) {
    const Code code = static_cast<Code>(BELAY_STATUS_CODE(raw));
    if (code == Code::kOk) return {};
    if (!detail->plugin.empty() || raw >> 16) return {code, detail->message};
    return {code, "Plugin " + quote(plugin) + " gave " + std::string(describe_code(uint32_t(code))->name) +
                      " from " + std::string(slot) + " without saying why."};
  }
  const std::string what =
      std::string(slot) + " gave " + std::to_string(raw) + ", which is no status of this host";
  misbehaved(plugin, what);
  return {Code::kInternal, "Plugin " + quote(plugin) + ": " + what + "."};
}

uint64_t Host::misbehaved(std::string_view plugin, std::string_view reason) {
  const uint64_t count = ++table_for(std::string(plugin)).misbehaved;
  const std::string line =
      "plugin " + quote(plugin) + " broke a rule (" + std::to_string(count) + "): " + std::string(reason);
  const bool ends = count == strikes_ && plugins_ && plugins_->end_later(plugin, line);
  ends ? log_.error("core", line + " - it is ended; [runtime] strikes says after how many")
       : log_.warning("core", line);
  return count;
}

HostTable& Host::table_for(const std::string& plugin) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<HostTable>& table = tables_[plugin];
  if (!table) {
    table = std::make_unique<HostTable>();
    table->abi = host_slots();
    table->host = this;
    table->user = user_.load(), table->extension = extension_.get();
    table->plugin = plugin;
    if (const Value limit = config_.get("plugin.\"" + plugin + "\".memory_limit"); limit.set())
      table->memory.limit = uint64_t(limit.as_int());
    table->logger = plugin.empty() ? "host" : "plugin." + plugin;
  }
  return *table;
}

const void* Host::service(std::string_view id) const {
  std::lock_guard lock(mutex_);
  const auto at = service_tables_.find(id);
  return at == service_tables_.end() ? nullptr : at->second;
}

}  // namespace belay::core
