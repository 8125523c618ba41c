#include "plan_problem.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>

namespace belay::cli {

Exit memory_plan(const MemoryPlanOptions& options, Output& output) {
  using Clock = std::chrono::steady_clock;
  need_other_file(options.file, options.svg, "--svg");
  const PlanProblem problem = read_plan_problem(options.file);
  std::vector<uint64_t> first(problem.ids.size() + 1), offsets(problem.ids.size());
  for (size_t i = 0; i < first.size(); ++i) first[i] = i;
  uint64_t peak = 0, lower_bound = 0;
  belay_plan_req req{};
  req.hdr.struct_size = sizeof req;
  req.count = problem.ids.size();
  req.bytes = problem.bytes.data();
  req.align = problem.align.data();
  req.arena_count = 1;
  req.interval_first = first.data();
  req.intervals = problem.lives.data();
  req.capacity = options.capacity ? &*options.capacity : nullptr;
  req.budget_ns = uint64_t(std::min(options.budget_ms, 1e9) * 1e6);
  req.seed = options.seed;
  belay_plan_result result{};
  result.hdr.struct_size = sizeof result;
  result.offset = offsets.data();
  result.peak = &peak;
  result.lower_bound = &lower_bound;

  const Runtime runtime(options.common);
  const belay_host* host = nullptr;
  const belay_hal_vt* const hal = belay_runtime_hal(runtime.get().get(), &host);
  const auto begin = Clock::now();
  check(hal->plan(host, &req, &result), Stage::kModel);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const std::string wrong = check_plan_answer(problem, offsets, peak);
  if (!wrong.empty())
    throw Failure{Exit::kInternal, "INTERNAL", "The plan is wrong: " + wrong + ".",
                  "Take the policy out of [memory] policies and report this."};
  if (!options.svg.empty()) {
    const std::string name = std::filesystem::path(options.file).filename().string();
    write_result(options.svg, draw_plan(problem, offsets, peak, lower_bound, name), "picture");
  }

  // The first of class PLAN is the one that plans.
  std::string policy;
  for (const belay::Runtime::PolicyInfo& info : value_or_fail(runtime.get().policies(), Stage::kConfigure))
    if (policy.empty() && info.serves & BELAY_POLICY_PLAN) policy = info.name;
  const bool fits = !options.capacity || peak <= *options.capacity;
  const double ratio = lower_bound ? double(peak) / double(lower_bound) : 1;
  if (output.json) {
    output.document("belay.memory-plan/1", {{"file", options.file},
                                            {"policy", policy},
                                            {"buffers", problem.ids.size()},
                                            {"peak", peak},
                                            {"lower_bound", lower_bound},
                                            {"ratio", ratio},
                                            {"optimal", result.optimal != 0},
                                            {"fits", fits},
                                            {"seconds", seconds},
                                            {"verified", true}});
    return fits ? Exit::kOk : Exit::kDiffers;
  }
  Table table;
  table.row({"policy", policy.empty() ? "none: no policy of class PLAN is configured, so every buffer lies apart" : policy});
  table.row({"buffers", std::to_string(problem.ids.size())});
  table.row({"peak", std::to_string(peak) + " bytes (" + bytes_text(peak) + "), " + (lower_bound ? fixed(ratio, 4) + " of the lower bound" : "though no buffer ever lives") +
                         (result.optimal ? ", proved smallest" : "")});
  table.row({"lower bound", std::to_string(lower_bound) + " bytes live at once"});
  if (options.capacity)
    table.row({"capacity", std::to_string(*options.capacity) + " bytes: " +
                               (fits ? "fits"
                                : *options.capacity < lower_bound || result.optimal
                                    ? "does not fit, and no plan does"
                                    : "does not fit; more time (--budget-ms) may find a way")});
  table.row({"time", time_text(seconds * 1e9)});
  table.row({"verified", "no two buffers that live at once overlap"});
  if (!options.svg.empty()) table.row({"picture", options.svg});
  output.print(table.text());
  return fits ? Exit::kOk : Exit::kDiffers;
}

}  // namespace belay::cli
