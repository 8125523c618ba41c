#include "hal/uses.h"

#include "hal/hal.h"
#include "hal/tensor_view.h"

#include <algorithm>

namespace belay::hal {

const Buffer* Uses::buffer_of(belay_obj* handle, const void* address) const {
  if (handle) return alive<Buffer>(handle);
  return address ? static_cast<const Buffer*>(hal_.ledger().find(address).buffer) : nullptr;
}

void Uses::queued(const char* call, belay_event event, const std::vector<belay_obj*>& buffers,
                  const std::vector<const void*>& addresses) {
  if (!event.timeline) return;
  std::lock_guard lock(mutex_);
  const auto note = [&](const Buffer* buffer) {
    if (!buffer) return;
    std::vector<Use>& uses = entries_[buffer].queued;
    const auto at = std::find_if(uses.begin(), uses.end(),
                                 [&](const Use& use) { return use.event.timeline == event.timeline; });
    if (at == uses.end())
      uses.push_back({event, call});
    else
      *at = {event, call};
  };
  for (belay_obj* handle : buffers) note(buffer_of(handle, nullptr));
  for (const void* address : addresses) note(buffer_of(nullptr, address));
}

void Uses::add(const belay_tensor& tensor, const std::shared_ptr<Lent>& lent, bool& found) {
  const Buffer* buffer = buffer_of(tensor.data ? nullptr : tensor.buffer, tensor.data);
  if (!buffer) return;
  found = true;
  std::vector<std::weak_ptr<Lent>>& all = entries_[buffer].lent;
  std::erase_if(all, [](const std::weak_ptr<Lent>& each) { return each.expired(); });
  all.push_back(lent);
}

std::shared_ptr<Lent> Uses::lend(const belay_datum& datum, std::string who) {
  auto lent = std::make_shared<Lent>();
  lent->who = std::move(who);
  bool found = false;
  std::lock_guard lock(mutex_);
  each_tensor(datum, [&](const belay_tensor& tensor) { add(tensor, lent, found); });
  return found ? lent : nullptr;
}

// "operation 3 (fill) queued on a stream of 'cpu:0'"; empty: it has ended.
std::string Uses::going_on(const Use& use) const {
  if (hal_.reached(use.event)) return {};
  const Timelines::Pin stream(hal_.timelines(), use.event.timeline);
  if (!stream) return {};
  return "operation " + std::to_string(use.event.value) + " (" + use.call + ") queued on a stream of '" +
         stream->device().name() + "'";
}

void Uses::waited(belay_event at, belay_event source) {
  std::lock_guard lock(mutex_);
  Waits& waits = waits_[at.timeline];
  if (waits.all.size() >= waits.enough) {
    // What is reached has no use that goes on.
    std::erase_if(waits.all, [&](const Wait& wait) { return hal_.reached(wait.source); });
    waits.enough = std::max<size_t>(64, 2 * waits.all.size());
  }
  waits.all.push_back({at.value, source});
}

void Uses::ended(uint64_t timeline) {
  std::lock_guard lock(mutex_);
  waits_.erase(timeline);
}

bool Uses::implied(const std::vector<belay_event>& events, belay_event event) const {
  std::map<uint64_t, uint64_t> seen;  // how far each timeline is known
  std::vector<belay_event> todo = events;
  while (!todo.empty()) {
    const belay_event next = todo.back();
    todo.pop_back();
    if (next.timeline == event.timeline && next.value >= event.value) return true;
    uint64_t& known = seen[next.timeline];
    if (next.value <= known) continue;
    if (const auto at = waits_.find(next.timeline); at != waits_.end())
      for (const Wait& wait : at->second.all)
        if (wait.value > known && wait.value <= next.value) todo.push_back(wait.source);
    known = next.value;
  }
  return false;
}

Status Uses::end_after(const Buffer& buffer, const std::vector<belay_event>& events) {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(&buffer);
  if (at == entries_.end()) return {};
  for (const Use& use : at->second.queued) {
    const std::string user = implied(events, use.event) ? std::string() : going_on(use);
    if (user.empty()) continue;
    return {Code::kFailedPrecondition,
            "buffer_destroy_after: a buffer of " + std::to_string(buffer.bytes) + " bytes on '" +
                buffer.device->name() + "' is used by " + user +
                ", which none of the events covers: give an event of that stream from there on as well, or of work behind a "
                "wait for it."};
  }
  for (const std::weak_ptr<Lent>& weak : at->second.lent)
    if (const std::shared_ptr<Lent> lent = weak.lock()) lent->gone = true;
  entries_.erase(at);
  return {};
}

void Uses::forget(const Buffer& buffer) {
  std::lock_guard lock(mutex_);
  entries_.erase(&buffer);
}

Status Uses::end(const Buffer& buffer, std::vector<belay_event>& left) {
  Entry entry;
  {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(&buffer);
    if (at == entries_.end()) return {};
    entry = std::move(at->second);
    entries_.erase(at);
  }
  std::string users, advice;
  const auto say = [&](const std::string& who) { (users += users.empty() ? "" : ", ") += who; };
  for (const Use& use : entry.queued) {
    const std::string user = going_on(use);
    if (user.empty()) continue;
    say(user);
    advice = "wait for its event first, or destroy the buffer with buffer_destroy_after";
    // Its end is waited for, so that the memory is nobody's when the caller goes on.
    if (const Timelines::Pin stream(hal_.timelines(), use.event.timeline); stream)
      hal_.release(stream->synchronize(use.event.value, BELAY_FOREVER));
    if (!hal_.reached(use.event)) left.push_back(use.event);
  }
  for (const std::weak_ptr<Lent>& weak : entry.lent) {
    const std::shared_ptr<Lent> lent = weak.lock();
    if (!lent) continue;
    lent->gone = true;
    say(lent->who);
    advice +=
        (advice.empty() ? "" : "; ") + std::string("set other memory there, or destroy the context, first");
  }
  if (users.empty()) return {};
  const std::string made = buffer.guard ? buffer.guard->made.text() : std::string();
  return {Code::kFailedPrecondition,
          std::string(buffer.borrowed ? "A buffer over lent memory of " : "A buffer of ") +
              std::to_string(buffer.bytes) + " bytes on '" + buffer.device->name() + "'" +
              (made.empty() ? "" : ", made by " + made + ",") + " was destroyed while it was used by " +
              users + ": " + advice + "."};
}

}  // namespace belay::hal
