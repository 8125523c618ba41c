// belay/testing/fake_host.hpp: a real belay_host for tests of plugins and of what calls them: it keeps the log, counts
// every detail and every byte, fails an allocation when told to, has a clock that stands still and an executor that
// runs one task when the test says so. Thread-safe but for the functions marked [test thread].
#pragma once

#include <belay/abi/host.h>
#include <belay/status.hpp>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace belay::testing {

// The object that a host builds around what a plugin made; destroys it once through its table.
template <class Table>
class Adopted {
 public:
  Adopted() = default;
  Adopted(uint32_t kind, const Table* table, void* impl) : object_(std::make_unique<belay_obj>()) {
    *object_ = {BELAY_OBJ_MAGIC, kind, 1, table, impl, {}};
  }
  Adopted(Adopted&&) = default;
  Adopted& operator=(Adopted&& other) {
    if (this != &other) reset(), object_ = std::move(other.object_);
    return *this;
  }
  ~Adopted() { reset(); }

  belay_obj* get() const { return object_.get(); }
  operator belay_obj*() const { return get(); }  // NOLINT: used wherever a handle is wanted
  const Table* operator->() const { return static_cast<const Table*>(object_->table); }
  void reset() {
    if (!object_) return;
    if (auto destroy = static_cast<const Table*>(object_->table)->destroy) destroy(object_.get());
    object_->magic = BELAY_OBJ_DEAD;
    object_.reset();
  }

 private:
  std::unique_ptr<belay_obj> object_;
};

class FakeHost : public belay_host {
  template <class Body>
  auto locked(Body&& body) const {  // first, as its type is needed below
    std::lock_guard lock(mutex_);
    return body();
  }

 public:
  struct Line {
    uint32_t level;
    std::string text;
  };

  FakeHost() : belay_host{} {
    hdr.struct_size = sizeof(belay_host);
    product = to_str("fake");
    version = to_str("0.0.0");
    belay_host::get_service = &FakeHost::slot_get_service;
    belay_host::log = &FakeHost::slot_log;
    belay_host::status_make = &FakeHost::slot_status_make;
    belay_host::status_text = &FakeHost::slot_status_text;
    belay_host::status_release = &FakeHost::slot_status_release;
    belay_host::alloc = &FakeHost::slot_alloc;
    belay_host::free = &FakeHost::slot_free;
    belay_host::now_ns = &FakeHost::slot_now_ns;
    belay_host::misbehave = &FakeHost::slot_misbehave;
    executor_ = {.hdr = {sizeof(belay_executor_vt), 0, nullptr},
                 .post = &FakeHost::slot_post,
                 .post_blocking = &FakeHost::slot_post,
                 .timer = &FakeHost::slot_timer,
                 .cancel = &FakeHost::slot_cancel,
                 .strand = &FakeHost::slot_strand,
                 .post_to = &FakeHost::slot_post_to,
                 .watch_fd = &FakeHost::slot_watch_fd};
    registry_ = {.hdr = {sizeof(belay_registry_vt), 0, nullptr},
                 .acquire = &FakeHost::slot_acquire,
                 .release = &FakeHost::slot_release,
                 .enumerate = &FakeHost::slot_enumerate,
                 .valid = &FakeHost::slot_valid,
                 .watch = &FakeHost::slot_watch,
                 .unwatch = &FakeHost::slot_cancel};
    offer(BELAY_HOST_EXECUTOR, &executor_);
    offer(BELAY_HOST_REGISTRY, &registry_);
  }
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;
  ~FakeHost() {
    for (const auto& [address, bytes] : blocks_) std::free(address);
  }

