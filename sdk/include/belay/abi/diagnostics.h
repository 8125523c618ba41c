/* belay/abi/diagnostics.h: kind belay.diagnostics/1: receives records, offers checks and dumps. */
#ifndef BELAY_ABI_DIAGNOSTICS_H
#define BELAY_ABI_DIAGNOSTICS_H

#include <belay/abi/base.h>
#include <belay/abi/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_DIAGNOSTICS_KIND "belay.diagnostics/1"

#define BELAY_CHECK_PASSED 0u
#define BELAY_CHECK_WARNING 1u
#define BELAY_CHECK_FAILED 2u
#define BELAY_CHECK_SKIPPED 3u

typedef struct belay_check_info {
  belay_hdr hdr;
  belay_str name; /* "memory.huge-pages"; lives as long as the object */
  belay_str doc;
} belay_check_info;

typedef struct belay_diagnostics_vt {
  belay_hdr hdr;
  /* A batch of records in the order of their ends, one thread's each. Long work is allowed; never on a thread that
   * submits work. Null: wants none. [io] o */
  void (*on_records)(belay_obj*, const belay_trace_record* records, uint64_t count) BELAY_NOEXCEPT;
  uint64_t (*check_count)(belay_obj*) BELAY_NOEXCEPT;                                              /* [any] r */
  belay_status (*check_info)(belay_obj*, uint64_t index, belay_check_info* inout) BELAY_NOEXCEPT; /* [any] r */
  /* Runs a check of `belay doctor`: gives BELAY_CHECK_... and writes what was found and what to do. [any] r */
  belay_status (*run_check)(belay_obj*, uint64_t index, uint64_t* out_outcome, belay_sink text) BELAY_NOEXCEPT;
  /* Writes what was gathered in `format` ("json", "text"). Errors: UNIMPLEMENTED (names the formats there are). [any] o */
  belay_status (*dump)(belay_obj*, belay_str format, belay_sink) BELAY_NOEXCEPT;
  belay_status (*flush)(belay_obj*) BELAY_NOEXCEPT; /* [any] o */
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT;       /* [serial] r */
} belay_diagnostics_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_DIAGNOSTICS_H */
