#include "engine.hpp"

#include "passes/passes.hpp"
#include "schedule/executable.hpp"

#include <belay/plugin.hpp>

#include <algorithm>

namespace belay::engine {

Providers::~Providers() {
  const auto* registry =
      static_cast<const belay_registry_vt*>(host_.get_service(&host_, to_str(BELAY_HOST_REGISTRY)));
  if (!registry) return;
  for (const uint64_t lease : leases_) registry->release(&host_, lease);
}

Result<std::vector<plan::Provider>> Providers::get() {
  const auto* registry =
      static_cast<const belay_registry_vt*>(host_.get_service(&host_, to_str(BELAY_HOST_REGISTRY)));
  if (!registry)
    return Status(Code::kFailedPrecondition,
                  "The host offers no " BELAY_HOST_REGISTRY ", so there are no kernels.");
  std::vector<std::string> keys;
  BELAY_TRY(from_c(host_, registry->enumerate(
                              &host_, to_str(BELAY_KERNEL_PROVIDER_KIND),
                              [](void* user, belay_str key) BELAY_NOEXCEPT {
                                static_cast<std::vector<std::string>*>(user)->push_back(to_string(key));
                              },
                              &keys)));
  std::lock_guard lock(mutex_);
  for (const std::string& key : keys) {
    bool known = false;
    for (const plan::Provider& provider : providers_) known |= provider.key == key;
    if (known) continue;
    belay_lease lease{};
    lease.hdr.struct_size = sizeof lease;
    const Status status = from_c(host_, registry->acquire(&host_, to_str(key), &lease));
    if (!status.ok()) {
      host_.log(&host_, BELAY_LOG_WARNING,
                to_str("Kernels of '" + key + "' are not used: " + status.message()));
      continue;
    }
    providers_.push_back({key, lease.object});
    leases_.push_back(lease.id);
  }
  return providers_;
}

namespace {

Status check_passes(const std::set<std::string, std::less<>>& named) {
  const std::span<const passes::Pass> all = passes::all_passes();
  for (const std::string& name : named) {
    if (std::any_of(all.begin(), all.end(), [&](const passes::Pass& pass) { return pass.name == name; }))
      continue;
    std::string known;
    for (const passes::Pass& pass : all) (known += known.empty() ? "" : ", ") += std::string(pass.name);
    return {Code::kInvalidArgument,
            "[engine] disable_passes names '" + name + "', which is no pass; want some of: " + known + "."};
  }
  return {};
}

}  // namespace

Result<plan::Target> Engine::target_for(belay_obj* device, const belay_value* options) {
  plan::Target target;
  target.hal.host = &host_;
  target.hal.vt = static_cast<const belay_hal_vt*>(host_.get_service(&host_, to_str(BELAY_HOST_HAL)));
  if (!target.hal.vt)
    return Status(Code::kFailedPrecondition,
                  "The host offers no " BELAY_HOST_HAL ", so there are no devices.");
  target.device = device;
  target.options = plan::Options::read(Value(options));
  BELAY_TRY(check_passes(target.options.disabled_passes));
  target.info.hdr.struct_size = sizeof target.info;
  BELAY_TRY(target.hal.check(target.hal.vt->device_info(&host_, device, &target.info)));
  BELAY_ASSIGN(target.heaps, plan::Heaps::of(target.hal, device, target.info.heap_count));
  target.host_visible = target.info.hdr.flags & BELAY_DEVICE_HOST_VISIBLE;
  BELAY_ASSIGN(const std::vector<plan::Provider> all, providers_.get());
  target.providers = plan::serving(all, target.info);
  target.host_info = target.info;
  target.host_providers = target.host_visible ? target.providers : std::vector<plan::Provider>();
  // Beside the device's own providers, the host's run what those do not (and everything that is known at
  // load).
  for (uint64_t i = 0; i < target.hal.vt->device_count(&host_) && target.host_providers.empty(); ++i) {
    belay_obj* other = nullptr;
    belay_device_info info{};
    info.hdr.struct_size = sizeof info;
    if (!target.hal.check(target.hal.vt->device(&host_, i, &other)).ok() ||
        !target.hal.check(target.hal.vt->device_info(&host_, other, &info)).ok())
      continue;
    if (!(info.hdr.flags & BELAY_DEVICE_HOST_VISIBLE)) continue;
    target.host_providers = plan::serving(all, info);
    target.host_info = info;
  }
  if (target.host_providers.empty()) {
    // No such device is configured: the host itself.
    belay_device_info info{};
    info.hdr = {sizeof info, BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST, nullptr};
    info.driver = info.name = literal("cpu");
    info.threads = 1;
    target.host_providers = plan::serving(all, info);
    target.host_info = info;
  } else if (target.host_visible) {
    // The device is a host: providers that serve only the plain cpu still stand in for what its own refuse.
    belay_device_info info = target.info;
    info.driver = literal("cpu");
    for (const plan::Provider& provider : plan::serving(all, info)) {
      bool known = false;
      for (const plan::Provider& have : target.host_providers) known |= have.key == provider.key;
      if (!known) target.host_providers.push_back(provider);
    }
  }
  return target;
}

namespace {

// Passes that would put an operator in place of others for which the device has no kernel.
Status disable_unsupported(plan::Target& target, const ir::Model& model) {
  const auto dtype = [](char letter) -> uint32_t {
    return letter == 'b' ? BELAY_DT_UINT8 : letter == 'i' ? BELAY_DT_INT32 : BELAY_DT_FLOAT32;
  };
  for (const passes::Pass& pass : passes::all_passes()) {
    if (pass.makes.empty() || !pass.concerns(model)) continue;
    std::vector<plan::OperatorForm> forms;
    for (const passes::Made& made : pass.makes) {
      plan::OperatorForm& form = forms.emplace_back();
      form.domain = made.domain, form.op = made.op, form.version = made.version;
      for (const char letter : made.inputs) form.inputs.push_back(dtype(letter));
      form.output = dtype(made.output);
    }
    BELAY_ASSIGN(const bool all, plan::claim_all(target.hal, target.providers, target.info, forms));
    if (!all) target.options.disabled_passes.emplace(pass.name);
  }
  return {};
}

}  // namespace

Status Engine::load(const belay_load_req& req, belay_created* out) {
  const auto now = [&] { return host_.now_ns(&host_); };
  const uint64_t begin = now();
  schedule::LoadReport report;
  report.name = to_string(req.name);
  BELAY_ASSIGN(plan::Target target, target_for(req.device, req.options));
  BELAY_ASSIGN(ir::Model imported, ir::import_image(req.image, {req.sources, req.source_count}));
  auto model = std::make_unique<ir::Model>(std::move(imported));
  if (target.options.open_shapes)
    for (const ir::ValueId input : model->graphs[0].inputs)
      if (ir::Type& type = model->values[input].type; type.is_tensor()) type = ir::Type::unranked(type.dtype);
  const uint64_t read = now();
  report.import_ns = read - begin;

  plan::ConstantPool scratch(target.hal, target.device, target.heaps, target.host_visible, model->sources,
                             false);
  plan::FoldBudget budget(*model, target.options.fold_limit);
  BELAY_TRY(disable_unsupported(target, *model));
  const passes::Evaluator evaluate = [&](const ir::Env& env, const ir::Node& node) {
    return plan::evaluate_on_host(target.hal, env, node, target.host_providers, target.host_info, scratch,
                                  budget);
  };
  Result<std::vector<passes::Ran>> ran =
      passes::run_passes(*model, evaluate, target.options.disabled_passes, now);
  if (!ran.ok()) return std::move(ran).status().while_doing("loading '" + report.name + "'");
  for (const passes::Ran& pass : *ran) {
    report.passes.push_back({pass.name, pass.changes, pass.ns});
    if (pass.changes)
      host_.log(&host_, BELAY_LOG_DEBUG,
                to_str("'" + report.name + "': pass " + pass.name + " made " + std::to_string(pass.changes) +
                       (pass.changes == 1 ? " change" : " changes") + " in " +
                       std::to_string(pass.ns / 1000) + " us"));
  }
  report.passes_ns = now() - read;

  const std::string name = report.name;
  Result<std::unique_ptr<schedule::Executable>> made =
      schedule::Executable::create(std::move(model), std::move(target), std::move(report));
  if (!made.ok()) return std::move(made).status().while_doing("planning '" + name + "'");
  give(out, std::move(made).value(), schedule::Executable::table());
  return {};
}

namespace {

belay_status load(belay_obj* object, const belay_load_req* req, belay_created* out) noexcept {
  Engine& engine = self<Engine>(object);
  return guard(engine.host(), [&] { return engine.load(*req, out); });
}
void destroy(belay_obj* object) noexcept { delete &self<Engine>(object); }

constexpr belay_engine_vt kTable{{sizeof(belay_engine_vt), 0, nullptr}, load, destroy};

}  // namespace

const belay_engine_vt& Engine::table() { return kTable; }

}  // namespace belay::engine
