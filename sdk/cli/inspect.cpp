#include "show.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <belay/abi/kernel_provider.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace belay::cli {
namespace {

using nlohmann::ordered_json;

belay_model_req model_req(const InspectOptions& options) {
  belay_model_req req{};
  req.hdr.struct_size = sizeof req;
  req.path = to_str(options.model);
  return req;
}

Exit print_graph(const Runtime& runtime, const InspectOptions& options, Output& output) {
  const belay_model_req req = model_req(options);
  StringSink text;
  const Status status = take(belay_model_print(runtime.get().get(), &req, text.sink()));
  // A graph with operators that nobody knows is shown all the same.
  if (!status.ok() && text.text().empty()) fail(Stage::kModel, status);
  if (!output.json)
    output.print(text.text());
  else if (status.ok())  // else the error is the one document
    output.document("belay.graph/1", {{"model", options.model}, {"text", text.text()}});
  if (!status.ok()) fail(Stage::kModel, status);
  return Exit::kOk;
}

// Counts the operators in the text of a frozen graph, without keeping the text: "%y float32[2] = Add.14(%a,
// %b)".
class OperatorCount {
 public:
  belay_sink sink() {
    return {this, [](void* user, const void* bytes, uint64_t len) {
              auto& self = *static_cast<OperatorCount*>(user);
              for (const char c : std::string_view(static_cast<const char*>(bytes), len)) {
                if (c != '\n')
                  self.line_ += c;
                else
                  self.end_line();
              }
            }};
  }
  std::vector<std::pair<std::string, uint64_t>> most_first() const {
    std::vector<std::pair<std::string, uint64_t>> out(counts_.begin(), counts_.end());
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    return out;
  }

 private:
  void end_line() {
    const size_t begin = line_.find_first_not_of(' ');
    const size_t equals = line_.find(" = ");
    if (begin != std::string::npos && (line_[begin] == '%' || line_[begin] == '_') &&
        equals != std::string::npos) {
      const std::string call = line_.substr(equals + 3, line_.find('(', equals) - equals - 3);
      ++counts_[call.substr(0, call.rfind('.'))];  // without the version
    }
    line_.clear();
  }
  std::string line_;
  std::map<std::string, uint64_t> counts_;
};

std::string operators_text(const OperatorCount& operators) {
  std::string out;
  for (const auto& [op, count] : operators.most_first())
    out += (out.empty() ? "" : ", ") + printable(op) + " " + std::to_string(count);
  return out;
}

// The model; of one that cannot be loaded, because operators are not known or have no kernel, its operators
// are shown before the failure is thrown.
Model load(const Runtime& runtime, const InspectOptions& options, const std::string& device, Output& output) {
  try {
    return Model(runtime, options.model, device);
  } catch (Failure& failure) {
    OperatorCount operators;
    const belay_model_req req = model_req(options);
    belay_status_release(belay_model_print(runtime.get().get(), &req, operators.sink()));
    if (const std::string text = operators_text(operators); !output.json && !text.empty())
      output.print("model   " + printable(options.model) + " cannot be loaded for " + device + "\nnodes   " +
                   text + "\n");
    if (failure.code == "UNIMPLEMENTED") failure.hint = "Another device or plugin may have what is missing.";
    throw;
  }
}

ordered_json stats_json(const belay_executable_stats& s) {
  return {{"nodes", s.nodes},
          {"kernels", s.kernels},
          {"fallback_kernels", s.fallback_kernels},
          {"plans", s.plans},
          {"arena_bytes", s.arena_bytes},
          {"live_bytes", s.live_bytes},
          {"weight_bytes", s.weight_bytes},
          {"borrowed_bytes", s.borrowed_bytes},
          {"copied_bytes", s.copied_bytes},
          {"packed_bytes", s.packed_bytes},
          {"create_ns", s.create_ns}};
}

std::string text_of(const ordered_json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return "";
  return printable(at->is_string() ? at->get<std::string>() : at->dump());
}

// Kernels in the order of the run, or one line for all of one operator and implementation.
std::string kernels_text(const ordered_json& kernels, bool all) {
  Table table(8, all ? std::vector<size_t>{} : std::vector<size_t>{0});
  std::vector<std::string> order;
  std::map<std::string, std::pair<uint64_t, const ordered_json*>> groups;
  for (const ordered_json& kernel : kernels) {
    const bool fallback = kernel.value("fallback", false);
    std::string provider = text_of(kernel, "provider");
    if (provider.starts_with(BELAY_KERNEL_PROVIDER_KIND ":"))
      provider = provider.substr(sizeof BELAY_KERNEL_PROVIDER_KIND);
    const std::string by =
        provider + ": " + text_of(kernel, "implementation") + (fallback ? "  NOT ON THE DEVICE" : "");
    const std::string reason = text_of(kernel, "reason");
    if (all) {
      table.row({text_of(kernel, "op"), text_of(kernel, "nodes"), by, reason});
      continue;
    }
    const std::string key = text_of(kernel, "op") + "\n" + by + "\n" + (fallback ? reason : "");
    if (groups[key].first++ == 0) order.push_back(key), groups[key].second = &kernel;
  }
  for (const std::string& key : order) {
    const size_t first = key.find('\n'), second = key.find('\n', first + 1);
    table.row({std::to_string(groups[key].first), key.substr(0, first),
               key.substr(first + 1, second - first - 1), key.substr(second + 1)});
  }
  return table.text();
}

// The constants that kernels read in a copy, largest first, and why.
std::string copies_text(const ordered_json& description, bool all) {
  const auto memory = description.is_object() ? description.find("memory") : description.end();
  if (!description.is_object() || memory == description.end() || !memory->contains("copies")) return "";
  std::vector<const ordered_json*> copies;
  for (const ordered_json& copy : (*memory)["copies"]) copies.push_back(&copy);
  std::stable_sort(copies.begin(), copies.end(), [](const ordered_json* a, const ordered_json* b) {
    return a->value("bytes", uint64_t{0}) > b->value("bytes", uint64_t{0});
  });
  constexpr size_t kFew = 3;
  Table table(8, {1});
  for (size_t i = 0; i < copies.size() && (all || i < kFew); ++i)
    table.row({"copied", bytes_text(copies[i]->value("bytes", uint64_t{0})), text_of(*copies[i], "name"),
               "because " + text_of(*copies[i], "reason")});
  std::string text = table.text();
  if (!all && copies.size() > kFew) text += "        ... " + plural(copies.size() - kFew, "more constant") + ", see --kernels\n";
  return text;
}

}  // namespace

