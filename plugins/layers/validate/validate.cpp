#include "validate.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace belay::validate {
namespace {

constexpr size_t kMostDead = 4096, kMostCalled = 4096;

uint64_t this_thread() { return uint64_t(syscall(SYS_gettid)); }

}  // namespace

// ---- objects
// ---------------------------------------------------------------------------------------------------------

void Validate::attached(On& on) try {
  State& state = on.state;
  state.component = !on.parent;
  state.parent = on.parent;
  const uint32_t kind = on.object->kind;
  if (kind == BELAY_OBJ_DEVICE && on.parent) {
    state.name = on.plugin + ":" + std::to_string(on.parent->state.opening);
    state.device = on.number;
  } else {
    state.name = std::string(kind_name(kind)) + " " + std::to_string(on.number) + " of " +
                 (on.parent ? on.parent->state.name : "plugin '" + on.plugin + "'");
    if (on.parent) state.device = on.parent->state.device;
  }
  const std::lock_guard lock(mutex_);
  if (const auto made = made_.find(on.object->impl); made != made_.end()) {
    state.made = std::move(made->second);
    made_.erase(made);
  }
  objects_[on.object] = &on;
  dead_.erase(on.object);
  if (kind == BELAY_OBJ_STREAM) {
    streams_[state.made.timeline] = &on;
    order_.add_stream(state.made.timeline, state.name);
  }
} catch (...) {
  blind_ = true;
  const std::lock_guard lock(mutex_);
  objects_.erase(on.object);
  streams_.erase(on.state.made.timeline);
  throw;
}

void Validate::detached(On& on) noexcept try {
  const uint32_t kind = on.object->kind;
  const bool makes = kind == BELAY_OBJ_DRIVER || kind == BELAY_OBJ_DEVICE || kind == BELAY_OBJ_ENGINE ||
                     kind == BELAY_OBJ_EXECUTABLE;
  const std::lock_guard lock(mutex_);
  for (auto at = makes ? objects_.begin() : objects_.end(); at != objects_.end(); ++at) {
    On* const other = at->second;
    if (other->state.parent != &on) continue;
    other->state.parent = nullptr;
    findings_.add("leak", other->state.made.how + "/" + on.state.name,
                  other->state.name + " (plugin '" + other->plugin + "') is left at the end of " + on.state.name +
                      (other->state.made.how.empty() ? "" : "; it was made by " + other->state.made.how) +
                      ": destroy it first");
  }
  objects_.erase(on.object);
  if (kind == BELAY_OBJ_STREAM) {
    streams_.erase(on.state.made.timeline);
    order_.end_stream(on.state.made.timeline);
  }
  if (kind == BELAY_OBJ_BUFFER) order_.end_buffer(on.number);
  if (dead_.emplace(on.object, on.state.name).second) dead_order_.push_back(on.object);
  if (dead_order_.size() > kMostDead) dead_.erase(dead_order_.front()), dead_order_.pop_front();
} catch (...) {  // no memory to tell of it
}

Validate::On* Validate::find(const belay_obj* object) {
  const std::lock_guard lock(mutex_);
  const auto at = objects_.find(object);
  return at == objects_.end() ? nullptr : at->second;
}

Validate::On* Validate::object_of(const On& on, Look& look, const belay_obj* handle, uint32_t kind, const char* name) {
  const std::string wanted = kind_name(kind);
  if (!required(on, look, handle, name)) return nullptr;
  std::string what;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = objects_.find(handle); at == objects_.end()) {
      const auto dead = dead_.find(handle);
      if (blind_ && dead == dead_.end()) return nullptr;
      what = dead != dead_.end() ? "was destroyed, it was " + dead->second
                                 : "is no object of this runtime; give a " + wanted + " that it has made";
    } else if (at->second->object->kind != kind) {
      what = "is " + at->second->state.name + ", want a " + wanted;
    } else if (at->second->state.ended.load()) {
      what = "was destroyed, it was " + at->second->state.name;
    } else {
      return at->second;
    }
  }
  wrong(look, on, "handle", std::string(name) + what, std::string(name) + " " + what, true);
  return nullptr;
}

Validate::On* Validate::buffer_of(const On& on, Look& look, const belay_obj* handle, const char* name) {
  On* const buffer = object_of(on, look, handle, BELAY_OBJ_BUFFER, name);
  if (buffer && buffer->state.device != on.state.device) {
    wrong(look, on, "foreign", name,
          std::string(name) + " is " + buffer->state.name + ", of another device; copy through host memory", true);
    return nullptr;
  }
  return buffer;
}

// ---- findings
// --------------------------------------------------------------------------------------------------------

void Validate::wrong(Look& look, const On& on, const char* rule, const std::string& key, const std::string& text,
                     bool fatal) {
  const std::string whole = on.state.name + " (plugin '" + on.plugin + "'), " + look.table + "." + look.slot + ": " + text;
  findings_.add(rule, on.state.name + "/" + look.slot + "/" + key, whole + ".");
  if (look.first.empty()) look.first = whole;
  look.fatal |= fatal;
}

