// A small layer for the tests of the core. Compiled several times: FAKE_ID is its id, FAKE_COMPONENTS how many
// layers it offers; the key `mode` of its configuration makes it break a rule. It is written without
// belay/layer.hpp, against a table of counters that ends after `add`.
#include "fake_plugin.h"

#include <belay/abi/layer.h>
#include <belay/plugin.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#ifndef FAKE_COMPONENTS
#define FAKE_COMPONENTS 1
#endif

namespace {

struct OldCounterTable {
  belay_hdr hdr;
  uint64_t (*add)(belay_obj*, uint64_t);
};

struct Fake {
  const belay_host* host;
  std::string mode;
};
struct FakeLayer {
  explicit FakeLayer(Fake& fake_) : fake(fake_) {}
  Fake& fake;
  std::atomic<uint64_t> live{0}, adds{0};
  std::mutex mutex;  // of the next
  std::vector<std::unique_ptr<char[]>> tables;
};
struct On {  // what is kept of an object
  FakeLayer& layer;
  const OldCounterTable& next;
};

std::atomic<uint64_t> key_of_objects{0};  // the same each time

void say(const FakeLayer& layer, const std::string& what) {
  layer.fake.host->log(layer.fake.host, BELAY_LOG_INFO, belay::to_str(std::string(FAKE_ID) + " " + what));
}

uint64_t add(belay_obj* object, uint64_t n) {
  On& on = *reinterpret_cast<On*>(object->layer_word[key_of_objects]);
  ++on.layer.adds;
  say(on.layer, "add");
  return on.next.add(object, n);
}

belay_status attach(belay_obj* self, const belay_attach_req* req, const void** out) {
  FakeLayer& layer = belay::self<FakeLayer>(self);
  const belay_host* host = layer.fake.host;
  say(layer, "attach to '" + belay::to_string(req->plugin) + "'" + (req->parent ? " with a parent" : ""));
  if (layer.fake.mode == "refuses")
    return host->status_make(host, BELAY_RESOURCE_EXHAUSTED, belay::to_str("it has seen enough counters"));
  if (layer.fake.mode == "throws") throw 7;
  if (layer.fake.mode == "no_table") return *out = nullptr, ++layer.live, BELAY_OK;
  ++layer.live;
  if (FAKE_COMPONENTS > 1 || !req->next) return BELAY_OK;
  const uint64_t bytes = static_cast<const belay_hdr*>(req->next)->struct_size;
  auto table = std::make_unique<char[]>(bytes);
  std::memcpy(table.get(), req->next, bytes);
  auto& mine = *reinterpret_cast<OldCounterTable*>(table.get());
  mine.add = layer.fake.mode == "null_slot" ? nullptr : add;
  *out = table.get();
  key_of_objects = req->key;
  req->object->layer_word[req->key] =
      reinterpret_cast<uint64_t>(new On{layer, *static_cast<const OldCounterTable*>(req->next)});
  const std::lock_guard lock(layer.mutex);
  layer.tables.push_back(std::move(table));
  return BELAY_OK;
}

void detach(belay_obj* self, belay_obj* object, uint64_t key) {
  FakeLayer& layer = belay::self<FakeLayer>(self);
  say(layer, "detach");
  --layer.live;
  delete reinterpret_cast<On*>(object->layer_word[key]);
}

belay_status report(belay_obj* self, belay_sink sink) {
  FakeLayer& layer = belay::self<FakeLayer>(self);
  if (layer.fake.mode == "no_report") return BELAY_UNAVAILABLE;
  if (layer.adds) belay::write(sink, "adds: " + std::to_string(layer.adds) + "\n");
  return BELAY_OK;
}

constexpr belay_layer_vt kLayer{{sizeof(belay_layer_vt), 0, nullptr},
                                attach,
                                detach,
                                report,
                                [](belay_obj* self) {
                                  const std::unique_ptr<FakeLayer> layer(&belay::self<FakeLayer>(self));
                                  if (layer->live != 0) std::abort();  // it ends before what it stands before
                                }};

belay_status open(const belay_host* host, const belay_value* config, belay_ctx** out) {
  *out = reinterpret_cast<belay_ctx*>(
      new Fake{host, std::string(belay::Value(config)["mode"].as_string())});
  return BELAY_OK;
}
void close(belay_ctx* ctx) {
  const std::unique_ptr<Fake> fake(reinterpret_cast<Fake*>(ctx));
  fake->host->log(fake->host, BELAY_LOG_INFO, belay::literal(FAKE_ID " close"));
}
belay_status create(belay_ctx* ctx, const belay_value*, belay_created* out) {
  out->impl = new FakeLayer(*reinterpret_cast<Fake*>(ctx));
  out->table = &kLayer;
  return BELAY_OK;
}

constexpr const char* kNames[] = {FAKE_ID, "l1", "l2",  "l3",  "l4",  "l5",  "l6",  "l7", "l8",
                                  "l9",    "l10", "l11", "l12", "l13", "l14", "l15", "l16"};
template <size_t... i>
constexpr std::array<belay_component, sizeof...(i)> components(std::index_sequence<i...>) {
  return {belay_component{{sizeof(belay_component), 0, nullptr},
                          belay::literal(BELAY_LAYER_KIND),
                          belay::literal(kNames[i]),
                          nullptr,
                          create}...};
}
constexpr auto kComponents = components(std::make_index_sequence<FAKE_COMPONENTS>());
template <size_t... i>
constexpr std::array<const belay_component*, sizeof...(i)> pointers(std::index_sequence<i...>) {
  return {&kComponents[i]...};
}
constexpr auto kPointers = pointers(std::make_index_sequence<FAKE_COMPONENTS>());
constexpr belay_plugin kPlugin = {{sizeof(belay_plugin), 0, nullptr},
                                  belay::literal(FAKE_ID),
                                  belay::literal("1.0.0"),
                                  kPointers.data(),
                                  FAKE_COMPONENTS,
                                  open,
                                  nullptr,
                                  nullptr,
                                  close,
                                  nullptr};
BELAY_NOTE_SECTION constexpr belay::NoteSection kNote{.note = belay::make_note(FAKE_ID, "1.0.0")};

}  // namespace

BELAY_EXPORT const belay_plugin* BELAY_ENTRY(const belay_host*, belay_handshake* handshake) {
  handshake->plugin_minor = BELAY_ABI_MINOR;
  handshake->layout = BELAY_ABI_LAYOUT;
  return &kPlugin;
}
