// Operators of signal processing: windows, DFT, STFT, MelWeightMatrix.
#include "convert.hpp"
#include "registry.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <memory>
#include <numbers>

namespace belay::cpu {
namespace {

using Complex = std::complex<double>;

// ---- windows
// ---------------------------------------------------------------------------------------------------------

// a - b * cos(2 pi n / N) + c * cos(4 pi n / N)
Status prepare_window(OpContext& op, double a, double b, double c) {
  BELAY_ASSIGN(const std::vector<int64_t> given, op.ints(0));
  if (given.size() != 1 || given[0] < 0) return op.bad("size is " + text_of(given) + ", want a scalar of 0 or more");
  const int64_t size = given[0], period = op.attr().int_or("periodic", 1) ? size : size - 1;
  const uint32_t dtype = uint32_t(op.attr().int_or("output_datatype", BELAY_DT_FLOAT32));
  if (!(type_bit(dtype) & kNumeric))
    return op.bad("output_datatype " + std::string(dtype_name(dtype)) + " is not supported",
                  Code::kUnimplemented);
  BELAY_TRY(op.output(0, dtype, {size}));
  dispatch<kNumeric>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=](const Run& run) {
      for (int64_t n = 0; n < size; ++n) {
        const double phase = period > 0 ? 2 * std::numbers::pi * double(n) / double(period) : 0;
        run.out<T>(0)[n] =
            Compute<T>::store(convert<compute_t<T>>(a - b * std::cos(phase) + c * std::cos(2 * phase)));
      }
    });
  });
  return {};
}
Status prepare_hann(OpContext& op) { return prepare_window(op, 0.5, 0.5, 0); }
Status prepare_hamming(OpContext& op) { return prepare_window(op, 25.0 / 46, 21.0 / 46, 0); }
Status prepare_blackman(OpContext& op) { return prepare_window(op, 0.42, 0.5, 0.08); }

// ---- Fourier transforms
// ----------------------------------------------------------------------------------------------

// A transform of fixed length: by powers of two, or as a convolution of the next power of two that is long
// enough (Bluestein). Immutable; `work` is the caller's.
class Fourier {
 public:
  Fourier(size_t n, bool inverse) : n_(n), inverse_(inverse) {
    for (padded_ = 1; padded_ < n; padded_ *= 2) {
    }
    const double sign = inverse ? 1 : -1;
    if (padded_ != n) {
      for (padded_ = 1; padded_ < 2 * n; padded_ *= 2) {
      }
      chirp_.resize(n);
      for (size_t k = 0; k < n; ++k)  // k * k modulo 2n keeps the angle small
        chirp_[k] = std::polar(1.0, sign * std::numbers::pi * double(uint64_t(k) * k % (2 * n)) / double(n));
      kernel_.assign(padded_, 0);
      for (size_t k = 0; k < n; ++k) kernel_[k] = kernel_[(padded_ - k) % padded_] = std::conj(chirp_[k]);
    }
    roots_.resize(padded_ / 2);
    for (size_t k = 0; k < roots_.size(); ++k)
      roots_[k] = std::polar(1.0, -2 * std::numbers::pi * double(k) / double(padded_));
    if (!chirp_.empty()) powers_of_two(kernel_.data(), false);
  }
  size_t work() const { return padded_; }

  // x[0, n) in place; `work` holds work() elements.
  void run(Complex* x, Complex* work) const {
    if (chirp_.empty()) {
      powers_of_two(x, inverse_);
    } else {
      std::fill_n(work, padded_, Complex());
      for (size_t k = 0; k < n_; ++k) work[k] = x[k] * chirp_[k];
      powers_of_two(work, false);
      for (size_t k = 0; k < padded_; ++k) work[k] *= kernel_[k];
      powers_of_two(work, true);
      for (size_t k = 0; k < n_; ++k) x[k] = work[k] * chirp_[k] / double(padded_);
    }
    if (inverse_)
      for (size_t k = 0; k < n_; ++k) x[k] /= double(n_);
  }

