#include "stream.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

using belay::Code;
using belay::Status;

namespace {

Status check_range(const char* what, const Buffer& buffer, uint64_t offset, uint64_t bytes) {
  if (bytes <= buffer.bytes && offset <= buffer.bytes - bytes) return {};
  return {Code::kOutOfRange, std::string("The ") + what + " [" + std::to_string(offset) + ", " +
                                 std::to_string(offset) + " + " + std::to_string(bytes) +
                                 ") lies outside of a buffer of " + std::to_string(buffer.bytes) + " bytes."};
}

// What a running kernel finds around it: one thread, scratch memory that ends with it.
struct Exec {
  belay_exec table{};
  const belay_host& host;
  const belay_launch_req& launch;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> scratch;
  const uint32_t cancelled = 0;

  Exec(const belay_host& from, const belay_launch_req& req) : host(from), launch(req) {
    table.hdr.struct_size = sizeof table;
    table.user = this;
    table.threads = 1;
    table.parallel_for = [](const belay_exec*, uint64_t count, void (*body)(void*, uint64_t),
                            void* arg) noexcept {
      for (uint64_t i = 0; i < count; ++i) body(arg, i);
    };
    table.scratch = [](const belay_exec* exec, uint64_t bytes) noexcept -> void* {
      auto& all = static_cast<Exec*>(exec->user)->scratch;
      void* block = nullptr;
      if (posix_memalign(&block, 64, std::max<uint64_t>(bytes, 1)) != 0) return nullptr;
      try {
        all.emplace_back(block, &std::free);
      } catch (...) {
        std::free(block);
        return nullptr;
      }
      return block;
    };
    table.output = [](const belay_exec* exec, uint64_t index, const int64_t* dims,
                      uint32_t rank) noexcept -> void* {
      const belay_launch_req& req = static_cast<Exec*>(exec->user)->launch;
      return req.output ? req.output(req.output_user, index, dims, rank) : nullptr;
    };
    table.fail = [](const belay_exec* exec, uint32_t code, belay_str message) noexcept {
      const belay_host& to = static_cast<Exec*>(exec->user)->host;
      return to.status_make(&to, code, message);
    };
    table.cancelled = &cancelled;
  }
};

}  // namespace

Status Timeline::status_of(uint64_t value) const {
  for (const Failure& failure : failures)
    if (value >= failure.first && value < failure.end) return failure.status;
  return {};
}

void Shared::advance(std::unique_lock<std::mutex>& lock, Timeline& timeline, uint64_t value) {
  timeline.reached = std::max(timeline.reached, value);
  std::vector<std::pair<belay_completion, Status>> due;
  std::erase_if(timeline.waiters, [&](const Timeline::Waiter& waiter) {
    if (waiter.value > timeline.reached) return false;
    due.emplace_back(waiter.completion, timeline.status_of(waiter.value));
    return true;
  });
  for (Stream* stream : std::exchange(timeline.blocked, {})) stream->wake(lock);  // it looks again
  changed.notify_all();
  if (due.empty()) return;
  lock.unlock();
  for (const auto& [completion, status] : due) completion.done(completion.user, belay::to_c(host, status));
  lock.lock();
}

Stream::Stream(std::shared_ptr<Shared> shared, uint64_t timeline, bool continues)
    : shared_(std::move(shared)),
      id_(timeline),
      continues_(continues),
      timeline_(std::make_shared<Timeline>()) {
  const std::lock_guard lock(shared_->mutex);
  shared_->timelines[id_] = timeline_;
}

Stream::~Stream() {
  std::unique_lock lock(shared_->mutex);
  // A worker that was asked for is on its way; where there was none to be had this thread does the work.
  while (!waiting_.empty() || running_ || worker_) {
    if (!running_ && !worker_) run_ready(lock, true);
    if (!waiting_.empty() || running_ || worker_) shared_->changed.wait(lock);
  }
  for (auto& [id, timeline] : shared_->timelines) std::erase(timeline->blocked, this);
  shared_->timelines.erase(id_);
}

