// Whole files: the conformance data of ONNX, the test models, the bad files, and shared data where it is.
#include "onnx_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>

namespace belay::onnx {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> models_in(const fs::path& root) {
  std::vector<fs::path> out;
  if (fs::is_directory(root))
    for (const auto& entry : fs::recursive_directory_iterator(root))
      if (entry.path().extension() == ".onnx") out.push_back(entry.path());
  return out;
}

size_t expect_all_read(const fs::path& root) {
  const auto files = models_in(root);
  for (const fs::path& file : files) {
    const auto image = import_file(file);
    EXPECT_TRUE(image.ok()) << file << ": " << image.status().message();
  }
  return files.size();
}

TEST(OnnxFilesTest, EveryConformanceCaseIsRead) {
  const fs::path root = "/usr/share/libonnx-testdata/data";
  if (!fs::is_directory(root)) GTEST_SKIP() << "the package libonnx-testdata is not installed";
  EXPECT_GE(expect_all_read(root), 1072u);
}

TEST(OnnxFilesTest, EverySharedModelIsRead) {
  const char* set = std::getenv("BELAY_SHARED_DATA");
  const fs::path root = set ? set : BELAY_SHARED_DATA;
  if (!fs::is_directory(root))
    GTEST_SKIP() << "there is no folder " << root << "; BELAY_SHARED_DATA says where it is";
  EXPECT_GT(expect_all_read(root / "models") + expect_all_read(root / "onnx-light"), 0u);
}

TEST(OnnxFilesTest, EveryTestModelIsRead) {
  if (models_in("models/good").empty()) GTEST_SKIP() << "no test models: python3-onnx is not installed";
  expect_all_read("models/good");
  EXPECT_TRUE(import_file(BELAY_TEST_ROOT "/sdk/examples/digits/digits.onnx").ok());
}

// Left to who knows the types of all values: the reader accepts these.
bool needs_types(const std::string& name) {
  return name == "subgraphs/if_on_a_float.onnx" || name == "subgraphs/scan_axis_7.onnx";
}

TEST(OnnxFilesTest, BadFilesAreRefusedWithWordsThatHelp) {
  const fs::path root = "models/bad";
  std::ifstream listing(root / "expected.json");
  if (!listing) GTEST_SKIP() << "no test models: python3-onnx is not installed";
  const auto expected = nlohmann::json::parse(listing);
  for (const auto& [name, words] : expected["load"].items()) {
    const Status status = import_file(root / name).status();
    if (needs_types(name)) continue;
    EXPECT_FALSE(status.ok()) << name;
    for (const auto& word : words) {
      bool found = false;
      for (const auto& choice : word.is_array() ? word : nlohmann::json::array({word}))
        found = found || status.message().find(choice.get<std::string>()) != std::string::npos;
      EXPECT_TRUE(found) << name << ": no " << word << " in: " << status.message();
    }
  }
  for (const std::string name : expected["accepted"]) {
    const Status status = import_file(root / name).status();
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  for (const std::string name : expected["any"]) (void)import_file(root / name);
  for (const auto& [name, words] : expected["run"].items()) (void)import_file(root / name);
}

}  // namespace
}  // namespace belay::onnx
