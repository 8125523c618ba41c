// belay/testing/fake_services.hpp: the services of belay/abi/services.h for a FakeHost: they keep what they are told,
// have their files in memory, and fail when told to. Thread-safe but for the functions marked [test thread].
//
//   FakeHost host;
//   FakeServices services(host);
//   services.fail_at("submit", Code::kDeviceLost);
#pragma once

#include <belay/abi/services.h>
#include <belay/testing/fake_host.hpp>

#include <sys/mman.h>
#include <unistd.h>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace belay::testing {

class FakeServices {
  template <class Body>
  auto locked(Body&& body) const {
    std::lock_guard lock(mutex_);
    return body();
  }

 public:
  struct Line {
    uint64_t level;
    std::string part, message;
    std::vector<std::pair<std::string, std::string>> fields;
  };

  explicit FakeServices(FakeHost& host) : host_(host) {
    ring_ = {.hdr = {sizeof(belay_trace_ring), 0, nullptr},
             .enabled = &tracing_,
             .records = records_.data(),
             .capacity = records_.size(),
             .written = 0,
             .read = 0,
             .dropped = 0,
             .thread = 1};
    for (const auto& [id, table] : tables()) host.offer(id, table, this);
  }
  FakeServices(const FakeServices&) = delete;
  FakeServices& operator=(const FakeServices&) = delete;
  ~FakeServices() {
    for (const auto& [id, table] : tables()) host_.offer(id, nullptr);
  }

  // ---- log: what was written with fields; FakeHost::lines() has the messages too -----------------------------------------
  std::vector<Line> lines() const { return locked([&] { return lines_; }); }

  // ---- metrics -------------------------------------------------------------------------------------------------------------
  // The value of a counter or gauge by name; of a histogram how many values it saw. 0 for an unknown one.
  int64_t metric(const std::string& name) const {
    return locked([&] {
      for (const Metric& metric : metrics_)
        if (metric.name == name)
          return metric.kind == BELAY_METRIC_HISTOGRAM ? int64_t(metric.seen.size()) : metric.value;
      return int64_t{0};
    });
  }
  std::vector<uint64_t> observed(const std::string& name) const {
    return locked([&] {
      for (const Metric& metric : metrics_)
        if (metric.name == name) return metric.seen;
      return std::vector<uint64_t>();
    });
  }

  // ---- trace: one ring, so one thread may write [test thread] -------------------------------------------------------------
  void trace(bool on) { __atomic_store_n(&tracing_, on ? 1u : 0u, __ATOMIC_RELAXED); }
  // What was written since the last call.
  std::vector<belay_trace_record> records() {
    std::vector<belay_trace_record> made;
    const uint64_t written = __atomic_load_n(&ring_.written, __ATOMIC_ACQUIRE);
    for (uint64_t at = ring_.read; at < written; ++at) made.push_back(records_[at % records_.size()]);
    __atomic_store_n(&ring_.read, written, __ATOMIC_RELEASE);
    return made;
  }
  std::string name(uint32_t id) const {
    return locked([&] { return id == 0 || id > names_.size() ? std::string() : names_[id - 1]; });
  }

  // ---- files ---------------------------------------------------------------------------------------------------------------
  void set_file(uint32_t place, const std::string& name, const std::string& text) {
    locked([&] { return files_[{place, name}] = text; });
  }
  // Of the scratch folder; "" where there is none.
  std::string scratch(const std::string& name) const {
    return locked([&] {
      const auto at = files_.find({BELAY_FS_SCRATCH, name});
      return at == files_.end() ? std::string() : at->second;
    });
  }
  void disk_full(bool full) { locked([&] { return full_ = full; }); }

  // ---- threads and faults -----------------------------------------------------------------------------------------------
  void set_domain(uint32_t domain) { locked([&] { return domain_ = domain; }); }
  // The pass after `skip` others, and all later ones, of a point fail; kOk ends that.
  void fail_at(const std::string& point, Code code, uint64_t skip = 0) {
    locked([&] { return faults_[point] = {code, skip}, 0; });
  }

