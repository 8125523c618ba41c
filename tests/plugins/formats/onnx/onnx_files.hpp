// What the tests of the ONNX format share: files given to the importer or to the plugin, and models written
// by hand.
#pragma once

#include "plugins/formats/onnx/importer.hpp"

#include <belay/graph/verify.hpp>
#include <belay/graph/view.hpp>
#include <belay/tensor_io.hpp>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace belay::onnx {

// A model in memory with side files, as a reader would give them.
class MemoryFiles final : public Files {
 public:
  explicit MemoryFiles(std::string_view model) : model_(model) {}

  std::string_view model() override { return model_; }
  Result<Side> open(std::string_view name) override {
    opened.emplace_back(name);
    const auto at = sides.find(std::string(name));
    if (at == sides.end()) return Status(Code::kNotFound, "There is no file '" + std::string(name) + "'.");
    const auto [number, added] = numbers_.try_emplace(at->first, uint32_t(numbers_.size() + 1));
    return Side{number->second, at->second};
  }
  void warn(const std::string& text) override { warnings.push_back(text); }

  std::map<std::string, std::string> sides;
  std::vector<std::string> opened, warnings;

 private:
  std::string_view model_;
  std::map<std::string, uint32_t> numbers_;
};

// Files of a folder. Like a host's reader it refuses links and what is no regular file.
class FolderFiles final : public Files {
 public:
  FolderFiles(std::filesystem::path model, std::string_view bytes)
      : folder_(model.parent_path()), bytes_(bytes) {}

  std::string_view model() override { return bytes_; }
  Result<Side> open(std::string_view name) override {
    const std::filesystem::path path = folder_ / name;
    std::error_code error;
    const auto real = std::filesystem::canonical(path, error);
    if (error || real != std::filesystem::canonical(folder_, error) / name)
      return Status(Code::kNotFound, "There is no file '" + path.string() + "', or a link leads to it.");
    BELAY_ASSIGN(std::string bytes, read_file(path));
    const auto [at, added] =
        sides_.try_emplace(std::string(name), uint32_t(sides_.size() + 1), std::move(bytes));
    return Side{at->second.first, at->second.second};
  }
  void warn(const std::string& text) override { warnings.push_back(text); }

  std::vector<std::string> warnings;

 private:
  std::filesystem::path folder_;
  std::string_view bytes_;
  std::map<std::string, std::pair<uint32_t, std::string>> sides_;
};

// The image, accepted by the verifier; the error of either.
inline Result<std::string> import(Files& files) {
  Importer importer(files);
  BELAY_ASSIGN(std::string image, importer.run());
  BELAY_TRY(importer.check_operators());
  if (Status status = graph::verify({image.data(), image.size()}); !status.ok())
    return Status(Code::kInternal, "The verifier refuses the image: " + status.message());
  return image;
}

inline Result<std::string> import_file(const std::filesystem::path& path,
                                       std::vector<std::string>* warnings = nullptr) {
  BELAY_ASSIGN(const std::string bytes, read_file(path));
  FolderFiles files(path, bytes);
  auto image = import(files);
  if (warnings) *warnings = files.warnings;
  return image;
}

}  // namespace belay::onnx
