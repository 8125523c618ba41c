/* belay/abi/services.h: what get_service of a host gives besides the executor and the registry of host.h. Each service is
 * a table with static storage; its slots take the caller's own belay_host. A host need not have all: a plugin that cannot
 * work without one lists it under `requires` in its manifest and is refused with the service's name where it is missing.
 * A plugin that is closed, and code in places where the host may not be called (host.h), gets FAILED_PRECONDITION or
 * nothing. Everything is accounted to the plugin whose belay_host is given. */
#ifndef BELAY_ABI_SERVICES_H
#define BELAY_ABI_SERVICES_H

#include <belay/abi/base.h>
#include <belay/abi/host.h>
#include <belay/abi/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- belay.host.log/1: the log with fields --------------------------------------------------------------------------- */
#define BELAY_HOST_LOG "belay.host.log/1"

typedef struct belay_log_field { /* written as key=value; the value is quoted where it has to be */
  belay_str key;
  belay_str value;
} belay_log_field;

typedef struct belay_log_req {
  belay_hdr hdr;
  uint64_t level;    /* BELAY_LOG_... */
  belay_str part;    /* logs under "plugin.<id>.<part>", an id of its own; empty: "plugin.<id>" */
  belay_str message; /* the same text each time: what differs belongs into fields, since a text that repeats is written
                      * five times in ten seconds and then counted */
  const belay_log_field* fields;
  uint64_t field_count; /* 32 at most are written */
} belay_log_req;

typedef struct belay_log_vt {
  belay_hdr hdr;
  /* 1 when a line of this level and part would be written: spares making it. [any] r */
  uint32_t (*enabled)(const belay_host*, uint32_t level, belay_str part) BELAY_NOEXCEPT;
  void (*write)(const belay_host*, const belay_log_req*) BELAY_NOEXCEPT; /* [any] r */
  void (*flush)(const belay_host*) BELAY_NOEXCEPT;                       /* [any] r */
} belay_log_vt;

/* ---- belay.host.metrics/1: numbers that others read ------------------------------------------------------------------ */
#define BELAY_HOST_METRICS "belay.host.metrics/1"

#define BELAY_METRIC_COUNTER 1u   /* only grows */
#define BELAY_METRIC_GAUGE 2u     /* goes up and down */
#define BELAY_METRIC_HISTOGRAM 3u /* how often which size of value was seen */

#define BELAY_METRIC_BUCKETS 65u /* bucket 0: the value 0; bucket i: values of i bits, 2^(i-1) to 2^i - 1 */

typedef struct belay_metric_req {
  belay_hdr hdr;
  uint64_t kind;
  belay_str name; /* "queue.depth": an id, unique in the plugin */
  belay_str unit; /* "bytes", "ns"; may be empty */
  belay_str doc;  /* one sentence */
} belay_metric_req;

typedef struct belay_metric_info { /* borrowed for the call of `each` */
  belay_hdr hdr;
  belay_str plugin, name, unit, doc;
  uint64_t kind;
  int64_t value;           /* of a counter or gauge */
  uint64_t count, sum;     /* of a histogram: values seen, and their sum */
  const uint64_t* buckets; /* of a histogram: BELAY_METRIC_BUCKETS counts; else NULL */
} belay_metric_info;

/* Values of a metric that another thread changes meanwhile need not fit each other exactly. */
typedef struct belay_metrics_vt {
  belay_hdr hdr;
  /* A metric by name; defining it again with the same kind gives the same id, also after the plugin was opened anew.
   * Errors: INVALID_ARGUMENT (no id, an unknown kind), ALREADY_EXISTS (of another kind), RESOURCE_EXHAUSTED (4,096 in a
   * host). [any] r */
  belay_status (*define)(const belay_host*, const belay_metric_req*, uint64_t* out_metric) BELAY_NOEXCEPT;
  /* Unknown ids, ids of another kind and negative steps of a counter are ignored. [any] [nolock] r */
  void (*add)(const belay_host*, uint64_t metric, int64_t by) BELAY_NOEXCEPT;
  void (*set)(const belay_host*, uint64_t metric, int64_t value) BELAY_NOEXCEPT;      /* gauge. [any] [nolock] r */
  void (*observe)(const belay_host*, uint64_t metric, uint64_t value) BELAY_NOEXCEPT; /* histogram. [any] [nolock] r */
  /* All metrics of the host, in the order they were defined. [any] r */
  belay_status (*each)(const belay_host*, void (*each)(void* user, const belay_metric_info*), void* user) BELAY_NOEXCEPT;
} belay_metrics_vt;

