// What the tests of the core share: a host over a folder with fake plugins, and what it logs.
#pragma once

#include "core/host.h"
#include "fakes/plugins/install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#if BELAY_SANITIZER == BELAY_SANITIZER_ADDRESS
#include <sanitizer/lsan_interface.h>
#endif

#include <mutex>
#include <string>
#include <vector>

namespace belay::core {

using belay::testing::install;
using belay::testing::manifest;
using belay::testing::TempDir;
namespace fs = std::filesystem;

#if BELAY_SANITIZER == BELAY_SANITIZER_ADDRESS
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
