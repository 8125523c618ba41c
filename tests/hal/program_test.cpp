#include "hal_fixture.h"

namespace belay::hal {
namespace {

class ProgramTest : public HalTest {
 protected:
  // A device whose driver has programs, or not.
  void open(bool programs) {
    mock_device_ = &add_device("mock");
    ON_CALL(*mock_device_, extension).WillByDefault([programs](std::string_view id) -> const void* {
      return programs && id == BELAY_DRIVER_PROGRAM ? &MockDevice::program_table() : nullptr;
    });
    start();
    device_ = device();
    stream_mock_ = &next_stream(*mock_device_);
    stream_ = stream(device_);
  }
  belay_node node(const belay_kernel* kernel, const std::vector<belay_arg>& args,
                  const char* name = "conv1") {
    auto made = request<belay_node>();
    made.kernel = kernel, made.args = args.data(), made.arg_count = args.size(), made.name = to_str(name);
    return made;
  }
  Status create(const std::vector<const belay_node*>& nodes, uint64_t bindings,
                std::vector<uint32_t> dependencies = {}) {
    auto req = request<belay_program_req>();
    req.nodes = nodes.data(), req.node_count = nodes.size(), req.binding_count = bindings;
    req.dependencies = dependencies.empty() ? nullptr : dependencies.data();
    req.dependency_count = dependencies.size() / 2;
    return take(vt().program_create(host(), device_, &req, &program_));
  }
  Status launch(const std::vector<belay_binding>& bindings, belay_event* event = nullptr) {
    return take(vt().program_launch(host(), program_, stream_, bindings.data(), bindings.size(), event));
  }

