#include "copy.h"

#include "device.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace belay::cpu {
namespace {

constexpr uint64_t kShareFillFrom = uint64_t{1} << 20;  // bytes; below, a second thread does not pay
constexpr uint64_t kTile = uint64_t{256} << 10;         // multiple of kLine
constexpr uint64_t kStreamFrom = uint64_t{16} << 20;    // measured: memcpy wins below, streaming stores above
constexpr uint64_t kLine = 64;

#if defined(__x86_64__)
// `to` and `bytes` are multiples of 64. rep movsb is as fast on some processors and half as fast on others.
__attribute__((target("avx512f"))) void stream_avx512(char* to, const char* from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  _mm_sfence();
}
void stream_sse2(char* to, const char* from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 64) {
    for (uint64_t j = 0; j < 64; j += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + j),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i + j)));
  }
  _mm_sfence();
}
void stream_lines(char* to, const char* from, uint64_t bytes) {
  static const bool wide = __builtin_cpu_supports("avx512f");
  wide ? stream_avx512(to, from, bytes) : stream_sse2(to, from, bytes);
}
#else
void stream_lines(char* to, const char* from, uint64_t bytes) { std::memcpy(to, from, bytes); }
#endif

struct CopyJob {
  char* to;
  const char* from;
  uint64_t bytes;
};

void copy_tile(void* arg, uint64_t index) {
  const CopyJob& job = *static_cast<const CopyJob*>(arg);
  const uint64_t begin = index * kTile, bytes = std::min(kTile, job.bytes - begin);
  const uint64_t lines = bytes - bytes % kLine;
  stream_lines(job.to + begin, job.from + begin, lines);
  std::memcpy(job.to + begin + lines, job.from + begin + lines, bytes - lines);
}

struct FillJob {
  char* to;
  uint64_t bytes;
  uint64_t pattern;
};

void fill_tile(void* arg, uint64_t index) {
  const FillJob& job = *static_cast<const FillJob*>(arg);
  const uint64_t begin = index * kTile, bytes = std::min(kTile, job.bytes - begin);
  char* to = job.to + begin;
  uint64_t i = 0;
  for (; i + 8 <= bytes; i += 8) std::memcpy(to + i, &job.pattern, 8);
  std::memcpy(to + i, &job.pattern, bytes - i);
}

// Workers that poll join; none is woken (cost 0): a waking thread comes late for a small range, and for a
// large one a single thread of streaming stores nearly fills the memory's bandwidth.
void share_out(Exec& exec, uint64_t bytes, void (*body)(void*, uint64_t), void* job) {
  parallel_for(*exec.device, *exec.thread, (bytes + kTile - 1) / kTile, body, job, 0);
}

}  // namespace

uint32_t copy_cost(uint64_t bytes) { return uint32_t(std::min<uint64_t>(20 + bytes / 10, 1'000'000'000)); }

void copy_bytes(Exec& exec, void* to, const void* from, uint64_t bytes) {
  // What the caches hold stays with one thread: another would fetch it from this one's cache.
  if (bytes < kStreamFrom) {
    if (bytes) std::memcpy(to, from, bytes);
    return;
  }
  CopyJob job{static_cast<char*>(to), static_cast<const char*>(from), bytes};
  // Streaming stores want whole cache lines of the target.
  const uint64_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  std::memcpy(job.to, job.from, head);
  job.to += head;
  job.from += head;
  job.bytes -= head;
  share_out(exec, job.bytes, copy_tile, &job);
}

void fill_bytes(Exec& exec, void* to, uint64_t bytes, uint64_t pattern, uint64_t pattern_bytes) {
  if (pattern_bytes < 8) pattern &= (uint64_t{1} << pattern_bytes * 8) - 1;
  for (uint64_t width = pattern_bytes; width < 8; width *= 2) pattern |= pattern << width * 8;
  if (bytes == 0) return;
  FillJob job{static_cast<char*>(to), bytes, pattern};
  if (bytes >= kShareFillFrom) return share_out(exec, bytes, fill_tile, &job);
  for (uint64_t i = 0; i * kTile < bytes; ++i) fill_tile(&job, i);
}

}  // namespace belay::cpu
