// belay/runtime.hpp: the hosting API in C++: header-only over belay/runtime.h, compiled into its user.
//
//   BELAY_ASSIGN(belay::Runtime runtime, belay::Runtime::create({.files = {"belay.toml"}}));
//   BELAY_ASSIGN(belay::Model model, runtime.load("model.onnx"));
//   BELAY_ASSIGN(belay::Context context, model.context());
//   BELAY_TRY(context.set_input(0, belay::Tensor::of(pixels, {1, 1, 8, 8})));
//   BELAY_TRY(context.run());
//   BELAY_ASSIGN(const belay::Tensor answer, context.output(0));
//
// in a function that gives a belay::Status; sdk/examples/memory shows buffers, streams and memory that is shared.
//
// Owners are movable and give back what they own; each must go before what it was made from: contexts before
// their model, everything before the runtime. What outlives it is named in the log and stays usable.
#pragma once

#include <belay/runtime.h>
#include <belay/status.hpp>
#include <belay/tensor.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace belay {

// Takes a status of the hosting API over: its text is copied, its detail given back.
inline Status take(belay_status raw) {
  if (raw == BELAY_OK) return {};
  StringSink text;
  belay_status_text(raw, text.sink());
  belay_status_release(raw);
  const uint32_t code = BELAY_STATUS_CODE(raw);
  return {code == 0 || code >= BELAY_CODE_COUNT ? Code::kInternal : static_cast<Code>(code),
          std::move(text).str()};
}

// The last failure on this thread since it was last asked for; for what returns no status, and for C beside
// C++.
inline Status last_error() { return take(belay_last_error()); }

using Nanoseconds = std::chrono::nanoseconds;
inline constexpr Nanoseconds kForever = Nanoseconds::max();

namespace detail {

inline uint64_t timeout(Nanoseconds time) {
  return time == kForever ? BELAY_FOREVER : time.count() < 0 ? 0 : uint64_t(time.count());
}

struct Hal {
  const belay_hal_vt* vt = nullptr;
  const belay_host* host = nullptr;
};

// Owns one object of the HAL; `kDestroy` is the slot that ends it.
template <void (*belay_hal_vt::*kDestroy)(const belay_host*, belay_obj*) BELAY_NOEXCEPT>
class Owned {
 public:
  Owned() = default;
  Owned(Hal hal, belay_obj* object) : hal_(hal), object_(object) {}
  Owned(Owned&& other) noexcept : hal_(other.hal_), object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(hal_, other.hal_), std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() {
    if (object_) (hal_.vt->*kDestroy)(hal_.host, object_);
  }
  belay_obj* get() const { return object_; }
  belay_obj* release() { return std::exchange(object_, nullptr); }
  const Hal& hal() const { return hal_; }

 private:
  Hal hal_;
  belay_obj* object_ = nullptr;
};

}  // namespace detail

// ---- devices
// ---------------------------------------------------------------------------------------------------------

// A point in a stream's work; a value, nothing to free. The empty event is always reached.
class Event {
 public:
  Event() = default;
  Event(detail::Hal hal, belay_event raw) : hal_(hal), raw_(raw) {}

  belay_event raw() const { return raw_; }
  bool reached() const { return query().ok(); }
  // OK; UNAVAILABLE: not yet; or the failure of the work.
  Status query() const { return hal_.vt ? take(hal_.vt->query(hal_.host, raw_)) : Status(); }
  // Waits; the calling thread may run queued work meanwhile. DEADLINE_EXCEEDED: the work goes on.
  Status synchronize(Nanoseconds timeout = kForever) const {
    return hal_.vt ? take(hal_.vt->synchronize(hal_.host, raw_, detail::timeout(timeout))) : Status();
  }
  // Calls done(Status) once, on any thread, perhaps before this returns.
  template <class Done>
  Status on_reached(Done done) const {
    if (!hal_.vt) {
      done(Status());
      return {};
    }
    auto kept = std::make_unique<Done>(std::move(done));
    const belay_completion completion{kept.get(), [](void* user, belay_status status) BELAY_NOEXCEPT {
                                        std::unique_ptr<Done> mine(static_cast<Done*>(user));
                                        (*mine)(take(status));
                                      }};
    Status status = take(hal_.vt->on_reached(hal_.host, raw_, completion));
    if (status.ok()) (void)kept.release();
    return status;
  }

