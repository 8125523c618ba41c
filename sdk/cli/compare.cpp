#include "bisect.hpp"
#include "peer.hpp"
#include "show.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace belay::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDefault = "default";  // the embedded configuration

// The options of one side: what all have, its file and its values.
Common common_of(const CompareOptions& options, const std::string& config,
                 const std::vector<std::string>& sets) {
  Common common = options.common;
  if (config != kDefault) common.configs = {config};
  common.sets.insert(common.sets.end(), sets.begin(), sets.end());
  return common;
}

std::string title_of(const std::string& config, const std::vector<std::string>& sets) {
  return config + (sets.empty() ? "" : " with " + joined(sets));
}

ordered_json json_of(const Difference& d) {
  ordered_json around = ordered_json::array();
  for (const Around& at : d.around)
    around.push_back({{"node", at.node},
                      {"op", at.op},
                      {"graph", at.graph},
                      {"iteration", at.iteration ? ordered_json(*at.iteration) : ordered_json(nullptr)}});
  return {{"node", d.node},
          {"op", d.op},
          {"domain", d.domain},
          {"version", d.version},
          {"around", around},
          {"value", d.value},
          {"type", d.type},
          {"inputs", d.inputs},
          {"kernel_a", d.kernel_a},
          {"kernel_b", d.kernel_b},
          {"fused", d.fused},
          {"comparison", comparison_json(d.comparison)}};
}

std::string text_of(const Difference& d, const std::string& a, const std::string& b) {
  std::vector<std::string> inputs;
  for (const std::string& input : d.inputs) inputs.push_back(printable(input));
  std::string where;
  for (const Around& at : d.around)
    where += "\n        in " + at.graph + " of node '" + printable(at.node) + "' (" + printable(at.op) + ")" +
             (at.iteration ? ", iteration " + std::to_string(*at.iteration) : "") + ",";
  std::string text = "first   node '" + printable(d.node) + "' (" +
                     (d.domain.empty() ? "" : printable(d.domain) + ".") + printable(d.op) + "." +
                     std::to_string(d.version) + ")" + where + " makes '" + printable(d.value) + "' " + d.type +
                     "\n        of " + (inputs.empty() ? "nothing" : joined(inputs)) + ", which " +
                     (inputs.size() == 1 ? "is" : "are") +
                     " equal\n        DIFFERS: " + printable(d.comparison.reason) + "\n";
  Table table(8);
  if (!d.kernel_a.empty()) table.row({"A", printable(a), printable(d.kernel_a)});
  if (!d.kernel_b.empty()) table.row({"B", printable(b), printable(d.kernel_b)});
  text += table.text();
  if (d.fused) text += "        Only a fused kernel differs: with every value kept both sides agree.\n";
  return text;
}

}  // namespace

Exit compare(const CompareOptions& options, Output& output) {
  set_deadline(options.timeout, output.json, "comparing " + options.model);
  check_model_file(options.model);
  BelaySide a(title_of(options.a, options.sets_a), common_of(options, options.a, options.sets_a),
              options.model);
  std::unique_ptr<Side> b;
  if (options.peer.empty())
    b = std::make_unique<BelaySide>(title_of(options.b, options.sets_b),
                                    common_of(options, options.b, options.sets_b), options.model);
  else
    b = onnxruntime_side(options.peer_lib, options.model, a.model().inputs(), a.model().outputs());
  const std::vector<Input> inputs = gather_inputs(a.model(), options.inputs, output);

  Tolerance tolerance;
  if (options.rtol) tolerance.rtol = *options.rtol;
  if (options.atol) tolerance.atol = *options.atol, tolerance.atol_of_largest = 0;
  const auto results = [&](Side& side) {
    Result<std::vector<HostDatum>> out = side.run(inputs, {});
    if (!out.ok()) fail(Stage::kModel, Status(out.status()).while_doing("running it with " + side.title()));
    return std::move(out).value();
  };
  const std::vector<HostDatum> found = results(a), expected = results(*b);
  std::vector<Comparison> comparisons;
  for (size_t i = 0; i < found.size(); ++i)
    comparisons.push_back(belay::compare(found[i], expected[i], tolerance));
  const auto differing =
      std::find_if(comparisons.begin(), comparisons.end(), [](const Comparison& c) { return !c.equal; });
  const bool equal = differing == comparisons.end();

  std::optional<Difference> first;
  uint64_t values = 0, skipped = 0;
  if (options.bisect && !equal) {
    const std::string image = value_or_fail(a.runtime().get().freeze(options.model), Stage::kModel);
    Bisection bisection({image.data(), image.size()}, a, *b, inputs, tolerance);
    first = bisection.find(a.model().outputs()[size_t(differing - comparisons.begin())].name, output);
    values = bisection.compared(), skipped = bisection.skipped();
  }

  if (output.json) {
    ordered_json json{{"model", options.model}, {"a", a.title()}, {"b", b->title()}, {"equal", equal}};
    json["outputs"] = ordered_json::array();
    for (size_t i = 0; i < found.size(); ++i)
      json["outputs"].push_back({{"name", a.model().outputs()[i].name},
                                 {"type", type_text(found[i])},
                                 {"comparison", comparison_json(comparisons[i])}});
    if (options.bisect)
      json["bisect"] = {{"first", first ? json_of(*first) : ordered_json(nullptr)},
                        {"values_compared", values},
                        {"values_not_given", skipped}};
    output.document("belay.compare/1", json);
    return equal ? Exit::kOk : Exit::kDiffers;
  }
  std::string text;
  if (!output.quiet) {
    text += "model   " + printable(options.model) + "\n";
    text += "A       " + printable(a.title()) + "\nB       " + printable(b->title()) +
            ", which is what is expected\n";
  }
  for (size_t i = 0; i < found.size(); ++i) {
    text += "output  " + printable(a.model().outputs()[i].name) + "  " + type_text(found[i]) + "  " +
            comparison_text(comparisons[i]) + "\n";
  }
  if (first) text += text_of(*first, a.title(), b->title());
  if (options.bisect && !equal && !first)
    text += "first   not found: of the " + plural(values, "value") +
            " of the main graph that both sides give none differs\n";
  if (options.bisect && !equal && !output.quiet)
    text += "        " + plural(values, "value") + " compared" +
            (skipped ? ", " + plural(skipped, "value") + " not given by a side" : "") + "\n";
  if (!equal && !options.bisect && !output.quiet)
    text += "        --bisect finds the first node that differs\n";
  output.print(text);
  return equal ? Exit::kOk : Exit::kDiffers;
}

}  // namespace belay::cli