Exit inspect(const InspectOptions& options, Output& output) {
  check_model_file(options.model);
  const Runtime runtime(options.common);
  if (options.text) return print_graph(runtime, options, output);
  const std::string device = runtime.device_id(options.common.device);
  const Model model = load(runtime, options, device, output);
  // A model whose shapes are not fixed has no plan before it has run.
  if (!options.inputs.shapes.empty()) {
    InputOptions inputs = options.inputs;
    inputs.zeros = true;
    const std::vector<Input> given = gather_inputs(model, inputs, output);
    std::vector<std::unique_ptr<DatumView>> views;
    Context context(model);
    for (const Input& input : given) {
      views.push_back(std::make_unique<DatumView>(input.datum));
      context.set_input(input.index, views.back()->get());
    }
    context.run();
  }
  OperatorCount operators;
  const belay_model_req req = model_req(options);
  check(belay_model_print(runtime.get().get(), &req, operators.sink()), Stage::kModel);
  const belay_executable_stats stats = model.stats();
  const ordered_json description = ordered_json::parse(model.describe(), nullptr, false);
  if (output.json) {
    ordered_json json{{"model", options.model},
                      {"device", device},
                      {"inputs", ordered_json::array()},
                      {"outputs", ordered_json::array()},
                      {"operators", ordered_json::object()}};
    for (const IoInfo& info : model.inputs()) json["inputs"].push_back(io_json(info));
    for (const IoInfo& info : model.outputs()) json["outputs"].push_back(io_json(info));
    for (const auto& [op, count] : operators.most_first()) json["operators"][op] = count;
    json["stats"] = stats_json(stats);
    json["description"] = description.is_discarded() ? ordered_json(nullptr) : description;
    output.document("belay.inspect/1", json);
    return Exit::kOk;
  }
  Table io;
  for (const IoInfo& info : model.inputs())
    io.row({"input", printable(info.name), io_text(info) + (info.optional ? ", has a default" : "")});
  for (const IoInfo& info : model.outputs()) io.row({"output", printable(info.name), io_text(info)});
  const std::string ops = operators_text(operators);
  std::string text = "model   " + printable(options.model) + " on " + device + "\n" + io.text();
  text += "nodes   " + std::to_string(stats.nodes) + (ops.empty() ? "" : ": " + ops) + "\n";
  const auto list = [&](const char* key) {
    return description.is_object() && description.contains(key) ? description[key] : ordered_json::array();
  };
  std::string passes;
  for (const ordered_json& pass : list("passes"))
    if (pass.value("changes", 0) > 0)
      passes += (passes.empty() ? "" : ", ") + text_of(pass, "name") + " " + text_of(pass, "changes");
  if (!passes.empty()) text += "passes  " + passes + "\n";
  if (stats.plans == 0 && stats.kernels == 0) {
    text += "kernels chosen at the first run, for its shapes; say them with --shape to see\n";
  } else {
    text +=
        "kernels " + std::to_string(stats.kernels) +
        (stats.fallback_kernels ? ", " + std::to_string(stats.fallback_kernels) + " of them not on the device"
                                : "") +
        "\n" + kernels_text(list("kernels"), options.all);
    if (const auto steps = list("host_steps"); !steps.empty()) {
      text += "host    " + plural(steps.size(), "step") + " between kernels:";
      size_t shown = 0;
      for (const ordered_json& step : steps)
        if (shown++ < 8) text += " " + text_of(step, "of");
      text += steps.size() > 8 ? " ...\n" : "\n";
    }
    text +=
        "arena   " + bytes_text(stats.arena_bytes) + ", live at most " + bytes_text(stats.live_bytes) + "\n";
  }
  text += "weights " + weights_text(stats) + "\n" + copies_text(description, options.all);
  text += "create  " + time_text(double(stats.create_ns)) + "\n";
  for (const ordered_json& warning : list("warnings"))
    text += "warning " + printable(warning.is_string() ? warning.get<std::string>() : warning.dump()) + "\n";
  output.print(text);
  return Exit::kOk;
}

}  // namespace belay::cli
