/* belay/abi/memory_policy.h: kind belay.memory-policy/1: arithmetic on sizes and offsets. A policy never touches memory
 * and never calls a device, so it is the same on every device, can be seeded and fuzzed. All slots are [any]: locking is
 * the policy's own. Slots of classes that it does not serve are null. */
#ifndef BELAY_ABI_MEMORY_POLICY_H
#define BELAY_ABI_MEMORY_POLICY_H

#include <belay/abi/base.h>
#include <belay/abi/driver.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_MEMORY_POLICY_KIND "belay.memory-policy/1"

#define BELAY_POLICY_PLAN 1u
#define BELAY_POLICY_PLACE 2u
#define BELAY_POLICY_BIND 4u

/* ---- PLAN: static placement of buffers with known lifetimes ---------------------------------------------------------- */
typedef struct belay_interval { /* live from step `begin` to just before step `end` */
  uint64_t begin, end;
} belay_interval;

typedef struct belay_pair {
  uint32_t first, second;
} belay_pair;

#define BELAY_OFFSET_FREE 0xffffffffffffffffu /* in fixed_offset: the policy chooses */

typedef struct belay_plan_req {
  belay_hdr hdr;
  uint64_t count;                  /* buffers */
  const uint64_t* bytes;           /* [count]; 0 is allowed */
  const uint64_t* align;           /* [count], powers of two; NULL: 64 */
  const uint32_t* arena;           /* [count]; NULL: all in arena 0 */
  uint64_t arena_count;
  const uint64_t* interval_first;  /* [count + 1]: buffer i lives in intervals[first[i] .. first[i + 1]) */
  const belay_interval* intervals; /* sorted and disjoint for each buffer */
  const belay_pair* conflicts;     /* pairs that must not share although their intervals do not meet */
  uint64_t conflict_count;
  /* Pairs (input, output) of one kernel that may write over its input. The two meet in exactly one step, the kernel's:
   * input.end == output.begin + 1 (of the input's last and the output's first interval). In that step they may overlap,
   * but only where both have the same offset; then either may be the larger one. Such a pair is permission, not a
   * wish: apart is right too. */
  const belay_pair* in_place;
  uint64_t in_place_count;
  const uint64_t* fixed_offset;    /* [count], BELAY_OFFSET_FREE where open; NULL: all open */
  const uint64_t* capacity;        /* [arena_count]: stop when the peak is at or below; NULL: as low as the budget allows */
  uint64_t budget_ns;              /* time after which to look for no better one; 0: the quick answer */
  uint64_t seed;                   /* equal seeds give equal answers where the budget does not end the search */
  const uint32_t* cancel;          /* becomes non-zero: return the best so far; NULL: never */
} belay_plan_req;

typedef struct belay_plan_result { /* arrays belong to the caller */
  belay_hdr hdr;
  uint64_t* offset;      /* [count] */
  uint64_t* peak;        /* [arena_count] */
  uint64_t* lower_bound; /* [arena_count]: the maximum of live bytes */
  uint64_t optimal;      /* 1: peak is proved smallest in every arena */
} belay_plan_result;

/* ---- PLACE: dynamic allocation out of segments ------------------------------------------------------------------------
 * A block is used in the order of one timeline at a time. It is released with the events that end its uses and may be
 * placed again before they are reached: on the timeline of all of them at once, elsewhere with those that are not reached
 * as waits. */
/* Of the first byte of each segment; more than this is declined. */
#define BELAY_SEGMENT_ALIGNMENT 0x200000u

typedef struct belay_progress { /* what is reached; the caller's, valid during the call that gets it */
  /* Whether an event is reached; 1 too for a timeline that ended. Takes no lock of a policy's caller. */
  uint32_t (*reached)(void* user, belay_event) BELAY_NOEXCEPT;
  void* user;
} belay_progress;

/* In hdr.flags: the caller has no memory for a segment, so waiting for other streams comes before NEED_SEGMENT. */
#define BELAY_PLACE_SHORT 1u

typedef struct belay_place_req {
  belay_hdr hdr;         /* flags: BELAY_PLACE_... */
  uint64_t bytes, align; /* align: a power of two; 0: 1 */
  uint64_t heap;     /* a number that the host gives to each heap of each device; a place is in a segment of that heap */
  uint64_t timeline; /* stream that will use the block first; 0: the host, which waits by blocking */
  uint64_t owner;    /* for statistics */
  const belay_progress* progress; /* NULL: what is not known to be reached is not */
} belay_place_req;

