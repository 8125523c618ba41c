#include "core/discovery/plugin_file.h"

#include "fakes/plugins/install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <cstring>

namespace belay::core {
namespace {

using belay::testing::fake_file;
using belay::testing::install;
using belay::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
namespace fs = std::filesystem;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class PluginFileTest : public ::testing::Test {
 protected:
  PluginFileTest() : file(install(dir, "a")) {}
  Status check(bool insecure = false) { return check_plugin_file(file, insecure).status(); }
  template <class T>
  void patch(size_t offset, T value) {
    std::string bytes = bytes_of(file);
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    fs::remove(file);
    dir.write("libbelay_a.so", bytes);
  }
  Elf64_Ehdr header() {
    Elf64_Ehdr ehdr;
    std::memcpy(&ehdr, bytes_of(file).data(), sizeof ehdr);
    return ehdr;
  }
  // Offset of the program header of a type.
  size_t segment(uint32_t type) {
    const std::string bytes = bytes_of(file);
    for (size_t i = 0; i < header().e_phnum; ++i) {
      Elf64_Phdr phdr;
      const size_t at = header().e_phoff + i * sizeof phdr;
      std::memcpy(&phdr, bytes.data() + at, sizeof phdr);
      if (phdr.p_type == type) return at;
    }
    ADD_FAILURE() << "no segment of type " << type;
    return 0;
  }

  TempDir dir;
  std::string file;
};

TEST_F(PluginFileTest, AGoodFileTellsWhatItIs) {
  const auto found = check_plugin_file(file, false);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->id(), "a");
  EXPECT_EQ(found->version(), "1.0.0");
  EXPECT_THAT(found->exports, ElementsAre("belay_plugin_v0"));
}

TEST_F(PluginFileTest, SpecialFilesAreRefusedAndNothingHangs) {
  fs::remove(file);
  EXPECT_EQ(check().code(), Code::kNotFound);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(check().message(), HasSubstr("is a pipe (FIFO), want a regular file"));
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_THAT(check().message(), HasSubstr("is a directory, want a regular file"));
  fs::remove(file);
  fs::create_symlink(fake_file("a"), file);
  EXPECT_THAT(check().message(), HasSubstr("it is a symbolic link, want a regular file"));
  EXPECT_THAT(check_plugin_file("libbelay_a.so", true).status().message(), HasSubstr("cannot be opened"));
}

TEST_F(PluginFileTest, WhatOthersCouldReplaceIsRefusedUnlessAllowed) {
  fs::permissions(file, fs::perms(0666));
  EXPECT_THAT(
      check().message(),
      AllOf(HasSubstr("mode 0666 on the file lets others replace code - chmod go-w"), HasSubstr(file)));
  EXPECT_EQ(check().code(), Code::kPermissionDenied);
  EXPECT_TRUE(check(true).ok());
  fs::permissions(file, fs::perms(0644));
  fs::permissions(dir.path(), fs::perms(0777));
  EXPECT_THAT(check().message(),
              HasSubstr("mode 0777 on directory '" + dir.path() + "' lets others replace code"));
  ASSERT_EQ(chmod(dir.path().c_str(), 01777), 0);
  EXPECT_TRUE(check().ok());  // sticky: others cannot replace what is ours
  fs::permissions(dir.path(), fs::perms(0700));
  if (geteuid() == 0) {
    ASSERT_EQ(chown(file.c_str(), 12345, 0), 0);
    EXPECT_THAT(check().message(), HasSubstr("owner 12345 of the file can replace code - want root (or"));
  }
}

TEST_F(PluginFileTest, WhatIsNoElfLibraryOfThisMachineIsRefused) {
  fs::remove(file);
  dir.write("libbelay_a.so", "");
  EXPECT_THAT(check().message(), HasSubstr("it has 0 bytes, too few for an ELF file"));
  dir.write("libbelay_a.so", std::string(4096, 'x'));
  EXPECT_THAT(check().message(), HasSubstr("it is no ELF file"));
  install(dir, "a");
  patch<uint8_t>(EI_CLASS, ELFCLASS32);
  EXPECT_THAT(check().message(), HasSubstr("it is not a 64-bit little-endian ELF file"));
  install(dir, "a");
  patch<uint16_t>(offsetof(Elf64_Ehdr, e_machine), EM_S390);
  EXPECT_THAT(check().message(), HasSubstr("it is made for machine 22, this machine is "));
  install(dir, "a");
  patch<uint16_t>(offsetof(Elf64_Ehdr, e_type), ET_REL);
  EXPECT_THAT(check().message(), HasSubstr("it is no shared library"));
  fs::remove(file);
  fs::copy_file("/proc/self/exe", file);
  EXPECT_THAT(check().message(), HasSubstr("it is a program, not a library"));
}

TEST_F(PluginFileTest, LyingHeadersAreRefused) {
  patch<uint16_t>(offsetof(Elf64_Ehdr, e_phnum), 0xffff);
  EXPECT_THAT(check().message(), HasSubstr("its program headers make no sense (65535 of 56 bytes)"));
  install(dir, "a");
  patch<uint64_t>(offsetof(Elf64_Ehdr, e_phoff), UINT64_MAX - 8);
  EXPECT_THAT(check().message(), HasSubstr("its program headers lie outside of the file"));
  install(dir, "a");
  patch<uint64_t>(segment(PT_LOAD) + offsetof(Elf64_Phdr, p_filesz), uint64_t(256) << 30);
  EXPECT_THAT(check().message(), HasSubstr("it is truncated"));
  install(dir, "a");
  patch<uint32_t>(segment(PT_LOAD) + offsetof(Elf64_Phdr, p_flags), PF_R | PF_W | PF_X);
  EXPECT_THAT(check().message(), HasSubstr("a segment can be written and executed"));
  install(dir, "a");
  patch<uint32_t>(segment(PT_DYNAMIC) + offsetof(Elf64_Phdr, p_type), PT_NULL);
  EXPECT_THAT(check().message(), HasSubstr("it has no dynamic section"));
  install(dir, "a");
  patch<uint32_t>(segment(PT_GNU_STACK) + offsetof(Elf64_Phdr, p_type), PT_NULL);
  EXPECT_THAT(check().message(), HasSubstr("it does not say that its stack is not executable"));
}

TEST_F(PluginFileTest, EveryTruncationIsRefusedWithoutHarm) {
  const std::string bytes = bytes_of(file);
  Elf64_Phdr phdr;
  size_t end = 0;  // of the segments: what follows (sections) may be missing
  for (size_t i = 0; i < header().e_phnum; ++i) {
    std::memcpy(&phdr, bytes.data() + header().e_phoff + i * sizeof phdr, sizeof phdr);
    end = std::max(end, size_t(phdr.p_offset + phdr.p_filesz));
  }
  for (size_t length = 0; length < end; length += 97) {
    fs::remove(file);
    dir.write("libbelay_a.so", bytes.substr(0, length));
    EXPECT_FALSE(check().ok()) << length;
  }
}

TEST_F(PluginFileTest, EveryFlippedByteOfTheTablesIsSurvived) {
  std::string bytes = bytes_of(file);
  const size_t end = std::min<size_t>(bytes.size(), 4096);
  for (size_t at = 0; at < end; at += 3)
    for (const char value : {char(0), char(0xff), char(0x80)}) {
      const char before = std::exchange(bytes[at], value);
      fs::remove(file);
      dir.write("libbelay_a.so", bytes);
      static_cast<void>(check());  // either answer is fine; the sanitizers look on
      bytes[at] = before;
    }
}

}  // namespace
}  // namespace belay::core
