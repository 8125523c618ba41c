// Col2Im: sums blocks that slid over an image back into it.
#include "registry.hpp"

namespace belay::cpu {
namespace {

struct Col2Im {
  int64_t planes = 0;            // batch and channels
  Dims image, block, slid;       // sizes: of the image, of a block, of the grid of blocks
  Dims strides, dilations, pads;

  template <class T>
  void run(const Run& run) const {
    const int64_t pixels = product(image), taps = product(block), places = product(slid);
    using C = compute_t<T>;
    C* const all = run.scratch<C>(size_t(pixels * run.max_parts()));
    run.parallel(planes, grain_of(double(taps * places) * 4), [&](int64_t begin, int64_t end, int64_t part) {
      C* const sums = all + part * pixels;
      for (int64_t plane = begin; plane < end; ++plane) {
        std::fill_n(sums, pixels, C(0));
        const T* x = run.in<T>(0) + plane * taps * places;
        for (int64_t tap = 0; tap < taps; ++tap)
          for (int64_t place = 0; place < places; ++place, ++x) {
            int64_t at = 0, step = 1, t = tap, p = place;
            bool inside = true;
            for (size_t d = image.size(); d-- > 0;) {
              const int64_t i = p % slid[d] * strides[d] + t % block[d] * dilations[d] - pads[d];
              inside = inside && i >= 0 && i < image[d];
              at += i * step;
              step *= image[d];
              p /= slid[d];
              t /= block[d];
            }
            if (inside) add(sums[at], Compute<T>::load(*x));
          }
        T* y = run.out<T>(0) + plane * pixels;
        for (int64_t i = 0; i < pixels; ++i) y[i] = Compute<T>::store(sums[i]);
      }
    });
  }
  template <class C>
  static void add(C& to, C value) {
    if constexpr (std::is_same_v<C, bool>)
      to = to || value;
    else if constexpr (std::is_integral_v<C>)
      to = C(uint64_t(to) + uint64_t(value));  // wraps around
    else
      to += value;
  }
};

Status prepare_col2im(OpContext& op) {
  Col2Im kernel;
  BELAY_ASSIGN(kernel.image, op.ints(1));
  BELAY_ASSIGN(kernel.block, op.ints(2));
  const Dims& x = op.dims(0);
  const size_t rank = kernel.image.size();
  if (rank == 0 || kernel.block.size() != rank)
    return op.bad("image_shape is " + text_of(kernel.image) + " and block_shape " + text_of(kernel.block) +
                  ", want one size for each spatial dim");
  kernel.strides = op.attr().ints("strides").value_or(Dims(rank, 1));
  kernel.dilations = op.attr().ints("dilations").value_or(Dims(rank, 1));
  kernel.pads = op.attr().ints("pads").value_or(Dims(2 * rank, 0));
  if (kernel.strides.size() != rank || kernel.dilations.size() != rank || kernel.pads.size() != 2 * rank)
    return op.bad("strides " + text_of(kernel.strides) + ", dilations " + text_of(kernel.dilations) + " and pads " +
                  text_of(kernel.pads) + " do not fit an image of " + std::to_string(rank) + " dims");
  constexpr int64_t kMost = int64_t{1} << 31;
  const auto range = [&](int64_t value, int64_t least) { return value >= least && value < kMost; };
  for (size_t d = 0; d < rank; ++d) {
    if (!range(kernel.image[d], 0) || !range(kernel.block[d], 1) || !range(kernel.strides[d], 1) ||
        !range(kernel.dilations[d], 1) || !range(kernel.pads[d], 0) || !range(kernel.pads[d + rank], 0))
      return op.bad("image_shape " + text_of(kernel.image) + ", block_shape " + text_of(kernel.block) + ", strides " +
                    text_of(kernel.strides) + ", dilations " + text_of(kernel.dilations) + " or pads " +
                    text_of(kernel.pads) + " has an entry that is out of range");
    const int64_t room = kernel.image[d] + kernel.pads[d] + kernel.pads[d + rank] -
                         (kernel.dilations[d] * (kernel.block[d] - 1) + 1);
    kernel.slid.push_back(room < 0 ? 0 : room / kernel.strides[d] + 1);
  }
  const auto taps = element_count(kernel.block);
  if (x.size() != 3 || !taps || x[1] % int64_t(*taps) != 0 || !element_count(kernel.slid) ||
      x[2] != product(kernel.slid))
    return op.bad("the input has the shape " + text_of(x) + ", want [batch, channels times blocks of " +
                  text_of(kernel.block) + ", places " + text_of(kernel.slid) + "]");
  kernel.planes = x[0] * (x[1] / int64_t(*taps));
  Dims out{x[0], x[1] / int64_t(*taps)};
  out.insert(out.end(), kernel.image.begin(), kernel.image.end());
  BELAY_TRY(op.output(0, op.dtype(0), out));
  dispatch<kNumeric | kBool | kComplex>(op.dtype(0), [&](auto tag) {
    op.kernel([kernel = std::move(kernel)](const Run& run) { kernel.run<typename decltype(tag)::type>(run); });
  });
  return {};
}

}  // namespace

void add_col2im(Registry& registry) {
  registry.add({.op = "Col2Im",
                .prepare = prepare_col2im,
                .types = {kNumeric | kBool | kComplex, kIndex, kIndex},
                .min_inputs = 3,
                .max_inputs = 3,
                .host_inputs = 6,
                .ns_per_byte = 2});
}

}  // namespace belay::cpu