/* ---- belay.host.trace/1: records for diagnostics --------------------------------------------------------------------- */
#define BELAY_HOST_TRACE "belay.host.trace/1"

typedef struct belay_trace_vt {
  belay_hdr hdr;
  /* A word that is not 0 while somebody listens; read it (relaxed) before anything else is done for a record. Valid as
   * long as the host table. [any] r */
  const uint32_t* (*enabled)(const belay_host*) BELAY_NOEXCEPT;
  /* The id of a name, the same for the same text; for records. Errors: RESOURCE_EXHAUSTED (65,536 in a host). [any] r */
  belay_status (*name)(const belay_host*, belay_str text, uint32_t* out) BELAY_NOEXCEPT;
  /* Writes the text of a name; nothing for an unknown id. [any] r */
  void (*name_text)(const belay_host*, uint32_t name, belay_sink) BELAY_NOEXCEPT;
  /* The ring of the calling thread, made at the first call while somebody listens: for belay_trace_write on this thread
   * only, until the thread or the plugin ends. NULL: nobody listens, or there is no memory. [any] r */
  belay_trace_ring* (*ring)(const belay_host*) BELAY_NOEXCEPT;
} belay_trace_vt;

/* ---- belay.host.fs/1: the two places for files of a plugin ------------------------------------------------------------ */
#define BELAY_HOST_FS "belay.host.fs/1"

#define BELAY_FS_DATA 1u    /* libbelay_<id>.data beside the library: read-only; others can change it as little as the
                             * library */
#define BELAY_FS_SCRATCH 2u /* a folder of this plugin and this host alone, empty at first, removed with all that is in it
                             * when the plugin is closed */

/* Names are relative: "table.bin", in DATA also "sub/table.bin". '/' at the begin, "." or ".." as a part, NUL, and links
 * out of the place are refused with INVALID_ARGUMENT. */
typedef struct belay_fs_vt {
  belay_hdr hdr;
  /* Writes the absolute path of a place, for libraries that want one. Errors: NOT_FOUND (no data came with the plugin),
   * PERMISSION_DENIED (others could replace it), RESOURCE_EXHAUSTED (no room or no descriptor). [any] r */
  belay_status (*path)(const belay_host*, uint32_t place, belay_sink) BELAY_NOEXCEPT;
  /* A descriptor, close-on-exec, that the plugin closes: for reading, or with `write` (SCRATCH only) for reading and
   * writing a file that is made where it is not there. Errors: as `path`, NOT_FOUND, INVALID_ARGUMENT (no regular file). [any] r */
  belay_status (*open)(const belay_host*, uint32_t place, belay_str name, uint32_t write, int32_t* out_fd) BELAY_NOEXCEPT;
  /* Writes the bytes of a whole file to the sink, in pieces. [any] r */
  belay_status (*read)(const belay_host*, uint32_t place, belay_str name, belay_sink) BELAY_NOEXCEPT;
  /* Makes or replaces a file in SCRATCH: it has all bytes or is as it was. RESOURCE_EXHAUSTED: the disk is full or a
   * limit is reached. [any] r */
  belay_status (*write)(const belay_host*, belay_str name, belay_span bytes) BELAY_NOEXCEPT;
  belay_status (*remove)(const belay_host*, belay_str name) BELAY_NOEXCEPT; /* in SCRATCH. NOT_FOUND. [any] r */
} belay_fs_vt;

/* ---- belay.host.memory/1: large and pinned host memory ---------------------------------------------------------------- */
#define BELAY_HOST_MEMORY "belay.host.memory/1"

#define BELAY_MEMORY_PINNED 1u /* stays in memory: for transfers by a device */
#define BELAY_MEMORY_HUGE 2u   /* huge pages where the system has them; advice */

