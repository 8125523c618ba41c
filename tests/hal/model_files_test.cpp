#include "hal/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <belay/testing/fake_host.hpp>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <thread>

namespace belay::hal {
namespace {

using belay::testing::FakeHost;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ModelFilesTest : public ::testing::Test {
 protected:
  ModelFilesTest() {
    std::string name = (fs::temp_directory_path() / "belay_files_XXXXXX").string();
    dir_ = mkdtemp(name.data());
  }
  ~ModelFilesTest() override { fs::remove_all(dir_); }
  std::string write(const std::string& name, const std::string& text) {
    fs::create_directories((fs::path(dir_) / name).parent_path());
    std::ofstream(fs::path(dir_) / name, std::ios::binary) << text;
    return dir_ + "/" + name;
  }
  static std::string_view text(const ModelFile& file) {
    return {static_cast<const char*>(file.bytes().ptr), file.bytes().len};
  }
  Status beneath(std::string_view name) { return ModelFile::open_beneath(dir_, name, false).status(); }
  std::string dir_;
};

TEST_F(ModelFilesTest, AFileIsMappedOrCopied) {
  const std::string path = write("model.onnx", "hello");
  for (bool copy : {false, true}) {
    auto file = ModelFile::open(path, copy);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(text(**file), "hello");
    EXPECT_TRUE((*file)->check().ok());
  }
}

TEST_F(ModelFilesTest, AFileIsMappedOnceAsLongAsItDoesNotChange) {
  const std::string path = write("model.onnx", "hello");
  fs::create_hard_link(path, path + ".too");
  auto one = ModelFile::open(path, false).value(), two = ModelFile::open(path + ".too", false).value();
  EXPECT_EQ(one->bytes().ptr, two->bytes().ptr);
  EXPECT_NE(ModelFile::open(path, true).value()->bytes().ptr, one->bytes().ptr);
  one.reset();
  EXPECT_EQ(text(*two), "hello");
  fs::remove(path), fs::remove(path + ".too");  // another file of that name is another one
  write("model.onnx", "hullo");
  auto other = ModelFile::open(path, false).value();
  EXPECT_EQ(text(*two), "hello");
  EXPECT_EQ(text(*other), "hullo");
  write("model.onnx", "hello, it grew");
  EXPECT_EQ(other->check().code(), Code::kDataLoss);
  auto grown = ModelFile::open(path, false).value();
  EXPECT_EQ(text(*grown), "hello, it grew");
  EXPECT_TRUE(grown->check().ok());
}

TEST_F(ModelFilesTest, AMissingFileNamesTheNearest) {
  write("model.onnx", "x");
  const Status status = ModelFile::open(dir_ + "/modle.onnx", false).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("modle.onnx"), HasSubstr("did you mean 'model.onnx'?")));
  EXPECT_EQ(ModelFile::open(dir_ + "/no/such/folder/m.onnx", false).status().code(), Code::kNotFound);
}

TEST_F(ModelFilesTest, WhatIsNoRegularFileIsRefusedAndNothingHangs) {
  EXPECT_THAT(ModelFile::open(dir_, false).status().message(), HasSubstr("is a folder"));
  ASSERT_EQ(mkfifo((dir_ + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(ModelFile::open(dir_ + "/pipe", false).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ModelFile::open("/dev/zero", false).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ModelFile::open("", false).status().code(), Code::kInvalidArgument);
}

TEST_F(ModelFilesTest, AnEmptyFileHasNoBytes) {
  auto file = ModelFile::open(write("empty", ""), false);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->bytes().len, 0u);
}

TEST_F(ModelFilesTest, SideFilesStayInTheFolderOfTheModel) {
  write("weights.bin", "w");
  write("sub/more.bin", "m");
  const std::string outside = dir_ + "_outside";
  std::ofstream(outside) << "secret";
  EXPECT_TRUE(beneath("weights.bin").ok());
  EXPECT_TRUE(beneath("./sub//more.bin").ok());
  for (const char* name :
       {"../x", "sub/../../x", "a/../weights.bin", "/etc/passwd", "\\\\host\\x", "C:\\x", "c:x", "sub/", "."})
    EXPECT_EQ(beneath(name).code(), Code::kPermissionDenied) << name;
  EXPECT_EQ(beneath(std::string_view("a\0b", 3)).code(), Code::kPermissionDenied);
  EXPECT_EQ(beneath(std::string(5000, 'a')).code(), Code::kPermissionDenied);
  EXPECT_EQ(beneath("").code(), Code::kInvalidArgument);
  EXPECT_EQ(beneath("sub").code(), Code::kInvalidArgument);  // a folder
  const Status missing = beneath("weigths.bin");
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("did you mean 'weights.bin'"));
  fs::create_symlink(outside, dir_ + "/link.bin");
  fs::create_directory_symlink("/etc", dir_ + "/linked");
  EXPECT_THAT(beneath("link.bin").message(), HasSubstr("symbolic link"));
  EXPECT_EQ(beneath("linked/passwd").code(), Code::kPermissionDenied);
  fs::remove(outside);
}

TEST_F(ModelFilesTest, AChangedFileIsNamed) {
  const std::string path = write("model.onnx", "hello");
  auto mapped = ModelFile::open(path, false);
  auto copied = ModelFile::open(path, true);
  ASSERT_TRUE(mapped.ok() && copied.ok());
  std::ofstream(path, std::ios::app) << "more";
  const Status status = (*mapped)->check();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("model.onnx"), HasSubstr("from 5 to 9 bytes"),
                                      HasSubstr("weights = \"copy\"")));
  EXPECT_TRUE((*copied)->check().ok());
}

