// engine_host.hpp: a host with a device of its own, for tests of the engine: programs run at once, on the
// calling thread. The device's memory can be hidden from the host, and a launch can be made to fail.
#pragma once

#include <belay/abi/hal.h>
#include <belay/testing/fake_host.hpp>
#include <planner/planner.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>

namespace belay::testing {

class EngineHost : public FakeHost {
 public:
  explicit EngineHost(bool visible = true) : visible_(visible) {
    fill_table();
    offer(BELAY_HOST_HAL, &table_);
  }

  belay_obj* device() { return &device_; }
  uint64_t live_objects() const { return live_; }
  std::atomic<uint64_t> launches{0}, copies{0}, recoveries{0};
  std::atomic<bool> fail_next{false};
  uint64_t memory_bytes = 1 << 30;
  struct Heap {
    uint64_t heap_class, bytes, used = 0;
  };
  std::vector<Heap> heaps{{BELAY_HEAP_DEVICE, 1 << 30}};
  // Programs with dependencies run in a random order that these allow, by this seed; 0: as the nodes stand.
  uint64_t order_seed = 0;
  std::atomic<uint64_t> dependencies{0};  // pairs of the latest program
  std::atomic<uint64_t> plans{0};         // of memory
  // Two nodes of a program that may run at once and use the same bytes, one of them writing, or of which the
  // first waits for the second; empty: none so far.
  std::string races() {
    std::lock_guard lock(races_mutex_);
    return races_;
  }
  // Completions wait for `release`.
  std::atomic<bool> hold{false};
  void release() {
    std::vector<std::pair<belay_completion, belay_status>> all;
    {
      std::lock_guard lock(held_mutex_);
      all.swap(held_);
    }
    for (const auto& [then, status] : all) then.done(then.user, status);
  }

 private:
  struct Block : belay_obj {
    std::unique_ptr<std::byte, void (*)(void*)> memory{nullptr, std::free};
    uint64_t bytes = 0, heap = 0;
    void* host = nullptr;
  };
  struct Node {
    const belay_kernel* kernel;
    std::vector<belay_arg> args;
    std::string name;
  };
  struct Recorded : belay_obj {
    std::vector<Node> nodes;
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    bool ordered = true;  // each after the one before
    uint64_t bindings = 0;
  };
  struct Line : belay_obj {
    belay_status failure = BELAY_OK;
  };

  static EngineHost& of(const belay_host* host) {
    return const_cast<EngineHost&>(static_cast<const EngineHost&>(*host));
  }
  std::vector<uint32_t> order_of(const Recorded& program) const {
    std::vector<uint32_t> order, waits(program.nodes.size(), 0), ready;
    for (const auto& [before, after] : program.pairs) ++waits[after];
    for (uint32_t i = 0; i < waits.size(); ++i)
      if (!waits[i]) ready.push_back(i);
    uint64_t state = order_seed;
    while (!ready.empty()) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const bool in_order = program.ordered || !order_seed;
      const auto at = in_order ? std::min_element(ready.begin(), ready.end())
                               : ready.begin() + ptrdiff_t((state >> 33) % ready.size());
      const uint32_t node = *at;
      ready.erase(at);
      order.push_back(node);
      for (const auto& [before, after] : program.pairs)
        if (before == node && --waits[after] == 0) ready.push_back(after);
    }
    return order;
  }
  // What happens before what follows from the pairs alone; each two nodes without an order are compared.
  static std::string race_of(const Recorded& program) {
    if (program.ordered) return {};
    const size_t count = program.nodes.size();
    for (const auto& [a, b] : program.pairs)
      if (a >= b) return program.nodes[b].name + " waits for " + program.nodes[a].name + ", which stands after it";
    std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
    for (const auto& [a, b] : program.pairs) before[a][b] = true;
    for (size_t middle = 0; middle < count; ++middle)
      for (size_t a = 0; a < count; ++a)
        if (before[a][middle])
          for (size_t b = 0; b < count; ++b)
            if (before[middle][b]) before[a][b] = true;
    for (size_t a = 0; a < count; ++a)
      for (size_t b = 0; b < a; ++b) {
        if (before[a][b] || before[b][a]) continue;
        for (const belay_arg& x : program.nodes[a].args)
          for (const belay_arg& y : program.nodes[b].args)
            if (x.binding != BELAY_NO_BINDING && x.binding == y.binding && x.value < y.value + y.bytes &&
                y.value < x.value + x.bytes && ((x.access | y.access) & BELAY_ACCESS_WRITE))
              return program.nodes[a].name + " and " + program.nodes[b].name;
      }
    return {};
  }
  static void* address(const belay_binding& binding) {
    return binding.host
               ? static_cast<char*>(binding.host) + binding.offset
               : reinterpret_cast<char*>(static_cast<Block*>(binding.buffer)->memory.get()) + binding.offset;
  }

