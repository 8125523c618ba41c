// A host with its services and two plugins, "a" and "b", whose tables the tests call as the plugins would.
#pragma once

#include "core/host.h"
#include "core/services/services.h"
#include "fakes/plugins/install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace belay::core {

using belay::testing::install;
using belay::testing::TempDir;
namespace fs = std::filesystem;

class ServicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    install(dir, "a"), install(dir, "b");
    make("");
  }
  void TearDown() override {
    if (host) host->log().listen({});
  }

  // The host anew, from more TOML.
  void make(const std::string& toml) {
    if (host) host->log().listen({});
    host.reset();
    lines.clear();
    Config config;
    const Status read = config.add_text(
        "test.toml", "[log]\nlevel = \"trace\"\nfile = \"" + dir / "log.txt" + "\"\n[plugin.b]\n" + toml);
    ASSERT_TRUE(read.ok()) << read.message();
    static_cast<void>(config.add_set("runtime.plugins=[\"a\"]"));
    auto made = Host::create(
        {.config = std::move(config), .plugin_dirs = {dir.path()}, .standard_plugin_dirs = false});
    ASSERT_TRUE(made.ok()) << made.status().message();
    host = std::move(made).value();
    ASSERT_TRUE(Services::offer(*host).ok());
    ASSERT_TRUE(host->start().ok());
    host->log().listen([this](Level, std::string_view logger, std::string_view line) {
      std::lock_guard lock(mutex);
      lines.push_back(std::string(logger) + ": " + std::string(line));
    });
    a = &host->table_for("a").abi, b = &host->table_for("b").abi;
  }

  template <class Table>
  const Table& service(const char* id) {
    return *static_cast<const Table*>(a->get_service(a, to_str(id)));
  }
  Status take(belay_status raw) { return from_c(host->table(), raw); }
  std::vector<std::string> log() {
    std::lock_guard lock(mutex);
    return lines;
  }

  TempDir dir;
  std::mutex mutex;
  std::vector<std::string> lines;
  std::unique_ptr<Host> host;
  const belay_host *a = nullptr, *b = nullptr;
};

template <class T>
T sized() {
  T value{};
  value.hdr.struct_size = sizeof value;
  return value;
}

}  // namespace belay::core
