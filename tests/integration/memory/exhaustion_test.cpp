// Each call about memory with the k-th allocation of its thread failing, for every k: an error and nothing
// else.
#include <belay/runtime.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace {
thread_local int64_t left_before_failure = -1;  // allocations; below 0: none fails

void* allocate(size_t bytes, size_t align) {
  if (left_before_failure >= 0 && left_before_failure-- == 0) return nullptr;
  return align <= alignof(std::max_align_t) ? std::malloc(bytes)
                                            : std::aligned_alloc(align, (bytes + align - 1) / align * align);
}
void* allocate_or_throw(size_t bytes, size_t align) {
  if (void* memory = allocate(bytes, align)) return memory;
  throw std::bad_alloc();
}
}  // namespace

// The libraries of the process use these too.
void* operator new(size_t bytes) { return allocate_or_throw(bytes, 1); }
void* operator new[](size_t bytes) { return allocate_or_throw(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t align) { return allocate_or_throw(bytes, size_t(align)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

class ExhaustionTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto made = belay::Runtime::create({.sets = {std::string("memory.policies=") + GetParam(),
                                                 "log.level=error", "engine.use=\"\"", "models.formats=[]"},
                                        .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
    ASSERT_TRUE(made.ok()) << made.status().message();
    runtime_ = std::move(made).value();
    device_ = runtime_.default_device().value();
    stream_ = device_.stream().value();
  }
  // A call, with each of its allocations failing in turn, until it makes no more. It says how it went.
  void starve(const std::function<belay_status()>& call) {
    for (int64_t k = 0;; ++k) {
      left_before_failure = k;
      const belay_status status = call();
      const bool failed = left_before_failure < 0;
      left_before_failure = -1;
      if (status != BELAY_OK) {
        EXPECT_EQ(BELAY_STATUS_CODE(status), BELAY_RESOURCE_EXHAUSTED) << "allocation " << k;
        belay_status_release(status);
      }
      if (!failed) {
        EXPECT_EQ(status, BELAY_OK);
        return;
      }
      ASSERT_LT(k, 1000);
    }
  }
  belay_obj* create(uint64_t bytes) {
    belay_obj* out = nullptr;
    request_.bytes = bytes;
    EXPECT_EQ(vt().buffer_create_on(host(), stream_.get(), &request_, &out), BELAY_OK);
    return out;
  }
  // All is given back: to the policy, or to the device.
  void expect_idle() {
    EXPECT_EQ(device_.memory()->buffers, 0u);
    const belay_memory_policy_vt* table = nullptr;
    belay_obj* pool = nullptr;
    if (const belay_status none = belay_runtime_policy(runtime_.get(), belay::to_str("pool"), &table, &pool);
        none != BELAY_OK) {
      belay_status_release(none);
      EXPECT_EQ(device_.memory()->bytes, 0u);
      return;
    }
    belay_policy_stats stats{};
    stats.hdr.struct_size = sizeof stats;
    EXPECT_EQ(table->stats(pool, &stats), BELAY_OK);
    EXPECT_EQ(stats.in_use, 0u);
    EXPECT_EQ(stats.reserved, device_.memory()->bytes);
  }
  const belay_hal_vt& vt() const { return runtime_.hal(); }
  const belay_host* host() const { return runtime_.host(); }

  belay_alloc_req request_{.hdr = {sizeof(belay_alloc_req), 0, nullptr},
                           .bytes = 0,
                           .align = 0,
                           .heap = 0,
                           .host = nullptr,
                           .access = 0,
                           .within = nullptr,
                           .within_offset = 0};
  belay::Runtime runtime_;
  belay::Device device_;
  belay::Stream stream_;
};

TEST_P(ExhaustionTest, CreateGivesABufferOrAnError) {
  for (const uint64_t bytes : {uint64_t(100), uint64_t(3) << 20, uint64_t(40) << 20}) {
    std::vector<belay_obj*> made;
    made.reserve(1000);
    starve([&] {
      belay_obj* out = nullptr;
      request_.bytes = bytes;
      const belay_status status = made.size() % 2
                                      ? vt().buffer_create(host(), device_.get(), &request_, &out)
                                      : vt().buffer_create_on(host(), stream_.get(), &request_, &out);
      EXPECT_EQ(status == BELAY_OK, out != nullptr);
      if (out) made.push_back(out);
      return status;
    });
    EXPECT_EQ(device_.memory()->buffers, made.size());
    for (belay_obj* buffer : made) vt().buffer_destroy(host(), buffer);
    expect_idle();
  }
}

TEST_P(ExhaustionTest, DestroyNeverFails) {
  for (int64_t k = 0; k < 20; ++k) {
    belay_obj* buffer = create(1000);
    left_before_failure = k;
    vt().buffer_destroy(host(), buffer);
    left_before_failure = -1;
    expect_idle();
  }
}

TEST_P(ExhaustionTest, DestroyAfterEndsTheBufferOrLeavesItAlone) {
  std::atomic<bool> open{false};
  auto event = stream_.host_call([&] {
    while (!open) std::this_thread::yield();
  });
  ASSERT_TRUE(event.ok());
  const belay_event use = event->raw();
  belay_obj* buffer = create(1000);
  starve([&] {
    const belay_status status = vt().buffer_destroy_after(host(), buffer, &use, 1);
    belay_hal_buffer_info info{};
    info.hdr.struct_size = sizeof info;
    const int64_t left = std::exchange(left_before_failure, -1);
    const belay_status alive = vt().buffer_info(host(), buffer, &info);
    EXPECT_EQ(alive == BELAY_OK, status != BELAY_OK);
    belay_status_release(alive);
    if (status == BELAY_OK) buffer = create(1000);  // the next one
    left_before_failure = left;
    return status;
  });
  vt().buffer_destroy(host(), buffer);
  open = true;
  ASSERT_TRUE(stream_.record()->synchronize().ok());
  { auto swept = device_.alloc(64); }
  for (int i = 0; i < 1000 && device_.memory()->buffers; ++i) auto swept = device_.alloc(64);
  expect_idle();
}

INSTANTIATE_TEST_SUITE_P(Policies, ExhaustionTest, ::testing::Values("[]", "[\"pool\"]"));

}  // namespace
