#include "show.hpp"
#include "text.hpp"
#include "verbs.hpp"
#include "worker_pool.hpp"

#include <nlohmann/json.hpp>

#include <fnmatch.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <thread>

namespace belay::cli {
namespace fs = std::filesystem;
namespace {

using nlohmann::ordered_json;

struct Case {
  std::string name;  // relative to the folder given: "node/test_abs"
  std::string path;
};

struct CaseResult {
  std::string status, reason;  // "passed", "failed", "unsupported"
};

// A case is a folder with a model.onnx and folders test_data_set_N.
std::vector<Case> find_cases(const std::string& folder, const std::string& filter) {
  need_folder(folder);
  std::error_code error;  // what cannot be looked at is no case
  const fs::path root = fs::path(folder).lexically_normal();
  std::vector<Case> cases;
  const auto add = [&](const fs::path& at) {
    if (!fs::is_regular_file(at / "model.onnx", error)) return false;
    std::string name = at.lexically_relative(root).generic_string();
    if (name == ".") name = fs::absolute(at / "x").parent_path().filename().string();
    const bool pattern = filter.find_first_of("*?[") != std::string::npos;
    if (filter.empty() ||
        (pattern ? fnmatch(filter.c_str(), name.c_str(), 0) == 0 : name.find(filter) != std::string::npos))
      cases.push_back({name, at.string()});
    return true;
  };
  if (!add(root)) {
    std::error_code failed;
    for (fs::recursive_directory_iterator it(root, failed), end; !failed && it != end; it.increment(failed))
      if (it->is_directory(error) && add(it->path())) it.disable_recursion_pending();
    if (failed) fail_input("Cannot read all folders below '" + folder + "': " + failed.message() + ".");
  }
  std::sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) { return a.name < b.name; });
  return cases;
}

// Cases whose expected output came from a generator that the standard leaves open: type and shape are
// compared.
bool is_random(const std::string& path) {
  constexpr const char* kRandom[] = {"test_bernoulli", "test_training_dropout"};
  const std::string name = fs::path(path).filename().string();
  if (name.find("_zero_ratio") != std::string::npos) return false;  // nothing is dropped
  return std::any_of(std::begin(kRandom), std::end(kRandom),
                     [&](const char* begin) { return name.starts_with(begin); });
}

// The cases were written with NumPy, which has no bfloat16: its bits stand in them as uint16.
HostDatum read_case_file(const std::string& path, const IoInfo& info) {
  HostDatum datum = value_or_fail(read_pb(path, info.kind), Stage::kModel);
  if (info.dtype == BELAY_DT_BFLOAT16 && datum.kind == BELAY_TYPE_TENSOR &&
      datum.tensor.dtype == BELAY_DT_UINT16)
    datum.tensor.dtype = BELAY_DT_BFLOAT16;
  return datum;
}

// Conversion to bfloat16 may cut or round: the cases cut. So results may be one step apart, which is more than the
// usual tolerance.
Tolerance tolerance_of(const IoInfo& output, Tolerance tolerance) {
  if (output.dtype == BELAY_DT_BFLOAT16) tolerance.rtol = std::max(tolerance.rtol, 1.0 / 128);
  return tolerance;
}

Comparison compare_types(const HostDatum& found, const HostDatum& expected) {
  Comparison out;
  out.equal = found.kind == expected.kind && found.tensor.dtype == expected.tensor.dtype &&
              found.tensor.dims == expected.tensor.dims;
  if (!out.equal) out.reason = "It is " + type_text(found) + ", want " + type_text(expected) + ".";
  return out;
}

bool has_shape(const HostDatum& datum, const IoInfo& info) {
  if (datum.kind != BELAY_TYPE_TENSOR || !info.rank_known) return true;
  return std::equal(datum.tensor.dims.begin(), datum.tensor.dims.end(), info.dims.begin(), info.dims.end(),
                    [](int64_t dim, int64_t declared) { return declared < 0 || dim == declared; });
}

