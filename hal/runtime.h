// hal/runtime.h: the composition root: a configuration becomes a host, devices and models.
#pragma once

#include <belay/runtime.h>
#include <belay/status.hpp>
#include "core/host.h"
#include "hal/hal.h"
#include "hal/model.h"
#include "hal/operators.h"
#include "hal/policy_view.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace belay::hal {

struct RuntimeRequest {
  std::vector<std::string> files = {};  // none: those of the environment, else the embedded configuration
  std::string text = {};
  std::vector<std::string> sets = {};
  std::vector<std::string> plugin_dirs = {};
};

// Owns everything that a configuration makes. It ends when the application has destroyed it and all that it
// made from it. Thread-safe but for create and destroy.
class Runtime {
 public:
  static Result<Runtime*> create(const RuntimeRequest& request);
  // The application is done with it. What it has left is named in the log and keeps the rest alive until it
  // is gone.
  void destroy();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  bool alive() const { return magic_ == kMagic; }  // reads the memory of the handle
  core::Host& host() { return *host_; }
  Hal& hal() { return *hal_; }
  bool forked() const { return hal_->forked(); }
  uint64_t default_device() const { return default_device_; }

  Result<Model*> load(const ModelRequest& request) { return Model::load(*this, request); }
  // Reads and verifies a model without loading it; writes its graph as text.
  Status print(const ModelRequest& request, belay_sink text);
  Status freeze(const ModelRequest& request, belay_sink image);
  Status explain(std::string_view kind, belay_sink text);
  using Check = std::function<void(std::string_view name, uint64_t outcome, std::string_view text)>;
  void doctor(const Check& each);

  // NOT_FOUND: says which policies are configured.
  Result<PolicyView*> policy(const std::string& name);
  const std::vector<NamedObject>& policies() const { return policies_; }
  const std::vector<NamedObject>& formats() const { return formats_; }
  const std::vector<NamedObject>& diagnostics() const { return diagnostics_; }
  const NamedObject* engine() const { return engine_.object ? &engine_ : nullptr; }
  bool copies_files() const { return copies_files_; }
  Operators& operators() { return *operators_; }
  Slots<Model>& models() { return models_; }
  Slots<Context>& contexts() { return contexts_; }

  // What is alive holds the runtime: the handle itself, models, contexts, buffers, streams and programs. The
  // last one to let go ends it.
  void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  static constexpr uint64_t kMagic = 0x656d69746e757262;
  Runtime() = default;
  ~Runtime();
  Status start(const RuntimeRequest& request);
  Result<NamedObject> acquire(std::string_view key);
  Status acquire_all(std::string_view kind, std::string_view path, std::vector<NamedObject>& into);
  Result<std::vector<NamedObject>> drivers();
  void check_device(uint64_t index, const Check& each);
  Status listen();
  // Of a kind of which several are used: which, and in what order; empty: of others.
  std::string used(std::string_view kind) const;

  uint64_t magic_ = kMagic;
  std::atomic<uint64_t> holders_{1};
  std::unique_ptr<core::Host> host_;
  std::vector<core::Lease> leases_;  // of all below; given back before the host ends
  std::vector<NamedObject> policies_, formats_, diagnostics_;
  std::vector<std::unique_ptr<PolicyView>> policy_views_;  // for the application, as policies_
  NamedObject engine_{{}, {}, nullptr};
  std::vector<uint64_t> listeners_;  // of the trace
  std::vector<std::string> driver_plugins_;
  uint64_t default_device_ = 0;
  bool copies_files_ = false;
  std::unique_ptr<Hal> hal_;
  std::unique_ptr<Operators> operators_;
  Slots<Model> models_{Keep::kInChild};
  Slots<Context> contexts_{Keep::kInChild};
};

// The layers of a request as one configuration, not checked yet.
Result<core::Config> read_config(const RuntimeRequest& request);
// Checks it without loading anything; the effective configuration as TOML with the origin of each value.
Status check_config(const RuntimeRequest& request, belay_sink effective);
// A commented example of every key, of the runtime and of the plugins found.
Status config_example(const RuntimeRequest& request, belay_sink text);
// The plugins found, without loading any.
Result<std::vector<core::PluginInfo>> find_plugins(const RuntimeRequest& request);
// Loads, opens, starts and ends one plugin.
Status probe_plugin(const RuntimeRequest& request, const std::string& id);
// NOT_FOUND: it is not in quarantine.
Status release_plugin(const RuntimeRequest& request, const std::string& id);

}  // namespace belay::hal
