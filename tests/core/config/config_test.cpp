#include "core/config/config.h"

#include "core/base/log.h"
#include "fakes/temp_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

namespace belay::core {
namespace {

using belay::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Schema schema() {
  using T = FieldType;
  Schema schema = core_schema();
  schema.add(
      "engine",
      {{.key = "threads", .type = T::kInt, .default_value = "0", .doc = "lanes", .min = 0, .max = 1024},
       {.key = "precision",
        .type = T::kString,
        .default_value = "\"float32\"",
        .choices = {"float32", "fast"}},
       {.key = "limit", .type = T::kSize, .default_value = "\"64MiB\"", .min = 4096},
       {.key = "block",
        .type = T::kSize,
        .default_value = "64",
        .flags = kPowerOfTwo,
        .min = 64,
        .max = 4096,
        .unit = "bytes"},
       {.key = "wait", .type = T::kDuration, .default_value = "\"5ms\"", .max = 1e9},
       {.key = "ratio", .type = T::kFloat, .default_value = "0.5", .min = 0, .max = 1},
       {.key = "winograd", .type = T::kBool, .default_value = "true"},
       {.key = "names", .type = T::kStringList, .default_value = "[]"},
       {.key = "use", .type = T::kStringList, .default_value = "[]", .names_kind = "test.kind/1"},
       {.key = "token", .type = T::kString, .flags = kSecret},
       {.key = "cache", .type = T::kString, .flags = kPath}},
      "how models run");
  return schema;
}

Status check(const std::string& toml) {
  Config config;
  BELAY_TRY(config.add_text("belay.toml", toml));
  return config.check(schema());
}

TEST(ConfigTest, DefaultsAreFilledInAndUnitsConverted) {
  Config config;
  ASSERT_TRUE(
      config.add_text("belay.toml", "[engine]\nlimit = \"1.5GiB\"\nnames = \"one\"\nratio = 1\n").ok());
  ASSERT_TRUE(config.check(schema()).ok());
  EXPECT_EQ(config.get("engine.limit").as_int(), 1610612736);
  EXPECT_EQ(config.get("engine.wait").as_int(), 5000000);
  EXPECT_EQ(config.get("engine.threads").as_int(7), 0);
  EXPECT_TRUE(config.get("engine.winograd").as_bool());
  EXPECT_EQ(config.get("engine.ratio").as_float(), 1.0);
  EXPECT_EQ(config.get("engine.names").at(0).as_string(), "one");
  EXPECT_EQ(config.get("engine.nothing").as_int(7), 7);
  EXPECT_EQ(config.where("engine.limit"), "belay.toml:2:9");
  EXPECT_EQ(config.where("engine.wait"), "default");
}

TEST(ConfigTest, UnknownKeysAreNamedWithPlaceAndNearest) {
  EXPECT_EQ(check("\n[engine]\n  thread = 3\n").message(),
            "config belay.toml:3:3: unknown key 'thread' for [engine] - did you mean 'threads'?");
  EXPECT_THAT(
      check("[engin]\nx = 1\n").message(),
      HasSubstr("belay.toml:1:2: unknown key 'engin' for the configuration - did you mean 'engine'?"));
  EXPECT_THAT(check("[log]\nzzzzzz = 1\n").message(),
              HasSubstr("unknown key 'zzzzzz' for [log] - want one of level, file, levels"));
  EXPECT_THAT(check("[plugin.a]\nconfi = {}\n").message(), HasSubstr("[plugin.a] - did you mean 'config'?"));
}

TEST(ConfigTest, WrongTypesRangesAndChoicesShowTheValueAndWhatIsWanted) {
  EXPECT_EQ(check("[engine]\nthreads = \"four\"\n").message(),
            "config belay.toml:2:11: key 'threads' of [engine] is \"four\", want an int");
  EXPECT_THAT(check("[engine]\nthreads = -1\n").message(), HasSubstr("is -1, want 0 to 1024"));
  EXPECT_THAT(check("[engine]\nprecision = \"float\"\n").message(),
              HasSubstr("is \"float\", want one of float32, fast - did you mean 'float32'?"));
  EXPECT_THAT(check("[engine]\nlimit = 100\n").message(), HasSubstr("is \"100B\", want 4KiB or more"));
  EXPECT_EQ(check("[engine]\nblock = \"100B\"\n").message(),
            "config belay.toml:2:9: key 'block' of [engine] is \"100B\", want a power of two");
  EXPECT_THAT(check("[engine]\nblock = 96\n").message(), HasSubstr("want a power of two"));
  EXPECT_THAT(check("[engine]\nblock = 32\n").message(), ::testing::EndsWith("want 64B to 4KiB"));
  EXPECT_TRUE(check("[engine]\nblock = 128\n").ok());
  EXPECT_THAT(check("[engine]\nlimit = \"64 potatoes\"\n").message(),
              HasSubstr("want a size such as \"64MiB\""));
  EXPECT_THAT(check("[engine]\nlimit = \"-1KiB\"\n").message(), HasSubstr("want a size"));
  EXPECT_THAT(check("[engine]\nwait = 5\n").message(), HasSubstr("is 5, want a duration such as \"5ms\""));
  EXPECT_THAT(check("[engine]\nwait = \"2s\"\n").message(), HasSubstr("want 1s or less"));
  EXPECT_THAT(check("[engine]\nratio = nan\n").message(), HasSubstr("is nan, want 0 to 1"));
  EXPECT_THAT(check("[engine]\nnames = [1]\n").message(), HasSubstr("is [1], want a list of strings"));
  EXPECT_THAT(check("engine = 3\n").message(), HasSubstr("is 3, want a table"));
  EXPECT_THAT(check("[engine]\nwinograd = 1\n").message(), HasSubstr("want true or false"));
  EXPECT_THAT(check("[engine]\nthreads = 2024-01-01\n").message(), HasSubstr("write the value in quotes"));
  EXPECT_THAT(check("[engine]\ncache = \"$ORIGIN/x\"\n").message(), HasSubstr("want a path without '$'"));
  EXPECT_THAT(check("plugin.x = 3\n").message(),
              HasSubstr("plugin.x is an int, want a table such as [plugin.x]"));
  EXPECT_THAT(check("[plugin.X]\n").message(), HasSubstr("'X' is no id of a plugin"));
}

TEST(ConfigTest, ANumberThatNoFieldCanHoldIsToldByTheRangeAndNotByTheUnit) {
  const auto set = [](const char* assignment) {
    Config config;
    EXPECT_TRUE(config.add_set(assignment).ok());
    return config.check(schema()).message();
  };
  EXPECT_THAT(check("[engine]\nlimit = \"10000000TiB\"\n").message(),
              HasSubstr("is \"10000000TiB\", want 4KiB to 9223372036854775807B"));
  EXPECT_TRUE(check("[engine]\nlimit = \"9223372036854775807B\"\n").ok());
  EXPECT_THAT(check("[engine]\nlimit = \"9223372036854775808B\"\n").message(),
              HasSubstr("want 4KiB to 9223372036854775807B"));
  EXPECT_THAT(set("engine.limit=9223372036854775808"),
              HasSubstr("is \"9223372036854775808\", want 4KiB to 9223372036854775807B"));
  EXPECT_THAT(set("engine.limit=8388608.5TiB"), HasSubstr("want 4KiB to 9223372036854775807B"));
  EXPECT_THAT(set("engine.wait=9999999999h"), HasSubstr("is \"9999999999h\", want 0ns to 1s"));
  EXPECT_THAT(set("engine.threads=9223372036854775808"),
              HasSubstr("is \"9223372036854775808\", want 0 to 1024"));
}

TEST(ConfigTest, AComponentNamedTwiceInOneListIsRefusedAndOtherListsMayRepeat) {
  EXPECT_EQ(check("[engine]\nuse = [\"one\", \"two\", \"one\", \"one\"]\n").message(),
            "config belay.toml:2:22: key 'use' of [engine] names 'one' twice - once is enough");
  EXPECT_TRUE(check("[engine]\nnames = [\"one\", \"one\"]\nuse = [\"one\", \"two\"]\n").ok());
}

TEST(ConfigTest, SeveralMistakesAreToldAtOnceAndTheSecretIsNot) {
  const std::string message =
      check("[engine]\nthreads = -1\nwait = 5\ntoken = 77\n[log]\nlevell = 3\n").message();
  EXPECT_THAT(message,
              AllOf(HasSubstr("threads"), HasSubstr("wait"), HasSubstr("levell"), HasSubstr("a secret")));
  EXPECT_THAT(message, Not(HasSubstr("77")));
}

TEST(ConfigTest, BrokenTomlNamesThePlace) {
  EXPECT_THAT(check("[engine\nthreads = 1\n").message(), HasSubstr("config belay.toml:1:8: "));
  EXPECT_THAT(check("[(x]\n").message(), HasSubstr("config belay.toml:1:2: "));
  EXPECT_THAT(check("gr\xc3\xb6\xc3\x9f"
                    "e = 1\n")
                  .message(),
              HasSubstr("config belay.toml:1:"));
  EXPECT_THAT(check("[[@x]]\n").message(), HasSubstr("config belay.toml:1:3: "));
  EXPECT_EQ(check("a = \"\xff\"\n").code(), Code::kInvalidArgument);
  EXPECT_EQ(check(std::string("a = \"x\0y\"\n", 11)).code(), Code::kInvalidArgument);
}

TEST(ConfigTest, HugeAndDeepInputIsRefusedQuickly) {
  EXPECT_THAT(check(std::string(2 << 20, '#')).message(), HasSubstr("want 1048576 at most"));
  std::string many, dots = "a", brackets;
  for (int i = 0; i < 20000; ++i) many += "k" + std::to_string(i) + "=1\n";
  for (int i = 0; i < 200000; ++i) dots += ".a", brackets += "[";
  EXPECT_THAT(check(many).message(), HasSubstr("more than 10000 values"));
  EXPECT_THAT(check(dots + " = 1\n").message(), HasSubstr("a key has more than 16 parts"));
  EXPECT_THAT(check("[" + dots + "]\n").message(), HasSubstr("a key has more than 16 parts"));
  EXPECT_THAT(check("x = \"1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1\"\n").message(),
              HasSubstr("unknown key 'x'"));
  EXPECT_FALSE(check("x = " + brackets + "\n").ok());
  std::string tables = "x = 1", open = "", close = "";
  for (int i = 0; i < 20; ++i) open += "{a=", close += "}";
  EXPECT_THAT(check("x = " + open + "1" + close + "\n").message(), HasSubstr("nested deeper than 16"));
}

TEST(ConfigTest, LaterLayersWinKeyByKey) {
  TempDir dir;
  const std::string first = dir.write("first.toml", "[engine]\nthreads = 1\nnames = [\"a\", \"b\"]\n");
  const std::string second = dir.write("second.toml", "[engine]\nnames = [\"c\"]\n");
  Config config;
  ASSERT_TRUE(config.add_file(first).ok());
  ASSERT_TRUE(config.add_file(second).ok());
  setenv("BELAY_SET", "engine.wait=7ms ; log.file = \"a;b\"", 1);
  ASSERT_TRUE(config.add_environment().ok());
  unsetenv("BELAY_SET");
  ASSERT_TRUE(config.add_set("engine.winograd=false").ok());
  ASSERT_TRUE(config.add_set("engine.precision=fast").ok());
  ASSERT_TRUE(config.add_set("log.levels.\"plugin.cpu\"=debug").ok());
  ASSERT_TRUE(config.check(schema()).ok());
  EXPECT_EQ(config.get("engine.threads").as_int(), 1);
  EXPECT_EQ(config.get("engine.names").count(), 1u);
  EXPECT_EQ(config.get("engine.wait").as_int(), 7000000);
  EXPECT_FALSE(config.get("engine.winograd").as_bool(true));
  EXPECT_EQ(config.get("engine.precision").as_string(), "fast");
  EXPECT_EQ(config.get("log.levels.\"plugin.cpu\"").as_string(), "debug");
  EXPECT_EQ(config.where("engine.names"), second + ":2:9");
  EXPECT_EQ(config.where("engine.wait"), "BELAY_SET");
  EXPECT_EQ(config.where("engine.precision"), "--set");
  EXPECT_THAT(std::string(config.get("log.file").as_string()), ::testing::EndsWith("/a;b"));
}

TEST(ConfigTest, AssignmentsThatAreNoneAreRefused) {
  Config config;
  for (const char* wrong : {"", "=", "=3", "threads", "engine..threads=1", ".=1"})
    EXPECT_THAT(config.add_set(wrong).message(), HasSubstr("is no assignment, want e.g. log.level=debug"))
        << wrong;
  ASSERT_TRUE(config.add_set("engine.threads=1\nw = 2").ok());  // not two values: one odd string
  EXPECT_THAT(config.check(schema()).message(),
              HasSubstr("config --set: key 'threads' of [engine] is \"1\\u000Aw = 2\""));
}

TEST(ConfigTest, FilesThatCannotBeReadAreNamed) {
  TempDir dir;
  Config config;
  const Status none = config.add_file(dir / "none.toml", "BELAY_CONFIG");
  EXPECT_EQ(none.code(), Code::kInvalidArgument);
  EXPECT_THAT(none.message(),
              AllOf(HasSubstr("none.toml' cannot be opened: No such file"), HasSubstr("BELAY_CONFIG")));
  EXPECT_THAT(config.add_file(dir.path()).message(), HasSubstr("is a directory, want a regular file"));
  EXPECT_THAT(config.add_file("/dev/zero").message(), HasSubstr("is a device"));
  dir.write("big.toml", std::string(2 << 20, ' '));
  const Status big = config.add_file(dir / "big.toml");
  EXPECT_EQ(big.code(), Code::kInvalidArgument);
  EXPECT_THAT(big.message(), HasSubstr("has 2097152 bytes, want 1048576 at most"));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none_left{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none_left);
  const Status no_descriptor = config.add_file(dir / "big.toml");
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(no_descriptor.code(), Code::kResourceExhausted) << no_descriptor.message();
}

TEST(ConfigTest, RelativePathsAreThoseOfTheirFile) {
  TempDir dir;
  Config config;
  ASSERT_TRUE(config
                  .add_file(dir.write(
                      "x.toml", "[engine]\ncache = \"sub/../cache\"\n[runtime]\nplugin_dirs = [\"p\"]\n"))
                  .ok());
  ASSERT_TRUE(config.check(schema()).ok());
  EXPECT_EQ(config.get("engine.cache").as_string(), dir / "cache");
  EXPECT_EQ(config.get("runtime.plugin_dirs").at(0).as_string(), dir / "p");
}

TEST(ConfigTest, TheEffectiveConfigurationIsTomlWithOriginsAndWithoutSecrets) {
  Config config;
  ASSERT_TRUE(
      config
          .add_text(
              "b.toml",
              "[engine]\ntoken = \"s3cret\"\nlimit = \"65536KiB\"\nratio = 0.025\n[log]\nlevels = {\"a.b\" = \"debug\"}\n")
          .ok());
  ASSERT_TRUE(config.check(schema()).ok());
  const std::string text = config.print();
  EXPECT_THAT(text, AllOf(HasSubstr("limit = \"64MiB\"  # b.toml:3:9"),
                          HasSubstr("wait = \"5ms\"  # default"), HasSubstr("ratio = 0.025  # b.toml:4:9"), HasSubstr("token = \"***\""),
                          Not(HasSubstr("s3cret")), HasSubstr("[log.levels]\n\"a.b\" = \"debug\"")));
  Config again;
  ASSERT_TRUE(again.add_text("printed", text).ok()) << text;
  ASSERT_TRUE(again.check(schema()).ok());
  EXPECT_EQ(again.get("engine.limit").as_int(), 64 << 20);
}

TEST(ConfigTest, TheExampleIsTomlThatSaysTheDefaults) {
  std::string text;
  const Schema all = schema();
  for (const Field& table : all.tables()) text += example_of(table.key, table.members);
  EXPECT_THAT(text, HasSubstr("# lanes (an int; 0 to 1024)\n# threads = 0\n"));
  Config config;
  ASSERT_TRUE(config.add_text("example", text).ok()) << text;
  EXPECT_TRUE(config.check(schema()).ok());
  std::string live;  // with every default in force it is the same configuration
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    const std::string line = text.substr(at, text.find('\n', at) - at + 1);
    live += line.starts_with("# ") && line.find(" = ") != std::string::npos &&
                    line.find("= ...") == std::string::npos && line.find('(') == std::string::npos
                ? line.substr(2)
                : line;
  }
  Config full;
  ASSERT_TRUE(full.add_text("live", live).ok()) << live;
  EXPECT_TRUE(full.check(schema()).ok()) << full.check(schema()).message() << live;
}

TEST(ConfigTest, PluginsSeeACompleteTableThroughTheCView) {
  Config config;
  ASSERT_TRUE(config.add_text("b.toml", "[plugin.p.config]\nsize = \"1KiB\"\nlist = [\"x\", \"y\"]\n").ok());
  ASSERT_TRUE(config.check(schema()).ok());
  const std::vector<Field> fields = {{.key = "size", .type = FieldType::kSize},
                                     {.key = "list", .type = FieldType::kStringList},
                                     {.key = "depth", .type = FieldType::kInt, .default_value = "64"}};
  ASSERT_TRUE(config.check_plugin("p", fields, "plugin 'p'").ok());
  const belay_value* raw = config.plugin_config("p");
  EXPECT_EQ(raw->vt->count(raw), 3u);
  EXPECT_EQ(to_view(raw->vt->key_at(raw, 0)), "depth");
  EXPECT_EQ(raw->vt->key_at(raw, 9).len, 0u);
  const belay_value* list = raw->vt->get(raw, to_str("list"));
  EXPECT_EQ(to_view(list->vt->as_string(list->vt->at(list, 1))), "y");
  EXPECT_EQ(list->vt->at(list, 2), nullptr);
  EXPECT_EQ(list->vt->as_int(list), 0);
  StringSink where;
  list->vt->where(list, where.sink());
  EXPECT_EQ(where.text(), "b.toml:3:8");
  EXPECT_EQ(Value(raw)["depth"].as_float(), 64.0);
  const belay_value* none = config.plugin_config("nobody");
  EXPECT_EQ(none->vt->type(none), BELAY_VALUE_TABLE);
  EXPECT_EQ(config.check_plugin("q", {{.key = "must", .flags = kRequired}}, "plugin 'q'").message(),
            "config default: key 'must' of plugin 'q' is missing - want a value");
}

TEST(ConfigTest, ADeprecatedKeyIsAcceptedWithAWarning) {
  Config config;
  ASSERT_TRUE(config.add_text("b.toml", "[plugin.p.config]\nold = 1\n").ok());
  ASSERT_TRUE(config.check(schema()).ok());
  const std::vector<Field> fields = {
      {.key = "old", .type = FieldType::kInt, .doc = "use 'new'", .flags = kDeprecated},
      {.key = "other", .type = FieldType::kInt, .default_value = "1", .flags = kDeprecated}};
  ASSERT_TRUE(config.check_plugin("p", fields, "plugin 'p'").ok());
  EXPECT_THAT(config.warnings(), ElementsAre("config b.toml:2:7: key 'old' is deprecated: use 'new'"));
}

TEST(ConfigTest, TheDefaultConfigurationIsToml) {
  Config config;
  EXPECT_TRUE(config.add_text("default", default_config()).ok());
}

}  // namespace
}  // namespace belay::core
