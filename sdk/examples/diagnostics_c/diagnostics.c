/* The plugin `diagnostics_c`: diagnostics in plain C11. They count the records of a runtime and their time,
 * and check for `belay doctor` that the clock moves in steps that are fine enough. Nothing of C++ is needed
 * to build or run it. */
#define _POSIX_C_SOURCE 200809L
#include <belay/abi/diagnostics.h>
#include <belay/abi/plugin.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ID "diagnostics_c"
#define VERSION "0.1.0"
#define TEXT(literal) \
  { (literal), sizeof(literal) - 1 } /* a belay_str */

struct belay_ctx { /* from open to close */
  const belay_host* host;
  atomic_uint_fast64_t records, nanoseconds;
};

typedef struct diagnostics {
  belay_ctx* ctx;
  int64_t resolution; /* ns, at most */
} diagnostics;

static belay_str str(const char* text) { return (belay_str){text, strlen(text)}; }

static belay_status fail(const belay_ctx* ctx, uint32_t code, const char* message) {
  return ctx->host->status_make(ctx->host, code, str(message));
}

static void say(belay_sink sink, const char* text) { sink.write(sink.user, text, strlen(text)); }

/* ---- the slots of the diagnostics
 * -------------------------------------------------------------------------------- */
static diagnostics* self(const belay_obj* object) { return object->impl; }

static void on_records(belay_obj* object, const belay_trace_record* records, uint64_t count) {
  belay_ctx* const ctx = self(object)->ctx;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum += records[i].duration_ns;
  atomic_fetch_add_explicit(&ctx->records, count, memory_order_relaxed);
  atomic_fetch_add_explicit(&ctx->nanoseconds, sum, memory_order_relaxed);
}

static uint64_t check_count(belay_obj* object) {
  (void)object;
  return 1;
}

static belay_status check_index(const belay_obj* object, uint64_t index) {
  char text[96];
  if (index == 0) return BELAY_OK;
  snprintf(text, sizeof text, "There is no check %" PRIu64 " of '" ID "', want 0.", index);
  return fail(self(object)->ctx, BELAY_OUT_OF_RANGE, text);
}

static belay_status check_info(belay_obj* object, uint64_t index, belay_check_info* inout) {
  const belay_check_info all = {inout->hdr, TEXT(ID ".clock"), TEXT("The clock moves in fine steps.")};
  const belay_status wrong = check_index(object, index);
  if (wrong != BELAY_OK) return wrong;
  /* The host may know fewer fields. */
  memcpy(inout, &all, inout->hdr.struct_size < sizeof all ? inout->hdr.struct_size : sizeof all);
  return BELAY_OK;
}

static belay_status run_check(belay_obj* object, uint64_t index, uint64_t* out_outcome, belay_sink text) {
  char line[128];
  struct timespec step;
  const belay_status wrong = check_index(object, index);
  if (wrong != BELAY_OK) return wrong;
  if (clock_getres(CLOCK_MONOTONIC, &step) != 0)
    return fail(self(object)->ctx, BELAY_INTERNAL, "There is no monotonic clock.");
  const int64_t ns = (int64_t)step.tv_sec * 1000000000 + step.tv_nsec;
  const int fine = ns <= self(object)->resolution;
  *out_outcome = fine ? BELAY_CHECK_PASSED : BELAY_CHECK_WARNING;
  snprintf(line, sizeof line, "the clock moves in steps of %" PRId64 " ns", ns);
  say(text, line);
  if (!fine) {
    snprintf(line, sizeof line, ", want at most %" PRId64 ": times that are measured are coarse",
             self(object)->resolution);
    say(text, line);
  }
  return BELAY_OK;
}