belay_status Validate::refused(const Look& look) {
  return to_c(host(), Status(look.fatal ? Code::kInvalidArgument : Code::kFailedPrecondition,
                             "Layer 'validate' refused it: " + look.first + "."));
}

void Validate::size(const On& on, Look& look, uint32_t is, uint64_t want) {
  if (is >= want && is <= 65536) return;
  wrong(look, on, "size", std::to_string(is),
        "a struct_size is " + std::to_string(is) + ", want " + std::to_string(want) +
            " or more; set it to sizeof the struct");
}

bool Validate::range(const On& on, Look& look, const On& buffer, const char* name, uint64_t offset, uint64_t bytes) {
  const uint64_t has = buffer.state.made.bytes;
  if (buffer.state.made.how.empty()) return true;  // there was no memory to keep its size
  if (offset <= has && bytes <= has - offset) return true;
  wrong(look, on, "range", name,
        std::string(name) + ": bytes " + std::to_string(offset) + " + " + std::to_string(bytes) +
            " are not inside " + buffer.state.name + ", which has " + std::to_string(has));
  return false;
}

void Validate::check_status(const On& on, Look& look, belay_status status) {
  if (status == BELAY_OK) return;
  const uint32_t code = BELAY_STATUS_CODE(status);
  if (code == 0 || code >= BELAY_CODE_COUNT || (status & 0xff00)) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(status));
    return wrong(look, on, "status", std::to_string(code),
                 "the plugin gave status " + std::string(text) + ", which has no code of the ABI; give one of base.h");
  }
  if (status >> 16 == 0) return;
  StringSink text, bare;
  host().status_text(&host(), status, text.sink());
  host().status_text(&host(), code, bare.sink());
  if (text.text() == bare.text())
    wrong(look, on, "status", "foreign " + std::to_string(code),
          "the plugin gave a status with code " + std::to_string(code) +
              " and a detail that this host did not issue or that was released; make one with status_make, give it once");
}

void Validate::check_count(On& on, Look& look, uint64_t count) {
  const std::lock_guard lock(mutex_);
  State& state = on.state;
  if (std::exchange(state.counted, true) && state.count != count)
    wrong(look, on, "count", "",
          "the plugin says that there are " + std::to_string(count) + " devices, and said " + std::to_string(state.count) +
              " before; the number must not change while the driver lives");
  state.count = count;
}

// ---- serial slots
// ----------------------------------------------------------------------------------------------------

Validate::Inside::Inside(Validate& layer, On* on_, const char* slot, Look& look) : on(on_) {
  if (!on) return;
  const uint64_t me = this_thread();
  uint64_t other = 0;
  owner = on->state.inside_thread.compare_exchange_strong(other, me);
  if (owner) on->state.inside_slot = slot;
  if (owner || other == me) return;
  const char* const there = on->state.inside_slot.load();
  layer.wrong(look, *on, "serial", there ? there : "",
              "thread " + std::to_string(me) + " is in " + slot + " while thread " + std::to_string(other) + " is in " +
                  (there ? there : "another slot") + "; these slots are [serial]: hold a lock over each call");
}

Validate::Inside::~Inside() {
  if (!owner) return;
  on->state.inside_slot = nullptr;
  on->state.inside_thread = 0;
}

// ---- ends
// ------------------------------------------------------------------------------------------------------------

void Validate::before_end(On& on) {
  on.state.ended = true;
  if (on.object->kind == BELAY_OBJ_STREAM) const std::unique_lock asked(on.state.ending);
}

void Validate::stream_ended(On& on) {
  check_pending(on);
  order_.end_stream(on.state.made.timeline);  // it finishes its work
  clear_host_calls(on);
}

void Validate::after_made(On& on, Look& look, const belay_created& made, bool without_table) {
  if (!made.impl)
    return wrong(look, on, "object", "impl", "the plugin gave OK and no object (impl is NULL)");
  if (!without_table && !made.table)
    return wrong(look, on, "object", "table", "the plugin gave OK and no table");
  if (look.made.how.empty()) look.made.how = std::string(look.table) + "." + look.slot;
  const std::lock_guard lock(mutex_);
  made_[made.impl] = std::move(look.made);
}

// ---- queueing
// -------------------------------------------------------------------------------------------------------

void Validate::begin_queue(Look& look) {
  On& stream = *static_cast<On*>(const_cast<void*>(look.stream));
  if (!races_ || stream.state.capturing) return;
  look.clock = order_.now(stream.state.made.timeline);
  if (!strict_ || look.accesses.empty()) return;
  for (const Race& race : order_.races(stream.state.made.timeline, stream.state.last + 1, look.accesses, look.clock))
    wrong(look, stream, "race", race.key, race.text);
}

