#include "core/discovery/plugin_catalog.h"

#include "core/base/files.h"
#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/discovery/plugin_file.h"
#include "core/guard/probe.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

namespace belay::core {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kManifestEnd = ".plugin.toml", kLibraryEnd = ".so";

// The folder of the library or program that this code is in; empty: not known.
fs::path own_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&own_folder), &info) || !info.dli_fname) return {};
  std::error_code error;
  // The name of the program itself is as it was called, so the kernel is asked for it.
  fs::path self = fs::canonical(info.dli_fname, error);
  if (error || std::string_view(info.dli_fname).find('/') == std::string_view::npos)
    self = fs::canonical("/proc/self/exe", error);
  return error ? fs::path() : self.parent_path();
}

// <prefix>/lib/belay/plugins, seen from lib/libbelay.so or bin/program.
std::vector<std::string> installed_dirs() {
  const fs::path folder = own_folder();
  if (folder.empty()) return {};
  return {(folder / "belay/plugins").string(), (folder.parent_path() / "lib/belay/plugins").string()};
}

Result<Manifest> read_manifest(const std::string& path, bool allow_insecure) {
  BELAY_ASSIGN(const OpenFile file, open_regular(path, 256 << 10, "manifest", false));
  if (!allow_insecure) BELAY_TRY(check_not_replaceable(file, path, "manifest"));
  BELAY_ASSIGN(const std::string text, read_at(file, 0, uint64_t(file.stat.st_size), path));
  return parse_manifest(path, text);
}

Status check_pair(const Manifest& manifest, const PluginFile& file) {
  const auto differ = [&](const char* what, const std::string& theirs, const std::string& ours) {
    return Status(Code::kInvalidArgument, "plugin " + quote(manifest.id) + " refused: its manifest says " +
                                              what + " " + quote(theirs) + ", its library says " +
                                              quote(ours) + " (" + file.path +
                                              ") - install both from one build");
  };
  if (manifest.id != file.id()) return differ("id", manifest.id, file.id());
  if (manifest.version != file.version()) return differ("version", manifest.version, file.version());
  const std::string theirs = std::to_string(manifest.abi_major) + "." + std::to_string(manifest.abi_minor);
  const std::string ours = std::to_string(file.note.abi_major) + "." + std::to_string(file.note.abi_minor);
  if (theirs != ours) return differ("abi", theirs, ours);
  Sha256 of_build;
  std::copy(std::begin(file.note.manifest_sha256), std::end(file.note.manifest_sha256), of_build.begin());
  if (const Sha256 found = sha256(manifest.text); of_build != Sha256{} && of_build != found)
    return differ("SHA-256", hex(found), hex(of_build));
  return {};
}

}  // namespace

Catalog Catalog::search(const CatalogOptions& options) {
  Catalog catalog;
  if (!options.state_dir.empty() && options.state_dir != "none" && !options.state_dir.starts_with('/'))
    catalog.warnings_.push_back("[runtime] state_dir " + quote(options.state_dir) +
                                " is passed over: want an absolute path, or \"none\"");
  catalog.quarantine_ = std::make_shared<Quarantine>(Quarantine::directory(options.state_dir));
  catalog.quarantine_->look_for_the_dead();
  std::vector<std::string> wanted = options.first_dirs;
  wanted.insert(wanted.end(), options.config_dirs.begin(), options.config_dirs.end());
  size_t named = wanted.size();
  if (options.standard_dirs) {
    for (std::string& dir : installed_dirs()) wanted.push_back(std::move(dir));
    if (const char* path = getauxval(AT_SECURE) ? nullptr : std::getenv("BELAY_PLUGIN_PATH"))
      for (std::string& dir : split_list(path)) wanted.push_back(std::move(dir));
  }
  std::set<std::string> seen, installed;
  for (const std::string& dir : installed_dirs())
    if (std::error_code error; fs::exists(dir, error)) installed.insert(fs::canonical(dir, error).string());
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::error_code error;
    const fs::path dir = wanted[i].starts_with('/') && wanted[i].find('$') == std::string::npos
                             ? fs::canonical(wanted[i], error)
                             : fs::path();
    if (dir.empty()) {
      catalog.warnings_.push_back("directory of plugins " + quote(wanted[i]) + " is passed over: " +
                                  (error ? error.message() : "want an absolute path without '$'"));
      if (error && i >= named) catalog.warnings_.pop_back();  // a standard place need not be there
      continue;
    }
    if (!seen.insert(dir.string()).second) continue;
    catalog.directories_.push_back(dir.string());
    std::set<std::string> names, libraries;  // sorted, so the order does not depend on the file system
    for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (name.ends_with(kManifestEnd)) names.insert(name.substr(0, name.size() - kManifestEnd.size()));
      if (name.starts_with("libbelay_") && name.ends_with(kLibraryEnd))
        names.insert(name.substr(0, name.size() - kLibraryEnd.size()));
    }
    if (error)
      catalog.warnings_.push_back("directory of plugins " + quote(dir.string()) + ": " + error.message());
    for (const std::string& name : names)
      catalog.add((dir / name).string(), options.allow_insecure, installed.contains(dir.string()));
    // A build tree or an installation keeps its plugins further down.
    if (const fs::path below = dir / "lib/belay/plugins"; i < named && fs::is_directory(below, error)) {
      wanted.insert(wanted.begin() + ptrdiff_t(i) + 1, below.string());  // before what comes after this one
      ++named;
    }
  }
  for (const std::string& file : options.files)
    catalog.add(file.ends_with(kLibraryEnd) ? file.substr(0, file.size() - kLibraryEnd.size()) : file,
                options.allow_insecure, false);
  std::stable_sort(catalog.plugins_.begin(), catalog.plugins_.end(),
                   [](const FoundPlugin& a, const FoundPlugin& b) { return a.manifest.id < b.manifest.id; });
  return catalog;
}

