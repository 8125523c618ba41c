/* belay/abi/host.h: what a host offers to a plugin. */
#ifndef BELAY_ABI_HOST_H
#define BELAY_ABI_HOST_H

#include <belay/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_LOG_TRACE 0u
#define BELAY_LOG_DEBUG 1u
#define BELAY_LOG_INFO 2u
#define BELAY_LOG_WARNING 3u
#define BELAY_LOG_ERROR 4u
#define BELAY_LOG_CRITICAL 5u

typedef struct belay_host belay_host;

/* What status_info tells. Strings are borrowed until the status is released. */
typedef struct belay_status_info {
  belay_hdr hdr;
  belay_str message;
  belay_str plugin;     /* who made it; empty: the host */
  int64_t vendor_code;  /* number of the vendor's own error list; 0 when none */
} belay_status_info;

/* One for each plugin: the host knows the caller by the table it was given. Valid from the entry function until
 * `close` has returned. It must not be called inside the entry function, `destroy`, or a static constructor or
 * destructor: there every slot answers FAILED_PRECONDITION or does nothing. */
struct belay_host {
  belay_hdr hdr;
  belay_str product; /* "belay" */
  belay_str version; /* "0.1.0" */

  /* A service by id, e.g. "belay.host.executor/1": its table, or NULL when this host has none; the log then names the
   * service and who wanted it. Valid as long as the host table. [any] r */
  const void* (*get_service)(const belay_host*, belay_str id) BELAY_NOEXCEPT;

  /* Logs one line under the logger "plugin.<id>". Cut at 16 KiB; bad UTF-8 is replaced. [any] r */
  void (*log)(const belay_host*, uint32_t level, belay_str message) BELAY_NOEXCEPT;

  /* A status with a message (copied). A full table gives the bare code. [any] r */
  belay_status (*status_make)(const belay_host*, uint32_t code, belay_str message) BELAY_NOEXCEPT;
  /* Writes the message; writes the code's title for a bare code or an unknown handle. [any] r */
  void (*status_text)(const belay_host*, belay_status, belay_sink) BELAY_NOEXCEPT;
  /* Gives the detail back. [any] r */
  void (*status_release)(const belay_host*, belay_status) BELAY_NOEXCEPT;

  /* Memory that outlives a call, freed by `free` of the same host; NULL when there is none, or the plugin's limit
   * (plugin.<id>.memory_limit) is reached. `align` is a power of two. Counted for each plugin. [any] r */
  void* (*alloc)(const belay_host*, uint64_t bytes, uint64_t align) BELAY_NOEXCEPT;
  /* NULL is ignored; what `alloc` did not give, or gave to another plugin, is reported as a broken rule. [any] r */
  void (*free)(const belay_host*, void*) BELAY_NOEXCEPT;

  uint64_t (*now_ns)(const belay_host*) BELAY_NOEXCEPT; /* monotonic. [any] r */

  /* Reports that a rule of the ABI was broken by `who`: the id of a plugin or the key of a component. Logged, and counted
   * for that plugin, which is ended after so many as [runtime] strikes says. [any] r */
  void (*misbehave)(const belay_host*, belay_str who, belay_str reason) BELAY_NOEXCEPT;
};

/* ---- service belay.host.executor/1: the threads of the host (one event loop) ------------------------------------ */
#define BELAY_HOST_EXECUTOR "belay.host.executor/1"

typedef struct belay_executor_vt {
  belay_hdr hdr;
  /* Runs task(user) once on a thread of the executor; the task returns within 5 ms. Counted: a plugin is not closed
   * before its tasks have ended. Errors: RESOURCE_EXHAUSTED, FAILED_PRECONDITION (closing). [any] r */
  belay_status (*post)(const belay_host*, void (*task)(void* user), void* user) BELAY_NOEXCEPT;
  /* The same on a thread kept for long work. [any] r */
  belay_status (*post_blocking)(const belay_host*, void (*task)(void* user), void* user) BELAY_NOEXCEPT;
  /* Runs task(user) after `delay_ns`, then every `period_ns` if that is not 0. Gives an id for cancel. [any] r */
  belay_status (*timer)(const belay_host*, uint64_t delay_ns, uint64_t period_ns, void (*task)(void* user), void* user,
                        uint64_t* out_id) BELAY_NOEXCEPT;
  /* Ends a timer, a strand or the watch of a descriptor. Once it returns no task of it runs or will (a running one has
   * ended, unless called from inside it); what a strand has not begun is dropped. Unknown ids are ignored. [any] r */
  void (*cancel)(const belay_host*, uint64_t id) BELAY_NOEXCEPT;
  /* A strand: what is posted to it runs one after the other, in that order, as with post. Lives until cancel or the
   * plugin's end. [any] r */
  belay_status (*strand)(const belay_host*, uint64_t* out_id) BELAY_NOEXCEPT;
  /* Errors: as post, NOT_FOUND (no strand of this plugin). [any] r */
  belay_status (*post_to)(const belay_host*, uint64_t strand, void (*task)(void* user), void* user) BELAY_NOEXCEPT;
  /* Runs task(user) each time the descriptor can be read (`write`: written), never twice at once, until cancel or the
   * plugin's end. It stays the plugin's: open until then, and watched once at a time. Errors: as timer, INVALID_ARGUMENT
   * (it cannot be watched). [any] r */
  belay_status (*watch_fd)(const belay_host*, int32_t fd, uint32_t write, void (*task)(void* user), void* user,
                           uint64_t* out_id) BELAY_NOEXCEPT;
} belay_executor_vt;

/* ---- service belay.host.registry/1: components of other plugins -------------------------------------------------- */
#define BELAY_HOST_REGISTRY "belay.host.registry/1"

#define BELAY_COMPONENT_ADDED 1u
#define BELAY_COMPONENT_REMOVED 2u /* its plugin is being ended, and leases on it are revoked: give them back */

/* A leased object of another plugin, made by its component's `create` and shared by all who acquire it. The lease is
 * given back with `release`; a revoked lease (its plugin is draining) answers NOT_FOUND to valid(). */
typedef struct belay_lease {
  belay_hdr hdr;
  uint64_t id;
  belay_obj* object;
} belay_lease;

typedef struct belay_registry_vt {
  belay_hdr hdr;
  /* The object of the component `key` ("belay.memory-policy/1:reuse"). Errors: NOT_FOUND. [any] r */
  belay_status (*acquire)(const belay_host*, belay_str key, belay_lease* out) BELAY_NOEXCEPT;
  void (*release)(const belay_host*, uint64_t id) BELAY_NOEXCEPT; /* [any] r */
  /* Keys of `kind` in order of choice (priority, then score, then plugin id), one call of `each` for each. [any] r */
  belay_status (*enumerate)(const belay_host*, belay_str kind, void (*each)(void* user, belay_str key), void* user)
      BELAY_NOEXCEPT;
  /* OK; NOT_FOUND: the lease is revoked, given back or never was. [any] r */
  belay_status (*valid)(const belay_host*, uint64_t id) BELAY_NOEXCEPT;
  /* Calls changed(user, key, BELAY_COMPONENT_...) for each component of `kind` that comes or goes, on a thread of the
   * executor, in order, never twice at once; those there already come first. Until unwatch or the plugin's end. [any] r */
  belay_status (*watch)(const belay_host*, belay_str kind, void (*changed)(void* user, belay_str key, uint32_t what),
                        void* user, uint64_t* out_id) BELAY_NOEXCEPT;
  /* As cancel of the executor. [any] r */
  void (*unwatch)(const belay_host*, uint64_t id) BELAY_NOEXCEPT;
} belay_registry_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_HOST_H */
