#include "show.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace belay::cli {
namespace {

using nlohmann::ordered_json;

Exit print_graph(const Runtime& runtime, const InspectOptions& options, Output& output) {
  belay_model_req req{};
  req.hdr.struct_size = sizeof req;
  req.path = to_str(options.model);
  StringSink text;
  check(belay_model_print(runtime.get(), &req, text.sink()), Stage::kModel);
  if (output.json)
    output.document("belay.graph/1", {{"model", options.model}, {"text", text.text()}});
  else
    output.print(text.text());
  return Exit::kOk;
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

}  // namespace

Exit inspect(const InspectOptions& options, Output& output) {
  check_model_file(options.model);
  const Runtime runtime(options.common);
  if (options.text) return print_graph(runtime, options, output);
  runtime.check_device(options.common.device);
  const Model model(runtime, options.model, options.common.device);
  const belay_executable_stats stats = model.stats();
  const ordered_json description = ordered_json::parse(model.describe(), nullptr, false);
  if (output.json) {
    ordered_json json{
        {"model", options.model}, {"inputs", ordered_json::array()}, {"outputs", ordered_json::array()}};
    for (const IoInfo& info : model.inputs()) json["inputs"].push_back(io_json(info));
    for (const IoInfo& info : model.outputs()) json["outputs"].push_back(io_json(info));
    json["stats"] = stats_json(stats);
    json["description"] = description.is_discarded() ? ordered_json(nullptr) : description;
    output.document("belay.inspect/1", json);
    return Exit::kOk;
  }
  Table io;
  for (const IoInfo& info : model.inputs())
    io.row({"input", printable(info.name), info.text() + (info.optional ? ", has a default" : "")});
  for (const IoInfo& info : model.outputs()) io.row({"output", printable(info.name), info.text()});
  output.print("model  " + printable(options.model) + "\n" + io.text());
  return Exit::kOk;
}

}  // namespace belay::cli
