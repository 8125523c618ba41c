#include "memory_map.hpp"
#include "replay.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <sstream>
#include <thread>

namespace belay::cli {
namespace {

// The policy that is named, of all that plugins offer, or else the first of the configuration that places.
std::string policy_of(const MemoryReplayOptions& options) {
  if (options.policy.empty()) {
    const Runtime runtime(options.common);
    for (const belay::Runtime::PolicyInfo& info : value_or_fail(runtime.get().policies(), Stage::kConfigure))
      if (info.serves & BELAY_POLICY_PLACE) return info.name;
    fail_usage("No policy of [memory] policies places blocks, so there is nothing to replay with.",
               "Name one that does: --policy pool");
  }
  const std::string kind = BELAY_MEMORY_POLICY_KIND ":";
  std::vector<std::string> names;
  for (const PluginInfo& plugin : find_plugins(options.common)) {
    std::istringstream keys(plugin.kinds);
    for (std::string key; keys >> key;)
      if (key.starts_with(kind)) names.push_back(key.substr(kind.size()));
  }
  if (std::find(names.begin(), names.end(), options.policy) == names.end())
    fail_usage("There is no memory policy '" + printable(options.policy) + "'; plugins offer " +
                   (names.empty() ? "none" : joined(names)) + ".",
               did_you_mean(options.policy, names));
  return options.policy;
}

// A runtime of its own for each pass, so that the policy begins anew.
class FreshPolicy {
 public:
  FreshPolicy(const Common& common, const std::string& name)
      : runtime_(common, {"memory.policies=[\"" + name + "\"]"}) {
    const auto policy = value_or_fail(runtime_.get().policy(name), Stage::kConfigure,
                                      "A --set of memory.policies wins over --policy: leave one of them out.");
    raw_ = {policy.table, policy.object};
    const belay_memory_policy_vt& vt = *raw_.table;
    if (!(vt.serves(raw_.object) & BELAY_POLICY_PLACE) || !BELAY_HAS(&vt, belay_memory_policy_vt, place) ||
        !BELAY_HAS(&vt, belay_memory_policy_vt, release) ||
        !BELAY_HAS(&vt, belay_memory_policy_vt, segment_add) ||
        !BELAY_HAS(&vt, belay_memory_policy_vt, segment_remove) ||
        !BELAY_HAS(&vt, belay_memory_policy_vt, trim))
      fail_usage("Policy '" + name + "' places nothing, so there is nothing to replay with it.",
                 "Name one that does: --policy pool");
  }
  Policy raw() const { return raw_; }
  belay_policy_stats stats() const {
    belay_policy_stats stats{};
    stats.hdr.struct_size = sizeof stats;
    check(raw_.table->stats(raw_.object, &stats), Stage::kModel);
    return stats;
  }

