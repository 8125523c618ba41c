// simd/target.hpp: what follows one of these, up to BELAY_TARGET_END, is compiled for a level of the instruction set.
// Headers come before it: an inline function of theirs compiled here could be the one the whole library calls.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#define BELAY_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define BELAY_TARGET(...) \
  BELAY_PRAGMA(clang attribute push(__attribute__((target(__VA_ARGS__))), apply_to = function))
#define BELAY_TARGET_512(features) BELAY_TARGET(features)
#define BELAY_TARGET_END BELAY_PRAGMA(clang attribute pop)
#else
#define BELAY_TARGET(...) BELAY_PRAGMA(GCC push_options) BELAY_PRAGMA(GCC target(__VA_ARGS__))
#define BELAY_TARGET_512(features) BELAY_TARGET(features, "prefer-vector-width=512")
#define BELAY_TARGET_END BELAY_PRAGMA(GCC pop_options)
#endif
#define BELAY_TARGET_AVX2 BELAY_TARGET("avx2,fma,f16c")
#define BELAY_TARGET_AVX512 BELAY_TARGET_512("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#define BELAY_TARGET_VNNI BELAY_TARGET_512("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#define BELAY_TARGET_VBMI BELAY_TARGET_512("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma,f16c")
#endif
