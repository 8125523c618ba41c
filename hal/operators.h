// hal/operators.h: single operators, prepared once for each signature and queued on streams.
#pragma once

#include <belay/runtime.h>
#include <belay/status.hpp>
#include "hal/device_manager.h"
#include "hal/operator_request.h"

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace belay::hal {

class Device;
class Hal;
class Stream;

// A cache of one-node executables of the engine. A signature is all that a kernel is prepared for: device,
// operator, attributes, types and shapes, and the bytes of constant inputs; memory is not part of it.
// Thread-safe: one thread prepares a signature, others that want it wait for it; a run holds no lock while it
// is queued.
class Operators {
 public:
  // `engine` has no object where none is configured; `options`: its table of the configuration. All is
  // borrowed.
  Operators(Hal& hal, NamedObject engine, const belay_value* options, uint64_t capacity)
      : hal_(hal), engine_(std::move(engine)), options_(options), capacity_(capacity) {}
  Operators(const Operators&) = delete;
  Operators& operator=(const Operators&) = delete;
  ~Operators();  // what was queued has ended

  Status run(Stream& stream, const belay_op_req& req, belay_event* out);
  Status prepare(Device& device, const belay_op_req& req);
  belay_op_cache_stats stats() const;

 private:
  struct Run;    // a context of the executable: bindings and an arena
  struct Entry;  // an executable and its runs
  using EntryPtr = std::shared_ptr<Entry>;
  using Recent = std::list<std::pair<std::string, EntryPtr>>;  // the last used one first

  Result<EntryPtr> entry_for(Device& device, const belay_op_req& req);
  Status load(Device& device, const belay_op_req& req, Entry& into) const;
  Result<std::unique_ptr<Run>> take_run(Entry& entry, const Stream& stream);
  Result<std::unique_ptr<Run>> make_run(Entry& entry);
  struct Scatter {  // from dense memory to an output with strides
    const TensorView* to;
    char* address;
    const char* from;
  };
  Status bind(Run& run, Stream& stream, const belay_op_req& req, const OperatorViews& views,
              std::vector<Scatter>& after) const;
  bool ended(const belay_event& event) const;
  void finish(const belay_event& event) const;  // waits
  void forget(const Entry& entry);
  void reap();

  Hal& hal_;
  const NamedObject engine_;
  const belay_value* const options_;
  const uint64_t capacity_;
  mutable std::mutex mutex_;
  Recent recent_;
  std::unordered_map<std::string_view, Recent::iterator> by_signature_;  // keys lie in `recent_`
  std::vector<EntryPtr> retired_;  // evicted; what is queued of them may not have ended
  uint64_t hits_ = 0, misses_ = 0, evictions_ = 0, runs_ = 0;
};

}  // namespace belay::hal
