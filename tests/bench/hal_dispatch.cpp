// What the HAL and a driver cost for each operation, with empty kernels, through libbelay.so and plugins
// loaded from TOML:
//
//   hal_dispatch [--device cpu:0] [--config FILE.toml]... [--set key=value]... [--json]
//
// Each line is a measure with median, p10, p90, p99 and minimum over its samples. The thread is pinned to one
// processor; what the clock itself costs is subtracted. Other processors are free for the device's workers.
#include <belay/runtime.hpp>

#include <pthread.h>
#include <sched.h>
#include <x86intrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

// Counts allocations of the whole process: the target is none for an operation.
extern "C" void* __libc_malloc(size_t);
static std::atomic<uint64_t> g_allocations{0};
extern "C" void* malloc(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const char* what, const belay::Status& status) {
  std::fprintf(stderr, "hal_dispatch: %s: %s\n", what, status.message().c_str());
  std::exit(1);
}
template <class T>
T must(const char* what, belay::Result<T> result) {
  if (!result.ok()) die(what, result.status());
  return std::move(result).value();
}
void must(const char* what, belay_status raw) {
  if (raw != BELAY_OK) [[unlikely]]
    die(what, belay::take(raw));
}

double ns_of_tick() {
  const auto begin = Clock::now();
  const uint64_t first = __rdtsc();
  while (Clock::now() - begin < std::chrono::milliseconds(50)) {
  }
  const uint64_t last = __rdtsc();
  return double(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count()) /
         double(last - first);
}

struct Report {
  bool json = false, first = true;
  double tick = ns_of_tick(), clock_ns = 0;

  Report() {
    std::vector<double> empty;
    for (int i = 0; i < 10001; ++i) {
      const uint64_t a = __rdtsc();
      asm volatile("" ::: "memory");
      empty.push_back(double(__rdtsc() - a) * tick);
    }
    std::nth_element(empty.begin(), empty.begin() + 5000, empty.end());
    clock_ns = empty[5000];
  }

  // `body` is run `samples` times; each sample is divided by `operations`. `before` is not timed.
  void measure(const char* name, int samples, double operations, const std::function<void()>& before,
               const auto& body, const char* target) {
    std::vector<double> times;
    times.reserve(size_t(samples));
    body();
    before();
    const uint64_t allocations = g_allocations.load();
    for (int i = 0; i < samples; ++i) {
      before();
      const uint64_t a = __rdtsc();
      body();
      const uint64_t b = __rdtsc();
      times.push_back(std::max(0.0, double(b - a) * tick - clock_ns) / operations);
    }
    const uint64_t made = g_allocations.load() - allocations;
    std::sort(times.begin(), times.end());
    const auto at = [&](double part) { return times[size_t(part * double(times.size() - 1))]; };
    if (json)
      std::printf(
          "%s{\"name\": \"%s\", \"unit\": \"ns\", \"median\": %.2f, \"p10\": %.2f, \"p90\": %.2f, \"p99\": "
          "%.2f, "
          "\"min\": %.2f, \"allocations\": %.4f, \"target\": \"%s\"}",
          first ? "[" : ",\n ", name, at(.5), at(.1), at(.9), at(.99), times[0],
          double(made) / (operations * samples), target);
    else
      std::printf("%-52s %9.2f  p10 %9.2f  p90 %9.2f  p99 %9.2f  min %9.2f  allocs/op %.3f  target %s\n",
                  name, at(.5), at(.1), at(.9), at(.99), times[0], double(made) / (operations * samples),
                  target);
    std::fflush(stdout);
    first = false;
  }
};

belay_status nothing(const belay_exec*, const void*, const uint64_t*) {
  asm volatile("" ::: "memory");
  return BELAY_OK;
}

struct Bench {
  const belay_hal_vt& hal;
  const belay_host* host;
  belay_obj* device;
  Report& report;
  belay_kernel kernel{{sizeof(belay_kernel), 0, nullptr}, nothing, nullptr, 1, belay::to_str("nothing")};
  belay_launch_req launch = [this] {
    belay_launch_req req{};
    req.hdr.struct_size = sizeof req;
    req.kernel = &kernel;
    return req;
  }();

  belay_obj* stream(uint32_t flags) {
    belay_hal_stream_req req{{sizeof req, flags, nullptr}, 0, 0};
    belay_obj* made = nullptr;
    must("stream", hal.stream_create(host, device, &req, &made));
    return made;
  }
  void sync(belay_obj* on) {
    belay_event event{};
    must("record", hal.record(host, on, &event));
    must("synchronize", hal.synchronize(host, event, BELAY_FOREVER));
  }