 private:
  detail::Hal hal_;
  belay_event raw_{};
};

// Memory of a device, or of the host lent to it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(detail::Hal hal, belay_obj* object) : owned_(hal, object) {
    info_.hdr.struct_size = sizeof info_;
    belay_status_release(hal.vt->buffer_info(hal.host, object, &info_));
  }
  belay_obj* get() const { return owned_.get(); }
  uint64_t bytes() const { return info_.bytes; }
  void* host() const { return info_.host; }  // NULL: the host does not see it
  // Of a reserved one: puts memory, all 0, behind a range, and takes it away again. Multiples of the
  // granularity.
  Status map(uint64_t offset, uint64_t bytes) const {
    return take(owned_.hal().vt->map(owned_.hal().host, get(), offset, bytes));
  }
  Status unmap(uint64_t offset, uint64_t bytes) const {
    return take(owned_.hal().vt->unmap(owned_.hal().host, get(), offset, bytes));
  }
  uint64_t granularity() const { return info_.granularity; }  // 0: not reserved
  // Ends the handle while queued work still uses it; others get the memory when all events are reached. With
  // an error nothing is changed.
  Status destroy_after(std::initializer_list<Event> uses) {
    if (!get()) return {};
    std::vector<belay_event> raw;
    for (const Event& use : uses) raw.push_back(use.raw());
    const detail::Hal& hal = owned_.hal();
    BELAY_TRY(take(hal.vt->buffer_destroy_after(hal.host, get(), raw.data(), raw.size())));
    owned_.release();
    info_ = {};
    return {};
  }
  // A tensor in it, from byte `offset` on.
  Tensor tensor(uint32_t dtype, std::vector<int64_t> dims, uint64_t offset = 0) const {
    return Tensor::in(get(), bytes(), offset, dtype, std::move(dims));
  }

 private:
  detail::Owned<&belay_hal_vt::buffer_destroy> owned_;
  belay_hal_buffer_info info_{};
};

class Program {
 public:
  Program() = default;
  Program(detail::Hal hal, belay_obj* object) : owned_(hal, object) {}
  belay_obj* get() const { return owned_.get(); }

 private:
  detail::Owned<&belay_hal_vt::program_destroy> owned_;
};

// A model that was compiled for the device.
class Package {
 public:
  Package() = default;
  Package(detail::Hal hal, belay_obj* object) : owned_(hal, object) {}
  belay_obj* get() const { return owned_.get(); }

  Result<belay_package_info> info() const {
    belay_package_info info{};
    info.hdr.struct_size = sizeof info;
    BELAY_TRY(take(owned_.hal().vt->package_info(owned_.hal().host, get(), &info)));
    return info;
  }
  // Of one input or output; its strings and arrays live as long as the package.
  Result<belay_io_info> input_info(uint64_t index) const {
    return io(owned_.hal().vt->package_input_info, index);
  }
  Result<belay_io_info> output_info(uint64_t index) const {
    return io(owned_.hal().vt->package_output_info, index);
  }

 private:
  template <class Slot>
  Result<belay_io_info> io(Slot slot, uint64_t index) const {
    belay_io_info info{};
    info.hdr.struct_size = sizeof info;
    BELAY_TRY(take(slot(owned_.hal().host, get(), index, &info)));
    return info;
  }
  detail::Owned<&belay_hal_vt::package_destroy> owned_;
};

struct StreamOptions {
  bool single_producer = false;  // the caller promises never to queue from two threads at once
  bool continue_on_failure = false;
  bool block = false;        // a full queue makes the caller wait, whatever the configuration says
  int64_t priority = 0;      // -8 to 7, higher first
  uint64_t queue_depth = 0;  // 0: the device's
};

// Work in order. Thread-safe unless it has a single producer.
class Stream {
 public:
  Stream() = default;
  Stream(detail::Hal hal, belay_obj* object) : owned_(hal, object) {}
  belay_obj* get() const { return owned_.get(); }
  const detail::Hal& hal() const { return owned_.hal(); }

