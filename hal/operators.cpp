#include "hal/operators.h"

#include "hal/hal.h"

#include <belay/graph/verify.hpp>
#include <belay/kinds.hpp>

#include <chrono>
#include <cstring>

namespace belay::hal {
namespace {

constexpr std::chrono::seconds kPatience{10};

}  // namespace

struct Operators::Run {
  explicit Run(Operators& of, Device& on) : owner(of), device(on) {}
  ~Run() {
    owner.finish(last);
    if (context.table) device.hal->end(context, shape::kContext);
    for (Buffer* buffer : staging)
      if (buffer) device.free(buffer);
  }
  const belay_context_vt& vt() const { return *static_cast<const belay_context_vt*>(context.table); }

  Operators& owner;
  Device& device;
  belay_obj context{BELAY_OBJ_MAGIC, shape::kContext.object_kind, 1, nullptr, nullptr, {}};
  belay_event last{};            // of what was queued of it
  std::vector<Buffer*> staging;  // dense memory for operands with strides: inputs, then outputs
};

struct Operators::Entry {
  explicit Entry(Device& on) : device(on) {}
  ~Entry() {
    idle.clear();
    if (executable.table) device.hal->end(executable, shape::kExecutable);
  }
  Device& device;
  std::mutex building;  // held by the thread that prepares it; the two below are its answer
  bool built = false;
  Status failed;
  belay_obj executable{BELAY_OBJ_MAGIC, BELAY_OBJ_EXECUTABLE, 1, nullptr, nullptr, {}};
  std::mutex mutex;  // of the runs
  std::condition_variable given_back;
  std::vector<std::unique_ptr<Run>> idle;
  uint64_t taken = 0;  // runs that threads are queueing now
};

Operators::~Operators() {
  by_signature_.clear();
  recent_.clear();
  retired_.clear();
}

bool Operators::ended(const belay_event& event) const {
  if (!event.timeline) return true;
  const Timelines::Pin stream(hal_.timelines(), event.timeline);
  if (!stream) return true;  // a stream finishes its work before it ends
  const belay_status status = stream->query(event.value);
  hal_.release(status);
  return BELAY_STATUS_CODE(status) != BELAY_UNAVAILABLE;
}

void Operators::finish(const belay_event& event) const {
  if (!event.timeline) return;
  const Timelines::Pin stream(hal_.timelines(), event.timeline);
  if (!stream) return;
  const belay_status status = stream->synchronize(event.value, BELAY_FOREVER);
  hal_.release(status);  // the stream tells of a failure
}

Status Operators::load(Device& device, const belay_op_req& req, Entry& into) const {
  if (!engine_.object)
    return {Code::kFailedPrecondition,
            "No engine is configured, so operators cannot be run; name one under [engine] use."};
  BELAY_ASSIGN(const std::string text, image_of(req));
  std::vector<uint64_t> image((text.size() + 7) / 8);
  std::memcpy(image.data(), text.data(), text.size());
  BELAY_TRY(graph::verify({image.data(), text.size()}));
  const belay_span no_file{};
  belay_load_req load{};
  load.hdr.struct_size = sizeof load;
  load.image = {image.data(), text.size()};
  load.sources = &no_file;
  load.source_count = 1;
  load.device = &device;
  load.options = options_;
  load.name = req.op;
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  const auto& vt = *static_cast<const belay_engine_vt*>(engine_.object->table);
  BELAY_TRY(hal_.host().take(vt.load(engine_.object, &load, &made), engine_.plugin, "load"));
  return hal_.adopt(into.executable, shape::kExecutable, made, engine_.plugin, engine_.object);
}

Result<Operators::EntryPtr> Operators::entry_for(Device& device, const belay_op_req& req) {
  std::string signature = signature_of(req);
  const uint64_t index = device.index();
  signature.append(reinterpret_cast<const char*>(&index), sizeof index);
  EntryPtr entry;
  {
    std::lock_guard lock(mutex_);
    if (const auto at = by_signature_.find(signature); at != by_signature_.end()) {
      ++hits_;
      recent_.splice(recent_.begin(), recent_, at->second);
      entry = at->second->second;
    } else {
      ++misses_;
      entry = std::make_shared<Entry>(device);
      recent_.emplace_front(std::move(signature), entry);
      by_signature_.emplace(recent_.front().first, recent_.begin());
    }
    while (recent_.size() > capacity_) {
      ++evictions_;
      retired_.push_back(std::move(recent_.back().second));
      by_signature_.erase(recent_.back().first);
      recent_.pop_back();
    }
  }
  reap();
  std::lock_guard lock(entry->building);
  if (!entry->built) {
    entry->built = true;
    entry->failed =
        load(device, req, *entry)
            .while_doing("preparing operator " + operator_name(req) + " for '" + device.name() + "'");
    if (!entry->failed.ok()) forget(*entry);
  }
  if (!entry->failed.ok()) return entry->failed;
  return entry;
}

void Operators::forget(const Entry& entry) {
  std::lock_guard lock(mutex_);
  for (auto at = recent_.begin(); at != recent_.end(); ++at) {
    if (at->second.get() != &entry) continue;
    by_signature_.erase(at->first);
    recent_.erase(at);
    return;
  }
}

// Ends what was evicted as soon as nothing of it is queued any more.
void Operators::reap() {
  std::vector<EntryPtr> over;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(retired_, [&](EntryPtr& entry) {
      if (entry.use_count() > 1) return false;
      for (const auto& run : entry->idle)
        if (!ended(run->last)) return false;
      over.push_back(std::move(entry));
      return true;
    });
  }
}

