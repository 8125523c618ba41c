// The policy `zerocopy` through a real host: what it shares, and what it says of the rest.
#include "core/host.h"
#include "core/base/status_table.h"

#include <belay/abi/memory_policy.h>
#include <belay/kinds.hpp>
#include <belay/plugin.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

class ZerocopyTest : public ::testing::Test {
 protected:
  // The policy with these keys of its configuration.
  void begin(const std::string& keys = {}) {
    core::Config config;
    ASSERT_TRUE(config
                    .add_text("test.toml", "[runtime]\nplugins = [\"zerocopy\"]\nallow_insecure = true\n"
                                           "[plugin.zerocopy.config]\n" +
                                               keys)
                    .ok());
    auto made = core::Host::create(
        {.config = std::move(config), .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}, .standard_plugin_dirs = false});
    ASSERT_TRUE(made.ok()) << made.status().message();
    host_ = std::move(made).value();
    for (const TableShape& kind : kComponentKinds) host_->add_kind(kind);
    ASSERT_TRUE(host_->start().ok());
    auto lease = host_->acquire("belay.memory-policy/1:zerocopy");
    ASSERT_TRUE(lease.ok()) << lease.status().message();
    policy_ = std::move(lease).value();
  }
  void TearDown() override {
    policy_.reset();
    if (host_) {
      EXPECT_TRUE(host_->shutdown(10s).ok());
    }
    host_.reset();
    EXPECT_EQ(core::live_details(), 0u);
  }
  const belay_memory_policy_vt& vt() { return policy_.table<belay_memory_policy_vt>(); }

  struct Answer {
    Status status;
    uint64_t mode = 99;
    std::string reason;
  };
  Answer ask(uint64_t address, uint64_t bytes, uint64_t alignment, uint64_t access = BELAY_ACCESS_READ,
             uint64_t flags = BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST) {
    belay_bind_req req{};
    req.hdr.struct_size = sizeof req;
    req.address = address, req.bytes = bytes, req.alignment = alignment, req.access = access,
    req.device_flags = flags;
    Answer answer;
    StringSink reason;
    belay_bound bound{};
    bound.hdr.struct_size = sizeof bound;
    bound.mode = answer.mode;
    bound.reason = reason.sink();
    answer.status = from_c(host_->table(), vt().bind(policy_.object(), &req, &bound));
    answer.mode = bound.mode;
    answer.reason = std::move(reason).str();
    return answer;
  }
  std::string why(uint64_t address, uint64_t bytes, uint64_t alignment, uint64_t access = BELAY_ACCESS_READ,
                  uint64_t flags = BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST) {
    const Answer answer = ask(address, bytes, alignment, access, flags);
    EXPECT_TRUE(answer.status.ok()) << answer.status.message();
    EXPECT_EQ(answer.mode, answer.reason.empty() ? BELAY_BIND_SHARE : BELAY_BIND_COPY);
    return answer.reason;
  }

  std::unique_ptr<core::Host> host_;
  core::Lease policy_;
};

TEST_F(ZerocopyTest, ServesBindingAlone) {
  begin();
  EXPECT_EQ(vt().serves(policy_.object()), BELAY_POLICY_BIND);
  EXPECT_TRUE(check_table(shape::kMemoryPolicy, &vt(), "zerocopy").ok());
  belay_policy_stats stats{};
  stats.hdr.struct_size = sizeof stats;
  stats.reserved = 7;
  EXPECT_EQ(vt().stats(policy_.object(), &stats), BELAY_OK);
  EXPECT_EQ(stats.reserved, 0u);
}

TEST_F(ZerocopyTest, SharesWhatTheDeviceAddressesAndTheUserCanRead) {
  begin();
  EXPECT_EQ(why(0x1000, 4096, 64), "");
  EXPECT_EQ(why(0x1000, 4096, 0), "");
  EXPECT_EQ(why(0x1001, 1, 1), "");
  EXPECT_EQ(why(0x1000, 4096, 4096, BELAY_ACCESS_READ | BELAY_ACCESS_WRITE), "");
  EXPECT_EQ(why(0, 0, 8), "");  // no bytes: nothing to copy
}

TEST_F(ZerocopyTest, SaysWhyNotWithTheNumbers) {
  begin("least = \"1KiB\"\nwritten = false\n");
  EXPECT_THAT(why(0x1002, 4096, 4), AllOf(HasSubstr("0x1002"), HasSubstr("not aligned to 4 bytes")));
  EXPECT_THAT(why(0x1000, 4096, 4, BELAY_ACCESS_READ, BELAY_DEVICE_HOST_VISIBLE),
              AllOf(HasSubstr("does not address host memory"), HasSubstr("flags are 1")));
  EXPECT_THAT(why(0x1000, 1023, 4), AllOf(HasSubstr("1023 bytes"), HasSubstr("1024"), HasSubstr("least")));
  EXPECT_EQ(why(0x1000, 1024, 4), "");
  EXPECT_THAT(why(0x1000, 4096, 4, BELAY_ACCESS_WRITE), HasSubstr("plugin.zerocopy.config.written"));
  EXPECT_EQ(why(0x1000, 4096, 4, BELAY_ACCESS_READ), "");
}

TEST_F(ZerocopyTest, NumbersThatCannotBeAreRefused) {
  begin();
  const Answer odd = ask(0x1000, 12, 12), none = ask(0, 4, 4), far = ask(~uint64_t{0} - 2, 4, 1);
  EXPECT_EQ(odd.status.code(), Code::kInvalidArgument);
  EXPECT_THAT(odd.status.message(), AllOf(HasSubstr("alignment is 12"), HasSubstr("0x1000")));
  EXPECT_EQ(none.status.code(), Code::kInvalidArgument);
  EXPECT_THAT(none.status.message(), HasSubstr("NULL"));
  EXPECT_EQ(far.status.code(), Code::kInvalidArgument);
  EXPECT_THAT(far.status.message(), HasSubstr("past the last address"));
}

}  // namespace
}  // namespace belay