  // Memory of its device for work of this stream first: the stream waits for what may still use it, not the
  // caller.
  Result<Buffer> alloc(uint64_t bytes, uint64_t align = 0, uint64_t heap = 0) const {
    belay_alloc_req req{};
    req.hdr.struct_size = sizeof req;
    req.bytes = bytes, req.align = align, req.heap = heap;
    belay_obj* buffer = nullptr;
    BELAY_TRY(take(vt().buffer_create_on(host(), get(), &req, &buffer)));
    return Buffer(hal(), buffer);
  }
  Result<Event> copy(const Buffer& to, uint64_t to_offset, const Buffer& from, uint64_t from_offset,
                     uint64_t bytes) {
    belay_copy_req req = request<belay_copy_req>();
    req.dst = to.get(), req.dst_offset = to_offset, req.src = from.get(), req.src_offset = from_offset,
    req.bytes = bytes;
    return copy(req);
  }
  // Host memory stays in place until the event.
  Result<Event> write(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) {
    belay_copy_req req = request<belay_copy_req>();
    req.dst = to.get(), req.dst_offset = offset, req.host_src = from, req.bytes = bytes;
    return copy(req);
  }
  Result<Event> read(const Buffer& from, uint64_t offset, void* to, uint64_t bytes) {
    belay_copy_req req = request<belay_copy_req>();
    req.src = from.get(), req.src_offset = offset, req.host_dst = to, req.bytes = bytes;
    return copy(req);
  }
  template <class T>
  Result<Event> fill(const Buffer& to, uint64_t offset, uint64_t bytes, T pattern) {
    static_assert(std::is_trivially_copyable_v<T> &&
                  (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8));
    belay_fill_req req = request<belay_fill_req>();
    req.dst = to.get(), req.dst_offset = offset, req.bytes = bytes, req.pattern_bytes = sizeof(T);
    __builtin_memcpy(&req.pattern, &pattern, sizeof(T));
    belay_event event{};
    return done(vt().fill(host(), get(), &req, &event), event);
  }
  Result<Event> launch(const belay_kernel& kernel, std::initializer_list<uint64_t> args) {
    belay_launch_req req = request<belay_launch_req>();
    req.kernel = &kernel, req.args = args.begin(), req.arg_count = args.size();
    belay_event event{};
    return done(vt().launch(host(), get(), &req, &event), event);
  }
  Result<Event> launch(const Program& program, const std::vector<belay_binding>& bindings) {
    belay_event event{};
    return done(vt().program_launch(host(), program.get(), get(), bindings.data(), bindings.size(), &event),
                event);
  }
  // Bindings: one for each input of the package, then one for each output.
  Result<Event> launch(const Package& package, const std::vector<belay_binding>& bindings) {
    belay_event event{};
    return done(vt().package_launch(host(), package.get(), get(), bindings.data(), bindings.size(), &event),
                event);
  }
  // Runs call() on a thread of the device, in order. It must not throw, nor wait for this stream.
  template <class Call>
  Result<Event> host_call(Call call) {
    auto kept = std::make_unique<Call>(std::move(call));
    belay_event event{};
    const belay_status raw = vt().host_call(
        host(), get(),
        [](void* user) {
          std::unique_ptr<Call> mine(static_cast<Call*>(user));
          (*mine)();
        },
        kept.get(), &event);
    if (raw == BELAY_OK) (void)kept.release();
    return done(raw, event);
  }
  // What is queued from now on starts after the event, which may be of another device.
  Status wait(const Event& event) { return take(vt().wait(host(), get(), event.raw())); }
  Result<Event> record() {
    belay_event event{};
    return done(vt().record(host(), get(), &event), event);
  }
  Status flush() { return take(vt().flush(host(), get())); }
  Status synchronize(Nanoseconds timeout = kForever) {
    BELAY_ASSIGN(const Event event, record());
    return event.synchronize(timeout);
  }
  // Ends a failure: what is queued from now on runs again.
  Status recover() { return take(vt().recover(host(), get())); }
  Result<uint64_t> pending() {
    uint64_t operations = 0;
    BELAY_TRY(take(vt().pending(host(), get(), &operations)));
    return operations;
  }
  // What is queued between these is kept as a program and not run.
  Status capture_begin() { return take(vt().capture_begin(host(), get())); }
  Result<Program> capture_end() {
    belay_obj* program = nullptr;
    BELAY_TRY(take(vt().capture_end(host(), get(), &program)));
    return Program(owned_.hal(), program);
  }

