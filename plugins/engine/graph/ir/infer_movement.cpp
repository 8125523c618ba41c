// Rules of operators that move, reshape, join and cut tensors.
#include "ir/infer_context.hpp"

#include <cmath>

namespace belay::ir {
namespace {

Status reshape(Infer& at) {
  const auto shape = at.ints(1);
  if (!shape) {
    if (at.ranked(1) && at.rank(1) == 1 && at.dims(1)[0] >= 0 && at.dims(1)[0] <= 64)
      at.set(0, at.dtype(0), Dims(size_t(at.dims(1)[0]), kUnknown));
    else
      at.set_unranked(0, at.dtype(0));
    return {};
  }
  const bool constant = at.constant(1) != nullptr, allow_zero = at.node().int_or("allowzero", 0) != 0;
  Dims out;
  int64_t wild = -1, known = 1;
  bool all_known = true;
  for (size_t i = 0; i < shape->size(); ++i) {
    int64_t dim = (*shape)[i];
    if (constant && dim == -1) {
      if (wild >= 0) return at.fail("shape " + dims_to_string(*shape) + " has more than one -1");
      wild = int64_t(i);
      out.push_back(kUnknown);
      continue;
    }
    if (constant && dim < -1) return at.fail("shape has the dim " + std::to_string(dim));
    if (dim == 0 && !allow_zero) {
      if (!at.ranked(0))
        dim = kUnknown;
      else if (int64_t(i) >= at.rank(0))
        return at.fail("shape has a 0 at " + std::to_string(i) + ", beyond the input's rank");
      else
        dim = at.dims(0)[i];
    }
    if (dim < 0) all_known = false;
    known = dim_mul(known, dim);
    out.push_back(dim);
  }
  if (at.ranked(0) && all_known) {
    int64_t count = 1;
    bool counted = true;
    for (const int64_t dim : at.dims(0)) {
      if (dim < 0) counted = false;
      count = dim_mul(count, dim);
    }
    if (counted) {
      if (wild >= 0) {
        if (known == 0 ? count != 0 : count % known != 0)
          return at.fail(std::to_string(count) + " elements do not fill the shape " + dims_to_string(*shape));
        out[size_t(wild)] = known == 0 ? 0 : count / known;
      } else if (known != count) {
        return at.fail(std::to_string(count) + " elements do not fill the shape " + dims_to_string(*shape));
      }
    } else if (wild >= 0 && known > 0) {
      // One symbol on both sides, the rest equal: the symbol goes on.
      int64_t rest = 1, symbol = 0, unknown = 0;
      for (const int64_t dim : at.dims(0)) {
        if (dim < 0) {
          symbol = dim;
          ++unknown;
        } else
          rest = dim_mul(rest, dim);
      }
      if (unknown == 1 && rest == known) out[size_t(wild)] = symbol;
    }
  }
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status flatten(Infer& at) {
  if (!at.ranked(0)) {
    at.set(0, at.dtype(0), {kUnknown, kUnknown});
    return {};
  }
  int64_t axis = at.node().int_or("axis", 1);
  if (axis < -at.rank(0) || axis > at.rank(0))
    return at.fail("axis " + std::to_string(axis) + " is out of range");
  if (axis < 0) axis += at.rank(0);
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < at.rank(0); ++i) {
    int64_t& side = i < axis ? outer : inner;
    side = dim_mul(side, at.dims(0)[size_t(i)]);
  }
  at.set(0, at.dtype(0), {outer, inner});
  return {};
}

Status squeeze(Infer& at) {
  if (!at.ranked(0) || (at.has(1) && !at.known_ints(1))) {
    if (at.ranked(0) && at.ranked(1) && at.rank(1) == 1 && at.dims(1)[0] >= 0 && at.dims(1)[0] <= at.rank(0))
      at.set(0, at.dtype(0), Dims(size_t(at.rank(0) - at.dims(1)[0]), kUnknown));
    else
      at.set_unranked(0, at.dtype(0));
    return {};
  }
  std::vector<bool> drop(at.dims(0).size(), false);
  if (at.has(1)) {
    BELAY_ASSIGN(const std::vector<size_t> axes, at.axes(*at.known_ints(1), at.rank(0)));
    for (const size_t axis : axes) {
      const int64_t dim = at.dims(0)[axis];
      if (dim >= 0 && dim != 1)
        return at.fail("dim " + std::to_string(axis) + " is " + std::to_string(dim) + ", want 1");
      drop[axis] = true;
    }
  } else {
    for (size_t i = 0; i < drop.size(); ++i) {
      if (at.dims(0)[i] < 0) {  // whether it goes is not known
        at.set_unranked(0, at.dtype(0));
        return {};
      }
      drop[i] = at.dims(0)[i] == 1;
    }
  }
  Dims out;
  for (size_t i = 0; i < drop.size(); ++i)
    if (!drop[i]) out.push_back(at.dims(0)[i]);
  at.set(0, at.dtype(0), std::move(out));
  if (const auto values = at.ints(0)) at.set_partial(0, *values);
  return {};
}

Status unsqueeze(Infer& at) {
  const auto axes = at.known_ints(1);
  if (!at.ranked(0) || !axes) {
    if (at.ranked(0) && at.ranked(1) && at.rank(1) == 1 && at.dims(1)[0] >= 0 && at.dims(1)[0] <= 64)
      at.set(0, at.dtype(0), Dims(size_t(at.rank(0) + at.dims(1)[0]), kUnknown));
    else
      at.set_unranked(0, at.dtype(0));
    return {};
  }
  const int64_t rank = at.rank(0) + int64_t(axes->size());
  std::vector<bool> fresh(size_t(rank), false);
  BELAY_ASSIGN(const std::vector<size_t> added, at.axes(*axes, rank));
  for (const size_t axis : added) fresh[axis] = true;
  Dims out;
  size_t from = 0;
  for (size_t i = 0; i < size_t(rank); ++i) out.push_back(fresh[i] ? 1 : at.dims(0)[from++]);
  at.set(0, at.dtype(0), std::move(out));
  if (const auto values = at.ints(0); values && rank <= 1) at.set_partial(0, *values);
  return {};
}

Status transpose(Infer& at) {
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  Dims out;
  if (const auto* perm = at.node().ints("perm"); perm && !perm->empty()) {
    if (int64_t(perm->size()) != at.rank(0))
      return at.fail("'perm' has " + std::to_string(perm->size()) + " entries");
    std::vector<bool> seen(perm->size(), false);
    for (const int64_t axis : *perm) {
      if (axis < 0 || axis >= at.rank(0) || seen[size_t(axis)])
        return at.fail("'perm' " + dims_to_string(*perm) + " is no permutation");
      seen[size_t(axis)] = true;
      out.push_back(at.dims(0)[size_t(axis)]);
    }
  } else {
    out.assign(at.dims(0).rbegin(), at.dims(0).rend());
  }
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status concat(Infer& at) {
  for (size_t i = 0; i < at.inputs(); ++i)
    if (!at.ranked(i)) {
      at.set_unranked(0, at.dtype(0));
      return {};
    }
  if (!at.inputs()) return at.fail("it has no input");
  BELAY_ASSIGN(const int64_t axis, at.axis(at.node().int_or("axis", 1), at.rank(0)));
  Dims out = at.dims(0);
  Dims values;
  bool whole = at.rank(0) == 1;
  for (size_t i = 0; i < at.inputs(); ++i) {
    if (at.dtype(i) && at.dtype(0) && at.dtype(i) != at.dtype(0))
      return at.fail("inputs have different element types");
    if (whole) {
      const auto part = at.ints(i);
      if (part && at.dims(i)[0] == int64_t(part->size()))
        values.insert(values.end(), part->begin(), part->end());
      else if (at.dims(i)[0] >= 0 && at.dims(i)[0] <= 64)
        values.insert(values.end(), size_t(at.dims(i)[0]), kUnknown);
      else
        whole = false;
    }
    if (i == 0) continue;
    if (at.rank(i) != at.rank(0)) return at.fail("inputs have different ranks");
    for (int64_t d = 0; d < at.rank(0); ++d) {
      int64_t& to = out[size_t(d)];
      const int64_t from = at.dims(i)[size_t(d)];
      if (d == axis)
        to = dim_add(to, from);
      else if (to >= 0 && from >= 0 && to != from)
        return at.fail("dim " + std::to_string(d) + " differs between inputs");
      else if (to < 0 && from >= 0)
        to = from;
    }
  }
  at.set(0, at.dtype(0), std::move(out));
  if (whole && (at.dtype(0) == BELAY_DT_INT64 || at.dtype(0) == BELAY_DT_INT32))
    at.set_partial(0, std::move(values));
  return {};
}

Status split(Infer& at) {
  if (!at.ranked(0)) {
    for (size_t i = 0; i < at.outputs(); ++i) at.set_unranked(i, at.dtype(0));
    return {};
  }
  BELAY_ASSIGN(const int64_t axis, at.axis(at.node().int_or("axis", 0), at.rank(0)));
  const int64_t dim = at.dims(0)[size_t(axis)];
  const int64_t parts = int64_t(at.outputs());
  Dims sizes(at.outputs(), kUnknown);
  if (at.has(1)) {
    if (const auto given = at.known_ints(1)) {
      if (given->size() != at.outputs())
        return at.fail("'split' has " + std::to_string(given->size()) + " entries for " +
                       std::to_string(parts) + " outputs");
      int64_t sum = 0;
      for (const int64_t size : *given) {
        if (size < 0) return at.fail("'split' has the size " + std::to_string(size));
        if (__builtin_add_overflow(sum, size, &sum)) return at.fail("'split' adds up to more than 63 bits hold");
      }
      if (dim >= 0 && sum != dim)
        return at.fail("'split' adds up to " + std::to_string(sum) + ", the dim is " + std::to_string(dim));
      sizes = *given;
    }
  } else if (dim >= 0) {
    // num_outputs of opset 18 lets the last part be smaller; before it the parts must be equal.
    const bool uneven = at.node().find("num_outputs") != nullptr;
    if (!uneven && dim % parts)
      return at.fail("dim " + std::to_string(dim) + " does not split into " + std::to_string(parts) +
                     " equal parts");
    const int64_t each = (dim + parts - 1) / parts;
    for (size_t i = 0; i < sizes.size(); ++i)
      sizes[i] = std::max<int64_t>(0, std::min(each, dim - int64_t(i) * each));
  }
  for (size_t i = 0; i < at.outputs(); ++i) {
    Dims dims = at.dims(0);
    dims[size_t(axis)] = sizes[i];
    at.set(i, at.dtype(0), std::move(dims));
  }
  return {};
}

Status slice(Infer& at) {
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  Dims out = at.dims(0);
  const auto starts = at.known_ints(1), ends = at.known_ints(2);
  const auto axes = at.known_ints(3), steps = at.known_ints(4);
  if (!starts || !ends || (at.has(3) && !axes) || (at.has(4) && !steps)) {
    if (at.has(3) && axes) {
      for (const int64_t value : *axes) {
        BELAY_ASSIGN(const int64_t axis, at.axis(value, at.rank(0)));
        out[size_t(axis)] = kUnknown;
      }
    } else {
      std::fill(out.begin(), out.end(), kUnknown);
    }
    at.set(0, at.dtype(0), std::move(out));
    return {};
  }
  if (starts->size() != ends->size() || (axes && axes->size() != starts->size()) ||
      (steps && steps->size() != starts->size()) || (!axes && int64_t(starts->size()) > at.rank(0)))
    return at.fail("'starts', 'ends', 'axes' and 'steps' have different lengths");
  std::optional<Dims> values = at.rank(0) == 1 ? at.ints(0) : std::nullopt;
  for (size_t i = 0; i < starts->size(); ++i) {
    BELAY_ASSIGN(const int64_t axis, at.axis(axes ? (*axes)[i] : int64_t(i), at.rank(0)));
    const int64_t dim = at.dims(0)[size_t(axis)], step = steps ? (*steps)[i] : 1;
    if (step == 0) return at.fail("a step is 0");
    int64_t start = (*starts)[i], end = (*ends)[i];
    if (dim < 0) {
      const bool whole = step == 1 && start == 0 && end >= INT32_MAX;
      out[size_t(axis)] = whole ? dim : kUnknown;
      if (!whole) values.reset();
      continue;
    }
    if (start < 0) start = start < -dim ? (step > 0 ? 0 : -1) : start + dim;
    if (end < 0) end = end < -dim ? (step > 0 ? 0 : -1) : end + dim;
    if (step > 0) {
      start = std::min(start, dim);
      end = std::min(end, dim);
    } else {
      start = std::min(start, dim - 1);
      end = std::min(end, dim - 1);
    }
    const int64_t distance = step > 0 ? end - start : start - end;
    // A step of INT64_MIN has no positive counterpart; any length under it holds one element.
    const uint64_t stride = step > 0 ? uint64_t(step) : uint64_t(0) - uint64_t(step);
    const int64_t length = distance <= 0 ? 0 : int64_t((uint64_t(distance) - 1) / stride + 1);
    out[size_t(axis)] = length;
    if (values && int64_t(values->size()) == dim) {
      Dims picked;
      for (int64_t k = 0; k < length; ++k) picked.push_back((*values)[size_t(start + k * step)]);
      values = std::move(picked);
    } else {
      values.reset();
    }
  }
  at.set(0, at.dtype(0), std::move(out));
  if (values) at.set_partial(0, std::move(*values));
  return {};
}

Status pad(Infer& at) {
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  const size_t rank = at.dims(0).size();
  const auto pads = at.known_ints(1), axes = at.known_ints(3);
  if (!pads || (at.has(3) && !axes)) {
    at.set(0, at.dtype(0), Dims(rank, kUnknown));
    return {};
  }
  const size_t padded = axes ? axes->size() : rank;
  if (pads->size() != 2 * padded)
    return at.fail("'pads' has " + std::to_string(pads->size()) + " entries, want " +
                   std::to_string(2 * padded));
  Dims out = at.dims(0);
  std::vector<size_t> named;
  if (axes) {
    BELAY_ASSIGN(named, at.axes(*axes, int64_t(rank)));
  }
  for (size_t i = 0; i < padded; ++i) {
    const size_t axis = axes ? named[i] : i;
    int64_t& dim = out[axis];
    int64_t sum = 0;
    if (__builtin_add_overflow((*pads)[i], (*pads)[padded + i], &sum)) return at.fail("'pads' overflows");
    if (dim < 0) {
      if (sum) dim = kUnknown;
      continue;
    }
    if (__builtin_add_overflow(dim, sum, &dim)) return at.fail("'pads' overflows");
    if (dim < 0) return at.fail("'pads' takes more from dim " + std::to_string(axis) + " than there is");
  }
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status center_crop_pad(Infer& at) {
  const auto shape = at.ints(1);
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  Dims out = at.dims(0);
  const auto* axes = at.node().ints("axes");
  if (shape && shape->size() != (axes ? axes->size() : out.size()))
    return at.fail("the shape has " + std::to_string(shape->size()) + " entries, want " +
                   std::to_string(axes ? axes->size() : out.size()));
  std::vector<size_t> named;
  if (axes) {
    BELAY_ASSIGN(named, at.axes(*axes, at.rank(0)));
  }
  for (size_t i = 0; i < (axes ? named.size() : out.size()); ++i) {
    out[axes ? named[i] : i] = shape ? (*shape)[i] : kUnknown;
    if (at.constant(1) && shape && (*shape)[i] < 0)
      return at.fail("the shape has the dim " + std::to_string((*shape)[i]));
  }
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status expand(Infer& at) {
  const auto shape = at.ints(1);
  if (!at.ranked(0) || !shape) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  Dims out = at.dims(0);
  if (at.constant(1))
    for (const int64_t dim : *shape)
      if (dim < 0) return at.fail("the shape has the dim " + std::to_string(dim));
  BELAY_TRY(at.broadcast(out, *shape));
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status tile(Infer& at) {
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  const auto repeats = at.ints(1);
  if (repeats && int64_t(repeats->size()) != at.rank(0))
    return at.fail("'repeats' has " + std::to_string(repeats->size()) + " entries");
  Dims out = at.dims(0);
  for (size_t i = 0; i < out.size(); ++i) {
    if (repeats && at.constant(1) && (*repeats)[i] < 0)
      return at.fail("'repeats' has the entry " + std::to_string((*repeats)[i]) + ", want 0 or more");
    out[i] = repeats ? dim_mul(out[i], (*repeats)[i]) : kUnknown;
  }
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

constexpr int64_t kMaxBlock = 65536;  // its square is far from overflow

Status depth_to_space(Infer& at) {
  const int64_t block = at.node().int_or("blocksize", 0);
  if (block <= 0 || block > kMaxBlock) return at.fail("'blocksize' is " + std::to_string(block));
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  if (at.rank(0) != 4) return at.fail("want rank 4");
  Dims d = at.dims(0);
  const auto cut = [](int64_t dim, int64_t by) { return dim < 0 ? kUnknown : dim / by; };
  if (at.node().is("DepthToSpace")) {
    if (d[1] >= 0 && d[1] % (block * block))
      return at.fail("the channels do not divide by blocksize squared");
    d = {d[0], cut(d[1], block * block), dim_mul(d[2], block), dim_mul(d[3], block)};
  } else {
    if ((d[2] >= 0 && d[2] % block) || (d[3] >= 0 && d[3] % block))
      return at.fail("height or width do not divide by blocksize");
    d = {d[0], dim_mul(d[1], block * block), cut(d[2], block), cut(d[3], block)};
  }
  at.set(0, at.dtype(0), std::move(d));
  return {};
}

Status resize(Infer& at) {
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  const size_t rank = at.dims(0).size();
  Dims out(rank, kUnknown);
  std::vector<size_t> axes(rank);
  for (size_t i = 0; i < rank; ++i) axes[i] = i;
  if (const auto* given = at.node().ints("axes")) {
    BELAY_ASSIGN(axes, at.axes(*given, int64_t(rank)));
    out = at.dims(0);
    for (const size_t axis : axes) out[axis] = kUnknown;
  }
  const bool has_sizes = at.has(3) && !(at.constant(3) && at.constant(3)->count() == 0);
  const bool crop = at.node().string_or("coordinate_transformation_mode", "") == "tf_crop_and_resize";
  if (has_sizes) {
    if (const auto sizes = at.ints(3)) {
      if (sizes->size() != axes.size())
        return at.fail("'sizes' has " + std::to_string(sizes->size()) + " entries");
      const std::string_view policy = at.node().string_or("keep_aspect_ratio_policy", "stretch");
      if (policy == "stretch") {
        for (size_t i = 0; i < axes.size(); ++i) out[axes[i]] = (*sizes)[i];
      } else {
        double scale = 0;
        bool known = true;
        for (size_t i = 0; i < axes.size(); ++i) {
          const int64_t dim = at.dims(0)[axes[i]];
          if (dim <= 0 || (*sizes)[i] < 0) {
            known = false;
            break;
          }
          const double each = double((*sizes)[i]) / double(dim);
          scale = i == 0 ? each : policy == "not_larger" ? std::min(scale, each) : std::max(scale, each);
        }
        for (size_t i = 0; known && i < axes.size(); ++i)
          out[axes[i]] = int64_t(std::floor(scale * double(at.dims(0)[axes[i]]) + 0.5));
      }
    }
  } else if (at.has(2)) {
    if (const auto scales = at.doubles(2); scales && !scales->empty()) {
      if (scales->size() != axes.size())
        return at.fail("'scales' has " + std::to_string(scales->size()) + " entries");
      const auto roi = at.doubles(1);
      for (size_t i = 0; i < axes.size(); ++i) {
        const int64_t dim = at.dims(0)[axes[i]];
        if ((*scales)[i] <= 0 || !std::isfinite((*scales)[i])) 
          return at.fail("a scale is " + std::to_string((*scales)[i]) + ", want more than 0");
        if (dim < 0) {
          if ((*scales)[i] == 1.0) out[axes[i]] = dim;
          continue;
        }
        double span = 1;
        if (crop) {
          if (!roi || roi->size() != 2 * axes.size()) continue;
          span = (*roi)[axes.size() + i] - (*roi)[i];
        }
        // In float, as the definition's own reference does: 3 * 0.6 rounds differently in double.
        const double size = std::floor(double(float(dim) * float(span) * float((*scales)[i])));
        if (size < 0 || size > 9e15) return at.fail("a scale overflows");
        out[axes[i]] = int64_t(size);
      }
    }
  }
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

constexpr RuleEntry kMovementRules[] = {
    {"Reshape", reshape},
    {"Flatten", flatten},
    {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze},
    {"Transpose", transpose},
    {"Concat", concat},
    {"Split", split},
    {"Slice", slice},
    {"Pad", pad},
    {"CenterCropPad", center_crop_pad},
    {"Expand", expand},
    {"Tile", tile},
    {"DepthToSpace", depth_to_space},
    {"SpaceToDepth", depth_to_space},
    {"Resize", resize},
};

}  // namespace

std::span<const RuleEntry> movement_rules() { return kMovementRules; }

}  // namespace belay::ir
