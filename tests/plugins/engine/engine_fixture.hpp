// engine_fixture.hpp: small graphs, loaded by the engine over EngineHost and ToyProvider, and run.
#pragma once

#include "engine_host.hpp"
#include "toy_provider.hpp"

#include <gtest/gtest.h>
#include <belay/graph/builder.hpp>
#include <belay/graph/verify.hpp>
#include <engine.hpp>

namespace belay::testing {

// Builds one image; values are referred to by the builder's numbers.
class GraphMaker {
 public:
  belay::graph::Builder b;
  using Shape = std::vector<belay::graph::Dim>;

  static belay::graph::Dim dim(int64_t size) { return {size, ""}; }
  static belay::graph::Dim dim(const char* name) { return {-1, name}; }
  uint32_t input(std::string_view name, Shape shape, uint32_t dtype = BELAY_DT_FLOAT32, uint32_t graph = 0) {
    const uint32_t value = b.add_value(graph, name, b.tensor_type(dtype, shape));
    b.add_input(graph, value);
    return value;
  }
  template <class T>
  uint32_t constant(std::vector<T> values, std::vector<int64_t> dims, uint32_t graph = 0) {
    constexpr uint32_t dtype = std::is_same_v<T, float>     ? BELAY_DT_FLOAT32
                               : std::is_same_v<T, int64_t> ? BELAY_DT_INT64
                                                            : BELAY_DT_BOOL;
    const uint32_t at = b.add_constant("", dtype, dims, {values.data(), values.size() * sizeof(T)});
    return b.add_value(graph, "c" + std::to_string(at), b.tensor_type(dtype, dims), at);
  }
  uint32_t node(std::string_view op, uint32_t version, std::vector<uint32_t> inputs, uint32_t graph = 0) {
    return nodes(op, version, std::move(inputs), 1, graph)[0];
  }
  std::vector<uint32_t> nodes(std::string_view op, uint32_t version, std::vector<uint32_t> inputs,
                              size_t outputs, uint32_t graph = 0) {
    std::vector<uint32_t> out;
    const std::string name = std::string(op) + std::to_string(++count_);
    for (size_t i = 0; i < outputs; ++i)
      out.push_back(b.add_value(graph, name + "_" + std::to_string(i), BELAY_NONE));
    last = b.add_node(graph, "", op, version, name, inputs, out);
    return out;
  }
  void output(uint32_t value, uint32_t graph = 0) { b.add_output(graph, value); }
  std::string freeze() {
    auto image = b.freeze();
    EXPECT_TRUE(image.ok()) << image.status().message();
    const Status good = belay::graph::verify({image->data(), image->size()});
    EXPECT_TRUE(good.ok()) << good.message();
    return *image;
  }
  uint32_t last = 0;  // the last node

 private:
  int count_ = 0;
};

inline ir::Model import(const std::string& image) {
  static const belay_span none{};
  auto model = ir::import_image({image.data(), image.size()}, {&none, 1});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(*model);
}

struct Tensor {
  uint32_t dtype = 0;
  std::vector<int64_t> dims;
  std::vector<char> bytes;