  NiceDevice* mock_device_ = nullptr;
  NiceStream* stream_mock_ = nullptr;
  belay_obj *device_ = nullptr, *stream_ = nullptr, *program_ = nullptr;
};

TEST_F(ProgramTest, TheDriverGetsProgramsAndCheckedBindings) {
  open(true);
  auto mock = std::make_unique<NiceMock<MockProgram>>(host());
  MockProgram& program = *mock;
  EXPECT_CALL(*mock_device_, program_create)
      .WillOnce(Return(::testing::ByMove(give<MockProgram>(std::move(mock)))));
  EXPECT_CALL(program, died()).Times(1);
  const std::vector<belay_arg> args{{BELAY_ARG_BUFFER, 0, 16, 48, BELAY_ACCESS_READ, 0}};
  const belay_node one = node(&kNothing, args);
  ASSERT_TRUE(create({&one}, 1).ok());

  belay_obj* block = buffer(device_, 64);
  EXPECT_CALL(program, launch(stream_, _, 1)).WillOnce(Return(Result<uint64_t>(9)));
  belay_event event{};
  ASSERT_TRUE(launch({{block, nullptr, 0, 64}}, &event).ok());
  EXPECT_EQ(event.value, 9u);

  EXPECT_CALL(program, launch).Times(0);
  EXPECT_THAT(launch({}).message(), HasSubstr("0 bindings were given, want 1"));
  EXPECT_THAT(launch({{block, nullptr, 8, 64}}).message(),
              HasSubstr("binding 0 is bytes 8 + 64 of a buffer, which has 64 bytes"));
  EXPECT_THAT(launch({{nullptr, nullptr, 0, 8}}).message(), HasSubstr("neither a buffer nor host memory"));
  EXPECT_THAT(launch({{stream_, nullptr, 0, 8}}).message(), HasSubstr("is a stream, want a buffer"));
  vt().buffer_destroy(host(), block);
  EXPECT_EQ(launch({{block, nullptr, 0, 64}}).code(), Code::kNotFound);
  vt().program_destroy(host(), program_);
}

TEST_F(ProgramTest, ARequestIsCheckedNodeByNode) {
  open(true);
  EXPECT_CALL(*mock_device_, program_create).Times(0);
  const std::vector<belay_arg> none, far{{BELAY_ARG_BUFFER, 3, 0, 8, 1, 0}}, odd{{7, 0, 0, 0, 0, 0}},
      lost{{BELAY_ARG_BYTES, 0, 0, 8, 0, 0}};
  const belay_node good = node(&kNothing, none), with_far = node(&kNothing, far),
                   with_odd = node(&kNothing, odd), with_lost = node(&kNothing, lost);
  EXPECT_THAT(create({&good, &with_far}, 2).message(),
              AllOf(HasSubstr("node 1 'conv1': argument 0 is of binding 3; there are 2")));
  EXPECT_THAT(create({&with_odd}, 2).message(), HasSubstr("kind 7"));
  EXPECT_THAT(create({&with_lost}, 2).message(), HasSubstr("8 bytes at NULL"));
  EXPECT_THAT(create({&good, nullptr}, 0).message(), HasSubstr("node 1: it is NULL"));
  EXPECT_THAT(create({&good, &good}, 0, {1, 0}).message(), HasSubstr("dependency 0 is (1, 0)"));
  EXPECT_THAT(create({&good, &good}, 0, {0, 2}).message(), HasSubstr("dependency 0 is (0, 2)"));
}

TEST_F(ProgramTest, WithoutProgramsTheNodesAreLaunchedOneByOne) {
  open(false);
  uint64_t constant = 77;
  const std::vector<belay_arg> args{{BELAY_ARG_BUFFER, 0, 16, 8, BELAY_ACCESS_WRITE, 0},
                                    {BELAY_ARG_SCALAR, 0, 5, 0, 0, 0},
                                    {BELAY_ARG_BYTES, 0, reinterpret_cast<uint64_t>(&constant), 8, 0, 0},
                                    {BELAY_ARG_BUFFER, BELAY_NO_BINDING, 0, 0, 0, 0}};
  const belay_node first = node(&kNothing, args), order = node(nullptr, {}), second = node(&kNothing, {});
  ASSERT_TRUE(create({&first, &order, &second}, 1).ok());
  constant = 0;  // it was copied

  alignas(64) char memory[64] = {};
  uint64_t value = 10;
  std::vector<std::vector<uint64_t>> launched;
  EXPECT_CALL(*stream_mock_, launch)
      .Times(2)
      .WillRepeatedly([&](const belay_launch_req& req) -> Result<uint64_t> {
        launched.emplace_back(req.args, req.args + req.arg_count);
        if (req.arg_count == 4) {
          EXPECT_EQ(*reinterpret_cast<const uint64_t*>(req.args[2]), 77u);
        }
        return ++value;
      });
  belay_event event{};
  ASSERT_TRUE(launch({{nullptr, memory, 8, 24}}, &event).ok());
  EXPECT_EQ(event.value, 12u);  // of the last node
  ASSERT_EQ(launched.size(), 2u);
  EXPECT_EQ(launched[0][0], reinterpret_cast<uint64_t>(memory + 24));
  EXPECT_EQ(launched[0][1], 5u);
  EXPECT_EQ(launched[0][3], 0u);
  const Status past = launch({{nullptr, memory, 0, 23}});
  EXPECT_EQ(past.code(), Code::kOutOfRange);
  EXPECT_THAT(past.message(),
              AllOf(HasSubstr("conv1"), HasSubstr("bytes 16 + 8 of binding 0, which has 23")));
  vt().program_destroy(host(), program_);
}

TEST_F(ProgramTest, OnceBegunAFullQueueMakesRoomInsteadOfStoppingHalfWay) {
  mock_device_ = &add_device("mock");
  start({.queue_full = QueueFull::kReport});
  device_ = device();
  stream_mock_ = &next_stream(*mock_device_);
  stream_ = stream(device_);
  const belay_node one = node(&kNothing, {}), two = node(&kNothing, {});
  ASSERT_TRUE(create({&one, &two}, 0).ok());
  EXPECT_CALL(*stream_mock_, last_value).WillRepeatedly(Return(1));
  EXPECT_CALL(*stream_mock_, launch)
      .WillOnce(Return(Status(Code::kQueueFull, "full")))  // nothing begun: reported
      .WillOnce(Return(Result<uint64_t>(1)))
      .WillOnce(Return(Status(Code::kQueueFull, "full")))  // begun: room is made
      .WillOnce(Return(Result<uint64_t>(2)));
  EXPECT_CALL(*stream_mock_, synchronize).WillOnce(Return(Status()));
  EXPECT_EQ(launch({}).code(), Code::kQueueFull);
  EXPECT_TRUE(launch({}).ok());
  vt().program_destroy(host(), program_);
}

TEST_F(ProgramTest, TheDriverCapturesWhereItCan) {
  open(true);
  EXPECT_CALL(*stream_mock_, capture_begin).WillOnce(Return(Status()));
  ASSERT_TRUE(take(vt().capture_begin(host(), stream_)).ok());
  EXPECT_EQ(take(vt().capture_begin(host(), stream_)).code(), Code::kFailedPrecondition);
  EXPECT_CALL(*stream_mock_, capture_end).Times(1);
  ASSERT_TRUE(take(vt().capture_end(host(), stream_, &program_)).ok());
  EXPECT_EQ(take(vt().capture_end(host(), stream_, &program_)).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(launch({}).ok());
  vt().program_destroy(host(), program_);
}

TEST_F(ProgramTest, ElseTheHalRecordsAndPlaysBack) {
  open(false);
  belay_obj* block = buffer(device_, 64);
  ASSERT_TRUE(take(vt().capture_begin(host(), stream_)).ok());
  EXPECT_CALL(*stream_mock_, launch).Times(0);
  EXPECT_CALL(*stream_mock_, copy).Times(0);
  uint64_t argument = 42;
  auto launch_req = request<belay_launch_req>();
  launch_req.kernel = &kNothing, launch_req.args = &argument, launch_req.arg_count = 1;
  belay_event event{1, 1};
  ASSERT_TRUE(take(vt().launch(host(), stream_, &launch_req, &event)).ok());
  EXPECT_EQ(event.timeline, 0u);  // nothing runs, so nothing is to be waited for
  argument = 0;                   // it was copied
  auto copy_req = request<belay_copy_req>();
  char bytes[8] = {};
  copy_req.dst = block, copy_req.host_src = bytes, copy_req.bytes = 8;
  ASSERT_TRUE(take(vt().copy(host(), stream_, &copy_req, nullptr)).ok());
  int called = 0;
  ASSERT_TRUE(take(vt().host_call(
                       host(), stream_, [](void* user) { ++*static_cast<int*>(user); }, &called, nullptr))
                  .ok());
  ASSERT_TRUE(take(vt().capture_end(host(), stream_, &program_)).ok());
  ::testing::Mock::VerifyAndClearExpectations(stream_mock_);

  for (int i = 1; i <= 2; ++i) {
    EXPECT_CALL(*stream_mock_, launch).WillOnce([](const belay_launch_req& req) -> Result<uint64_t> {
      EXPECT_EQ(req.args[0], 42u);
      return uint64_t(1);
    });
    EXPECT_CALL(*stream_mock_, copy).WillOnce(Return(Result<uint64_t>(2)));
    EXPECT_CALL(*stream_mock_, host_call).WillOnce([](void (*fn)(void*), void* user) -> Result<uint64_t> {
      fn(user);
      return uint64_t(3);
    });
    ASSERT_TRUE(launch({}, &event).ok());
    EXPECT_EQ(event.value, 3u);
    EXPECT_EQ(called, i);
  }
  vt().program_destroy(host(), program_);
  vt().buffer_destroy(host(), block);
}

TEST_F(ProgramTest, AnEmptyProgramHasTheEventOfWhatIsQueued) {
  open(false);
  ASSERT_TRUE(create({}, 0).ok());
  EXPECT_CALL(*stream_mock_, last_value).WillRepeatedly(Return(31));
  belay_event event{};
  ASSERT_TRUE(launch({}, &event).ok());
  EXPECT_EQ(event.value, 31u);
  vt().program_destroy(host(), program_);
}

TEST_F(ProgramTest, ARecordingTakesNoWaitForWhatIsNotReached) {
  NiceDevice& on = add_device("mock");
  NiceStream& recorded = next_stream(on);
  start();
  belay_obj* one = stream(device());
  NiceStream& source = next_stream(on);
  belay_obj* two = stream(device());
  source.value = 4;
  belay_event event{};
  ASSERT_TRUE(take(vt().record(host(), two, &event)).ok());
  EXPECT_CALL(recorded, wait).Times(0);
  EXPECT_CALL(source, query(4))
      .WillOnce(Return(Status(Code::kUnavailable, "")))
      .WillOnce(Return(Status()))
      .WillRepeatedly(Return(Status(Code::kAborted, "It failed.")));
  ASSERT_TRUE(take(vt().capture_begin(host(), one)).ok());
  EXPECT_THAT(take(vt().wait(host(), one, event)).message(),
              HasSubstr("cannot record a wait for operation 4"));
  EXPECT_TRUE(take(vt().wait(host(), one, event)).ok());
  EXPECT_EQ(take(vt().wait(host(), one, event)).code(), Code::kAborted);
  belay_obj* program = nullptr;
  ASSERT_TRUE(take(vt().capture_end(host(), one, &program)).ok());
  vt().program_destroy(host(), program);
  vt().stream_destroy(host(), one);
  vt().stream_destroy(host(), two);
}

}  // namespace
}  // namespace belay::hal
