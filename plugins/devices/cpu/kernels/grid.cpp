// GridSample and AffineGrid.
#include "convert.hpp"
#include "registry.hpp"

#include <algorithm>
#include <cmath>

namespace belay::cpu {
namespace {

enum class Padding : uint8_t { kZeros, kBorder, kReflection };
enum class Interpolation : uint8_t { kNearest, kLinear, kCubic };

struct GridSample {
  int64_t channels = 0;
  int64_t dims[3] = {1, 1, 1};  // depth, height, width; an image without depth has one of 1
  int64_t rank = 2;             // spatial dims, of which the grid gives the last first
  int64_t cells = 0;            // places of one image's grid
  Interpolation how = Interpolation::kLinear;
  Padding padding = Padding::kZeros;
  bool corners = false;

  double position(double grid, int64_t dim) const {
    return corners ? (grid + 1) / 2 * double(dim - 1) : ((grid + 1) * double(dim) - 1) / 2;
  }
  // The row or column that stands for one that may be outside; -1: zero.
  int64_t inside(int64_t at, int64_t dim) const {
    if (at >= 0 && at < dim) return at;
    if (padding == Padding::kZeros) return -1;
    if (padding == Padding::kBorder) return std::clamp<int64_t>(at, 0, dim - 1);
    // Reflected between the centers of the outer pixels, or between their outer edges.
    if (corners) {
      if (dim == 1) return 0;
      const int64_t period = 2 * (dim - 1), m = (at % period + period) % period;
      return m < dim ? m : period - m;
    }
    const int64_t period = 2 * dim, m = (at % period + period) % period;
    return m < dim ? m : period - 1 - m;
  }
  double folded(double x, int64_t dim) const {
    if (!std::isfinite(x)) x = -1;
    x = std::clamp(x, -1e9, 1e9);
    if (padding == Padding::kBorder) return std::clamp(x, 0.0, double(dim - 1));
    if (padding != Padding::kReflection) return x;
    const double low = corners ? 0 : -0.5, high = corners ? double(dim - 1) : double(dim) - 0.5,
                 span = high - low;
    if (span == 0) return low;
    const double m = std::fmod(std::fabs(x - low), 2 * span);
    return std::clamp(low + (m > span ? 2 * span - m : m), 0.0, double(dim - 1));
  }
  static void cubic(double t, double* w) {
    constexpr double a = -0.75;
    const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
    const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
    w[0] = far(t + 1), w[1] = near(t), w[2] = near(1 - t), w[3] = far(2 - t);
  }

  // What goes into a result along one dim: up to 4 elements with their weights; an index of -1 stands for zero.
  struct Taps {
    int64_t count = 1, at[4] = {};
    double weight[4] = {1};
  };
  Taps taps(double grid, int64_t dim) const {
    Taps out;
    double x = position(grid, dim);
    if (how != Interpolation::kCubic)
      x = folded(x, dim);
    else
      x = std::isfinite(x) ? std::clamp(x, -1e9, 1e9) : -1;
    if (how == Interpolation::kNearest) {
      out.at[0] = int64_t(std::nearbyint(x));
    } else {
      const double floor = std::floor(x);
      out.count = how == Interpolation::kLinear ? 2 : 4;
      for (int64_t k = 0; k < out.count; ++k) out.at[k] = int64_t(floor) + k - (out.count == 4 ? 1 : 0);
      if (out.count == 2)
        out.weight[1] = x - floor, out.weight[0] = 1 - out.weight[1];
      else
        cubic(x - floor, out.weight);
    }
    for (int64_t k = 0; k < out.count; ++k) out.at[k] = inside(out.at[k], dim);
    return out;
  }

  // How many elements there are for one plane of the image, and where an element lies there.
  int64_t pixels() const { return dims[0] * dims[1] * dims[2]; }
  int64_t place(int64_t z, int64_t y, int64_t x) const { return (z * dims[1] + y) * dims[2] + x; }

