// core/services/layers.h: the layers of [runtime] layers before the objects that plugins make.
#pragma once

#include <belay/abi/layer.h>
#include <belay/table_shape.hpp>
#include "core/host.h"

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace belay::core {

// Made by the first object that wants them, so that they stand before every other one. Without layers every
// call costs a look at a list. Thread-safe.
class Layers {
 public:
  explicit Layers(Host& host);

  bool none() const { return names_.empty(); }
  // Puts the layers before an object that `plugin` has made, the last of the list nearest to it: its table
  // changes, its layer words are set. What a layer refuses ends the object. `shape`: of its table; without
  // required slots and destroy: it has none.
  Status attach(belay_obj& object, const TableShape& shape, const std::string& plugin, belay_obj* parent);
  // The object is destroyed, its memory still stands.
  void detach(belay_obj& object);
  // What each has found so far: text of lines, empty where there is nothing.
  struct Report {
    std::string layer, text;
  };
  Result<std::vector<Report>> report();

 private:
  struct Layer {
    std::string name, plugin;
    uint64_t key;
    belay_obj* object;
  };
  Status prepare();
  Status put_before(belay_obj& object, const TableShape& shape, const std::string& plugin, belay_obj* parent,
                    size_t& attached);
  void detach_first(belay_obj& object, size_t count);

  Host& host_;
  std::vector<std::string> names_;  // the nearest to the caller first
  std::recursive_mutex preparing_;
  bool prepared_ = false;
  std::vector<Layer> layers_;  // the nearest to the object first; constant once prepared_
  std::mutex mutex_;           // of the next
  std::unordered_map<const belay_obj*, std::vector<Lease>>
      attached_;  // keeps the layers as long as they are needed
};

}  // namespace belay::core
