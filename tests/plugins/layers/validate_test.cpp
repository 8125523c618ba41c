// The layer `validate` before a mock driver: each fault is found and named, and its correct neighbour is not.
#include "layer_rig.hpp"

#include <belay/testing/mock_engine.hpp>

#include <atomic>
#include <thread>

namespace belay::testing {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Return;

class ValidateTest : public LayerTest {
 protected:
  void make(const std::string& toml = "") {
    ASSERT_TRUE(begin(toml).ok());
    driver = make_driver(), device = open_device(driver), one = make_stream(device);
    one_mock = stream_mock;
    two = make_stream(device), buffer = make_buffer(device, 64);
    ON_CALL(*one_mock, query).WillByDefault(Return(Status(Code::kUnavailable, "")));
    ON_CALL(*stream_mock, query).WillByDefault(Return(Status(Code::kUnavailable, "")));
  }
  // Ends all, so that no leak is found besides.
  void finish() {
    learn(one), learn(two);
    free_buffer(device, buffer);
    destroy<belay_stream_vt>(one), destroy<belay_stream_vt>(two);
    destroy<belay_device_vt>(device), destroy<belay_driver_vt>(driver);
  }
  void learn(belay_obj* stream) { EXPECT_TRUE(synchronize(stream, stream_vt(stream).last_value(stream)).ok()); }

  Status fill(belay_obj* stream, belay_obj* dst, uint64_t offset, uint64_t bytes) {
    belay_fill_req req = sized<belay_fill_req>();
    req.dst = dst, req.dst_offset = offset, req.bytes = bytes, req.pattern_bytes = 1;
    return host.take(stream_vt(stream).fill(stream, &req, &value));
  }
  Status copy(belay_obj* stream, belay_obj* dst, uint64_t to, belay_obj* src, uint64_t from, uint64_t bytes) {
    belay_copy_req req = sized<belay_copy_req>();
    req.dst = dst, req.dst_offset = to, req.src = src, req.src_offset = from, req.bytes = bytes;
    if (!dst) req.host_dst = bytes_;
    if (!src) req.host_src = bytes_;
    return host.take(stream_vt(stream).copy(stream, &req, &value));
  }
  Status wait(belay_obj* stream, belay_event event) { return host.take(stream_vt(stream).wait(stream, event, &value)); }
  Status synchronize(belay_obj* stream, uint64_t until) {
    return host.take(stream_vt(stream).synchronize(stream, until, BELAY_FOREVER));
  }
  Status launch(belay_obj* stream, std::initializer_list<belay_access> list) {
    static const belay_kernel kernel{{sizeof(belay_kernel), 0, nullptr},
                                     [](const belay_exec*, const void*, const uint64_t*) noexcept { return belay_status(0); },
                                     nullptr,
                                     0,
                                     literal("twice")};
    std::vector<const belay_access*> each;
    for (const belay_access& one : list) each.push_back(&one);
    belay_launch_req req = sized<belay_launch_req>();
    req.kernel = &kernel, req.accesses = each.data(), req.access_count = each.size();
    return host.take(stream_vt(stream).launch(stream, &req, &value));
  }
  static belay_access access(belay_obj* buffer, uint64_t offset, uint64_t bytes, uint64_t mode) {
    belay_access made = sized<belay_access>();
    made.buffer = buffer, made.offset = offset, made.bytes = bytes, made.mode = mode;
    return made;
  }
  const belay_driver_program_vt& programs() {
    return *static_cast<const belay_driver_program_vt*>(device_vt(device).extension(device, to_str(BELAY_DRIVER_PROGRAM)));
  }
  // A program of nodes, each with one argument.
  struct NodeOf {
    const char* name;
    uint64_t offset, bytes;
    uint32_t access;
  };
  belay_obj* make_program(std::initializer_list<NodeOf> nodes, uint64_t bindings = 1) {
    std::vector<belay_arg> args;
    std::vector<belay_node> all;
    std::vector<const belay_node*> pointers;
    for (const NodeOf& node : nodes) args.push_back({BELAY_ARG_BUFFER, 0, node.offset, node.bytes, node.access, 0});
    for (size_t i = 0; i < nodes.size(); ++i) {
      belay_node node = sized<belay_node>();
      node.args = &args[i], node.arg_count = 1, node.name = to_str(nodes.begin()[i].name);
      all.push_back(node);
    }
    for (const belay_node& node : all) pointers.push_back(&node);
    belay_program_req req = sized<belay_program_req>();
    req.nodes = pointers.data(), req.node_count = pointers.size(), req.binding_count = bindings;
    belay_created made = sized<belay_created>();
    EXPECT_TRUE(host.take(programs().create(device, &req, &made)).ok());
    return adopt(BELAY_OBJ_PROGRAM, made, device);
  }
  Status launch(belay_obj* program, belay_obj* stream, belay_obj* bound, uint64_t offset, uint64_t bytes) {
    auto& mock = *static_cast<MockProgram*>(program->impl);
    ON_CALL(mock, launch).WillByDefault([](belay_obj* on, const belay_binding*, uint64_t) {
      return Result<uint64_t>(++static_cast<MockStream*>(on->impl)->value);
    });
    const belay_binding binding{bound, nullptr, offset, bytes};
    return host.take(table_of<belay_driver_program_vt>(program).launch(program, stream, &binding, 1, &value));
  }
  static std::string timeline(uint64_t number, uint64_t at) { return std::to_string(number) + ":" + std::to_string(at); }
  void end_program(belay_obj* program) { destroy<belay_driver_program_vt>(program); }

