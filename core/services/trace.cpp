#include "core/services/trace.h"

#include "core/base/thread_owned.h"
#include "core/host_call.h"
#include "core/services/services.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace belay::core {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(50);
constinit std::atomic<uint64_t> last_trace{0};

}  // namespace

struct Trace::Ring : belay_trace_ring {
  std::array<belay_trace_record, kRecords> place;
  std::atomic<bool> finished{false};  // its thread is gone
};

// The rings of a thread, one for each trace that it has written to.
struct Trace::ThreadRings {
  struct Entry {
    uint64_t trace;
    std::shared_ptr<Ring> ring;
  };
  std::vector<Entry> entries;
  ~ThreadRings() {
    for (const Entry& entry : entries) entry.ring->finished = true;
  }
};

Trace::Trace(Executor& executor) : executor_(executor), id_(++last_trace) {}

Trace::~Trace() {
  executor_.cancel(timer_);
  executor_.drain(tasks_, std::chrono::hours(1));
  flush();
}

Result<uint64_t> Trace::listen(Listener listener) {
  auto shared = std::make_shared<Listener>(std::move(listener));
  std::lock_guard lock(mutex_);
  if (timer_ == 0) {
    // The timer's thread is for short work, and listeners may take long.
    BELAY_ASSIGN(timer_, executor_.timer(tasks_, kPeriod, kPeriod, [this] {
      if (__atomic_load_n(&enabled_, __ATOMIC_RELAXED) && tasks_.tasks == 1)
        static_cast<void>(executor_.post_blocking(tasks_, [this] { drain(); }));
    }));
  }
  listeners_.emplace(++last_, std::move(shared));
  __atomic_store_n(&enabled_, 1, __ATOMIC_RELAXED);
  return last_;
}

void Trace::unlisten(uint64_t id) {
  std::lock_guard draining(draining_);  // whoever runs it has ended
  std::lock_guard lock(mutex_);
  listeners_.erase(id);
  if (listeners_.empty()) __atomic_store_n(&enabled_, 0, __ATOMIC_RELAXED);
}

void Trace::flush() { drain(); }

void Trace::drain() {
  std::lock_guard draining(draining_);
  std::vector<std::shared_ptr<Ring>> rings;
  std::vector<std::shared_ptr<Listener>> listeners;
  {
    std::lock_guard lock(mutex_);
    rings = rings_;
    for (const auto& [id, listener] : listeners_) listeners.push_back(listener);
  }
  std::vector<belay_trace_record> batch;
  for (const std::shared_ptr<Ring>& ring : rings) {
    const bool finished = ring->finished;  // before what it wrote last is read
    const uint64_t written = __atomic_load_n(&ring->written, __ATOMIC_ACQUIRE), read = ring->read;
    batch.clear();
    for (uint64_t at = read; at < written; ++at) batch.push_back(ring->records[at & (kRecords - 1)]);
    __atomic_store_n(&ring->read, written, __ATOMIC_RELEASE);
    if (!batch.empty())
      for (const std::shared_ptr<Listener>& listener : listeners) (*listener)(batch);
    if (!finished) continue;
    std::lock_guard lock(mutex_);
    dropped_ += __atomic_load_n(&ring->dropped, __ATOMIC_RELAXED);
    std::erase(rings_, ring);
  }
}

Result<uint32_t> Trace::name(std::string_view text) {
  text = text.substr(0, 1024);
  std::lock_guard lock(mutex_);
  if (const auto at = names_.find(text); at != names_.end()) return at->second;
  if (texts_.size() == kMostNames)
    return Status(Code::kResourceExhausted,
                  "This host has " + std::to_string(kMostNames) + " names of records already.");
  const auto at = names_.emplace(printable(text), uint32_t(texts_.size() + 1)).first;
  if (at->second == texts_.size() + 1) texts_.push_back(&at->first);
  return at->second;
}

std::string Trace::name_text(uint32_t name) const {
  std::lock_guard lock(mutex_);
  return name == 0 || name > texts_.size() ? "" : *texts_[name - 1];
}

belay_trace_ring* Trace::ring() {
  if (!__atomic_load_n(&enabled_, __ATOMIC_RELAXED)) return nullptr;
  ThreadRings* const own = ThreadOwned<ThreadRings>::get();
  if (!own) return nullptr;
  for (const ThreadRings::Entry& entry : own->entries)
    if (entry.trace == id_) return entry.ring.get();
  std::erase_if(own->entries,
                [](const auto& entry) { return entry.ring.use_count() == 1; });  // of traces that ended
  const auto ring = std::make_shared<Ring>();
  std::lock_guard lock(mutex_);
  if (rings_.size() >= kMostRings) return nullptr;
  static_cast<belay_trace_ring&>(*ring) = {.hdr = {sizeof(belay_trace_ring), 0, nullptr},
                                           .enabled = &enabled_,
                                           .records = ring->place.data(),
                                           .capacity = kRecords,
                                           .written = 0,
                                           .read = 0,
                                           .dropped = 0,
                                           .thread = ++threads_};
  rings_.push_back(ring);
  own->entries.push_back({id_, ring});
  return ring.get();
}

uint64_t Trace::dropped() const {
  std::lock_guard lock(mutex_);
  uint64_t sum = dropped_;
  for (const std::shared_ptr<Ring>& ring : rings_) sum += __atomic_load_n(&ring->dropped, __ATOMIC_RELAXED);
  return sum;
}

const belay_trace_vt kTraceTable = {
    {sizeof(belay_trace_vt), 0, nullptr},
    [](const belay_host* host) {
      return host_call<const uint32_t*>(host,
                                        [](HostTable& table) { return services_of(table).trace.enabled(); });
    },
    [](const belay_host* host, belay_str text, uint32_t* out) {
      return host_call<belay_status>(host, [&](HostTable& table) -> Status {
        if (!out) return {Code::kInvalidArgument, "name of a record was given no place for the id."};
        BELAY_ASSIGN(*out, services_of(table).trace.name(to_view(text)));
        return {};
      });
    },
    [](const belay_host* host, uint32_t name, belay_sink sink) {
      host_call<void>(host, [&](HostTable& table) { write(sink, services_of(table).trace.name_text(name)); });
    },
    [](const belay_host* host) {
      return host_call<belay_trace_ring*>(host,
                                          [](HostTable& table) { return services_of(table).trace.ring(); });
    }};

}  // namespace belay::core