  static belay_status launch(const belay_host* host, belay_obj* program, belay_obj* stream,
                             const belay_binding* bindings, uint64_t count, belay_event* out) {
    EngineHost& self = of(host);
    auto& recorded = *static_cast<Recorded*>(program);
    auto& line = *static_cast<Line*>(stream);
    *out = {1, 1};
    if (count != recorded.bindings) return self.make(Code::kInvalidArgument, "wrong number of bindings");
    self.launches.fetch_add(1);
    belay_exec exec{};
    exec.hdr.struct_size = sizeof exec;
    exec.user = &self;
    exec.threads = 1;
    exec.parallel_for = [](const belay_exec*, uint64_t n, void (*body)(void*, uint64_t), void* arg)
                            BELAY_NOEXCEPT {
                              for (uint64_t i = 0; i < n; ++i) body(arg, i);
                            };
    exec.scratch = [](const belay_exec*, uint64_t) BELAY_NOEXCEPT -> void* { return nullptr; };
    exec.fail = [](const belay_exec* at, uint32_t code, belay_str text) BELAY_NOEXCEPT {
      return static_cast<EngineHost*>(at->user)->make(static_cast<Code>(code), to_view(text));
    };
    for (const uint32_t index : self.order_of(recorded)) {
      const Node& node = recorded.nodes[index];
      std::vector<uint64_t> words;
      for (const belay_arg& arg : node.args) {
        if (arg.binding == BELAY_NO_BINDING) {
          words.push_back(0);
          continue;
        }
        const belay_binding& binding = bindings[arg.binding];
        if (arg.value + arg.bytes > binding.bytes)
          return self.make(Code::kOutOfRange, "argument of " + node.name + " past its binding");
        words.push_back(reinterpret_cast<uint64_t>(address(binding)) + arg.value);
      }
      belay_status status = self.fail_next.exchange(false)
                                ? self.make(Code::kInternal, node.name + " failed on demand")
                                : node.kernel->fn(&exec, node.kernel->state, words.data());
      if (status != BELAY_OK) {
        const Status cause = self.take(status);
        line.failure = self.make(cause.code(), node.name + ": " + cause.message());
        break;
      }
    }
    // The event carries the line, so that waiting finds its failure.
    *out = {reinterpret_cast<uint64_t>(&line), 1};
    return BELAY_OK;
  }

