// What the streams of the CPU device cost, with empty kernels, through the tables of the plugin as it is built. Each
// row: median and 99th percentile, the target, and an anchor measured in this run where there is one.
//   bench_streams [part of a row's name]
#include "bench_host.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

std::atomic<uint64_t> g_allocations{0};

}  // namespace

// Counts what this program and the plugin's C++ allocate: the plugin takes these operators too, as it links libstdc++
// as a shared library. The host's timer allocates as well, now and then.
void* operator new(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace belay::bench {
namespace {

std::string g_filter;

belay_status empty(const belay_exec*, const void*, const uint64_t*) { return BELAY_OK; }

struct Measured {
  double median, p99;
};

// Each sample is the time of one call of `body` divided by `per`.
Measured measure(int samples, double per, const std::function<void()>& body) {
  for (int i = 0; i < samples / 10 + 1; ++i) body();
  std::vector<double> times;
  times.reserve(size_t(samples));
  for (int i = 0; i < samples; ++i) {
    const uint64_t begin = now_ns();
    body();
    times.push_back(double(now_ns() - begin) / per);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100]};
}

void row(const char* name, const std::function<Measured()>& run, double target, double stretch, const char* unit = "ns") {
  if (std::string(name).find(g_filter) == std::string::npos) return;
  const Measured m = run();
  std::printf("%-58s %10.1f %10.1f %-4s  target %-8.4g stretch %-8.4g %s\n", name, m.median, m.p99, unit, target, stretch,
              target == 0 ? "" : m.median <= target ? "ok" : "MISSED");
  std::fflush(stdout);
}

// Anchor: one operation handed to a thread that sleeps on a condition variable, and back.
Measured condvar_round_trip() {
  std::mutex mutex;
  std::condition_variable wake;
  int state = 0;  // 1: asked, 2: stop
  std::thread thread([&] {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return state != 0; });
      if (state == 2) return;
      state = 0;
      wake.notify_all();
    }
  });
  const Measured m = measure(2000, 1, [&] {
    std::unique_lock lock(mutex);
    state = 1;
    wake.notify_all();
    wake.wait(lock, [&] { return state == 0; });
  });
  {
    std::lock_guard lock(mutex);
    state = 2;
  }
  wake.notify_all();
  thread.join();
  return m;
}

belay_launch_req launch_of(const belay_kernel& kernel, const uint64_t* args, uint64_t count) {
  belay_launch_req req{};
  req.hdr.struct_size = sizeof req;
  req.kernel = &kernel;
  req.args = args;
  req.arg_count = count;
  return req;
}