  char bytes_[64] = {};
  uint64_t value = 0;
  belay_obj *driver = nullptr, *device = nullptr, *one = nullptr, *two = nullptr, *buffer = nullptr;
  MockStream* one_mock = nullptr;
};

// ---- arguments
// --------------------------------------------------------------------------------------------------------

TEST_F(ValidateTest, WhatIsRightIsSilent) {
  make();
  EXPECT_TRUE(fill(one, buffer, 0, 64).ok());
  EXPECT_TRUE(copy(one, nullptr, 0, buffer, 0, 64).ok());
  EXPECT_TRUE(synchronize(one, 2).ok());
  EXPECT_EQ(driver_vt(driver).device_count(driver), driver_vt(driver).device_count(driver));
  finish();
  EXPECT_EQ(report(), "");
  EXPECT_EQ(host.log_text(), "");
}

TEST_F(ValidateTest, MissingArgumentsAreRefused) {
  make();
  EXPECT_CALL(*one_mock, copy).Times(0);
  EXPECT_EQ(host.take(stream_vt(one).copy(one, nullptr, &value)).code(), Code::kInvalidArgument);
  belay_copy_req req = sized<belay_copy_req>();
  EXPECT_EQ(host.take(stream_vt(one).copy(one, &req, nullptr)).code(), Code::kInvalidArgument);
  req.bytes = 1, req.dst = buffer;
  EXPECT_EQ(host.take(stream_vt(one).copy(one, &req, &value)).code(), Code::kInvalidArgument);
  EXPECT_EQ(host.take(stream_vt(one).host_call(one, nullptr, nullptr, &value)).code(), Code::kInvalidArgument);
  EXPECT_EQ(host.take(stream_vt(one).on_reached(one, 0, {nullptr, nullptr})).code(), Code::kInvalidArgument);
  EXPECT_THAT(report(), AllOf(HasSubstr("[null] stream 1 of mock:0 (plugin 'mock'), stream.copy: the request is NULL"),
                              HasSubstr("out_value is NULL"), HasSubstr("src is NULL"), HasSubstr("fn is NULL"),
                              HasSubstr("the completion's done is NULL")));
  finish();
}

TEST_F(ValidateTest, SizesOfStructs) {
  make();
  belay_fill_req req = sized<belay_fill_req>();
  req.dst = buffer, req.bytes = 8, req.pattern_bytes = 1;
  EXPECT_TRUE(host.take(stream_vt(one).fill(one, &req, &value)).ok());
  EXPECT_EQ(report(), "");
  req.hdr.struct_size = 8;
  EXPECT_TRUE(host.take(stream_vt(one).fill(one, &req, &value)).ok());
  EXPECT_THAT(report(), HasSubstr("[size] stream 1 of mock:0 (plugin 'mock'), stream.fill: a struct_size is 8, want " +
                                  std::to_string(sizeof req)));
  finish();
}

TEST_F(ValidateTest, RangesPastTheEndOfABuffer) {
  make();
  EXPECT_TRUE(fill(one, buffer, 60, 4).ok());
  EXPECT_TRUE(copy(one, nullptr, 0, buffer, 64, 0).ok());
  EXPECT_EQ(report(), "");
  EXPECT_TRUE(fill(one, buffer, 60, 5).ok());
  EXPECT_TRUE(copy(one, nullptr, 0, buffer, UINT64_MAX, 2).ok());
  EXPECT_TRUE(launch(one, {access(buffer, 65, 0, BELAY_ACCESS_READ)}).ok());
  EXPECT_THAT(report(),
              AllOf(HasSubstr("stream.fill: dst: bytes 60 + 5 are not inside buffer 1 of mock:0, which has 64"),
                    HasSubstr("stream.copy: src: bytes 18446744073709551615 + 2"), HasSubstr("an access: bytes 65 + 0")));
  finish();
}

TEST_F(ValidateTest, ACopyWithinABufferOverItself) {
  make();
  EXPECT_TRUE(copy(one, buffer, 0, buffer, 32, 32).ok());
  EXPECT_EQ(report(), "");
  EXPECT_TRUE(copy(one, buffer, 0, buffer, 31, 32).ok());
  EXPECT_THAT(report(), HasSubstr("source and destination overlap"));
  finish();
}

TEST_F(ValidateTest, PatternsOfFills) {
  make();
  belay_fill_req req = sized<belay_fill_req>();
  req.dst = buffer, req.bytes = 8, req.pattern_bytes = 8;
  EXPECT_TRUE(host.take(stream_vt(one).fill(one, &req, &value)).ok());
  EXPECT_EQ(report(), "");
  req.pattern_bytes = 3;
  EXPECT_TRUE(host.take(stream_vt(one).fill(one, &req, &value)).ok());
  EXPECT_THAT(report(), HasSubstr("pattern_bytes is 3 for 8 bytes"));
  finish();
}

// ---- handles
// ----------------------------------------------------------------------------------------------------------

TEST_F(ValidateTest, ABufferAfterItsEnd) {
  make();
  belay_obj* const old = make_buffer(device, 8);
  free_buffer(device, old);
  EXPECT_EQ(fill(one, old, 0, 8).code(), Code::kInvalidArgument);
  device_vt(device).free(device, old);
  EXPECT_THAT(report(), AllOf(HasSubstr("[handle] stream 1 of mock:0 (plugin 'mock'), stream.fill: dst was destroyed, it was buffer 2 of mock:0"),
                              HasSubstr("device.free: buffer was destroyed, it was buffer 2 of mock:0")));
  finish();
}

TEST_F(ValidateTest, ABufferThatALayerRefusedGoesBack) {
  make();
  belay_alloc_req req = sized<belay_alloc_req>();
  belay_created made = sized<belay_created>();
  ASSERT_TRUE(host.take(device_vt(device).alloc(device, &req, &made)).ok());
  belay_obj refused{BELAY_OBJ_MAGIC, BELAY_OBJ_BUFFER, 1, nullptr, made.impl, {}};
  EXPECT_CALL(*device_mock, free(&refused)).WillOnce([](belay_obj* buffer) { std::free(buffer->impl); });
  device_vt(device).free(device, &refused);
  EXPECT_EQ(report(), "");
  ::testing::Mock::VerifyAndClearExpectations(device_mock);
  finish();
}

TEST_F(ValidateTest, AHandleOfNobody) {
  make();
  belay_obj mine{BELAY_OBJ_MAGIC, BELAY_OBJ_BUFFER, 1, nullptr, nullptr, {}};
  EXPECT_EQ(fill(one, &mine, 0, 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(fill(one, two, 0, 0).code(), Code::kInvalidArgument);
  EXPECT_THAT(report(), AllOf(HasSubstr("dst is no object of this runtime"), HasSubstr("dst is stream 2 of mock:0, want a buffer")));
  finish();
}

TEST_F(ValidateTest, ObjectsOfAnotherDevice) {
  make();
  belay_obj* const other = open_device(driver, 1);
  belay_obj* const there = make_buffer(other, 8);
  belay_obj* const three = make_stream(other);
  belay_obj* const program = make_program({{"a", 0, 8, BELAY_ACCESS_READ}});
  EXPECT_TRUE(fill(three, there, 0, 8).ok());
  EXPECT_EQ(report(), "");
  EXPECT_EQ(fill(one, there, 0, 8).code(), Code::kInvalidArgument);
  EXPECT_EQ(launch(program, three, there, 0, 8).code(), Code::kInvalidArgument);
  EXPECT_THAT(report(), AllOf(HasSubstr("[foreign]"), HasSubstr("dst is buffer 2 of mock:1, of another device"),
                              HasSubstr("the stream is stream 3 of mock:1, of another device")));
  learn(three);
  free_buffer(other, there), destroy<belay_stream_vt>(three), destroy<belay_device_vt>(other), end_program(program);
  finish();
}

TEST_F(ValidateTest, WhatIsLeftAtTheEnd) {
  make();
  belay_obj* const program = make_program({});
  destroy<belay_device_vt>(device);
  EXPECT_THAT(report(),
              AllOf(HasSubstr("[leak] stream 1 of mock:0 (plugin 'mock') is left at the end of mock:0; it was made by "
                              "device.stream_create with timeline 1"),
                    HasSubstr("stream 2 of mock:0"), HasSubstr("buffer 1 of mock:0"), HasSubstr("device.alloc of 64 bytes"),
                    HasSubstr("program 1 of mock:0"), HasSubstr("program.create of 0 nodes")));
  static_cast<void>(program);
}

TEST_F(ValidateTest, ADriverBeforeItsDevices) {
  make();
  destroy<belay_driver_vt>(driver);
  EXPECT_THAT(report(), HasSubstr("mock:0 (plugin 'mock') is left at the end of driver 1 of plugin 'mock'"));
}

TEST_F(ValidateTest, DestroyedTwice) {
  make();
  belay_obj* const three = make_stream(device);
  stream_vt(three).destroy(three);
  stream_vt(three).destroy(three);  // does not reach the driver
  EXPECT_EQ(host.take(stream_vt(three).query(three, 0)).code(), Code::kInvalidArgument);
  EXPECT_THAT(report(), AllOf(HasSubstr("[ended] stream 3 of mock:0 (plugin 'mock'), stream.destroy: it was destroyed already"),
                              HasSubstr("stream.query: it was destroyed already")));
  gone(three);
  finish();
}

TEST_F(ValidateTest, ABufferThatIsStillInUse) {
  make();
  belay_obj* const busy = make_buffer(device, 8);
  EXPECT_TRUE(fill(one, busy, 0, 8).ok());
  free_buffer(device, busy);
  EXPECT_THAT(report(), AllOf(HasSubstr("[in_use] mock:0 (plugin 'mock'), device.free: buffer 2 of mock:0 is freed while "
                                        "operation 1 of stream 1 of mock:0 (fill) has not ended"),
                              HasSubstr("wait for event " + timeline(1, 1))));
  finish();
}

TEST_F(ValidateTest, ABufferWhoseWorkHasEnded) {
  make();
  belay_obj* const known = make_buffer(device, 8);
  EXPECT_TRUE(fill(one, known, 0, 8).ok());
  EXPECT_TRUE(wait(two, {1, 1}).ok());
  EXPECT_TRUE(synchronize(two, 1).ok());  // and so the fill that it waited for
  free_buffer(device, known);
  belay_obj* const asked = make_buffer(device, 8);  // the host knows in a way of its own
  EXPECT_TRUE(fill(one, asked, 0, 8).ok());
  ON_CALL(*one_mock, query).WillByDefault(Return(Status()));
  free_buffer(device, asked);
  finish();
  EXPECT_EQ(report(), "");
}

// ---- threads
// ----------------------------------------------------------------------------------------------------------

TEST_F(ValidateTest, TwoThreadsInSerialSlots) {
  make();
  std::thread other;
  EXPECT_CALL(*one_mock, fill).WillOnce([&](const belay_fill_req&) {
    other = std::thread([&] { EXPECT_TRUE(copy(one, nullptr, 0, nullptr, 0, 0).ok()); });
    other.join();
    return Result<uint64_t>(2);
  });
  EXPECT_CALL(*one_mock, copy).WillOnce(Return(Result<uint64_t>(1)));
  EXPECT_TRUE(fill(one, buffer, 0, 8).ok());
  EXPECT_THAT(report(), AllOf(HasSubstr("[serial] stream 1 of mock:0 (plugin 'mock'), stream.copy: thread "),
                              HasSubstr("is in copy while thread "), HasSubstr("is in fill; these slots are [serial]")));
  one_mock->value = 2;
  finish();
}

TEST_F(ValidateTest, TwoThreadsInOtherSlots) {
  make();
  EXPECT_CALL(*one_mock, fill).WillOnce([&](const belay_fill_req&) {
    std::thread([&] { static_cast<void>(host.take(stream_vt(one).query(one, 0))); }).join();  // [any]
    std::thread([&] { EXPECT_TRUE(copy(two, nullptr, 0, nullptr, 0, 0).ok()); }).join();     // another object
    return Result<uint64_t>(++one_mock->value);
  });
  EXPECT_TRUE(fill(one, buffer, 0, 8).ok());
  finish();
  EXPECT_EQ(report(), "");
}

// ---- completions
// ------------------------------------------------------------------------------------------------------

TEST_F(ValidateTest, ACompletionThatIsCalledTwice) {
  make();
  belay_completion kept{};
  EXPECT_CALL(*one_mock, on_reached).WillOnce([&](uint64_t, belay_completion completion) {
    kept = completion;
    completion.done(completion.user, BELAY_OK);
    return Status();
  });
  int calls = 0;
  EXPECT_TRUE(host.take(stream_vt(one).on_reached(one, 3, {&calls, [](void* user, belay_status) noexcept {
                                                            ++*static_cast<int*>(user);
                                                          }})).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(report(), "");
  kept.done(kept.user, BELAY_OK);
  EXPECT_EQ(calls, 1);  // not passed on
  EXPECT_THAT(report(), HasSubstr("[completion] stream 1 of mock:0 (plugin 'mock'), on_reached of value 3: the plugin has "
                                  "called the completion more than once"));
  finish();
}

TEST_F(ValidateTest, ACompletionThatIsNeverCalled) {
  make();
  EXPECT_CALL(*one_mock, on_reached).WillOnce(Return(Status()));
  EXPECT_TRUE(host.take(stream_vt(one).on_reached(one, 3, {nullptr, [](void*, belay_status) noexcept {}})).ok());
  finish();
  EXPECT_THAT(report(), HasSubstr("on_reached of value 3: the plugin has not called the completion until the object's end"));
}

TEST_F(ValidateTest, ACompletionOfACallThatFailed) {
  make();
  EXPECT_CALL(*one_mock, on_reached)
      .WillOnce(Return(Status(Code::kDeviceLost, "lost")))
      .WillOnce([](uint64_t, belay_completion completion) {
        completion.done(completion.user, BELAY_OK);
        return Status(Code::kDeviceLost, "lost");
      });
  const belay_completion nothing{nullptr, [](void*, belay_status) noexcept {}};
  EXPECT_EQ(host.take(stream_vt(one).on_reached(one, 3, nothing)).code(), Code::kDeviceLost);
  EXPECT_EQ(report(), "");
  EXPECT_EQ(host.take(stream_vt(one).on_reached(one, 4, nothing)).code(), Code::kDeviceLost);
  EXPECT_THAT(report(), HasSubstr("on_reached of value 4: the plugin has called the completion of a call that failed"));
  finish();
}

// ---- what plugins give
// ------------------------------------------------------------------------------------------------

TEST_F(ValidateTest, ValuesThatDoNotGrow) {
  make();
  EXPECT_CALL(*one_mock, fill).WillOnce(Return(Result<uint64_t>(5))).WillOnce(Return(Result<uint64_t>(5)));
  EXPECT_TRUE(fill(one, buffer, 0, 8).ok());
  EXPECT_EQ(report(), "");
  EXPECT_TRUE(fill(one, buffer, 0, 8).ok());
  EXPECT_THAT(report(), HasSubstr("[value] stream 1 of mock:0 (plugin 'mock'), stream.fill: the plugin gave value 5 after 5"));
  one_mock->value = 5;
  finish();
}

TEST_F(ValidateTest, OkAndNoObject) {
  make();
  EXPECT_CALL(*device_mock, alloc).WillOnce(Return(Result<void*>(nullptr)));
  belay_alloc_req req = sized<belay_alloc_req>();
  belay_created made = sized<belay_created>();
  EXPECT_TRUE(host.take(device_vt(device).alloc(device, &req, &made)).ok());
  EXPECT_THAT(report(), HasSubstr("[object] mock:0 (plugin 'mock'), device.alloc: the plugin gave OK and no object"));
  finish();
}

TEST_F(ValidateTest, StatusesThatThereAreNot) {
  make();
  static belay_status gives = BELAY_OK;
  TableBuilder<belay_stream_vt> odd(table_for<MockStream>());
  odd.set(&belay_stream_vt::flush, +[](belay_obj*) noexcept { return gives; });
  device_mock->stream_table = &odd.table();
  belay_obj* const three = make_stream(device);
  const auto flush = [&] { host.status_release(&host, stream_vt(three).flush(three)); };
  gives = BELAY_DEVICE_LOST, flush();
  gives = host.make(Code::kAborted, "as it should be"), flush();
  EXPECT_EQ(report(), "");
  flush();  // released meanwhile
  gives = 200, flush();
  EXPECT_THAT(report(), AllOf(HasSubstr("[status] stream 3 of mock:0 (plugin 'mock'), stream.flush: the plugin gave status 0xc8"),
                              HasSubstr("code 10 and a detail that this host did not issue")));
  destroy<belay_stream_vt>(three);
  finish();
}

TEST_F(ValidateTest, ANumberOfDevicesThatChanges) {
  make();
  EXPECT_CALL(*driver_mock, device_count).WillOnce(Return(1)).WillOnce(Return(1)).WillOnce(Return(2));
  driver_vt(driver).device_count(driver), driver_vt(driver).device_count(driver);
  EXPECT_EQ(report(), "");
  driver_vt(driver).device_count(driver);
  EXPECT_THAT(report(), HasSubstr("[count] driver 1 of plugin 'mock' (plugin 'mock'), driver.device_count: the plugin says "
                                  "that there are 2 devices, and said 1 before"));
  finish();
}

// ---- races
// ------------------------------------------------------------------------------------------------------------

TEST_F(ValidateTest, WritesOnTwoStreamsWithoutOrder) {
  make();
  EXPECT_TRUE(fill(one, buffer, 0, 32).ok());
  EXPECT_TRUE(fill(two, buffer, 16, 32).ok());
  EXPECT_THAT(report(), HasSubstr("[race] stream 2 of mock:0 (plugin 'mock'), stream.fill: operation 1 of stream 2 of mock:0 "
                                  "(fill) writes bytes 16 to 32 of buffer 1 of mock:0 and operation 1 of stream 1 of mock:0 "
                                  "(fill) writes them, with no order between the two: let stream 2 of mock:0 wait for event 1:1"));
  finish();
}

TEST_F(ValidateTest, AWaitOrdersThem) {
  make();
  EXPECT_TRUE(fill(one, buffer, 0, 32).ok());
  EXPECT_TRUE(wait(two, {1, 1}).ok());
  EXPECT_TRUE(fill(two, buffer, 16, 32).ok());
  finish();
  EXPECT_EQ(report(), "");
}

TEST_F(ValidateTest, AWaitForTooEarlyAnEventDoesNot) {
  make();
  EXPECT_TRUE(fill(one, buffer, 0, 8).ok());
  EXPECT_TRUE(fill(one, buffer, 32, 32).ok());
  EXPECT_TRUE(wait(two, {1, 1}).ok());
  EXPECT_TRUE(copy(two, nullptr, 0, buffer, 0, 8).ok());
  EXPECT_EQ(report(), "");
  EXPECT_TRUE(copy(two, nullptr, 0, buffer, 0, 64).ok());
  EXPECT_THAT(report(), AllOf(HasSubstr("(copy) reads bytes 32 to 64"), HasSubstr("wait for event 1:2 before")));
  finish();
}

TEST_F(ValidateTest, OrderThroughAThirdStream) {
  make();
  belay_obj* const three = make_stream(device);
  EXPECT_TRUE(fill(one, buffer, 0, 64).ok());
  EXPECT_TRUE(wait(two, {1, 1}).ok());
  EXPECT_TRUE(wait(three, {2, 1}).ok());
  EXPECT_TRUE(fill(three, buffer, 0, 64).ok());
  learn(three);
  destroy<belay_stream_vt>(three);
  finish();
  EXPECT_EQ(report(), "");
}

TEST_F(ValidateTest, ReadsAndOtherBytesAndOtherBuffersAreNoRace) {
  make();
  belay_obj* const other = make_buffer(device, 64);
  EXPECT_TRUE(copy(one, nullptr, 0, buffer, 0, 64).ok());
  EXPECT_TRUE(copy(two, nullptr, 0, buffer, 0, 64).ok());
  EXPECT_TRUE(fill(one, other, 0, 32).ok());
  EXPECT_TRUE(fill(two, other, 32, 32).ok());
  learn(one), learn(two);
  free_buffer(device, other);
  finish();
  EXPECT_EQ(report(), "");
}

TEST_F(ValidateTest, WhatTheHostKnowsIsReachedComesBefore) {
  make();
  const auto round = [&](auto&& learned) {
    EXPECT_TRUE(fill(one, buffer, 0, 8).ok());
    learned(one_mock->value);
    EXPECT_TRUE(fill(two, buffer, 0, 8).ok());
    learn(two);
  };
  round([&](uint64_t last) { EXPECT_TRUE(synchronize(one, last).ok()); });
  round([&](uint64_t last) {
    EXPECT_CALL(*one_mock, query).WillOnce(Return(Status()));
    EXPECT_TRUE(host.take(stream_vt(one).query(one, last)).ok());
  });
  round([&](uint64_t last) {
    EXPECT_TRUE(host.take(stream_vt(one).on_reached(one, last, {nullptr, [](void*, belay_status) noexcept {}})).ok());
  });
  round([&](uint64_t) {  // whoever runs as a step of the stream knows what came before
    EXPECT_TRUE(host.take(stream_vt(one).host_call(one, [](void*) {}, nullptr, &value)).ok());
  });
  round([&](uint64_t) { EXPECT_TRUE(host.take(stream_vt(one).recover(one)).ok()); });
  round([&](uint64_t) { EXPECT_TRUE(host.take(device_vt(device).reset(device)).ok()); });
  finish();
  EXPECT_EQ(report(), "");
}

TEST_F(ValidateTest, AQueryThatIsNotReachedTellsNothing) {
  make();
  EXPECT_TRUE(fill(one, buffer, 0, 8).ok());
  EXPECT_EQ(host.take(stream_vt(one).query(one, 1)).code(), Code::kUnavailable);
  EXPECT_CALL(*one_mock, synchronize).WillOnce(Return(Status(Code::kDeadlineExceeded, ""))).WillRepeatedly(Return(Status()));
  EXPECT_EQ(synchronize(one, 1).code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(fill(two, buffer, 0, 8).ok());
  EXPECT_THAT(report(), HasSubstr("[race]"));
  finish();
}

TEST_F(ValidateTest, AStreamThatHasEndedHasDoneItsWork) {
  make();
  belay_obj* const three = make_stream(device);
  EXPECT_TRUE(fill(three, buffer, 0, 8).ok());
  destroy<belay_stream_vt>(three);
  EXPECT_TRUE(fill(one, buffer, 0, 8).ok());
  finish();
  EXPECT_EQ(report(), "");
}

TEST_F(ValidateTest, ATimelineOfTheHostsOrdersAll) {
  make();
  EXPECT_TRUE(fill(one, buffer, 0, 8).ok());
  EXPECT_TRUE(wait(two, {77, 5}).ok());  // signalled by the host when whatever it knows is reached
  EXPECT_TRUE(fill(two, buffer, 0, 8).ok());
  finish();
  EXPECT_EQ(report(), "");
}

TEST_F(ValidateTest, LaunchesByTheirAccesses) {
  make();
  EXPECT_TRUE(launch(one, {access(buffer, 0, 8, BELAY_ACCESS_READ)}).ok());
  EXPECT_TRUE(launch(two, {access(buffer, 0, 8, BELAY_ACCESS_READ)}).ok());
  EXPECT_EQ(report(), "");
  EXPECT_TRUE(launch(two, {access(buffer, 4, 8, BELAY_ACCESS_READ | BELAY_ACCESS_WRITE)}).ok());
  EXPECT_THAT(report(), AllOf(HasSubstr("operation 2 of stream 2 of mock:0 (launch) writes bytes 4 to 8"),
                              HasSubstr("operation 1 of stream 1 of mock:0 (launch) reads them")));
  finish();
}

TEST_F(ValidateTest, ALaunchWithoutAListIsNotedOnce) {
  make();
  EXPECT_TRUE(launch(one, {}).ok());
  EXPECT_TRUE(launch(one, {}).ok());
  EXPECT_EQ(report(), "note: Launches without a list of accesses, such as that of kernel 'twice' on stream 1 of mock:0, are "
                      "not looked at for races.\n");
  finish();
}

TEST_F(ValidateTest, ProgramsByTheirNodes) {
  make();
  belay_obj* const program = make_program({{"conv", 0, 16, BELAY_ACCESS_READ}, {"relu", 16, 16, BELAY_ACCESS_WRITE}});
  EXPECT_TRUE(copy(two, nullptr, 0, buffer, 8, 16).ok());
  EXPECT_TRUE(launch(program, one, buffer, 8, 40).ok());  // it writes 24 to 40
  EXPECT_EQ(report(), "");
  EXPECT_TRUE(fill(two, buffer, 30, 1).ok());
  EXPECT_THAT(report(), AllOf(HasSubstr("writes bytes 30 to 31"), HasSubstr("(node 'relu' of program 1 of mock:0) writes them")));
  learn(one), learn(two);
  end_program(program);
  finish();
}

TEST_F(ValidateTest, BindingsThatAreTooSmallOrMissing) {
  make();
  belay_obj* const program = make_program({{"conv", 0, 32, BELAY_ACCESS_READ}});
  EXPECT_TRUE(launch(program, one, buffer, 32, 32).ok());
  EXPECT_EQ(report(), "");
  EXPECT_TRUE(launch(program, one, buffer, 40, 24).ok());
  EXPECT_TRUE(launch(program, one, buffer, 40, 32).ok());
  EXPECT_THAT(report(), AllOf(HasSubstr("binding 0 has 24 bytes, and the nodes use 32"),
                              HasSubstr("binding 0: bytes 40 + 32 are not inside buffer 1 of mock:0, which has 64")));
  learn(one);
  end_program(program);
  finish();
}

TEST_F(ValidateTest, CapturedWorkIsDoneWhenItIsLaunched) {
  make();
  belay_obj* const used = make_buffer(device, 8);
  ASSERT_TRUE(host.take(programs().capture_begin(one)).ok());
  EXPECT_TRUE(fill(one, buffer, 0, 8).ok());
  EXPECT_TRUE(fill(one, used, 0, 8).ok());
  belay_created made = sized<belay_created>();
  ASSERT_TRUE(host.take(programs().capture_end(one, &made)).ok());
  belay_obj* const program = adopt(BELAY_OBJ_PROGRAM, made, device);
  const auto play = [&] {
    auto& mock = *static_cast<MockProgram*>(program->impl);
    ON_CALL(mock, launch).WillByDefault([](belay_obj* on, const belay_binding*, uint64_t) {
      return Result<uint64_t>(++static_cast<MockStream*>(on->impl)->value);
    });
    return host.take(table_of<belay_driver_program_vt>(program).launch(program, one, nullptr, 0, &value));
  };
  EXPECT_TRUE(fill(two, buffer, 0, 8).ok());  // nothing was done yet
  EXPECT_EQ(report(), "");
  EXPECT_TRUE(play().ok());
  EXPECT_THAT(report(), HasSubstr("operation 3 of stream 1 of mock:0 (launch) writes bytes 0 to 8 of buffer 1 of mock:0"));
  learn(one);
  free_buffer(device, used);
  EXPECT_EQ(play().code(), Code::kInvalidArgument);
  EXPECT_THAT(report(), HasSubstr("what it was captured from uses buffer 2 of mock:0, which was freed"));
  end_program(program);
  finish();
}

// ---- settings
// --------------------------------------------------------------------------------------------------------

TEST_F(ValidateTest, EachFindingIsLoggedOnceAndCounted) {
  make();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(fill(one, buffer, 60, 5).ok());
  ASSERT_EQ(host.lines().size(), 1u);
  EXPECT_EQ(host.lines()[0].level, uint32_t(BELAY_LOG_ERROR));
  EXPECT_THAT(report(), HasSubstr("(3 times)\n"));
  finish();
}

TEST_F(ValidateTest, StrictRefusesWhatIsWrong) {
  make("strict = true");
  EXPECT_CALL(*one_mock, fill).Times(1);
  EXPECT_TRUE(fill(one, buffer, 0, 64).ok());
  const Status range = fill(one, buffer, 60, 5), race = copy(two, nullptr, 0, buffer, 0, 1);
  EXPECT_EQ(range.code(), Code::kFailedPrecondition);
  EXPECT_THAT(range.message(), AllOf(HasSubstr("Layer 'validate' refused it"), HasSubstr("bytes 60 + 5")));
  EXPECT_EQ(race.code(), Code::kFailedPrecondition);
  EXPECT_THAT(race.message(), HasSubstr("let stream 2 of mock:0 wait for event 1:1"));
  EXPECT_TRUE(wait(two, {1, 1}).ok());
  EXPECT_TRUE(copy(two, nullptr, 0, buffer, 0, 1).ok());
  finish();
}

TEST_F(ValidateTest, RacesCanBeLeftOut) {
  make("races = false");
  EXPECT_TRUE(fill(one, buffer, 0, 64).ok());
  EXPECT_TRUE(fill(two, buffer, 0, 64).ok());
  EXPECT_TRUE(launch(two, {}).ok());
  EXPECT_EQ(report(), "");
  EXPECT_TRUE(fill(two, buffer, 0, 65).ok());
  EXPECT_THAT(report(), HasSubstr("[range]"));
  finish();
}

TEST_F(ValidateTest, ManyThreadsOnStreamsOfTheirOwn) {
  make();
  std::vector<belay_obj*> streams, buffers;
  for (int i = 0; i < 4; ++i) streams.push_back(make_stream(device)), buffers.push_back(make_buffer(device, 64));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        belay_fill_req req = sized<belay_fill_req>();
        req.dst = buffers[t], req.bytes = 64, req.pattern_bytes = 1;
        uint64_t at = 0;
        EXPECT_EQ(stream_vt(streams[t]).fill(streams[t], &req, &at), BELAY_OK);
        if (i % 10 == 9) {
          EXPECT_EQ(stream_vt(streams[t]).synchronize(streams[t], at, BELAY_FOREVER), BELAY_OK);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < 4; ++t) free_buffer(device, buffers[t]), destroy<belay_stream_vt>(streams[t]);
  finish();
  EXPECT_EQ(report(), "");
}

}  // namespace
}  // namespace belay::testing
