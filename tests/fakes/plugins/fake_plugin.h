// The kind that the fake plugins offer, and what they can be told to do wrong.
#pragma once

#include <belay/abi/base.h>

#define FAKE_KIND "test.counter/1"

typedef struct fake_counter_vt {
  belay_hdr hdr;
  uint64_t (*add)(belay_obj*, uint64_t); /* r */
  uint64_t (*get)(belay_obj*);           /* r */
  void (*destroy)(belay_obj*);           /* r */
} fake_counter_vt;
