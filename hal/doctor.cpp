// The checks of a runtime: does what the configuration names work?
#include "hal/runtime.h"

#include <belay/abi/diagnostics.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

namespace belay::hal {
namespace {

constexpr uint64_t kPatience = 10'000'000'000;  // a device that answers takes microseconds

// Writes a pattern into a buffer, reads it back, and says what went wrong.
Status round_trip(Device& device) {
  Hal& hal = *device.hal;
  belay_alloc_req alloc{};
  alloc.hdr.struct_size = sizeof alloc;
  alloc.bytes = 4096;
  BELAY_ASSIGN(Buffer * buffer, device.alloc(alloc, "doctor"));
  belay_hal_stream_req how{};
  how.hdr.struct_size = sizeof how;
  Result<Stream*> made = device.make_stream(how);
  if (!made.ok()) {
    device.free(buffer);
    return made.status();
  }
  Stream* stream = *made;
  std::vector<uint8_t> sent(alloc.bytes), got(alloc.bytes);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = uint8_t(i * 7 + 1);
  const Status status = [&]() -> Status {
    const auto done = [&](belay_status raw) { return hal.take(raw, device.driver(), "copy"); };
    belay_copy_req copy{};
    copy.hdr.struct_size = sizeof copy;
    copy.dst = buffer;
    copy.host_src = sent.data();
    copy.bytes = alloc.bytes;
    BELAY_TRY(done(stream->copy(copy, nullptr)));
    copy.dst = nullptr;
    copy.src = buffer;
    copy.host_src = nullptr;
    copy.host_dst = got.data();
    belay_event event{};
    BELAY_TRY(done(stream->copy(copy, &event)));
    return done(stream->synchronize(event.value, kPatience));
  }();
  device.end_stream(stream);
  device.free(buffer);
  BELAY_TRY(status);
  if (got != sent) return {Code::kDataLoss, "4096 bytes written to the device came back different."};
  return {};
}

}  // namespace

void Runtime::check_device(uint64_t index, const Check& each) {
  const std::string name = "device." + hal_->devices().name(index);
  const auto failed = [&](const Status& status) { each(name, BELAY_CHECK_FAILED, status.message()); };
  Result<Device*> device = hal_->devices().open(index);
  if (!device.ok()) return failed(device.status());
  StringSink reason;
  belay_health health{};
  health.hdr.struct_size = sizeof health;
  health.reason = reason.sink();
  const Status asked = hal_->take((*device)->vt().health(*device, &health), (*device)->driver(), "health");
  if (!asked.ok()) return failed(asked);
  if (health.state != 0)
    return failed({Code::kDeviceLost, "The device is lost: " + reason.text() + " Reset it or restart."});
  if (Status works = round_trip(**device); !works.ok()) return failed(works);
  each(name, BELAY_CHECK_PASSED, to_string((*device)->info().name) + ": memory, copies and streams work");
}

void Runtime::doctor(const Check& each) {
  const std::set<std::string> needed = host_->plugins().needed();
  for (const core::PluginInfo& plugin : host_->plugins().list()) {
    const std::string name = "plugin." + plugin.id;
    if (plugin.state == core::PluginState::kActive)
      each(name, BELAY_CHECK_PASSED, "version " + plugin.version + " of " + plugin.file);
    else if (plugin.state == core::PluginState::kFailed || plugin.state == core::PluginState::kQuarantined)
      each(name, needed.contains(plugin.id) ? BELAY_CHECK_FAILED : BELAY_CHECK_WARNING, plugin.reason);
    else
      each(name, BELAY_CHECK_SKIPPED,
           std::string("not used by this configuration (") + core::name_of(plugin.state) + ")");
  }
  for (uint64_t i = 0; i < hal_->devices().count(); ++i) check_device(i, each);
  if (formats_.empty())
    each("models.formats", BELAY_CHECK_WARNING, "no model format is configured, so no model can be read");
  else
    each("models.formats", BELAY_CHECK_PASSED, std::to_string(formats_.size()) + " configured");
  if (engine())
    each("engine", BELAY_CHECK_PASSED, "engine '" + engine_.name + "'");
  else
    each("engine", BELAY_CHECK_WARNING, "no engine is configured ([engine] use), so no model can be run");

  for (const NamedObject& one : diagnostics_) {
    const auto& vt = *static_cast<const belay_diagnostics_vt*>(one.object->table);
    const uint64_t count = vt.check_count(one.object);
    for (uint64_t i = 0; i < count; ++i) {
      belay_check_info info{};
      info.hdr.struct_size = sizeof info;
      uint64_t outcome = BELAY_CHECK_FAILED;
      StringSink text;
      Status status = host_->take(vt.check_info(one.object, i, &info), one.plugin, "check_info");
      if (status.ok())
        status = host_->take(vt.run_check(one.object, i, &outcome, text.sink()), one.plugin, "run_check");
      const std::string name =
          info.name.len ? to_string(info.name) : one.name + ".check-" + std::to_string(i);
      each(name, status.ok() ? outcome : uint64_t(BELAY_CHECK_FAILED),
           status.ok() ? text.text() : status.message());
    }
  }
}

}  // namespace belay::hal
