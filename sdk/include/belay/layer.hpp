// belay/layer.hpp: what the author of a layer needs: a base class that stands before every slot of every
// object and has one function to write. Header-only, compiled into the plugin.
//
//   struct State {};                                   // what is kept of each object
//   class Counter : public belay::Layer<Counter, State> {
//    public:
//     template <class Call>
//     auto around(Call& call) {                        // [any] instead of every slot
//       ++calls_;
//       return call();                                 // the one below; with call.slot, call.on,
//       call.arg<0>() ...
//     }
//     belay::Status report(belay_sink sink) { ... }
//   };
//   // in `create` of the component: belay::give(out, std::make_unique<Counter>(host), Counter::table());
#pragma once

#include <belay/abi/layer.h>
#include <belay/plugin.hpp>
#include <belay/slots.hpp>
#include <belay/status.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace belay {

// "stream", for messages.
inline const char* kind_name(uint32_t kind) {
  switch (kind) {
    case BELAY_OBJ_DRIVER:
      return "driver";
    case BELAY_OBJ_DEVICE:
      return "device";
    case BELAY_OBJ_STREAM:
      return "stream";
    case BELAY_OBJ_BUFFER:
      return "buffer";
    case BELAY_OBJ_PROGRAM:
      return "program";
    case BELAY_OBJ_MEMORY_POLICY:
      return "memory_policy";
    case BELAY_OBJ_MODEL_FORMAT:
      return "model_format";
    case BELAY_OBJ_KERNEL_PROVIDER:
      return "kernel_provider";
    case BELAY_OBJ_ENGINE:
      return "engine";
    case BELAY_OBJ_EXECUTABLE:
      return "executable";
    case BELAY_OBJ_DIAGNOSTICS:
      return "diagnostics";
    case BELAY_OBJ_PACKAGE:
      return "package";
    case BELAY_OBJ_CONTEXT:
      return "context";
    default:
      return "object";
  }
}

// An object as a layer sees it, from attach to detach.
template <class Maker, class State>
struct Layered {
  Maker& layer;
  belay_obj* const object;
  Layered* const parent;   // nullptr: of a component
  const void* const next;  // the table below; nullptr: a buffer
  const std::string plugin;
  const uint64_t number;  // 1, 2, ...: tells it from others of the same kind
  std::array<std::atomic<const void*>, 3> extensions = {};  // tables below, of a device
  State state = {};
};

namespace layer_parts {

template <class Table>
struct Extension {  // of a device, in no table of an object's own
  static constexpr int index = -1;
};
template <>
struct Extension<belay_driver_program_vt> {
  static constexpr int index = 0;
  static constexpr uint32_t kind = BELAY_OBJ_PROGRAM;
  static constexpr std::string_view id = BELAY_DRIVER_PROGRAM;
};
template <>
struct Extension<belay_driver_native_model_vt> {
  static constexpr int index = 1;
  static constexpr uint32_t kind = BELAY_OBJ_PACKAGE;
  static constexpr std::string_view id = BELAY_DRIVER_NATIVE_MODEL;
};
template <>
struct Extension<belay_driver_virtual_memory_vt> {
  static constexpr int index = 2;
  static constexpr uint32_t kind = 0;  // it makes buffers, which have no table
  static constexpr std::string_view id = BELAY_DRIVER_VIRTUAL_MEMORY;
};

}  // namespace layer_parts

// One call of a slot on its way down.
template <class On, auto slot_, class Table_, bool gives_status_, class R, class... Args>
struct LayerCall {
  using Table = Table_;
  using Result = R;
  static constexpr bool gives_status = gives_status_;
  static constexpr const char* table = SlotsOf<Table>::name;  // "stream"

  On& on;            // the object of the call
  const char* slot;  // "copy"
  R (*below)(belay_obj*, Args...) BELAY_NOEXCEPT;
  std::tuple<Args...> args;  // those after the object; may be changed before the call
  bool done = false;         // the one below was called

  R operator()() {
    done = true;
    return std::apply([&](Args... each) { return below(on.object, each...); }, args);
  }
  template <size_t i>
  auto& arg() {
    return std::get<i>(args);
  }
  // is<&belay_stream_vt::copy>(): for `if constexpr`, as slots differ in their arguments.
  template <auto wanted>
  static constexpr bool is() {
    if constexpr (std::is_same_v<decltype(wanted), decltype(slot_)>)
      return wanted == slot_;
    else
      return false;
  }
};

