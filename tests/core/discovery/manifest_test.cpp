#include "core/discovery/manifest.h"

#include "fakes/plugins/install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using namespace std::chrono_literals;

using belay::testing::manifest;

TEST(ManifestTest, AGoodOneIsRead) {
  const auto read =
      parse_manifest("x.toml", manifest("x", "requires = [\"y\"]\nunload = \"supported\"\nthreads = \"own\"",
                                        "priority = 100\nafter = [\"z\"]\n"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->keys(), "test.counter/1:x");
  EXPECT_EQ(read->components[0].priority, 100);
  EXPECT_TRUE(read->unload_supported && read->own_threads);
  EXPECT_EQ(read->abi_minor, 1u);
  ASSERT_EQ(read->fields.size(), 4u);
  EXPECT_EQ(read->fields[1].max, 1048576);
  EXPECT_EQ(read->fields[1].default_value, "\"1KiB\"");
}

TEST(ManifestTest, EachMistakeIsNamedWithItsPlace) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = manifest("x");
    text.replace(text.find(from), from.size(), to);
    return parse_manifest("x.toml", text).status().message();
  };
  EXPECT_EQ(with("version", "versoin"),
            "manifest x.toml:3:1: unknown key 'versoin' for a manifest - did you mean 'version'?\n"
            "manifest x.toml:1:1: key 'version' of a manifest is missing - want a string");
  EXPECT_THAT(with("format = 1", "format = 2"),
              HasSubstr("x.toml:1:10: key 'format' of a manifest is 2, want 1 to 1"));
  EXPECT_THAT(with("id = \"x\"", "id = \"X y\""), HasSubstr("'X y' is no id"));
  EXPECT_THAT(with("\"0.1\"", "\"one\""), HasSubstr("abi is 'one', want \"major.minor\""));
  EXPECT_THAT(with("\"0.1\"", "\"1.\""), HasSubstr("abi is '1.'"));
  EXPECT_THAT(with("libbelay_x.so", "../x.so"), HasSubstr("library is '../x.so', want a bare name"));
  EXPECT_THAT(with("test.counter/1", "counter"), HasSubstr("'counter' is no kind"));
  EXPECT_THAT(with("test.counter/1", "test.counter/x"), HasSubstr("'test.counter/x' is no kind"));
  EXPECT_THAT(with("type = \"size\"", "type = \"sise\""), HasSubstr("did you mean 'size'?"));
  EXPECT_THAT(with("default = \"1KiB\"", "default = \"2MiB\""),
              HasSubstr("key 'start' of the default is \"2MiB\", want 0B to 1MiB"));
  EXPECT_THAT(with("max = \"1MiB\"", "max = \"many\""),
              HasSubstr("max of field 'start' is no limit of its type"));
  EXPECT_THAT(with("key = \"start\"", "key = \"mode\""), HasSubstr("field 'mode' is declared twice"));
  EXPECT_THAT(with("doc = \"What to do wrong.\"", ""), HasSubstr("key 'doc' of [[field]] is missing"));
  EXPECT_THAT(with("[[component]]", "[component]"), HasSubstr("want a list of tables"));
  EXPECT_FALSE(
      parse_manifest("x.toml", manifest("x") + "[[component]]\nkind = \"test.counter/1\"\nname = \"x\"\n")
          .ok());
  EXPECT_THAT(parse_manifest("x.toml", manifest("x", "[integrity]\nsha256 = \"12\"\n")).status().message(),
              HasSubstr("'12' is no SHA-256 of the library, want 64 hexadecimal digits"));
  EXPECT_FALSE(parse_manifest("x.toml", "").ok());
  EXPECT_FALSE(parse_manifest("x.toml", std::string(300 << 10, '#')).ok());
}

}  // namespace
}  // namespace belay::core