TEST_F(ModelFilesTest, AFileReplacedByAnotherOfItsNameIsStillTheOldOne) {
  const std::string path = write("model.onnx", "old");
  auto file = ModelFile::open(path, false);
  fs::rename(write("new", "new one"), path);
  EXPECT_TRUE((*file)->check().ok());
  EXPECT_EQ(text(**file), "old");
}

// Address sanitizer and thread sanitizer report SIGBUS themselves before the handler of this library is
// asked, unless it was installed later; it is, as they install theirs before main.
TEST_F(ModelFilesTest, ReadingBehindTheNewEndOfAFileGivesZerosAndIsKnown) {
  const std::string path = write("model.onnx", std::string(5 * 4096, 'x'));
  auto file = ModelFile::open(path, false);
  ASSERT_TRUE(file.ok());
  const char* bytes = static_cast<const char*>((*file)->bytes().ptr);
  EXPECT_EQ(bytes[4 * 4096], 'x');
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  uint64_t sum = 0;
  std::thread reader([&] {  // as a worker of a device would
    for (size_t i = 0; i < 5 * 4096; ++i) sum += uint8_t(bytes[i]);
  });
  reader.join();
  EXPECT_EQ(sum, 4096u * 'x');
  EXPECT_TRUE((*file)->damaged());
  EXPECT_EQ((*file)->check().code(), Code::kDataLoss);
}

TEST_F(ModelFilesTest, AnotherBusErrorEndsTheProcessAsBefore) {
  auto watched = ModelFile::open(write("model.onnx", "x"), false);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGBUS, SIG_DFL);
    raise(SIGBUS);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_F(ModelFilesTest, TheReaderGivesSourcesByNumber) {
  write("weights.bin", "0123456789");
  auto model = ModelFile::open(write("model.onnx", "model"), false);
  FakeHost host;
  {
    ModelFiles files(std::move(model).value(), false);
    belay_model_reader* reader = files.reader(host);
    belay_span span{};
    ASSERT_EQ(reader->map(reader, 0, &span), BELAY_OK);
    EXPECT_EQ(span.len, 5u);
    uint32_t source = 0, again = 0;
    ASSERT_EQ(reader->open(reader, to_str("weights.bin"), &source), BELAY_OK);
    ASSERT_EQ(reader->open(reader, to_str("weights.bin"), &again), BELAY_OK);
    EXPECT_EQ(source, 1u);
    EXPECT_EQ(again, 1u);
    ASSERT_EQ(reader->map(reader, 1, &span), BELAY_OK);
    EXPECT_EQ(span.len, 10u);
    EXPECT_EQ(host.take(reader->map(reader, 2, &span)).code(), Code::kOutOfRange);
    EXPECT_EQ(host.take(reader->open(reader, to_str("../x"), &source)).code(), Code::kPermissionDenied);
    EXPECT_TRUE(files.check().ok());
    EXPECT_TRUE(files.check_damage().ok());
  }
  EXPECT_EQ(host.live_details(), 0u);
}

TEST_F(ModelFilesTest, AModelInMemoryNeedsAFolderForSideFiles) {
  write("weights.bin", "w");
  FakeHost host;
  ModelFiles alone({"abc", 3}, "", false), placed({"abc", 3}, dir_, false);
  uint32_t source = 0;
  belay_model_reader* reader = alone.reader(host);
  const Status status = host.take(reader->open(reader, to_str("weights.bin"), &source));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("weights.bin"));
  reader = placed.reader(host);
  EXPECT_EQ(reader->open(reader, to_str("weights.bin"), &source), BELAY_OK);
}

}  // namespace
}  // namespace belay::hal