 private:
  template <class T>
  static T request() {
    T req{};
    req.hdr.struct_size = sizeof req;
    return req;
  }
  const belay_hal_vt& vt() const { return *owned_.hal().vt; }
  const belay_host* host() const { return owned_.hal().host; }
  Result<Event> done(belay_status raw, belay_event event) {
    if (raw != BELAY_OK) return take(raw);
    return Event(owned_.hal(), event);
  }
  Result<Event> copy(const belay_copy_req& req) {
    belay_event event{};
    return done(vt().copy(host(), get(), &req, &event), event);
  }
  detail::Owned<&belay_hal_vt::stream_destroy> owned_;
};

// A device of the runtime; the runtime owns it.
class Device {
 public:
  Device() = default;
  Device(detail::Hal hal, belay_obj* object) : hal_(hal), object_(object) {}
  belay_obj* get() const { return object_; }

  Result<belay_device_info> info() const {  // its strings live as long as the runtime
    belay_device_info info{};
    info.hdr.struct_size = sizeof info;
    BELAY_TRY(take(hal_.vt->device_info(hal_.host, object_, &info)));
    return info;
  }
  Result<Buffer> alloc(uint64_t bytes, uint64_t align = 0, uint64_t heap = 0) const {
    belay_alloc_req req{};
    req.hdr.struct_size = sizeof req;
    req.bytes = bytes, req.align = align, req.heap = heap;
    return make(req);
  }
  // Addresses without memory, see Buffer::map. UNIMPLEMENTED: the device has no virtual memory.
  Result<Buffer> reserve(uint64_t bytes, uint64_t align = 0, uint64_t heap = 0) const {
    belay_alloc_req req{};
    req.hdr.struct_size = sizeof req;
    req.bytes = bytes, req.align = align, req.heap = heap;
    belay_obj* buffer = nullptr;
    BELAY_TRY(take(hal_.vt->reserve(hal_.host, object_, &req, &buffer)));
    return Buffer(hal_, buffer);
  }
  // Host memory as a buffer, without a copy; it stays in place and alive until the buffer is gone. `access`:
  // BELAY_ACCESS_...; where a policy or the device wants a copy, one of READ alone holds a copy made now, any other fails.
  // NULL is the memory of no bytes.
  Result<Buffer> bind(void* host, uint64_t bytes, uint64_t access = BELAY_ACCESS_READ | BELAY_ACCESS_WRITE) const {
    if (!host && bytes)
      return Status(Code::kInvalidArgument,
                    "Host memory of " + std::to_string(bytes) + " bytes to be used as a buffer is NULL.");
    belay_alloc_req req{};
    req.hdr.struct_size = sizeof req;
    req.bytes = bytes, req.host = host, req.access = access;
    return make(req);
  }
  Result<Stream> stream(StreamOptions options = {}) const {
    belay_hal_stream_req req{};
    req.hdr.struct_size = sizeof req;
    if (options.single_producer) req.hdr.flags |= BELAY_HAL_STREAM_SINGLE_PRODUCER;
    if (options.continue_on_failure) req.hdr.flags |= BELAY_HAL_STREAM_CONTINUE_ON_FAILURE;
    if (options.block) req.hdr.flags |= BELAY_HAL_STREAM_BLOCK;
    req.priority = options.priority, req.queue_depth = options.queue_depth;
    belay_obj* stream = nullptr;
    BELAY_TRY(take(hal_.vt->stream_create(hal_.host, object_, &req, &stream)));
    return Stream(hal_, stream);
  }
  Result<Program> program(const belay_program_req& req) const {
    belay_obj* program = nullptr;
    BELAY_TRY(take(hal_.vt->program_create(hal_.host, object_, &req, &program)));
    return Program(hal_, program);
  }
  // A model that was compiled for this device; `bytes` are not needed afterwards. UNIMPLEMENTED: it takes
  // none of `kind`.
  Result<Package> load_package(std::string_view kind, const void* bytes, uint64_t count,
                               std::string_view name = {}) const {
    belay_package_req req{};
    req.hdr.struct_size = sizeof req;
    req.kind = to_str(kind), req.bytes = {bytes, count}, req.name = to_str(name);
    belay_obj* package = nullptr;
    BELAY_TRY(take(hal_.vt->package_load(hal_.host, object_, &req, &package)));
    return Package(hal_, package);
  }
  Result<belay_hal_memory_info> memory() const {
    belay_hal_memory_info info{};
    info.hdr.struct_size = sizeof info;
    BELAY_TRY(take(hal_.vt->memory_info(hal_.host, object_, &info)));
    return info;
  }

