// Rules of convolutions, pooling, normalisation, recurrent layers and matrix products.
#include "ir/infer_context.hpp"

namespace belay::ir {
namespace {

// Attributes that convolutions and pools share, for `spatial` dims.
struct Window {
  Dims kernel, strides, dilations, pads;
  std::string_view auto_pad;
};

Result<Window> window_of(Infer& at, Dims kernel) {
  const size_t n = kernel.size();
  Window out{std::move(kernel), Dims(n, 1), Dims(n, 1), Dims(2 * n, 0),
             at.node().string_or("auto_pad", "NOTSET")};
  const auto take = [&](const char* name, Dims& to, int64_t least) -> Status {
    const auto* given = at.node().ints(name);
    if (!given || given->empty()) return {};
    if (given->size() != to.size())
      return at.fail(std::string("'") + name + "' has " + std::to_string(given->size()) + " entries, want " +
                     std::to_string(to.size()));
    for (const int64_t value : *given)
      if (value < least || value > INT64_MAX / 4)  // sums of some of them are taken
        return at.fail(std::string("'") + name + "' has the value " + std::to_string(value));
    to = *given;
    return {};
  };
  BELAY_TRY(take("strides", out.strides, 1));
  BELAY_TRY(take("dilations", out.dilations, 1));
  BELAY_TRY(take("pads", out.pads, INT64_MIN / 4));
  return out;
}

// The size of one spatial dim after a window slid over it; fails where the window is larger than what is
// there.
Result<int64_t> slide(Infer& at, const Window& window, size_t i, int64_t dim, bool ceil) {
  const int64_t kernel = window.kernel[i], stride = window.strides[i];
  if (dim < 0) return kUnknown;
  if (dim > INT64_MAX / 4) return at.fail("spatial dim " + std::to_string(dim) + " overflows");
  if (window.auto_pad.starts_with("SAME")) return (dim + stride - 1) / stride;
  if (kernel < 0) return kUnknown;
  int64_t reach = 0;
  if (__builtin_mul_overflow(kernel - 1, window.dilations[i], &reach) || reach > INT64_MAX / 4)
    return at.fail("the window overflows");
  const int64_t before = window.auto_pad == "VALID" ? 0 : window.pads[i];
  const int64_t after = window.auto_pad == "VALID" ? 0 : window.pads[window.kernel.size() + i];
  const int64_t room = dim + before + after - (reach + 1);
  if (room < 0)
    return at.fail("a window of " + std::to_string(reach + 1) + " does not fit into spatial dim " +
                   std::to_string(i) + " of " + std::to_string(dim) + " with pads " + std::to_string(before) +
                   " and " + std::to_string(after));
  if (!ceil) return room / stride + 1;
  int64_t count = (room + stride - 1) / stride + 1;
  // A last window that would begin in the padding after the data does not count.
  if ((count - 1) * stride >= dim + before) --count;
  return count;
}

Status conv(Infer& at) {
  const bool quantized = at.node().is("QLinearConv");
  const size_t w = quantized ? 3 : 1;
  const uint32_t dtype = quantized                     ? at.dtype(7)
                         : at.node().is("ConvInteger") ? uint32_t(BELAY_DT_INT32)
                                                       : at.dtype(0);
  if (!at.ranked(0)) {
    at.set_unranked(0, dtype);
    return {};
  }
  BELAY_TRY(at.want_rank(0, 3));
  const size_t spatial = at.dims(0).size() - 2;
  Dims kernel(spatial, kUnknown);
  int64_t channels = kUnknown;
  if (at.ranked(w)) {
    if (at.rank(w) != at.rank(0)) return at.fail("the weights have another rank than the input");
    channels = at.dims(w)[0];
    kernel.assign(at.dims(w).begin() + 2, at.dims(w).end());
    const int64_t group = at.node().int_or("group", 1), in = at.dims(0)[1], per = at.dims(w)[1];
    if (group <= 0) return at.fail("'group' is " + std::to_string(group));
    if (in >= 0 && per >= 0 && in != dim_mul(per, group))
      return at.fail("the input has " + std::to_string(in) + " channels, the weights take " +
                     std::to_string(dim_mul(per, group)));
    if (channels >= 0 && channels % group) return at.fail("the output channels do not divide by 'group'");
  }
  if (const auto* given = at.node().ints("kernel_shape"); given && !given->empty()) {
    if (given->size() != spatial)
      return at.fail("'kernel_shape' has " + std::to_string(given->size()) + " entries");
    for (size_t i = 0; i < spatial; ++i)
      if (kernel[i] >= 0 && kernel[i] != (*given)[i])
        return at.fail("'kernel_shape' is not that of the weights");
    kernel = *given;
  }
  BELAY_ASSIGN(const Window window, window_of(at, kernel));
  Dims out{at.dims(0)[0], channels};
  for (size_t i = 0; i < spatial; ++i) {
    BELAY_ASSIGN(const int64_t dim, slide(at, window, i, at.dims(0)[i + 2], false));
    out.push_back(dim);
  }
  at.set(0, dtype, std::move(out));
  return {};
}

Status conv_transpose(Infer& at) {
  if (!at.ranked(0) || !at.ranked(1)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  BELAY_TRY(at.want_rank(0, 3));
  if (at.rank(1) != at.rank(0)) return at.fail("the weights have another rank than the input");
  const size_t spatial = at.dims(0).size() - 2;
  const int64_t group = at.node().int_or("group", 1);
  if (at.dims(0)[1] >= 0 && at.dims(1)[0] >= 0 && at.dims(0)[1] != at.dims(1)[0])
    return at.fail("the input's channels are not those of the weights");
  Dims kernel(at.dims(1).begin() + 2, at.dims(1).end());
  BELAY_ASSIGN(const Window window, window_of(at, kernel));
  Dims extra(spatial, 0);
  if (const auto* given = at.node().ints("output_padding"); given && given->size() == spatial) extra = *given;
  const auto* fixed = at.node().ints("output_shape");
  Dims out{at.dims(0)[0], dim_mul(at.dims(1)[1], group)};
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t dim = at.dims(0)[i + 2];
    if (fixed && fixed->size() >= spatial) {
      out.push_back((*fixed)[fixed->size() - spatial + i]);
    } else if (dim < 0 || kernel[i] < 0) {
      out.push_back(kUnknown);
    } else if (window.auto_pad.starts_with("SAME")) {
      out.push_back(dim_mul(dim, window.strides[i]));
    } else {
      const int64_t pads = window.auto_pad == "VALID" ? 0 : window.pads[i] + window.pads[spatial + i];
      const int64_t size =
          window.strides[i] * (dim - 1) + extra[i] + (kernel[i] - 1) * window.dilations[i] + 1 - pads;
      if (size < 0) return at.fail("spatial dim " + std::to_string(i) + " would be " + std::to_string(size));
      out.push_back(size);
    }
  }
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status pool(Infer& at) {
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    at.set_unranked(1, BELAY_DT_INT64);
    return {};
  }
  BELAY_TRY(at.want_rank(0, 3));
  const auto* kernel = at.node().ints("kernel_shape");
  const size_t spatial = at.dims(0).size() - 2;
  if (!kernel || kernel->size() != spatial)
    return at.fail("'kernel_shape' must have " + std::to_string(spatial) + " entries");
  for (const int64_t size : *kernel)
    if (size <= 0) return at.fail("'kernel_shape' has the value " + std::to_string(size));
  BELAY_ASSIGN(const Window window, window_of(at, *kernel));
  const bool ceil = at.node().int_or("ceil_mode", 0) != 0;
  Dims out{at.dims(0)[0], at.dims(0)[1]};
  for (size_t i = 0; i < spatial; ++i) {
    BELAY_ASSIGN(const int64_t dim, slide(at, window, i, at.dims(0)[i + 2], ceil));
    out.push_back(dim);
  }
  at.set(1, BELAY_DT_INT64, out);
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status global_pool(Infer& at) {
  Type type = at.in(0);
  if (type.ranked) {
    BELAY_TRY(at.want_rank(0, 2));
    const size_t last = at.node().int_or("channels_last", 0) != 0 ? 1 : 0;  // of a quantised one
    for (size_t i = 2; i < type.dims.size(); ++i) type.dims[i - last] = 1;
  }
  at.set(0, type);
  return {};
}

Status max_unpool(Infer& at) {
  if (at.has(2)) {
    if (const auto shape = at.known_ints(2))
      at.set(0, at.dtype(0), *shape);
    else
      at.set_unranked(0, at.dtype(0));
    return {};
  }
  const auto* kernel = at.node().ints("kernel_shape");
  if (!at.ranked(0) || !kernel) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  BELAY_TRY(at.want_rank(0, 3));
  BELAY_ASSIGN(const Window window, window_of(at, *kernel));
  const size_t spatial = at.dims(0).size() - 2;
  if (kernel->size() != spatial)
    return at.fail("'kernel_shape' must have " + std::to_string(spatial) + " entries");
  Dims out{at.dims(0)[0], at.dims(0)[1]};
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t dim = at.dims(0)[i + 2];
    out.push_back(dim < 0 ? kUnknown
                          : (dim - 1) * window.strides[i] - window.pads[i] - window.pads[spatial + i] +
                                window.kernel[i]);
  }
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status batch_norm(Infer& at) {
  at.set(0, at.in(0));
  for (size_t i = 1; i < at.outputs(); ++i) at.set(i, at.in(i == 1 ? 3 : 4));
  return {};
}

Status layer_norm(Infer& at) {
  at.set(0, at.in(0));
  Type type = at.in(0);
  type.dtype = uint32_t(at.node().int_or("stash_type", BELAY_DT_FLOAT32));
  if (type.ranked) {
    BELAY_ASSIGN(const int64_t axis, at.axis(at.node().int_or("axis", -1), at.rank(0)));
    for (size_t i = size_t(axis); i < type.dims.size(); ++i) type.dims[i] = 1;
  }
  at.set(1, type);
  at.set(2, type);
  return {};
}

Status recurrent(Infer& at) {
  const int64_t directions = at.node().string_or("direction", "forward") == "bidirectional" ? 2 : 1;
  int64_t hidden = at.node().int_or("hidden_size", kUnknown);
  if (hidden < 0 && at.ranked(2) && at.rank(2) == 3) hidden = at.dims(2)[2];
  int64_t steps = kUnknown, batch = kUnknown;
  const bool batch_first = at.node().int_or("layout", 0) != 0;
  if (at.ranked(0)) {
    if (at.rank(0) != 3) return at.fail("the input has rank " + std::to_string(at.rank(0)) + ", want 3");
    steps = at.dims(0)[batch_first ? 1 : 0];
    batch = at.dims(0)[batch_first ? 0 : 1];
  }
  const Dims all =
      batch_first ? Dims{batch, steps, directions, hidden} : Dims{steps, directions, batch, hidden};
  const Dims last = batch_first ? Dims{batch, directions, hidden} : Dims{directions, batch, hidden};
  at.set(0, at.dtype(0), all);
  for (size_t i = 1; i < at.outputs(); ++i) at.set(i, at.dtype(0), last);
  return {};
}

Status matmul_of(Infer& at, size_t a_at, size_t b_at, uint32_t dtype) {
  if (!at.ranked(a_at) || !at.ranked(b_at)) {
    at.set_unranked(0, dtype);
    return {};
  }
  BELAY_TRY(at.want_rank(a_at, 1));
  BELAY_TRY(at.want_rank(b_at, 1));
  return set_product(at, at.dims(a_at), at.dims(b_at), dtype);
}

Status matmul(Infer& at) { return matmul_of(at, 0, 1, at.dtype(0)); }
Status matmul_integer(Infer& at) { return matmul_of(at, 0, 1, BELAY_DT_INT32); }
Status qlinear_matmul(Infer& at) { return matmul_of(at, 0, 3, at.dtype(7)); }

Status matmul_to_float(Infer& at) { return matmul_of(at, 0, 1, BELAY_DT_FLOAT32); }

Status gemm_of(Infer& at, size_t b, uint32_t dtype) {
  if (!at.ranked(0) || !at.ranked(b)) {
    at.set(0, dtype, {kUnknown, kUnknown});
    return {};
  }
  if (at.rank(0) != 2 || at.rank(b) != 2) return at.fail("A and B must have rank 2");
  const bool ta = at.node().int_or("transA", 0) != 0, tb = at.node().int_or("transB", 0) != 0;
  const int64_t m = at.dims(0)[ta ? 1 : 0], k = at.dims(0)[ta ? 0 : 1];
  const int64_t other = at.dims(b)[tb ? 1 : 0], n = at.dims(b)[tb ? 0 : 1];
  if (k >= 0 && other >= 0 && k != other)
    return at.fail("inner dims " + std::to_string(k) + " and " + std::to_string(other) + " differ");
  Dims out{m, n};
  const size_t c = b == 1 ? 2 : 6;
  if (at.has(c) && at.ranked(c)) {
    Dims with = out;
    BELAY_TRY(at.broadcast(with, at.dims(c)));
    if (with.size() != 2 || (m >= 0 && with[0] != m) || (n >= 0 && with[1] != n))
      return at.fail("C does not broadcast to the product");
  }
  at.set(0, dtype, std::move(out));
  return {};
}
Status gemm(Infer& at) { return gemm_of(at, 1, at.dtype(0)); }
Status qgemm(Infer& at) {
  return gemm_of(at, 3, !at.has(7) ? uint32_t(BELAY_DT_FLOAT32) : at.has(8) ? at.dtype(8) : uint32_t(BELAY_DT_UINT8));
}

Status roi_align(Infer& at) {
  const bool max = at.node().is("MaxRoiPool");
  int64_t h = at.node().int_or("output_height", 1), w = at.node().int_or("output_width", 1);
  if (const auto* pooled = at.node().ints("pooled_shape"); max && pooled && pooled->size() == 2) {
    h = (*pooled)[0];
    w = (*pooled)[1];
  }
  at.set(0, at.dtype(0),
         {at.ranked(1) && at.rank(1) ? at.dims(1)[0] : kUnknown,
          at.ranked(0) && at.rank(0) > 1 ? at.dims(0)[1] : kUnknown, h, w});
  return {};
}

Status grid_sample(Infer& at) {
  if (!at.ranked(0) || !at.ranked(1)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  BELAY_TRY(at.want_rank(0, 3));
  if (at.rank(1) != at.rank(0)) return at.fail("the grid has another rank than the input");
  Dims out{at.dims(0)[0], at.dims(0)[1]};
  out.insert(out.end(), at.dims(1).begin() + 1, at.dims(1).end() - 1);
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

// Y, the joined keys, the joined values, the scores; inputs Q, K, V, mask, past keys, past values.
Status attention(Infer& at) {
  if (!at.node().domain.empty()) return {};  // others have operators of this name
  const auto dim = [&](size_t input, int64_t d) {
    return at.has(input) && at.ranked(input) && d < at.rank(input) ? at.dims(input)[size_t(d)] : kUnknown;
  };
  const auto divide = [](int64_t a, int64_t b) { return a < 0 || b <= 0 ? kUnknown : a / b; };
  const int64_t rank = at.ranked(0) ? at.rank(0) : at.ranked(1) ? at.rank(1) : 0;
  if (rank == 0) {
    for (size_t i = 0; i < 4; ++i) at.set_unranked(i, at.dtype(i == 1 || i == 2 ? i : 0));
    return {};
  }
  if (rank != 3 && rank != 4) return at.fail("Q has rank " + std::to_string(rank) + ", want 3 or 4");
  const bool rows = rank == 3;
  const int64_t q_heads = rows ? at.node().int_or("q_num_heads", 0) : dim(0, 1);
  const int64_t kv_heads = rows ? at.node().int_or("kv_num_heads", 0) : dim(1, 1);
  if (rows && (q_heads < 1 || kv_heads < 1))
    return at.fail("'q_num_heads' is " + std::to_string(q_heads) + " and 'kv_num_heads' " + std::to_string(kv_heads) +
                   ", want 1 or more where Q has rank 3");
  const int64_t size = rows ? divide(dim(1, 2), kv_heads) : dim(1, 3);
  const int64_t v_size = rows ? divide(dim(2, 2), kv_heads) : dim(2, 3);
  const int64_t batch = dim(0, 0), queries = dim(0, rows ? 1 : 2);
  const int64_t keys = at.has(4) ? dim_add(dim(4, 2), dim(1, rows ? 1 : 2)) : dim(1, rows ? 1 : 2);
  if (rows)
    at.set(0, at.dtype(0), {batch, queries, dim_mul(q_heads, v_size)});
  else
    at.set(0, at.dtype(0), {batch, q_heads, queries, v_size});
  at.set(1, at.dtype(1), {batch, kv_heads, keys, size});
  at.set(2, at.dtype(2), {batch, kv_heads, keys, v_size});
  at.set(3, at.dtype(0), {batch, q_heads, queries, keys});
  return {};
}

Status rms_norm(Infer& at) {
  Type type = at.in(0);
  type.kind = BELAY_TYPE_TENSOR;
  type.dtype = at.dtype(1);
  at.set(0, type);
  type.dtype = uint32_t(at.node().int_or("stash_type", BELAY_DT_FLOAT32));
  if (type.ranked) {
    BELAY_ASSIGN(const int64_t axis, at.axis(at.node().int_or("axis", -1), at.rank(0)));
    for (size_t i = size_t(axis); i < type.dims.size(); ++i) type.dims[i] = 1;
  }
  at.set(1, type);
  return {};
}

// As large as the grid of offsets.
Status deform_conv(Infer& at) {
  const auto dim = [&](size_t input, size_t d) {
    return at.ranked(input) && size_t(at.rank(input)) > d ? at.dims(input)[d] : kUnknown;
  };
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  Dims out{dim(0, 0), dim(1, 0)};
  for (size_t d = 2; d < at.dims(0).size(); ++d) out.push_back(dim(2, d));
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

// [N, spatial dims, as many coordinates] of a size with batch and channels.
Status affine_grid(Infer& at) {
  const auto size = at.ints(1);
  if (!size || size->size() < 3) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  Dims out{(*size)[0]};
  out.insert(out.end(), size->begin() + 2, size->end());
  out.push_back(int64_t(size->size()) - 2);
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

constexpr RuleEntry kNnRules[] = {
    {"Conv", conv},
    {"ConvInteger", conv},
    {"QLinearConv", conv},
    {"ConvTranspose", conv_transpose},
    {"MaxPool", pool},
    {"AveragePool", pool},
    {"QLinearAveragePool", pool, kMicrosoft},
    {"LpPool", pool},
    {"GlobalAveragePool", global_pool},
    {"QLinearGlobalAveragePool", global_pool, kMicrosoft},
    {"GlobalMaxPool", global_pool},
    {"GlobalLpPool", global_pool},
    {"MaxUnpool", max_unpool},
    {"BatchNormalization", batch_norm},
    {"LayerNormalization", layer_norm},
    {"Attention", attention},
    {"SimplifiedLayerNormalization", rms_norm},
    {"RNN", recurrent},
    {"GRU", recurrent},
    {"LSTM", recurrent},
    {"MatMul", matmul},
    {"MatMulInteger", matmul_integer},
    {"QLinearMatMul", qlinear_matmul},
    {"MatMulIntegerToFloat", matmul_to_float, kMicrosoft},
    {"QGemm", qgemm, kMicrosoft},
    {"Gemm", gemm},
    {"RoiAlign", roi_align},
    {"MaxRoiPool", roi_align},
    {"GridSample", grid_sample},
    {"RMSNormalization", rms_norm},
    {"DeformConv", deform_conv},
    {"AffineGrid", affine_grid},
};

}  // namespace

Status set_product(Infer& at, Dims a, Dims b, uint32_t dtype) {
  const bool vector_a = a.size() == 1, vector_b = b.size() == 1;
  if (vector_a) a.insert(a.begin(), 1);
  if (vector_b) b.push_back(1);
  const int64_t k = a.back(), other = b[b.size() - 2];
  if (k >= 0 && other >= 0 && k != other)
    return at.fail("inner dims " + std::to_string(k) + " and " + std::to_string(other) + " differ");
  Dims out(a.begin(), a.end() - 2);
  BELAY_TRY(at.broadcast(out, Dims(b.begin(), b.end() - 2)));
  if (!vector_a) out.push_back(a[a.size() - 2]);
  if (!vector_b) out.push_back(b.back());
  at.set(0, dtype, std::move(out));
  return {};
}

std::span<const RuleEntry> nn_rules() { return kNnRules; }

}  // namespace belay::ir
