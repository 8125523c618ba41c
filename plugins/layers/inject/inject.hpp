// The layer: calls that meet a rule fail, are late, or lose their device.
#pragma once

#include <belay/layer.hpp>

#include "rules.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace belay::inject {

struct State {
  std::atomic<bool> lost{false};  // a device
};

// A reader whose source 0 ends early.
struct ShortReader : belay_model_reader {
  ShortReader(belay_model_reader& real_, uint64_t most_) : belay_model_reader(real_), real(real_), most(most_) {
    map = [](belay_model_reader* self, uint32_t source, belay_span* out) BELAY_NOEXCEPT -> belay_status {
      const auto& mine = *static_cast<ShortReader*>(self);
      const belay_status status = mine.real.map(&mine.real, source, out);
      if (status == BELAY_OK && source == 0) out->len = std::min(out->len, mine.most);
      return status;
    };
    open = [](belay_model_reader* self, belay_str name, uint32_t* out) BELAY_NOEXCEPT -> belay_status {
      const auto& mine = *static_cast<ShortReader*>(self);
      return mine.real.open(&mine.real, name, out);
    };
  }
  belay_model_reader& real;
  const uint64_t most;
};

class Inject : public Layer<Inject, State> {
 public:
  Inject(const belay_host& host, std::vector<Rule> rules, uint64_t seed)
      : Layer(host), rules_(std::move(rules), seed) {}

  Status report(belay_sink sink) { return rules_.report(sink), Status(); }

  template <class Call>
  auto around(Call& call) -> typename Call::Result {
    On* const device = device_of(call.on);
    for (const Rule* rule : rules_.met(Call::table, call.slot)) {
      if (rule->what == Rule::What::kDelay) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(rule->amount));
        continue;
      }
      if constexpr (Call::template is<&belay_model_format_vt::parse>()) {
        if (rule->what == Rule::What::kShort) {
          ShortReader reader(*call.template arg<0>(), rule->amount);
          call.template arg<0>() = &reader;
          return call();
        }
      }
      if constexpr (Call::gives_status) {
        if (rule->what != Rule::What::kLost)
          return to_c(host(), Status(rule->code, "Layer 'inject' made it fail by its rule '" + rule->text + "'."));
        if (device) device->state.lost = true;
      }
    }
    if constexpr (Call::gives_status) {
      if (device && device->state.lost.load()) return lost(call, *device);
    }
    return call();
  }

 private:
  static On* device_of(On& on) {
    const uint32_t kind = on.object->kind;
    if (kind == BELAY_OBJ_DEVICE) return &on;
    return kind == BELAY_OBJ_STREAM || kind == BELAY_OBJ_PROGRAM || kind == BELAY_OBJ_PACKAGE ? on.parent : nullptr;
  }
  // What a device says that is lost: it tells its state and can be reset.
  template <class Call>
  belay_status lost(Call& call, On& device) {
    if constexpr (Call::template is<&belay_device_vt::reset>()) {
      const belay_status status = call();
      if (status == BELAY_OK) device.state.lost = false;
      return status;
    } else if constexpr (Call::template is<&belay_device_vt::health>()) {
      const belay_status status = call();
      if (status == BELAY_OK) {
        call.template arg<0>()->state = 1;
        if (call.template arg<0>()->reason.write) write(call.template arg<0>()->reason, "layer 'inject' has lost it");
      }
      return status;
    } else if constexpr (Call::template is<&belay_device_vt::info>() || Call::template is<&belay_device_vt::heap>()) {
      return call();
    } else {
      return to_c(host(), Status(Code::kDeviceLost, "Layer 'inject' has lost the device; reset it."));
    }
  }

  Rules rules_;
};

}  // namespace belay::inject
