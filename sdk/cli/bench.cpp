#include "show.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>

namespace belay::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr size_t kSamples =
    200'000;  // kept of one caller, so that measuring takes no memory worth mentioning

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The largest resident set of this process, in bytes.
uint64_t peak_rss() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

struct Caller {
  std::vector<float> times;  // nanoseconds
  uint64_t runs = 0;
  Status failure;
  MovedBytes in, out;  // by its last run
};

struct Load {
  const Model& model;
  const std::vector<Input>& inputs;
  const BenchOptions& options;
  std::atomic<uint64_t> ready{0}, done{0}, tickets{0};
  std::atomic<bool> go{false}, stop{false};
};

// A uniform sample of all times (reservoir sampling).
void keep(Caller& caller, float time, uint64_t& random) {
  if (caller.times.size() < kSamples) {
    caller.times.push_back(time);
    return;
  }
  random = random * 6364136223846793005u + 1442695040888963407u;
  const uint64_t at = (random >> 20) % caller.runs;
  if (at < kSamples) caller.times[at] = time;
}

// One caller: its own context, its own views of the same inputs.
Status work(Load& load, Caller& caller) {
  Context context(load.model);
  std::vector<std::unique_ptr<DatumView>> views;
  for (const Input& input : load.inputs) {
    views.push_back(std::make_unique<DatumView>(input.datum));
    context.set_input(input.index, views.back()->get());
  }
  // At least one run: the first makes plans and packs weights.
  const auto warm = Clock::now();
  do {
    BELAY_TRY(context.try_run());
  } while (seconds_since(warm) < load.options.warmup && !load.stop && !Interruptible::interrupted());
  ++load.ready;
  while (!load.go) std::this_thread::yield();
  uint64_t random = 1;
  while (!load.stop) {
    if (load.options.runs != 0 && load.tickets++ >= load.options.runs) break;
    const auto start = Clock::now();
    BELAY_TRY(context.try_run());
    ++caller.runs;
    keep(caller, std::chrono::duration<float, std::nano>(Clock::now() - start).count(), random);
  }
  for (const Input& input : load.inputs)
    caller.in.add(load.model.inputs()[input.index].name, context.input_memory(input.index));
  for (size_t i = 0; i < load.model.outputs().size(); ++i)
    caller.out.add(load.model.outputs()[i].name, context.output_memory(i));
  return {};
}

void call(Load& load, Caller& caller) {
  try {
    caller.failure = work(load, caller);
  } catch (const Failure& failure) {
    caller.failure = {failure.exit == Exit::kResource ? Code::kResourceExhausted : Code::kFailedPrecondition,
                      failure.message};
  }
  if (!caller.failure.ok()) load.stop = true;  // the others need not go on
  ++load.done;
}

double percentile(const std::vector<float>& sorted, double part) {
  return sorted[std::min(sorted.size() - 1, size_t(part * double(sorted.size())))];
}

}  // namespace

