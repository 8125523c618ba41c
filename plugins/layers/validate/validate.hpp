// The layer: what is wrong with a call, before it and after it.
#pragma once

#include <belay/layer.hpp>

#include "findings.hpp"
#include "order.hpp"

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace belay::validate {

class Validate;

// A range of a buffer that captured work uses.
struct Captured {
  const belay_obj* buffer;
  uint64_t number;
  std::string name;
  uint64_t begin, end;
  bool write;
};

// What a slot has made, until the object around it is attached, and then of that object.
struct Made {
  std::string how;     // "device.alloc of 64 bytes"
  uint64_t bytes = 0;  // of a buffer
  uint64_t timeline = 0;
  uint64_t bindings = 0;
  std::shared_ptr<const Recorded> recorded = nullptr;  // of a program
  std::vector<Captured> captured = {};
};

struct HostCall {
  Validate& layer;
  uint64_t timeline, before;  // what is reached when it runs
  void (*fn)(void*);
  void* user;
  std::list<std::unique_ptr<HostCall>>& list;
  std::list<std::unique_ptr<HostCall>>::iterator at;
};

// What is kept of each object.
struct State {
  std::string name;  // "stream 3 of cpu:0"
  Made made;
  uint64_t device = 0;   // number of the device that it is of; 0: none
  bool component = true;  // it has no parent
  const void* parent = nullptr;  // Validate::On; of those that it was made from
  std::atomic<bool> ended{false};
  std::atomic<uint64_t> inside_thread{0};  // that is in a [serial] slot
  std::atomic<const char*> inside_slot{nullptr};
  // A driver:
  uint64_t opening = 0, count = 0;
  bool counted = false;
  // A stream; [serial], or under the layer's mutex:
  std::atomic<uint64_t> last{0};
  bool capturing = false;
  std::vector<Captured> captured;
  std::shared_mutex ending;  // shared: it is asked something beside its callers
  std::list<std::unique_ptr<HostCall>> host_calls;
};

// Of one call: what was found so far, and what it will do.
struct Look {
  const char* table;
  const char* slot;
  std::string first = {};  // text of the first finding
  bool fatal = false;      // cannot be passed on
  const void* stream = nullptr;  // Validate::On: queues on it
  std::vector<Access> accesses = {};
  ClockPtr clock = nullptr;
  Made made = {};
};

class Validate : public Layer<Validate, State> {
 public:
  Validate(const belay_host& host, bool strict, bool races)
      : Layer(host), findings_(host), strict_(strict), races_(races) {}

  void attached(On& on);
  void detached(On& on) noexcept;
  Status report(belay_sink sink) { return findings_.report(sink), Status(); }

  template <class Call>
  auto around(Call& call) -> typename Call::Result {
    using Result = typename Call::Result;
    On& on = call.on;
    Look look{Call::table, call.slot};
    const Inside inside(*this, serial_of(call), call.slot, look);
    before(call, look);
    if (look.fatal || (strict_ && !look.first.empty())) {
      if constexpr (Call::gives_status)
        return refused(look);
      else if constexpr (std::is_void_v<Result>) {
        if (look.fatal) return call.done = true, void();
      } else if (look.fatal) {
        return Result{};
      }
    }
    if constexpr (std::is_void_v<Result>) {
      call();
      after_end(call, look);
    } else {
      const Result result = call();
      try {  // what was done stays done, whatever can be said of it
        if constexpr (Call::gives_status) {
          const bool was_right = look.first.empty();
          check_status(on, look, result);
          after(call, look, result);
          if (strict_ && was_right && !look.first.empty() && result == BELAY_OK) return refused(look);
        }
        if constexpr (Call::template is<&belay_driver_vt::device_count>()) check_count(on, look, result);
      } catch (...) {
        blind_ = true;
      }
      return result;
    }
  }

  // The host has learned that a value is reached.
  void learn(uint64_t timeline, uint64_t value) {
    if (races_) order_.reached(timeline, value);
  }

 private:
  friend struct Inside;
  // A completion on its way up.
  struct Pending {
    Validate& layer;
    const belay_completion completion;
    const void* of;  // On
    std::string who;  // "on_reached of stream 1 of cpu:0, value 3"
    uint64_t timeline, value;
    std::atomic<uint64_t> calls{0};
    std::atomic<bool> refused{false};  // the slot failed: it took nothing
  };
  // Holds the place of a thread in a [serial] slot.
  struct Inside {
    Inside(Validate& layer, On* on, const char* slot, Look& look);
    ~Inside();
    Inside(const Inside&) = delete;
    On* const on;
    bool owner = false;
  };

  // The object that two threads may not be in at a time; nullptr: of [any].
  template <class Call>
  On* serial_of(Call& call) {
    if constexpr (is_any<Call, &belay_program_vt::launch, &belay_package_vt::launch>)
      return find(call.template arg<0>());
    else if constexpr (is_any<Call, &belay_driver_vt::open_device, &belay_device_vt::reset, &belay_stream_vt::copy,
                              &belay_stream_vt::fill, &belay_stream_vt::launch, &belay_stream_vt::wait,
                              &belay_stream_vt::host_call, &belay_stream_vt::recover, &belay_program_vt::capture_begin,
                              &belay_program_vt::capture_end> ||
                       std::is_same_v<typename Call::Table, belay_context_vt>)
      return &call.on;
    else
      return nullptr;
  }
  template <class Call, auto... slots>
  static constexpr bool is_any = (Call::template is<slots>() || ...);
  using belay_program_vt = belay_driver_program_vt;
  using belay_package_vt = belay_driver_native_model_vt;

  template <class Call>
  void before(Call& call, Look& look) {
    On& on = call.on;
    if (on.state.ended.load()) return wrong(look, on, "ended", "", "it was destroyed already; call nothing of it after its destroy", true);
    check_sizes(call, look);
    const auto arg = [&]<size_t i>() -> auto& { return call.template arg<i>(); };
    if constexpr (Call::template is<&belay_driver_vt::open_device>()) {
      on.state.opening = arg.template operator()<0>();
    } else if constexpr (Call::template is<&belay_device_vt::alloc>()) {
      before_alloc(on, look, arg.template operator()<0>(), "device.alloc");
    } else if constexpr (Call::template is<&belay_driver_virtual_memory_vt::reserve>()) {
      before_alloc(on, look, arg.template operator()<0>(), "virtual_memory.reserve");
    } else if constexpr (Call::template is<&belay_device_vt::free>()) {
      before_free(on, look, arg.template operator()<0>());
    } else if constexpr (Call::template is<&belay_device_vt::map>()) {
      buffer_of(on, look, arg.template operator()<0>(), "buffer");
      required(on, look, arg.template operator()<1>(), "out");
    } else if constexpr (is_any<Call, &belay_driver_virtual_memory_vt::map, &belay_driver_virtual_memory_vt::unmap>) {
      if (On* buffer = buffer_of(on, look, arg.template operator()<0>(), "buffer"))
        range(on, look, *buffer, "buffer", arg.template operator()<1>(), arg.template operator()<2>());
    } else if constexpr (Call::template is<&belay_device_vt::stream_create>()) {
      if (const belay_stream_req* req = arg.template operator()<0>())
        look.made = {.how = "device.stream_create with timeline " + std::to_string(req->timeline), .timeline = req->timeline};
    } else if constexpr (Call::template is<&belay_stream_vt::copy>()) {
      before_copy(on, look, arg.template operator()<0>());
    } else if constexpr (Call::template is<&belay_stream_vt::fill>()) {
      before_fill(on, look, arg.template operator()<0>());
    } else if constexpr (Call::template is<&belay_stream_vt::launch>()) {
      before_launch(on, look, arg.template operator()<0>());
    } else if constexpr (Call::template is<&belay_stream_vt::wait>()) {
      before_wait(on, look, arg.template operator()<0>());
    } else if constexpr (Call::template is<&belay_stream_vt::host_call>()) {
      before_host_call(on, look, arg.template operator()<0>(), arg.template operator()<1>());
    } else if constexpr (Call::template is<&belay_stream_vt::on_reached>()) {
      wrap(on, look, arg.template operator()<1>(), arg.template operator()<0>());
    } else if constexpr (Call::template is<&belay_context_vt::run_async>()) {
      wrap(on, look, arg.template operator()<0>(), 0);
    } else if constexpr (Call::template is<&belay_program_vt::create>()) {
      before_program(on, look, arg.template operator()<0>());
    } else if constexpr (Call::template is<&belay_program_vt::launch>()) {
      before_program_launch(on, look, arg.template operator()<0>(), arg.template operator()<1>(), arg.template operator()<2>());
    } else if constexpr (Call::template is<&belay_package_vt::launch>()) {
      before_package_launch(on, look, arg.template operator()<0>(), arg.template operator()<1>(), arg.template operator()<2>());
    } else if constexpr (std::is_void_v<typename Call::Result> && std::tuple_size_v<decltype(call.args)> == 0) {
      before_end(on);
    }
    if (look.stream) begin_queue(look);
  }
  // Requests that are missing or were not made by whoever knows their size.
  template <class Call>
  void check_sizes(Call& call, Look& look) {
    const auto one = [&](auto value) {
      using T = decltype(value);
      if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
        using Struct = std::remove_cv_t<std::remove_pointer_t<T>>;
        if constexpr (std::is_same_v<Struct, belay_created> || driver_request<Struct>) {
          if (!required(call.on, look, value, std::is_same_v<Struct, belay_created> ? "out" : "the request")) return;
        }
        if constexpr (requires { value->hdr.struct_size; })
          if (value) size(call.on, look, value->hdr.struct_size, driver_request<Struct> ? first_size<Struct> : sizeof(belay_hdr));
      }
    };
    std::apply([&](auto... args) { (one(args), ...); }, call.args);
    if constexpr (queues<Call>) required(call.on, look, std::get<std::tuple_size_v<decltype(call.args)> - 1>(call.args), "out_value");
  }
  template <class T>
  static constexpr bool driver_request =
      std::is_same_v<T, belay_copy_req> || std::is_same_v<T, belay_fill_req> || std::is_same_v<T, belay_launch_req> ||
      std::is_same_v<T, belay_alloc_req> || std::is_same_v<T, belay_stream_req> || std::is_same_v<T, belay_program_req>;
  template <class T>  // a request may end before fields that came later
  static constexpr uint32_t first_size = std::is_same_v<T, belay_alloc_req> ? offsetof(belay_alloc_req, within) : sizeof(T);
  template <class Call>
  static constexpr bool queues =
      is_any<Call, &belay_stream_vt::copy, &belay_stream_vt::fill, &belay_stream_vt::launch, &belay_stream_vt::wait,
             &belay_stream_vt::host_call, &belay_program_vt::launch, &belay_package_vt::launch>;

  template <class Call>
  void after(Call& call, Look& look, belay_status status) {
    On& on = call.on;
    const bool ok = status == BELAY_OK;
    if constexpr (queues<Call>) {
      if (ok && look.stream)
        end_queue(look, *std::get<std::tuple_size_v<decltype(call.args)> - 1>(call.args),
                  Call::template is<&belay_stream_vt::wait>());
      if constexpr (Call::template is<&belay_stream_vt::host_call>())
        if (!ok) drop_host_call(on, call.template arg<1>());
    }
    if constexpr (is_any<Call, &belay_stream_vt::query, &belay_stream_vt::synchronize>) {
      const uint32_t code = BELAY_STATUS_CODE(status);
      if (code != BELAY_UNAVAILABLE && code != BELAY_DEADLINE_EXCEEDED) learn(on.state.made.timeline, call.template arg<0>());
    } else if constexpr (Call::template is<&belay_stream_vt::recover>()) {
      if (ok) learn(on.state.made.timeline, on.state.last), clear_host_calls(on);
    } else if constexpr (Call::template is<&belay_device_vt::reset>()) {
      if (ok) learn_all(on);
    } else if constexpr (Call::template is<&belay_stream_vt::on_reached>()) {
      after_wrap(call.template arg<1>(), ok);
    } else if constexpr (Call::template is<&belay_context_vt::run_async>()) {
      after_wrap(call.template arg<0>(), ok || status == BELAY_DEFERRED);
    } else if constexpr (Call::template is<&belay_program_vt::capture_begin>()) {
      if (ok) on.state.capturing = true, on.state.captured.clear();
    } else if constexpr (Call::template is<&belay_program_vt::capture_end>()) {
      if (ok) on.state.capturing = false;
      if (ok) look.made = {.how = "program.capture_end of " + on.state.name, .captured = std::move(on.state.captured)};
    }
    constexpr bool without_table =  // a buffer has none, an extension's object may leave it to the host
        is_any<Call, &belay_device_vt::alloc, &belay_driver_virtual_memory_vt::reserve, &belay_program_vt::create,
               &belay_program_vt::capture_end, &belay_package_vt::load>;
    const auto made = [&](auto arg) {
      if constexpr (std::is_same_v<decltype(arg), belay_created*>)
        if (ok && arg) after_made(on, look, *arg, without_table);
    };
    std::apply([&](auto... args) { (made(args), ...); }, call.args);
  }
  template <class Call>
  void after_end(Call& call, Look& look) {
    if constexpr (Call::template is<&belay_stream_vt::destroy>())
      stream_ended(call.on);
    else if constexpr (Call::template is<&belay_context_vt::destroy>())
      check_pending(call.on);
    else
      static_cast<void>(look);
  }

  // ---- what the templates above call; validate.cpp ----
  On* find(const belay_obj* object);
  // A finding of an object's call; `fatal`: the call cannot be passed on.
  void wrong(Look& look, const On& on, const char* rule, const std::string& key, const std::string& text, bool fatal = false);
  template <class T>
  bool required(const On& on, Look& look, T* pointer, const char* name) {
    if (pointer) return true;
    wrong(look, on, "null", name, std::string(name) + " is NULL; it is required", true);
    return false;
  }
  void size(const On& on, Look& look, uint32_t is, uint64_t want);
  On* object_of(const On& on, Look& look, const belay_obj* handle, uint32_t kind, const char* name);
  On* buffer_of(const On& on, Look& look, const belay_obj* handle, const char* name);
  bool range(const On& on, Look& look, const On& buffer, const char* name, uint64_t offset, uint64_t bytes);
  void check_status(const On& on, Look& look, belay_status status);
  void check_count(On& on, Look& look, uint64_t count);
  belay_status refused(const Look& look);
  void before_end(On& on);
  void stream_ended(On& on);
  void after_made(On& on, Look& look, const belay_created& made, bool without_table);
  void begin_queue(Look& look);
  void end_queue(Look& look, uint64_t value, bool wait);
  void learn_all(const On& device);
  void wrap(On& on, Look& look, belay_completion& completion, uint64_t value);
  void after_wrap(const belay_completion& completion, bool taken);
  void check_pending(On& on);
  static void done(void* user, belay_status status) BELAY_NOEXCEPT;
  static void run_host_call(void* user) BELAY_NOEXCEPT;
  void drop_host_call(On& on, void* user);
  void clear_host_calls(On& on);
  // ---- requests.cpp ----
  void before_alloc(On& on, Look& look, const belay_alloc_req* req, const char* how);
  void before_free(On& on, Look& look, const belay_obj* buffer);
  void before_copy(On& on, Look& look, const belay_copy_req* req);
  void before_fill(On& on, Look& look, const belay_fill_req* req);
  void before_launch(On& on, Look& look, const belay_launch_req* req);
  void before_wait(On& on, Look& look, belay_event event);
  void before_host_call(On& on, Look& look, void (*&fn)(void*), void*& user);
  void before_program(On& on, Look& look, const belay_program_req* req);
  void before_program_launch(On& on, Look& look, const belay_obj* stream, const belay_binding* bindings, uint64_t count);
  void before_package_launch(On& on, Look& look, const belay_obj* stream, const belay_binding* bindings, uint64_t count);
  On* launch_stream(On& on, Look& look, const belay_obj* stream);
  On* binding(On& on, Look& look, const belay_binding& binding, uint64_t index);
  void accesses(On& on, Look& look, const belay_access* const* accesses, uint64_t count);
  void access(Look& look, const On& buffer, uint64_t offset, uint64_t bytes, bool write);

  Findings findings_;
  Order order_;
  const bool strict_, races_;
  std::atomic<bool> blind_{false};  // there was no memory to keep something: what is not known may be all right
  std::mutex mutex_;  // of the rest
  std::unordered_map<const belay_obj*, On*> objects_;
  std::unordered_map<uint64_t, On*> streams_;  // by timeline
  std::unordered_map<const belay_obj*, std::string> dead_;
  std::deque<const belay_obj*> dead_order_;
  std::unordered_map<const void*, Made> made_;  // by impl
  std::unordered_map<const Pending*, std::unique_ptr<Pending>> pending_;
  std::deque<std::unique_ptr<Pending>> called_;  // kept for a while to see a second call
};

}  // namespace belay::validate