 private:
  Result<Buffer> make(const belay_alloc_req& req) const {
    belay_obj* buffer = nullptr;
    BELAY_TRY(take(hal_.vt->buffer_create(hal_.host, object_, &req, &buffer)));
    return Buffer(hal_, buffer);
  }
  detail::Hal hal_;
  belay_obj* object_ = nullptr;
};

// ---- DLPack
// ---------------------------------------------------------------------------------------------------------

// A tensor that another library lends by DLPack, and its one end.
class Dlpack {
 public:
  Dlpack() = default;
  // Takes `managed` over whatever comes of it: its deleter is called once, here where it cannot be used.
  static Result<Dlpack> take(DLManagedTensor* managed) {
    Dlpack taken;
    taken.managed_.reset(managed);
    belay_tensor raw{};
    raw.hdr.struct_size = sizeof raw;
    BELAY_TRY(belay::take(belay_tensor_from_dlpack(managed, &raw)));
    taken.tensor_ = Tensor(raw);
    return taken;
  }
  // Valid as long as this lives.
  const Tensor& tensor() const { return tensor_; }

 private:
  struct Delete {
    void operator()(DLManagedTensor* managed) const { belay_dlpack_delete(managed); }
  };
  std::unique_ptr<DLManagedTensor, Delete> managed_;
  Tensor tensor_;
};

// A tensor of the host for other libraries; whoever gets it calls its deleter once, which lets `keep` go. The elements
// must last until then.
inline Result<DLManagedTensor*> to_dlpack(const Tensor& tensor, std::shared_ptr<const void> keep = {}) {
  auto held = std::make_unique<std::shared_ptr<const void>>(std::move(keep));
  const belay_tensor raw = tensor.raw();
  DLManagedTensor* managed = nullptr;
  BELAY_TRY(take(belay_tensor_to_dlpack(
      &raw, [](void* user) { delete static_cast<std::shared_ptr<const void>*>(user); }, held.get(), &managed)));
  (void)held.release();
  return managed;
}

// ---- models
// ----------------------------------------------------------------------------------------------------------

// An input or output as the model declares it.
struct IoInfo {
  std::string name;
  uint32_t kind = BELAY_TYPE_TENSOR, dtype = BELAY_DT_UNDEFINED;
  bool rank_known = false, optional = false;
  std::vector<int64_t> dims;         // -1: not fixed
  std::vector<std::string> symbols;  // of dims; empty: none
};

// What one run did with the memory of an input or output.
struct IoMemory {
  uint64_t shared_bytes = 0;  // used where they lie
  uint64_t copied_bytes = 0;
  std::string reason;  // why there were copies, as what follows "because"
};

// Runs of a model, one at a time; one context for each thread.
class Context {
 public:
  Context() = default;
  explicit Context(belay_context* raw) : raw_(raw) {}
  Context(Context&& other) noexcept
      : raw_(std::exchange(other.raw_, nullptr)),
        inputs_(std::move(other.inputs_)),
        outputs_(std::move(other.outputs_)) {}
  Context& operator=(Context&& other) noexcept {
    std::swap(raw_, other.raw_), std::swap(inputs_, other.inputs_), std::swap(outputs_, other.outputs_);
    return *this;
  }
  ~Context() { belay_context_destroy(raw_); }
  belay_context* get() const { return raw_; }