  void submit(const char* name, belay_obj* on, const char* target) {
    constexpr int kBatch = 500;  // fits the queue, so that only queueing is timed
    report.measure(
        name, 2001, kBatch, [&] { sync(on); },
        [&] {
          for (int i = 0; i < kBatch; ++i) must("launch", hal.launch(host, on, &launch, nullptr));
        },
        target);
    sync(on);
  }
  void until_sync(belay_obj* on) {
    report.measure(
        "1000 operations until synchronise, each", 1001, 1000, [] {},
        [&] {
          belay_event event{};
          for (int i = 0; i < 1000; ++i) must("launch", hal.launch(host, on, &launch, &event));
          must("synchronize", hal.synchronize(host, event, BELAY_FOREVER));
        },
        "<= 25");
  }
  void one_op(belay_obj* on, const char* name, const std::function<void()>& before, int samples) {
    report.measure(
        name, samples, 1, before,
        [&] {
          belay_event event{};
          must("launch", hal.launch(host, on, &launch, &event));
          must("synchronize", hal.synchronize(host, event, BELAY_FOREVER));
        },
        "<= 100, p99 <= 1000");
  }
  void hop(belay_obj* a, belay_obj* b) {
    report.measure(
        "event hop between streams (operation + wait, chain of 100)", 2001, 100, [] {},
        [&] {
          belay_event event{};
          for (int i = 0; i < 100; ++i) {
            belay_obj* on = i & 1 ? b : a;
            if (i) must("wait", hal.wait(host, on, event));
            must("launch", hal.launch(host, on, &launch, &event));
          }
          must("synchronize", hal.synchronize(host, event, BELAY_FOREVER));
        },
        "<= 40");
  }
  void replay(belay_obj* on, int nodes, const char* name, double per, const char* target) {
    must("capture_begin", hal.capture_begin(host, on));
    for (int i = 0; i < nodes; ++i) must("launch", hal.launch(host, on, &launch, nullptr));
    belay_obj* program = nullptr;
    must("capture_end", hal.capture_end(host, on, &program));
    report.measure(
        name, 2001, per, [] {},
        [&] {
          belay_event event{};
          must("program_launch", hal.program_launch(host, program, on, nullptr, 0, &event));
          must("synchronize", hal.synchronize(host, event, BELAY_FOREVER));
        },
        target);
    hal.program_destroy(host, program);
  }
  void copies(belay_obj* on) {
    belay_alloc_req req{};
    req.hdr.struct_size = sizeof req;
    req.bytes = 64 << 20;
    belay_obj* buffer = nullptr;
    must("buffer", hal.buffer_create(host, device, &req, &buffer));
    std::vector<char> memory(req.bytes, 1);
    belay_hal_buffer_info info{};
    info.hdr.struct_size = sizeof info;
    must("buffer_info", hal.buffer_info(host, buffer, &info));
    // To the same bytes, so that both meet the same caches and pages.
    std::vector<char> other(info.host ? 0 : req.bytes);
    char* to = info.host ? static_cast<char*>(info.host) : other.data();
    const auto copy = [&](uint64_t bytes) {
      belay_copy_req what{};
      what.hdr.struct_size = sizeof what;
      what.dst = buffer;
      what.host_src = memory.data();
      what.bytes = bytes;
      belay_event event{};
      must("copy", hal.copy(host, on, &what, &event));
      must("synchronize", hal.synchronize(host, event, BELAY_FOREVER));
    };
    copy(req.bytes);
    report.measure(
        "copy of 4 bytes + synchronise", 20001, 1, [] {}, [&] { copy(4); }, "<= 120");
    for (uint64_t bytes : {uint64_t(64) << 10, uint64_t(1) << 20, uint64_t(64) << 20}) {
      const int samples = bytes > (8 << 20) ? 31 : 301;
      const std::string size = std::to_string(bytes >> 10) + " KiB";
      report.measure(("memcpy of " + size).c_str(), samples, 1, [] {},
                     [&] { std::memcpy(to, memory.data(), bytes); }, "-");
      report.measure(("copy of " + size + " + synchronise").c_str(), samples, 1, [] {}, [&] { copy(bytes); },
                     "memcpy / 0.95");
    }
    hal.buffer_destroy(host, buffer);
  }
};

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

int main(int argc, char** argv) {
  belay::RuntimeOptions options;
  std::string device = "cpu:0";
  Report report;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool more = i + 1 < argc;
    if (name == "--json")
      report.json = true;
    else if (name == "--config" && more)
      options.files.emplace_back(argv[++i]);
    else if (name == "--set" && more)
      options.sets.emplace_back(argv[++i]);
    else if (name == "--device" && more)
      device = argv[++i];
    else {
      std::fprintf(stderr,
                   "hal_dispatch: unknown option '%s'; see the head of tests/bench/hal_dispatch.cpp\n",
                   argv[i]);
      return 2;
    }
  }
  if (options.files.empty())
    options.text = "[runtime]\ndevice = \"" + device + "\"\n[models]\nformats = []\n[engine]\nuse = \"\"\n";
  const belay::Runtime runtime = must("runtime", belay::Runtime::create(options));
  const belay::Device opened = must("device", runtime.default_device());
  pin_to(0);  // after the device has made its threads, which inherit nothing of this

  Bench bench{runtime.hal(), runtime.host(), opened.get(), report};
  belay_obj* single = bench.stream(BELAY_HAL_STREAM_SINGLE_PRODUCER);
  belay_obj* locked = bench.stream(0);
  belay_obj* other = bench.stream(0);
  bench.submit("submit, one producer", single, "<= 10");
  bench.submit("submit, locked", locked, "<= 22");
  bench.until_sync(locked);
  bench.one_op(
      locked, "1 operation + synchronise", [] {}, 100001);
  bench.one_op(
      locked, "1 operation + synchronise, workers parked",
      [] {
        // Busy, as a program between two calls is: long enough for workers to sleep, and the caches stay as
        // they are.
        for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::microseconds(200);)
          __builtin_ia32_pause();
      },
      501);

  bench.hop(locked, other);
  bench.replay(locked, 1000, "replay of a captured graph, each of 1000 nodes", 1000, "<= 5");
  bench.replay(locked, 1, "replay of a captured graph of 1 node", 1, "<= 105");
  bench.copies(locked);
  if (report.json) std::printf("]\n");
  for (belay_obj* stream : {single, locked, other}) bench.hal.stream_destroy(bench.host, stream);
}
