/* belay/abi/value.h: a validated configuration value. Plugins read values through this view and never parse TOML. */
#ifndef BELAY_ABI_VALUE_H
#define BELAY_ABI_VALUE_H

#include <belay/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_VALUE_NONE 0u
#define BELAY_VALUE_BOOL 1u
#define BELAY_VALUE_INT 2u
#define BELAY_VALUE_FLOAT 3u
#define BELAY_VALUE_STRING 4u
#define BELAY_VALUE_LIST 5u
#define BELAY_VALUE_TABLE 6u

typedef struct belay_value belay_value;

/* Views of children stay valid as long as the root. All slots: [any] r; none allocates. */
typedef struct belay_value_vt {
  belay_hdr hdr;
  uint32_t (*type)(const belay_value*) BELAY_NOEXCEPT;       /* BELAY_VALUE_... */
  uint32_t (*as_bool)(const belay_value*) BELAY_NOEXCEPT;    /* 0 or 1; 0 for another type */
  int64_t (*as_int)(const belay_value*) BELAY_NOEXCEPT;      /* 0 for another type; sizes such as "64MiB" are ints here */
  double (*as_float)(const belay_value*) BELAY_NOEXCEPT;     /* ints are widened; 0 for another type */
  belay_str (*as_string)(const belay_value*) BELAY_NOEXCEPT; /* empty for another type */
  uint64_t (*count)(const belay_value*) BELAY_NOEXCEPT;      /* elements of a list, members of a table, else 0 */
  const belay_value* (*at)(const belay_value*, uint64_t index) BELAY_NOEXCEPT;      /* list; NULL past the end */
  const belay_value* (*get)(const belay_value*, belay_str key) BELAY_NOEXCEPT;      /* table; NULL when not set */
  belay_str (*key_at)(const belay_value*, uint64_t index) BELAY_NOEXCEPT;           /* table; empty past the end */
  void (*where)(const belay_value*, belay_sink) BELAY_NOEXCEPT; /* "belay.toml:14:3", or "default" */
} belay_value_vt;

struct belay_value {
  const belay_value_vt* vt; /* the host's implementation follows */
};

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_VALUE_H */