 private:
  void powers_of_two(Complex* x, bool inverse) const {
    for (size_t i = 1, j = 0; i < padded_; ++i) {
      size_t bit = padded_ / 2;
      for (; j & bit; bit /= 2) j ^= bit;
      j ^= bit;
      if (i < j) std::swap(x[i], x[j]);
    }
    for (size_t half = 1; half < padded_; half *= 2)
      for (size_t at = 0; at < padded_; at += 2 * half)
        for (size_t k = 0; k < half; ++k) {
          const Complex root = roots_[k * (padded_ / 2 / half)];
          const Complex turned = x[at + half + k] * (inverse ? std::conj(root) : root), kept = x[at + k];
          x[at + k] = kept + turned;
          x[at + half + k] = kept - turned;
        }
  }
  size_t n_, padded_ = 1;
  bool inverse_;
  std::vector<Complex> chirp_, kernel_, roots_;
};

constexpr int64_t kLongest = int64_t{1} << 26;

Status prepare_dft(OpContext& op) {
  const Dims& in = op.dims(0);
  if (in.size() < 2 || (in.back() != 1 && in.back() != 2))
    return op.bad("input has the shape " + text_of(in) + ", want a last dim of 1 (real) or 2 (complex)");
  int64_t raw = op.attr().int_or("axis", op.version() < 20 ? 1 : -2);
  if (op.has(2)) {  // an input from version 20 on
    BELAY_ASSIGN(const std::vector<int64_t> given, op.ints(2));
    if (given.size() != 1) return op.bad("axis is no scalar");
    raw = given[0];
  }
  BELAY_ASSIGN(const size_t axis, op.axis(raw, in.size()));
  if (axis + 1 == in.size()) return op.bad("axis is the last one, which holds the parts of complex numbers");
  const bool inverse = op.attr().int_or("inverse", 0) != 0, onesided = op.attr().int_or("onesided", 0) != 0;
  // One side of a spectrum is made of real numbers, or real numbers of it.
  const bool halves = !inverse && onesided, joins = inverse && onesided;
  if (joins && in.back() != 2)
    return op.bad("the input has the shape " + text_of(in) + ", want complex numbers where inverse and onesided are set");
  int64_t length = joins ? 2 * (in[axis] - 1) : in[axis];
  if (op.has(1)) {
    BELAY_ASSIGN(const std::vector<int64_t> given, op.ints(1));
    if (given.size() != 1) return op.bad("dft_length is no scalar");
    length = given[0];
  }
  if (length < 1 || length > kLongest)
    return op.bad("the transform has " + std::to_string(length) + " points, want 1 to 2^26");
  Dims out = in;
  out[axis] = halves ? length / 2 + 1 : length;
  out.back() = joins ? 1 : 2;
  BELAY_TRY(op.output(0, op.dtype(0), out));
  const int64_t parts = in.back(), out_parts = out.back(), dim = in[axis], bins = out[axis],
                inner = product(in, axis + 1, in.size() - 1);
  const auto fourier = std::make_shared<const Fourier>(size_t(length), inverse);
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=, lines = product(in, 0, axis) * inner](const Run& run) {
      const size_t room = size_t(length) + fourier->work();
      Complex* all = run.scratch<Complex>(room * size_t(run.max_parts()));
      run.parallel(lines, grain_of(double(length) * 40), [&](int64_t begin, int64_t end, int64_t part) {
        Complex* line = all + size_t(part) * room;
        for (int64_t i = begin; i < end; ++i) {
          const T* x = run.in<T>(0) + (i / inner * dim * inner + i % inner) * parts;
          const auto value = [&](int64_t d) {
            const auto at = [&](int64_t p) { return double(Compute<T>::load(x[d * inner * parts + p])); };
            return d < dim ? Complex(at(0), parts == 2 ? at(1) : 0) : Complex();
          };
          for (int64_t d = 0; d < length; ++d) line[d] = value(d);
          if (joins) {  // the other side mirrors this one, and the ends have no imaginary part
            for (int64_t d = length / 2 + 1; d < length; ++d) line[d] = std::conj(value(length - d));
            line[0] = line[0].real();
            if (length % 2 == 0) line[length / 2] = line[length / 2].real();
          }
          fourier->run(line, line + length);
          T* y = run.out<T>(0) + (i / inner * bins * inner + i % inner) * out_parts;
          for (int64_t d = 0; d < bins; ++d) {
            y[d * inner * out_parts] = Compute<T>::store(compute_t<T>(line[d].real()));
            if (out_parts == 2) y[d * inner * 2 + 1] = Compute<T>::store(compute_t<T>(line[d].imag()));
          }
        }
      });
    });
  });
  return {};
}