 private:
  Runtime runtime_;
  Policy raw_{};
};

// How much one byte takes; of a policy of its own, so that what is checked begins as what is timed does.
uint64_t rounding_of(const Common& common, const std::string& name) {
  const FreshPolicy policy(common, name);
  Reservation reservation(policy.raw(), {});
  AllocTrace one;
  one.rows = {{1, 0, 0, AllocTrace::Op::kPlace}, {0, 0, 0, AllocTrace::Op::kRelease}};
  one.slots = one.streams = 1;
  one.fullest = 1;
  uint64_t bytes = 1;
  replay(policy.raw(), one, reservation,
         {.checked = true, .at_fullest = [&] { bytes = policy.stats().in_use; }});
  return std::max<uint64_t>(1, bytes);
}

uint64_t lag_of(const std::string& text) {
  if (text == "never") return kNeverReached;
  const auto lag = number_of<uint64_t>(text);
  if (!lag || lag == kNeverReached)
    fail_usage("--lag is '" + printable(text) + "', want a number of rows, or never.");
  return *lag;
}

struct Setting {
  const MemoryReplayOptions& options;
  const AllocTrace& trace;
  std::string policy;
  uint64_t lag = 0;
  std::optional<uint64_t> capacity;  // one reservation of so much
  FreshPolicy fresh() const { return {options.common, policy}; }
};

// Before the policy is asked for anything.
void reserve(const Setting& setting, Reservation& reservation) {
  if (!setting.capacity || !*setting.capacity) return;
  try {
    reservation.add(*setting.capacity);
  } catch (const Failure& failure) {
    fail_usage("--capacity is " + bytes_text(*setting.capacity) + ", which policy '" + setting.policy +
                   "' does not take as a reservation: " + failure.message,
               failure.hint);
  }
}

bool finishes(const Setting& setting) {
  const FreshPolicy policy = setting.fresh();
  Reservation reservation(policy.raw(), setting.capacity);
  reserve(setting, reservation);
  return replay(policy.raw(), setting.trace, reservation, {.lag = setting.lag}).finished;
}

uint64_t smallest_capacity(Setting setting) {
  const auto fits = [&](uint64_t capacity) {
    setting.capacity = capacity;
    return finishes(setting);
  };
  const uint64_t least = std::max<uint64_t>(setting.trace.max_live, 1);
  // Segments are whole pages.
  const auto page = [](uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; };
  uint64_t low = page(least) - 4096, high = page(least);
  while (!fits(high)) {
    low = high;
    high = page(high + std::max<uint64_t>(least / 64, high - least));
    if (high > 64 * least + (uint64_t{1} << 30))
      fail(Stage::kModel, {Code::kResourceExhausted, "Policy '" + setting.policy +
                                                         "' does not finish the trace in " + bytes_text(low) +
                                                         ", many times what is live."});
  }
  const uint64_t step = std::max<uint64_t>(4096, page(least / 10'000));
  while (high - low > step) {
    const uint64_t middle = page(low + (high - low) / 2);
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

struct Timed {
  double per_pair = 0;  // nanoseconds of a thread's time
  uint64_t reserved = 0;
  uint64_t thread = 0;  // from 1, that finds no room
  ReplayResult failed;  // there
};

Timed timed(const Setting& setting) {
  const FreshPolicy policy = setting.fresh();
  const uint64_t threads = setting.options.threads;
  Reservation reservation(policy.raw(), setting.capacity);
  reserve(setting, reservation);
  std::vector<ReplayResult> results(threads);
  std::vector<std::exception_ptr> failures(threads);
  const auto work = [&](uint64_t i) {
    try {
      results[i] = replay(policy.raw(), setting.trace, reservation,
                          {.lag = setting.lag, .first_timeline = uint32_t(1 + i * setting.trace.streams)});
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (uint64_t i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& other : others) other.join();
  Timed out;
  out.reserved = reservation.reserved();
  for (uint64_t i = 0; i < threads; ++i) {
    if (failures[i]) std::rethrow_exception(failures[i]);
    if (!results[i].finished && !out.thread) {
      out.thread = i + 1;
      out.failed = results[i];
    }
    out.per_pair +=
        results[i].nanoseconds / double(threads) / double(std::max<uint64_t>(setting.trace.pairs, 1));
  }
  return out;
}

std::string snapshot_of(Policy policy) {
  if (!BELAY_HAS(policy.table, belay_memory_policy_vt, snapshot)) return "";
  StringSink text;
  check(policy.table->snapshot(policy.object, text.sink()), Stage::kModel);
  return std::move(text).str();
}

}  // namespace

Exit memory_replay(const MemoryReplayOptions& options, Output& output) {
  need_other_file(options.file, options.snapshot, "--snapshot");
  need_other_file(options.file, options.svg, "--svg");
  const AllocTrace trace = read_alloc_trace(options.file);
  Setting setting{options, trace, policy_of(options), lag_of(options.lag), options.capacity};
  if (options.threads > 1 && (setting.lag || options.min_capacity))
    fail_usage(
        "--threads goes with neither --lag nor --min-capacity: threads know nothing of each other's rows.");
  if (options.min_capacity) setting.capacity = smallest_capacity(setting);

  // The first pass is checked and not timed.
  belay_policy_stats full{}, end{};
  std::string snapshot;
  ReplayResult checked;
  uint64_t reserved = 0, segments = 0;
  const uint64_t rounding = rounding_of(options.common, setting.policy);
  {
    const FreshPolicy policy = setting.fresh();
    Reservation reservation(policy.raw(), setting.capacity);
    reserve(setting, reservation);
    checked = replay(policy.raw(), trace, reservation,
                     {.lag = setting.lag, .checked = true, .rounding = rounding, .at_fullest = [&] {
                        full = policy.stats();
                        snapshot = snapshot_of(policy.raw());
                      }});
    end = policy.stats();
    reserved = reservation.reserved();
    segments = reservation.segments();
  }
  if (!checked.wrong.empty())
    throw Failure{Exit::kInternal, "INTERNAL",
                  "Policy '" + setting.policy + "' gives a wrong place at row " +
                      std::to_string(checked.row) + ": " + checked.wrong + ".",
                  "Take it out of [memory] policies and report this."};
  std::vector<double> times;
  uint64_t thread = 0;  // that finds no room beside others
  for (uint64_t i = 0; i < options.runs && checked.finished; ++i) {
    const Timed run = timed(setting);
    reserved = run.reserved;
    times.push_back(run.per_pair);
    if (!run.thread) continue;
    checked.finished = false;
    checked.row = run.failed.row, checked.need_bytes = run.failed.need_bytes;
    thread = run.thread;
    times.clear();
  }
  std::sort(times.begin(), times.end());
  const double per_pair = times.empty() ? 0 : times[times.size() / 2];
  const double ratio = trace.max_live ? double(reserved) / double(trace.max_live) : 1;
  if ((!options.snapshot.empty() || !options.svg.empty()) && snapshot.empty())
    fail_input(checked.finished ? "Policy '" + setting.policy + "' has no snapshots."
                                : "The trace ends before most is live, so there is no snapshot.");
  if (!options.snapshot.empty()) write_result(options.snapshot, snapshot, "snapshot");
  nlohmann::json map;
  if (!snapshot.empty()) {
    map = nlohmann::json::parse(snapshot, nullptr, false);
    if (map.is_discarded())
      throw Failure{Exit::kInternal, "INTERNAL",
                    "The snapshot of policy '" + setting.policy + "' is no JSON.",
                    "Report this to its author."};
  }
  if (!options.svg.empty())
    write_result(options.svg, draw_memory_map(map, std::filesystem::path(options.file).filename().string()),
                 "picture");

  if (output.json) {
    output.document("belay.memory-replay/1", {{"file", options.file},
                                              {"policy", setting.policy},
                                              {"rows", trace.rows.size() - trace.left},
                                              {"pairs", trace.pairs},
                                              {"left", trace.left},
                                              {"streams", trace.streams_used},
                                              {"threads", options.threads},
                                              {"lag", options.lag},
                                              {"finished", checked.finished},
                                              {"row", checked.row},
                                              {"ns_per_pair", per_pair},
                                              {"runs", times.size()},
                                              {"max_live", trace.max_live},
                                              {"reserved_peak", reserved},
                                              {"ratio", ratio},
                                              {"segments", segments},
                                              {"waits", checked.waits},
                                              {"lost_in_blocks", full.in_use - full.requested},
                                              {"free_at_fullest", full.reserved - full.in_use},
                                              {"largest_free_at_fullest", full.largest_free},
                                              {"trimmed", end.trimmed},
                                              {"verified", true}});
    return checked.finished ? Exit::kOk : Exit::kDiffers;
  }
  Table table;
  table.row({"policy", setting.policy});
  table.row({"rows", std::to_string(trace.rows.size() - trace.left) + ", " + plural(trace.pairs, "pair") +
                         " of place and release, " + plural(trace.streams_used, "stream") +
                         (trace.left ? "; " + plural(trace.left, "block") +
                                           " that the trace does not free, freed at its end"
                                     : "")});
  table.row({"live", std::to_string(trace.max_live) + " bytes (" + bytes_text(trace.max_live) + ") at most"});
  if (!checked.finished) {
    table.row({"capacity", "row " + std::to_string(checked.row) +
                               (thread ? " of thread " + std::to_string(thread) : "") + ", of " + bytes_text(trace.rows[checked.row - 1].bytes) + ", finds no room in " +
                               bytes_text(reserved) +
                               (checked.need_bytes ? ": the policy asks for a segment of " +
                                                         bytes_text(checked.need_bytes) +
                                                         " more, and nothing is left"
                                                   : ": the policy has reached a limit of its own")});
  } else {
    table.row({options.min_capacity ? "capacity" : "reserved",
               std::to_string(reserved) + " bytes (" + bytes_text(reserved) + "), " +
                   fixed(ratio, 4) + " of that, in " + plural(segments, "segment")});
    table.row({"time", fixed(per_pair, 1) + " ns a pair: two calls of the policy, processor time of " +
                           (options.threads > 1 ? "each of " + std::to_string(options.threads) + " threads"
                                                : "one thread") +
                           ", median of " + plural(times.size(), "run")});
  }
  table.row({"waits", plural(checked.waits, "wait") + " for other streams; events are reached " +
                          (setting.lag == kNeverReached ? "only when waited for"
                           : setting.lag                ? options.lag + " rows later"
                                                        : "at once")});
  if (full.reserved) {
    table.row({"when most is live",
               bytes_text(full.in_use - full.requested) + " lost inside " + plural(full.blocks, "block") +
                   ", " + bytes_text(full.reserved - full.in_use) + " between them" +
                   (full.free_blocks ? " in " + plural(full.free_blocks, "range") + ", the largest " +
                                           bytes_text(full.largest_free)
                                     : "")});
  }
  table.row({"verified", "no block overlaps another, or was used before an event that it had to wait for"});
  output.print(table.text());
  if (map.contains("classes")) {
    Table classes(0, {0, 1, 2});
    classes.row({"blocks up to", "used", "free"});
    for (const auto& line : map["classes"])
      classes.row({bytes_text(line.value("bytes", uint64_t{0})),
                   std::to_string(line.value("used", uint64_t{0})),
                   std::to_string(line.value("free", uint64_t{0}))});
    output.print("\n" + classes.text());
  }
  return checked.finished ? Exit::kOk : Exit::kDiffers;
}

}  // namespace belay::cli
