// The layer `trace` before a mock driver: its lines, sums and records.
#include "fakes/temp_dir.h"
#include "layer_rig.hpp"

namespace belay::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Return;

class TraceLayerTest : public LayerTest {
 protected:
  // A driver with a device, a stream and a buffer of 64 bytes.
  void make() { driver = make_driver(), device = open_device(driver), stream = make_stream(device), buffer = make_buffer(device, 64); }
  Status fill(uint64_t offset, uint64_t bytes) {
    belay_fill_req req = sized<belay_fill_req>();
    req.dst = buffer, req.dst_offset = offset, req.bytes = bytes, req.pattern_bytes = 1;
    uint64_t value = 0;
    return host.take(stream_vt(stream).fill(stream, &req, &value));
  }
  void finish() {
    free_buffer(device, buffer), destroy<belay_stream_vt>(stream), destroy<belay_device_vt>(device);
    destroy<belay_driver_vt>(driver);
  }
  // The lines of the file without times and threads.
  std::vector<std::string> lines() {
    report();  // what makes them whole
    std::ifstream in(file);
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) {
      line = line.substr(line.find("] ") + 2);
      if (line.ends_with(" us)")) line.resize(line.rfind(" ("));
      all.push_back(line);
    }
    return all;
  }
  std::string with_file(const std::string& more = "") { return "file = \"" + file + "\"\n" + more; }

  TempDir dir;
  const std::string file = dir / "calls.txt";
  belay_obj *driver = nullptr, *device = nullptr, *stream = nullptr, *buffer = nullptr;
};

TEST_F(TraceLayerTest, ALineForEachCallWithArgumentsAndResult) {
  ASSERT_TRUE(begin(with_file()).ok());
  make();
  EXPECT_EQ(driver_vt(driver).device_count(driver), 1u);
  EXPECT_TRUE(fill(8, 16).ok());
  EXPECT_CALL(*stream_mock, fill).WillOnce(Return(Status(Code::kQueueFull, "no room\nfor it")));
  EXPECT_EQ(fill(0, 64).code(), Code::kQueueFull);
  finish();
  EXPECT_THAT(lines(),
              ::testing::ElementsAre(
                  "driver 1 of plugin 'mock' made", HasSubstr("driver 1.open_device(0"),
                  "device 1 of plugin 'mock' made", HasSubstr("device 1.stream_create(timeline=1 priority=0"),
                  "stream 1 of plugin 'mock' made", HasSubstr("device 1.alloc(bytes=64 align=0 heap=0"),
                  "buffer 1 of plugin 'mock' made", "driver 1.device_count() = 1",
                  "stream 1.fill(dst=buffer 1+8 bytes=16 pattern=0 of 1)",
                  "stream 1.fill(dst=buffer 1 bytes=64 pattern=0 of 1) = status 18: no room for it",
                  "device 1.free(buffer 1)", "buffer 1 of plugin 'mock' gone", "stream 1.destroy()",
                  "stream 1 of plugin 'mock' gone", "device 1.destroy()", "device 1 of plugin 'mock' gone",
                  "driver 1.destroy()", "driver 1 of plugin 'mock' gone"));
}

TEST_F(TraceLayerTest, SumsCountCallsAndFailuresButNoAnswers) {
  ASSERT_TRUE(begin().ok());
  EXPECT_EQ(report(), "");
  make();
  EXPECT_CALL(*stream_mock, query)
      .WillOnce(Return(Status(Code::kUnavailable, "")))
      .WillOnce(Return(Status(Code::kDeviceLost, "gone")))
      .WillOnce(Return(Status()));
  for (int i = 0; i < 3; ++i) static_cast<void>(host.take(stream_vt(stream).query(stream, 1)));
  EXPECT_THAT(report(), AllOf(HasSubstr("stream.query: 3 calls, 1 failed, "), HasSubstr("device.alloc: 1 calls, 0.0 us in all"),
                              HasSubstr("device.stream_create: 1 calls")));
  finish();
}

