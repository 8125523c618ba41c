// Owners over the C functions of belay/runtime.h, in the terms of this program: failures are thrown with
// their exit code.
#pragma once

#include "failure.hpp"

#include <belay/runtime.hpp>
#include <belay/tensor_io.hpp>

#include <memory>
#include <string>
#include <vector>

namespace belay::cli {

// Options that every verb has.
struct Common {
  std::vector<std::string> configs, sets, plugin_dirs;
  std::string device;  // "cpu:0", "cpu" or "auto"; empty: the configuration's
  bool json = false;
  bool quiet = false;
  int verbose = 0;
};

// What belay_runtime_req points to, made from the options: files are checked, folders made absolute.
class RuntimeRequest {
 public:
  explicit RuntimeRequest(const Common& common, std::vector<std::string> extra_sets = {});
  const RuntimeOptions& options() const { return options_; }
  const belay_runtime_req* get() const { return &req_; }

 private:
  RuntimeOptions options_;
  std::vector<belay_str> file_views_, set_views_, dir_views_;
  belay_runtime_req req_{};
};

struct DeviceInfo {
  std::string id;                                     // "cpu:0"
  std::string driver, name, arch, features, problem;  // problem: why it cannot be opened, else empty
  uint64_t flags = 0, threads = 0, memory_bytes = 0, queue_depth = 0;
  struct Heap {
    uint64_t heap_class = 0, bytes = 0, free_bytes = 0, alignment = 0;
  };
  std::vector<Heap> heaps;
};

struct PluginInfo {
  std::string id, version, file, abi, kinds, state, reason, manifest;
};

class Runtime {
 public:
  // Throws what the configuration or a plugin is blamed for. `extra_sets` win over the file, --set wins over
  // them.
  explicit Runtime(const Common& common, std::vector<std::string> extra_sets = {});
  // Writes to stderr, unless quiet, what the configured layers have found.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const belay::Runtime& get() const { return raw_; }
  std::vector<DeviceInfo> devices(bool with_heaps) const;
  std::string default_device() const;
  std::vector<PluginInfo> plugins() const;
  // The id of the device that is wanted: "cpu:0", or "cpu" for the first of that driver; "" and "auto" are
  // the default. Throws, with the nearest id, where there is none.
  std::string device_id(const std::string& wanted) const;
  // The bytes of a tensor that lies in a device's buffer.
  HostTensor fetch(const belay_tensor& tensor) const;
  HostDatum fetch(const belay_datum& datum) const;

 private:
  const bool quiet_;
  belay::Runtime raw_;
};

std::vector<PluginInfo> find_plugins(const Common& common);

// "float32 [N,3,224,224]"
std::string io_text(const IoInfo& info);

class Model {
 public:
  Model(const Runtime& runtime, const std::string& path, const std::string& device);

  const belay::Model& get() const { return raw_; }
  const std::vector<IoInfo>& inputs() const { return inputs_; }
  const std::vector<IoInfo>& outputs() const { return outputs_; }
  belay_executable_stats stats() const { return value_or_fail(raw_.stats(), Stage::kModel); }
  std::string describe() const { return value_or_fail(raw_.describe(), Stage::kModel); }  // JSON

 private:
  belay::Model raw_;
  std::vector<IoInfo> inputs_, outputs_;
};

// A model's file, checked for the mistakes that a person makes: not there (names the nearest), a folder,
// empty.
void check_model_file(const std::string& path);

// A run of a model; the inputs given to it must outlive its runs.
class Context {
 public:
  explicit Context(const Model& model) : raw_(value_or_fail(model.get().context(), Stage::kModel)) {}

  void set_input(uint64_t index, const belay_datum* datum) { done(raw_.set_input(index, datum)); }
  Status try_run() { return raw_.run(); }
  void run() { done(raw_.run()); }
  const belay_datum& output(uint64_t index) const { return *value_or_fail(raw_.datum(index), Stage::kModel); }
  // What the last run shared and copied; nothing where the engine does not tell.
  IoMemory input_memory(uint64_t index) const { return told(raw_.input_memory(index)); }
  IoMemory output_memory(uint64_t index) const { return told(raw_.output_memory(index)); }

 private:
  static IoMemory told(Result<IoMemory> memory) {
    if (!memory.ok() && memory.status().code() == Code::kUnimplemented) return {};
    return value_or_fail(std::move(memory), Stage::kModel);
  }
  static void done(const Status& status) {
    if (!status.ok()) fail(Stage::kModel, status);
  }
  belay::Context raw_;
};

}  // namespace belay::cli