Status Stream::queue(Operation operation, uint64_t* out_value) {
  std::unique_lock lock(shared_->mutex);
  if (waiting_.size() >= shared_->queue_depth)
    return {Code::kQueueFull, "The stream holds " + std::to_string(waiting_.size()) +
                                  " operations, as many as queue_depth allows."};
  operation.value = timeline_->queued + 1;
  waiting_.push_back(std::move(operation));
  *out_value = ++timeline_->queued;
  wake(lock);
  return {};
}

void Stream::wake(std::unique_lock<std::mutex>&) {
  if (worker_ || waiting_.empty()) return;
  const belay_status posted = shared_->executor.post_blocking(
      &shared_->host, [](void* stream) noexcept { static_cast<Stream*>(stream)->work(); }, this);
  worker_ = posted == BELAY_OK;
  if (!worker_) shared_->host.status_release(&shared_->host, posted);  // query and synchronize ask again
}

void Stream::work() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return !running_; });
  run_ready(lock, true);
  worker_ = false;
  shared_->changed.notify_all();  // the last use of this stream
}

void Stream::run_ready(std::unique_lock<std::mutex>& lock, bool on_worker) {
  if (running_) return;
  running_ = true;
  while (!waiting_.empty()) {
    Operation& first = waiting_.front();
    if (first.before && first.before->reached < first.before_value) {
      if (std::find(first.before->blocked.begin(), first.before->blocked.end(), this) ==
          first.before->blocked.end())
        first.before->blocked.push_back(this);
      break;
    }
    if (first.on_worker && !on_worker) break;
    const Operation operation = std::move(first);
    waiting_.pop_front();
    Status status = continues_ ? Status() : timeline_->status_of(operation.value);
    if (status.ok() && operation.before) status = operation.before->status_of(operation.before_value);
    if (status.ok() && operation.body) {
      lock.unlock();
      try {
        status = operation.body();
      } catch (const std::exception& error) {  // no memory
        status = {Code::kResourceExhausted, error.what()};
      }
      lock.lock();
      status = std::move(status).while_doing("running " + std::string(operation.name) + ", operation " +
                                             std::to_string(operation.value) + " of timeline " +
                                             std::to_string(id_));
    }
    if (!status.ok() && timeline_->status_of(operation.value).ok())
      timeline_->failures.push_back({operation.value, UINT64_MAX, std::move(status)});
    shared_->advance(lock, *timeline_, operation.value);
  }
  running_ = false;
  shared_->changed.notify_all();
}

Status Stream::copy(const belay_copy_req& req, uint64_t* out_value) {
  char* dst = static_cast<char*>(req.host_dst);
  const char* src = static_cast<const char*>(req.host_src);
  const uint64_t bytes = req.bytes;
  if (req.dst) {
    BELAY_TRY(check_range("target", belay::self<Buffer>(req.dst), req.dst_offset, bytes));
    dst = belay::self<Buffer>(req.dst).data + req.dst_offset;
  }
  if (req.src) {
    BELAY_TRY(check_range("source", belay::self<Buffer>(req.src), req.src_offset, bytes));
    src = belay::self<Buffer>(req.src).data + req.src_offset;
  }
  if (bytes > 0 && (!dst || !src)) return {Code::kInvalidArgument, "A copy needs a target and a source."};
  if (bytes > 0 && dst < src + bytes && src < dst + bytes)
    return {Code::kInvalidArgument, "The ranges of a copy of " + std::to_string(bytes) + " bytes overlap."};
  const auto body = [=]() -> Status {
    if (bytes > 0) std::memcpy(dst, src, bytes);
    return {};
  };
  return queue({.name = "copy", .body = body}, out_value);
}