typedef struct belay_memory_req {
  belay_hdr hdr;   /* flags: BELAY_MEMORY_... */
  uint64_t bytes;  /* 1 or more; counted in whole pages */
  uint64_t align;  /* a power of two up to 1 GiB; 0: a page */
  belay_str usage; /* what it is for, "staging": for reports */
} belay_memory_req;

typedef struct belay_memory_usage { /* of the plugin; what belay_host.alloc gave is in it */
  belay_hdr hdr;
  uint64_t bytes, peak_bytes;
  uint64_t blocks;
  uint64_t pinned_bytes;
  uint64_t limit; /* plugin.<id>.memory_limit; UINT64_MAX: none */
} belay_memory_usage;

typedef struct belay_memory_vt {
  belay_hdr hdr;
  /* Zeroed memory that outlives the call; what is left when the plugin is closed is reported and taken back. Errors:
   * INVALID_ARGUMENT, RESOURCE_EXHAUSTED (names the limit: of the plugin, of pinned memory, of the system). [any] r */
  belay_status (*alloc)(const belay_host*, const belay_memory_req*, void** out) BELAY_NOEXCEPT;
  /* NULL is ignored; what this service did not give to this plugin is reported as a broken rule. [any] r */
  void (*free)(const belay_host*, void*) BELAY_NOEXCEPT;
  belay_status (*usage)(const belay_host*, belay_memory_usage* inout) BELAY_NOEXCEPT; /* [any] r */
} belay_memory_vt;

/* ---- belay.host.thread-check/1: what this thread is doing -------------------------------------------------------------- */
#define BELAY_HOST_THREAD_CHECK "belay.host.thread-check/1"

/* Domains, one bit each. Slots of the hot path (streams, kernels) are not marked: there the domain is what is around
 * them, or OUTSIDE. */
#define BELAY_THREAD_OUTSIDE 1u  /* a thread of the application, of the plugin or of a device */
#define BELAY_THREAD_ENTRY 2u    /* an entry function: the host may not be called */
#define BELAY_THREAD_INIT 4u     /* open, start, close */
#define BELAY_THREAD_SERIAL 8u   /* score, create, quiesce */
#define BELAY_THREAD_DESTROY 16u /* destroy: the host may not be called, but for free, release and this service */
#define BELAY_THREAD_IO 32u      /* a task of post or timer: to return within 5 ms */
#define BELAY_THREAD_LONG 64u    /* a task of post_blocking */

typedef struct belay_thread_info {
  belay_hdr hdr;
  uint64_t domain;  /* BELAY_THREAD_... of the innermost call */
  belay_str plugin; /* whose code runs; empty when OUTSIDE. Both live until that call returns */
  belay_str slot;   /* "open", "a task" */
} belay_thread_info;

typedef struct belay_thread_check_vt {
  belay_hdr hdr;
  uint32_t (*domain)(const belay_host*) BELAY_NOEXCEPT; /* [any] [nolock] r */
  belay_status (*info)(const belay_host*, belay_thread_info* inout) BELAY_NOEXCEPT; /* [any] r */
  /* OK when the domain is one of `allowed` (bits); else FAILED_PRECONDITION, and the first breach of `what` is logged
   * with both domains. [any] r */
  belay_status (*check)(const belay_host*, uint32_t allowed, belay_str what) BELAY_NOEXCEPT;
} belay_thread_check_vt;

/* ---- belay.host.fault/1: places where a failure can be ordered ---------------------------------------------------------- */
#define BELAY_HOST_FAULT "belay.host.fault/1"

typedef struct belay_fault_vt {
  belay_hdr hdr;
  /* Passes the point "<plugin>.<point>". OK, unless [[fault.points]] of the configuration orders something there: then
   * it sleeps for the delay, or gives the code, with a message that says it was ordered. Where nothing is ordered it is
   * one load. The host itself passes "<plugin>.alloc" in belay_host.alloc and the memory service. [any] r */
  belay_status (*at)(const belay_host*, belay_str point) BELAY_NOEXCEPT;
} belay_fault_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_SERVICES_H */
