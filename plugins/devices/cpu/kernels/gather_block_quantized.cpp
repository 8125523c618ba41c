// GatherBlockQuantized of com.microsoft: what Gather takes of numbers of few bits, with a scale and a zero for each block
// along one axis.
#include "convert.hpp"
#include "registry.hpp"

#include <algorithm>

namespace belay::cpu {
namespace {

enum : size_t { kData, kIndices, kScales, kZeros };

struct GatherBlocks {
  uint32_t index_type = BELAY_DT_INT64, out_type = BELAY_DT_FLOAT32;
  int bits = 4;
  bool is_signed = false, has_zeros = false;
  int64_t block = 128, middle = 0;             // the zero where none is given
  int64_t outer = 1, places = 0, inner = 1;    // the data around the axis of the indices
  int64_t indices = 0;
  int64_t along = 1, behind = 1, blocks = 1;   // of the axis of blocks: its length, what lies behind it, its blocks
  int64_t zero_row = 0, zero_row_bytes = 0;    // where rows of zeros begin at bytes of their own; 0: numbers in one list

  int32_t number(const uint8_t* bytes, int64_t at) const {
    const int32_t value = bytes[at * bits / 8] >> (at * bits % 8) & ((1 << bits) - 1);
    return is_signed && value >> (bits - 1) ? value - (1 << bits) : value;
  }
  int32_t zero(const Run& run, int64_t scale) const {
    if (!has_zeros) return int32_t(middle);
    const auto* bytes = run.in<uint8_t>(kZeros);
    return zero_row == 0 ? number(bytes, scale) : number(bytes + scale / zero_row * zero_row_bytes, scale % zero_row);
  }
  int64_t index(const Run& run, int64_t i) const {
    const int64_t value = index_type == BELAY_DT_INT64 ? run.in<int64_t>(kIndices)[i] : run.in<int32_t>(kIndices)[i];
    return value < 0 ? value + places : value;
  }

  template <class T>
  void gather(const Run& run) const {
    const T* scales = run.in<T>(kScales);
    run.parallel(outer * indices, grain_of(double(inner) * 1.5), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* const y = run.out<T>(0) + i * inner;
        const int64_t place = index(run, i % indices);
        if (place < 0 || place >= places) {  // as the operator has it: nothing is there
          std::fill(y, y + inner, Compute<T>::store(0.0f));
          continue;
        }
        const int64_t first = (i / indices * places + place) * inner;
        for (int64_t k = 0; k < inner;) {
          // Along the axis of blocks one scale serves for the rest of a block; else each element has its own.
          const int64_t at = first + k, line = at / behind, step = behind == 1 ? 0 : 1, own = line % along;
          const int64_t length = std::min(step ? behind - at % behind : std::min(block - own % block, along - own), inner - k);
          int64_t scale = (line / along * blocks + own / block) * behind + at % behind;
          float factor = Compute<T>::load(scales[scale]);
          int32_t shift = zero(run, scale);
          for (int64_t j = 0; j < length; ++j) {
            if (step && j > 0) ++scale, factor = Compute<T>::load(scales[scale]), shift = zero(run, scale);
            y[k + j] = Compute<T>::store(float(number(run.in<uint8_t>(kData), at + j) - shift) * factor);
          }
          k += length;
        }
      }
    });
  }
  void operator()(const Run& run) const {
    dispatch<kF32 | kF16 | kBf16>(out_type, [&](auto tag) { gather<typename decltype(tag)::type>(run); });
  }
};

Status prepare_gather_blocks(OpContext& op) {
  GatherBlocks kernel;
  Dims data = op.dims(kData);
  const bool bytes = op.dtype(kData) == BELAY_DT_UINT8;
  const int64_t bits = bytes ? op.attr().int_or("bits", 4) : 4, block = op.attr().int_or("block_size", 128);
  if (bits != 2 && bits != 4 && bits != 8) return op.bad("attribute bits is " + std::to_string(bits) + ", want 2, 4 or 8");
  if (block < 16 || (block & (block - 1)) != 0)
    return op.bad("attribute block_size is " + std::to_string(block) + ", want a power of 2 from 16 on");
  if (data.empty()) return op.bad("data is a scalar, want rank 1 at least");
  if (bytes) data.back() *= 8 / bits;
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("gather_axis", 0), data.size(), "gather_axis"));
  BELAY_ASSIGN(const size_t along, op.axis(op.attr().int_or("quantize_axis", 1), data.size(), "quantize_axis"));
  if (bytes && axis != 0) return op.bad("attribute gather_axis is " + std::to_string(axis) + ", want 0 for data of uint8");
  Dims want = data;
  want[along] = (data[along] + block - 1) / block;
  if (op.dims(kScales) != want)
    return op.bad("scales have the shape " + text_of(op.dims(kScales)) + ", want " + text_of(want) + " for blocks of " +
                  std::to_string(block) + " along axis " + std::to_string(along) + " of " + text_of(data));
  kernel.has_zeros = op.has(kZeros);
  if (kernel.has_zeros) {
    if (op.dtype(kZeros) != op.dtype(kData))
      return op.bad("zero_points are of type " + std::string(dtype_name(op.dtype(kZeros))) + ", want that of data, " +
                    std::string(dtype_name(op.dtype(kData))));
    Dims zeros = want;
    if (bytes) {
      kernel.zero_row = want.back();
      kernel.zero_row_bytes = zeros.back() = (want.back() * bits + 7) / 8;
    }
    if (op.dims(kZeros) != zeros)
      return op.bad("zero_points have the shape " + text_of(op.dims(kZeros)) + ", want " + text_of(zeros));
  }
  kernel.index_type = op.dtype(kIndices), kernel.out_type = op.dtype(kScales);
  kernel.bits = int(bits), kernel.is_signed = op.dtype(kData) == BELAY_DT_INT4;
  kernel.block = block, kernel.middle = bytes ? int64_t{1} << (bits - 1) : 0;
  kernel.outer = product(data, 0, axis), kernel.places = data[axis], kernel.inner = product(data, axis + 1, data.size());
  kernel.indices = op.count(kIndices);
  kernel.along = data[along], kernel.behind = product(data, along + 1, data.size()), kernel.blocks = want[along];
  Dims out = data;
  out.erase(out.begin() + int64_t(axis));
  out.insert(out.begin() + int64_t(axis), op.dims(kIndices).begin(), op.dims(kIndices).end());
  BELAY_TRY(op.output(0, kernel.out_type, out));
  op.kernel(std::move(kernel));
  return {};
}

}  // namespace

void add_gather_block_quantized(Registry& registry) {
  constexpr TypeMask kData = kU8 | types_of(BELAY_DT_INT4, BELAY_DT_UINT4);
  registry.add({.op = "GatherBlockQuantized",
                .prepare = prepare_gather_blocks,
                .types = {kData, kIndex, kF32 | kF16 | kBf16, kData},
                .min_inputs = 3,
                .max_inputs = 4,
                .domain = "com.microsoft",
                .ns_per_byte = 1});
}

}  // namespace belay::cpu
