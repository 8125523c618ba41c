// hal/hal.h: all devices of a runtime, and what they share.
#pragma once

#include <belay/abi/hal.h>
#include <belay/status.hpp>
#include "core/host.h"
#include "hal/device.h"
#include "hal/device_manager.h"
#include "hal/ledger.h"
#include "hal/planner.h"
#include "hal/timelines.h"
#include "hal/uses.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace belay::hal {

enum class QueueFull : uint8_t {
  kHelp,    // the caller runs queued work until there is room
  kBlock,   // the caller sleeps until there is room
  kReport,  // QUEUE_FULL goes to the caller
};

struct HalOptions {
  QueueFull queue_full = QueueFull::kHelp;
  uint64_t memory_limit = 0;  // bytes of each device; 0: what the driver says
  bool checked = false;       // buffers have guard zones, remember where they were made and who uses them
};

// Made before the host starts, so that plugins find its table; devices and policies are there after attach().
// Its destructor ends what was left: streams first (their work is finished), then programs, buffers and
// devices, each named in the log.
class Hal {
 public:
  Hal(core::Host& host, HalOptions options);
  // Drivers and policies are borrowed and outlive this. Once, before any other thread uses it.
  void attach(std::vector<NamedObject> drivers, std::vector<NamedObject> policies);
  ~Hal();
  Hal(const Hal&) = delete;
  Hal& operator=(const Hal&) = delete;

  core::Host& host() { return host_; }
  const HalOptions& options() const { return options_; }
  DeviceManager& devices() { return devices_; }
  Planner& planner() { return planner_; }
  Policies& policies() { return policies_; }
  Timelines& timelines() { return timelines_; }
  // Whether the work up to an event has ended; true too where its stream has.
  bool reached(const belay_event& event);
  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  Uses& uses() { return uses_; }
  Slots<Buffer>& buffers() { return buffers_; }
  Slots<Stream>& streams() { return streams_; }
  Slots<Program>& programs() { return programs_; }
  Slots<Package>& packages() { return packages_; }
  Slots<Device>& device_slots() { return device_slots_; }

  // Objects that the application has made and not destroyed hold their runtime: `change` is called with +1
  // and -1. The last -1 may end this Hal, so it is the last thing done with it.
  void set_holder(void (*change)(void* user, int by), void* user) { holder_ = change, holder_user_ = user; }
  void hold(Object& object) {
    if (!holder_) return;
    object.held = 1;
    holder_(holder_user_, 1);
  }
  void let_go() { holder_(holder_user_, -1); }

  // In a child of fork(): FAILED_PRECONDITION names the process that made this.
  bool forked() const { return *alive_ == 0; }
  Status forked_status() const { return host_.check_process(); }

  // One line in the log for the buffers of one owner, device and call site; `then` says what becomes of them.
  void report_leaks(const char* then);

  // A status of a driver's slot as it may go on: one that the host did not issue is replaced and counted. OK
  // stays OK.
  belay_status pass(belay_status raw, const Object& object, const char* slot);
  belay_status pass(belay_status raw, std::string_view plugin, const char* slot);
  Status take(belay_status raw, std::string_view plugin, const char* slot) {
    return host_.take(raw, plugin, slot);
  }
  belay_status make(const Status& status) { return to_c(host_.table(), status); }
  // What a slot of `plugin` has made becomes an object with the configured layers before it. INTERNAL names the
  // required slots that its table lacks, which leaves what was made alone; where a layer refuses, it is destroyed.
  Status adopt(belay_obj& object, const TableShape& shape, const belay_created& made, const std::string& plugin,
               belay_obj* parent);
  // A buffer, which has no slots.
  Status adopt_buffer(belay_obj& object, void* impl, const std::string& driver, belay_obj* device);
  // The end of what was adopted: through destroy of its table.
  void end(belay_obj& object, const TableShape& shape);
  // Of an object whose destroy, or its device's free, has returned.
  void forget(belay_obj& object) { host_.detach(object); }
  // Of a status that is not passed on.
  void release(belay_status status) const { host_.table().status_release(&host_.table(), status); }

  // Why `handle` is no live object of `kind`; `call` and `name` are words for the message: "copy", "stream".
  Status bad_handle(belay_obj* handle, uint32_t kind, const char* call, const char* name) const;

 private:
  core::Host& host_;
  const HalOptions options_;
  uint64_t* const alive_;  // a word that a forked child finds zero
  void (*holder_)(void* user, int by) = nullptr;
  void* holder_user_ = nullptr;
  Timelines timelines_;
  Ledger ledger_;
  Uses uses_{*this};
  Slots<Device> device_slots_;
  Slots<Buffer> buffers_;
  Slots<Stream> streams_;
  Slots<Program> programs_;
  Slots<Package> packages_;
  Policies policies_;
  DeviceManager devices_;
  Planner planner_;
};

// The table of service belay.host.hal/1. It finds its Hal through core::user_of(host).
const belay_hal_vt& hal_table();

}  // namespace belay::hal
