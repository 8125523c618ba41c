#include "null_stream.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace null {
namespace {

using belay::Code;
using belay::guard;
using belay::Status;

Status check_range(const char* what, const Buffer& buffer, uint64_t offset, uint64_t bytes) {
  if (bytes <= buffer.bytes && offset <= buffer.bytes - bytes) return {};
  return {Code::kOutOfRange, std::string("The ") + what + " [" + std::to_string(offset) + ", " +
                                 std::to_string(offset) + " + " + std::to_string(bytes) +
                                 ") lies outside of a buffer of " + std::to_string(buffer.bytes) + " bytes."};
}

// The surroundings of a kernel: one thread, scratch memory that ends with it.
struct Exec {
  belay_exec table{};
  const belay_host& host;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> scratch;
  const uint32_t cancelled = 0;

  explicit Exec(const belay_host& host_) : host(host_) {
    table.hdr = {sizeof table, 0, nullptr};
    table.user = this;
    table.threads = 1;
    table.parallel_for = [](const belay_exec*, uint64_t count, void (*body)(void*, uint64_t),
                            void* arg) noexcept {
      for (uint64_t i = 0; i < count; ++i) body(arg, i);
    };
    table.scratch = [](const belay_exec* exec, uint64_t bytes) noexcept -> void* {
      void* block = nullptr;
      if (posix_memalign(&block, 64, bytes ? bytes : 1) != 0) return nullptr;
      static_cast<Exec*>(exec->user)->scratch.emplace_back(block, &std::free);
      return block;
    };
    table.output = [](const belay_exec*, uint64_t, const int64_t*, uint32_t) noexcept -> void* {
      return nullptr;
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
  for (const Failed& one : failed)
    if (value >= one.first && value < one.end) return one.status;
  return {};
}

void Shared::advance(std::unique_lock<std::mutex>& lock, Timeline& timeline, uint64_t value) {
  timeline.reached = std::max(timeline.reached, value);
  std::vector<std::pair<std::function<void(const Status&)>, Status>> ready;
  std::erase_if(timeline.waiters, [&](Timeline::Waiter& waiter) {
    if (waiter.value > timeline.reached) return false;
    ready.emplace_back(std::move(waiter.reached), timeline.status_of(waiter.value));
    return true;
  });
  changed.notify_all();
  if (ready.empty()) return;
  lock.unlock();
  for (auto& [reached, status] : ready) reached(status);
  ready.clear();
  lock.lock();
}

Stream::Stream(std::shared_ptr<Shared> shared, uint64_t timeline, bool continues)
    : shared_(std::move(shared)),
      id_(timeline),
      continues_(continues),
      timeline_(std::make_shared<Timeline>()) {
  std::lock_guard lock(shared_->mutex);
  shared_->timelines[id_] = timeline_;
}

Stream::~Stream() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return waiting_.empty() && !running_ && calls_ == 0; });
  shared_->timelines.erase(id_);
}

Status Stream::queue(Operation operation, uint64_t* out_value) {
  std::unique_lock lock(shared_->mutex);
  if (waiting_.size() >= shared_->queue_depth)
    return {Code::kQueueFull, "The stream holds " + std::to_string(waiting_.size()) +
                                  " operations, as many as queue_depth allows."};
  operation.value = ++timeline_->queued;
  *out_value = operation.value;
  waiting_.push_back(std::move(operation));
  run_ready(lock, false);
  return {};
}

// Runs what stands first and waits for nothing. One thread at a time; another leaves its operation to that
// one.
void Stream::run_ready(std::unique_lock<std::mutex>& lock, bool on_worker) {
  if (running_) return;
  running_ = true;
  while (!waiting_.empty()) {
    Operation& first = waiting_.front();
    if (first.wait && first.wait->reached < first.wait_value) {
      if (!std::exchange(first.resumes, true)) {
        ++calls_;
        first.wait->waiters.push_back({first.wait_value, [this](const Status&) { resume(false); }});
      }
      break;
    }
    if (first.on_worker && !on_worker) {
      if (std::exchange(first.resumes, true)) break;
      ++calls_;
      lock.unlock();
      const belay_status posted = shared_->executor->post_blocking(
          &shared_->host, [](void* stream) noexcept { static_cast<Stream*>(stream)->resume(true); }, this);
      lock.lock();
      if (posted == BELAY_OK) break;
      --calls_;
      const Operation failed = std::move(waiting_.front());
      waiting_.pop_front();
      finish(lock, failed, belay::from_c(shared_->host, posted));
      continue;
    }
    Operation operation = std::move(first);
    waiting_.pop_front();
    run(lock, std::move(operation));
  }
  running_ = false;
  shared_->changed.notify_all();
}

