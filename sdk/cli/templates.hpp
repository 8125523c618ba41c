// The files of sdk/templates, which `belay plugins new` writes.
#pragma once

#include <span>
#include <string_view>

namespace belay::cli {

struct TemplateFile {
  std::string_view kind;  // "driver"
  std::string_view name;  // "plugin.cpp"
  std::string_view
      text;  // with @ID@ and @NAME@ where the plugin's id is to be, and what CMake makes of it for C
};
std::span<const TemplateFile> template_files();

// In the prefix of an installation, whether find_package(belay) finds it there.
extern const std::string_view kPackageFile;

}  // namespace belay::cli