Status Stream::fill(const belay_fill_req& req, uint64_t* out_value) {
  const uint64_t size = req.pattern_bytes, bytes = req.bytes, pattern = req.pattern;
  if ((size != 1 && size != 2 && size != 4 && size != 8) || bytes % size != 0)
    return {Code::kInvalidArgument,
            "A fill has a pattern of 1, 2, 4 or 8 bytes that divides its length, not of " +
                std::to_string(size) + " bytes for " + std::to_string(bytes) + "."};
  if (!req.dst) return {Code::kInvalidArgument, "A fill needs a buffer."};
  BELAY_TRY(check_range("target", belay::self<Buffer>(req.dst), req.dst_offset, bytes));
  char* const dst = belay::self<Buffer>(req.dst).data + req.dst_offset;
  const auto body = [=]() -> Status {
    for (uint64_t at = 0; at < bytes; at += size) std::memcpy(dst + at, &pattern, size);
    return {};
  };
  return queue({.name = "fill", .body = body}, out_value);
}

Status Stream::launch(const belay_launch_req& req, uint64_t* out_value) {
  const belay_kernel* const kernel = req.kernel;
  if (!kernel || !kernel->fn) return {Code::kInvalidArgument, "A launch needs a kernel."};
  std::vector<uint64_t> args(req.args, req.args + req.arg_count);
  const belay_host& to = host();
  auto body = [kernel, req, args = std::move(args), &to]() -> Status {
    Exec exec(to, req);
    return belay::from_c(to, kernel->fn(&exec.table, kernel->state, args.data()))
        .while_doing("running kernel " + belay::to_string(kernel->name));
  };
  const bool worker = kernel->hdr.flags & (BELAY_KERNEL_BLOCKING | BELAY_KERNEL_USER);
  return queue({.name = "launch", .on_worker = worker, .body = std::move(body)}, out_value);
}

Status Stream::wait(belay_event event, uint64_t* out_value) {
  std::shared_ptr<Timeline> before = std::make_shared<Timeline>();  // timeline 0: no event, always reached
  if (event.timeline != 0) {
    const std::lock_guard lock(shared_->mutex);
    const auto at = shared_->timelines.find(event.timeline);
    if (at == shared_->timelines.end())
      return {Code::kNotFound, "Timeline " + std::to_string(event.timeline) + " is none of this device."};
    before = at->second;
    if (before == timeline_ && event.value > before->queued)
      return {Code::kFailedPrecondition, "The stream would wait for itself: value " +
                                             std::to_string(event.value) + " is not queued yet."};
  }
  return queue(
      {.name = "wait", .body = nullptr, .before = before, .before_value = event.timeline ? event.value : 0},
      out_value);
}

Status Stream::host_call(void (*fn)(void*), void* user, uint64_t* out_value) {
  if (!fn) return {Code::kInvalidArgument, "host_call was given no function."};
  const auto body = [=]() -> Status {
    fn(user);
    return {};
  };
  return queue({.name = "host_call", .on_worker = true, .body = body}, out_value);
}

Status Stream::was_queued(uint64_t value) const {
  if (value <= timeline_->queued) return {};
  return {Code::kFailedPrecondition, "Value " + std::to_string(value) + " was not queued; the last one is " +
                                         std::to_string(timeline_->queued) + "."};
}

Status Stream::query(uint64_t value) {
  std::unique_lock lock(shared_->mutex);
  if (timeline_->reached >= value) return timeline_->status_of(value);
  wake(lock);
  return {Code::kUnavailable, "The stream stands at " + std::to_string(timeline_->reached) + ", not yet at " +
                                  std::to_string(value) + "."};
}

Status Stream::synchronize(uint64_t value, uint64_t timeout_ns) {
  std::unique_lock lock(shared_->mutex);
  BELAY_TRY(was_queued(value));
  const auto reached = [&] { return timeline_->reached >= value; };
  if (timeout_ns == BELAY_FOREVER) run_ready(lock, false);  // it might take longer than another timeout
  if (!reached()) wake(lock);
  if (timeout_ns == BELAY_FOREVER)
    shared_->changed.wait(lock, reached);
  else if (!shared_->changed.wait_for(
               lock, std::chrono::nanoseconds(std::min<uint64_t>(timeout_ns, INT64_MAX / 4)), reached))
    return {Code::kDeadlineExceeded, "The stream stands at " + std::to_string(timeline_->reached) +
                                         ", not yet at " + std::to_string(value) + "; the work goes on."};
  return timeline_->status_of(value);
}

