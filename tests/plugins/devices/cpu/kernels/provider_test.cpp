#include "provider.hpp"

#include "pack_cache.hpp"
#include "registry.hpp"

#include <belay/abi/kernel_provider.h>
#include <belay/graph/builder.hpp>
#include <belay/testing/fake_host.hpp>

#include <gmock/gmock.h>

namespace belay::cpu::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Claimed {
  std::vector<uint32_t> nodes;
  std::vector<std::pair<uint32_t, uint32_t>> in_place;
  uint64_t host_inputs = 0;
};

class ProviderTest : public ::testing::Test {
 protected:
  ProviderTest() {
    state_.host = &host_;
    belay_created created{};
    created.hdr.struct_size = sizeof created;
    const belay_component* component = belay_cpu_kernel_provider_component();
    EXPECT_EQ(component->create(reinterpret_cast<belay_ctx*>(&state_), nullptr, &created), BELAY_OK);
    provider_ = {BELAY_OBJ_KERNEL_PROVIDER, static_cast<const belay_kernel_provider_vt*>(created.table),
                 created.impl};
  }
  uint32_t value(uint32_t dtype, std::vector<int64_t> dims) {
    return builder_.add_value(0, "v", builder_.tensor_type(dtype, std::span<const int64_t>(dims)));
  }
  uint32_t input(uint32_t dtype, std::vector<int64_t> dims) {
    const uint32_t at = value(dtype, std::move(dims));
    builder_.add_input(0, at);
    return at;
  }
  void node(const char* op, std::vector<uint32_t> inputs, std::vector<uint32_t> outputs) {
    builder_.add_node(0, "", op, 13, "n", inputs, outputs);
    for (const uint32_t out : outputs) builder_.add_output(0, out);
  }
  void claim() {
    Result<std::string> image = builder_.freeze();
    ASSERT_TRUE(image.ok()) << image.status().message();
    image_ = *image;
    belay_claim_req request{};
    request.hdr.struct_size = sizeof request;
    request.image = {image_.data(), image_.size()};
    const belay_claim_sink sink{this,
                                [](void* user, const belay_claim* c) BELAY_NOEXCEPT {
                                  Claimed out{{c->nodes, c->nodes + c->node_count}, {}, c->host_inputs};
                                  for (uint64_t i = 0; i < c->in_place_count; ++i)
                                    out.in_place.emplace_back(c->in_place[i].input, c->in_place[i].output);
                                  static_cast<ProviderTest*>(user)->claims_.push_back(out);
                                },
                                [](void* user, uint32_t, belay_str reason) BELAY_NOEXCEPT {
                                  static_cast<ProviderTest*>(user)->refusals_.push_back(to_string(reason));
                                }};
    EXPECT_EQ(provider_->claim(provider_, &request, &sink), BELAY_OK);
  }

  belay::testing::FakeHost host_;
  PluginState state_;
  belay::testing::Adopted<belay_kernel_provider_vt> provider_;
  graph::Builder builder_;
  std::string image_;
  std::vector<Claimed> claims_;
  std::vector<std::string> refusals_;
};

TEST_F(ProviderTest, ServesTheCpuDriverWhoseMemoryItSees) {
  belay_device_info device{};
  device.hdr = {sizeof device, BELAY_DEVICE_HOST_VISIBLE, nullptr};
  device.driver = to_str("cpu");
  EXPECT_GT(provider_->serves(provider_, &device), 0u);
  device.driver = to_str("ascend");
  EXPECT_EQ(provider_->serves(provider_, &device), 0u);
  device.driver = to_str("cpu");
  device.hdr.flags = 0;
  EXPECT_EQ(provider_->serves(provider_, &device), 0u);
}

