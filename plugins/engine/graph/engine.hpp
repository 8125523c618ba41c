// engine.hpp: the component belay.engine/1:graph: loads frozen graphs.
#pragma once

#include "plan/stage.hpp"

#include <belay/abi/engine.h>
#include <belay/abi/host.h>

#include <mutex>

namespace belay::engine {

// Holds leases of the kernel providers of its host; made once for a host, thread-safe.
class Engine {
 public:
  explicit Engine(const belay_host& host) : host_(host) {}
  ~Engine();

  Status load(const belay_load_req& req, belay_created* out);
  const belay_host& host() const { return host_; }
  static const belay_engine_vt& table();

 private:
  // Asks the registry for providers that came since the last load.
  Result<std::vector<plan::Provider>> providers();
  Result<plan::Target> target_for(belay_obj* device, const belay_value* options);

  const belay_host& host_;
  std::mutex mutex_;
  std::vector<plan::Provider> providers_;
  std::vector<uint64_t> leases_;
};

}  // namespace belay::engine
