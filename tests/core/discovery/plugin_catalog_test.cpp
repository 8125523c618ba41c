#include "core/discovery/plugin_catalog.h"

#include "core/base/sha256.h"
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

using belay::testing::install;
using belay::testing::manifest;
using belay::testing::TempDir;
namespace fs = std::filesystem;

class PluginCatalogTest : public ::testing::Test {
 protected:
  TempDir dir;
  const std::string file = install(dir, "a");
};

CatalogOptions only(const TempDir& dir) { return {.first_dirs = {dir.path()}, .standard_dirs = false}; }

TEST_F(PluginCatalogTest, TheCatalogueListsGoodAndRefusedPluginsById) {
  install(dir, "c");
  install(dir, "b");
  dir.write("libbelay_z.plugin.toml", "format = 1\nidd = 3\n");
  dir.write("readme.txt", "not looked at");
  const Catalog catalog = Catalog::search(only(dir));
  ASSERT_THAT(catalog.plugins(), SizeIs(4));
  EXPECT_EQ(catalog.plugins()[0].manifest.id, "a");
  EXPECT_EQ(catalog.plugins()[2].manifest.keys(), "test.counter/1:c");
  EXPECT_EQ(catalog.plugins()[3].manifest.id, "z");
  EXPECT_THAT(catalog.plugins()[3].refused.message(),
              HasSubstr("libbelay_z.plugin.toml:2:1: unknown key 'idd' for a manifest"));
  EXPECT_TRUE(catalog.find("a")->refused.ok());
}

TEST_F(PluginCatalogTest, AnEarlierDirectoryShadowsALaterOne) {
  TempDir second;
  install(second, "a");
  const Catalog catalog =
      Catalog::search({.first_dirs = {dir.path()}, .config_dirs = {second.path()}, .standard_dirs = false});
  ASSERT_THAT(catalog.plugins(), SizeIs(2));
  EXPECT_EQ(catalog.find("a")->file, file);
  EXPECT_THAT(catalog.plugins()[1].refused.message(), HasSubstr("is shadowed by " + file));
}

TEST_F(PluginCatalogTest, DirectoriesOfTheCallerAndOfTheConfigurationMayBeBuildTrees) {
  TempDir tree;
  std::filesystem::create_directories(tree.path() + "/lib/belay/plugins");
  for (const std::string name : {"libbelay_a.so", "libbelay_a.plugin.toml"})
    std::filesystem::copy(dir.path() + "/" + name, tree.path() + "/lib/belay/plugins/" + name);
  for (const CatalogOptions& options :
       {CatalogOptions{.first_dirs = {tree.path()}, .standard_dirs = false},
        CatalogOptions{.config_dirs = {tree.path(), dir.path()}, .standard_dirs = false}}) {
    const Catalog catalog = Catalog::search(options);
    ASSERT_NE(catalog.find("a"), nullptr);
    EXPECT_TRUE(catalog.find("a")->refused.ok());
    EXPECT_THAT(catalog.find("a")->file, HasSubstr("/lib/belay/plugins/"));  // before what comes later
  }
}

TEST_F(PluginCatalogTest, AManifestAndALibraryOfDifferentBuildsAreRefused) {
  dir.write("libbelay_a.plugin.toml", manifest("a").replace(manifest("a").find("1.0.0"), 5, "2.0.0"));
  EXPECT_THAT(Catalog::search(only(dir)).find("a")->refused.message(),
              HasSubstr("its manifest says version '2.0.0', its library says '1.0.0'"));
  dir.write("libbelay_a.plugin.toml", manifest("b"));
  EXPECT_FALSE(Catalog::search(only(dir)).find("b")->refused.ok());
}

TEST_F(PluginCatalogTest, AManifestThatTheLibraryWasNotBuiltWithIsRefused) {
  const std::string library = install(dir, "digest");
  const FoundPlugin refused = *Catalog::search(only(dir)).find("digest");
  EXPECT_THAT(refused.refused.message(),
              HasSubstr("its manifest says SHA-256 '" + hex(sha256(manifest("digest"))) +
                        "', its library says 'abab"));
  // The same library with the digest of this manifest.
  std::ifstream file(library, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const Sha256 digest = sha256(manifest("digest"));
  const size_t at = bytes.find(std::string(32, char(0xab)));
  ASSERT_NE(at, std::string::npos);
  std::copy(digest.begin(), digest.end(), bytes.begin() + ptrdiff_t(at));
  fs::remove(library);
  dir.write("libbelay_digest.so", bytes);
  const FoundPlugin found = *Catalog::search(only(dir)).find("digest");
  EXPECT_TRUE(found.refused.ok()) << found.refused.message();
}

TEST_F(PluginCatalogTest, DirectoriesThatCannotBeReadOrAreRelativeAreToldOf) {
  const Catalog catalog = Catalog::search({.first_dirs = {"plugins", "/nowhere/at/all", "/$ORIGIN/x"},
                                           .config_dirs = {},
                                           .standard_dirs = false});
  EXPECT_THAT(catalog.directories(), IsEmpty());
  EXPECT_THAT(catalog.warnings(),
              ElementsAre(HasSubstr("'plugins' is passed over: want an absolute path"),
                          HasSubstr("'/nowhere/at/all' is passed over: No such"), HasSubstr("without '$'")));
}

TEST_F(PluginCatalogTest, ThePluginPathOfTheEnvironmentIsSearched) {
  setenv("BELAY_PLUGIN_PATH", ("relative::" + dir.path()).c_str(), 1);
  const Catalog catalog = Catalog::search({});
  unsetenv("BELAY_PLUGIN_PATH");
  EXPECT_NE(catalog.find("a"), nullptr);
}

}  // namespace
}  // namespace belay::core
