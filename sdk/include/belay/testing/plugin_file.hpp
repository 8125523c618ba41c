// belay/testing/plugin_file.hpp: a plugin as it lies on the disk, in a test of its author: the library is
// loaded, the plugin opened with a FakeHost, and its components make objects as in a runtime.
//
//   FakeHost host;
//   PluginFile plugin(host, BELAY_PLUGIN_FILE);  // belay_add_plugin_test() defines the path
//   auto format = plugin.make<belay_model_format_vt>(BELAY_MODEL_FORMAT_KIND);
#pragma once

#include <belay/abi/plugin.h>
#include <belay/kinds.hpp>
#include <belay/testing/fake_host.hpp>

#include <dlfcn.h>
#include <stdexcept>
#include <string>
#include <string_view>

namespace belay::testing {

// What cannot be done is thrown as a sentence (std::runtime_error), which fails the test. The objects that
// are made end before it does, and it before the host.
class PluginFile {
 public:
  // `config`: the table [plugin.<id>.config]; without one every value reads as not set.
  PluginFile(FakeHost& host, const std::string& path, const belay_value* config = nullptr)
      : host_(host), config_(config), library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) throw std::runtime_error(std::string("The plugin cannot be loaded: ") + dlerror());
    try {
      open(path);
    } catch (...) {
      dlclose(library_);
      throw;
    }
  }
  PluginFile(const PluginFile&) = delete;
  PluginFile& operator=(const PluginFile&) = delete;
  ~PluginFile() {
    plugin_->close(ctx_);
    dlclose(library_);
  }

  const belay_plugin& plugin() const { return *plugin_; }
  belay_ctx* ctx() const { return ctx_; }

  // The object that the first component of `kind` makes; its table is checked as a host does.
  template <class Table>
  Adopted<Table> make(std::string_view kind) {
    for (uint64_t i = 0; i < plugin_->component_count; ++i) {
      const belay_component& component = *plugin_->components[i];
      if (to_view(component.kind) != kind) continue;
      belay_created made{};
      made.hdr.struct_size = sizeof made;
      need(component.create(ctx_, config_, &made), "create");
      return adopt<Table>(shape_of(kind), made);
    }
    throw std::runtime_error(name() + " has no component of kind " + std::string(kind) + ".");
  }
  // The object around what a slot gave; `shape`: shape::kDevice, shape::kStream ... of belay/kinds.hpp.
  template <class Table>
  Adopted<Table> adopt(const TableShape& shape, const belay_created& made) {
    const Status good = check_table(shape, made.table, name());
    if (!good.ok()) throw std::runtime_error(good.message());
    return Adopted<Table>(shape.object_kind, static_cast<const Table*>(made.table), made.impl);
  }

 private:
  std::string name() const { return "plugin '" + to_string(plugin_->id) + "'"; }
  void need(belay_status raw, const char* slot) {
    const Status status = host_.take(raw);
    if (!status.ok()) throw std::runtime_error(name() + ", " + slot + ": " + status.message());
  }
  void open(const std::string& path) {
    const auto entry = reinterpret_cast<belay_entry_fn>(dlsym(library_, BELAY_ENTRY_NAME));
    if (!entry) throw std::runtime_error("'" + path + "' exports no " BELAY_ENTRY_NAME ".");
    belay_handshake handshake{};
    handshake.hdr.struct_size = sizeof handshake;
    handshake.host_minor = BELAY_ABI_MINOR;
    plugin_ = entry(&host_, &handshake);
    if (!plugin_)
      throw std::runtime_error("'" + path + "' does not work with this host: its entry gave no plugin.");
    if (handshake.layout != BELAY_ABI_LAYOUT)
      throw std::runtime_error("'" + path + "' was compiled with headers of another layout than this test.");
    need(plugin_->open(&host_, config_, &ctx_), "open");
  }
  static const TableShape& shape_of(std::string_view kind) {
    for (const TableShape& shape : kComponentKinds)
      if (kind == shape.kind) return shape;
    throw std::runtime_error("No kind of this SDK is called '" + std::string(kind) + "'.");
  }

  FakeHost& host_;
  const belay_value* const config_;
  void* const library_;
  const belay_plugin* plugin_ = nullptr;
  belay_ctx* ctx_ = nullptr;
};

}  // namespace belay::testing
