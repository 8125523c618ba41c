// hal/model.h: a model that is loaded, and its runs.
#pragma once

#include <belay/abi/engine.h>
#include <belay/kinds.hpp>
#include <belay/status.hpp>
#include "hal/buffer.h"
#include "hal/model_files.h"
#include "hal/slots.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace belay::hal {

class Context;
class Device;
class Runtime;
class Stream;
struct Lent;

struct ModelRequest {
  std::string path = {};    // empty: `bytes`
  belay_span bytes = {};    // borrowed until the model is destroyed
  std::string folder = {};  // of the side files of a model in memory
  std::string format = {};  // empty: found by contents
  std::string device = {};  // empty: the default
  std::vector<std::string> extra_outputs = {};
};

// The frozen graph of a file, verified, and the files it refers to.
struct ReadModel {
  std::unique_ptr<ModelFiles> files;
  std::vector<uint64_t> image;  // aligned words
  uint64_t image_bytes = 0;
  std::string name;  // for messages: the path, or "model in memory"
  Status usable;     // UNIMPLEMENTED: operators are not known, so that the graph can only be shown
  belay_span span() const { return {image.data(), image_bytes}; }
};
Result<ReadModel> read_model(Runtime& runtime, const ModelRequest& request);

// The object of a belay_model; as a belay_obj it is the executable of the engine. Slots of executables are
// [any].
class Model : public Object {
 public:
  static constexpr uint32_t kKind = BELAY_OBJ_EXECUTABLE;

  Model(Runtime& runtime, Device& device, ReadModel read)
      : runtime_(runtime), device_(device), read_(std::move(read)) {}
  static Result<Model*> load(Runtime& runtime, const ModelRequest& request);
  // Ends with its last context; where there are some the log names the model. With [memory] checked that is a
  // FAILED_PRECONDITION, after waiting for what they run: what the model borrows may be gone when the caller goes on.
  Status destroy();

  Runtime& runtime() const { return runtime_; }
  Device& device() const { return device_; }
  const std::string& name() const { return read_.name; }
  const ModelFiles& files() const { return *read_.files; }
  const belay_executable_vt& vt() const { return *static_cast<const belay_executable_vt*>(table); }
  // Its contexts; each holds it until let_go(), after which it may be gone.
  void add(Context* context);
  void remove(Context* context);
  void let_go() {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) end();
  }
  // Destroyed while there were contexts, where memory is checked: these do not run any more.
  bool destroyed() const { return destroyed_.load(std::memory_order_acquire); }

 private:
  void end();
  Runtime& runtime_;
  Device& device_;
  ReadModel read_;
  std::atomic<uint64_t> holders_{1};  // the handle and the contexts
  std::atomic<bool> destroyed_{false};
  std::mutex mutex_;  // of what follows
  std::set<Context*> contexts_;
};

// The object of a belay_context; as a belay_obj it is the engine's context. One thread at a time, which is
// checked.
class Context : public Object {
 public:
  static constexpr uint32_t kKind = shape::kContext.object_kind;

  explicit Context(Model& model) : model_(model) {}
  static Result<Context*> create(Model& model);
  void destroy();  // waits for a run that is under way
  // Waits for the runs that go on or are queued; whether there were some.
  bool quiesce();

  Model& model() const { return model_; }
  const belay_context_vt& vt() const { return *static_cast<const belay_context_vt*>(table); }
  belay_status set_input(uint64_t index, const belay_datum* datum);
  belay_status set_output(uint64_t index, const belay_tensor* tensor);
  belay_status run();
  belay_status run_async(belay_completion completion);
  belay_status output(uint64_t index, const belay_datum** out);
  belay_status enqueue(Stream& stream, belay_event* out);
  belay_status input_memory(uint64_t index, belay_io_memory* inout);
  belay_status output_memory(uint64_t index, belay_io_memory* inout);

 private:
  template <class Body>
  belay_status exclusively(const char* call, Body&& body);
  belay_status busy(const char* call);
  belay_status checked(belay_status raw, const char* slot);
  belay_status lacks(const char* slot);
  // Where memory is checked: nothing that the next run uses has ended.
  Status check_lent() const;
  // Before a run: what of its inputs and outputs lies in reserved buffers has memory there.
  Status check_reserved() const;
  void note_reserved(bool input, uint64_t index, const belay_datum* datum);
  // What may stand in the way of a run, files and memory.
  Status check_run();
  // Where memory is checked: no queued run still uses what is to be replaced.
  Status check_rebind(bool input, uint64_t index);
  // Sets an input or output with `set()`; it lies in `datum` then.
  template <class Set>
  belay_status rebind(bool input, uint64_t index, const belay_datum* datum, Set&& set);
  std::string name_of(bool input, uint64_t index) const;
  static void async_done(void* user, belay_status status);

  Model& model_;
  std::atomic<uint32_t> busy_{0};  // 1: a call or an asynchronous run is under way
  belay_completion completion_{};
  std::mutex mutex_;  // of the end of an asynchronous run, for destroy
  std::condition_variable ended_;
  bool running_ = false;
  belay_event queued_{};                            // of the last enqueue; timeline 0: none
  std::vector<std::shared_ptr<Lent>> inputs_, outputs_;  // where memory is checked; null: in no buffer
  struct Reserved {
    bool input;
    uint64_t index;
    ReservedPart part;
  };
  std::vector<Reserved> reserved_;
};

}  // namespace belay::hal
