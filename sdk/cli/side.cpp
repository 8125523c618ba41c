#include "side.hpp"

#include <belay/abi/kernel_provider.h>

#include <nlohmann/json.hpp>

namespace belay::cli {

BelaySide::BelaySide(std::string title, const Common& common, const std::string& path)
    : title_(std::move(title)),
      path_(path),
      runtime_(common),
      device_(runtime_.device_id(common.device)),
      model_(runtime_, path, device_) {}

Result<std::vector<HostDatum>> BelaySide::run(const std::vector<Input>& inputs,
                                              const std::vector<std::string>& extra) {
  if (extra.empty()) return run(model_.get(), inputs);
  BELAY_ASSIGN(const belay::Model model,
               runtime_.get().load(path_, {.device = device_, .extra_outputs = extra}));
  return run(model, inputs);
}

Result<std::vector<HostDatum>> BelaySide::run(const belay::Model& model, const std::vector<Input>& inputs) {
  BELAY_ASSIGN(belay::Context context, model.context());
  std::vector<std::unique_ptr<DatumView>> views;
  for (const Input& input : inputs) {
    views.push_back(std::make_unique<DatumView>(input.datum));
    BELAY_TRY(context.set_input(input.index, views.back()->get()));
  }
  BELAY_TRY(context.run());
  std::vector<HostDatum> out;
  for (uint64_t i = 0; i < model.output_count(); ++i) {
    BELAY_ASSIGN(const belay_datum* datum, context.datum(i));
    out.push_back(runtime_.fetch(*datum));
  }
  BELAY_ASSIGN(description_, model.describe());
  return out;
}

std::string BelaySide::kernel_of(const std::string& node) const {
  const auto description = nlohmann::json::parse(description_, nullptr, false);
  if (!description.is_object()) return {};
  for (const auto& kernel : description.value("kernels", nlohmann::json::array())) {
    const auto nodes = kernel.find("nodes");
    if (nodes == kernel.end()) continue;
    // One name, or those of all nodes that the kernel does at once: "a + b".
    const std::string names = nodes->is_string() ? nodes->get<std::string>() : std::string();
    if ((" + " + names + " + ").find(" + " + node + " + ") == std::string::npos) continue;
    std::string provider = kernel.value("provider", "");
    if (provider.starts_with(BELAY_KERNEL_PROVIDER_KIND ":"))
      provider = provider.substr(sizeof BELAY_KERNEL_PROVIDER_KIND);
    return provider + ": " + kernel.value("implementation", "") +
           (names == node ? "" : " for " + names);
  }
  return {};
}

}  // namespace belay::cli
