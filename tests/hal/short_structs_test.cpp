// Callers that know fewer fields of a struct than this host: every slot of the table that takes one.
#include "hal_fixture.h"

#include <belay/testing/mock_package.hpp>

#include <sys/mman.h>
#include <unistd.h>
#include <cstring>
#include <functional>

namespace belay::hal {
namespace {

using belay::testing::MockNativeModels;
using belay::testing::MockPackage;

// The first bytes of a struct, before memory that nobody may touch: what goes past them ends the test.
template <class T>
class Short {
 public:
  Short(T value, size_t bytes) {
    value.hdr.struct_size = uint32_t(bytes);
    void* const pages = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(pages, MAP_FAILED);
    pages_ = static_cast<char*>(pages);
    EXPECT_EQ(mprotect(pages_ + page_, page_, PROT_NONE), 0);
    std::memcpy(pages_ + page_ - bytes, &value, bytes);
    struct_ = reinterpret_cast<T*>(pages_ + page_ - bytes);
  }
  Short(const Short&) = delete;
  Short& operator=(const Short&) = delete;
  ~Short() { munmap(pages_, 2 * page_); }
  T* get() const { return struct_; }

 private:
  const size_t page_ = size_t(sysconf(_SC_PAGESIZE));
  char* pages_ = nullptr;
  T* struct_ = nullptr;
};

class ShortStructsTest : public HalTest {
 protected:
  ShortStructsTest() {
    NiceDevice& mock = add_device("mock");
    ON_CALL(mock, extension).WillByDefault([](std::string_view id) -> const void* {
      if (id == BELAY_DRIVER_PROGRAM) return &MockDevice::program_table();
      if (id == BELAY_DRIVER_VIRTUAL_MEMORY) return &MockDevice::virtual_memory_table();
      return MockNativeModels::extension(id);
    });
    ON_CALL(mock, program_create).WillByDefault([this](const belay_program_req& req) {
      whole(req);
      for (uint64_t i = 0; i < req.node_count; ++i) {
        whole(*req.nodes[i]);
        EXPECT_EQ(req.nodes[i]->name.len, 0u);
      }
      return give<MockProgram>(std::make_unique<NiceMock<MockProgram>>(host()));
    });
    ON_CALL(mock, health).WillByDefault([](belay_health* health) {
      whole(*health);
      health->state = 1;
      if (health->reason.write) write(health->reason, "It is lost.");
      return Status();
    });
    ON_CALL(models_, load).WillByDefault([this](const belay_package_req& req) {
      whole(req);
      return give<MockPackage>(std::make_unique<NiceMock<MockPackage>>(host()));
    });
    start();
    device_ = device();
    auto mocked = std::make_unique<NiceStream>(host());
    ON_CALL(*mocked, copy).WillByDefault([](const belay_copy_req& req) { return queued(req); });
    ON_CALL(*mocked, fill).WillByDefault([](const belay_fill_req& req) { return queued(req); });
    ON_CALL(*mocked, launch).WillByDefault([](const belay_launch_req& req) { return queued(req); });
    EXPECT_CALL(mock, stream_create)
        .WillOnce(Return(::testing::ByMove(give<MockStream>(std::move(mocked)))))
        .RetiresOnSaturation();
    stream_ = stream(device_);
    buffer_ = buffer(device_, 64);
  }
  ~ShortStructsTest() override {
    vt().stream_destroy(host(), stream_);
    vt().buffer_destroy(host(), buffer_);
  }

  // What a driver gets has all fields.
  template <class T>
  static void whole(const T& req) {
    EXPECT_EQ(req.hdr.struct_size, sizeof req);
  }
  template <class T>
  static Result<uint64_t> queued(const T& req) {
    whole(req);
    return uint64_t(1);
  }
  // Every size from `least` on is taken, one that is smaller is refused by its name.
  template <class T>
  void request_from(size_t least, const T& value, const std::function<Status(const T*)>& call,
                    const std::string& name = "the request") {
    for (size_t bytes = least; bytes <= sizeof(T); bytes += 8) {
      const Short<T> req(value, bytes);
      const Status status = call(req.get());
      EXPECT_TRUE(status.ok()) << bytes << ": " << status.message();
    }
    const Short<T> less(value, least - 8);
    const Status status = call(less.get());
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("struct_size of " + name + " is " + std::to_string(least - 8) +
                                            ", want " + std::to_string(least)));
    EXPECT_THAT(call(nullptr).message(), HasSubstr("is NULL"));
  }
  // Every size from the header on is taken and gets what it knows of the whole answer. `expected` is called
  // with that.
  template <class T>
  void answer(const T& value, const std::function<Status(T*)>& call,
              const std::function<void(const T&)>& expected) {
    const Short<T> full(value, sizeof(T));
    ASSERT_TRUE(call(full.get()).ok());
    expected(*full.get());
    for (size_t bytes = sizeof(belay_hdr); bytes < sizeof(T); bytes += 4) {
      if (bytes % alignof(T)) continue;
      const Short<T> part(value, bytes);
      const Status status = call(part.get());
      EXPECT_TRUE(status.ok()) << bytes << ": " << status.message();
      EXPECT_EQ(part.get()->hdr.struct_size, bytes);
      EXPECT_EQ(
          std::memcmp(reinterpret_cast<char*>(part.get()) + sizeof(belay_hdr),
                      reinterpret_cast<char*>(full.get()) + sizeof(belay_hdr), bytes - sizeof(belay_hdr)),
          0)
          << bytes;
    }
    const Short<T> less(value, 8);
    EXPECT_THAT(call(less.get()).message(), HasSubstr("struct_size of inout is 8, want 16 or more"));
    EXPECT_THAT(call(nullptr).message(), HasSubstr("inout is NULL"));
  }
  Status done(belay_status status, belay_obj*& made, void (*end)(const belay_host*, belay_obj*)) {
    const Status taken = take(status);
    if (taken.ok()) end(host(), made);
    return taken;
  }

