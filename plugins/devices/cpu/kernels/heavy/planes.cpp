#include "planes.hpp"

#include <algorithm>
#include <cstring>

namespace belay::cpu {

void fill_band(const Window& w, const Planes& planes, const float* x, int64_t top, float* to) {
  const Micro& loops = micro();
  const int64_t depth = std::min(w.in[0], planes.slices - w.begin[0]), stride = w.stride[2];
  const int64_t columns = std::min(w.in[2], planes.pitch * stride - w.begin[2]);
  if (columns <= 0) return;
  const auto column_at = [&](int64_t place) { return place % stride * planes.part + place / stride; };
  for (int64_t d = 0; d < depth; ++d)
    // Rows that are a stride apart lie one behind the other.
    for (int64_t phase = 0; phase < w.stride[1]; ++phase) {
      const int64_t place = top * w.stride[1] + phase - w.begin[1];  // in the input, of the first of these rows
      const int64_t begin = place >= 0 ? 0 : std::min(planes.rows, ceil_div(-place, w.stride[1]));
      const int64_t end =
          place >= w.in[1] ? begin : std::clamp(ceil_div(w.in[1] - place, w.stride[1]), begin, planes.rows);
      float* const base = to + (d + w.begin[0]) * planes.slice + phase * stride * planes.part;
      for (int64_t part = 0; part < stride; ++part) {
        float* const rows = base + part * planes.part;
        std::memset(rows, 0, size_t(begin * planes.pitch) * sizeof(float));
        std::memset(rows + end * planes.pitch, 0, size_t((planes.rows - end) * planes.pitch) * sizeof(float));
      }
      if (begin == end) continue;
      const int64_t step = w.stride[1] * w.in[2];
      const float* from = x + (d * w.in[1] + place + begin * w.stride[1]) * w.in[2];
      float* const first = base + begin * planes.pitch;
      if (stride == 1) {
        loops.pad_rows(first + w.begin[2], planes.pitch, from, step, end - begin, columns);
      } else if (stride == 2) {
        loops.pad_halves(first + column_at(w.begin[2]), first + column_at(w.begin[2] + 1), planes.pitch, from,
                         step, end - begin, columns);
      } else {
        for (int64_t r = 0; r < end - begin; ++r)
          for (int64_t i = 0; i < std::min(stride, columns); ++i)
            loops.copy_row(first + r * planes.pitch + column_at(w.begin[2] + i), from + r * step + i,
                           ceil_div(columns - i, stride), stride);
      }
    }
}

}  // namespace belay::cpu