TEST_F(ProviderTest, InPlaceIsOfferedForOperandsOfTheOutputsSizeOnly) {
  const uint32_t a = input(BELAY_DT_FLOAT32, {2, 3}), b = input(BELAY_DT_FLOAT32, {3});
  const uint32_t c = input(BELAY_DT_FLOAT32, {2, 3});
  node("Add", {a, b}, {value(BELAY_DT_FLOAT32, {2, 3})});
  node("Add", {a, c}, {value(BELAY_DT_FLOAT32, {2, 3})});
  node("Less", {a, c}, {value(BELAY_DT_BOOL, {2, 3})});
  claim();
  ASSERT_EQ(claims_.size(), 3u);
  EXPECT_THAT(claims_[0].in_place, ElementsAre(std::pair(0u, 0u)));
  EXPECT_THAT(claims_[1].in_place, ElementsAre(std::pair(0u, 0u), std::pair(1u, 0u)));
  EXPECT_THAT(claims_[2].in_place, IsEmpty());
}

TEST_F(ProviderTest, ShapeInputsAreWantedOnTheHostUnlessTheShapeIsKnown) {
  const uint32_t a = input(BELAY_DT_FLOAT32, {2, 3}), shape = input(BELAY_DT_INT64, {1});
  node("Reshape", {a, shape}, {value(BELAY_DT_FLOAT32, {6})});
  node("Reshape", {a, shape}, {value(BELAY_DT_FLOAT32, {-1})});
  node("Tile", {input(BELAY_DT_FLOAT32, {2}), shape}, {value(BELAY_DT_FLOAT32, {4})});
  claim();
  ASSERT_EQ(claims_.size(), 3u);
  EXPECT_EQ(claims_[0].host_inputs, 0u);
  EXPECT_EQ(claims_[1].host_inputs, 2u);
  EXPECT_EQ(claims_[2].host_inputs, 2u);
}

TEST_F(ProviderTest, AnInputOfUnknownTypeIsRefused) {
  const uint32_t a = builder_.add_value(0, "a", BELAY_NONE);
  builder_.add_input(0, a);
  node("Exp", {a}, {value(BELAY_DT_FLOAT32, {2, 3})});
  claim();
  EXPECT_THAT(claims_, IsEmpty());
  EXPECT_THAT(refusals_, ElementsAre(HasSubstr("input 0 is of a type that is not known")));
}

TEST_F(ProviderTest, AClaimOfAnUnknownShapeCannotBePrepared) {
  const uint32_t a = input(BELAY_DT_FLOAT32, {-1, 3});
  node("Exp", {a}, {value(BELAY_DT_FLOAT32, {-1, 3})});
  claim();
  ASSERT_EQ(claims_.size(), 1u);
  const uint32_t nodes[] = {0}, outputs[] = {a + 1};
  belay_claim claim{};
  claim.nodes = nodes, claim.node_count = 1;
  claim.inputs = &a, claim.input_count = 1;
  claim.outputs = outputs, claim.output_count = 1;
  belay_prepare_req request{};
  request.hdr.struct_size = sizeof request;
  request.image = {image_.data(), image_.size()};
  request.claim = &claim;
  belay_prepared prepared{};
  prepared.hdr.struct_size = sizeof prepared;
  const Status status = from_c(host_, provider_->prepare(provider_, &request, &prepared));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("[-1,3]"));
  EXPECT_EQ(host_.live_details(), 0u);
}

TEST(RegistryTest, ASecondKernelForAnOperatorIsRefused) {
  Registry registry;
  EXPECT_THROW(registry.add(OpDef{.op = "Add", .prepare = nullptr}), std::logic_error);
}

TEST(PackCacheTest, EqualKeyAndFormShareUntilNobodyHoldsThem) {
  PackCache cache;
  int made = 0;
  const PackCache::Make make = [&] {
    ++made;
    return std::make_shared<PackedBytes>(64);
  };
  auto a = cache.get(7, "x", make), b = cache.get(7, "x", make);
  EXPECT_EQ(a, b);
  EXPECT_NE(cache.get(7, "y", make), a);
  EXPECT_NE(cache.get(0, "x", make), cache.get(0, "x", make));
  EXPECT_EQ(made, 4);
  a.reset();
  b.reset();
  a = cache.get(7, "x", make);
  EXPECT_EQ(made, 5);
}

}  // namespace
}  // namespace belay::cpu::testing