  // Calls each(image, cell, taps of depth, height and width).
  template <class F>
  void for_cells(const Run& run, int64_t images, uint32_t grid_type, F&& each) const {
    const auto grid = [&](int64_t i) {
      double value = 0;
      dispatch<kFloats>(grid_type, [&](auto tag) {
        using G = typename decltype(tag)::type;
        value = double(Compute<G>::load(run.in<G>(1)[i]));
      });
      return value;
    };
    run.parallel(images * cells, grain_of(double(channels) * (rank == 3 ? 40 : 20)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Taps at[3];
        for (int64_t d = 0; d < rank; ++d)
          at[2 - d] = taps(grid(i * rank + d), dims[2 - d]);
        each(i / cells, i % cells, at);
      }
    });
  }

  // Weighted sums.
  template <class T>
  void run(const Run& run, int64_t images, uint32_t grid_type) const {
    for_cells(run, images, grid_type, [&](int64_t image, int64_t cell, const Taps* at) {
      // The same elements with the same weights in each channel.
      int64_t places[64], count = 0;
      double weights[64];
      for (int64_t o = 0; o < at[0].count; ++o)
        for (int64_t p = 0; p < at[1].count; ++p)
          for (int64_t q = 0; q < at[2].count; ++q)
            if (at[0].at[o] >= 0 && at[1].at[p] >= 0 && at[2].at[q] >= 0) {
              places[count] = place(at[0].at[o], at[1].at[p], at[2].at[q]);
              weights[count++] = at[0].weight[o] * at[1].weight[p] * at[2].weight[q];
            }
      const T* volume = run.in<T>(0) + image * channels * pixels();
      T* out = run.out<T>(0) + image * channels * cells + cell;
      for (int64_t c = 0; c < channels; ++c, volume += pixels(), out += cells) {
        double sum = 0;
        for (int64_t k = 0; k < count; ++k) sum += weights[k] * double(Compute<T>::load(volume[places[k]]));
        *out = Compute<T>::store(convert<compute_t<T>>(sum));
      }
    });
  }

  // The nearest elements as they are, of any type of T's size.
  template <class T>
  void move(const Run& run, int64_t images, uint32_t grid_type) const {
    for_cells(run, images, grid_type, [&](int64_t image, int64_t cell, const Taps* at) {
      const bool outside = at[0].at[0] < 0 || at[1].at[0] < 0 || at[2].at[0] < 0;
      for (int64_t c = 0; c < channels; ++c)
        run.out<T>(0)[(image * channels + c) * cells + cell] =
            outside ? T{}
                    : run.in<T>(0)[(image * channels + c) * pixels() + place(at[0].at[0], at[1].at[0], at[2].at[0])];
    });
  }
};

Status prepare_grid_sample(OpContext& op) {
  const Dims &in = op.dims(0), &grid = op.dims(1);
  const int64_t rank = int64_t(in.size()) - 2;
  if ((rank != 2 && rank != 3) || grid.size() != in.size() || grid.back() != rank || grid[0] != in[0])
    return op.bad("X has the shape " + text_of(in) + " and grid " + text_of(grid) +
                  ", want [N,C,H,W] and [N,h,w,2], or [N,C,D,H,W] and [N,d,h,w,3]");
  if (product(in, 2, in.size()) == 0 && product(grid) != 0)
    return op.bad("X of shape " + text_of(in) + " has nothing to sample");
  GridSample kernel;
  kernel.channels = in[1];
  kernel.rank = rank;
  std::copy(in.begin() + 2, in.end(), kernel.dims + (3 - rank));
  kernel.cells = product(grid, 1, grid.size() - 1);
  kernel.corners = op.attr().int_or("align_corners", 0) != 0;
  const std::string_view mode = op.attr().string_or("mode", "linear"),
                         padding = op.attr().string_or("padding_mode", "zeros");
  // Before version 20 linear was bilinear, and cubic bicubic.
  if (mode == "nearest")
    kernel.how = Interpolation::kNearest;
  else if (mode == "bicubic" || mode == "cubic")
    kernel.how = Interpolation::kCubic;
  else if (mode != "bilinear" && mode != "linear")
    return op.bad("mode is '" + std::string(mode) + "', want linear, nearest or cubic");
  if (padding == "border")
    kernel.padding = Padding::kBorder;
  else if (padding == "reflection")
    kernel.padding = Padding::kReflection;
  else if (padding != "zeros")
    return op.bad("padding_mode is '" + std::string(padding) + "', want zeros, border or reflection");
  Dims out{in[0], in[1]};
  out.insert(out.end(), grid.begin() + 1, grid.end() - 1);
  BELAY_TRY(op.output(0, op.dtype(0), out));
  if (kernel.how == Interpolation::kNearest) {
    dispatch_bytes(element_bytes(op.dtype(0)), [&](auto tag) {
      using T = typename decltype(tag)::type;
      op.kernel([kernel, images = in[0], type = op.dtype(1)](const Run& run) { kernel.move<T>(run, images, type); });
    });
    return {};
  }
  const bool numbers = dispatch<kNumeric>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([kernel, images = in[0], type = op.dtype(1)](const Run& run) { kernel.run<T>(run, images, type); });
  });
  if (!numbers)
    return op.bad("mode is '" + std::string(mode) + "' for an input of " + std::string(dtype_name(op.dtype(0))) +
                      ", which has no weighted sums; want nearest",
                  Code::kUnimplemented);
  return {};
}

