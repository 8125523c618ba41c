#include "services_fixture.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fstream>
#include <thread>

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

class PluginFilesTest : public ServicesTest {
 protected:
  const belay_fs_vt& table() { return service<belay_fs_vt>(BELAY_HOST_FS); }
  void data(const std::string& name, const std::string& text) {
    const fs::path file = fs::path(dir / "libbelay_a.data") / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string scratch(const belay_host* of) {
    StringSink path;
    const Status status = take(table().path(of, BELAY_FS_SCRATCH, path.sink()));
    EXPECT_TRUE(status.ok()) << status.message();
    return path.text();
  }
  Status read(uint32_t place, const std::string& name, std::string* text = nullptr) {
    StringSink sink;
    Status status = take(table().read(a, place, to_str(name), sink.sink()));
    if (text) *text = sink.text();
    return status;
  }
  Status write(const std::string& name, const std::string& text) {
    return take(table().write(a, to_str(name), {text.data(), text.size()}));
  }
};

TEST_F(PluginFilesTest, DataBesideTheLibraryIsReadAndNeverWritten) {
  EXPECT_EQ(read(BELAY_FS_DATA, "x").code(), Code::kNotFound);  // none came with the plugin
  data("sub/table.bin", std::string(200000, 't'));
  std::string text;
  const Status status = read(BELAY_FS_DATA, "sub/table.bin", &text);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(text, std::string(200000, 't'));
  int32_t fd = -1;
  EXPECT_EQ(take(table().open(a, BELAY_FS_DATA, to_str("sub/table.bin"), 1, &fd)).code(),
            Code::kPermissionDenied);
  ASSERT_EQ(table().open(a, BELAY_FS_DATA, to_str("sub/table.bin"), 0, &fd), BELAY_OK);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  char first = 0;
  EXPECT_EQ(pread(fd, &first, 1, 0), 1);
  EXPECT_EQ(first, 't');
  close(fd);
  EXPECT_EQ(take(table().read(b, BELAY_FS_DATA, to_str("sub/table.bin"), {})).code(),
            Code::kNotFound);  // of another
}

TEST_F(PluginFilesTest, DataThatOthersCouldChangeIsRefused) {
  data("x", "y");
  fs::permissions(dir / "libbelay_a.data", fs::perms(0777));
  const Status status = read(BELAY_FS_DATA, "x");
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("chmod go-w"));
}

TEST_F(PluginFilesTest, NoNameLeadsOutOfAPlace) {
  data("x", "y");
  dir.write("secret", "secret");
  const fs::path place = dir / "libbelay_a.data";
  fs::create_symlink(dir / "secret", place / "link");
  fs::create_directory_symlink(dir.path(), place / "folder");
  ASSERT_EQ(mkfifo((place / "pipe").c_str(), 0600), 0);
  for (const std::string name : {"../secret", "/etc/passwd", "", ".", "..", "a//b", "x/", "x/../x", "link",
                                 "folder/secret", "pipe", "x/y"})
    EXPECT_FALSE(read(BELAY_FS_DATA, name).ok()) << name;
  EXPECT_EQ(read(BELAY_FS_DATA, std::string("x\0y", 3)).code(), Code::kInvalidArgument);
  EXPECT_EQ(read(BELAY_FS_DATA, std::string(300, 'x')).code(), Code::kInvalidArgument);
  for (const std::string name : {"../x", "sub/x", "/tmp/x", ".."})
    EXPECT_EQ(write(name, "z").code(), Code::kInvalidArgument) << name;
  EXPECT_EQ(read(7, "x").code(), Code::kInvalidArgument);
}

TEST_F(PluginFilesTest, ScratchIsPrivateAndGoneWhenThePluginIsClosed) {
  const std::string own = scratch(a), other = scratch(b);
  EXPECT_NE(own, other);
  struct stat stat;
  ASSERT_EQ(::stat(own.c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 0777, 0700u);
  ASSERT_TRUE(write("cache.bin", "one").ok());
  ASSERT_TRUE(write("cache.bin", "two").ok());
  std::string text;
  ASSERT_TRUE(read(BELAY_FS_SCRATCH, "cache.bin", &text).ok());
  EXPECT_EQ(text, "two");
  int32_t fd = -1;
  ASSERT_EQ(table().open(a, BELAY_FS_SCRATCH, to_str("more"), 1, &fd), BELAY_OK);
  EXPECT_EQ(::write(fd, "abc", 3), 3);
  close(fd);
  EXPECT_TRUE(take(table().remove(a, to_str("more"))).ok());
  EXPECT_EQ(take(table().remove(a, to_str("more"))).code(), Code::kNotFound);
  ASSERT_TRUE(host->plugins().unload("a", 5s).ok());
  EXPECT_FALSE(fs::exists(own));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_THAT(log(), Not(Contains(HasSubstr("leaves behind"))));
  host.reset();
  EXPECT_FALSE(fs::exists(other));
}

TEST_F(PluginFilesTest, AFileThatCannotBeWrittenWholeIsAsItWas) {
  ASSERT_TRUE(write("f", "before").ok());
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit small{4096, unlimited.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);  // as a disk that is full; the process has no handler for its signal
  const Status status = write("f", std::string(100000, 'x'));
  setrlimit(RLIMIT_FSIZE, &unlimited);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'f' with 100000 bytes"), HasSubstr("it is as it was")));
  std::string text;
  ASSERT_TRUE(read(BELAY_FS_SCRATCH, "f", &text).ok());
  EXPECT_EQ(text, "before");
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(scratch(a))) ++files;
  EXPECT_EQ(files, 1u);  // no rest of the attempt
  ASSERT_EQ(mkdir((scratch(a) + "/folder").c_str(), 0700), 0);
  EXPECT_EQ(write("folder", "x").code(), Code::kInvalidArgument);
}

TEST_F(PluginFilesTest, WithoutDescriptorsOrAPlaceToMakeItAnErrorSaysSo) {
  data("x", "y");
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const Status no_descriptor = read(BELAY_FS_DATA, "x");
  const Status no_scratch = write("x", "y");
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(no_descriptor.code(), Code::kResourceExhausted);
  EXPECT_EQ(no_scratch.code(), Code::kResourceExhausted);
  make("[runtime]\nscratch_dir = \"/proc/none\"\n");
  const Status nowhere = write("x", "y");
  EXPECT_EQ(nowhere.code(), Code::kNotFound);
  EXPECT_THAT(nowhere.message(), HasSubstr("scratch folder '/proc/none'"));
}

TEST_F(PluginFilesTest, ManyThreadsWriteOneFileAndEveryReaderSeesAWholeOne) {
  ASSERT_TRUE(write("f", std::string(1000, '0')).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(write("f", std::string(1000, char('0' + t))).ok());
        std::string text;
        EXPECT_TRUE(read(BELAY_FS_SCRATCH, "f", &text).ok());
        EXPECT_EQ(text, std::string(1000, text[0]));
      }
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace belay::core