// Which inputs the files of a set stand for follows from their number. "misdeclared": an input has not the shape that
// the model declares.
CaseResult run_set(const Runtime& runtime, const Model& model, const std::string& folder,
                   const Tolerance& tolerance, bool random) {
  const std::vector<std::string> input_files = numbered_files(folder, "input_");
  const std::vector<std::string> output_files = numbered_files(folder, "output_");
  if (output_files.empty()) return {"failed", "the case has no output_0.pb to compare with"};
  const std::vector<size_t> targets = inputs_for_files(model.inputs(), input_files.size());
  if (targets.size() != input_files.size())
    return {"failed", "the case has " + plural(input_files.size(), "input") + ", the model " +
                          std::to_string(model.inputs().size())};
  if (output_files.size() > model.outputs().size())
    return {"failed", "the case has " + plural(output_files.size(), "output") + ", the model " +
                          std::to_string(model.outputs().size())};
  std::vector<std::unique_ptr<HostDatum>> data;
  std::vector<std::unique_ptr<DatumView>> views;
  Context context(model);
  for (size_t i = 0; i < targets.size(); ++i) {
    const IoInfo& input = model.inputs()[targets[i]];
    data.push_back(std::make_unique<HostDatum>(read_case_file(input_files[i], input)));
    if (!has_shape(*data.back(), input)) return {"misdeclared", ""};
    views.push_back(std::make_unique<DatumView>(*data.back()));
    context.set_input(targets[i], views.back()->get());
  }
  context.run();
  for (size_t i = 0; i < output_files.size(); ++i) {
    const HostDatum found = runtime.fetch(context.output(i));
    const HostDatum expected = read_case_file(output_files[i], model.outputs()[i]);
    const Comparison comparison =
        random ? compare_types(found, expected) : compare(found, expected, tolerance_of(model.outputs()[i], tolerance));
    if (!comparison.equal)
      return {"failed", "output '" + model.outputs()[i].name + "': " + comparison.reason};
  }
  return {"passed", ""};
}

// The runtimes of a child process. Who wrote the cases did not look at the shapes that models declare, and in some an
// input has another: these run with `open`, which does not look at them either.
class Runtimes {
 public:
  explicit Runtimes(const Common& common)
      : common_(common), declared_(common), device_(declared_.device_id(common.device)) {}
  const Runtime& declared() const { return declared_; }
  const std::string& device() const { return device_; }
  const Runtime& open() {
    if (!open_) open_ = std::make_unique<Runtime>(common_, std::vector<std::string>{"engine.input_shapes=\"open\""});
    return *open_;
  }

 private:
  const Common& common_;
  const Runtime declared_;
  const std::string device_;
  std::unique_ptr<Runtime> open_;
};

CaseResult run_case(const Runtime& runtime, const std::string& device, const std::string& path,
                    const Tolerance& tolerance) {
  try {
    const Model model(runtime, (fs::path(path) / "model.onnx").string(), device);
    size_t set = 0;
    for (;; ++set) {
      const fs::path folder = fs::path(path) / ("test_data_set_" + std::to_string(set));
      if (!fs::is_directory(look_at(folder.string()))) break;
      const CaseResult result = run_set(runtime, model, folder.string(), tolerance, is_random(path));
      if (result.status != "passed") return result;
    }
    if (set == 0) return {"failed", "the case has no folder test_data_set_0"};
    return {"passed", ""};
  } catch (const Failure& failure) {
    return {failure.code == "UNIMPLEMENTED" ? "unsupported" : "failed", failure.message};
  }
}

std::string with_words(std::string text, const std::string& last_words) {
  return last_words.empty() ? text : text + "; its last words: " + last_words;
}