  // The elements are lent: they stay in place and alive until another tensor is set or the context is gone; each run
  // reads what is there then.
  Status set_input(uint64_t index, Tensor tensor) {
    auto lent = std::make_unique<Lent>(std::move(tensor));
    BELAY_TRY(take(belay_context_set_input(raw_, index, &lent->datum)));
    keep(inputs_, index, std::move(lent));
    return {};
  }
  Status set_input(uint64_t index, const belay_datum* datum) {
    return take(belay_context_set_input(raw_, index, datum));
  }
  // Where output `index` is written, by every run; lent as inputs are.
  Status set_output(uint64_t index, Tensor tensor) {
    auto lent = std::make_unique<Lent>(std::move(tensor));
    BELAY_TRY(take(belay_context_set_output(raw_, index, &lent->raw)));
    keep(outputs_, index, std::move(lent));
    return {};
  }
  Status run() { return take(belay_context_run(raw_)); }
  // Calls done(Status) when the run has ended, on a thread of the device; until then only destruction is
  // allowed.
  template <class Done>
  Status run_async(Done done) {
    auto kept = std::make_unique<Done>(std::move(done));
    const belay_completion completion{kept.get(), [](void* user, belay_status status) BELAY_NOEXCEPT {
                                        std::unique_ptr<Done> mine(static_cast<Done*>(user));
                                        (*mine)(take(status));
                                      }};
    const belay_status raw = belay_context_run_async(raw_, completion);
    if (BELAY_STATUS_CODE(raw) != BELAY_DEFERRED) return take(raw);
    (void)kept.release();
    return {};
  }
  // Queues a run on a stream of the model's device; it takes its turn there. What was set is read and written
  // then.
  Result<Event> enqueue(const Stream& stream) {
    belay_event event{};
    BELAY_TRY(take(belay_context_enqueue(raw_, stream.get(), &event)));
    return Event(stream.hal(), event);
  }
  // Valid until the next run; in host memory where the host sees it, also where set_output gave a buffer: then data() is
  // set and buffer() is not. FAILED_PRECONDITION: the output is no tensor.
  Result<Tensor> output(uint64_t index) const {
    BELAY_ASSIGN(const belay_datum* datum, datum(index));
    if (datum->kind != BELAY_TYPE_TENSOR || !datum->tensor)
      return Status(Code::kFailedPrecondition,
                    "Output " + std::to_string(index) + " is no tensor; ask for its datum.");
    return Tensor(*datum->tensor);
  }
  Result<const belay_datum*> datum(uint64_t index) const {
    const belay_datum* datum = nullptr;
    BELAY_TRY(take(belay_context_output(raw_, index, &datum)));
    return datum;
  }
  // What the last run shared and copied.
  Result<IoMemory> input_memory(uint64_t index) const { return memory(belay_context_input_memory, index); }
  Result<IoMemory> output_memory(uint64_t index) const { return memory(belay_context_output_memory, index); }

 private:
  struct Lent {  // stays where it is while the engine borrows it
    explicit Lent(Tensor lent) : tensor(std::move(lent)), raw(tensor.raw()) {
      datum.hdr.struct_size = sizeof datum;
      datum.kind = BELAY_TYPE_TENSOR;
      datum.tensor = &raw;
    }
    Tensor tensor;
    belay_tensor raw;
    belay_datum datum{};
  };
  Result<IoMemory> memory(belay_status (*ask)(belay_context*, uint64_t, belay_io_memory*), uint64_t index) const {
    belay_io_memory raw{};
    raw.hdr.struct_size = sizeof raw;
    BELAY_TRY(take(ask(raw_, index, &raw)));
    return IoMemory{raw.shared_bytes, raw.copied_bytes, to_string(raw.reason)};
  }
  // The engine took it, so the index is one of the model's.
  static void keep(std::vector<std::unique_ptr<Lent>>& all, uint64_t index, std::unique_ptr<Lent> lent) {
    if (index >= all.size()) all.resize(index + 1);
    all[index] = std::move(lent);
  }
  belay_context* raw_ = nullptr;
  std::vector<std::unique_ptr<Lent>> inputs_, outputs_;
};

