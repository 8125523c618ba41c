#include "services_fixture.h"

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

class LogServiceTest : public ServicesTest {
 protected:
  void write(const std::string& message, std::vector<belay_log_field> fields, const char* part = "",
             uint64_t level = BELAY_LOG_WARNING) {
    auto req = sized<belay_log_req>();
    req.level = level, req.part = to_str(part), req.message = to_str(message);
    req.fields = fields.data(), req.field_count = fields.size();
    service<belay_log_vt>(BELAY_HOST_LOG).write(a, &req);
  }
};

TEST_F(LogServiceTest, FieldsFollowTheMessageAndAreQuotedWhereTheyMustBe) {
  write("slow copy", {{to_str("bytes"), to_str("12")},
                      {to_str("why"), to_str("far \"node\"\n\x1b[31m")},
                      {to_str("empty"), to_str("")},
                      {to_str("Bad Key"), to_str("x")}});
  EXPECT_THAT(log(), ElementsAre("plugin.a: slow copy bytes=12 why=\"far \\\"node\\\"\\\\n\\\\x1b[31m\" "
                                 "empty=\"\" ?=x"));
}

TEST_F(LogServiceTest, APartIsALoggerOfItsOwnWithALevelOfItsOwn) {
  make("[log.levels]\n\"plugin.a\" = \"error\"\n\"plugin.a.ring\" = \"debug\"\n");
  const auto& table = service<belay_log_vt>(BELAY_HOST_LOG);
  EXPECT_EQ(table.enabled(a, BELAY_LOG_DEBUG, to_str("ring")), 1u);
  EXPECT_EQ(table.enabled(a, BELAY_LOG_WARNING, to_str("")), 0u);
  write("not written", {});
  write("written", {}, "ring", BELAY_LOG_DEBUG);
  write("no id", {}, "Not An Id", BELAY_LOG_ERROR);
  EXPECT_THAT(log(), ElementsAre("plugin.a.ring: written", "plugin.a: no id"));
}

TEST_F(LogServiceTest, ATextThatRepeatsIsLimitedWhateverItsFieldsAre) {
  for (int i = 0; i < 100; ++i) {
    const std::string number = std::to_string(i);
    write("again", {{to_str("i"), to_str(number)}});
  }
  EXPECT_EQ(log().size(), 5u);
  service<belay_log_vt>(BELAY_HOST_LOG).write(a, nullptr);
  belay_log_req small{};
  service<belay_log_vt>(BELAY_HOST_LOG).write(a, &small);
  service<belay_log_vt>(BELAY_HOST_LOG).flush(a);
  EXPECT_EQ(log().size(), 5u);
}

}  // namespace
}  // namespace belay::core