  static std::map<std::string, const void*> tables() {
    return {{BELAY_HOST_LOG, &log_table()},       {BELAY_HOST_METRICS, &metrics_table()},
            {BELAY_HOST_TRACE, &trace_table()},   {BELAY_HOST_FS, &fs_table()},
            {BELAY_HOST_MEMORY, &memory_table()}, {BELAY_HOST_THREAD_CHECK, &thread_check_table()},
            {BELAY_HOST_FAULT, &fault_table()}};
  }

 private:
  struct Metric {
    std::string name;
    uint64_t kind;
    int64_t value;
    std::vector<uint64_t> seen;
  };

  static FakeServices& of(const belay_host* host, const char* id) {
    return *static_cast<FakeServices*>(FakeHost::state_of(host, id));
  }
  belay_status fail(Code code, std::string_view message) { return host_.make(code, message); }

  static const belay_log_vt& log_table() {
    static constexpr belay_log_vt table{
        {sizeof(belay_log_vt), 0, nullptr},
        [](const belay_host*, uint32_t, belay_str) BELAY_NOEXCEPT { return 1u; },
        [](const belay_host* host, const belay_log_req* req) BELAY_NOEXCEPT {
          FakeServices& self = of(host, BELAY_HOST_LOG);
          Line line{req->level, to_string(req->part), to_string(req->message), {}};
          for (uint64_t i = 0; i < req->field_count; ++i)
            line.fields.emplace_back(to_string(req->fields[i].key), to_string(req->fields[i].value));
          host->log(host, uint32_t(req->level), req->message);
          self.locked([&] { return self.lines_.push_back(std::move(line)), 0; });
        },
        [](const belay_host*) BELAY_NOEXCEPT {}};
    return table;
  }

  Metric* find(uint64_t id) { return id == 0 || id > metrics_.size() ? nullptr : &metrics_[id - 1]; }
  static const belay_metrics_vt& metrics_table() {
    static constexpr belay_metrics_vt table{
        {sizeof(belay_metrics_vt), 0, nullptr},
        [](const belay_host* host, const belay_metric_req* req, uint64_t* out) BELAY_NOEXCEPT -> belay_status {
          FakeServices& self = of(host, BELAY_HOST_METRICS);
          std::lock_guard lock(self.mutex_);
          for (size_t i = 0; i < self.metrics_.size(); ++i)
            if (self.metrics_[i].name == to_view(req->name)) return *out = i + 1, BELAY_OK;
          self.metrics_.push_back({to_string(req->name), req->kind, 0, {}});
          return *out = self.metrics_.size(), BELAY_OK;
        },
        [](const belay_host* host, uint64_t id, int64_t by) BELAY_NOEXCEPT {
          FakeServices& self = of(host, BELAY_HOST_METRICS);
          std::lock_guard lock(self.mutex_);
          if (Metric* metric = self.find(id)) metric->value += by;
        },
        [](const belay_host* host, uint64_t id, int64_t value) BELAY_NOEXCEPT {
          FakeServices& self = of(host, BELAY_HOST_METRICS);
          std::lock_guard lock(self.mutex_);
          if (Metric* metric = self.find(id)) metric->value = value;
        },
        [](const belay_host* host, uint64_t id, uint64_t value) BELAY_NOEXCEPT {
          FakeServices& self = of(host, BELAY_HOST_METRICS);
          std::lock_guard lock(self.mutex_);
          if (Metric* metric = self.find(id)) metric->seen.push_back(value);
        },
        [](const belay_host* host, void (*each)(void*, const belay_metric_info*), void* user)
            BELAY_NOEXCEPT -> belay_status {
              FakeServices& self = of(host, BELAY_HOST_METRICS);
              const auto all = self.locked([&] { return self.metrics_; });
              for (const Metric& metric : all) {
                std::array<uint64_t, BELAY_METRIC_BUCKETS> buckets{};
                belay_metric_info info{};
                info.hdr.struct_size = sizeof info;
                info.name = to_str(metric.name), info.kind = metric.kind, info.value = metric.value;
                for (const uint64_t value : metric.seen) {
                  ++info.count, info.sum += value;
                  ++buckets[value == 0 ? 0 : size_t(64 - __builtin_clzll(value))];
                }
                info.buckets = metric.kind == BELAY_METRIC_HISTOGRAM ? buckets.data() : nullptr;
                each(user, &info);
              }
              return BELAY_OK;
            }};
    return table;
  }

