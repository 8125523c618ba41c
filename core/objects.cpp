#include "core/objects.h"

#include "core/base/slot_call.h"
#include "core/base/text.h"
#include "core/host.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace belay::core {

struct Objects::State {
  explicit State(Host& host_) : host(host_) {}

  struct Entry {  // of a key
    std::string plugin;
    const TableShape* shape = nullptr;
    std::unique_ptr<belay_obj> object;  // null while it is being made
    uint64_t order = 0;
    uint64_t leases = 0;
  };
  struct Given {  // of a lease
    std::string key, holder;
    uint64_t order;  // of the entry, which may be gone
  };
  struct Provider {
    belay_ctx* ctx = nullptr;
    bool revoked = false;
    std::thread::id creator;  // of the thread that is inside its `create`, which is [serial]
    int depth = 0;            // that thread may come back for another component
  };

  Host& host;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, TableShape, std::less<>> kinds;
  std::map<std::string, Provider, std::less<>> providers;
  std::map<std::string, Entry, std::less<>> entries;
  std::map<uint64_t, Given> given;
  std::map<std::thread::id, std::string> waiting;  // for a provider
  uint64_t next = 0;

  // Whether waiting for the provider would wait for this thread, through any number of others.
  bool would_wait_for_itself(std::string plugin) const {
    for (size_t steps = 0; steps <= waiting.size(); ++steps) {
      const auto provider = providers.find(plugin);
      if (provider == providers.end() || provider->second.depth == 0) return false;
      if (provider->second.creator == std::this_thread::get_id()) return true;
      const auto at = waiting.find(provider->second.creator);
      if (at == waiting.end()) return false;
      plugin = at->second;
    }
    return true;
  }

  Result<Lease> lease(Objects& objects, const std::string& key, Entry& entry, std::string_view holder) {
    const uint64_t id = ++next;
    given.emplace(id, Given{key, std::string(holder), entry.order});
    ++entry.leases;
    return Lease(objects, id, entry.object.get());
  }

  Result<std::unique_ptr<belay_obj>> create(const Service& service, const TableShape& shape, belay_ctx* ctx) {
    belay_created created{{sizeof created, 0, nullptr}, nullptr, nullptr};
    belay_status raw = BELAY_OK;
    const std::string key = service.key();
    const Status thrown = call_slot(service.plugin.c_str(), "create", BELAY_THREAD_SERIAL, [&] {
      raw = service.component->create(ctx, host.config().plugin_config(service.plugin), &created);
    });
    if (!thrown.ok()) {
      host.misbehaved(service.plugin, thrown.message());
      return thrown;
    }
    if (Status status = host.take(raw, service.plugin, "create"); !status.ok())
      return std::move(status).while_doing("creating " + key);
    if (Status status = check_table(shape, created.table, "Plugin '" + service.plugin + "'"); !status.ok()) {
      host.misbehaved(service.plugin, status.message());
      return status;
    }
    auto object = std::make_unique<belay_obj>();
    object->magic = BELAY_OBJ_MAGIC, object->kind = shape.object_kind;
    object->table = created.table, object->impl = created.impl;
    BELAY_TRY(host.attach(*object, shape, service.plugin, nullptr));
    return object;
  }
};

Objects::Objects(Host& host) : state_(std::make_unique<State>(host)) {}
Objects::~Objects() {
  bool in_use = state_->host.forked();  // waiting threads of the parent are not here to leave the condition
  for (const auto& [key, entry] : state_->entries)
    in_use |= entry.object != nullptr;  // of zombies, which may call them
  if (in_use) static_cast<void>(state_.release());
}

void Objects::add_kind(const TableShape& kind) {
  std::lock_guard lock(state_->mutex);
  state_->kinds.insert_or_assign(kind.kind, kind);
}

Result<Lease> Objects::acquire(std::string_view key, std::string_view holder) {
  State& state = *state_;
  BELAY_TRY(state.host.check_process());
  auto service = state.host.services().find(key);
  if (!service.ok()) {
    const std::string why = state.host.plugins().why_not(key);
    return why.empty() ? service.status() : Status(Code::kNotFound, service.status().message() + " " + why);
  }
  if (service->score == 0)
    return Status(Code::kUnavailable, quote(key) + " of plugin " + quote(service->plugin) +
                                          " does not work here: " +
                                          (service->reason.empty() ? "its score is 0" : service->reason));
  const std::string name(key);
  std::unique_lock lock(state.mutex);
  const auto shape = state.kinds.find(service->kind());
  if (shape == state.kinds.end())
    return Status(Code::kFailedPrecondition, "This host was not told the tables of kind " +
                                                 quote(service->kind()) + ", so it makes no " + quote(key) +
                                                 ".");
  for (;;) {
    const auto provider = state.providers.find(service->plugin);
    if (provider == state.providers.end() || provider->second.revoked)
      return Status(Code::kNotFound,
                    quote(key) + " is gone: plugin " + quote(service->plugin) + " is being closed.");
    const auto at = state.entries.find(name);
    if (at != state.entries.end() && at->second.object) return state.lease(*this, name, at->second, holder);
    const bool others = provider->second.depth > 0 && provider->second.creator != std::this_thread::get_id();
    if (at == state.entries.end() && !others) break;
    if (state.would_wait_for_itself(service->plugin))
      return Status(Code::kFailedPrecondition, "Making " + quote(key) + " waits for itself: its plugin " +
                                                   quote(service->plugin) +
                                                   " asks for it, directly or through others.");
    state.waiting[std::this_thread::get_id()] = service->plugin;
    state.changed.wait(lock);
    state.waiting.erase(std::this_thread::get_id());
  }
  State::Provider& provider = state.providers.find(service->plugin)->second;
  provider.creator = std::this_thread::get_id();
  ++provider.depth;
  State::Entry& entry = state.entries[name];
  entry.plugin = service->plugin, entry.shape = &shape->second;
  belay_ctx* const ctx = provider.ctx;
  lock.unlock();
  auto object = state.create(*service, shape->second, ctx);
  lock.lock();
  --provider.depth;
  state.changed.notify_all();
  if (!object.ok()) {
    state.entries.erase(name);
    return object.status();
  }
  entry.object = std::move(object).value();
  entry.order = entry.object->generation = ++state.next;
  return state.lease(*this, name, entry, holder);
}