Status prepare_stft(OpContext& op) {
  const Dims& in = op.dims(0);
  if ((in.size() != 3 && in.size() != 2) || (in.size() == 3 && in[2] != 1 && in[2] != 2))
    return op.bad("signal has the shape " + text_of(in) + ", want [batch, length, 1 or 2]");
  BELAY_ASSIGN(const std::vector<int64_t> steps, op.ints(1));
  if (steps.size() != 1 || steps[0] < 1) return op.bad("frame_step is no scalar of 1 or more");
  const int64_t parts = in.size() == 3 ? in[2] : 1, step = steps[0];
  int64_t length = op.has(2) ? op.count(2) : in[1];
  if (op.has(3)) {
    BELAY_ASSIGN(const std::vector<int64_t> given, op.ints(3));
    if (given.size() != 1) return op.bad("frame_length is no scalar");
    if (op.has(2) && given[0] != length)
      return op.bad("frame_length is " + std::to_string(given[0]) + ", but the window has " +
                    std::to_string(length) + " elements");
    length = given[0];
  }
  if (op.has(2) && op.dtype(2) != op.dtype(0)) return op.bad("window and signal are of different types");
  if (length < 1 || length > in[1] || length > kLongest)
    return op.bad("a frame has " + std::to_string(length) + " elements, want 1 to the signal's " +
                  std::to_string(in[1]));
  const bool onesided = op.attr().int_or("onesided", 1) != 0;
  if (onesided && parts == 2) return op.bad("onesided is 1 for a complex signal");
  const int64_t frames = (in[1] - length) / step + 1, bins = onesided ? length / 2 + 1 : length;
  BELAY_TRY(op.output(0, op.dtype(0), {in[0], frames, bins, 2}));
  const auto fourier = std::make_shared<const Fourier>(size_t(length), false);
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=, has_window = op.has(2), signal = in[1], total = in[0] * frames](const Run& run) {
      const size_t room = size_t(length) + fourier->work();
      Complex* all = run.scratch<Complex>(room * size_t(run.max_parts()));
      run.parallel(total, grain_of(double(length) * 40), [&](int64_t begin, int64_t end, int64_t part) {
        Complex* line = all + size_t(part) * room;
        for (int64_t i = begin; i < end; ++i) {
          const T* x = run.in<T>(0) + (i / frames * signal + i % frames * step) * parts;
          for (int64_t d = 0; d < length; ++d) {
            const double weight = has_window ? double(Compute<T>::load(run.in<T>(2)[d])) : 1;
            const auto at = [&](int64_t p) { return double(Compute<T>::load(x[d * parts + p])) * weight; };
            line[d] = Complex(at(0), parts == 2 ? at(1) : 0);
          }
          fourier->run(line, line + length);
          T* y = run.out<T>(0) + i * bins * 2;
          for (int64_t d = 0; d < bins; ++d) {
            y[d * 2] = Compute<T>::store(compute_t<T>(line[d].real()));
            y[d * 2 + 1] = Compute<T>::store(compute_t<T>(line[d].imag()));
          }
        }
      });
    });
  });
  return {};
}

