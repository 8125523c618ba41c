// Reads a broadcast operand block by block: at flat indices of the output, contiguous, 16-bit floats widened
// to float.
#pragma once

#include "convert.hpp"
#include "shape.hpp"

#include <cstring>

namespace belay::cpu {

inline constexpr int64_t kBlock = 512;
// Room for a block of any type.
struct alignas(64) BlockBuffer {
  char bytes[kBlock * 16];
};

class BlockReader {
 public:
  BlockReader() = default;
  BlockReader(uint32_t dtype, const Dims& dims, const Dims& out)
      : dtype_(dtype), bytes_(element_bytes(dtype)), walk_(out, {broadcast_strides(dims, out)}) {
    const bool scalar = product(dims) == 1;
    const bool whole = walk_.rank() == 0 || (walk_.rank() == 1 && walk_.strides[0][0] == 1);
    form_ = whole ? Form::kWhole : scalar ? Form::kScalar : Form::kGather;
  }
  bool whole() const { return form_ == Form::kWhole; }
  bool scalar() const { return form_ == Form::kScalar; }

  // Elements [begin, begin + n) of the output's index space, n <= kBlock; in the operand itself where that is
  // possible.
  const void* read(const void* from, int64_t begin, int64_t n, BlockBuffer& buffer) const {
    const char* base = static_cast<const char*>(from);
    if (form_ == Form::kWhole) {
      const char* at = base + begin * bytes_;
      if (!is_16bit_float(dtype_)) return at;
      widen(dtype_, at, reinterpret_cast<float*>(buffer.bytes), n);
      return buffer.bytes;
    }
    if (is_16bit_float(dtype_)) {
      uint16_t narrow_bits[kBlock];
      fill<uint16_t>(base, begin, n, narrow_bits);
      widen(dtype_, narrow_bits, reinterpret_cast<float*>(buffer.bytes), n);
    } else {
      dispatch_bytes(bytes_, [&](auto tag) {
        using T = typename decltype(tag)::type;
        fill<T>(base, begin, n, reinterpret_cast<T*>(buffer.bytes));
      });
    }
    return buffer.bytes;
  }

 private:
  enum class Form : uint8_t { kWhole, kScalar, kGather };

  template <class T>
  void fill(const char* base, int64_t begin, int64_t n, T* to) const {
    const T* from = reinterpret_cast<const T*>(base);
    if (form_ == Form::kScalar) {
      std::fill_n(to, n, *from);
      return;
    }
    const int64_t inner = walk_.dims.back(), stride = walk_.strides[0].back();
    const int64_t first = begin / inner, last = (begin + n - 1) / inner;
    int64_t skip = begin % inner;
    for_runs<1>(walk_, 1, first, last + 1, [&](int64_t, const int64_t* offset) {
      const int64_t m = std::min(inner - skip, n);
      const T* at = from + offset[0] + skip * stride;
      if (stride == 0)
        std::fill_n(to, m, *at);
      else
        for (int64_t i = 0; i < m; ++i) to[i] = at[i];
      to += m;
      n -= m;
      skip = 0;
    });
  }

  uint32_t dtype_ = 0;
  int64_t bytes_ = 0;
  Walk walk_;
  Form form_ = Form::kWhole;
};

// Calls f(begin, n) for the blocks of [begin, end).
template <class F>
void for_blocks(int64_t begin, int64_t end, F&& f) {
  for (; begin < end; begin += kBlock) f(begin, std::min(kBlock, end - begin));
}

}  // namespace belay::cpu