static belay_status dump(belay_obj* object, belay_str format, belay_sink sink) {
  const belay_ctx* const ctx = self(object)->ctx;
  char line[128];
  const uint64_t records = atomic_load(&ctx->records), ns = atomic_load(&ctx->nanoseconds);
  if (format.len == 4 && memcmp(format.ptr, "json", 4) == 0)
    snprintf(line, sizeof line, "{\"records\": %" PRIu64 ", \"nanoseconds\": %" PRIu64 "}", records, ns);
  else if (format.len == 4 && memcmp(format.ptr, "text", 4) == 0)
    snprintf(line, sizeof line, "%" PRIu64 " records of %" PRIu64 " ns in all\n", records, ns);
  else
    return fail(ctx, BELAY_UNIMPLEMENTED, "'" ID "' writes json and text.");
  say(sink, line);
  return BELAY_OK;
}

static void destroy(belay_obj* object) { free(object->impl); }

static const belay_diagnostics_vt table = {.hdr = {sizeof(belay_diagnostics_vt), 0, NULL},
                                           .on_records = on_records,
                                           .check_count = check_count,
                                           .check_info = check_info,
                                           .run_check = run_check,
                                           .dump = dump,
                                           .flush = NULL,
                                           .destroy = destroy};

/* ---- the plugin
 * -------------------------------------------------------------------------------------------------- */
static belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) {
  diagnostics* const made = malloc(sizeof *made);
  const belay_value* const resolution = config ? config->vt->get(config, str("resolution")) : NULL;
  if (!made) return BELAY_RESOURCE_EXHAUSTED;
  made->ctx = ctx;
  made->resolution = resolution ? resolution->vt->as_int(resolution) : 1000;
  out->impl = made;
  out->table = &table;
  return BELAY_OK;
}

static belay_status open_plugin(const belay_host* host, const belay_value* config, belay_ctx** out) {
  (void)config;
  belay_ctx* const ctx = malloc(sizeof *ctx);
  if (!ctx) return BELAY_RESOURCE_EXHAUSTED;
  ctx->host = host;
  atomic_init(&ctx->records, 0);
  atomic_init(&ctx->nanoseconds, 0);
  *out = ctx;
  return BELAY_OK;
}

static void close_plugin(belay_ctx* ctx) {
  char line[64];
  snprintf(line, sizeof line, "%" PRIu64 " records were seen", (uint64_t)atomic_load(&ctx->records));
  ctx->host->log(ctx->host, BELAY_LOG_INFO, str(line));
  free(ctx);
}

static const belay_component component = {.hdr = {sizeof(belay_component), 0, NULL},
                                          .kind = TEXT(BELAY_DIAGNOSTICS_KIND),
                                          .name = TEXT(ID),
                                          .score = NULL,
                                          .create = create};
static const belay_component* const components[] = {&component};

static const belay_plugin plugin = {.hdr = {sizeof(belay_plugin), 0, NULL},
                                    .id = TEXT(ID),
                                    .version = TEXT(VERSION),
                                    .components = components,
                                    .component_count = 1,
                                    .open = open_plugin,
                                    .start = NULL,
                                    .quiesce = NULL,
                                    .close = close_plugin,
                                    .get_extension = NULL};

/* What the host reads from the file before it loads it: an ELF note. */
static const struct {
  uint32_t name_bytes, desc_bytes, type;
  char name[8];
  belay_note note;
} note __attribute__((used, section(".note.belay"), aligned(4))) = {
    sizeof(BELAY_NOTE_NAME),
    sizeof(belay_note),
    BELAY_NOTE_TYPE,
    BELAY_NOTE_NAME,
    {.format = 1,
     .abi_major = BELAY_ABI_MAJOR,
     .abi_minor = BELAY_ABI_MINOR,
     .sanitizer = BELAY_SANITIZER,
     .cxx11_abi = 2, /* no libstdc++ */
     .layout = BELAY_ABI_LAYOUT,
     .id = ID,
     .version = VERSION,
     .manifest_sha256 = {BELAY_MANIFEST_SHA256_BYTES}}}; /* belay_add_plugin() defines it */

BELAY_EXPORT const belay_plugin* BELAY_ENTRY(const belay_host* host, belay_handshake* handshake) {
  (void)host;
  handshake->plugin_minor = BELAY_ABI_MINOR;
  handshake->layout = BELAY_ABI_LAYOUT;
  return &plugin;
}
