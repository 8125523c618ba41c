/* belay/abi/plugin.h: the entry point of a plugin and what it returns. */
#ifndef BELAY_ABI_PLUGIN_H
#define BELAY_ABI_PLUGIN_H

#include <belay/abi/base.h>
#include <belay/abi/host.h>
#include <belay/abi/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- components and the plugin ------------------------------------------------------------------------------------ */
typedef struct belay_ctx belay_ctx; /* the plugin's own state, from `open` to `close` */

/* What `score` says of this machine. */
typedef struct belay_score {
  belay_hdr hdr;
  uint64_t score;   /* 0: cannot work here; 1-1000: better is higher */
  belay_sink reason; /* set by the host: a sentence, e.g. "libascendcl.so not found" */
} belay_score;

/* One service offered, registered under the key "kind:name". The keys it takes are declared in the manifest
 * ([[component.field]]), so that a configuration is checked without loading anything; a plugin never sees an unknown
 * key, a wrong type or a value out of range, and defaults are filled in. */
typedef struct belay_component {
  belay_hdr hdr;
  belay_str kind; /* "belay.driver/1" */
  belay_str name; /* "cpu"; [a-z][a-z0-9._-]{0,63} */
  belay_status (*score)(belay_ctx*, belay_score* inout) BELAY_NOEXCEPT; /* null: score 500. [serial] o */
  /* Makes the object; `config` is the table [plugin.<id>.config]. Errors: as the kind says. [serial] r */
  belay_status (*create)(belay_ctx*, const belay_value* config, belay_created* out) BELAY_NOEXCEPT;
} belay_component;

/* In read-only data of the plugin; valid while it is loaded. */
typedef struct belay_plugin {
  belay_hdr hdr;
  belay_str id;      /* as in the manifest */
  belay_str version;
  const belay_component* const* components;
  uint64_t component_count;

  /* Begins the plugin's life. `config`: the table [plugin.<id>.config], valid until `close`. On failure nothing remains
   * and `close` is not called. [init] r */
  belay_status (*open)(const belay_host*, const belay_value* config, belay_ctx** out) BELAY_NOEXCEPT;
  /* All plugins are open: acquire what others offer. [init] o */
  belay_status (*start)(belay_ctx*) BELAY_NOEXCEPT;
  /* Stop taking new work and finish what runs, in `deadline_ns` from now at most. [serial] o */
  belay_status (*quiesce)(belay_ctx*, uint64_t deadline_ns) BELAY_NOEXCEPT;
  /* Ends the life: all objects are destroyed already. [init] r */
  void (*close)(belay_ctx*) BELAY_NOEXCEPT;
  /* An interface beyond this table, or NULL. [pure] o */
  const void* (*get_extension)(belay_ctx*, belay_str id) BELAY_NOEXCEPT;
} belay_plugin;

/* ---- the entry point ------------------------------------------------------------------------------------------------ */
/* Both sides state what they know. Until 1.0 the layouts must be the same: `layout` is a digest of them. */
typedef struct belay_handshake {
  belay_hdr hdr;
  uint32_t host_minor;   /* host fills */
  uint32_t plugin_minor; /* plugin fills */
  uint64_t needs;        /* plugin fills: feature bits without which it refuses to work */
  uint64_t uses;         /* plugin fills: feature bits it profits from */
  uint64_t layout;       /* plugin fills: BELAY_ABI_LAYOUT as it was compiled */
} belay_handshake;

/* The one exported symbol. Pure and repeatable: no allocation, thread, log or host call; fills `handshake` and returns
 * the plugin's table, or NULL when it cannot work with this host. The number is the major version of the ABI. */
#define BELAY_ENTRY belay_plugin_v0
#define BELAY_ENTRY_NAME "belay_plugin_v0"
typedef const belay_plugin* (*belay_entry_fn)(const belay_host* host, belay_handshake* handshake);

/* Changes with every change of the layout of any struct before 1.0. */
#define BELAY_ABI_LAYOUT 0x9c52f11eu

/* ---- note section --------------------------------------------------------------------------------------------------- */
/* .note.belay, owner "BELAY", type 1: facts that the host reads from the file before loading it. */
#define BELAY_NOTE_NAME "BELAY"
#define BELAY_NOTE_TYPE 1u
#define BELAY_SANITIZER_NONE 0u
#define BELAY_SANITIZER_ADDRESS 1u
#define BELAY_SANITIZER_THREAD 2u
/* BELAY_SANITIZER: which of them this translation unit is compiled with. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BELAY_SANITIZER BELAY_SANITIZER_ADDRESS
#elif __has_feature(thread_sanitizer)
#define BELAY_SANITIZER BELAY_SANITIZER_THREAD
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define BELAY_SANITIZER BELAY_SANITIZER_ADDRESS
#elif defined(__SANITIZE_THREAD__)
#define BELAY_SANITIZER BELAY_SANITIZER_THREAD
#endif
#ifndef BELAY_SANITIZER
#define BELAY_SANITIZER BELAY_SANITIZER_NONE
#endif

typedef struct belay_note { /* fixed size: 160 bytes */
  uint32_t format;          /* 1 */
  uint32_t abi_major, abi_minor;
  uint32_t sanitizer;       /* BELAY_SANITIZER_... */
  uint32_t cxx11_abi;       /* _GLIBCXX_USE_CXX11_ABI; 2 when there is no libstdc++ */
  uint32_t layout;          /* BELAY_ABI_LAYOUT */
  char id[64];              /* NUL-padded */
  char version[32];         /* NUL-padded */
  uint8_t manifest_sha256[32]; /* of the manifest it was built with; zeros: not known */
  uint32_t reserved[2];
} belay_note;
BELAY_STATIC_ASSERT(sizeof(belay_note) == 160, "fixed for ever");

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_PLUGIN_H */