CaseResult result_of(const CaseOutcome& outcome, double timeout) {
  switch (outcome.kind) {
    case CaseOutcome::Kind::kDied:
      return {"failed", with_words("crashed: the process " + outcome.how, outcome.last_words)};
    case CaseOutcome::Kind::kTimedOut:
      return {"failed", with_words("hung: not done after " + fixed(timeout, 0) + " s", outcome.last_words)};
    case CaseOutcome::Kind::kAnswered:
      break;
  }
  const auto json = nlohmann::json::parse(outcome.answer, nullptr, false);
  if (!json.is_object()) return {"failed", "the child process answered '" + outcome.answer + "'"};
  if (json.contains("fatal"))  // the runtime did not start: no case can run
    throw Failure{static_cast<Exit>(json.value("exit", int(Exit::kInternal))), json.value("code", ""),
                  json.value("fatal", ""), json.value("hint", "")};
  return {json.value("status", "failed"), json.value("reason", "")};
}

std::vector<std::string> worker_arguments(const ConformanceOptions& options) {
  std::vector<std::string> out{"belay", "conformance", "worker"};
  const auto add = [&](const char* option, const std::string& value) {
    out.insert(out.end(), {option, value});
  };
  for (const std::string& file : options.common.configs) add("--config", file);
  for (const std::string& set : options.common.sets) add("--set", set);
  for (const std::string& dir : options.common.plugin_dirs) add("--plugin-dir", dir);
  if (!options.common.device.empty()) add("--device", options.common.device);
  char number[64];
  const auto real = [&](double value) {
    return std::string(number, size_t(std::snprintf(number, sizeof number, "%.17g", value)));
  };
  add("--rtol", real(options.rtol));
  add("--atol", real(options.atol));
  return out;
}

// What reasons of one kind have in common: names, numbers and shapes are left out.
std::string kind_of(const std::string& reason) {
  std::string out;
  int depth = 0;
  bool quoted = false;
  for (const char c : reason.substr(0, reason.find(" (while "))) {
    if (c == '\'') quoted = !quoted;
    if (c == '[') ++depth;
    if (!quoted && depth == 0 && (c < '0' || c > '9')) out += c;
    if (c == ']' && depth > 0) --depth;
  }
  // Operands differ from case to case: "on (float32[...], none)".
  const size_t on = out.find(", on (");
  return on == std::string::npos ? out
                                 : out.substr(0, on) + out.substr(std::min(out.find(')', on), out.size()));
}

// The cases of `status` by kind of reason, the most frequent first; of each kind the first reason is shown.
std::string grouped(const std::vector<Case>& cases, const std::vector<CaseResult>& results,
                    const std::string& status, bool all) {
  constexpr size_t kShown = 4;
  std::map<std::string, std::vector<size_t>> by_kind;
  for (size_t i = 0; i < cases.size(); ++i)
    if (results[i].status == status) by_kind[kind_of(results[i].reason)].push_back(i);
  std::vector<std::vector<size_t>> groups;
  for (auto& [kind, indices] : by_kind) groups.push_back(std::move(indices));
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::string out;
  for (const std::vector<size_t>& group : groups) {
    const std::string& reason = results[group.front()].reason;
    out += "  " + printable(all ? reason : reason.substr(0, reason.find(" (while "))) + "\n";
    const size_t shown = all || group.size() == kShown + 1 ? group.size() : std::min(group.size(), kShown);
    for (size_t i = 0; i < shown; ++i) out += "      " + cases[group[i]].name + "\n";
    if (shown < group.size())
      out += "      ... " + std::to_string(group.size() - shown) + " more (-v shows all)\n";
  }
  return out;
}

}  // namespace