Status Stream::on_reached(uint64_t value, belay_completion completion) {
  if (!completion.done) return {Code::kInvalidArgument, "on_reached was given no completion."};
  std::unique_lock lock(shared_->mutex);
  BELAY_TRY(was_queued(value));
  if (timeline_->reached < value) {
    timeline_->waiters.push_back({value, completion});
    wake(lock);
    return {};
  }
  const Status status = timeline_->status_of(value);
  lock.unlock();
  completion.done(completion.user, belay::to_c(host(), status));
  return {};
}

uint64_t Stream::last_value() {
  const std::lock_guard lock(shared_->mutex);
  return timeline_->queued;
}

Status Stream::recover() {
  std::unique_lock lock(shared_->mutex);
  run_ready(lock, false);
  wake(lock);
  shared_->changed.wait(lock, [&] { return timeline_->reached >= timeline_->queued; });
  for (Timeline::Failure& one : timeline_->failures) one.end = std::min(one.end, timeline_->queued + 1);
  return {};
}

// ---- the table
// -----------------------------------------------------------------------------------------------------
namespace {

template <class Body>
belay_status with(belay_obj* object, Body&& body) noexcept {
  Stream& stream = belay::self<Stream>(object);
  return belay::guard(stream.host(), [&]() -> Status { return body(stream); });
}

belay_status copy(belay_obj* object, const belay_copy_req* req, uint64_t* out_value) noexcept {
  return with(object, [&](Stream& stream) { return stream.copy(*req, out_value); });
}
belay_status fill(belay_obj* object, const belay_fill_req* req, uint64_t* out_value) noexcept {
  return with(object, [&](Stream& stream) { return stream.fill(*req, out_value); });
}
belay_status launch(belay_obj* object, const belay_launch_req* req, uint64_t* out_value) noexcept {
  return with(object, [&](Stream& stream) { return stream.launch(*req, out_value); });
}
belay_status wait(belay_obj* object, belay_event event, uint64_t* out_value) noexcept {
  return with(object, [&](Stream& stream) { return stream.wait(event, out_value); });
}
belay_status host_call(belay_obj* object, void (*fn)(void*), void* user, uint64_t* out_value) noexcept {
  return with(object, [&](Stream& stream) { return stream.host_call(fn, user, out_value); });
}
belay_status query(belay_obj* object, uint64_t value) noexcept {
  return with(object, [&](Stream& stream) { return stream.query(value); });
}
belay_status synchronize(belay_obj* object, uint64_t value, uint64_t timeout_ns) noexcept {
  return with(object, [&](Stream& stream) { return stream.synchronize(value, timeout_ns); });
}
belay_status on_reached(belay_obj* object, uint64_t value, belay_completion completion) noexcept {
  return with(object, [&](Stream& stream) { return stream.on_reached(value, completion); });
}
uint64_t last_value(belay_obj* object) noexcept { return belay::self<Stream>(object).last_value(); }
belay_status recover(belay_obj* object) noexcept {
  return with(object, [](Stream& stream) { return stream.recover(); });
}
void destroy(belay_obj* object) noexcept { delete &belay::self<Stream>(object); }

constexpr belay_stream_vt kTable{.hdr = {sizeof(belay_stream_vt), 0, nullptr},
                                 .copy = copy,
                                 .fill = fill,
                                 .launch = launch,
                                 .wait = wait,
                                 .host_call = host_call,
                                 .flush = nullptr,  // work starts by itself
                                 .query = query,
                                 .synchronize = synchronize,
                                 .on_reached = on_reached,
                                 .last_value = last_value,
                                 .recover = recover,
                                 .destroy = destroy};

}  // namespace

const belay_stream_vt& Stream::table() { return kTable; }
