// A small plugin for the tests of the core. Compiled many times: FAKE_ID is its id; FAKE_... macros make it
// break a rule that is checked before anything of it runs; the key `mode` of its configuration makes it break
// one later. It is written without the helpers of the SDK, which would not let it.
#include "fake_plugin.h"

#include <belay/plugin.hpp>

#include <unistd.h>
#include <xmmintrin.h>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#ifndef FAKE_NAME
#define FAKE_NAME FAKE_ID
#endif

#ifdef FAKE_UNDEFINED
extern "C" int nobody_defines_this();
#endif

#ifdef FAKE_CRASHES
[[gnu::constructor]] static void crash() { std::raise(SIGILL); }
#endif

namespace {

struct Fake {
  const belay_host* host;
  std::string mode;
  const belay_value* config;
  uint64_t timer = 0;
};
struct Counter {
  Fake* fake;
  uint64_t count;
  void* block;
};

void say(const belay_host* host, const std::string& what) {
  host->log(host, BELAY_LOG_INFO, belay::to_str(std::string(FAKE_ID) + " " + what));
}
belay_status fail(const belay_host* host, const char* why) {
  return host->status_make(host, BELAY_UNAVAILABLE, belay::to_str(why));
}

belay::Value value(const belay_value* config, std::string_view key) { return belay::Value{config}[key]; }

template <class Service>
const Service* service(const belay_host* host, const char* id) {
  return static_cast<const Service*>(host->get_service(host, belay::to_str(id)));
}

void use_fpu_badly() { _mm_setcsr(_mm_getcsr() | 0x8040); }  // flush to zero, denormals are zero

// A slot that does not come back in time, and then goes on as if nothing were.
void block(const belay_host* host, const std::string& mode, const std::string& slot) {
  if (mode != slot + "_blocks") return;
  std::this_thread::sleep_for(std::chrono::milliseconds(slot == "open" || slot == "start" ? 2000 : 3500));
  say(host, "late");
  host->free(host, host->alloc(host, 100, 8));
  host->misbehave(host, belay::to_str(FAKE_ID), belay::to_str("late"));
  if (host->get_service(host, belay::to_str(BELAY_HOST_EXECUTOR)) != nullptr) std::abort();
}

[[maybe_unused]] belay_status open(const belay_host* host, const belay_value* config, belay_ctx** out) {
  const std::string mode(value(config, "mode").as_string());
  say(host, "open");
  if (mode == "open_fails") return fail(host, "the fake device is not there");
  if (mode == "open_bare") return BELAY_DEVICE_LOST;
  if (mode == "open_aborts") std::abort();
  if (mode == "open_exits") std::exit(0);
  if (mode == "open_throws") throw std::runtime_error("thrown in open");
  if (mode == "open_throws_int") throw 7;
  if (mode == "rubbish_code") return 200;
  if (mode == "rubbish_handle") return 0xabcdef0000000000u | BELAY_NOT_FOUND;
  if (mode == "changes_process") {
    std::setlocale(LC_ALL, "C.UTF-8");
    std::signal(SIGUSR2, SIG_IGN);
    if (chdir("/") != 0) return BELAY_INTERNAL;
    use_fpu_badly();
  }
  if (mode == "leaks_then_fails") {
    host->alloc(host, 100, 8);
    return fail(host, "after an allocation");
  }
  block(host, mode, "open");
  auto fake = new Fake{host, mode, config};
  if (mode == "task_forever")
    service<belay_executor_vt>(host, BELAY_HOST_EXECUTOR)
        ->timer(
            host, 0, 1000000, [](void*) {}, nullptr, &fake->timer);
  if (mode == "task_stuck")
    service<belay_executor_vt>(host, BELAY_HOST_EXECUTOR)
        ->post_blocking(
            host, [](void*) { std::this_thread::sleep_for(std::chrono::seconds(2)); }, nullptr);
  *out = reinterpret_cast<belay_ctx*>(fake);
  return BELAY_OK;
}

belay_status start(belay_ctx* ctx) {
  Fake* fake = reinterpret_cast<Fake*>(ctx);
  say(fake->host, "start");
  if (fake->mode == "start_crashes") __builtin_trap();
  block(fake->host, fake->mode, "start");
  return fake->mode == "start_fails" ? fail(fake->host, "it does not start") : BELAY_OK;
}

belay_status quiesce(belay_ctx* ctx, uint64_t) {
  Fake* fake = reinterpret_cast<Fake*>(ctx);
  say(fake->host, "quiesce");
  block(fake->host, fake->mode, "quiesce");
  return BELAY_OK;
}

void close(belay_ctx* ctx) {
  Fake* fake = reinterpret_cast<Fake*>(ctx);
  if (fake->mode == "leaks_at_close") fake->host->alloc(fake->host, 1000, 64);
  say(fake->host, "close");
  block(fake->host, fake->mode, "close");
  delete fake;
}

constexpr fake_counter_vt kCounter = {
    {sizeof(fake_counter_vt), 0, nullptr},
    [](belay_obj* o, uint64_t n) { return belay::self<Counter>(o).count += n; },
    [](belay_obj* o) { return belay::self<Counter>(o).count; },
    [](belay_obj* o) {
      Counter* counter = static_cast<Counter*>(o->impl);
      const belay_host* host = counter->fake->host;
      host->free(host, counter->block);
      // Forbidden here: must be refused, and must not hang.
      if (host->get_service(host, belay::to_str(BELAY_HOST_EXECUTOR)) != nullptr) std::abort();
      delete counter;
    }};
constexpr fake_counter_vt kBadCounter = {
    {sizeof(fake_counter_vt), 0, nullptr}, nullptr, nullptr, kCounter.destroy};
constexpr fake_counter_vt kHugeCounter = {{1u << 30, 0, nullptr}, nullptr, nullptr, nullptr};

belay_status score(belay_ctx* ctx, belay_score* inout) {
  Fake* fake = reinterpret_cast<Fake*>(ctx);
  if (fake->mode == "score_throws") throw std::runtime_error("thrown in score");
  inout->score = fake->mode == "score_zero" ? 0 : uint64_t(value(fake->config, "score").as_int(500));
  belay::write(inout->reason, fake->mode == "score_zero" ? "no fake\ndevice" : "always");
  return BELAY_OK;
}

[[maybe_unused]] belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) {
  Fake* fake = reinterpret_cast<Fake*>(ctx);
  const belay_host* host = fake->host;
  say(host, "create");
  if (fake->mode == "create_fails") return fail(host, "nothing to count");
  if (fake->mode == "create_throws") throw std::runtime_error("thrown in create");
  if (fake->mode == "create_slow") std::this_thread::sleep_for(std::chrono::milliseconds(50));
  auto* counter = new Counter{fake, uint64_t(value(config, "start").as_int()), host->alloc(host, 64, 64)};
  out->impl = counter;
  out->table = fake->mode == "null_slots"   ? &kBadCounter
               : fake->mode == "huge_table" ? &kHugeCounter
                                            : &kCounter;
  if (fake->mode == "no_table") out->table = nullptr;
  if (out->table != &kCounter) {
    host->free(host, counter->block);
    delete counter;
    return BELAY_OK;
  }
  const std::string_view other = value(config, "acquires").as_string();
  if (!other.empty()) {
    belay_lease lease{{sizeof lease, 0, nullptr}, 0, nullptr};
    const auto* registry = service<belay_registry_vt>(host, BELAY_HOST_REGISTRY);
    const belay_status status = registry->acquire(host, belay::to_str(other), &lease);
    if (status != BELAY_OK) {
      host->free(host, counter->block);
      delete counter;
      return status;
    }
    registry->release(host, lease.id);
  }
  return BELAY_OK;
}

