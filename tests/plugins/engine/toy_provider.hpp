// toy_provider.hpp: a mocked kernel provider whose default actions run a few operators on float32 and int64
// in plain loops: Add, Mul, Less (the second operand may be one element), Relu, Neg, NonZero, and "Fail",
// which fails.
#pragma once

#include <belay/graph/dtype.hpp>
#include <belay/graph/view.hpp>
#include <belay/testing/mock_kernel_provider.hpp>

#include <atomic>
#include <set>

namespace belay::testing {

class ToyProvider : public ::testing::NiceMock<MockKernelProvider> {
 public:
  explicit ToyProvider(const belay_host* host) : NiceMock(host) {
    ON_CALL(*this, serves).WillByDefault([this](const belay_device_info& info) {
      return drivers.contains(to_string(info.driver)) ? 500u : 0u;
    });
    ON_CALL(*this, claim).WillByDefault([this](const belay_claim_req& req, const belay_claim_sink& sink) {
      return claim_all(req, sink);
    });
    ON_CALL(*this, prepare).WillByDefault([this](const belay_prepare_req& req, belay_prepared* out) {
      return make(req, out);
    });
    ON_CALL(*this, release).WillByDefault([this](void* handle) {
      delete static_cast<State*>(handle);
      live.fetch_sub(1);
    });
  }

  std::set<std::string> drivers{"cpu"};
  std::set<std::string> ops{"Add", "Mul", "Less", "Relu", "Neg", "NonZero", "Fail"};
  bool fuse = false;  // claims [Add, Relu]
  bool in_place = false;
  uint64_t cost_ns = 0, cost_spread = 0;  // of a kernel: the first and, by its name, less than the second
  std::atomic<int> live{0}, prepared{0};

 private:
  struct State {
    std::string op;
    bool relu = false;
    uint32_t dtype = 0, rank = 0;
    uint64_t count = 0, count_b = 0;
    std::vector<int64_t> dims;
  };

  void emit(const belay::graph::NodeView& node, std::vector<uint32_t> nodes, std::vector<uint32_t> inputs,
            uint32_t output, uint64_t score, const belay_claim_sink& sink) {
    (void)node;
    const belay_in_place pair{0, 0};
    belay_claim claim{};
    claim.hdr.struct_size = sizeof claim;
    claim.nodes = nodes.data();
    claim.node_count = nodes.size();
    claim.inputs = inputs.data();
    claim.input_count = inputs.size();
    claim.outputs = &output;
    claim.output_count = 1;
    claim.score = score;
    claim.in_place = &pair;
    claim.in_place_count = in_place ? 1 : 0;
    sink.claim(sink.user, &claim);
  }

  Status claim_all(const belay_claim_req& req, const belay_claim_sink& sink) {
    const belay::graph::View view(req.image);
    for (uint32_t n = 0; n < view.nodes().size(); ++n) {
      const auto node = view.node(n);
      if (!ops.contains(std::string(node.op()))) {
        sink.refuse(sink.user, n, to_str("the toy knows no such operator"));
        continue;
      }
      const std::vector<uint32_t> inputs(node.inputs().begin(), node.inputs().end());
      emit(node, {n}, inputs, node.output(0), 500, sink);
      if (fuse && node.op() == "Add")
        for (uint32_t m = n + 1; m < view.nodes().size(); ++m)
          if (view.node(m).op() == "Relu" && view.node(m).input(0) == node.output(0))
            emit(node, {n, m}, inputs, view.node(m).output(0), 900, sink);
    }
    return {};
  }

  Status make(const belay_prepare_req& req, belay_prepared* out) {
    const belay::graph::View view(req.image);
    const auto node = view.node(req.claim->nodes[0]);
    auto state = std::make_unique<State>();
    state->op = node.op();
    state->relu = req.claim->node_count > 1;
    state->dtype = view.dtype(node.input(0));
    state->dims = *view.shape(node.input(0));
    state->rank = uint32_t(state->dims.size());
    state->count = *element_count(state->dims);
    if (node.inputs().size() > 1) state->count_b = *element_count(*view.shape(node.input(1)));
    out->handle = state.get();
    out->kernel.hdr = {sizeof(belay_kernel), state->op == "NonZero" ? BELAY_KERNEL_WRITES_SHAPE : 0u,
                       nullptr};
    out->kernel.fn = run;
    out->kernel.cost_ns = cost_ns;
    if (cost_spread) out->kernel.cost_ns += std::hash<std::string_view>()(node.name()) % cost_spread;
    out->kernel.state = state.release();
    out->implementation = to_str("toy");
    live.fetch_add(1);
    prepared.fetch_add(1);
    return {};
  }

  template <class T>
  static belay_status run_as(const belay_exec* exec, const State& s, const uint64_t* args) {
    const T* a = reinterpret_cast<const T*>(args[0]);
    if (s.op == "Fail") return exec->fail(exec, BELAY_INTERNAL, to_str("it was asked to"));
    if (s.op == "NonZero") {
      int64_t found = 0;
      for (uint64_t i = 0; i < s.count; ++i) found += a[i] != 0;
      const int64_t dims[] = {1, found};
      auto* out = static_cast<int64_t*>(exec->output(exec, 0, dims, 2));
      for (uint64_t i = 0; i < s.count; ++i)
        if (a[i] != 0) *out++ = int64_t(i);
      return BELAY_OK;
    }
    if (s.op == "Less") {
      const T* b = reinterpret_cast<const T*>(args[1]);
      auto* out = reinterpret_cast<uint8_t*>(args[2]);
      for (uint64_t i = 0; i < s.count; ++i) out[i] = a[i] < b[s.count_b == 1 ? 0 : i];
      return BELAY_OK;
    }
    const bool binary = s.op == "Add" || s.op == "Mul";
    const T* b = binary ? reinterpret_cast<const T*>(args[1]) : nullptr;
    T* out = reinterpret_cast<T*>(args[binary ? 2 : 1]);
    for (uint64_t i = 0; i < s.count; ++i) {
      const T y = binary ? b[s.count_b == 1 ? 0 : i] : T(0);
      T value = s.op == "Add" ? a[i] + y : s.op == "Mul" ? a[i] * y : s.op == "Neg" ? -a[i] : a[i];
      if (s.relu || s.op == "Relu") value = value < T(0) ? T(0) : value;
      out[i] = value;
    }
    return BELAY_OK;
  }
  static belay_status run(const belay_exec* exec, const void* state, const uint64_t* args) BELAY_NOEXCEPT {
    const State& s = *static_cast<const State*>(state);
    return s.dtype == BELAY_DT_INT64 ? run_as<int64_t>(exec, s, args) : run_as<float>(exec, s, args);
  }
};

}  // namespace belay::testing