Exit conformance_onnx(const ConformanceOptions& options, Output& output) {
  const std::vector<Case> cases = find_cases(options.folder, options.filter);
  if (cases.empty())
    fail_input(
        options.filter.empty()
            ? "No case below '" + options.folder + "': want folders with model.onnx and test_data_set_0."
            : "No case below '" + options.folder + "' whose name fits --filter '" + options.filter + "'.");
  std::vector<std::string> paths;
  for (const Case& one : cases) paths.push_back(one.path);
  PoolOptions pool{worker_arguments(options), options.jobs, options.timeout};
  if (pool.jobs == 0) pool.jobs = std::max(1u, std::thread::hardware_concurrency());

  std::vector<CaseResult> results(cases.size(), CaseResult{"not run", ""});
  uint64_t done = 0, failed = 0;
  {
    const Interruptible guard;
    Progress progress(output, "conformance", cases.size());
    work_through(
        pool, paths,
        [&](size_t index, CaseOutcome outcome) {
          results[index] = result_of(outcome, options.timeout);
          failed += results[index].status == "failed";
          ++done;
          progress.at(done, std::to_string(done) + "/" + std::to_string(cases.size()) + " " +
                                std::to_string(failed) + " failed " + cases[index].name);
        },
        [] { return Interruptible::interrupted(); });
  }

  const auto count = [&](const char* status) {
    return uint64_t(std::count_if(results.begin(), results.end(),
                                  [&](const CaseResult& r) { return r.status == status; }));
  };
  const uint64_t not_run = count("not run");
  if (output.json) {
    ordered_json json{{"passed", count("passed")},
                      {"failed", count("failed")},
                      {"unsupported", count("unsupported")},
                      {"cases", ordered_json::array()}};
    for (size_t i = 0; i < cases.size(); ++i)
      if (results[i].status != "not run")
        json["cases"].push_back(
            {{"name", cases[i].name}, {"status", results[i].status}, {"reason", results[i].reason}});
    output.document("belay.conformance/1", json);
  } else {
    std::string text;
    const bool all = options.common.verbose > 0;
    if (!output.quiet && count("unsupported") > 0)
      text += "unsupported\n" + grouped(cases, results, "unsupported", all);
    if (!output.quiet && failed > 0) text += "failed\n" + grouped(cases, results, "failed", all);
    text += std::to_string(count("passed")) + " passed, " + std::to_string(failed) + " failed, " +
            std::to_string(count("unsupported")) + " unsupported of " + plural(cases.size(), "case") +
            (not_run ? "; " + std::to_string(not_run) + " not run" : "") + "\n";
    output.print(text);
  }
  if (not_run > 0) return Exit::kInterrupted;
  return failed > 0 ? Exit::kDiffers : Exit::kOk;
}

Exit conformance_worker(const ConformanceOptions& options, int result_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no child outlives its parent
  std::signal(SIGINT, SIG_IGN);      // Ctrl-C reaches the whole group; the parent says when to stop
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const auto answer = [&](const ordered_json& json) {
    const std::string line = json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    for (size_t at = 0; at < line.size();) {
      const ssize_t n = ::write(result_fd, line.data() + at, line.size() - at);
      if (n <= 0 && errno != EINTR) _exit(int(Exit::kInternal));
      if (n > 0) at += size_t(n);
    }
  };
  Tolerance tolerance = kOnnxTolerance;
  tolerance.rtol = options.rtol, tolerance.atol = options.atol;
  std::unique_ptr<Runtimes> runtimes;
  for (std::string path; std::getline(std::cin, path);) {
    try {
      if (!runtimes) runtimes = std::make_unique<Runtimes>(options.common);
    } catch (const Failure& failure) {
      answer({{"fatal", failure.message},
              {"code", failure.code},
              {"exit", int(failure.exit)},
              {"hint", failure.hint}});
      continue;
    }
    try {
      const std::string& device = runtimes->device();
      CaseResult result = run_case(runtimes->declared(), device, path, tolerance);
      if (result.status == "misdeclared") result = run_case(runtimes->open(), device, path, tolerance);
      answer({{"status", result.status}, {"reason", result.reason}});
    } catch (const std::bad_alloc&) {
      answer({{"status", "failed"}, {"reason", "out of memory"}});
    }
  }
  return Exit::kOk;
}

}  // namespace belay::cli