constexpr belay_component kComponent = {{sizeof(belay_component), 0, nullptr},
                                        belay::literal(FAKE_KIND),
                                        belay::literal(FAKE_NAME),
                                        score,
#ifdef FAKE_NULL_CREATE
                                        nullptr
#else
                                        create
#endif
};
constexpr const belay_component* kComponents[] = {&kComponent};

constexpr belay_plugin kPlugin = {
#ifdef FAKE_SMALL_TABLE
    {24, 0, nullptr},
#else
    {sizeof(belay_plugin), 0, nullptr},
#endif
#ifdef FAKE_TABLE_ID
    belay::literal(FAKE_TABLE_ID),
#else
    belay::literal(FAKE_ID),
#endif
    belay::literal("1.0.0"),
    kComponents,
    1,
#ifdef FAKE_NULL_OPEN
    nullptr,
#else
    open,
#endif
    start,
    quiesce,
    close,
    nullptr};

constexpr belay_note make_note() {
  belay_note note = belay::make_note(FAKE_ID, "1.0.0");
#ifdef FAKE_NOTE_LAYOUT
  note.layout = FAKE_NOTE_LAYOUT;
#endif
#ifdef FAKE_SANITIZER
  note.sanitizer = FAKE_SANITIZER;
#endif
  return note;
}
#ifndef FAKE_NO_NOTE
BELAY_NOTE_SECTION constexpr belay::NoteSection kNote{
    .note = make_note()};
#endif

}  // namespace

#ifndef FAKE_ENTRY
#define FAKE_ENTRY BELAY_ENTRY
#endif
BELAY_EXPORT const belay_plugin* FAKE_ENTRY(const belay_host* host, belay_handshake* handshake) {
  handshake->plugin_minor = BELAY_ABI_MINOR;
  handshake->layout = BELAY_ABI_LAYOUT;
#ifdef FAKE_HANDSHAKE_LAYOUT
  handshake->layout = FAKE_HANDSHAKE_LAYOUT;
#endif
#ifdef FAKE_NEEDS
  handshake->needs = FAKE_NEEDS;
#endif
#ifdef FAKE_UNDEFINED
  handshake->uses = uint64_t(nobody_defines_this());
#endif
#ifdef FAKE_CALLS_IN_ENTRY  // forbidden: get_service must give nothing
  if (host->get_service(host, belay::to_str(BELAY_HOST_EXECUTOR)) != nullptr) std::abort();
#endif
#ifdef FAKE_THROWS_IN_ENTRY
  throw std::runtime_error("thrown in the entry function");
#endif
#ifdef FAKE_REFUSES
  return nullptr;
#endif
  (void)host;
  return &kPlugin;
}