// A loaded model. Thread-safe; each thread runs it through a context of its own.
class Model {
 public:
  Model() = default;
  explicit Model(belay_model* raw) : raw_(raw) {}
  Model(Model&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Model& operator=(Model&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Model() { belay_model_destroy(raw_); }
  belay_model* get() const { return raw_; }

  uint64_t input_count() const { return belay_model_input_count(raw_); }
  uint64_t output_count() const { return belay_model_output_count(raw_); }
  Result<IoInfo> input_info(uint64_t index) const { return info(belay_model_input_info, index); }
  Result<IoInfo> output_info(uint64_t index) const { return info(belay_model_output_info, index); }
  Result<Context> context() const {
    belay_context* context = nullptr;
    BELAY_TRY(take(belay_context_create(raw_, &context)));
    return Context(context);
  }
  Result<belay_executable_stats> stats() const {
    belay_executable_stats stats{};
    stats.hdr.struct_size = sizeof stats;
    BELAY_TRY(take(belay_model_stats(raw_, &stats)));
    return stats;
  }
  Result<std::string> describe() const {  // JSON
    StringSink text;
    BELAY_TRY(take(belay_model_describe(raw_, text.sink())));
    return std::move(text).str();
  }

 private:
  Result<IoInfo> info(belay_status (*ask)(belay_model*, uint64_t, belay_io_info*), uint64_t index) const {
    belay_io_info raw{};
    raw.hdr.struct_size = sizeof raw;
    BELAY_TRY(take(ask(raw_, index, &raw)));
    IoInfo info{to_string(raw.name), raw.kind, raw.dtype, raw.rank != BELAY_NONE, raw.optional != 0, {}, {}};
    for (uint32_t i = 0; info.rank_known && i < raw.rank; ++i) {
      info.dims.push_back(raw.dims[i]);
      info.symbols.push_back(raw.symbols ? to_string(raw.symbols[i]) : std::string());
    }
    return info;
  }
  belay_model* raw_ = nullptr;
};

// ---- the runtime
// -----------------------------------------------------------------------------------------------------

struct RuntimeOptions {
  std::vector<std::string> files = {};        // TOML, later ones win; none: the embedded CPU configuration
  std::string text = {};                      // TOML that wins over the files
  std::vector<std::string> sets = {};         // "key.path=value", win over all
  std::vector<std::string> plugin_dirs = {};  // absolute
};

struct ModelOptions {
  std::string format = {};                      // "onnx"; empty: found by contents
  std::string device = {};                      // "cpu:0"; empty: the runtime's default
  std::string folder = {};                      // of the side files of a model in memory
  std::vector<std::string> extra_outputs = {};  // values of the main graph that are given as well
};

class Runtime {
 public:
  Runtime() = default;
  Runtime(Runtime&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)), hal_(other.hal_) {}
  Runtime& operator=(Runtime&& other) noexcept {
    std::swap(raw_, other.raw_), std::swap(hal_, other.hal_);
    return *this;
  }
  ~Runtime() { belay_runtime_destroy(raw_); }

  static Result<Runtime> create(const RuntimeOptions& options = {}) {
    const std::vector<belay_str> files = views(options.files), sets = views(options.sets),
                                 dirs = views(options.plugin_dirs);
    belay_runtime_req req{};
    req.hdr.struct_size = sizeof req;
    req.files = files.data(), req.file_count = files.size();
    req.text = to_str(options.text);
    req.sets = sets.data(), req.set_count = sets.size();
    req.plugin_dirs = dirs.data(), req.plugin_dir_count = dirs.size();
    Runtime runtime;
    BELAY_TRY(take(belay_runtime_create(&req, &runtime.raw_)));
    runtime.hal_.vt = belay_runtime_hal(runtime.raw_, &runtime.hal_.host);
    return runtime;
  }

  belay_runtime* get() const { return raw_; }
  const belay_hal_vt& hal() const { return *hal_.vt; }
  const belay_host* host() const { return hal_.host; }

  uint64_t device_count() const { return hal_.vt->device_count(hal_.host); }
  Result<Device> device(uint64_t index) const {
    belay_obj* device = nullptr;
    BELAY_TRY(take(hal_.vt->device(hal_.host, index, &device)));
    return Device(hal_, device);
  }
  // The buffer that holds the byte at a host address; its owner keeps it alive. NOT_FOUND: none of this
  // runtime.
  struct Found {
    belay_obj* buffer = nullptr;
    uint64_t offset = 0;  // bytes into it
  };
  Result<Found> find(const void* address) const {
    Found found;
    BELAY_TRY(take(hal_.vt->find(hal_.host, address, &found.buffer, &found.offset)));
    return found;
  }
  // Queues a copy of all elements from one tensor to another of the same type and dims; each has its own
  // strides.
  Result<Event> copy(const Stream& stream, const Tensor& to, const Tensor& from) const {
    const belay_tensor raw_to = to.raw(), raw_from = from.raw();
    belay_event event{};
    BELAY_TRY(take(belay_tensor_copy(raw_, stream.get(), &raw_to, &raw_from, &event)));
    return Event(hal_, event);
  }
  // What the layers of [runtime] layers have found or gathered so far, a line for each thing.
  struct LayerReport {
    std::string layer, text;
  };
  Result<std::vector<LayerReport>> report() const {
    std::vector<LayerReport> all;
    BELAY_TRY(take(belay_runtime_report(
        raw_,
        [](void* user, belay_str layer, belay_str text) {
          static_cast<std::vector<LayerReport>*>(user)->push_back({to_string(layer), to_string(text)});
        },
        &all)));
    return all;
  }
  Result<Device> default_device() const { return device(belay_runtime_default_device(raw_)); }

  // A memory policy of [memory] policies, to compute with; see belay_runtime_policy for what it may be given. The runtime
  // owns it.
  struct Policy {
    const belay_memory_policy_vt* table = nullptr;
    belay_obj* object = nullptr;
  };
  Result<Policy> policy(std::string_view name) const {
    Policy policy;
    BELAY_TRY(take(belay_runtime_policy(raw_, to_str(name), &policy.table, &policy.object)));
    return policy;
  }
  // Their names in their order, and what each serves: BELAY_POLICY_....
  struct PolicyInfo {
    std::string name;
    uint64_t serves = 0;
  };
  Result<std::vector<PolicyInfo>> policies() const {
    std::vector<PolicyInfo> found;
    BELAY_TRY(take(belay_runtime_policies(
        raw_,
        [](void* user, belay_str name, uint64_t serves) {
          static_cast<std::vector<PolicyInfo>*>(user)->push_back({to_string(name), serves});
        },
        &found)));
    return found;
  }

  Result<Model> load(std::string_view path, const ModelOptions& options = {}) const {
    const std::vector<belay_str> extra = views(options.extra_outputs);
    belay_model_req req = request(options, extra);
    req.path = to_str(path);
    return load(req);
  }
  // `bytes` are borrowed until the model is gone.
  Result<Model> load_from_memory(const void* bytes, uint64_t count, const ModelOptions& options = {}) const {
    const std::vector<belay_str> extra = views(options.extra_outputs);
    belay_model_req req = request(options, extra);
    req.bytes = {bytes, count};
    return load(req);
  }
  // A model's graph as text, without loading it.
  Result<std::string> print(std::string_view path, const ModelOptions& options = {}) const {
    return written(belay_model_print, path, options);
  }
  // The frozen graph of a model, verified: belay/graph/view.hpp reads it.
  Result<std::string> freeze(std::string_view path, const ModelOptions& options = {}) const {
    return written(belay_model_freeze, path, options);
  }

 private:
  static std::vector<belay_str> views(const std::vector<std::string>& texts) {
    std::vector<belay_str> all;
    for (const std::string& text : texts) all.push_back(to_str(text));
    return all;
  }
  // What a function writes about a model that is not loaded.
  Result<std::string> written(belay_status (*write)(belay_runtime*, const belay_model_req*, belay_sink),
                              std::string_view path, const ModelOptions& options) const {
    const std::vector<belay_str> extra = views(options.extra_outputs);
    belay_model_req req = request(options, extra);
    req.path = to_str(path);
    StringSink text;
    BELAY_TRY(take(write(raw_, &req, text.sink())));
    return std::move(text).str();
  }
  static belay_model_req request(const ModelOptions& options, const std::vector<belay_str>& extra) {
    belay_model_req req{};
    req.hdr.struct_size = sizeof req;
    req.format = to_str(options.format), req.device = to_str(options.device),
    req.folder = to_str(options.folder);
    req.extra_outputs = extra.data(), req.extra_output_count = extra.size();
    return req;
  }
  Result<Model> load(const belay_model_req& req) const {
    belay_model* model = nullptr;
    BELAY_TRY(take(belay_model_load(raw_, &req, &model)));
    return Model(model);
  }
  belay_runtime* raw_ = nullptr;
  detail::Hal hal_;
};

}  // namespace belay