void Objects::release(uint64_t id) {
  if (state_->host.forked()) return;
  std::lock_guard lock(state_->mutex);
  const auto at = state_->given.find(id);
  if (at == state_->given.end()) return;
  const auto entry = state_->entries.find(at->second.key);
  if (entry != state_->entries.end() && entry->second.order == at->second.order) --entry->second.leases;
  state_->given.erase(at);
  state_->changed.notify_all();
}

bool Objects::valid(uint64_t id) const {
  if (state_->host.forked()) return false;
  std::lock_guard lock(state_->mutex);
  const auto at = state_->given.find(id);
  if (at == state_->given.end()) return false;
  const auto entry = state_->entries.find(at->second.key);
  if (entry == state_->entries.end() || entry->second.order != at->second.order) return false;
  const auto provider = state_->providers.find(entry->second.plugin);
  return provider != state_->providers.end() && !provider->second.revoked;
}

void Objects::offer(const std::string& plugin, belay_ctx* ctx) {
  std::lock_guard lock(state_->mutex);
  state_->providers[plugin] = {.ctx = ctx, .revoked = false, .creator = {}, .depth = 0};
}

void Objects::revoke(const std::string& plugin) {
  std::lock_guard lock(state_->mutex);
  if (const auto at = state_->providers.find(plugin); at != state_->providers.end())
    at->second.revoked = true;
  state_->changed.notify_all();
}

Status Objects::withdraw(const std::string& plugin, std::chrono::nanoseconds deadline) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto busy = [&] {
    const auto provider = state.providers.find(plugin);
    if (provider != state.providers.end() && provider->second.depth > 0) return true;
    return std::any_of(state.entries.begin(), state.entries.end(),
                       [&](const auto& e) { return e.second.plugin == plugin && e.second.leases > 0; });
  };
  if (!state.changed.wait_for(lock, deadline, [&] { return !busy(); })) {
    std::vector<std::string> holders;
    for (const auto& [id, given] : state.given)
      if (const auto entry = state.entries.find(given.key);
          entry != state.entries.end() && entry->second.plugin == plugin)
        holders.push_back((given.holder.empty() ? "the application" : "plugin " + quote(given.holder)) +
                          " holds " + given.key);
    if (holders.empty()) holders.push_back("a create slot has not returned");
    return {Code::kDeadlineExceeded,
            "Plugin " + quote(plugin) + " is still in use: " + joined(holders) + "."};
  }
  std::vector<State::Entry> own;
  for (auto at = state.entries.begin(); at != state.entries.end();) {
    const auto here = at++;
    if (here->second.plugin != plugin) continue;
    own.push_back(std::move(here->second));
    state.entries.erase(here);
  }
  state.providers.erase(plugin);
  lock.unlock();
  std::sort(own.begin(), own.end(), [](const auto& a, const auto& b) { return a.order > b.order; });
  for (State::Entry& entry : own) {
    const Status thrown = call_slot(plugin.c_str(), "destroy", BELAY_THREAD_DESTROY,
                                    [&] { destroy_object(*entry.shape, entry.object.get()); });
    state.host.detach(*entry.object);
    entry.object->magic = BELAY_OBJ_DEAD;
    if (!thrown.ok()) state.host.misbehaved(plugin, thrown.message());
  }
  return {};
}

std::vector<std::string> Objects::held_by(std::string_view plugin) const {
  std::lock_guard lock(state_->mutex);
  std::vector<std::string> keys;
  for (const auto& [id, given] : state_->given)
    if (given.holder == plugin) keys.push_back(given.key);
  return keys;
}

void Lease::reset() {
  if (objects_) objects_->release(id_);
  objects_ = nullptr, object_ = nullptr, id_ = 0;
}

bool Lease::valid() const { return objects_ && objects_->valid(id_); }

}  // namespace belay::core
