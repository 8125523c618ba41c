// core/base/slot_call.h: every call from the host into a plugin goes through call_slot.
#pragma once

#include <belay/abi/services.h>
#include <belay/status.hpp>

#include <cxxabi.h>
#include <exception>
#include <new>
#include <string>
#include <utility>

namespace belay::core {

// What the calling thread runs at this moment, innermost first; a crash handler prints it. Host calls are
// forbidden in entry functions and destroy, where they would come back to locks and objects that are half
// made or half gone.
struct SlotCall {
  const char* plugin;
  const char* slot;
  uint32_t domain;  // BELAY_THREAD_...
  const SlotCall* outer;
  static inline constinit thread_local const SlotCall* current = nullptr;

  SlotCall(const char* plugin_, const char* slot_, uint32_t domain_)
      : plugin(plugin_), slot(slot_), domain(domain_), outer(std::exchange(current, this)) {}
  ~SlotCall() { current = outer; }
  SlotCall(const SlotCall&) = delete;
  static bool forbidden() {
    return current && (current->domain & (BELAY_THREAD_ENTRY | BELAY_THREAD_DESTROY)) != 0;
  }
};

// Runs `body`, which calls a slot; what the plugin throws becomes INTERNAL. Cancellation of the thread passes
// through.
template <class Body>
Status call_slot(const char* plugin, const char* slot, uint32_t domain, Body&& body) {
  const SlotCall call(plugin, slot, domain);
  const auto thrown = [&](const std::string& what) {
    return Status(Code::kInternal, "Plugin '" + std::string(plugin) + "' threw " + what + " out of " + slot +
                                       "; slots give statuses and never throw.");
  };
  try {
    body();
    return {};
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (const std::exception& error) {
    return thrown(std::string("an exception (") + error.what() + ")");
  } catch (...) {
    return thrown("something");
  }
}

}  // namespace belay::core
