#include "templates.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <belay/tensor_io.hpp>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace belay::cli {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr size_t kLongestId = 64;

void check_id(const std::string& id) {
  const auto small = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool good = !id.empty() && id.size() <= kLongestId && small(id[0]) &&
                    std::all_of(id.begin(), id.end(), [&](char c) {
                      return small(c) || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
                    });
  if (!good)
    fail_usage(
        "'" + printable(id) +
            "' is no id of a plugin; want a small letter, then small letters, digits, '.', '_' or '-', " +
            std::to_string(kLongestId) + " in all at most.",
        "Ids of plugins are unique: one like vendor.thing does not meet another's.");
}

// A template's text with the id in it. C has no '.' and '-' in names: there they are '_'.
std::string filled(std::string_view text, const std::string& id) {
  std::string name = id, out;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
  while (!text.empty()) {
    const size_t at = text.find('@');
    out.append(text.substr(0, at));
    if (at == text.npos) break;
    text.remove_prefix(at);
    const bool is_id = text.starts_with("@ID@"), is_name = text.starts_with("@NAME@");
    out += is_id ? id : is_name ? name : "@";
    text.remove_prefix(is_id ? 4 : is_name ? 6 : 1);
  }
  return out;
}

[[noreturn]] void cannot_make(const std::string& folder, int error) {
  throw Failure{
      Exit::kInput,
      error == EACCES || error == EPERM || error == EROFS ? "PERMISSION_DENIED" : "INVALID_ARGUMENT",
      "Cannot make the folder '" + folder + "': " + std::strerror(error) + ".",
      "Name another place with --dir DIR."};
}

[[noreturn]] void there_already(const std::string& folder) {
  throw Failure{Exit::kInput, "ALREADY_EXISTS",
                "There is something at '" + folder + "' already; nothing was changed.",
                "Choose another id, or another place with --dir DIR."};
}

// A folder beside the one that is to be, under a name that nobody uses; it goes with all that is in it unless
// it gets its own name. So the project is there whole or not at all.
class Draft {
 public:
  Draft(const std::string& parent, const std::string& folder)
      : folder_(folder), path_(parent + "/.belay-new.XXXXXX") {
    if (!mkdtemp(path_.data())) {
      path_.clear();
      cannot_make(folder, errno);
    }
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  void write(std::string_view name, const std::string& text) {
    const std::string file = "/" + std::string(name);
    const Status written = write_file(path_ + file, text);
    if (written.ok()) return;
    std::string message = written.message();  // names the file of the draft
    if (const size_t at = message.find(path_); at != message.npos) message.replace(at, path_.size(), folder_);
    fail_input(message + " Nothing was left behind.");
  }
  void keep() {
    const mode_t mask = umask(0);
    umask(mask);
    if (chmod(path_.c_str(), 0777 & ~mask) != 0) cannot_make(folder_, errno);
    // Somebody may have made something there meanwhile; not every file system can look and rename in one
    // step.
    int failed = renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, folder_.c_str(), RENAME_NOREPLACE);
    if (failed && (errno == EINVAL || errno == ENOSYS)) {
      if (::access(folder_.c_str(), F_OK) == 0) there_already(folder_);
      failed = rename(path_.c_str(), folder_.c_str());
    }
    if (failed && (errno == EEXIST || errno == ENOTEMPTY)) there_already(folder_);
    if (failed) cannot_make(folder_, errno);
    path_.clear();
  }

 private:
  const std::string folder_;
  std::string path_;
};

// Where find_package(belay) finds the installation that this program is of; empty: it is of none.
std::string installed_prefix() {
  std::error_code error;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  return !error && fs::exists(prefix / kPackageFile, error) ? prefix.string() : "";
}

}  // namespace

Exit plugins_new(const NewPluginOptions& options, Output& output) {
  if (std::find(plugin_kinds().begin(), plugin_kinds().end(), options.kind) == plugin_kinds().end())
    fail_usage(
        "There is no kind '" + printable(options.kind) + "'; kinds are " + joined(plugin_kinds()) + ".",
        did_you_mean(options.kind, plugin_kinds()));
  check_id(options.id);
  const std::string parent = options.dir.empty() ? "." : options.dir;
  need_folder(parent);
  const std::string folder = options.dir.empty() ? options.id : (fs::path(parent) / options.id).string();
  if (fs::symlink_status(folder).type() != fs::file_type::not_found) there_already(folder);

  const Interruptible whole;  // Ctrl-C waits for these few files
  Draft draft(parent, folder);
  std::vector<std::string> files;
  for (const TemplateFile& file : template_files()) {
    if (file.kind != options.kind) continue;
    draft.write(file.name, filled(file.text, options.id));
    files.emplace_back(file.name);
  }
  draft.keep();

  const std::string prefix = installed_prefix();
  if (output.json) {
    output.document("belay.plugins-new/1",
                    {{"kind", options.kind}, {"id", options.id}, {"folder", folder}, {"files", files}});
    return Exit::kOk;
  }
  const std::string at = printable(folder);
  output.print("Plugin '" + options.id + "' (" + options.kind + ") is in " + at + ": " + joined(files) +
               "\nNext:\n  cmake -S " + at + " -B " + at + "/build -DCMAKE_PREFIX_PATH=" +
               (prefix.empty() ? "<where Belay is installed>" : printable(prefix)) + "\n  cmake --build " +
               at + "/build && ctest --test-dir " + at + "/build\nThen " + at + "/README.md\n");
  return Exit::kOk;
}

}  // namespace belay::cli