  void fill_table() {
    table_.hdr.struct_size = sizeof table_;
    device_ = {BELAY_OBJ_MAGIC, BELAY_OBJ_DEVICE, 1, nullptr, nullptr, {}};
    table_.device_count = [](const belay_host*) BELAY_NOEXCEPT -> uint64_t { return 1; };
    table_.device = [](const belay_host* h, uint64_t, belay_obj** out) BELAY_NOEXCEPT -> belay_status {
      *out = &of(h).device_;
      return BELAY_OK;
    };
    table_.device_info = [](const belay_host* h, belay_obj*, belay_device_info* info)
                             BELAY_NOEXCEPT -> belay_status {
      if (of(h).visible_) info->hdr.flags = BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST;
      info->driver = to_str(of(h).visible_ ? "cpu" : "far");
      info->threads = 1;
      info->memory_bytes = of(h).memory_bytes;
      info->heap_count = of(h).heaps.size();
      return BELAY_OK;
    };
    table_.heap_info = [](const belay_host* h, belay_obj*, uint64_t index, belay_heap_info* info)
                           BELAY_NOEXCEPT -> belay_status {
      const Heap& heap = of(h).heaps[index];
      info->heap_class = heap.heap_class, info->bytes = heap.bytes, info->alignment = 64;
      info->free_bytes = heap.bytes - heap.used;
      return BELAY_OK;
    };
    table_.buffer_create = [](const belay_host* h, belay_obj*, const belay_alloc_req* req, belay_obj** out)
                               BELAY_NOEXCEPT -> belay_status {
      std::lock_guard lock(of(h).heaps_mutex_);
      Heap& heap = of(h).heaps[req->heap];
      if (req->bytes > heap.bytes - heap.used) return of(h).make(Code::kResourceExhausted, "the heap is full");
      heap.used += req->bytes;
      auto* block = new Block;
      block->heap = req->heap;
      block->memory.reset(static_cast<std::byte*>(std::aligned_alloc(64, (req->bytes + 127) / 64 * 64)));
      std::memset(block->memory.get(), 0xcc, req->bytes);  // nothing may count on zeros
      block->bytes = req->bytes;
      *out = block;
      of(h).live_.fetch_add(1);
      return BELAY_OK;
    };
    table_.buffer_info = [](const belay_host* h, belay_obj* object, belay_hal_buffer_info* info)
                             BELAY_NOEXCEPT -> belay_status {
      info->bytes = static_cast<Block*>(object)->bytes;
      info->host = of(h).visible_ ? static_cast<Block*>(object)->memory.get() : nullptr;
      return BELAY_OK;
    };
    table_.buffer_destroy = [](const belay_host* h, belay_obj* object) BELAY_NOEXCEPT {
      {
        std::lock_guard lock(of(h).heaps_mutex_);
        of(h).heaps[static_cast<Block*>(object)->heap].used -= static_cast<Block*>(object)->bytes;
      }
      delete static_cast<Block*>(object);
      of(h).live_.fetch_sub(1);
    };
    table_.stream_create = [](const belay_host* h, belay_obj*, const belay_hal_stream_req*, belay_obj** out)
                               BELAY_NOEXCEPT -> belay_status {
      *out = new Line;
      of(h).live_.fetch_add(1);
      return BELAY_OK;
    };
    table_.stream_destroy = [](const belay_host* h, belay_obj* object) BELAY_NOEXCEPT {
      delete static_cast<Line*>(object);
      of(h).live_.fetch_sub(1);
    };
    table_.copy = [](const belay_host* h, belay_obj*, const belay_copy_req* req, belay_event* out)
                      BELAY_NOEXCEPT -> belay_status {
      void* to = req->dst ? static_cast<Block*>(req->dst)->memory.get() + req->dst_offset : req->host_dst;
      const void* from =
          req->src ? static_cast<Block*>(req->src)->memory.get() + req->src_offset : req->host_src;
      std::memcpy(to, from, req->bytes);
      of(h).copies.fetch_add(1);
      *out = {};
      return BELAY_OK;
    };
    // As the policy zerocopy decides.
    table_.bind = [](const belay_host* h, belay_obj*, const belay_bind_req* req, belay_bound* bound)
                      BELAY_NOEXCEPT -> belay_status {
      const bool odd = req->address % req->alignment != 0;
      bound->mode = of(h).visible_ && !odd ? BELAY_BIND_SHARE : BELAY_BIND_COPY;
      if (!of(h).visible_)
        write(bound->reason, "the far device does not address it");
      else if (odd)
        write(bound->reason, "it is not aligned to " + std::to_string(req->alignment) + " bytes");
      return BELAY_OK;
    };
    table_.tensor_copy = [](const belay_host* h, belay_obj*, const belay_tensor* to, const belay_tensor* from,
                            belay_event* out) BELAY_NOEXCEPT -> belay_status {
      uint64_t count = 1;
      for (uint32_t i = 0; i < to->rank; ++i) count *= uint64_t(to->dims[i]);
      const uint64_t width = count ? to->bytes / count : 0;
      for (uint64_t i = 0; i < count; ++i) {
        int64_t at = int64_t(i);
        if (from->strides) {
          at = 0;
          uint64_t rest = i;
          for (uint32_t d = to->rank; d-- > 0; rest /= uint64_t(to->dims[d]))
            at += int64_t(rest % uint64_t(to->dims[d])) * from->strides[d];
        }
        std::memcpy(static_cast<char*>(to->data) + i * width, static_cast<char*>(from->data) + at * int64_t(width),
                    width);
      }
      of(h).copies.fetch_add(1);
      *out = {};
      return BELAY_OK;
    };
    table_.synchronize = [](const belay_host* h, belay_event event, uint64_t) BELAY_NOEXCEPT -> belay_status {
      if (!event.timeline) return BELAY_OK;
      auto& line = *reinterpret_cast<Line*>(event.timeline);
      return line.failure == BELAY_OK ? BELAY_OK : of(h).make(Code::kInternal, of(h).text(line.failure));
    };
    table_.on_reached = [](const belay_host* h, belay_event event, belay_completion then)
                            BELAY_NOEXCEPT -> belay_status {
      const belay_status status = of(h).table_.synchronize(h, event, 0);
      if (of(h).hold) {
        std::lock_guard lock(of(h).held_mutex_);
        of(h).held_.emplace_back(then, status);
      } else {
        then.done(then.user, status);
      }
      return BELAY_OK;
    };
    table_.recover = [](const belay_host* h, belay_obj* stream) BELAY_NOEXCEPT -> belay_status {
      auto& line = *static_cast<Line*>(stream);
      of(h).status_release(h, line.failure);
      line.failure = BELAY_OK;
      of(h).recoveries.fetch_add(1);
      return BELAY_OK;
    };
    table_.program_create = [](const belay_host* h, belay_obj*, const belay_program_req* req, belay_obj** out)
                                BELAY_NOEXCEPT -> belay_status {
      auto* program = new Recorded;
      program->bindings = req->binding_count;
      program->ordered = !req->dependencies;
      for (uint64_t i = 0; i < req->dependency_count; ++i)
        program->pairs.emplace_back(req->dependencies[2 * i], req->dependencies[2 * i + 1]);
      of(h).dependencies = req->dependency_count;
      for (uint64_t i = 0; i < req->node_count; ++i)
        program->nodes.push_back({req->nodes[i]->kernel,
                                  {req->nodes[i]->args, req->nodes[i]->args + req->nodes[i]->arg_count},
                                  to_string(req->nodes[i]->name)});
      if (std::string races = race_of(*program); !races.empty()) {
        std::lock_guard lock(of(h).races_mutex_);
        if (of(h).races_.empty()) of(h).races_ = std::move(races);
      }
      *out = program;
      of(h).live_.fetch_add(1);
      return BELAY_OK;
    };
    table_.program_launch = launch;
    table_.program_destroy = [](const belay_host* h, belay_obj* object) BELAY_NOEXCEPT {
      delete static_cast<Recorded*>(object);
      of(h).live_.fetch_sub(1);
    };
    table_.plan = [](const belay_host* h, const belay_plan_req* req, belay_plan_result* result)
                      BELAY_NOEXCEPT -> belay_status {
      of(h).plans.fetch_add(1);
      return to_c(*h, reuse::plan(*req, *result));
    };
  }

  const bool visible_;
  std::string races_;
  belay_hal_vt table_{};
  belay_obj device_{};
  std::atomic<uint64_t> live_{0};
  std::mutex heaps_mutex_, held_mutex_, races_mutex_;
  std::vector<std::pair<belay_completion, belay_status>> held_;
};

}  // namespace belay::testing