  // ---- services -----------------------------------------------------------------------------------------------------
  // `state`: what stands behind the table, for its slots. Fakes and mocks of the services of belay/abi/services.h are in
  // fake_services.hpp and mock_services.hpp.
  void offer(std::string_view id, const void* table, void* state = nullptr) {  // NULL takes it back
    std::lock_guard lock(mutex_);
    services_[std::string(id)] = {table, state};
  }
  static void* state_of(const belay_host* host, std::string_view id) {
    FakeHost& self = of(host);
    return self.locked([&] { return self.services_[std::string(id)].state; });
  }
  // What belay.host.registry/1 gives for a key; the object stays the test's. Whoever watches the kind is told by run_one().
  void provide(std::string_view key, belay_obj* object) {
    std::lock_guard lock(mutex_);
    components_[std::string(key)] = object;
    tell(std::string(key), BELAY_COMPONENT_ADDED);
  }
  // Takes it back: leases on it are revoked.
  void withdraw(std::string_view key) {
    std::lock_guard lock(mutex_);
    components_.erase(std::string(key));
    std::erase_if(leases_, [&](const auto& lease) { return lease.second == key; });
    tell(std::string(key), BELAY_COMPONENT_REMOVED);
  }
  uint64_t live_leases() const { return locked([&] { return leases_.size(); }); }

  // ---- what was seen ------------------------------------------------------------------------------------------------
  std::vector<Line> lines() const { return locked([&] { return lines_; }); }
  std::string log_text() const {
    std::string all;
    for (const Line& line : lines()) all += line.text + "\n";
    return all;
  }
  std::vector<std::string> misbehaviour() const { return locked([&] { return misbehaviour_; }); }

  // ---- statuses -----------------------------------------------------------------------------------------------------
  // A status as a slot would return it.
  belay_status make(Code code, std::string_view message) {
    return belay_host::status_make(this, uint32_t(code), to_str(message));
  }
  // The C++ form; takes the detail back.
  Status take(belay_status raw) { return from_c(*this, raw); }
  // The message; the detail stays.
  std::string text(belay_status raw) {
    StringSink sink;
    belay_host::status_text(this, raw, sink.sink());
    return std::move(sink).str();
  }
  // Details that were made and not yet released: 0 at the end of a clean test.
  uint64_t live_details() const { return locked([&] { return details_.size(); }); }

  // ---- memory -------------------------------------------------------------------------------------------------------
  // The k-th allocation from now on (1: the next) and all after it fail; 0: none fails.
  void fail_alloc_from(uint64_t k) { locked([&] { return fail_from_ = k ? allocations_ + k : 0; }); }
  uint64_t live_bytes() const {
    return locked([&] {
      uint64_t sum = 0;
      for (const auto& [address, bytes] : blocks_) sum += bytes;
      return sum;
    });
  }
  uint64_t live_blocks() const { return locked([&] { return blocks_.size(); }); }

