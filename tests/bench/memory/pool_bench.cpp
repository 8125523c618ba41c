// What the policy `pool` costs beside well-known rules; run by hand: bench_pool TRACE.csv[.gz]... Each trace is read as
// `belay memory replay` reads it. Prints for each rule: nanoseconds of processor time for a pair of place and release
// (median of 5 runs, in 1.3 times of what is live at most; the pool through its plugin's table with an event at each
// release, the others by a virtual call), the smallest capacity that does, and what is reserved where nothing bounds it,
// both as multiples of what is live at most.
#include "anchors.hpp"

#include <sdk/cli/replay.hpp>

#include <belay/runtime.hpp>

#include <cstdio>
#include <ctime>
#include <functional>
#include <optional>
#include <string>

namespace {

using namespace belay;
using bench::Allocator;
using cli::AllocTrace;

struct Run {
  bool finished = false;
  double per_pair = 0;
  uint64_t reserved = 0;
};

double thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) * 1e9 + double(now.tv_nsec);
}

Run run(Allocator& allocator, const AllocTrace& trace) {
  std::vector<uint32_t> handles(trace.slots);
  const double begin = thread_time();
  for (const AllocTrace::Row& row : trace.rows) {
    if (row.op == AllocTrace::Op::kPlace) {
      if ((handles[row.slot] = allocator.place(row.bytes, row.stream)) == bench::kFull) return {};
    } else if (row.op != AllocTrace::Op::kUse) {
      allocator.release(handles[row.slot]);
    }
  }
  return {true, (thread_time() - begin) / double(trace.pairs), allocator.reserved_peak()};
}

// One whole reservation of `capacity`; 0: segments as the pool asks for them.
Run run_pool(const AllocTrace& trace, uint64_t capacity) {
  RuntimeOptions options;
  options.sets = {"memory.policies=[\"pool\"]"};
  Result<Runtime> runtime = Runtime::create(options);
  cli::Policy policy{};
  if (!runtime.ok() ||
      belay_runtime_policy(runtime->get(), to_str("pool"), &policy.table, &policy.object) != BELAY_OK) {
    std::fprintf(stderr, "The plugin 'pool' cannot be loaded.\n");
    std::exit(1);
  }
  cli::Reservation reservation(policy, capacity ? std::optional(capacity) : std::nullopt);
  if (capacity) reservation.add(capacity);
  const cli::ReplayResult result = replay(policy, trace, reservation, {});
  return {result.finished, result.nanoseconds / double(trace.pairs), reservation.reserved()};
}

struct Rule {
  const char* name;
  std::function<Run(const AllocTrace&, uint64_t capacity)> run;
  bool grows;
};

template <class Kind>
Rule rule(const char* name, bool grows) {
  return {name,
          [](const AllocTrace& trace, uint64_t capacity) {
            Kind allocator(capacity ? capacity : UINT64_MAX / 4);
            return ::run(allocator, trace);
          },
          grows};
}

void compare(const std::string& file, const std::vector<Rule>& rules) {
  const AllocTrace trace = cli::read_alloc_trace(file);
  const double live = double(trace.max_live);
  std::printf("%s: %zu rows, %llu pairs, %u streams, %.0f bytes live\n", file.c_str(), trace.rows.size(),
              static_cast<unsigned long long>(trace.pairs), trace.streams, live);
  for (const Rule& one : rules) {
    std::vector<double> times;
    for (int i = 0; i < 5; ++i)
      if (const Run done = one.run(trace, uint64_t(live * (one.grows ? 4 : 1.3))); done.finished)
        times.push_back(done.per_pair);
    std::sort(times.begin(), times.end());
    double low = 1, high = 4;
    while (high - low > 0.0005) {
      const double middle = (low + high) / 2;
      (one.run(trace, uint64_t(live * middle)).finished ? high : low) = middle;
    }
    std::printf("  %-42s %7.1f ns a pair   capacity %.4f", one.name, times.empty() ? 0 : times[times.size() / 2], high);
    if (one.grows) std::printf("   reserved %.4f", double(one.run(trace, 0).reserved) / live);
    std::printf("\n");
  }
}

}  // namespace

int main(int count, char** files) {
  if (count < 2) {
    std::fprintf(stderr, "usage: bench_pool TRACE.csv[.gz]...\n");
    return 2;
  }
  const std::vector<Rule> rules{{"pool", run_pool, true},
                                rule<bench::CachedBins>("size-class cache over offset bins", false),
                                rule<bench::OffsetBins>("offset bins, 8 for each power of two", false),
                                rule<bench::TwoLevel>("two-level segregated fit off the block", false),
                                rule<bench::BestFit>("best fit, two trees", false),
                                rule<bench::PerStream>("PyTorch's rules, pools for each stream", true),
                                rule<bench::DoublingBins>("ONNX Runtime's arena's rules", true)};
  for (int i = 1; i < count; ++i) compare(files[i], rules);
  return 0;
}