// `Derived` writes around(call), and may write attached(On&), detached(On&) and report(sink). All of them may
// be called by several threads at a time. What around() throws before the call below becomes
// RESOURCE_EXHAUSTED where the slot gives a status, else the call is made; after it, nothing.
template <class Derived, class State>
class Layer {
 public:
  using On = Layered<Derived, State>;

  explicit Layer(const belay_host& host) : host_(host) {}
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const belay_host& host() const { return host_; }
  // What this layer knows of an object, such as an argument of a call; nullptr: nothing, as of NULL.
  static On* of(const belay_obj* object) {
    return object ? reinterpret_cast<On*>(object->layer_word[key_.load(std::memory_order_relaxed)]) : nullptr;
  }

  static const belay_layer_vt& table() {
    static constexpr belay_layer_vt kTable{
        .hdr = {sizeof(belay_layer_vt), 0, nullptr},
        .attach = [](belay_obj* object, const belay_attach_req* req, const void** out)
                      BELAY_NOEXCEPT -> belay_status {
          auto& layer = self<Derived>(object);
          return guard(layer.host(), [&] { return layer.attach(*req, out); });
        },
        .detach =
            [](belay_obj* object, belay_obj* gone, uint64_t key) BELAY_NOEXCEPT {
              std::unique_ptr<On> on(reinterpret_cast<On*>(gone->layer_word[key]));
              if (on) self<Derived>(object).detached(*on);
            },
        .report = [](belay_obj* object, belay_sink sink) BELAY_NOEXCEPT -> belay_status {
          auto& layer = self<Derived>(object);
          return guard(layer.host(), [&] { return layer.report(sink); });
        },
        .destroy = [](belay_obj* object) BELAY_NOEXCEPT { delete &self<Derived>(object); }};
    return kTable;
  }

  void attached(On&) {}
  void detached(On&) noexcept {}
  Status report(belay_sink) { return {}; }

 private:
  template <auto slot, bool gives_status, class Function = decltype(slot)>
  struct Hook;
  template <auto slot, bool gives_status, class Table, class R, class... Args>
  struct Hook<slot, gives_status, R (*Table::*)(belay_obj*, Args...) BELAY_NOEXCEPT> {
    static inline const char* name = nullptr;

    static R call(belay_obj* object, Args... args) BELAY_NOEXCEPT {
      On* const known = of(object);
      if (!known) {  // no object that a host has attached
        if constexpr (std::is_void_v<R>)
          return;
        else
          return none<R, gives_status>(BELAY_INTERNAL);
      }
      On& on = *known;
      LayerCall<On, slot, Table, gives_status, R, Args...> down{on, name, next<Table>(on)->*slot, {args...}};
      if constexpr (std::is_void_v<R>) {
        try {
          on.layer.around(down);
        } catch (...) {
          if (!down.done) down();
        }
      } else {
        std::optional<R> result;
        try {
          result = finish(on, down, on.layer.around(down));
        } catch (...) {
          if (!gives_status && !down.done) result = down();
        }
        return result ? *result : none<R, gives_status>(BELAY_RESOURCE_EXHAUSTED);
      }
    }
  };

  template <class R, bool gives_status>
  static R none(belay_status status) {
    if constexpr (gives_status)
      return status;
    else
      return R{};
  }

  template <class Table>
  static const Table* next(On& on) {
    using Extension = layer_parts::Extension<Table>;
    if constexpr (Extension::index >= 0) {
      if (on.object->kind != Extension::kind) {
        On& device = on.object->kind == BELAY_OBJ_DEVICE ? on : *on.parent;
        return static_cast<const Table*>(device.extensions[Extension::index].load(std::memory_order_acquire));
      }
    }
    return static_cast<const Table*>(on.next);
  }