void dispatch(Plugin& plugin, const belay_kernel& kernel) {
  constexpr int kMany = 1000;
  const uint64_t args[3] = {1, 2, 3};
  const belay_launch_req req = launch_of(kernel, args, 3);
  Stream s(plugin), other(plugin);
  uint64_t last = 0;

  row("anchor: thread and condition variable, there and back", condvar_round_trip, 0, 0);
  const auto volatile fn = empty;
  row("anchor: indirect call of an empty kernel", [&] {
    return measure(500, kMany, [&] { for (int i = 0; i < kMany; ++i) fn(nullptr, nullptr, args); });
  }, 0, 0);

  const auto submit_only = [&](std::mutex* lock) {
    std::vector<double> times;
    for (int r = 0; r < 500; ++r) {
      const uint64_t begin = now_ns();
      for (int i = 0; i < kMany; ++i) {
        if (lock) lock->lock();
        last = s.launch(req);
        if (lock) lock->unlock();
      }
      times.push_back(double(now_ns() - begin) / kMany);
      s.synchronize(last);
    }
    std::sort(times.begin(), times.end());
    return Measured{times[times.size() / 2], times[times.size() * 99 / 100]};
  };
  std::mutex lock;
  row("submit, one producer", [&] { return submit_only(nullptr); }, 10, 6);
  row("submit, under a mutex", [&] { return submit_only(&lock); }, 22, 17);
  row("1000 operations until synchronise, each", [&] {
    return measure(500, kMany, [&] { for (int i = 0; i < kMany; ++i) last = s.launch(req); s.synchronize(last); });
  }, 25, 8);
  row("synchronise what is reached", [&] {
    return measure(500, kMany, [&] { for (int i = 0; i < kMany; ++i) s.synchronize(last); });
  }, 0, 0);
  // Samples of one operation include the clock, about 25 ns here.
  row("1 operation + synchronise", [&] { return measure(20000, 1, [&] { s.synchronize(s.launch(req)); }); }, 100, 50);
  row("1 operation + synchronise, over 100", [&] {
    return measure(2000, 100, [&] { for (int i = 0; i < 100; ++i) s.synchronize(s.launch(req)); });
  }, 100, 50);
  check(s.vt().flush(s.get()), "flush");
  uint64_t asleep = 0;
  row("1 operation + synchronise, workers asleep", [&] {
    std::vector<double> times;
    for (int i = 0; i < 2000; ++i) {
      for (const uint64_t until = now_ns() + 200'000; now_ns() < until;) __builtin_ia32_pause();
      const uint64_t begin = now_ns();
      s.synchronize(asleep = s.launch(req));
      times.push_back(double(now_ns() - begin));
    }
    std::sort(times.begin(), times.end());
    return Measured{times[times.size() / 2], times[times.size() * 99 / 100]};
  }, 100, 50);
  row("event hop between streams", [&] {
    return measure(500, 100, [&] {
      for (int i = 0; i < 100; ++i) {
        Stream& at = i & 1 ? other : s;
        Stream& from = i & 1 ? s : other;
        if (i) at.wait({from.id(), last});
        last = at.launch(req);
      }
      other.synchronize(last);
    });
  }, 40, 10);

  const uint64_t before = g_allocations.load();
  for (int i = 0; i < kMany; ++i) {
    last = s.launch(req);
    other.wait({s.id(), last});
    last = other.launch(req);
    s.wait({other.id(), last});
    if (i % 100 == 99) s.synchronize(s.vt().last_value(s.get()));
  }
  s.synchronize(s.vt().last_value(s.get()));
  std::printf("%-58s %10.4f\n", "allocations per operation (C++)", double(g_allocations.load() - before) / (4 * kMany));
}

struct ProgramObject {
  ProgramObject(Plugin& plugin, const belay_kernel& kernel, uint32_t count) : plugin(plugin) {
    const belay_arg args[3] = {{BELAY_ARG_BUFFER, 0, 0, 4, BELAY_ACCESS_READ, 0},
                               {BELAY_ARG_BUFFER, 1, 0, 4, BELAY_ACCESS_WRITE, 0},
                               {BELAY_ARG_SCALAR, 0, 7, 0, 0, 0}};
    belay_node node{};
    node.hdr.struct_size = sizeof node;
    node.kernel = &kernel;
    node.args = args;
    node.arg_count = 3;
    const std::vector<const belay_node*> nodes(count, &node);
    belay_program_req req{};
    req.hdr.struct_size = sizeof req;
    req.nodes = nodes.data();
    req.node_count = count;
    req.binding_count = 2;
    belay_created made{};
    check(plugin.programs().create(plugin.device(), &req, &made), "program create");
    object = std::make_unique<Object>(BELAY_OBJ_PROGRAM, made);
  }
  ~ProgramObject() { plugin.programs().destroy(object.get()); }
  uint64_t launch(Stream& stream, const belay_binding* bindings) {
    uint64_t value = 0;
    if (plugin.programs().launch(object.get(), stream.get(), bindings, 2, &value) != BELAY_OK) std::abort();
    return value;
  }
  Plugin& plugin;
  std::unique_ptr<Object> object;
};

void replay(Plugin& plugin, const belay_kernel& kernel) {
  Stream s(plugin);
  ProgramObject one(plugin, kernel, 1), many(plugin, kernel, 1000);
  float memory[4] = {};
  const belay_binding bindings[2] = {{nullptr, memory, 0, 8}, {nullptr, memory + 2, 0, 8}};
  row("replay of one node, launch + synchronise", [&] {
    return measure(2000, 100, [&] { for (int i = 0; i < 100; ++i) s.synchronize(one.launch(s, bindings)); });
  }, 105, 0);
  row("replay of 1000 nodes, each", [&] {
    return measure(2000, 1000, [&] { s.synchronize(many.launch(s, bindings)); });
  }, 5, 2);
  const uint64_t before = g_allocations.load();
  for (int i = 0; i < 1000; ++i) s.synchronize(one.launch(s, bindings));
  std::printf("%-58s %10.4f\n", "allocations per replay (C++)", double(g_allocations.load() - before) / 1000);
}

void copies(Plugin& plugin) {
  constexpr size_t kMost = size_t{128} << 20;
  Stream s(plugin);
  char* const from = static_cast<char*>(std::aligned_alloc(4096, kMost));
  char* const to = static_cast<char*>(std::aligned_alloc(4096, kMost));
  std::memset(from, 1, kMost);
  std::memset(to, 2, kMost);
  belay_copy_req req{};
  req.hdr.struct_size = sizeof req;
  req.host_dst = to;
  req.host_src = from;
  req.bytes = 4;
  row("copy of 4 bytes + synchronise, over 100", [&] {
    return measure(2000, 100, [&] { for (int i = 0; i < 100; ++i) s.synchronize(s.copy(req)); });
  }, 120, 0);
  for (const size_t bytes : {size_t{4} << 10, size_t{64} << 10, size_t{1} << 20, size_t{4} << 20, size_t{32} << 20, kMost}) {
    const std::string name = "copy of " + std::to_string(bytes >> 10) + " KiB";
    if (name.find(g_filter) == std::string::npos) continue;
    req.bytes = bytes;
    const int samples = bytes < (1u << 20) ? 2000 : bytes < (16u << 20) ? 200 : 20;
    // Taken in turns, so that a busy neighbour slows both.
    std::vector<double> ours, theirs;
    void* (*volatile copy)(void*, const void*, size_t) = std::memcpy;
    for (int i = 0; i < samples; ++i) {
      uint64_t begin = now_ns();
      s.synchronize(s.copy(req));
      ours.push_back(double(now_ns() - begin));
      begin = now_ns();
      copy(to, from, bytes);
      theirs.push_back(double(now_ns() - begin));
    }
    std::sort(ours.begin(), ours.end());
    std::sort(theirs.begin(), theirs.end());
    const double us = ours[ours.size() / 2], them = theirs[theirs.size() / 2];
    std::printf("%-58s %8.2f GB/s, memcpy %6.2f GB/s: %5.1f %% (target 95)  %s\n", name.c_str(), double(bytes) / us,
                double(bytes) / them, 100 * them / us, them / us >= 0.95 ? "ok" : "MISSED");
  }
  std::free(from);
  std::free(to);
}

}  // namespace
}  // namespace belay::bench

int main(int argc, char** argv) {
  using namespace belay::bench;
  if (argc > 1) g_filter = argv[1];
  Number config;
  Plugin plugin(BELAY_BENCH_PLUGIN, config);
  belay_kernel kernel{};
  kernel.hdr.struct_size = sizeof kernel;
  kernel.fn = empty;
  kernel.name = belay::literal("empty");
  std::printf("%-58s %10s %10s\n", "", "median", "p99");
  dispatch(plugin, kernel);
  replay(plugin, kernel);
  copies(plugin);
}