void Validate::end_queue(Look& look, uint64_t value, bool wait) {
  On& stream = *static_cast<On*>(const_cast<void*>(look.stream));
  State& state = stream.state;
  if (state.capturing) {
    for (const Access& each : look.accesses)
      state.captured.push_back({each.object, each.buffer, each.buffer_name, each.begin, each.end, each.write});
    return;
  }
  const uint64_t last = state.last;
  if (value < last || (value == last && !wait))
    wrong(look, stream, "value", look.slot,
          "the plugin gave value " + std::to_string(value) + " after " + std::to_string(last) +
              "; the values of a stream must grow");
  else
    state.last = value;
  if (!races_) return;
  std::string key;
  for (const Race& race : order_.queued(state.made.timeline, value, std::move(look.accesses), look.clock))
    if (std::exchange(key, race.key) != race.key) wrong(look, stream, "race", race.key, race.text);
}

void Validate::learn_all(const On& device) {
  std::vector<std::pair<uint64_t, uint64_t>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [timeline, stream] : streams_)
      if (stream->state.device == device.number) all.emplace_back(timeline, stream->state.last);
  }
  for (const auto& [timeline, last] : all) learn(timeline, last);
}

// ---- completions
// ------------------------------------------------------------------------------------------------------

void Validate::wrap(On& on, Look& look, belay_completion& completion, uint64_t value) {
  if (!completion.done) return void(required(on, look, static_cast<void*>(nullptr), "the completion's done"));
  std::unique_ptr<Pending> made(new Pending{*this, completion, &on,
                                            on.state.name + " (plugin '" + on.plugin + "'), " + look.slot +
                                                (value ? " of value " + std::to_string(value) : ""),
                                            on.state.made.timeline, value});
  completion = {made.get(), &Validate::done};
  const std::lock_guard lock(mutex_);
  pending_.emplace(made.get(), std::move(made));
}

void Validate::done(void* user, belay_status status) BELAY_NOEXCEPT {
  Pending& pending = *static_cast<Pending*>(user);
  Validate& layer = pending.layer;
  const belay_completion completion = pending.completion;
  const uint64_t calls = pending.calls.fetch_add(1);
  try {
    if (calls || pending.refused)
      layer.findings_.add("completion", pending.who,
                          pending.who + ": the plugin has called the completion " +
                              (calls ? "more than once" : "of a call that failed") + "; call it once, and only where it was taken.");
    else if (pending.value)
      layer.learn(pending.timeline, pending.value);
    const std::lock_guard lock(layer.mutex_);
    if (const auto at = layer.pending_.find(&pending); !calls && at != layer.pending_.end()) {
      layer.called_.push_back(std::move(at->second));
      layer.pending_.erase(at);
      if (layer.called_.size() > kMostCalled) layer.called_.pop_front();
    }
  } catch (...) {  // no memory to tell of it
  }
  if (calls)
    layer.host().status_release(&layer.host(), status);
  else
    completion.done(completion.user, status);
}

void Validate::after_wrap(const belay_completion& completion, bool taken) {
  if (taken) return;
  const std::lock_guard lock(mutex_);
  const auto at = pending_.find(static_cast<const Pending*>(completion.user));
  if (at == pending_.end()) {  // called although the slot failed
    for (const auto& called : called_)
      if (called.get() == completion.user)
        findings_.add("completion", called->who,
                      called->who + ": the plugin has called the completion of a call that failed; call it once, and "
                                    "only where it was taken.");
    return;
  }
  at->second->refused = true;
  called_.push_back(std::move(at->second));
  pending_.erase(at);
  if (called_.size() > kMostCalled) called_.pop_front();
}

void Validate::check_pending(On& on) {
  const std::lock_guard lock(mutex_);
  for (const auto& [at, pending] : pending_)
    if (pending->of == &on) {
      pending->of = nullptr;
      findings_.add("completion", pending->who + " never",
                    pending->who + ": the plugin has not called the completion until the object's end; call it once, with "
                                   "the failure where there is one.");
    }
}

// ---- host calls
// -----------------------------------------------------------------------------------------------------

void Validate::run_host_call(void* user) BELAY_NOEXCEPT {
  HostCall& call = *static_cast<HostCall*>(user);
  Validate& layer = call.layer;
  void (*const fn)(void*) = call.fn;
  void* const its = call.user;
  try {
    layer.learn(call.timeline, call.before);
  } catch (...) {  // less is known
  }
  {
    const std::lock_guard lock(layer.mutex_);
    call.list.erase(call.at);
  }
  fn(its);
}

void Validate::drop_host_call(On& on, void* user) {
  const std::lock_guard lock(mutex_);
  on.state.host_calls.remove_if([&](const auto& call) { return call.get() == user; });
}

void Validate::clear_host_calls(On& on) {
  const std::lock_guard lock(mutex_);
  on.state.host_calls.clear();
}

}  // namespace belay::validate
