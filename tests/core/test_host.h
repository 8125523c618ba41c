// What the tests of the core share: a folder with fake plugins, a host over it, its log.
#pragma once

#include "core/host.h"
#include "fakes/plugins/fake_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

namespace belay::core {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__)
// What is allocated on this thread meanwhile may leak: zombies keep what they have, and a fake may leak by
// order.
struct LeaksOnPurpose {
  LeaksOnPurpose() { __lsan_disable(); }
  ~LeaksOnPurpose() { __lsan_enable(); }
};
#else
struct LeaksOnPurpose {
  LeaksOnPurpose() {}
};
#endif

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

inline std::string fake_file(const std::string& variant) {
  return BELAY_FAKE_PLUGIN_DIR "/libfake_" + variant + ".so";
}

inline std::string manifest(const std::string& id, const std::string& more = "",
                            const std::string& component = "", const std::string& name = "") {
  return "format = 1\nid = \"" + id + "\"\nversion = \"1.0.0\"\nabi = \"0.1\"\nlibrary = \"libbelay_" + id +
         ".so\"\n" + more + "\n[[component]]\nkind = \"" FAKE_KIND "\"\nname = \"" +
         (name.empty() ? id : name) + "\"\n" + component + R"(
[[component.field]]
key = "mode"
type = "string"
default = ""
doc = "What to do wrong."
[[component.field]]
key = "start"
type = "size"
default = "1KiB"
min = 0
max = "1MiB"
doc = "Where counting starts."
[[component.field]]
key = "score"
type = "int"
default = 500
doc = "The score it gives."
[[component.field]]
key = "acquires"
type = "string"
default = ""
doc = "A key that create acquires."
)";
}

// Puts a fake plugin and its manifest into a folder; `id` is the variant where it is not given.
inline std::string install(const TempDir& dir, const std::string& variant, const std::string& more = "",
                           const std::string& component = "", const std::string& name = "") {
  const std::string library = dir / ("libbelay_" + variant + ".so");
  fs::copy_file(fake_file(variant), library, fs::copy_options::overwrite_existing);
  fs::permissions(library, fs::perms(0755));
  dir.write("libbelay_" + variant + ".plugin.toml", manifest(variant, more, component, name));
  return library;
}

inline constexpr TableSlot kCounterSlots[] = {BELAY_TABLE_SLOT(fake_counter_vt, add),
                                              BELAY_TABLE_SLOT(fake_counter_vt, get)};
inline constexpr TableShape kCounterShape{FAKE_KIND, 77, BELAY_TABLE_SLOT(fake_counter_vt, destroy),
                                          kCounterSlots};

// A host over one folder, made from TOML; keeps what it logs.
struct TestHost {
  std::unique_ptr<Host> host;
  Status created;
  std::mutex mutex;
  std::vector<std::string> lines;  // "plugin.a: a open"

  explicit TestHost(const TempDir& dir, const std::string& toml, const Schema& schema = core_schema()) {
    Config config;
    created = config.add_text("test.toml", toml);
    if (!created.ok()) return;
    static_cast<void>(config.add_set("log.level=info"));
    static_cast<void>(config.add_set("log.file=" + dir / "log.txt"));
    auto made = Host::create({.config = std::move(config),
                              .schema = schema,
                              .plugin_dirs = {dir.path()},
                              .standard_plugin_dirs = false});
    created = made.status();
    if (!made.ok()) return;
    host = std::move(made).value();
    host->add_kind(kCounterShape);
    host->log().listen([this](Level, std::string_view logger, std::string_view line) {
      std::lock_guard lock(mutex);
      lines.push_back(std::string(logger) + ": " + std::string(line));
    });
  }
  ~TestHost() {
    if (host) host->log().listen({});
  }
  std::vector<std::string> log() {
    std::lock_guard lock(mutex);
    return lines;
  }
  PluginInfo info(const std::string& id) {
    for (const PluginInfo& plugin : host->plugins().list())
      if (plugin.id == id) return plugin;
    return {};
  }
};

inline uint64_t add(const Lease& lease, uint64_t n) {
  return lease.table<fake_counter_vt>().add(lease.object(), n);
}

}  // namespace belay::core
