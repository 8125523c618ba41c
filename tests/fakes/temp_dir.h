// tests/fakes/temp_dir.h: files of a test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace belay::testing {

namespace fs = std::filesystem;

// A folder for one test, removed after it.
class TempDir {
 public:
  TempDir() {
    std::string name = (fs::temp_directory_path() / "belay_core_XXXXXX").string();
    path_ = fs::canonical(mkdtemp(name.data()));
  }
  ~TempDir() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    fs::permissions(path_ / name, fs::perms(0644));
    return (path_ / name).string();
  }

 private:
  fs::path path_;
};

}  // namespace belay::testing
