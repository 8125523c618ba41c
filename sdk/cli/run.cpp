#include "show.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

namespace belay::cli {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// A name of a graph as a file's name: what a folder cannot hold becomes '_'.
std::string file_name(const std::string& name, size_t index) {
  std::string out;
  for (const char c : name) out += std::isalnum(uint8_t(c)) || c == '.' || c == '-' || c == '_' ? c : '_';
  if (out.empty() || out.find_first_not_of('.') == std::string::npos) out = "output_" + std::to_string(index);
  return out.substr(0, 200);
}

struct Answer {  // one output of the run
  std::string name;
  HostDatum datum;
  std::vector<std::string> files;
  std::optional<Comparison> comparison;
  IoMemory memory;
};

void write_files(const RunOptions& options, std::vector<Answer>& results) {
  std::error_code error;
  fs::create_directories(options.output_dir, error);
  if (error) fail_input("The folder '" + options.output_dir + "' cannot be made: " + error.message() + ".");
  std::vector<std::string> used;
  for (size_t i = 0; i < results.size(); ++i) {
    Answer& result = results[i];
    std::string stem = file_name(result.name, i);
    if (std::find(used.begin(), used.end(), stem) != used.end()) stem += "_" + std::to_string(i);
    used.push_back(stem);
    const std::string path = (fs::path(options.output_dir) / stem).string();
    const bool npy = options.output_format != "pb" && result.datum.kind == BELAY_TYPE_TENSOR;
    const auto write = [&](const std::string& to, const Status& status) {
      // A file that could not be written is the user's to mend, whatever its code.
      if (!status.ok())
        throw Failure{Exit::kInput, code_name(status.code()), status.message(),
                      "The result '" + printable(result.name) + "' is not saved."};
      result.files.push_back(to);
    };
    if (npy) write(path + ".npy", write_npy(path + ".npy", result.datum.tensor));
    // NumPy's format has no sequences, optionals or maps.
    if (!npy || options.output_format == "both")
      write(path + ".pb", write_pb(path + ".pb", result.datum, result.name));
  }
}

void compare_with(const RunOptions& options, const std::vector<IoInfo>& infos, std::vector<Answer>& results) {
  const std::vector<std::string> files = numbered_files(options.inputs.test_data, "output_");
  if (files.empty()) fail_input("'" + options.inputs.test_data + "' holds no output_0.pb to compare with.");
  if (files.size() > results.size())
    fail_input("'" + options.inputs.test_data + "' holds " + plural(files.size(), "output") +
               ", the model has " + std::to_string(results.size()) + ".");
  Tolerance tolerance;
  if (options.rtol) tolerance.rtol = *options.rtol;
  if (options.atol) tolerance.atol = *options.atol, tolerance.atol_of_largest = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const HostDatum expected = value_or_fail(read_pb(files[i], infos[i].kind), Stage::kModel);
    results[i].comparison = compare(results[i].datum, expected, tolerance);
  }
}

}  // namespace

Exit run(const RunOptions& options, Output& output) {
  set_deadline(options.timeout, output.json, "loading and running " + options.model);
  check_model_file(options.model);
  const Runtime runtime(options.common);
  const std::string device = runtime.device_id(options.common.device);
  auto start = Clock::now();
  const Model model(runtime, options.model, device);
  const double create_ns = since(start);
  const std::vector<Input> inputs = gather_inputs(model, options.inputs, output);

  Context context(model);
  std::vector<std::unique_ptr<DatumView>> views;
  for (const Input& input : inputs) {
    views.push_back(std::make_unique<DatumView>(input.datum));
    context.set_input(input.index, views.back()->get());
  }
  std::vector<double> times;
  bool interrupted = false;
  {
    const Interruptible guard;
    Progress progress(output, "run", options.repeat);
    for (uint64_t i = 0; i < options.repeat && !interrupted; ++i) {
      start = Clock::now();
      context.run();
      times.push_back(since(start));
      progress.at(i + 1, std::to_string(i + 1) + "/" + std::to_string(options.repeat));
      interrupted = Interruptible::interrupted() && i + 1 < options.repeat;
    }
  }

  std::vector<Answer> results;
  MovedBytes in, out;  // by one run
  for (const Input& input : inputs) in.add(model.inputs()[input.index].name, context.input_memory(input.index));
  for (size_t i = 0; i < model.outputs().size(); ++i) {
    results.push_back({model.outputs()[i].name, runtime.fetch(context.output(i)), {}, {}, context.output_memory(i)});
    out.add(results.back().name, results.back().memory);
  }
  if (!options.output_dir.empty()) write_files(options, results);
  if (!options.inputs.test_data.empty()) compare_with(options, model.outputs(), results);

  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const bool equal = std::all_of(results.begin(), results.end(),
                                 [](const Answer& r) { return !r.comparison || r.comparison->equal; });

  if (output.json) {
    ordered_json json{{"model", options.model},
                      {"device", device},
                      {"inputs", ordered_json::array()},
                      {"outputs", ordered_json::array()}};
    for (const Input& input : inputs) {
      ordered_json one = io_json(model.inputs()[input.index]);
      one["type"] = type_text(input.datum);
      one["from"] = input.from;
      add_memory(one, context.input_memory(input.index));
      json["inputs"].push_back(std::move(one));
    }
    for (const Answer& result : results) {
      ordered_json one{{"name", result.name}};
      one.update(datum_json(result.datum));
      one["files"] = result.files;
      add_memory(one, result.memory);
      if (const auto& c = result.comparison) one["comparison"] = comparison_json(*c);
      json["outputs"].push_back(std::move(one));
    }
    json["equal"] = options.inputs.test_data.empty() ? ordered_json(nullptr) : ordered_json(equal);
    json["time"] = {{"create_ns", uint64_t(create_ns)},
                    {"runs", times.size()},
                    {"median_ns", uint64_t(median)},
                    {"min_ns", uint64_t(times.front())},
                    {"max_ns", uint64_t(times.back())}};
    output.document("belay.run/1", json);
  } else {
    std::string text;
    if (!output.quiet) {
      text += "model   " + printable(options.model) + " on " + device + "\n";
      Table table;
      for (const Input& input : inputs)
        table.row({"input ", printable(model.inputs()[input.index].name), type_text(input.datum),
                   printable(input.from)});
      text += table.text();
    }
    for (const Answer& result : results) {
      text += "output  " + printable(result.name) + "  " + type_text(result.datum);
      for (const std::string& file : result.files) text += "  -> " + printable(file);
      text += "\n";
      text += values_text(result.datum, 8);
      if (result.comparison) text += "        " + comparison_text(*result.comparison) + "\n";
    }
    if (!output.quiet) {
      text += "memory  inputs " + moved_text(in) + "; outputs " + moved_text(out) + "\n";
      text += "time    " + time_text(median) +
              (times.size() > 1 ? " (median of " + std::to_string(times.size()) + ", " +
                                      time_text(times.front()) + " to " + time_text(times.back()) + ")"
                                : "") +
              ", create " + time_text(create_ns) + "\n";
    }
    output.print(text);
  }
  if (interrupted) return Exit::kInterrupted;
  return equal ? Exit::kOk : Exit::kDiffers;
}

}  // namespace belay::cli