// The place of cell `i` of `dim` on an axis from -1 to 1: the outer cells lie on its ends, or half a cell inside.
double cell_place(int64_t i, int64_t dim, bool corners) {
  if (!corners) return (2 * double(i) + 1) / double(dim) - 1;
  return dim == 1 ? -1 : 2 * double(i) / double(dim - 1) - 1;
}

Status prepare_affine_grid(OpContext& op) {
  BELAY_ASSIGN(const std::vector<int64_t> size, op.ints(1));
  const Dims& theta = op.dims(0);
  const int64_t rank = int64_t(size.size()) - 2;
  if (rank != 2 && rank != 3)
    return op.bad("size is " + text_of(size) + ", want [N,C,H,W] or [N,C,D,H,W]");
  if (theta != Dims{size[0], rank, rank + 1})
    return op.bad("theta has the shape " + text_of(theta) + ", want [" + std::to_string(size[0]) + "," +
                  std::to_string(rank) + "," + std::to_string(rank + 1) + "]");
  for (const int64_t dim : size)
    if (dim < 0) return op.bad("size " + text_of(size) + " has a negative dim");
  Dims out{size[0]};
  out.insert(out.end(), size.begin() + 2, size.end());
  const int64_t cells = product(out, 1, out.size());
  out.push_back(rank);
  BELAY_TRY(op.output(0, op.dtype(0), out));
  const bool corners = op.attr().int_or("align_corners", 0) != 0;
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=, images = size[0]](const Run& run) {
      run.parallel(images * cells, grain_of(20), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          double place[3] = {};  // width first
          int64_t rest = i % cells;
          for (int64_t d = 0; d < rank; ++d) {
            const int64_t dim = size[size_t(rank + 1 - d)];
            place[d] = cell_place(rest % dim, dim, corners);
            rest /= dim;
          }
          for (int64_t r = 0; r < rank; ++r) {
            const T* row = run.in<T>(0) + (i / cells * rank + r) * (rank + 1);
            double sum = double(Compute<T>::load(row[rank]));
            for (int64_t d = 0; d < rank; ++d) sum += double(Compute<T>::load(row[d])) * place[d];
            run.out<T>(0)[i * rank + r] = Compute<T>::store(compute_t<T>(sum));
          }
        }
      });
    });
  });
  return {};
}

}  // namespace

void add_grid(Registry& registry) {
  registry.add({.op = "GridSample",
                .prepare = prepare_grid_sample,
                .types = {kMovable, kFloats},
                .min_inputs = 2,
                .max_inputs = 2,
                .ns_per_byte = 2});
  registry.add({.op = "AffineGrid",
                .prepare = prepare_affine_grid,
                .types = {kFloats, kIndex},
                .min_inputs = 2,
                .max_inputs = 2,
                .host_inputs = 2});
}

}  // namespace belay::cpu