Exit bench(const BenchOptions& options, Output& output) {
  check_model_file(options.model);
  std::vector<std::string> sets;
  if (options.threads) sets.push_back("engine.threads=" + std::to_string(*options.threads));
  if (options.callers > 1)  // each keeps a context
    sets.push_back("engine.max_contexts=" + std::to_string(options.callers));
  const Runtime runtime(options.common, sets);
  const std::string device = runtime.device_id(options.common.device);
  const uint64_t rss_before = peak_rss();
  const auto created = Clock::now();
  const Model model(runtime, options.model, device);
  const double create_ns = seconds_since(created) * 1e9;
  InputOptions how = options.inputs;
  if (!how.random && !how.zeros) how.random = 0;
  const std::vector<Input> inputs = gather_inputs(model, how, output);

  const Interruptible guard;
  Load load{model, inputs, options};
  std::vector<Caller> callers(options.callers);
  std::vector<std::thread> threads;
  try {
    for (Caller& caller : callers) threads.emplace_back(call, std::ref(load), std::ref(caller));
  } catch (const std::system_error& error) {
    load.go = load.stop = true;
    for (std::thread& thread : threads) thread.join();
    fail(Stage::kModel, {Code::kResourceExhausted, "Of " + std::to_string(options.callers) + " callers " +
                                                       std::to_string(threads.size()) +
                                                       " got a thread: " + error.code().message() + "."});
  }
  Progress progress(output, "bench", uint64_t(options.seconds * 1000));
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  while (load.ready + load.done < options.callers) pause();
  const auto start = Clock::now();
  load.go = true;
  // With a number of runs the callers end by themselves, after that number in all.
  while (load.done < options.callers && !Interruptible::interrupted() &&
         (options.runs != 0 || seconds_since(start) < options.seconds)) {
    pause();
    progress.at(uint64_t(seconds_since(start) * 1000), fixed(seconds_since(start), 1) + " s");
  }
  load.stop = true;
  for (std::thread& thread : threads) thread.join();
  const double wall = seconds_since(start);
  for (const Caller& caller : callers)
    if (!caller.failure.ok()) fail(Stage::kModel, caller.failure);

  std::vector<float> times;
  uint64_t runs = 0;
  for (const Caller& caller : callers) {
    times.insert(times.end(), caller.times.begin(), caller.times.end());
    runs += caller.runs;
  }
  if (times.empty()) return Exit::kInterrupted;
  std::sort(times.begin(), times.end());
  const belay_executable_stats stats = model.stats();
  double mean = 0;
  for (const float time : times) mean += double(time) / double(times.size());

  if (output.json) {
    ordered_json json{{"model", options.model},
                      {"device", device},
                      {"threads", options.threads ? ordered_json(*options.threads) : ordered_json(nullptr)},
                      {"callers", options.callers},
                      {"inputs", ordered_json::array()},
                      {"runs", runs},
                      {"seconds", wall},
                      {"runs_per_second", double(runs) / wall}};
    for (const Input& input : inputs)
      json["inputs"].push_back({{"name", model.inputs()[input.index].name},
                                {"type", type_text(input.datum)},
                                {"from", input.from}});
    json["latency_ns"] = {{"median", percentile(times, 0.5)},
                          {"p10", percentile(times, 0.1)},
                          {"p90", percentile(times, 0.9)},
                          {"p99", percentile(times, 0.99)},
                          {"min", times.front()},
                          {"max", times.back()},
                          {"mean", mean}};
    json["create_ns"] = uint64_t(create_ns);
    json["memory"] = {{"peak_rss_bytes", peak_rss()},       {"peak_rss_before_load_bytes", rss_before},
                      {"arena_bytes", stats.arena_bytes},   {"live_bytes", stats.live_bytes},
                      {"weight_bytes", stats.weight_bytes}, {"borrowed_bytes", stats.borrowed_bytes},
                      {"copied_bytes", stats.copied_bytes}, {"packed_bytes", stats.packed_bytes}};
    const auto moved = [](const MovedBytes& bytes) {
      return ordered_json{{"shared_bytes", bytes.shared},
                          {"copied_bytes", bytes.copied},
                          {"copied_first", bytes.first.empty() ? ordered_json(nullptr) : ordered_json(bytes.first)}};
    };
    json["memory"]["run_inputs"] = moved(callers[0].in);
    json["memory"]["run_outputs"] = moved(callers[0].out);
    output.document("belay.bench/1", json);
  } else {
    std::string shapes;
    for (const Input& input : inputs)
      shapes += (shapes.empty() ? "" : "; ") + printable(model.inputs()[input.index].name) + " " +
                type_text(input.datum);
    Table table;
    table.row({"model", printable(options.model) + " on " + device +
                            (options.threads ? ", " + plural(*options.threads, "thread") : "")});
    table.row({"inputs", shapes.empty() ? "none" : shapes});
    table.row({"runs", std::to_string(runs) + " in " + fixed(wall, 2) + " s by " +
                           plural(options.callers, "caller") + ", " +
                           fixed(double(runs) / wall, double(runs) / wall < 100 ? 2 : 0) + " a second"});
    table.row({"latency", "median " + time_text(percentile(times, 0.5)) + "   p10 " +
                              time_text(percentile(times, 0.1)) + "   p90 " +
                              time_text(percentile(times, 0.9)) + "   p99 " +
                              time_text(percentile(times, 0.99))});
    table.row({"create", time_text(create_ns)});
    table.row({"memory", "peak RSS " + bytes_text(peak_rss()) + ", of it " + bytes_text(rss_before) +
                             " before the model"});
    table.row(
        {"arena",
         bytes_text(stats.arena_bytes) + ", live at most " + bytes_text(stats.live_bytes) +
             (stats.live_bytes ? " (" + fixed(double(stats.arena_bytes) / double(stats.live_bytes), 2) + "x)"
                               : "")});
    table.row({"weights", weights_text(stats)});
    table.row({"a run", "inputs " + moved_text(callers[0].in) + "; outputs " + moved_text(callers[0].out)});
    output.print(table.text());
  }
  return Interruptible::interrupted() ? Exit::kInterrupted : Exit::kOk;
}

}  // namespace belay::cli
