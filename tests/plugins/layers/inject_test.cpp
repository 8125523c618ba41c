// The layer `inject` before mocks: what fails when, and what is lost.
#include "layer_rig.hpp"

#include <belay/testing/mock_model_format.hpp>

#include <chrono>

namespace belay::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Return;

class InjectTest : public LayerTest {
 protected:
  void make(const std::string& toml) {
    const Status begun = begin(toml);
    ASSERT_TRUE(begun.ok()) << begun.message();
    driver = make_driver(), device = open_device(driver), stream = make_stream(device);
  }
  void finish() { destroy<belay_stream_vt>(stream), destroy<belay_device_vt>(device), destroy<belay_driver_vt>(driver); }
  Status flush() { return host.take(stream_vt(stream).flush(stream)); }
  std::vector<Code> flushes(int count) {
    std::vector<Code> all;
    for (int i = 0; i < count; ++i) all.push_back(flush().code());
    return all;
  }
  belay_obj *driver = nullptr, *device = nullptr, *stream = nullptr;
};

TEST_F(InjectTest, WithoutRulesNothingFails) {
  make("");
  EXPECT_THAT(flushes(2), ElementsAre(Code::kOk, Code::kOk));
  finish();
  EXPECT_EQ(report(), "");
}

TEST_F(InjectTest, TheNthCallFailsAndDoesNotReachThePlugin) {
  make("rules = [\"stream.flush 3 UNAVAILABLE\"]");
  EXPECT_CALL(*stream_mock, flush).Times(3).WillRepeatedly(Return(Status()));
  EXPECT_THAT(flushes(2), ElementsAre(Code::kOk, Code::kOk));
  const Status third = flush();
  EXPECT_EQ(third.code(), Code::kUnavailable);
  EXPECT_THAT(third.message(), HasSubstr("Layer 'inject' made it fail by its rule 'stream.flush 3 UNAVAILABLE'"));
  EXPECT_TRUE(flush().ok());
  EXPECT_EQ(report(), "'stream.flush 3 UNAVAILABLE': met by 1 of 4 calls\n");
  ::testing::Mock::VerifyAndClearExpectations(stream_mock);
  finish();
}

TEST_F(InjectTest, AllLaterOnesFail) {
  make("rules = [\"stream.flush 2+ QUEUE_FULL\"]");
  EXPECT_THAT(flushes(3), ElementsAre(Code::kOk, Code::kQueueFull, Code::kQueueFull));
  finish();
}

TEST_F(InjectTest, ChancesAreThoseOfTheSeed) {
  const auto run = [&](int seed) {
    make("rules = [\"stream.flush 30% ABORTED\"]\nseed = " + std::to_string(seed));
    const auto all = flushes(200);
    finish();
    end();
    return all;
  };
  const auto first = run(7), again = run(7), other = run(8);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  const auto failed = std::count(first.begin(), first.end(), Code::kAborted);
  EXPECT_GT(failed, 30);
  EXPECT_LT(failed, 90);
}

TEST_F(InjectTest, NoChanceAndCertainty) {
  make("rules = [\"stream.flush 0% ABORTED\", \"device.health 100% INTERNAL\"]");
  EXPECT_THAT(flushes(3), ElementsAre(Code::kOk, Code::kOk, Code::kOk));
  belay_health health = sized<belay_health>();
  EXPECT_EQ(host.take(device_vt(device).health(device, &health)).code(), Code::kInternal);
  finish();
}

TEST_F(InjectTest, NoMemory) {
  make("rules = [\"device.alloc 1 RESOURCE_EXHAUSTED\"]");
  belay_alloc_req req = sized<belay_alloc_req>();
  belay_created made = sized<belay_created>();
  EXPECT_EQ(host.take(device_vt(device).alloc(device, &req, &made)).code(), Code::kResourceExhausted);
  EXPECT_EQ(made.impl, nullptr);
  free_buffer(device, make_buffer(device, 8));
  finish();
}

TEST_F(InjectTest, ADelayComesBeforeTheCall) {
  make("rules = [\"stream.flush 1 delay=2ms\", \"stream.last_value 1 delay=2ms\"]");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(flush().ok());
  EXPECT_EQ(stream_vt(stream).last_value(stream), 0u);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(4));
  finish();
}

