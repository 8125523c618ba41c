#include "plan/host_exec.hpp"

#include <algorithm>
#include <cstdlib>

namespace belay::plan {
namespace {

struct HostRun {
  belay_exec exec{};  // first, so that the kernel's pointer leads here
  const belay_host* host = nullptr;
  const OutputFn* output = nullptr;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> scratch;
};

HostRun& run_of(const belay_exec* exec) { return *static_cast<HostRun*>(exec->user); }

void parallel_for(const belay_exec*, uint64_t count, void (*body)(void*, uint64_t), void* arg) noexcept {
  for (uint64_t i = 0; i < count; ++i) body(arg, i);
}

void* scratch(const belay_exec* exec, uint64_t bytes) noexcept {
  if (bytes > UINT64_MAX - 64) return nullptr;
  void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + (bytes ? 0 : 64));
  if (memory) run_of(exec).scratch.emplace_back(memory, &std::free);
  return memory;
}

void* output(const belay_exec* exec, uint64_t index, const int64_t* dims, uint32_t rank) noexcept {
  HostRun& run = run_of(exec);
  try {
    return *run.output ? (*run.output)(index, {dims, rank}) : nullptr;
  } catch (const std::exception&) {
    return nullptr;
  }
}

belay_status fail(const belay_exec* exec, uint32_t code, belay_str message) noexcept {
  const belay_host* host = run_of(exec).host;
  return host->status_make(host, code, message);
}

const uint32_t kNeverCancelled = 0;

}  // namespace

bool moves_strings(const ir::Env& env, const ir::Node& node) {
  const auto is_string = [&](ir::ValueId value) { return env.type(value).dtype == BELAY_DT_STRING; };
  if (std::none_of(node.inputs.begin(), node.inputs.end(), is_string)) return false;
  static const std::set<std::string_view> ops = {"Identity",
                                                 "Reshape",
                                                 "Flatten",
                                                 "Squeeze",
                                                 "Unsqueeze",
                                                 "Transpose",
                                                 "Concat",
                                                 "Split",
                                                 "Slice",
                                                 "Gather",
                                                 "Expand",
                                                 "GatherElements",
                                                 "GatherND",
                                                 "Tile",
                                                 "Where",
                                                 "ScatterND",
                                                 "Compress",
                                                 "Scatter",
                                                 "ReverseSequence",
                                                 "DepthToSpace",
                                                 "SpaceToDepth",
                                                 "ScatterElements",
                                                 "Pad",
                                                 "OneHot",
                                                 "Trilu",
                                                 "CenterCropPad",
                                                 "GridSample",
                                                 "Resize",
                                                 "TensorScatter"};
  return node.domain.empty() && ops.contains(node.op);
}

Status run_on_host(const Hal& hal, const belay_kernel& kernel, std::span<const uint64_t> args,
                   const OutputFn& out) {
  HostRun run;
  run.exec.hdr.struct_size = sizeof run.exec;
  run.exec.user = &run;
  run.exec.threads = 1;
  run.exec.parallel_for = parallel_for;
  run.exec.scratch = scratch;
  run.exec.output = output;
  run.exec.fail = fail;
  run.exec.cancelled = &kNeverCancelled;
  run.host = hal.host;
  run.output = &out;
  return hal.check(kernel.fn(&run.exec, kernel.state, args.data()));
}

Result<HostKernel> prepare_on_host(const Hal& hal, const ir::Env& env, const ir::Node& node,
                                   std::span<const Provider> providers, const belay_device_info& device,
                                   ConstantPool& pool, uint64_t precision, std::vector<ir::ValueId>* wanted) {
  std::set<ir::ValueId> needed;
  for (const ir::ValueId value : node.outputs)
    if (value != BELAY_NONE) needed.insert(value);
  const ir::Node* const nodes[] = {&node};
  const Strings strings = moves_strings(env, node) ? Strings::kOpaque : Strings::kAsTheyAre;
  BELAY_ASSIGN(const Image image, make_image(env, nodes, needed, pool, strings));
  BELAY_ASSIGN(const Choice choice, choose_claims(hal, image, needed, providers, device, {}));
  if (choice.claims.size() != 1) {
    std::string why = providers.empty() ? "there is no provider of kernels for the host" : "";
    if (!choice.refused.empty()) why = choice.refused[0].second;
    return Status(Code::kUnimplemented,
                  "No kernel runs " + describe_node(env, node) + (why.empty() ? "." : ": " + why + "."));
  }
  const Claim& claim = choice.claims[0];
  for (size_t i = 0; i < claim.inputs.size() && i < 64; ++i)
    if ((claim.host_inputs >> i & 1) && claim.inputs[i] != BELAY_NONE && !image.constants[claim.inputs[i]] &&
        env.types[image.values[claim.inputs[i]]].concrete() && wanted)
      wanted->push_back(image.values[claim.inputs[i]]);
  if (wanted && !wanted->empty())
    return Status(Code::kNotFound, "Inputs of " + node.label() + " must be known first.");
  HostKernel out;
  BELAY_ASSIGN(out.kernel, prepare(hal, image, claim, device, 1, precision));
  for (size_t i = 0; i < claim.inputs.size(); ++i) {
    const bool unused = i < 64 && ((*out.kernel)->unused_inputs >> i & 1);
    out.inputs.push_back(claim.inputs[i] == BELAY_NONE || unused ? BELAY_NONE
                                                                 : image.values[claim.inputs[i]]);
  }
  for (const uint32_t value : claim.outputs)
    out.outputs.push_back(value == BELAY_NONE ? BELAY_NONE : image.values[value]);
  return out;
}