// ---- MelWeightMatrix
// -------------------------------------------------------------------------------------------------

// Triangles over the bins of a spectrogram, evenly spaced on the mel scale.
Status prepare_mel_weights(OpContext& op) {
  double value[5];
  for (size_t i = 0; i < 5; ++i) {
    BELAY_ASSIGN(const std::vector<double> given, op.numbers(i));
    if (given.size() != 1)
      return op.bad("input " + std::to_string(i) + " has the shape " + text_of(op.dims(i)) +
                    ", want a scalar");
    value[i] = given[0];
  }
  if (!(value[0] >= 0 && value[0] < 1e6 && value[1] >= 0 && value[1] < 1e8 && value[2] > 0 && value[3] >= 0 &&
        value[4] >= value[3] && value[4] < 1e12))
    return op.bad("num_mel_bins, dft_length, sample_rate or the edges are out of range");
  const int64_t mels = int64_t(value[0]), length = int64_t(value[1]), bins = length / 2 + 1;
  const uint32_t dtype = uint32_t(op.attr().int_or("output_datatype", BELAY_DT_FLOAT32));
  if (!(type_bit(dtype) & kNumeric))
    return op.bad("output_datatype " + std::string(dtype_name(dtype)) + " is not supported",
                  Code::kUnimplemented);
  BELAY_TRY(op.output(0, dtype, {bins, mels}));
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(value[3]), step = (mel(value[4]) - low) / double(mels + 2);
  std::vector<int64_t> edges;
  for (int64_t k = 0; k < mels + 2; ++k) {
    const double hertz = 700 * (std::pow(10, (low + double(k) * step) / 2595) - 1);
    edges.push_back(std::min(int64_t(std::floor(double(length + 1) * hertz / value[2])), bins));
  }
  dispatch<kNumeric>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=](const Run& run) {
      T* out = run.out<T>(0);
      std::fill_n(out, bins * mels, T{});
      for (int64_t i = 0; i < mels; ++i) {
        const int64_t from = edges[size_t(i)], center = edges[size_t(i + 1)], to = edges[size_t(i + 2)];
        const auto set = [&](int64_t bin, double weight) {
          if (bin < bins) out[bin * mels + i] = Compute<T>::store(convert<compute_t<T>>(weight));
        };
        if (center == from) set(center, 1);
        for (int64_t j = from; center > from && j <= center; ++j)
          set(j, double(j - from) / double(center - from));
        for (int64_t j = center; j < to; ++j) set(j, double(to - j) / double(to - center));
      }
    });
  });
  return {};
}

}  // namespace

void add_signal(Registry& registry) {
  registry.add({.op = "HannWindow", .prepare = prepare_hann, .types = {kIndex}, .host_inputs = 1});
  registry.add({.op = "HammingWindow", .prepare = prepare_hamming, .types = {kIndex}, .host_inputs = 1});
  registry.add({.op = "BlackmanWindow", .prepare = prepare_blackman, .types = {kIndex}, .host_inputs = 1});
  registry.add({.op = "DFT",
                .prepare = prepare_dft,
                .types = {kFloats, kIndex, kIndex},
                .max_inputs = 3,
                .host_inputs = 6,
                .ns_per_byte = 5});
  registry.add({.op = "STFT",
                .prepare = prepare_stft,
                .types = {kFloats, kIndex, kFloats, kIndex},
                .min_inputs = 2,
                .max_inputs = 4,
                .host_inputs = 0b1010,
                .ns_per_byte = 5});
  registry.add({.op = "MelWeightMatrix",
                .prepare = prepare_mel_weights,
                .types = {kIndex, kIndex, kIndex, kFloats},
                .min_inputs = 5,
                .max_inputs = 5,
                .host_inputs = 31});
}

}  // namespace belay::cpu
