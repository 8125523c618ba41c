#include "graph_runner.hpp"

#include "provider.hpp"

#include <belay/abi/kernel_provider.h>
#include <belay/graph/verify.hpp>
#include <belay/graph/view.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>

namespace belay::cpu::testing {
namespace {

struct Claim {
  std::vector<uint32_t> nodes, inputs, outputs;
  std::vector<belay_in_place> in_place;
  uint64_t score;
};

void parallel_for(const belay_exec* exec, uint64_t count, void (*body)(void*, uint64_t), void* arg) {
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    for (uint64_t i; (i = next.fetch_add(1)) < count;) body(arg, i);
  };
  std::vector<std::thread> helpers;
  for (uint32_t t = 1; t < exec->threads; ++t) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

// Memory at 64 bytes.
struct Memory {
  std::string all;
  char* at;
  explicit Memory(size_t bytes) : all(bytes + 64, '\0') {
    at = all.data() + (64 - reinterpret_cast<uintptr_t>(all.data()) % 64) % 64;
  }
};

}  // namespace

Graph::Value Graph::add(Tensor tensor, bool constant) {
  const Value value =
      builder_.add_value(0, "v" + std::to_string(given_.size()),
                         builder_.tensor_type(tensor.dtype, std::span<const int64_t>(tensor.dims)));
  builder_.add_input(0, value);
  given_.emplace(value, std::move(tensor));
  constant_[value] = constant;
  return value;
}

Graph::Value Graph::node(std::string op, std::vector<Value> inputs, std::vector<int64_t> dims,
                         const NodeAttributes& attributes) {
  static int counter = 0;
  const Value out =
      builder_.add_value(0, op + std::to_string(counter++),
                         builder_.tensor_type(BELAY_DT_FLOAT32, std::span<const int64_t>(dims)));
  const std::vector<uint32_t> outputs{out};
  const uint32_t node = builder_.add_node(0, "", op, 17, op, inputs, outputs);
  for (const auto& [name, value] : attributes.ints) builder_.set_int(node, name, value);
  for (const auto& [name, value] : attributes.floats) builder_.set_float(node, name, value);
  for (const auto& [name, value] : attributes.lists) builder_.set_ints(node, name, value);
  return out;
}

Graph::Outcome Graph::run(bool fused, uint32_t threads, bool in_place) {
  Outcome outcome;
  const auto failed = [&](std::string why) { return outcome.message = std::move(why), outcome; };
  belay::testing::FakeHost host;
  PluginState state;
  state.host = &host;
  belay_created created{};
  created.hdr.struct_size = sizeof created;
  if (belay_cpu_kernel_provider_component()->create(reinterpret_cast<belay_ctx*>(&state), nullptr,
                                                    &created) != BELAY_OK)
    return failed("no provider");
  belay_obj object{BELAY_OBJ_MAGIC, BELAY_OBJ_KERNEL_PROVIDER, 1, created.table, created.impl, {}};
  const auto* table = static_cast<const belay_kernel_provider_vt*>(created.table);
  const std::unique_ptr<belay_obj, void (*)(belay_obj*)> owner(
      &object, [](belay_obj* o) { static_cast<const belay_kernel_provider_vt*>(o->table)->destroy(o); });

  const Result<std::string> image = builder_.freeze();
  if (!image.ok()) return failed(image.status().message());
  const belay_span span{image->data(), image->size()};
  if (const Status status = graph::verify(span); !status.ok()) return failed(status.message());
  const graph::View view(span);

  std::map<Value, Memory> memory;
  for (const auto& [value, tensor] : given_) {
    const auto at = memory.try_emplace(value, tensor.bytes.size()).first;
    std::memcpy(at->second.at, tensor.bytes.data(), tensor.bytes.size());
  }
  std::vector<const void*> constants(view.values().size(), nullptr);
  for (const auto& [value, is] : constant_)
    if (is) constants[value] = memory.at(value).at;

  belay_device_info device{};
  device.hdr = {sizeof device, BELAY_DEVICE_HOST_VISIBLE, nullptr};
  device.driver = to_str("cpu");
  belay_claim_req request{};
  request.hdr.struct_size = sizeof request;
  request.image = span;
  request.device = &device;
  request.constants = constants.data();
  std::vector<Claim> claims;
  const belay_claim_sink sink{
      &claims,
      [](void* user, const belay_claim* c) BELAY_NOEXCEPT {
        static_cast<std::vector<Claim>*>(user)->push_back({{c->nodes, c->nodes + c->node_count},
                                                           {c->inputs, c->inputs + c->input_count},
                                                           {c->outputs, c->outputs + c->output_count},
                                                           {c->in_place, c->in_place + c->in_place_count},
                                                           c->score});
      },
      [](void*, uint32_t, belay_str) BELAY_NOEXCEPT {}};
  if (table->claim(&object, &request, &sink) != BELAY_OK) return failed("claim failed");
  if (!fused) std::erase_if(claims, [](const Claim& c) { return c.nodes.size() > 1; });
  std::ranges::stable_sort(claims, [](const Claim& a, const Claim& b) { return a.score > b.score; });
  std::vector<Claim> chosen;
  std::set<uint32_t> covered;
  for (const Claim& claim : claims) {
    if (std::ranges::any_of(claim.nodes, [&](uint32_t n) { return covered.contains(n); })) continue;
    covered.insert(claim.nodes.begin(), claim.nodes.end());
    chosen.push_back(claim);
  }
  if (covered.size() != view.nodes().size()) return failed("a node is not claimed");
  // In the order of the last node: its operands are all known then.
  std::ranges::sort(chosen, [](const Claim& a, const Claim& b) { return a.nodes.back() < b.nodes.back(); });

  for (const Claim& claim : chosen) {
    outcome.claim_sizes.push_back(claim.nodes.size());
    belay_claim raw{};
    raw.hdr.struct_size = sizeof raw;
    raw.nodes = claim.nodes.data(), raw.node_count = claim.nodes.size();
    raw.inputs = claim.inputs.data(), raw.input_count = claim.inputs.size();
    raw.outputs = claim.outputs.data(), raw.output_count = claim.outputs.size();
    belay_prepare_req prepare{};
    prepare.hdr.struct_size = sizeof prepare;
    prepare.image = span;
    prepare.threads = threads;
    prepare.claim = &raw;
    prepare.device = &device;
    prepare.constants = constants.data();
    prepare.precision = precision_;
    belay_prepared prepared{};
    prepared.hdr.struct_size = sizeof prepared;
    if (const belay_status status = table->prepare(&object, &prepare, &prepared))
      return failed(from_c(host, status).message());

    std::vector<uint64_t> args;
    for (size_t i = 0; i < claim.inputs.size(); ++i)
      args.push_back(claim.inputs[i] == BELAY_NONE || (prepared.unused_inputs >> i & 1)
                         ? 0
                         : reinterpret_cast<uint64_t>(memory.at(claim.inputs[i]).at));
    const Value out = claim.outputs[0];
    const std::vector<int64_t> dims = *view.shape(out);
    const size_t bytes = size_t(Tensor{0, dims, {}}.count()) * sizeof(float);
    char* to = nullptr;
    // Only for claims of several nodes: here their in-place operands have no other user, which nobody checks.
    if (in_place && claim.nodes.size() > 1 && !claim.in_place.empty()) {
      const Value from = claim.inputs[claim.in_place[0].input];
      to = memory.at(from).at;
    } else {
      to = memory.try_emplace(out, bytes).first->second.at;
    }
    args.push_back(reinterpret_cast<uint64_t>(to));
    Memory workspace(prepared.workspace_bytes);
    if (prepared.workspace_bytes) args.push_back(reinterpret_cast<uint64_t>(workspace.at));
    belay_exec exec{};
    exec.hdr.struct_size = sizeof exec;
    exec.threads = threads;
    exec.parallel_for = parallel_for;
    const belay_status status = prepared.kernel.fn(&exec, prepared.kernel.state, args.data());
    table->release(&object, prepared.handle);
    if (status != BELAY_OK) return failed("a kernel failed");
    Tensor result{BELAY_DT_FLOAT32, dims, {to, bytes}};
    if (!memory.contains(out))
      std::memcpy(memory.try_emplace(out, bytes).first->second.at, result.bytes.data(), bytes);
    outcome.values[out] = std::move(result);
  }
  return outcome;
}

}  // namespace belay::cpu::testing