  // Objects and extensions that come from below get this layer as well.
  template <class Call, class R>
  static R finish(On& on, Call& call, R result) {
    if constexpr (Call::template is<&belay_device_vt::extension>()) {
      const auto known = [&]<class Table>() {
        using Extension = layer_parts::Extension<Table>;
        if (!result || to_view(call.template arg<0>()) != Extension::id) return;
        on.extensions[Extension::index].store(result, std::memory_order_release);
        result = on.layer.template over<Table>(result);
      };
      known.template operator()<belay_driver_program_vt>();
      known.template operator()<belay_driver_native_model_vt>();
      known.template operator()<belay_driver_virtual_memory_vt>();
    }
    if constexpr (layer_parts::Extension<typename Call::Table>::index >= 0 && Call::gives_status)
      std::apply(
          [&](auto... args) {
            const auto look = [&](auto arg) {
              if constexpr (std::is_same_v<decltype(arg), belay_created*>)
                if (result == BELAY_OK && arg && !arg->table) arg->table = next<typename Call::Table>(on);
            };
            if constexpr (layer_parts::Extension<typename Call::Table>::kind != 0) (look(args), ...);
          },
          call.args);
    return result;
  }

  // The bytes of the table below, with the slots that it has replaced. One for each table below, until the
  // layer ends.
  template <class Table>
  const void* over(const void* below) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<uint64_t[]>& mine = tables_[below];
    if (!mine) {
      const uint64_t bytes = static_cast<const belay_hdr*>(below)->struct_size;
      mine = std::make_unique<uint64_t[]>((bytes + 7) / 8);
      std::memcpy(mine.get(), below, bytes);
      auto& table = *reinterpret_cast<Table*>(mine.get());
      SlotsOf<Table>::each([&]<auto slot, bool gives_status>(const char* name) {
        using Mine = Hook<slot, gives_status>;
        const auto at = reinterpret_cast<const char*>(&(table.*slot)) - reinterpret_cast<const char*>(&table);
        if (uint64_t(at) + sizeof(void*) > bytes || !(table.*slot)) return;  // it stays optional
        Mine::name = name;
        table.*slot = Mine::call;
      });
    }
    return mine.get();
  }

  const void* over_kind(uint32_t kind, const void* below) {
    switch (kind) {
      case BELAY_OBJ_DRIVER:
        return over<belay_driver_vt>(below);
      case BELAY_OBJ_DEVICE:
        return over<belay_device_vt>(below);
      case BELAY_OBJ_STREAM:
        return over<belay_stream_vt>(below);
      case BELAY_OBJ_PROGRAM:
        return over<belay_driver_program_vt>(below);
      case BELAY_OBJ_PACKAGE:
        return over<belay_driver_native_model_vt>(below);
      case BELAY_OBJ_MEMORY_POLICY:
        return over<belay_memory_policy_vt>(below);
      case BELAY_OBJ_MODEL_FORMAT:
        return over<belay_model_format_vt>(below);
      case BELAY_OBJ_KERNEL_PROVIDER:
        return over<belay_kernel_provider_vt>(below);
      case BELAY_OBJ_ENGINE:
        return over<belay_engine_vt>(below);
      case BELAY_OBJ_EXECUTABLE:
        return over<belay_executable_vt>(below);
      case BELAY_OBJ_CONTEXT:
        return over<belay_context_vt>(below);
      case BELAY_OBJ_DIAGNOSTICS:
        return over<belay_diagnostics_vt>(below);
      default:
        return below;  // of a kind that this layer does not know
    }
  }

  Status attach(const belay_attach_req& req, const void** out) {
    key_.store(req.key, std::memory_order_relaxed);  // the same each time
    uint64_t number;
    {
      const std::lock_guard lock(mutex_);
      number = ++numbers_[req.object->kind];
    }
    std::unique_ptr<On> on(new On{static_cast<Derived&>(*this), req.object, of(req.parent), req.next,
                                  to_string(req.plugin), number});
    if (req.next) *out = over_kind(req.object->kind, req.next);
    uint64_t& word = req.object->layer_word[req.key];
    word = reinterpret_cast<uint64_t>(on.get());
    try {
      static_cast<Derived&>(*this).attached(*on);
    } catch (...) {
      word = 0;
      throw;
    }
    on.release();
    return {};
  }

  static inline std::atomic<uint64_t> key_{0};
  const belay_host& host_;
  std::mutex mutex_;                                           // of the next
  std::map<const void*, std::unique_ptr<uint64_t[]>> tables_;  // by the table below
  std::map<uint32_t, uint64_t> numbers_;                       // of each kind
};

}  // namespace belay
