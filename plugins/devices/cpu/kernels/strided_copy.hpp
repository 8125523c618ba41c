// Copies between two arrays that are walked with strides: what transposing, slicing, joining, tiling and
// padding come to.
#pragma once

#include "run.hpp"
#include "shape.hpp"

namespace belay::cpu {

class StridedCopy {
 public:
  StridedCopy() = default;
  // Strides in elements of `bytes` bytes (1, 2, 4, 8, 16), by dim; those of the source may be negative or 0.
  StridedCopy(const Dims& dims, const Dims& src_strides, const Dims& dst_strides, uint32_t bytes);

  // `src` and `dst` are the elements at index 0.
  void run(const Run& run, const void* src, void* dst) const;

 private:
  enum class Form : uint8_t { kEmpty, kRuns, kTransposed, kElements };
  template <class T>
  void runs(const T* src, T* dst, int64_t begin, int64_t end) const;
  void transposed(const char* src, char* dst, int64_t begin, int64_t end) const;

  Walk walk_;  // strides[0]: source, strides[1]: destination
  uint32_t bytes_ = 1;
  Form form_ = Form::kEmpty;
  int64_t inner_ = 1;  // elements of a run (kRuns, kElements)
  int64_t rows_ = 1,
          cols_ = 1;  // of a transposed block: rows are contiguous in the destination, columns in the source
  int64_t row_step_ = 0,
          col_step_ = 0;  // source step from row to row; destination step from column to column
};

}  // namespace belay::cpu
