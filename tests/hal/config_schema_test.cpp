#include "hal/config_schema.h"

#include "core/base/status_catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

namespace belay::hal {
namespace {

TEST(ConfigSchemaTest, KeysThatRemediesNameExist) {
  const core::Schema schema = runtime_schema();
  const std::regex named(R"(\[(\w+)\] (\w+))");
  int found = 0;
  for (uint32_t code = 0; code < BELAY_CODE_COUNT; ++code) {
    const std::string remedy(core::describe_code(code)->remedy);
    for (std::sregex_iterator at(remedy.begin(), remedy.end(), named), end; at != end; ++at, ++found) {
      const auto table = std::find_if(schema.tables().begin(), schema.tables().end(),
                                      [&](const core::Field& field) { return field.key == (*at)[1]; });
      ASSERT_NE(table, schema.tables().end()) << remedy;
      EXPECT_TRUE(std::any_of(table->members.begin(), table->members.end(),
                              [&](const core::Field& field) { return field.key == (*at)[2]; }))
          << remedy;
    }
  }
  EXPECT_GE(found, 4);  // or remedies are written another way
}

}  // namespace
}  // namespace belay::hal
