// The plugin @ID@ as its file is built, called as a host calls it.
#include <belay/abi/diagnostics.h>
#include <belay/testing/plugin_file.hpp>

#include <gtest/gtest.h>

namespace {

using belay::Code;
using belay::StringSink;
using belay::testing::FakeHost;
using belay::testing::PluginFile;

TEST(Diagnostics, CountsRecordsByKind) {
  FakeHost host;
  {
    PluginFile plugin(host, BELAY_PLUGIN_FILE);
    const auto diagnostics = plugin.make<belay_diagnostics_vt>(BELAY_DIAGNOSTICS_KIND);
    belay_trace_record records[3]{};
    records[0].kind = records[1].kind = BELAY_TRACE_COPY;
    records[2].kind = 999;  // of a newer host
    diagnostics->on_records(diagnostics, records, 3);
    StringSink text, json;
    EXPECT_EQ(diagnostics->dump(diagnostics, belay::to_str("text"), text.sink()), BELAY_OK);
    EXPECT_NE(text.text().find("other 1\n"), std::string::npos);
    EXPECT_NE(text.text().find("copy 2\n"), std::string::npos);
    EXPECT_EQ(diagnostics->dump(diagnostics, belay::to_str("json"), json.sink()), BELAY_OK);
    EXPECT_EQ(json.text().find("{\"other\": 1, \"operation\": 0, \"copy\": 2"), 0u) << json.text();
    const auto status = host.take(diagnostics->dump(diagnostics, belay::to_str("xml"), text.sink()));
    EXPECT_EQ(status.code(), Code::kUnimplemented);
    EXPECT_NE(status.message().find("'xml'"), std::string::npos) << status.message();
  }
  EXPECT_EQ(host.log_text(), "3 records were seen\n");
  EXPECT_EQ(host.live_details(), 0u);
}

TEST(Diagnostics, ChecksThatFilesCanBeOpened) {
  FakeHost host;
  PluginFile plugin(host, BELAY_PLUGIN_FILE);
  const auto diagnostics = plugin.make<belay_diagnostics_vt>(BELAY_DIAGNOSTICS_KIND);
  ASSERT_EQ(diagnostics->check_count(diagnostics), 1u);
  belay_check_info info{};
  info.hdr.struct_size = sizeof info;
  ASSERT_EQ(diagnostics->check_info(diagnostics, 0, &info), BELAY_OK);
  EXPECT_EQ(belay::to_view(info.name), "@ID@.open-files");
  uint64_t outcome = BELAY_CHECK_FAILED;
  StringSink text;
  ASSERT_EQ(diagnostics->run_check(diagnostics, 0, &outcome, text.sink()), BELAY_OK);
  EXPECT_TRUE(outcome == BELAY_CHECK_PASSED || outcome == BELAY_CHECK_WARNING) << outcome;
  EXPECT_NE(text.text().find("may be open"), std::string::npos) << text.text();
  EXPECT_EQ(host.take(diagnostics->run_check(diagnostics, 1, &outcome, text.sink())).code(),
            Code::kOutOfRange);
}

}  // namespace
