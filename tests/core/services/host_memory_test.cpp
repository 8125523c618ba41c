#include "services_fixture.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstring>
#include <thread>

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

class HostMemoryTest : public ServicesTest {
 protected:
  const belay_memory_vt& table() { return service<belay_memory_vt>(BELAY_HOST_MEMORY); }
  Result<char*> alloc(uint64_t bytes, uint64_t align = 0, uint32_t flags = 0, const char* usage = "") {
    auto req = sized<belay_memory_req>();
    req.hdr.flags = flags, req.bytes = bytes, req.align = align, req.usage = to_str(usage);
    void* block = nullptr;
    BELAY_TRY(take(table().alloc(a, &req, &block)));
    return static_cast<char*>(block);
  }
  belay_memory_usage usage(const belay_host* of) {
    auto made = sized<belay_memory_usage>();
    EXPECT_EQ(table().usage(of, &made), BELAY_OK);
    return made;
  }
};

TEST_F(HostMemoryTest, MemoryIsZeroedAlignedAndCounted) {
  const auto block = alloc(100000, 1 << 20, BELAY_MEMORY_HUGE);
  ASSERT_TRUE(block.ok()) << block.status().message();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*block) % (1 << 20), 0u);
  for (int i = 0; i < 100000; ++i) ASSERT_EQ((*block)[i], 0);
  std::memset(*block, 1, 100000);
  EXPECT_EQ(usage(a).bytes, 102400u);
  EXPECT_EQ(usage(a).blocks, 1u);
  EXPECT_EQ(usage(a).limit, UINT64_MAX);
  EXPECT_EQ(usage(b).bytes, 0u);
  void* small = a->alloc(a, 64, 64);  // counted together
  EXPECT_EQ(usage(a).blocks, 2u);
  a->free(a, small);
  table().free(a, *block), table().free(a, nullptr);
  EXPECT_EQ(usage(a).bytes, 0u);
  EXPECT_GE(usage(a).peak_bytes, 102400u);
}

TEST_F(HostMemoryTest, PinnedMemoryIsCountedAndALackOfItNamesTheLimit) {
  const auto block = alloc(4096, 0, BELAY_MEMORY_PINNED, "staging");
  if (!block.ok()) GTEST_SKIP() << block.status().message();
  EXPECT_EQ(usage(a).pinned_bytes, 4096u);
  table().free(a, *block);
  EXPECT_EQ(usage(a).pinned_bytes, 0u);
  if (geteuid() == 0) return;  // no limit of locked memory holds for root
  rlimit before{};
  getrlimit(RLIMIT_MEMLOCK, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_MEMLOCK, &none);
  const Status status = alloc(1 << 20, 0, BELAY_MEMORY_PINNED, "staging").status();
  setrlimit(RLIMIT_MEMLOCK, &before);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("No 1MiB of pinned host memory for 'staging'"), HasSubstr("ulimit -l")));
}

TEST_F(HostMemoryTest, ALimitOfThePluginIsNamedAndNothingIsTaken) {
  make("memory_limit = \"1MiB\"\n[plugin.a]\nmemory_limit = \"1MiB\"\n");
  const Status status = alloc(2 << 20).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("its limit 1MiB (plugin.a.memory_limit)"));
  EXPECT_EQ(usage(a).bytes, 0u);
  EXPECT_TRUE(alloc(512 << 10).ok());
  EXPECT_EQ(usage(a).limit, 1u << 20);
}

TEST_F(HostMemoryTest, WhatIsNoRequestIsRefused) {
  EXPECT_EQ(alloc(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(alloc(1, 3).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(alloc(1, 2ull << 30).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(alloc(1, 0, 8).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(alloc(UINT64_MAX).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(alloc(1ull << 62).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(take(table().alloc(a, nullptr, nullptr)).code(), Code::kInvalidArgument);
  EXPECT_EQ(usage(a).bytes, 0u);
}

TEST_F(HostMemoryTest, AFreeOfWhatItDoesNotHaveIsABrokenRule) {
  const auto block = alloc(4096);
  table().free(b, *block);
  table().free(a, *block + 16);
  table().free(a, *block);
  table().free(a, *block);
  EXPECT_EQ(table_of(a).misbehaved, 2u);
  EXPECT_EQ(table_of(b).misbehaved, 1u);
  EXPECT_THAT(log(),
              Contains(HasSubstr("plugin 'b' broke a rule (1): free of host memory that it does not have")));
}

TEST_F(HostMemoryTest, WhatIsLeftAtCloseIsNamedAndTakenBack) {
  ASSERT_TRUE(alloc(10000, 0, 0, "cache").ok());
  ASSERT_TRUE(host->plugins().unload("a", 5s).ok());
  EXPECT_THAT(log(), Contains(HasSubstr("plugin 'a' leaves behind host memory of 12KiB for 'cache'")));
  EXPECT_EQ(table_of(a).memory.bytes, 0u);
}

TEST_F(HostMemoryTest, ManyThreadsAllocateAndFreeWithinTheLimit) {
  make("[plugin.a]\nmemory_limit = \"64KiB\"\n");
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        if (const auto block = alloc(16384); block.ok()) table().free(a, *block);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(usage(a).bytes, 0u);
  EXPECT_LE(usage(a).peak_bytes, 65536u);
}

TEST_F(HostMemoryTest, AForkedChildIsRefused) {
  const auto block = alloc(4096);
  ASSERT_TRUE(block.ok());
  const belay_memory_vt& memory = table();
  const pid_t child = fork();
  if (child == 0) {
    auto req = sized<belay_memory_req>();
    req.bytes = 1;
    void* out = nullptr;
    const belay_status status = memory.alloc(a, &req, &out);
    _exit(BELAY_STATUS_CODE(status) == BELAY_FAILED_PRECONDITION && !out ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace belay::core
