// Mocks behind C tables: what the mock answers is what the caller of the table sees.
#include <belay/testing/fake_host.hpp>
#include <belay/testing/mock_diagnostics.hpp>
#include <belay/testing/mock_memory_policy.hpp>

#include <gtest/gtest.h>

namespace {

using belay::Code;
using belay::Status;
using belay::testing::FakeHost;
using belay::testing::MockDiagnostics;
using belay::testing::MockMemoryPolicy;
using belay::testing::TableBuilder;
using ::testing::_;
using ::testing::Return;
using ::testing::StrictMock;

TEST(MockDiagnosticsTest, RecordsChecksAndFailuresCrossTheTable) {
  FakeHost host;
  auto mock = std::make_unique<StrictMock<MockDiagnostics>>(&host);
  EXPECT_CALL(*mock, on_records(_)).WillOnce([](std::span<const belay_trace_record> records) {
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[1].value, 7u);
  });
  EXPECT_CALL(*mock, run_check(3, _)).WillOnce([](uint64_t, belay_sink text) -> belay::Result<uint64_t> {
    belay::write(text, "no huge pages");
    return uint64_t{BELAY_CHECK_WARNING};
  });
  EXPECT_CALL(*mock, dump(std::string_view("xml"), _))
      .WillOnce(Return(Status(Code::kUnimplemented, "No format 'xml'; there are json and text.")));
  EXPECT_CALL(*mock, died());
  const auto object = host.adopt(MockDiagnostics::table(), std::move(mock), BELAY_OBJ_DIAGNOSTICS);
  const belay_diagnostics_vt& table = MockDiagnostics::table();

  belay_trace_record records[2] = {};
  records[1].value = 7;
  table.on_records(object.get(), records, 2);
  belay::StringSink text;
  uint64_t outcome = 0;
  EXPECT_EQ(table.run_check(object.get(), 3, &outcome, text.sink()), BELAY_OK);
  EXPECT_EQ(outcome, BELAY_CHECK_WARNING);
  EXPECT_EQ(text.text(), "no huge pages");
  const Status failure = belay::from_c(host, table.dump(object.get(), belay::to_str("xml"), text.sink()));
  EXPECT_EQ(failure.code(), Code::kUnimplemented);
  EXPECT_EQ(failure.message(), "No format 'xml'; there are json and text.");
  EXPECT_EQ(host.live_details(), 0u);
}

TEST(TableBuilderTest, ASlotThatIsNullOrPastTheEndIsNotThere) {
  TableBuilder<belay_diagnostics_vt> builder(MockDiagnostics::table());
  EXPECT_TRUE(BELAY_HAS(&builder.table(), belay_diagnostics_vt, dump));
  builder.null(&belay_diagnostics_vt::dump);
  EXPECT_FALSE(BELAY_HAS(&builder.table(), belay_diagnostics_vt, dump));
  EXPECT_TRUE(BELAY_HAS(&builder.table(), belay_diagnostics_vt, flush));
  builder.shrink_before(&belay_diagnostics_vt::flush);
  EXPECT_FALSE(BELAY_HAS(&builder.table(), belay_diagnostics_vt, flush));
  EXPECT_TRUE(BELAY_HAS(&builder.table(), belay_diagnostics_vt, run_check));
}

TEST(MockMemoryPolicyTest, APlaceThatNeedsASegmentSaysHowLarge) {
  FakeHost host;
  auto mock = std::make_unique<StrictMock<MockMemoryPolicy>>(&host);
  EXPECT_CALL(*mock, place(_, _)).WillOnce([](const belay_place_req& req, belay_placed* out) -> Status {
    out->need_bytes = 2 * req.bytes;
    return {Code::kNeedSegment, "No segment has room."};
  });
  EXPECT_CALL(*mock, died());
  const auto object = host.adopt(MockMemoryPolicy::table(), std::move(mock), BELAY_OBJ_MEMORY_POLICY);
  belay_place_req req{};
  req.hdr.struct_size = sizeof(req);
  req.bytes = 64;
  belay_placed placed{};
  placed.hdr.struct_size = sizeof(placed);
  const belay_status status = MockMemoryPolicy::table().place(object.get(), &req, &placed);
  EXPECT_EQ(BELAY_STATUS_CODE(status), BELAY_NEED_SEGMENT);
  EXPECT_EQ(placed.need_bytes, 128u);
  host.status_release(&host, status);
}

}  // namespace
