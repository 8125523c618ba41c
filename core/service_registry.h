// core/service_registry.h: which plugin offers what.
#pragma once

#include <belay/abi/plugin.h>
#include <belay/status.hpp>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

struct Service {
  const belay_component* component = nullptr;
  std::string plugin = {}, file = {};  // who offers it
  int64_t priority = 0;                // of the manifest; higher is chosen first
  uint64_t score = 500;                // 0: cannot work here
  std::string reason = {};             // of the score
  std::string kind() const { return to_string(component->kind); }
  std::string name() const { return to_string(component->name); }
  std::string key() const { return kind() + ":" + name(); }
};

// Says which plugin offers what, by key "kind:name" such as "belay.driver/1:cpu"; knows no kind's meaning.
// Borrows components: a plugin is removed before it is closed. Thread-safe; never calls a plugin.
class ServiceRegistry {
 public:
  // For a key in `overrides` a later provider replaces the earlier; nothing else can.
  explicit ServiceRegistry(std::set<std::string> overrides = {}) : overrides_(std::move(overrides)) {}

  // Adds all or none. ALREADY_EXISTS names both files; the first provider stays.
  Status add(std::vector<Service> services);
  // NOT_FOUND names the nearest key. A service with score 0 is found too: whoever asks by name gets the
  // reason later.
  Result<Service> find(std::string_view key) const;
  // In order of choice: priority, then score, then plugin id; those with score 0 last.
  std::vector<Service> candidates(std::string_view kind) const;
  // The first of the candidates. NOT_FOUND; UNAVAILABLE, with all reasons, when every score is 0.
  Result<Service> choose(std::string_view kind) const;
  std::vector<Service> all() const;          // by key
  void remove_all(std::string_view plugin);  // and what it watches

  // Calls `changed` for each service of the kind that is there and that comes or goes, under the lock: it
  // must only take note. Until unwatch, or remove_all of the plugin that watches.
  using Changed = std::function<void(const std::string& key, bool there)>;
  void watch(uint64_t id, std::string_view plugin, std::string_view kind, Changed changed);
  void unwatch(uint64_t id, std::string_view plugin);  // only its own
  // "belay.driver/1: ascend score 0 (libascendcl not found), null score 1 (always) -> using null".
  // `used`: what is, where that is not the best of them alone.
  std::string explain(std::string_view kind, const std::string& used = {}) const;

 private:
  const std::set<std::string> overrides_;
  mutable std::mutex mutex_;
  std::map<std::string, Service, std::less<>> services_;  // by key
  struct Watch {
    std::string plugin, kind;
    Changed changed;
  };
  void tell(const Service& service, bool there) const;
  std::map<uint64_t, Watch> watches_;
};

}  // namespace belay::core