void Catalog::add(const std::string& stem, bool allow_insecure, bool installed) {
  FoundPlugin plugin;
  plugin.installed = installed;
  const fs::path manifest_file = stem + std::string(kManifestEnd);
  std::string library = stem + std::string(kLibraryEnd);
  std::error_code error;
  const bool has_manifest = fs::symlink_status(manifest_file, error).type() != fs::file_type::not_found;
  if (has_manifest) {
    Result<Manifest> manifest = read_manifest(manifest_file.string(), allow_insecure);
    if (manifest.ok()) {
      plugin.manifest = std::move(manifest).value();
      library = (manifest_file.parent_path() / plugin.manifest.library).string();
    } else {
      plugin.refused = manifest.status();
    }
  }
  plugin.file = library;
  if (plugin.refused.ok()) {
    Result<PluginFile> file = check_plugin_file(library, allow_insecure);
    if (file.ok()) {
      plugin.file = file->path, plugin.device = file->device, plugin.inode = file->inode;
      if (has_manifest) {
        plugin.refused = check_pair(plugin.manifest, *file);
      } else {  // the note alone is enough; what the plugin offers is known when it is loaded
        plugin.manifest.id = file->id(), plugin.manifest.version = file->version();
        plugin.manifest.abi_major = file->note.abi_major, plugin.manifest.abi_minor = file->note.abi_minor;
      }
    } else {
      plugin.refused = file.status();
    }
  }
  if (plugin.manifest.id.empty()) {  // a broken one still has a name in lists
    const std::string name = fs::path(stem).filename().string();
    plugin.manifest.id = name.starts_with("libbelay_") ? name.substr(9) : name;
  }
  if (plugin.refused.ok()) {
    plugin.refused = quarantine_->check(plugin.manifest.id, plugin.file);
    plugin.quarantined = !plugin.refused.ok();
  }
  const FoundPlugin* other = find(plugin.manifest.id);
  if (other && other->file == plugin.file) return;
  if (other && plugin.refused.ok())
    plugin.refused = {Code::kAlreadyExists, "plugin " + quote(plugin.manifest.id) + " of " + plugin.file +
                                                " is shadowed by " + other->file + ", found before it"};
  plugins_.push_back(std::move(plugin));
}

Status Catalog::probe(const FoundPlugin& plugin, bool allow_insecure,
                      std::chrono::nanoseconds deadline) const {
  const std::string program = (own_folder().parent_path() / "bin/belay").string(), &id = plugin.manifest.id;
  if (quarantine_->harmless(plugin.file) || access(program.c_str(), X_OK) != 0) return {};
  BELAY_ASSIGN(const ProbeResult result,
               core::probe({.command = {program, "plugins", "probe", id, "--quiet", "--plugin-dir",
                                        fs::path(plugin.file).parent_path().string(), "--set",
                                        allow_insecure ? "runtime.allow_insecure=true"
                                                       : "runtime.allow_insecure=false"},
                            .deadline = deadline}));
  if (result.survived) {
    quarantine_->set_harmless(id, plugin.file);
    return {};
  }
  const std::string said = result.output.empty() ? "" : "; its output: " + result.output;
  static_cast<void>(quarantine_->add(id, plugin.file, result.what + " while probing" + said));
  return quarantine_->check(id, plugin.file);
}

const FoundPlugin* Catalog::find(std::string_view id) const {
  const FoundPlugin* refused = nullptr;
  for (const FoundPlugin& plugin : plugins_) {
    if (plugin.manifest.id != id) continue;
    if (plugin.refused.ok()) return &plugin;
    if (!refused) refused = &plugin;
  }
  return refused;
}

std::vector<const FoundPlugin*> Catalog::offering(std::string_view key) const {
  std::vector<const FoundPlugin*> found;
  for (const FoundPlugin& plugin : plugins_)
    for (const ManifestComponent& component : plugin.manifest.components)
      if (component.key() == key) found.push_back(&plugin);
  return found;
}

Status Catalog::not_found(std::string_view key_or_id) const {
  std::vector<std::string> known;
  for (const FoundPlugin& plugin : plugins_) {
    known.push_back(plugin.manifest.id);
    for (const ManifestComponent& component : plugin.manifest.components) known.push_back(component.key());
  }
  const bool key = key_or_id.find(':') != std::string_view::npos;
  std::string text = (key ? "no plugin offers " : "no plugin has the id ") + quote(key_or_id) +
                     did_you_mean(key_or_id, known) +
                     " (searched: " + (directories_.empty() ? "no directory" : joined(directories_)) + ")";
  // One that cannot be read may be the one that is wanted.
  const auto refused = [](const FoundPlugin& plugin) { return !plugin.refused.ok(); };
  if (const auto first = std::find_if(plugins_.begin(), plugins_.end(), refused); first != plugins_.end())
    text += "; " + std::to_string(std::count_if(first, plugins_.end(), refused)) + " refused, the first, " +
            quote(first->manifest.id) + ": " + first->refused.message();
  return {Code::kNotFound, std::move(text)};
}

}  // namespace belay::core
