// What zero-copy costs and saves; run by hand: bench_zerocopy MODEL [PLUGIN_DIR]. MODEL: of weights that need no packing, as
// make_big_model.py writes. Prints: time until a model is ready, page cache warm; resident memory of several models of one
// file; inputs that are copied against the best way to copy as much.
#include <belay/runtime.hpp>

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;

template <class T>
T need(belay::Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().message().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}
void need(const belay::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
  }
}

double seconds(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

uint64_t resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

// Runs once, so that the plan is made and a page of each part of the weights is read.
belay::Context use(const belay::Model& model, std::vector<int64_t>& rows) {
  belay::Context context = need(model.context());
  need(context.set_input(0, belay::Tensor::of(rows, {int64_t(rows.size())})));
  need(context.run());
  return context;
}

#if defined(__x86_64__)
void stream_copy(char* to, const char* from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  _mm_sfence();
}
__attribute__((target("avx512f"))) void stream_copy_512(char* to, const char* from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  _mm_sfence();
}
#endif

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_zerocopy MODEL [PLUGIN_DIR]\n");
    return 2;
  }
  belay::RuntimeOptions options{.sets = {"log.level=error", "engine.threads=1"}};
  if (argc > 2) options.plugin_dirs = {argv[2]};
  const belay::Runtime runtime = need(belay::Runtime::create(options));
  std::vector<int64_t> rows = {3, 0, 100, 3};

  std::vector<double> load, first;
  for (int i = 0; i < 21; ++i) {
    belay::Model model;
    load.push_back(seconds([&] { model = need(runtime.load(argv[1])); }));
    first.push_back(seconds([&] { use(model, rows); }));
  }
  {
    const belay::Model model = need(runtime.load(argv[1]));
    const belay_executable_stats stats = need(model.stats());
    std::printf("weights %.1f MiB: %.1f borrowed, %.1f copied, %.1f packed\n", double(stats.weight_bytes) / (1 << 20),
                double(stats.borrowed_bytes) / (1 << 20), double(stats.copied_bytes) / (1 << 20),
                double(stats.packed_bytes) / (1 << 20));
  }
  std::printf("ready after  %.3f ms (median of %zu), first run %.3f ms\n", median(load) * 1e3, load.size(), median(first) * 1e3);

  // Every row read, by each of several models of the file.
  std::vector<belay::Model> models;
  std::vector<belay::Context> contexts;
  const uint64_t before = resident();
  for (int i = 0; i < 4; ++i) {
    models.push_back(need(runtime.load(argv[1])));
    contexts.push_back(use(models.back(), rows));
    const uint64_t count = need(models.back().stats()).weight_bytes / 64;
    for (uint64_t row = 0; row < count; row += 64) {  // one row on each page
      rows = {int64_t(row), int64_t(row + 16), int64_t(row + 32), int64_t(row + 48)};
      need(contexts.back().set_input(0, belay::Tensor::of(rows, {4})));
      need(contexts.back().run());
    }
    std::printf("%d models: resident %.1f MiB\n", i + 1, double(resident() - before) / (1 << 20));
  }

#if defined(__x86_64__)
  // One copy of an input that is not aligned, against memcpy and streaming stores between the same places.
  std::printf("copy of      memcpy  streamed  engine GB/s (of the better)\n");
  const belay::Device device = need(runtime.default_device());
  belay::Stream stream = need(device.stream());
  const bool wide = __builtin_cpu_supports("avx512f");
  for (const uint64_t mib : {1, 4, 16, 32, 64, 256}) {
    const uint64_t bytes = mib << 20;
    auto* from = static_cast<char*>(std::aligned_alloc(64, bytes + 64));
    auto* to = static_cast<char*>(std::aligned_alloc(64, bytes));
    std::memset(from, 1, bytes + 64), std::memset(to, 2, bytes);
    const int rounds = int(std::max<uint64_t>(5, 512 / mib));
    std::vector<double> plain, streamed, ours;
    const std::vector<int64_t> dims = {int64_t(bytes / 4)};
    const belay::Tensor target(to, bytes, BELAY_DT_FLOAT32, dims), source(from + 1, bytes, BELAY_DT_FLOAT32, dims);
    // Of two the second: the first leaves the caches as this way to copy leaves them.
    const auto timed = [&](std::vector<double>& times, const std::function<void()>& copy) {
      copy();
      times.push_back(seconds(copy));
    };
    for (int i = 0; i < rounds; ++i) {  // in turns, as the machine's speed changes
      timed(plain, [&] { std::memcpy(to, from + 1, bytes); });
      timed(streamed, [&] { wide ? stream_copy_512(to, from + 1, bytes) : stream_copy(to, from + 1, bytes); });
      timed(ours, [&] { need(need(runtime.copy(stream, target, source)).synchronize()); });
    }
    const double best = std::min(median(plain), median(streamed));
    std::printf("%4llu MiB  %8.2f  %8.2f  %8.2f (%.0f %%)\n", static_cast<unsigned long long>(mib),
                double(bytes) / median(plain) / 1e9, double(bytes) / median(streamed) / 1e9, double(bytes) / median(ours) / 1e9,
                best / median(ours) * 100);
    std::free(from), std::free(to);
  }
#endif
  return 0;
}