void Stream::run(std::unique_lock<std::mutex>& lock, Operation operation) {
  Status status = continues_ ? Status() : timeline_->status_of(operation.value);
  if (operation.wait) {
    if (status.ok()) status = operation.wait->status_of(operation.wait_value);
  } else if (status.ok()) {
    lock.unlock();
    status =
        operation.body().while_doing("running " + std::string(operation.name) + ", operation " +
                                     std::to_string(operation.value) + " of timeline " + std::to_string(id_));
    operation.body = nullptr;
    lock.lock();
  }
  finish(lock, operation, std::move(status));
}

void Stream::finish(std::unique_lock<std::mutex>& lock, const Operation& operation, Status status) {
  if (!status.ok() && timeline_->status_of(operation.value).ok())
    timeline_->failed.push_back({operation.value, UINT64_MAX, std::move(status)});
  shared_->advance(lock, *timeline_, operation.value);
}

void Stream::resume(bool on_worker) {
  std::unique_lock lock(shared_->mutex);
  if (on_worker)
    shared_->changed.wait(lock, [&] { return !running_; });  // who runs now leaves the rest to this worker
  run_ready(lock, on_worker);
  --calls_;
  shared_->changed.notify_all();  // the last use of this stream
}

Status Stream::synchronize(uint64_t value, uint64_t timeout_ns) {
  std::unique_lock lock(shared_->mutex);
  if (value > timeline_->queued)
    return {Code::kFailedPrecondition, "Value " + std::to_string(value) +
                                           " was not queued; the last one is " +
                                           std::to_string(timeline_->queued) + "."};
  const auto reached = [&] { return timeline_->reached >= value; };
  if (timeout_ns == BELAY_FOREVER)
    shared_->changed.wait(lock, reached);
  else if (!shared_->changed.wait_for(
               lock, std::chrono::nanoseconds(std::min<uint64_t>(timeout_ns, INT64_MAX / 4)), reached))
    return {Code::kDeadlineExceeded, "The stream stands at " + std::to_string(timeline_->reached) +
                                         ", not yet at " + std::to_string(value) + "; the work goes on."};
  return timeline_->status_of(value);
}

Status Stream::recover() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return timeline_->reached >= timeline_->queued; });
  for (Timeline::Failed& one : timeline_->failed) one.end = std::min(one.end, timeline_->queued + 1);
  return {};
}