TEST_F(InjectTest, ALostDeviceStaysSoUntilItIsReset) {
  make("rules = [\"stream.flush 2 lost\"]");
  belay_obj* const other = open_device(driver, 1);
  belay_obj* const there = make_stream(other);
  EXPECT_THAT(flushes(3), ElementsAre(Code::kOk, Code::kDeviceLost, Code::kDeviceLost));
  uint64_t value = 0;
  EXPECT_EQ(host.take(stream_vt(stream).wait(stream, {0, 0}, &value)).code(), Code::kDeviceLost);
  belay_alloc_req req = sized<belay_alloc_req>();
  belay_created made = sized<belay_created>();
  EXPECT_EQ(host.take(device_vt(device).alloc(device, &req, &made)).code(), Code::kDeviceLost);
  StringSink reason;
  belay_health health = sized<belay_health>();
  health.reason = reason.sink();
  EXPECT_TRUE(host.take(device_vt(device).health(device, &health)).ok());
  EXPECT_EQ(health.state, 1u);
  EXPECT_EQ(reason.text(), "layer 'inject' has lost it");
  EXPECT_TRUE(host.take(stream_vt(there).wait(there, {0, 0}, &value)).ok());  // another device
  EXPECT_TRUE(host.take(device_vt(device).reset(device)).ok());
  EXPECT_TRUE(flush().ok());
  EXPECT_TRUE(host.take(device_vt(device).health(device, &health)).ok());
  destroy<belay_stream_vt>(there), destroy<belay_device_vt>(other);
  finish();
}

TEST_F(InjectTest, AFileThatEndsEarly) {
  ASSERT_TRUE(begin("rules = [\"model_format.parse 2 short=5\"]").ok());
  auto mock = std::make_unique<::testing::NiceMock<MockModelFormat>>(&host);
  std::vector<std::string> seen;
  ON_CALL(*mock, parse).WillByDefault([&](belay_model_reader& reader, const belay_value*, const belay_model_sink&) {
    belay_span all{};
    const Status status = host.take(reader.map(&reader, 0, &all));
    seen.emplace_back(static_cast<const char*>(all.ptr), all.len);
    return status;
  });
  belay_created made = sized<belay_created>();
  made.impl = static_cast<MockModelFormat*>(mock.get()), made.table = &MockModelFormat::table();
  belay_obj* const format = adopt(BELAY_OBJ_MODEL_FORMAT, made, nullptr);
  static_cast<void>(mock.release());
  FakeReader reader("a whole model", &host);
  belay_model_sink sink = sized<belay_model_sink>();
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(host.take(table_of<belay_model_format_vt>(format).parse(format, &reader, nullptr, &sink)).ok());
  EXPECT_THAT(seen, ElementsAre("a whole model", "a who", "a whole model"));
  destroy<belay_model_format_vt>(format);
}

TEST_F(InjectTest, RulesThatAreWrongAreQuoted) {
  const auto refused = [&](const std::string& rule, const std::string& why) {
    const Status status = begin("rules = [\"" + rule + "\"]");
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'" + rule + "'"), HasSubstr(why)));
    end();
  };
  refused("stream.flush 3", "want three words");
  refused("stream.flush 3 ABORTED now", "want three words");
  refused("stream.flash 3 ABORTED", "there is no slot 'stream.flash'");
  refused("flush 3 ABORTED", "there is no slot 'flush'");
  refused("stream.flush 0 ABORTED", "'0' is no time");
  refused("stream.flush 101% ABORTED", "'101%' is no time");
  refused("stream.flush soon ABORTED", "'soon' is no time");
  refused("stream.flush 1 FINE", "'FINE' is no failure");
  refused("stream.flush 1 OK", "'OK' is no failure");
  refused("stream.flush 1 delay=5", "'delay=5' is no delay");
  refused("stream.flush 1 short=5", "only model_format.parse reads a file");
  refused("model_format.parse 1 short=5kg", "'short=5kg' is no size");
  refused("model_format.parse 1 lost", "no device is lost by model_format.parse");
  refused("stream.last_value 1 ABORTED", "stream.last_value gives no status");
}

}  // namespace
}  // namespace belay::testing