TEST_F(TraceLayerTest, OnlyTheKindsThatAreAskedFor) {
  ASSERT_TRUE(begin(with_file("kinds = [\"stream\"]\n")).ok());
  make();
  EXPECT_TRUE(fill(0, 1).ok());
  EXPECT_THAT(report(), AllOf(HasSubstr("stream.fill: 1 calls"), Not(HasSubstr("device."))));
  finish();
  const std::vector<std::string> calls = lines();
  EXPECT_EQ(std::ranges::count_if(calls, [](const std::string& line) { return line.find("device 1.") == 0; }), 0);
  EXPECT_EQ(std::ranges::count_if(calls, [](const std::string& line) { return line.find("stream 1.") == 0; }), 2);
}

TEST_F(TraceLayerTest, AKindThatThereIsNotIsRefused) {
  const Status status = begin("kinds = [\"stream\", \"queue\"]\n");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'queue'"), HasSubstr("driver, device, stream, program")));
}

TEST_F(TraceLayerTest, AFileThatCannotBeWrittenIsNamed) {
  const Status status = begin("file = \"" + dir / "none/calls.txt" + "\"\n");
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("none/calls.txt"), HasSubstr("No such file or directory")));
}

TEST_F(TraceLayerTest, AFullFileIsReported) {
  ASSERT_TRUE(begin("file = \"/dev/full\"\n").ok());
  make();
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(fill(0, 1).ok());
  EXPECT_THAT(report(), HasSubstr("The file has not got all lines"));
  finish();
}

TEST_F(TraceLayerTest, RecordsForWhoeverListens) {
  ASSERT_TRUE(begin().ok());
  make();
  EXPECT_THAT(services.records(), IsEmpty());  // nobody listens
  services.trace(true);
  EXPECT_TRUE(fill(0, 1).ok());
  EXPECT_CALL(*stream_mock, wait).WillOnce(Return(Status(Code::kNotFound, "none")));
  uint64_t value = 0;
  static_cast<void>(host.take(stream_vt(stream).wait(stream, {9, 9}, &value)));
  services.trace(false);
  finish();
  const auto records = services.records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(services.name(records[0].name), "stream.fill");
  EXPECT_EQ(records[0].value, uint64_t(BELAY_OK));
  EXPECT_EQ(services.name(records[1].name), "stream.wait");
  EXPECT_EQ(records[1].value, uint64_t(BELAY_NOT_FOUND));
}

TEST_F(TraceLayerTest, ExtensionsAndWhatTheyMakeAreTraced) {
  ASSERT_TRUE(begin(with_file()).ok());
  make();
  const auto* programs =
      static_cast<const belay_driver_program_vt*>(device_vt(device).extension(device, to_str(BELAY_DRIVER_PROGRAM)));
  ASSERT_NE(programs, nullptr);
  EXPECT_NE(programs, &MockDevice::program_table());
  belay_program_req req = sized<belay_program_req>();
  belay_created made = sized<belay_created>();
  ASSERT_TRUE(host.take(programs->create(device, &req, &made)).ok());
  ASSERT_NE(made.table, nullptr);  // the extension's, below the layer
  belay_obj* const program = adopt(BELAY_OBJ_PROGRAM, made, device);
  uint64_t value = 0;
  EXPECT_TRUE(host.take(table_of<belay_driver_program_vt>(program).launch(program, stream, nullptr, 0, &value)).ok());
  EXPECT_EQ(device_vt(device).extension(device, to_str("nobody.has/1")), nullptr);
  destroy<belay_driver_program_vt>(program);
  finish();
  EXPECT_THAT(lines(), AllOf(::testing::Contains(HasSubstr("device 1.create(nodes=0 bindings=0")),
                             ::testing::Contains(HasSubstr("program 1.launch(stream 1")),
                             ::testing::Contains("device 1.extension('nobody.has/1') = none"),
                             ::testing::Contains("program 1.destroy()")));
}

}  // namespace
}  // namespace belay::testing