  static const belay_trace_vt& trace_table() {
    static constexpr belay_trace_vt table{
        {sizeof(belay_trace_vt), 0, nullptr},
        [](const belay_host* host) BELAY_NOEXCEPT -> const uint32_t* { return &of(host, BELAY_HOST_TRACE).tracing_; },
        [](const belay_host* host, belay_str text, uint32_t* out) BELAY_NOEXCEPT -> belay_status {
          FakeServices& self = of(host, BELAY_HOST_TRACE);
          std::lock_guard lock(self.mutex_);
          for (size_t i = 0; i < self.names_.size(); ++i)
            if (self.names_[i] == to_view(text)) return *out = uint32_t(i + 1), BELAY_OK;
          self.names_.push_back(to_string(text));
          return *out = uint32_t(self.names_.size()), BELAY_OK;
        },
        [](const belay_host* host, uint32_t name, belay_sink sink) BELAY_NOEXCEPT {
          write(sink, of(host, BELAY_HOST_TRACE).name(name));
        },
        [](const belay_host* host) BELAY_NOEXCEPT -> belay_trace_ring* {
          FakeServices& self = of(host, BELAY_HOST_TRACE);
          return __atomic_load_n(&self.tracing_, __ATOMIC_RELAXED) ? &self.ring_ : nullptr;
        }};
    return table;
  }

  belay_status find_file(uint32_t place, belay_str name, std::string& text) {
    std::lock_guard lock(mutex_);
    const auto at = files_.find({place, to_string(name)});
    if (at == files_.end()) return fail(Code::kNotFound, "There is no file '" + to_string(name) + "'.");
    return text = at->second, BELAY_OK;
  }
  static const belay_fs_vt& fs_table() {
    static constexpr belay_fs_vt table{
        {sizeof(belay_fs_vt), 0, nullptr},
        [](const belay_host*, uint32_t place, belay_sink sink) BELAY_NOEXCEPT -> belay_status {
          return write(sink, place == BELAY_FS_DATA ? "/fake/data" : "/fake/scratch"), BELAY_OK;
        },
        [](const belay_host* host, uint32_t place, belay_str name, uint32_t, int32_t* out)
            BELAY_NOEXCEPT -> belay_status {
              FakeServices& self = of(host, BELAY_HOST_FS);  // a copy: what is written to it is not kept
              std::string text;
              if (const belay_status status = self.find_file(place, name, text)) return status;
              *out = memfd_create("fake", MFD_CLOEXEC);
              if (*out < 0 || pwrite(*out, text.data(), text.size(), 0) != ssize_t(text.size()))
                return self.fail(Code::kResourceExhausted, "No memory for a fake file.");
              return BELAY_OK;
            },
        [](const belay_host* host, uint32_t place, belay_str name, belay_sink sink) BELAY_NOEXCEPT -> belay_status {
          std::string text;
          const belay_status status = of(host, BELAY_HOST_FS).find_file(place, name, text);
          if (status == BELAY_OK) write(sink, text);
          return status;
        },
        [](const belay_host* host, belay_str name, belay_span bytes) BELAY_NOEXCEPT -> belay_status {
          FakeServices& self = of(host, BELAY_HOST_FS);
          if (self.locked([&] { return self.full_; }))
            return self.fail(Code::kResourceExhausted, "No space left on device.");
          self.set_file(BELAY_FS_SCRATCH, to_string(name), std::string(static_cast<const char*>(bytes.ptr), bytes.len));
          return BELAY_OK;
        },
        [](const belay_host* host, belay_str name) BELAY_NOEXCEPT -> belay_status {
          FakeServices& self = of(host, BELAY_HOST_FS);
          const bool was = self.locked([&] { return self.files_.erase({BELAY_FS_SCRATCH, to_string(name)}) > 0; });
          return was ? BELAY_OK : self.fail(Code::kNotFound, "There is no file '" + to_string(name) + "'.");
        }};
    return table;
  }