  // ---- clock and executor -------------------------------------------------------------------------------------------
  // Moves the clock and runs the timers that become due, in the order of their times. [test thread]
  void advance(uint64_t ns) {
    const uint64_t until = belay_host::now_ns(this) + ns;
    for (;;) {
      std::pair<void (*)(void*), void*> due{};
      {
        std::lock_guard lock(mutex_);
        auto next = timers_.end();
        for (auto at = timers_.begin(); at != timers_.end(); ++at)
          if (at->second.at <= until && (next == timers_.end() || at->second.at < next->second.at)) next = at;
        if (next == timers_.end()) {
          now_ = until;
          return;
        }
        now_ = std::max(now_, next->second.at);
        due = {next->second.task, next->second.user};
        if (next->second.period)
          next->second.at += next->second.period;
        else
          timers_.erase(next);
      }
      due.first(due.second);
    }
  }
  // Runs the oldest posted task; false: there is none. [test thread]
  bool run_one() {
    std::function<void()> task;
    {
      std::lock_guard lock(mutex_);
      if (tasks_.empty()) return false;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
    return true;
  }
  // Queues the tasks of whoever watches the descriptor.
  void ready(int32_t fd) {
    std::lock_guard lock(mutex_);
    for (const auto& [id, watch] : fds_)
      if (watch.fd == fd) tasks_.push_back([watch = watch] { watch.task(watch.user); });
  }
  void run_all() {
    while (run_one()) {
    }
  }
  uint64_t posted() const { return locked([&] { return tasks_.size(); }); }

  // ---- objects ------------------------------------------------------------------------------------------------------
  // Builds the object around a mock, as the host does around what a plugin's `create` gave. The table owns the mock.
  template <class Table, class Mock>
  Adopted<Table> adopt(const Table& table, std::unique_ptr<Mock> mock, uint32_t kind = 0) {
    return Adopted<Table>(kind, &table, mock.release());
  }

 private:
  struct Timer {
    uint64_t at, period;
    void (*task)(void*);
    void* user;
  };

  struct WatchedFd {
    int32_t fd;
    void (*task)(void*);
    void* user;
  };
  struct Watch {
    std::string kind;
    void (*changed)(void*, belay_str, uint32_t);
    void* user;
  };
  // Queues what a watch is told; `only`: one of them. With the lock held.
  void tell(const std::string& key, uint32_t what, uint64_t only = 0) {
    for (const auto& [id, watch] : watches_)
      if ((only == 0 || only == id) && key.starts_with(watch.kind + ":"))
        tasks_.push_back([this, id = id, watch = watch, key, what] {
          if (locked([&] { return watches_.contains(id); })) watch.changed(watch.user, to_str(key), what);
        });
  }

  static FakeHost& of(const belay_host* host) { return *const_cast<FakeHost*>(static_cast<const FakeHost*>(host)); }
  static const void* slot_get_service(const belay_host* host, belay_str id) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    const auto at = self.services_.find(to_string(id));
    return at == self.services_.end() ? nullptr : at->second.table;
  }
  static void slot_log(const belay_host* host, uint32_t level, belay_str text) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    self.lines_.push_back({level, to_string(text)});
  }
  static belay_status slot_status_make(const belay_host* host, uint32_t code, belay_str message) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    const uint64_t id = ++self.last_detail_;
    self.details_[id] = to_string(message);
    return (id << 16) | (code & 0xffu);
  }
  static void slot_status_text(const belay_host* host, belay_status status, belay_sink sink) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::string text = "code " + std::to_string(BELAY_STATUS_CODE(status));
    {
      std::lock_guard lock(self.mutex_);
      if (const auto at = self.details_.find(status >> 16); at != self.details_.end()) text = at->second;
    }
    write(sink, text);
  }
  static void slot_status_release(const belay_host* host, belay_status status) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    self.details_.erase(status >> 16);
  }
  static void* slot_alloc(const belay_host* host, uint64_t bytes, uint64_t align) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    ++self.allocations_;
    if (self.fail_from_ && self.allocations_ >= self.fail_from_) return nullptr;
    const uint64_t unit = align < sizeof(void*) ? sizeof(void*) : align;
    void* block = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit + (bytes ? 0 : unit));
    if (block) self.blocks_[block] = bytes;
    return block;
  }
  static void slot_free(const belay_host* host, void* block) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    if (!block) return;
    if (self.blocks_.erase(block))
      std::free(block);
    else
      self.misbehaviour_.push_back("free of memory that this host did not give");
  }
  static uint64_t slot_now_ns(const belay_host* host) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    return self.locked([&] { return self.now_; });
  }
  static void slot_misbehave(const belay_host* host, belay_str who, belay_str reason) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    self.misbehaviour_.push_back(to_string(who) + ": " + to_string(reason));
  }
  static belay_status slot_post(const belay_host* host, void (*task)(void*), void* user) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    self.tasks_.push_back([task, user] { task(user); });
    return BELAY_OK;
  }
  static belay_status slot_strand(const belay_host* host, uint64_t* out_id) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    self.strands_[*out_id = ++self.last_timer_] = true;
    return BELAY_OK;
  }
  // There is one thread, so every strand keeps its order.
  static belay_status slot_post_to(const belay_host* host, uint64_t strand, void (*task)(void*), void* user)
      BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    if (!self.locked([&] { return self.strands_.contains(strand); })) return self.make(Code::kNotFound, "No such strand.");
    return slot_post(host, task, user);
  }
  static belay_status slot_watch_fd(const belay_host* host, int32_t fd, uint32_t, void (*task)(void*), void* user,
                                    uint64_t* out_id) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    self.fds_[*out_id = ++self.last_timer_] = {fd, task, user};
    return BELAY_OK;
  }
  static belay_status slot_watch(const belay_host* host, belay_str kind,
                                 void (*changed)(void*, belay_str, uint32_t), void* user,
                                 uint64_t* out_id) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    const uint64_t id = *out_id = ++self.last_timer_;
    self.watches_[id] = {to_string(kind), changed, user};
    for (const auto& [key, object] : self.components_) self.tell(key, BELAY_COMPONENT_ADDED, id);
    return BELAY_OK;
  }
  static belay_status slot_valid(const belay_host* host, uint64_t id) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    if (self.locked([&] { return self.leases_.contains(id); })) return BELAY_OK;
    return self.make(Code::kNotFound, "No such lease.");
  }
  static belay_status slot_timer(const belay_host* host, uint64_t delay, uint64_t period, void (*task)(void*),
                                 void* user, uint64_t* out_id) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    *out_id = ++self.last_timer_;
    self.timers_[*out_id] = {self.now_ + delay, period, task, user};
    return BELAY_OK;
  }
  static void slot_cancel(const belay_host* host, uint64_t id) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    self.timers_.erase(id), self.strands_.erase(id), self.fds_.erase(id), self.watches_.erase(id);
  }
  static belay_status slot_acquire(const belay_host* host, belay_str key, belay_lease* out) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    {
      std::lock_guard lock(self.mutex_);
      if (const auto at = self.components_.find(to_string(key)); at != self.components_.end()) {
        out->id = ++self.last_lease_;
        out->object = at->second;
        self.leases_[out->id] = to_string(key);
        return BELAY_OK;
      }
    }
    return self.make(Code::kNotFound, "No plugin offers '" + to_string(key) + "'.");
  }
  static void slot_release(const belay_host* host, uint64_t id) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::lock_guard lock(self.mutex_);
    self.leases_.erase(id);
  }
  static belay_status slot_enumerate(const belay_host* host, belay_str kind, void (*each)(void*, belay_str),
                                     void* user) BELAY_NOEXCEPT {
    FakeHost& self = of(host);
    std::vector<std::string> keys;
    {
      std::lock_guard lock(self.mutex_);
      for (const auto& [key, object] : self.components_)
        if (key.starts_with(to_string(kind) + ":")) keys.push_back(key);
    }
    for (const std::string& key : keys) each(user, to_str(key));
    return BELAY_OK;
  }

  mutable std::mutex mutex_;
  belay_executor_vt executor_{};
  belay_registry_vt registry_{};
  struct Offered {
    const void* table;
    void* state;
  };
  std::map<std::string, Offered> services_;
  std::map<std::string, belay_obj*> components_;
  std::map<uint64_t, std::string> leases_;  // key
  std::vector<Line> lines_;
  std::vector<std::string> misbehaviour_;
  std::map<uint64_t, std::string> details_;
  std::map<void*, uint64_t> blocks_;
  std::deque<std::function<void()>> tasks_;
  std::map<uint64_t, bool> strands_;
  std::map<uint64_t, WatchedFd> fds_;
  std::map<uint64_t, Watch> watches_;
  std::map<uint64_t, Timer> timers_;
  uint64_t last_detail_ = 0, last_timer_ = 0, last_lease_ = 0;
  uint64_t allocations_ = 0, fail_from_ = 0;
  uint64_t now_ = 1'000'000'000;
};

}  // namespace belay::testing
