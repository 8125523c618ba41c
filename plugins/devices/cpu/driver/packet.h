// A queued operation: 64 bytes in the ring of its stream, followed by more slots where its arguments need them.
#pragma once

#include <belay/abi/driver.h>

#include <cstdint>

namespace belay::cpu {

class Device;
class Stream;
struct ThreadState;

// What stands around an operation while it runs; `api` is what a kernel sees of it.
struct Exec {
  belay_exec api;
  Device* device = nullptr;
  Stream* stream = nullptr;
  ThreadState* thread = nullptr;
  uint32_t cost_ns = 0;  // of the operation that runs; kUnknownCost
  uint32_t node = 0;     // of the program that runs
  void* (*output)(void* user, uint64_t index, const int64_t* dims, uint32_t rank) = nullptr;  // of the launch
  void* output_user = nullptr;
};

struct Packet;
// Runs the operation; on failure the status of the host, owned by the caller.
using RunFn = belay_status (*)(Exec&, const Packet&);

enum class Kind : uint8_t { kLaunch, kCopy, kFill, kWait, kHostCall, kProgram, kFiller };

inline constexpr uint8_t kWorkerOnly = 1;  // foreign code: never on the thread of someone who waits
inline constexpr uint8_t kSpecial = 2;     // a wait or a filler: handled by the stream, not run
inline constexpr uint32_t kUnknownCost = ~uint32_t{0};

struct alignas(64) Packet {
  RunFn run;
  uint32_t cost_ns;  // estimate, or kUnknownCost
  uint16_t slots;    // this one and the following ones that belong to it
  Kind kind;
  uint8_t flags;
  // kLaunch: kernel, output function, its user, arguments (in the following slots as well)
  // kCopy: destination, source, bytes;  kFill: destination, bytes, pattern, its bytes
  // kWait: timeline, value;  kHostCall: function, its user;  kProgram: instance
  uint64_t words[6];
};
static_assert(sizeof(Packet) == 64);
inline constexpr uint64_t kLaunchHead = 3;   // words of a launch before its arguments
inline constexpr uint64_t kWordsInFirst = 6, kWordsInNext = 8;

template <class T>
T* pointer(uint64_t word) {
  return reinterpret_cast<T*>(word);
}
template <class T>
uint64_t word(T* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace belay::cpu