  template <class T>
  static Tensor of(std::vector<int64_t> dims, std::vector<T> values) {
    Tensor out{std::is_same_v<T, float>     ? BELAY_DT_FLOAT32
               : std::is_same_v<T, int64_t> ? BELAY_DT_INT64
                                            : BELAY_DT_BOOL,
               std::move(dims),
               {}};
    out.bytes.resize(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
    return out;
  }
  template <class T>
  std::vector<T> values() const {
    std::vector<T> out(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  belay_tensor raw() {
    belay_tensor tensor{};
    tensor.hdr.struct_size = sizeof tensor;
    tensor.dtype = dtype;
    tensor.rank = uint32_t(dims.size());
    tensor.dims = dims.data();
    tensor.data = bytes.data();
    tensor.bytes = bytes.size();
    return tensor;
  }
};

// A context of a loaded model.
class Runner {
 public:
  Runner(FakeHost& host, belay_obj* executable) : host_(host) {
    belay_created made{};
    made.hdr.struct_size = sizeof made;
    const auto* vt = static_cast<const belay_executable_vt*>(executable->table);
    status = host.take(vt->context(executable, &made));
    if (status.ok()) context_ = {0, static_cast<const belay_context_vt*>(made.table), made.impl};
  }
  Status set(uint64_t index, Tensor& tensor) {
    const belay_tensor raw = tensor.raw();
    return set(index, raw);
  }
  Status set(uint64_t index, const belay_tensor& raw) {
    belay_datum datum{};
    datum.hdr.struct_size = sizeof datum;
    datum.kind = BELAY_TYPE_TENSOR;
    datum.tensor = &raw;
    return host_.take(context_->set_input(context_, index, &datum));
  }
  Status set(uint64_t index, const belay_datum& datum) {
    return host_.take(context_->set_input(context_, index, &datum));
  }
  Status set_output(uint64_t index, Tensor& tensor) {
    const belay_tensor raw = tensor.raw();
    return set_output(index, raw);
  }
  Status set_output(uint64_t index, const belay_tensor& raw) {
    return host_.take(context_->set_output(context_, index, &raw));
  }
  Status run() { return host_.take(context_->run(context_)); }
  belay_status run_async(belay_completion completion) { return context_->run_async(context_, completion); }
  // "16 shared", "8 copied because ...", "nothing": what the last run did with an input or output.
  std::string input_memory(uint64_t index) { return memory(context_->input_memory, index); }
  std::string output_memory(uint64_t index) { return memory(context_->output_memory, index); }
  Tensor output(uint64_t index) {
    const belay_datum* datum = nullptr;
    const Status got = host_.take(context_->output(context_, index, &datum));
    EXPECT_TRUE(got.ok()) << got.message();
    if (!got.ok() || !datum->tensor) return {};
    const belay_tensor& t = *datum->tensor;
    Tensor out{t.dtype, {t.dims, t.dims + t.rank}, {}};
    if (t.bytes)
      out.bytes.assign(static_cast<const char*>(t.data), static_cast<const char*>(t.data) + t.bytes);
    return out;
  }
  Status status;

 private:
  std::string memory(belay_status (*slot)(belay_obj*, uint64_t, belay_io_memory*), uint64_t index) {
    belay_io_memory memory{};
    memory.hdr.struct_size = sizeof memory;
    if (Status status = host_.take(slot(context_, index, &memory)); !status.ok()) return status.message();
    std::string text;
    if (memory.shared_bytes) text += std::to_string(memory.shared_bytes) + " shared";
    if (memory.copied_bytes)
      text += (text.empty() ? "" : ", ") + std::to_string(memory.copied_bytes) + " copied because " +
              to_string(memory.reason);
    else
      EXPECT_EQ(memory.reason.len, 0u);
    return text.empty() ? "nothing" : text;
  }
  FakeHost& host_;
  Adopted<belay_context_vt> context_;
};

class EngineTest : public ::testing::Test {
 protected:
  explicit EngineTest(bool visible = true) : host(visible) {
    auto mock = std::make_unique<ToyProvider>(&host);
    toy = mock.get();
    provider = {BELAY_OBJ_KERNEL_PROVIDER, &MockKernelProvider::table(),
                static_cast<MockKernelProvider*>(mock.release())};
    host.provide("belay.kernel-provider/1:toy", provider);
  }
  void TearDown() override {
    executable.reset();
    providers.reset();
    EXPECT_EQ(toy->live, 0);
    EXPECT_EQ(host.live_objects(), 0u);
    EXPECT_EQ(host.live_details(), 0u);
    EXPECT_EQ(host.live_leases(), 0u);
    EXPECT_TRUE(host.misbehaviour().empty());
  }
  Status load(GraphMaker& graph, const belay_value* options = nullptr) {
    executable.reset();
    image = graph.freeze();
    if (!providers) providers = std::make_unique<engine::Providers>(host);
    engine::Engine loader(host, *providers);
    belay_load_req req{};
    req.hdr.struct_size = sizeof req;
    req.image = {image.data(), image.size()};
    static const belay_span none{};
    req.sources = &none;
    req.source_count = 1;
    req.device = host.device();
    req.options = options;
    req.name = to_str("test");
    belay_created made{};
    made.hdr.struct_size = sizeof made;
    BELAY_TRY(loader.load(req, &made));
    executable = {BELAY_OBJ_EXECUTABLE, static_cast<const belay_executable_vt*>(made.table), made.impl};
    return {};
  }
  belay_executable_stats stats() {
    belay_executable_stats out{};
    out.hdr.struct_size = sizeof out;
    EXPECT_EQ(executable->stats(executable, &out), BELAY_OK);
    return out;
  }

  EngineHost host;
  ToyProvider* toy = nullptr;
  Adopted<belay_kernel_provider_vt> provider;
  std::unique_ptr<engine::Providers> providers;
  Adopted<belay_executable_vt> executable;
  std::string image;
};

// A device whose memory the host cannot see, with fewer kernels than the host.
class FarDeviceTest : public EngineTest {
 protected:
  FarDeviceTest() : EngineTest(false) {
    auto mock = std::make_unique<ToyProvider>(&host);
    far = mock.get();
    far->drivers = {"far"};
    far->ops = {"Add"};
    far_provider = {BELAY_OBJ_KERNEL_PROVIDER, &MockKernelProvider::table(),
                    static_cast<MockKernelProvider*>(mock.release())};
    host.provide("belay.kernel-provider/1:far", far_provider);
  }
  ToyProvider* far = nullptr;
  Adopted<belay_kernel_provider_vt> far_provider;
};

using D = GraphMaker;

inline std::vector<std::string> ops_of(const ir::Model& model) {
  std::vector<std::string> out;
  for (const ir::NodeId id : model.graphs[0].nodes) out.push_back(model.nodes[id].op);
  return out;
}

}  // namespace belay::testing
