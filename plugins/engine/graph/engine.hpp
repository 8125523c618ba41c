// engine.hpp: the component belay.engine/1:graph: loads frozen graphs.
#pragma once

#include "plan/stage.hpp"

#include <belay/abi/engine.h>
#include <belay/abi/host.h>

#include <mutex>

namespace belay::engine {

// The kernel providers of a host, each leased once. Lives as long as the plugin is open: an engine's
// `destroy` may not call the host to give leases back. Thread-safe.
class Providers {
 public:
  explicit Providers(const belay_host& host) : host_(host) {}
  Providers(const Providers&) = delete;
  ~Providers();

  // All that the registry has now.
  Result<std::vector<plan::Provider>> get();

 private:
  const belay_host& host_;
  std::mutex mutex_;
  std::vector<plan::Provider> providers_;
  std::vector<uint64_t> leases_;
};

class Engine {
 public:
  // `providers` outlives the engine.
  Engine(const belay_host& host, Providers& providers) : host_(host), providers_(providers) {}

  Status load(const belay_load_req& req, belay_created* out);
  const belay_host& host() const { return host_; }
  static const belay_engine_vt& table();

 private:
  Result<plan::Target> target_for(belay_obj* device, const belay_value* options);

  const belay_host& host_;
  Providers& providers_;
};

}  // namespace belay::engine
