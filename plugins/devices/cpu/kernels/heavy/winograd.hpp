// Convolutions of 3 x 3 without strides by Winograd's minimal filtering: tiles of side x side outputs, whose
// inputs and weights are transformed so that (side + 2)^2 products do the work of 9 side^2.
#pragma once

#include "conv.hpp"

#include <optional>

namespace belay::cpu {

// The transforms of tiles, compiled for three levels of the instruction set like micro.hpp. A tile of side s
// has n = s + 2 places each way.
struct WinogradTiles {
  // n x n arrays v + (i * n + j) * v_step of `tiles` (at most kWinogradTiles) tiles that lie one beside the other;
  // the first begins at x, rows are x_step apart. Up to kWindowSlack places behind a row may be read.
  void (*input)(const float* x, int64_t x_step, int64_t tiles, float* v, int64_t v_step) = nullptr;
  // From such arrays the sums of the outputs: `rows` rows of `columns` (at most side * tiles) at y. `start` is
  // added and the residual, which has the steps of y; then it is clamped.
  struct Output {
    const float* m;
    int64_t m_step, tiles;
    float* y;
    int64_t y_step, rows, columns;
    float start;
    const float* residual;
    TileEnd<float> end;  // only the limits
  };
  void (*output)(const Output& output) = nullptr;
};
constexpr int64_t kWinogradTiles = 64;

struct WinogradLoops {
  WinogradTiles side2, side4;
};
extern const WinogradLoops kWinogradSse2, kWinogradAvx2, kWinogradAvx512;

// How one convolution is cut.
struct WinogradPlan {
  int64_t side = 0;                            // of a tile
  int64_t tile_rows = 0, tile_columns = 0;     // of an image
  int64_t block = 0, blocks = 0;               // tiles that are computed together; of an image
  int64_t outputs = 0, output_parts = 0;       // channels of a task, of a group
  int64_t places() const { return (side + 2) * (side + 2); }
  int64_t tiles() const { return tile_rows * tile_columns; }
};

// Nothing: the products of pixels are not slower, or weights would take too much memory.
std::optional<WinogradPlan> plan_winograd(const ConvShape& shape, uint32_t threads);
// Prepares a float32 convolution for which there is a plan and whose weights are constant.
Status prepare_winograd(OpContext& context, const ConvShape& shape, const WinogradPlan& plan,
                        const ConvFusion& fusion);

}  // namespace belay::cpu