FoldBudget::FoldBudget(const ir::Model& model, uint64_t growth) : growth_(growth), left_(0) {
  const auto add = [&](uint64_t bytes, uint64_t times) {
    uint64_t product = 0;
    if (__builtin_mul_overflow(bytes, times, &product) || __builtin_add_overflow(left_, product, &left_))
      left_ = UINT64_MAX;
  };
  add(growth, 64);
  for (const ir::Value& value : model.values)
    if (value.constant) add(value.constant->bytes, 8);
}

bool FoldBudget::take(uint64_t input_bytes, uint64_t output_bytes) {
  if (output_bytes > left_ || (output_bytes > input_bytes && output_bytes - input_bytes > growth_))
    return false;
  left_ -= output_bytes;
  return true;
}

std::optional<std::vector<ir::ConstantPtr>> evaluate_on_host(const Hal& hal, const ir::Env& env,
                                                             const ir::Node& node,
                                                             std::span<const Provider> providers,
                                                             const belay_device_info& device,
                                                             ConstantPool& pool, FoldBudget& budget) {
  uint64_t in_bytes = 0, out_bytes = 0;
  for (const ir::ValueId input : node.inputs) {
    if (input == BELAY_NONE) continue;
    const ir::Constant* constant = env.constant(input);
    if (!constant || constant->dtype == BELAY_DT_STRING) return std::nullopt;
    in_bytes += constant->bytes;
  }
  for (const ir::ValueId value : node.outputs) {
    if (value == BELAY_NONE) continue;
    const ir::Type& type = env.types[value];
    if (!type.concrete() || type.dtype == BELAY_DT_STRING) return std::nullopt;
    const auto count = element_count(type.dims);
    const auto bytes = count ? dtype_bytes(type.dtype, *count) : std::nullopt;
    if (!bytes || __builtin_add_overflow(out_bytes, *bytes, &out_bytes)) return std::nullopt;
  }
  if (!budget.take(in_bytes, out_bytes)) return std::nullopt;
  std::vector<std::shared_ptr<ir::Constant>> made;
  for (const ir::ValueId value : node.outputs) {
    made.push_back(value == BELAY_NONE ? nullptr
                                       : ir::make_constant(env.types[value].dtype, env.types[value].dims));
    if (value != BELAY_NONE && !made.back()) return std::nullopt;
  }
  std::vector<ir::ValueId> wanted;
  const Result<HostKernel> kernel =
      prepare_on_host(hal, env, node, providers, device, pool, BELAY_PRECISION_FLOAT32, &wanted);
  if (!kernel.ok() || kernel->writes_shape()) return std::nullopt;
  std::vector<uint64_t> args;
  for (const ir::ValueId value : kernel->inputs)
    args.push_back(value == BELAY_NONE ? 0
                                       : reinterpret_cast<uint64_t>(pool.readable(*env.constants[value])));
  for (const ir::ValueId value : kernel->outputs) {
    const size_t at =
        size_t(std::find(node.outputs.begin(), node.outputs.end(), value) - node.outputs.begin());
    args.push_back(
        value == BELAY_NONE || at == node.outputs.size() ? 0 : reinterpret_cast<uint64_t>(made[at]->data));
  }
  std::unique_ptr<void, decltype(&std::free)> workspace(nullptr, &std::free);
  if (const uint64_t bytes = (*kernel->kernel)->workspace_bytes) {
    workspace.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    if (!workspace) return std::nullopt;
    args.push_back(reinterpret_cast<uint64_t>(workspace.get()));
  }
  if (!run_on_host(hal, kernel->kernel->kernel(), args, {}).ok()) return std::nullopt;
  return std::vector<ir::ConstantPtr>(made.begin(), made.end());
}

}  // namespace belay::plan
