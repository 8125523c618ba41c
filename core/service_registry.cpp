#include "core/service_registry.h"

#include "core/base/text.h"

#include <algorithm>
#include <tuple>

namespace belay::core {

Status ServiceRegistry::add(std::vector<Service> services) {
  std::lock_guard lock(mutex_);
  std::map<std::string, const Service*> fresh;
  for (const Service& service : services) {
    const std::string key = service.key();
    const Service* other = nullptr;
    if (const auto at = services_.find(key); at != services_.end() && !overrides_.contains(key))
      other = &at->second;
    if (!fresh.emplace(key, &service).second) other = &service;
    if (other)
      return {Code::kAlreadyExists, "Key " + quote(key) + " is offered by " + other->file + " and by " +
                                        service.file + "; remove one, or list the key under 'override'."};
  }
  for (Service& service : services) {
    const auto at = services_.insert_or_assign(service.key(), std::move(service)).first;
    tell(at->second, true);
  }
  return {};
}

void ServiceRegistry::tell(const Service& service, bool there) const {
  for (const auto& [id, watch] : watches_)
    if (watch.kind == service.kind()) watch.changed(service.key(), there);
}

void ServiceRegistry::watch(uint64_t id, std::string_view plugin, std::string_view kind, Changed changed) {
  std::lock_guard lock(mutex_);
  for (const auto& [key, service] : services_)
    if (service.kind() == kind) changed(key, true);
  watches_.emplace(id, Watch{std::string(plugin), std::string(kind), std::move(changed)});
}

void ServiceRegistry::unwatch(uint64_t id, std::string_view plugin) {
  std::lock_guard lock(mutex_);
  if (const auto at = watches_.find(id); at != watches_.end() && at->second.plugin == plugin)
    watches_.erase(at);
}

Result<Service> ServiceRegistry::find(std::string_view key) const {
  std::lock_guard lock(mutex_);
  if (const auto at = services_.find(key); at != services_.end()) return at->second;
  std::vector<std::string> keys;
  for (const auto& [known, service] : services_) keys.push_back(known);
  return Status(Code::kNotFound, "No running plugin offers " + quote(key) +
                                     (nearest(key, keys).empty() ? "." : did_you_mean(key, keys)));
}

std::vector<Service> ServiceRegistry::candidates(std::string_view kind) const {
  std::vector<Service> found;
  {
    std::lock_guard lock(mutex_);
    for (auto at = services_.lower_bound(std::string(kind) + ":"); at != services_.end(); ++at) {
      if (to_view(at->second.component->kind) != kind) break;
      found.push_back(at->second);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Service& a, const Service& b) {
    return std::tuple(a.score == 0, -a.priority, -int64_t(a.score), std::string_view(a.plugin)) <
           std::tuple(b.score == 0, -b.priority, -int64_t(b.score), std::string_view(b.plugin));
  });
  return found;
}

Result<Service> ServiceRegistry::choose(std::string_view kind) const {
  const std::vector<Service> found = candidates(kind);
  if (found.empty()) return Status(Code::kNotFound, "No running plugin offers a " + std::string(kind) + ".");
  if (found.front().score == 0)
    return Status(Code::kUnavailable,
                  "Nothing of kind " + std::string(kind) + " works here: " + explain(kind) + ".");
  return found.front();
}

std::vector<Service> ServiceRegistry::all() const {
  std::lock_guard lock(mutex_);
  std::vector<Service> found;
  for (const auto& [key, service] : services_) found.push_back(service);
  return found;
}

void ServiceRegistry::remove_all(std::string_view plugin) {
  std::lock_guard lock(mutex_);
  std::erase_if(watches_, [&](const auto& entry) { return entry.second.plugin == plugin; });
  for (auto at = services_.begin(); at != services_.end();) {
    const auto here = at++;
    if (here->second.plugin != plugin) continue;
    tell(here->second, false);
    services_.erase(here);
  }
}

std::string ServiceRegistry::explain(std::string_view kind, const std::string& used) const {
  const std::vector<Service> found = candidates(kind);
  std::string text = std::string(kind) + ": ";
  if (found.empty()) return text + "no running plugin offers one";
  for (const Service& service : found) {
    if (&service != &found.front()) text += ", ";
    text += service.name() + (service.plugin == service.name() ? "" : " of plugin " + service.plugin);
    if (service.priority != 0) text += " priority " + std::to_string(service.priority);
    text += " score " + std::to_string(service.score) +
            (service.reason.empty() ? "" : " (" + service.reason + ")");
  }
  if (!used.empty()) return text + " -> using " + used;
  return text + " -> " + (found.front().score ? "using " + found.front().name() : "none works here");
}

}  // namespace belay::core