constexpr belay_stream_vt Stream::kTable = {
    .hdr = {sizeof(belay_stream_vt), 0, nullptr},
    .copy = [](belay_obj* obj, const belay_copy_req* req, uint64_t* out_value) noexcept -> belay_status {
      Stream& stream = belay::self<Stream>(obj);
      return guard(stream.shared_->host, [&]() -> Status {
        char* dst = static_cast<char*>(req->host_dst);
        const char* src = static_cast<const char*>(req->host_src);
        const uint64_t bytes = req->bytes;
        if (req->dst) {
          BELAY_TRY(check_range("target", belay::self<Buffer>(req->dst), req->dst_offset, bytes));
          dst = belay::self<Buffer>(req->dst).data + req->dst_offset;
        }
        if (req->src) {
          BELAY_TRY(check_range("source", belay::self<Buffer>(req->src), req->src_offset, bytes));
          src = belay::self<Buffer>(req->src).data + req->src_offset;
        }
        if (bytes > 0 && (!dst || !src))
          return {Code::kInvalidArgument, "A copy needs a target and a source."};
        if (bytes > 0 && dst < src + bytes && src < dst + bytes)
          return {Code::kInvalidArgument,
                  "The ranges of a copy of " + std::to_string(bytes) + " bytes overlap."};
        return stream.queue({.value = 0,
                             .name = "copy",
                             .on_worker = false,
                             .body = [=]() -> Status {
                               if (bytes > 0) std::memcpy(dst, src, bytes);
                               return {};
                             }},
                            out_value);
      });
    },
    .fill = [](belay_obj* obj, const belay_fill_req* req, uint64_t* out_value) noexcept -> belay_status {
      Stream& stream = belay::self<Stream>(obj);
      return guard(stream.shared_->host, [&]() -> Status {
        const uint64_t size = req->pattern_bytes, bytes = req->bytes, pattern = req->pattern;
        if ((size != 1 && size != 2 && size != 4 && size != 8) || bytes % size != 0)
          return {Code::kInvalidArgument,
                  "A fill has a pattern of 1, 2, 4 or 8 bytes that divides its length, not of " +
                      std::to_string(size) + " bytes for " + std::to_string(bytes) + "."};
        if (!req->dst) return {Code::kInvalidArgument, "A fill needs a buffer."};
        const Buffer& buffer = belay::self<Buffer>(req->dst);
        BELAY_TRY(check_range("target", buffer, req->dst_offset, bytes));
        char* const dst = buffer.data + req->dst_offset;
        return stream.queue({.value = 0,
                             .name = "fill",
                             .on_worker = false,
                             .body = [=]() -> Status {
                               for (uint64_t at = 0; at < bytes; at += size)
                                 std::memcpy(dst + at, &pattern, size);
                               return {};
                             }},
                            out_value);
      });
    },
    .launch = [](belay_obj* obj, const belay_launch_req* req, uint64_t* out_value) noexcept -> belay_status {
      Stream& stream = belay::self<Stream>(obj);
      return guard(stream.shared_->host, [&]() -> Status {
        const belay_kernel* const kernel = req->kernel;
        if (!kernel || !kernel->fn) return {Code::kInvalidArgument, "A launch needs a kernel."};
        const belay_host& host = stream.shared_->host;
        std::vector<uint64_t> args(req->args, req->args + req->arg_count);
        const bool worker = kernel->hdr.flags & (BELAY_KERNEL_BLOCKING | BELAY_KERNEL_USER);
        return stream.queue(
            {.value = 0,
             .name = "launch",
             .on_worker = worker,
             .body = [=, &host]() -> Status {
               Exec exec(host);
               Status status = belay::from_c(host, kernel->fn(&exec.table, kernel->state, args.data()));
               return std::move(status).while_doing("running kernel " + belay::to_string(kernel->name));
             }},
            out_value);
      });
    },
    .wait = [](belay_obj* obj, belay_event event, uint64_t* out_value) noexcept -> belay_status {
      Stream& stream = belay::self<Stream>(obj);
      return guard(stream.shared_->host, [&]() -> Status {
        std::shared_ptr<Timeline> timeline;
        if (event.timeline != 0) {
          std::lock_guard lock(stream.shared_->mutex);
          const auto at = stream.shared_->timelines.find(event.timeline);
          if (at == stream.shared_->timelines.end())
            return {Code::kNotFound,
                    "Timeline " + std::to_string(event.timeline) + " is none of this device."};
          timeline = at->second;
          if (timeline == stream.timeline_ && event.value > timeline->queued)
            return {Code::kFailedPrecondition, "The stream would wait for itself: value " +
                                                   std::to_string(event.value) + " is not queued yet."};
        }
        if (!timeline) timeline = std::make_shared<Timeline>();  // no event: always reached
        return stream.queue({.value = 0,
                             .name = "wait",
                             .on_worker = false,
                             .body = nullptr,
                             .wait = timeline,
                             .wait_value = event.timeline ? event.value : 0},
                            out_value);
      });
    },
    .host_call = [](belay_obj* obj, void (*fn)(void*), void* user,
                    uint64_t* out_value) noexcept -> belay_status {
      Stream& stream = belay::self<Stream>(obj);
      return guard(stream.shared_->host, [&]() -> Status {
        if (!fn) return {Code::kInvalidArgument, "host_call was given no function."};
        return stream.queue({.value = 0,
                             .name = "host_call",
                             .on_worker = true,
                             .body = [=]() -> Status {
                               fn(user);
                               return {};
                             }},
                            out_value);
      });
    },
    .flush = nullptr,
    .query = [](belay_obj* obj, uint64_t value) noexcept -> belay_status {
      Stream& stream = belay::self<Stream>(obj);
      return guard(stream.shared_->host, [&]() -> Status {
        std::lock_guard lock(stream.shared_->mutex);
        if (stream.timeline_->reached < value) return {Code::kUnavailable, "Not reached yet."};
        return stream.timeline_->status_of(value);
      });
    },
    .synchronize = [](belay_obj* obj, uint64_t value, uint64_t timeout_ns) noexcept -> belay_status {
      Stream& stream = belay::self<Stream>(obj);
      return guard(stream.shared_->host, [&] { return stream.synchronize(value, timeout_ns); });
    },
    .on_reached = [](belay_obj* obj, uint64_t value, belay_completion completion) noexcept -> belay_status {
      Stream& stream = belay::self<Stream>(obj);
      const belay_host& host = stream.shared_->host;
      return guard(host, [&]() -> Status {
        if (!completion.done) return {Code::kInvalidArgument, "on_reached was given no completion."};
        std::unique_lock lock(stream.shared_->mutex);
        stream.timeline_->waiters.push_back({value, [completion, &host](const Status& status) {
                                               completion.done(completion.user, belay::to_c(host, status));
                                             }});
        stream.shared_->advance(lock, *stream.timeline_, stream.timeline_->reached);
        return {};
      });
    },
    .last_value = [](belay_obj* obj) noexcept -> uint64_t {
      Stream& stream = belay::self<Stream>(obj);
      std::lock_guard lock(stream.shared_->mutex);
      return stream.timeline_->queued;
    },
    .recover = [](belay_obj* obj) noexcept -> belay_status {
      Stream& stream = belay::self<Stream>(obj);
      return guard(stream.shared_->host, [&] { return stream.recover(); });
    },
    .destroy = [](belay_obj* obj) noexcept { delete static_cast<Stream*>(obj->impl); },
};

}  // namespace null
