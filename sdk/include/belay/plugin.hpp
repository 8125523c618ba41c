// belay/plugin.hpp: what the author of a C++ plugin needs around the tables: configuration values, created objects, the
// entry point and the note section. Header-only, compiled into the plugin.
//
//   struct MyPlugin {                                     // the plugin's state from open to close
//     static belay::Result<std::unique_ptr<MyPlugin>> open(const belay_host& host, belay::Value config);
//   };
//   BELAY_DEFINE_PLUGIN(MyPlugin, "my", "0.1.0", kComponents)   // kComponents: array of const belay_component*
#pragma once

#include <belay/abi/plugin.h>
#include <belay/status.hpp>

#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>

namespace belay {

// A view of a configuration value; the empty view reads as "not set".
class Value {
 public:
  Value() = default;
  explicit Value(const belay_value* raw) : raw_(raw) {}

  bool set() const { return raw_ && raw_->vt->type(raw_) != BELAY_VALUE_NONE; }
  Value operator[](std::string_view key) const { return Value(raw_ ? raw_->vt->get(raw_, to_str(key)) : nullptr); }
  Value at(uint64_t index) const { return Value(raw_ ? raw_->vt->at(raw_, index) : nullptr); }
  uint64_t count() const { return raw_ ? raw_->vt->count(raw_) : 0; }
  std::string_view key_at(uint64_t index) const { return raw_ ? to_view(raw_->vt->key_at(raw_, index)) : ""; }

  bool as_bool(bool otherwise = false) const { return set() ? raw_->vt->as_bool(raw_) != 0 : otherwise; }
  int64_t as_int(int64_t otherwise = 0) const { return set() ? raw_->vt->as_int(raw_) : otherwise; }
  double as_float(double otherwise = 0) const { return set() ? raw_->vt->as_float(raw_) : otherwise; }
  std::string_view as_string(std::string_view otherwise = {}) const {
    return set() ? to_view(raw_->vt->as_string(raw_)) : otherwise;
  }
  const belay_value* raw() const { return raw_; }

 private:
  const belay_value* raw_ = nullptr;
};

// Gives an object to the host: `impl` is owned by it from now on, until the table's destroy.
template <class Table, class Impl>
void give(belay_created* out, std::unique_ptr<Impl> impl, const Table& table) {
  out->impl = impl.release();
  out->table = &table;
}

template <class T>
T& self(const belay_obj* object) { return *static_cast<T*>(object->impl); }

constexpr belay_note make_note(std::string_view id, std::string_view version) {
  belay_note note{};
  note.format = 1;
  note.abi_major = BELAY_ABI_MAJOR;
  note.abi_minor = BELAY_ABI_MINOR;
  note.sanitizer = BELAY_SANITIZER;
#ifdef _GLIBCXX_USE_CXX11_ABI
  note.cxx11_abi = _GLIBCXX_USE_CXX11_ABI;
#else
  note.cxx11_abi = 2;
#endif
  note.layout = BELAY_ABI_LAYOUT;
#ifdef BELAY_MANIFEST_SHA256  // belay_add_plugin() defines it
  constexpr std::string_view digest = BELAY_MANIFEST_SHA256;
  static_assert(digest.size() == 64, "BELAY_MANIFEST_SHA256 is a SHA-256 in hexadecimal digits");
  for (size_t i = 0; i < digest.size(); ++i) {
    const char c = digest[i];
    note.manifest_sha256[i / 2] = uint8_t(note.manifest_sha256[i / 2] << 4 | (c <= '9' ? c - '0' : c - 'a' + 10));
  }
#endif
  for (size_t i = 0; i < id.size() && i + 1 < sizeof(note.id); ++i) note.id[i] = id[i];
  for (size_t i = 0; i < version.size() && i + 1 < sizeof(note.version); ++i) note.version[i] = version[i];
  return note;
}

struct NoteSection {  // an ELF note: sizes, type, owner, description
  uint32_t name_bytes = sizeof(BELAY_NOTE_NAME);
  uint32_t desc_bytes = sizeof(belay_note);
  uint32_t type = BELAY_NOTE_TYPE;
  char name[8] = BELAY_NOTE_NAME;
  belay_note note;
};

constexpr belay_str literal(std::string_view text) { return {text.data(), text.size()}; }

template <class State>
struct PluginThunks {
  static belay_status open(const belay_host* host, const belay_value* config, belay_ctx** out) noexcept {
    return guard(*host, [&]() -> Status {
      BELAY_ASSIGN(std::unique_ptr<State> state, State::open(*host, Value(config)));
      *out = reinterpret_cast<belay_ctx*>(state.release());
      return {};
    });
  }
  static void close(belay_ctx* ctx) noexcept { delete reinterpret_cast<State*>(ctx); }
};

template <class State>
State& state(belay_ctx* ctx) { return *reinterpret_cast<State*>(ctx); }

}  // namespace belay

// A note holds nothing between its parts: Clang's AddressSanitizer would put a zone around it.
#if defined(__clang__)
#define BELAY_NOTE_SECTION __attribute__((used, section(".note.belay"), aligned(4), no_sanitize("address")))
#else
#define BELAY_NOTE_SECTION __attribute__((used, section(".note.belay"), aligned(4)))
#endif

#define BELAY_DEFINE_PLUGIN(State, plugin_id, plugin_version, component_array)                                         \
  namespace {                                                                                                          \
  BELAY_NOTE_SECTION constexpr belay::NoteSection belay_note_section{                                                  \
      .note = belay::make_note(plugin_id, plugin_version)};                                                            \
  constexpr belay_plugin belay_plugin_table{                                                                           \
      .hdr = {sizeof(belay_plugin), 0, nullptr},                                                                       \
      .id = belay::literal(plugin_id),                                                                                 \
      .version = belay::literal(plugin_version),                                                                       \
      .components = component_array,                                                                                   \
      .component_count = std::size(component_array),                                                                   \
      .open = belay::PluginThunks<State>::open,                                                                        \
      .start = nullptr,                                                                                                \
      .quiesce = nullptr,                                                                                              \
      .close = belay::PluginThunks<State>::close,                                                                      \
      .get_extension = nullptr};                                                                                       \
  }                                                                                                                    \
  BELAY_EXPORT const belay_plugin* BELAY_ENTRY(const belay_host*, belay_handshake* handshake) BELAY_NOEXCEPT {         \
    handshake->plugin_minor = BELAY_ABI_MINOR;                                                                         \
    handshake->layout = BELAY_ABI_LAYOUT;                                                                              \
    return &belay_plugin_table;                                                                                        \
  }
