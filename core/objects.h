// core/objects.h: the objects of components: made once, shared by leases, destroyed in order.
#pragma once

#include <belay/abi/plugin.h>
#include <belay/status.hpp>
#include <belay/table_shape.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace belay::core {

class Host;
class Objects;

// A share of a component's object; gives it back when it is destroyed. Movable. Outlived by the host. When
// the plugin drains, the lease is revoked: valid() turns false and the object is not to be called any more.
class Lease {
 public:
  Lease() = default;
  Lease(Objects& objects, uint64_t id, belay_obj* object) : objects_(&objects), id_(id), object_(object) {}
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept {
    std::swap(objects_, other.objects_), std::swap(id_, other.id_), std::swap(object_, other.object_);
    return *this;
  }
  ~Lease() { reset(); }
  void reset();
  bool valid() const;
  belay_obj* object() const { return object_; }  // NULL for an empty lease
  template <class Table>
  const Table& table() const {
    return *static_cast<const Table*>(object_->table);
  }
  uint64_t id() const { return id_; }
  uint64_t release() {
    return objects_ = nullptr, object_ = nullptr, std::exchange(id_, 0);
  }  // not given back

 private:
  Objects* objects_ = nullptr;
  uint64_t id_ = 0;
  belay_obj* object_ = nullptr;
};

// Makes the object of a component at the first acquire; it lives until its plugin ends. Calls `create` and
// `destroy` with no lock held: others who want the same object wait, a cycle of waiting is
// FAILED_PRECONDITION. Thread-safe.
class Objects {
 public:
  explicit Objects(Host& host);
  ~Objects();

  void add_kind(const TableShape& kind);
  // `holder`: the plugin that asks; empty: the host. NOT_FOUND, UNAVAILABLE (score 0), INTERNAL (required
  // slots are null: all are named), FAILED_PRECONDITION (the kind is not known, a cycle), what `create` says.
  Result<Lease> acquire(std::string_view key, std::string_view holder);
  void release(uint64_t lease);  // unknown ids are ignored
  bool valid(uint64_t lease) const;

  // The context of an open plugin, for `create`; withdraw() before close.
  void offer(const std::string& plugin, belay_ctx* ctx);
  // Refuses new leases on the plugin's objects and revokes those there are.
  void revoke(const std::string& plugin);
  // Destroys its objects, the last made first, once their leases are given back. DEADLINE_EXCEEDED names who
  // holds one.
  Status withdraw(const std::string& plugin, std::chrono::nanoseconds deadline);
  // Leases that the plugin holds on others' objects.
  std::vector<std::string> held_by(std::string_view plugin) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belay::core