typedef struct belay_placed {
  belay_hdr hdr;
  uint64_t segment, offset, cookie;
  uint64_t wait_count; /* in: room in `waits`; out: events to wait for before use, none of the request's timeline */
  belay_event* waits;
  uint64_t need_bytes; /* with NEED_SEGMENT: how large */
} belay_placed;

/* Bytes, but for what is named otherwise. Of all heaps together. */
typedef struct belay_policy_stats {
  belay_hdr hdr;
  uint64_t reserved, in_use, peak_in_use; /* in_use: of blocks, with what rounding adds */
  uint64_t requested;                     /* as asked for by what is in use: in_use - requested is lost inside blocks */
  uint64_t largest_free;                  /* that one place could have without a segment more */
  uint64_t blocks;                        /* number in use */
  uint64_t free_blocks;                   /* number of ranges between them */
  uint64_t pending;                       /* free, but with uses that were not reached when last looked at */
  uint64_t peak_reserved;
  uint64_t segments;                      /* number */
  uint64_t places, releases, waits, need_segments, exhausted, trimmed; /* numbers, since it was made */
} belay_policy_stats;

/* ---- BIND: host memory as device memory ---------------------------------------------------------------------------------- */
#define BELAY_BIND_COPY 0u
#define BELAY_BIND_SHARE 1u
typedef struct belay_bind_req {
  belay_hdr hdr;
  uint64_t address, bytes, access; /* BELAY_ACCESS_... */
  uint64_t device_flags;           /* BELAY_DEVICE_... */
  uint64_t alignment;              /* that the user of the memory needs */
} belay_bind_req;

typedef struct belay_bound {
  belay_hdr hdr;
  uint64_t mode;     /* BELAY_BIND_... */
  belay_sink reason; /* set by the caller: why it is a copy, as what follows "because": no capital, no full stop */
} belay_bound;

typedef struct belay_memory_policy_vt {
  belay_hdr hdr;
  uint64_t (*serves)(belay_obj*) BELAY_NOEXCEPT; /* BELAY_POLICY_... [pure] r */
  /* Errors: INVALID_ARGUMENT (names the buffer), RESOURCE_EXHAUSTED. PLAN: r */
  belay_status (*plan)(belay_obj*, const belay_plan_req*, belay_plan_result*) BELAY_NOEXCEPT;
  /* Errors: NEED_SEGMENT (the caller adds one of `need_bytes` or more and asks again, or trims), DECLINED,
   * RESOURCE_EXHAUSTED (a limit of the policy's own). PLACE: r, with the five after it */
  belay_status (*place)(belay_obj*, const belay_place_req*, belay_placed*) BELAY_NOEXCEPT;
  /* The block may be used again once `uses` are reached, which are one event of each timeline; 0 of them: at once.
   * Errors: NOT_FOUND (no such cookie); the block of a cookie that is refused stays in use. */
  belay_status (*release)(belay_obj*, uint64_t cookie, const belay_event* uses, uint64_t count) BELAY_NOEXCEPT;
  /* Ids are unique over all devices and never given again. */
  belay_status (*segment_add)(belay_obj*, uint64_t segment, uint64_t bytes, uint64_t heap) BELAY_NOEXCEPT;
  /* Cookies of blocks that are still in it end. Errors: NOT_FOUND. */
  belay_status (*segment_remove)(belay_obj*, uint64_t segment) BELAY_NOEXCEPT;
  /* Calls `each` with segments that hold nothing in use, until `bytes` are named; the host leaves those with uses that are
   * not reached. It lets no `place` of the same device run until it has removed those it wants. */
  belay_status (*trim)(belay_obj*, uint64_t bytes, void (*each)(void* user, uint64_t segment), void* user) BELAY_NOEXCEPT;
  /* SHARE or COPY, from the numbers alone. Errors: DECLINED (the next policy is asked), INVALID_ARGUMENT. BIND: r */
  belay_status (*bind)(belay_obj*, const belay_bind_req*, belay_bound*) BELAY_NOEXCEPT;
  belay_status (*stats)(belay_obj*, belay_policy_stats* inout) BELAY_NOEXCEPT; /* r */
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT;                                  /* [serial] r */
  /* What is where, as one JSON object: {"schema": "belay.memory-snapshot/1", "policy": ID, "segments": [{"segment", "heap",
   * "bytes", "blocks": [{"offset", "bytes", "state": "used" | "free" | "pending", "requested", "owner"}]}], "classes":
   * [{"bytes", "used", "free"}]}. PLACE: o */
  belay_status (*snapshot)(belay_obj*, belay_sink json) BELAY_NOEXCEPT;
} belay_memory_policy_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_MEMORY_POLICY_H */