Result<std::unique_ptr<Operators::Run>> Operators::make_run(Entry& entry) {
  const std::string& plugin = engine_.plugin;
  auto run = std::make_unique<Run>(*this, entry.device);
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  const auto& vt = *static_cast<const belay_executable_vt*>(entry.executable.table);
  BELAY_TRY(hal_.host().take(vt.context(&entry.executable, &made), plugin, "context"));
  BELAY_TRY(hal_.adopt(run->context, shape::kContext, made, plugin, &entry.executable));
  if (!BELAY_HAS(&run->vt(), belay_context_vt, enqueue))
    return Status(Code::kUnimplemented,
                  "Engine '" + engine_.name + "' queues no runs on streams, so it runs no operators.");
  return run;
}

// One that this stream used last follows it there; else one that has ended; else a new one, and where the
// engine gives no more, the one that comes back first.
Result<std::unique_ptr<Operators::Run>> Operators::take_run(Entry& entry, const Stream& stream) {
  std::unique_lock lock(entry.mutex);
  const auto take = [&](auto at) {
    std::unique_ptr<Run> run = std::move(*at);
    entry.idle.erase(at);
    ++entry.taken;
    return run;
  };
  for (auto at = entry.idle.begin(); at != entry.idle.end(); ++at)
    if ((*at)->last.timeline == stream.timeline()) return take(at);
  for (auto at = entry.idle.begin(); at != entry.idle.end(); ++at)
    if (ended((*at)->last)) return take(at);
  Result<std::unique_ptr<Run>> made = make_run(entry);
  if (made.ok()) ++entry.taken;
  if (made.ok() || made.status().code() != Code::kResourceExhausted) return made;
  // Where no run is left to come back it is something else that ran out.
  if (entry.idle.empty() && entry.taken == 0) return made;
  if (!entry.given_back.wait_for(lock, kPatience, [&] { return !entry.idle.empty(); })) return made;
  std::unique_ptr<Run> run = take(entry.idle.begin());
  lock.unlock();
  finish(run->last);
  return run;
}