  static const belay_memory_vt& memory_table() {  // of the host's own allocator, which counts and fails when told to
    static constexpr belay_memory_vt table{
        {sizeof(belay_memory_vt), 0, nullptr},
        [](const belay_host* host, const belay_memory_req* req, void** out) BELAY_NOEXCEPT -> belay_status {
          *out = host->alloc(host, req->bytes, req->align ? req->align : 4096);
          if (!*out) return of(host, BELAY_HOST_MEMORY).fail(Code::kResourceExhausted, "No fake memory.");
          std::memset(*out, 0, req->bytes);
          return BELAY_OK;
        },
        [](const belay_host* host, void* block) BELAY_NOEXCEPT { host->free(host, block); },
        [](const belay_host* host, belay_memory_usage* inout) BELAY_NOEXCEPT -> belay_status {
          const FakeHost& fake = of(host, BELAY_HOST_MEMORY).host_;
          inout->bytes = inout->peak_bytes = fake.live_bytes(), inout->blocks = fake.live_blocks();
          inout->pinned_bytes = 0, inout->limit = UINT64_MAX;
          return BELAY_OK;
        }};
    return table;
  }

  static const belay_thread_check_vt& thread_check_table() {
    static constexpr belay_thread_check_vt table{
        {sizeof(belay_thread_check_vt), 0, nullptr},
        [](const belay_host* host) BELAY_NOEXCEPT -> uint32_t {
          FakeServices& self = of(host, BELAY_HOST_THREAD_CHECK);
          return self.locked([&] { return self.domain_; });
        },
        [](const belay_host* host, belay_thread_info* inout) BELAY_NOEXCEPT -> belay_status {
          FakeServices& self = of(host, BELAY_HOST_THREAD_CHECK);
          inout->domain = self.locked([&] { return self.domain_; });
          inout->plugin = inout->slot = to_str("fake");
          return BELAY_OK;
        },
        [](const belay_host* host, uint32_t allowed, belay_str what) BELAY_NOEXCEPT -> belay_status {
          FakeServices& self = of(host, BELAY_HOST_THREAD_CHECK);
          const uint32_t domain = self.locked([&] { return self.domain_; });
          if (domain & allowed) return BELAY_OK;
          return self.fail(Code::kFailedPrecondition, "'" + to_string(what) + "' was called from domain " +
                                                          std::to_string(domain) + ", want " +
                                                          std::to_string(allowed) + ".");
        }};
    return table;
  }

  static const belay_fault_vt& fault_table() {
    static constexpr belay_fault_vt table{
        {sizeof(belay_fault_vt), 0, nullptr},
        [](const belay_host* host, belay_str point) BELAY_NOEXCEPT -> belay_status {
          FakeServices& self = of(host, BELAY_HOST_FAULT);
          const Code code = self.locked([&] {
            const auto at = self.faults_.find(to_string(point));
            if (at == self.faults_.end()) return Code::kOk;
            if (at->second.second == 0) return at->second.first;
            return --at->second.second, Code::kOk;
          });
          return code == Code::kOk ? BELAY_OK
                                   : self.fail(code, "A failure was ordered at '" + to_string(point) + "'.");
        }};
    return table;
  }

  FakeHost& host_;
  mutable std::mutex mutex_;
  std::vector<Line> lines_;
  std::vector<Metric> metrics_;
  uint32_t tracing_ = 0;
  belay_trace_ring ring_{};
  std::array<belay_trace_record, 1024> records_{};
  std::vector<std::string> names_;
  std::map<std::pair<uint32_t, std::string>, std::string> files_;
  bool full_ = false;
  uint32_t domain_ = BELAY_THREAD_OUTSIDE;
  std::map<std::string, std::pair<Code, uint64_t>> faults_;
};

}  // namespace belay::testing
