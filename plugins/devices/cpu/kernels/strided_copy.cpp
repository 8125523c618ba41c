#include "strided_copy.hpp"

#include "simd/simd.hpp"

#include <cstring>

namespace belay::cpu {

StridedCopy::StridedCopy(const Dims& dims, const Dims& src_strides, const Dims& dst_strides, uint32_t bytes)
    : walk_(dims, {src_strides, dst_strides}), bytes_(bytes) {
  if (product(dims) == 0) return;
  if (walk_.rank() == 0) walk_.dims = {1}, walk_.strides = {{1}, {1}};
  const size_t last = walk_.rank() - 1;
  inner_ = walk_.dims[last];
  form_ = walk_.strides[0][last] == 1 && walk_.strides[1][last] == 1 ? Form::kRuns : Form::kElements;

  // A dim that is dense in the source and one that is dense in the destination, not the same: blocks of the
  // two are transposed in cache.
  if (form_ == Form::kElements && walk_.strides[1][last] == 1 && walk_.rank() >= 2) {
    size_t dense = last;
    for (size_t d = 0; d < last; ++d)
      if (walk_.strides[0][d] == 1) dense = d;
    if (dense != last && walk_.dims[dense] >= 4 && inner_ >= 4) {
      form_ = Form::kTransposed;
      rows_ = inner_;
      row_step_ = walk_.strides[0][last];
      cols_ = walk_.dims[dense];
      col_step_ = walk_.strides[1][dense];
      // The block's dims leave the walk; what is left is walked from the outside.
      for (const size_t d : {last, dense}) {
        walk_.dims.erase(walk_.dims.begin() + ptrdiff_t(d));
        for (Dims& strides : walk_.strides) strides.erase(strides.begin() + ptrdiff_t(d));
      }
      return;
    }
  }
}

template <class T>
void StridedCopy::runs(const T* src, T* dst, int64_t begin, int64_t end) const {
  const int64_t from = walk_.strides[0].back(), to = walk_.strides[1].back();
  for_runs<2>(walk_, 1, begin, end, [&](int64_t, const int64_t* offset) {
    const T* s = src + offset[0];
    T* d = dst + offset[1];
    if (form_ == Form::kRuns) {
      std::memcpy(d, s, size_t(inner_) * sizeof(T));
    } else if (from == 0 && to == 1) {
      std::fill_n(d, inner_, *s);
    } else {
      for (int64_t i = 0; i < inner_; ++i) d[i * to] = s[i * from];
    }
  });
}

namespace {
constexpr int64_t kTile = 64;

template <class T>
void transpose_tile(const T* src, int64_t src_step, T* dst, int64_t dst_step, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; r += 8)
    for (int64_t c = 0; c < cols; c += 8)
      for (int64_t j = c; j < std::min(c + 8, cols); ++j)
        for (int64_t i = r; i < std::min(r + 8, rows); ++i) dst[j * dst_step + i] = src[i * src_step + j];
}
}  // namespace

// Items are tiles of columns, of all outer indices.
void StridedCopy::transposed(const char* src, char* dst, int64_t begin, int64_t end) const {
  const int64_t tiles = (cols_ + kTile - 1) / kTile;
  int64_t skip = begin % tiles, left = end - begin;
  for_runs<2>(walk_, 0, begin / tiles, (end - 1) / tiles + 1, [&](int64_t, const int64_t* offset) {
    for (int64_t t = skip; t < tiles && left > 0; ++t, --left) {
      const int64_t c = t * kTile, cols = std::min(kTile, cols_ - c);
      for (int64_t r = 0; r < rows_; r += kTile) {
        const int64_t rows = std::min(kTile, rows_ - r);
        dispatch_bytes(bytes_, [&](auto tag) {
          using T = typename decltype(tag)::type;
          const T* s = reinterpret_cast<const T*>(src) + offset[0] + r * row_step_ + c;
          T* d = reinterpret_cast<T*>(dst) + offset[1] + c * col_step_ + r;
          if constexpr (sizeof(T) == 4)
            simd().transpose32(s, row_step_, d, col_step_, rows, cols);
          else
            transpose_tile(s, row_step_, d, col_step_, rows, cols);
        });
      }
    }
    skip = 0;
  });
}

void StridedCopy::run(const Run& run, const void* src, void* dst) const {
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  switch (form_) {
    case Form::kEmpty:
      return;
    case Form::kTransposed: {
      const int64_t tiles = (cols_ + kTile - 1) / kTile;
      const double ns = double(rows_ * std::min(cols_, kTile)) * 0.3 * bytes_ / 4;
      run.parallel(walk_.count() * tiles, grain_of(ns),
                   [&](int64_t begin, int64_t end) { transposed(from, to, begin, end); });
      return;
    }
    case Form::kRuns:
    case Form::kElements: {
      const int64_t count = product(walk_.dims, 0, walk_.rank() - 1);
      if (count == 1 && form_ == Form::kRuns) {  // one run: cut it
        run.parallel(inner_ * bytes_, grain_of(0.08), [&](int64_t begin, int64_t end) {
          std::memcpy(to + begin, from + begin, size_t(end - begin));
        });
        return;
      }
      const double ns = form_ == Form::kRuns ? 3 + double(inner_ * bytes_) * 0.05 : 3 + double(inner_) * 0.6;
      run.parallel(count, grain_of(ns), [&](int64_t begin, int64_t end) {
        dispatch_bytes(bytes_, [&](auto tag) {
          using T = typename decltype(tag)::type;
          runs<T>(reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), begin, end);
        });
      });
      return;
    }
  }
}

}  // namespace belay::cpu
