// The plugin @ID@ as its file is built, called as a host calls it.
#include <belay/abi/kernel_provider.h>
#include <belay/graph/builder.hpp>
#include <belay/testing/plugin_file.hpp>

#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace {

using belay::testing::Adopted;
using belay::testing::FakeHost;
using belay::testing::PluginFile;

// A graph of one node with one input and one output.
std::vector<uint64_t> one_node(const char* op, uint32_t dtype, const std::vector<int64_t>& dims) {
  belay::graph::Builder graph;
  const uint32_t type = graph.tensor_type(dtype, dims);
  const uint32_t x = graph.add_value(0, "x", type), y = graph.add_value(0, "y", type);
  graph.add_input(0, x), graph.add_output(0, y);
  graph.add_node(0, "", op, 14, "node", std::vector{x}, std::vector{y});
  const std::string image = graph.freeze().value();
  std::vector<uint64_t> words((image.size() + 7) / 8);  // an image is aligned to 8 bytes
  std::memcpy(words.data(), image.data(), image.size());
  return words;
}

struct Claims {  // what the provider said
  std::vector<belay_claim> claims;
  std::vector<std::string> refusals;
  belay_claim_sink sink() {
    return {this,
            [](void* user, const belay_claim* claim) noexcept {
              static_cast<Claims*>(user)->claims.push_back(*claim);
            },
            [](void* user, uint32_t, belay_str reason) noexcept {
              static_cast<Claims*>(user)->refusals.push_back(belay::to_string(reason));
            }};
  }
};

class KernelProvider : public testing::Test {
 protected:
  KernelProvider() {
    device.hdr = {sizeof device, BELAY_DEVICE_HOST_VISIBLE, nullptr};
    device.driver = belay::to_str("cpu");
  }
  Claims claim(const std::vector<uint64_t>& image) {
    Claims out;
    const void* constants[2]{};
    const belay_claim_req req{
        {sizeof req, 0, nullptr}, {image.data(), image.size() * 8}, 0, 0, &device, constants};
    const belay_claim_sink sink = out.sink();
    EXPECT_EQ(provider->claim(provider, &req, &sink), BELAY_OK);
    return out;
  }
  belay_device_info device{};
  FakeHost host;
  PluginFile plugin{host, BELAY_PLUGIN_FILE};
  Adopted<belay_kernel_provider_vt> provider =
      plugin.make<belay_kernel_provider_vt>(BELAY_KERNEL_PROVIDER_KIND);
};

TEST_F(KernelProvider, ServesDevicesWhoseMemoryTheHostSees) {
  EXPECT_GT(provider->serves(provider, &device), 0u);
  device.hdr.flags = 0;
  EXPECT_EQ(provider->serves(provider, &device), 0u);
}

TEST_F(KernelProvider, RefusesWithAReason) {
  const Claims other = claim(one_node("Tanh", BELAY_DT_FLOAT32, {2}));
  ASSERT_EQ(other.refusals.size(), 1u);
  EXPECT_NE(other.refusals[0].find("Tanh-14"), std::string::npos) << other.refusals[0];
  const Claims integer = claim(one_node("Relu", BELAY_DT_INT32, {2}));
  ASSERT_EQ(integer.refusals.size(), 1u);
  EXPECT_NE(integer.refusals[0].find("int32"), std::string::npos) << integer.refusals[0];
  EXPECT_EQ(claim(one_node("Relu", BELAY_DT_FLOAT32, {-1})).refusals.size(), 1u);
}

TEST_F(KernelProvider, ComputesRelu) {
  constexpr uint64_t kCount = 100'000;  // more than one part
  const std::vector<uint64_t> image = one_node("Relu", BELAY_DT_FLOAT32, {1000, 100});
  const Claims claims = claim(image);
  ASSERT_EQ(claims.claims.size(), 1u);
  const uint32_t node = 0;
  belay_claim chosen = claims.claims[0];
  chosen.nodes = &node;  // what the sink was given was borrowed
  belay_prepare_req req{};
  req.hdr.struct_size = sizeof req;
  req.image = {image.data(), image.size() * 8};
  req.threads = 1, req.claim = &chosen, req.device = &device;
  belay_prepared made{};
  made.hdr.struct_size = sizeof made;
  ASSERT_EQ(provider->prepare(provider, &req, &made), BELAY_OK);

  std::vector<float> x(kCount), y(kCount, -1);
  for (uint64_t i = 0; i < kCount; ++i) x[i] = float(int64_t(i % 7) - 3);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  belay_exec exec{};
  exec.hdr.struct_size = sizeof exec;
  exec.threads = 1;
  exec.parallel_for = [](const belay_exec*, uint64_t count, void (*body)(void*, uint64_t),
                         void* arg) noexcept {
    for (uint64_t i = 0; i < count; ++i) body(arg, i);
  };
  const uint64_t args[]{reinterpret_cast<uint64_t>(x.data()), reinterpret_cast<uint64_t>(y.data())};
  ASSERT_EQ(made.kernel.fn(&exec, made.kernel.state, args), BELAY_OK);
  for (uint64_t i = 0; i < kCount; ++i)
    if (i != 5) {
      ASSERT_EQ(y[i], x[i] > 0 ? x[i] : 0) << i;
    }
  EXPECT_TRUE(std::isnan(y[5]));
  provider->release(provider, made.handle);
  EXPECT_EQ(host.live_details(), 0u);
}

}  // namespace