  NiceMock<MockNativeModels> models_{host()};
  belay_obj *device_ = nullptr, *stream_ = nullptr, *buffer_ = nullptr;
};

TEST_F(ShortStructsTest, Buffers) {
  belay_alloc_req req{};
  req.bytes = 4096;
  belay_obj* made = nullptr;
  request_from<belay_alloc_req>(24, req, [&](auto* r) {
    return done(vt().buffer_create(host(), device_, r, &made), made, vt().buffer_destroy);
  });
  request_from<belay_alloc_req>(24, req, [&](auto* r) {
    return done(vt().buffer_create_on(host(), stream_, r, &made), made, vt().buffer_destroy);
  });
  request_from<belay_alloc_req>(24, req, [&](auto* r) {
    return done(vt().reserve(host(), device_, r, &made), made, vt().buffer_destroy);
  });
  for (const auto call : {vt().buffer_create, vt().reserve}) {
    const Short<belay_alloc_req> good(req, sizeof req);
    EXPECT_THAT(take(call(host(), device_, good.get(), nullptr)).message(), HasSubstr(": out is NULL."));
  }
  EXPECT_THAT(take(vt().buffer_create_on(host(), stream_, &req, nullptr)).message(),
              HasSubstr("struct_size"));
}

TEST_F(ShortStructsTest, StreamsAndWhatIsQueued) {
  belay_obj* made = nullptr;
  request_from<belay_hal_stream_req>(16, {}, [&](auto* r) {
    return done(vt().stream_create(host(), device_, r, &made), made, vt().stream_destroy);
  });
  std::vector<char> memory(64);
  belay_copy_req copy{};
  copy.dst = buffer_, copy.host_src = memory.data(), copy.bytes = 64;
  request_from<belay_copy_req>(72, copy,
                               [&](auto* r) { return take(vt().copy(host(), stream_, r, nullptr)); });
  belay_fill_req fill{};
  fill.dst = buffer_, fill.bytes = 64, fill.pattern_bytes = 1;
  request_from<belay_fill_req>(56, fill,
                               [&](auto* r) { return take(vt().fill(host(), stream_, r, nullptr)); });
  belay_launch_req launch{};
  launch.kernel = &kNothing;
  request_from<belay_launch_req>(40, launch,
                                 [&](auto* r) { return take(vt().launch(host(), stream_, r, nullptr)); });
}

TEST_F(ShortStructsTest, Programs) {
  belay_node node{};
  node.kernel = &kNothing;
  belay_program_req req{};
  belay_obj* made = nullptr;
  const auto create = [&](const belay_program_req* r) {
    return done(vt().program_create(host(), device_, r, &made), made, vt().program_destroy);
  };
  const Short<belay_node> known(node, 40), all(node, sizeof node);
  const belay_node* const nodes[] = {all.get(), known.get()};
  req.nodes = nodes, req.node_count = 2;
  request_from<belay_program_req>(32, req, create);
  const Short<belay_node> less(node, 32);
  const belay_node* const bad[] = {less.get()};
  req.hdr.struct_size = sizeof req;
  req.nodes = bad, req.node_count = 1;
  EXPECT_THAT(create(&req).message(), HasSubstr("node 0: its struct_size is 32, want 40 or more"));
}

TEST_F(ShortStructsTest, Plans) {
  const uint64_t bytes[] = {100, 200}, first[] = {0, 1, 2};
  const belay_interval lives[] = {{0, 2}, {1, 3}};
  uint64_t offset[2] = {}, peak = 0, lower = 0;
  belay_plan_req req{};
  req.count = 2, req.bytes = bytes, req.arena_count = 1, req.interval_first = first, req.intervals = lives;
  belay_plan_result result{};
  result.offset = offset, result.peak = &peak, result.lower_bound = &lower;
  const Short<belay_plan_result> answered(result, sizeof result);
  request_from<belay_plan_req>(72, req, [&](auto* r) { return take(vt().plan(host(), r, answered.get())); });
  EXPECT_EQ(peak, 328u);  // 128 + 200
  const Short<belay_plan_req> asked(req, 72);
  request_from<belay_plan_result>(
      40, result,
      [&](auto* r) { return take(vt().plan(host(), asked.get(), const_cast<belay_plan_result*>(r))); },
      "the result");
}

TEST_F(ShortStructsTest, Packages) {
  const std::string bytes = "compiled";
  belay_package_req req{};
  req.kind = to_str("om"), req.bytes = {bytes.data(), bytes.size()};
  belay_obj* made = nullptr;
  const auto load = [&](const belay_package_req* r) {
    return take(vt().package_load(host(), device_, r, &made));
  };
  request_from<belay_package_req>(48, req, [&](auto* r) {
    Status status = load(r);
    if (status.ok()) vt().package_destroy(host(), made);
    return status;
  });
  auto mock = std::make_unique<NiceMock<MockPackage>>(host());
  const auto describe = [](uint64_t, belay_io_info* io) {
    whole(*io);
    io->dtype = BELAY_DT_FLOAT16, io->rank = 3;
    return Status();
  };
  ON_CALL(*mock, input_info).WillByDefault(describe);
  ON_CALL(*mock, output_info).WillByDefault(describe);
  EXPECT_CALL(models_, load).WillOnce(Return(::testing::ByMove(give<MockPackage>(std::move(mock)))));
  const Short<belay_package_req> good(req, sizeof req);
  ASSERT_TRUE(load(good.get()).ok());
  answer<belay_package_info>(
      {}, [&](auto* r) { return take(vt().package_info(host(), made, r)); },
      [](const auto& info) { EXPECT_EQ(info.outputs, 1u); });
  for (const auto call : {vt().package_input_info, vt().package_output_info})
    answer<belay_io_info>(
        {}, [&](auto* r) { return take(call(host(), made, 0, r)); },
        [](const auto& info) { EXPECT_EQ(info.rank, 3u); });
  vt().package_destroy(host(), made);
}

TEST_F(ShortStructsTest, Answers) {
  answer<belay_device_info>(
      {}, [&](auto* r) { return take(vt().device_info(host(), device_, r)); },
      [](const auto& info) {
        EXPECT_EQ(to_string(info.driver), "mock");
        EXPECT_TRUE(info.hdr.flags & BELAY_DEVICE_HOST_VISIBLE);
      });
  answer<belay_heap_info>(
      {}, [&](auto* r) { return take(vt().heap_info(host(), device_, 0, r)); },
      [](const auto& info) { EXPECT_EQ(info.alignment, 64u); });
  answer<belay_hal_buffer_info>(
      {}, [&](auto* r) { return take(vt().buffer_info(host(), buffer_, r)); },
      [](const auto& info) { EXPECT_EQ(info.bytes, 64u); });
  StringSink usage, reason;
  belay_hal_memory_info memory{};
  memory.usage = usage.sink();
  answer<belay_hal_memory_info>(
      memory, [&](auto* r) { return take(vt().memory_info(host(), device_, r)); },
      [](const auto& info) { EXPECT_EQ(info.bytes, 64u); });
  EXPECT_THAT(usage.text(), HasSubstr("64 B"));
  belay_health health{};
  health.reason = reason.sink();
  answer<belay_health>(
      health, [&](auto* r) { return take(vt().health(host(), device_, r)); },
      [](const auto& info) { EXPECT_EQ(info.state, 1u); });
  EXPECT_THAT(reason.text(), HasSubstr("It is lost."));
}

TEST_F(ShortStructsTest, Bindings) {
  std::vector<char> memory(64);
  belay_bind_req req{};
  req.address = reinterpret_cast<uint64_t>(memory.data()), req.bytes = 64, req.access = BELAY_ACCESS_READ;
  auto whole_answer = request<belay_bound>();
  request_from<belay_bind_req>(40, req,
                               [&](auto* r) { return take(vt().bind(host(), device_, r, &whole_answer)); });
  StringSink reason;
  belay_bound bound{};
  bound.reason = reason.sink();
  const Short<belay_bind_req> asked(req, 40);
  answer<belay_bound>(
      bound, [&](auto* r) { return take(vt().bind(host(), device_, asked.get(), r)); },
      [](const auto& info) { EXPECT_EQ(info.mode, BELAY_BIND_SHARE); });
}

}  // namespace
}  // namespace belay::hal
