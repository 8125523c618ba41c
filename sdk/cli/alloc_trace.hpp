// A trace of a program's allocations in a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace belay::cli {

struct AllocTrace {
  enum class Op : uint8_t { kPlace, kRelease, kReleaseUsed, kUse };  // used: on other streams too
  struct Row {
    uint64_t bytes;   // of kPlace
    uint32_t slot;    // where the program keeps the block; one that was released gives its slot away
    uint32_t stream;
    Op op;
    uint8_t align_bits = kAlignBits;  // of kPlace: a multiple of two to the power of it
  };
  static constexpr uint8_t kAlignBits = 6;  // where the trace does not say: 64 bytes, as the runtime asks for
  std::vector<Row> rows;
  uint32_t slots = 0, streams = 0;  // streams: the highest number and one
  uint32_t streams_used = 0;
  uint64_t left = 0;  // blocks that the program does not free; rows at the end do
  uint64_t pairs = 0;
  uint64_t max_live = 0;  // the maximum of bytes in use, as asked for
  uint64_t fullest = 0;   // the row after which it is reached first
};

// Reads comma-separated rows, plain or compressed by gzip, with the columns op,id,size,stream and perhaps alignment in any
// order, in the order of the program: `a` allocates size bytes for the stream, `u` uses them on another stream as well, `f`
// frees them where the stream stands. Failures name the file and the line. What is not freed is freed at the end.
AllocTrace read_alloc_trace(const std::string& path);

}  // namespace belay::cli