// Gives the engine every operand dense; what has strides goes by way of memory of the run.
Status Operators::bind(Run& run, Stream& stream, const belay_op_req& req, const OperatorViews& views,
                       std::vector<Scatter>& after) const {
  const std::string& plugin = engine_.plugin;
  run.staging.resize(req.input_count + req.output_count);
  const auto stage = [&](size_t at, uint64_t bytes) -> Result<char*> {
    if (!run.staging[at]) {
      belay_alloc_req alloc{};
      alloc.hdr.struct_size = sizeof alloc;
      alloc.bytes = bytes;
      alloc.align = 64;
      BELAY_ASSIGN(run.staging[at], run.device.alloc(alloc, plugin));
    }
    return static_cast<char*>(run.staging[at]->host);
  };
  const auto dense = [](const TensorView& view, void* data) {
    belay_tensor tensor{};
    tensor.hdr.struct_size = sizeof tensor;
    tensor.dtype = view.dtype;
    tensor.rank = uint32_t(view.dims.size());
    tensor.dims = view.dims.data();
    tensor.data = data;
    tensor.bytes = view.bytes;
    return tensor;
  };
  uint64_t next = 0;
  for (uint64_t i = 0; i < req.input_count; ++i) {
    if (!req.inputs[i] || is_constant(req, i)) continue;
    const std::string label = operand(req, "Input", i);
    const TensorView& view = views.inputs[i];
    BELAY_ASSIGN(char* address, address_of(hal_, *req.inputs[i], view, label));
    BELAY_TRY(check_aligned(view, address, label));
    if (!view.dense) {
      BELAY_ASSIGN(char* staged, stage(i, view.bytes));
      const TensorView packed = view.packed();
      BELAY_TRY(hal_.take(copy_view(stream, packed, staged, view, address, nullptr), stream.device().driver(),
                          "copy"));
      address = staged;
    }
    const belay_tensor tensor = dense(view, address);
    belay_datum datum{};
    datum.hdr.struct_size = sizeof datum;
    datum.kind = BELAY_TYPE_TENSOR;
    datum.tensor = &tensor;
    BELAY_TRY(hal_.take(run.vt().set_input(&run.context, next++, &datum), plugin, "set_input"));
  }
  next = 0;
  for (uint64_t i = 0; i < req.output_count; ++i) {
    if (!req.outputs[i]) continue;
    const std::string label = operand(req, "Output", i);
    const TensorView& view = views.outputs[i];
    BELAY_ASSIGN(char* address, address_of(hal_, *req.outputs[i], view, label));
    BELAY_TRY(check_aligned(view, address, label));
    char* written = address;
    if (!view.dense) {
      BELAY_ASSIGN(written, stage(req.input_count + i, view.bytes));
    }
    const belay_tensor tensor = dense(view, written);
    BELAY_TRY(hal_.take(run.vt().set_output(&run.context, next++, &tensor), plugin, "set_output"));
    if (!view.dense) after.push_back({&view, address, written});
  }
  return {};
}

Status Operators::prepare(Device& device, const belay_op_req& req) {
  BELAY_TRY(check_operator(hal_, req).status());
  return entry_for(device, req).status();
}

Status Operators::run(Stream& stream, const belay_op_req& req, belay_event* out) {
  BELAY_ASSIGN(const OperatorViews views, check_operator(hal_, req));
  if (!stream.device().host_visible())
    return {Code::kUnimplemented, "Operator " + operator_name(req) + " on '" + stream.device().name() +
                                      "': the host does not see its memory; load a model for it instead."};
  if (stream.capturing())
    return {Code::kFailedPrecondition,
            "Operator " + operator_name(req) +
                ": the stream is capturing, and an operator, whose memory changes from one "
                "run to the next, is no part of a program."};
  BELAY_ASSIGN(const EntryPtr entry, entry_for(stream.device(), req));
  BELAY_ASSIGN(std::unique_ptr<Run> run, take_run(*entry, stream));
  belay_event done{};
  std::vector<Scatter> after;
  Status status = bind(*run, stream, req, views, after);
  if (status.ok())
    status = hal_.take(run->vt().enqueue(&run->context, &stream, &done), engine_.plugin, "enqueue");
  for (size_t i = 0; status.ok() && i < after.size(); ++i)
    status = hal_.take(
        copy_view(stream, *after[i].to, after[i].address, after[i].to->packed(), after[i].from, &done),
        stream.device().driver(), "copy");
  // Also after a failure: what is queued already uses the run's memory.
  if (const belay_status raw = stream.record(&run->last); raw != BELAY_OK) hal_.release(raw);
  {
    std::lock_guard lock(entry->mutex);
    entry->idle.push_back(std::move(run));
    --entry->taken;
  }
  entry->given_back.notify_one();
  if (!status.ok()) return std::move(status).while_doing("queueing operator " + operator_name(req));
  if (out) *out = done;
  std::lock_guard lock(mutex_);
  ++runs_;
  return {};
}

belay_op_cache_stats Operators::stats() const {
  std::lock_guard lock(mutex_);
  return {{}, recent_.size(), capacity_, hits_, misses_, evictions_, runs_};
}

}  // namespace belay::hal
