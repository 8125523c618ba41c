#include "hal/tensor_view.h"

#include "hal/hal.h"

#include <belay/graph/dtype.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace belay::hal {
namespace {

std::string list(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i) text += (i ? "," : "") + std::to_string(numbers[i]);
  return text + "]";
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0; step *= std::max<int64_t>(dims[i], 1)) strides[i] = step;
  return strides;
}

// What the strides reach, in elements of `width` bytes; false: further than 64 bits count.
bool reach(TensorView& view) {
  int64_t low = 0, high = 1;
  for (size_t i = 0; i < view.dims.size(); ++i) {
    int64_t far = 0;
    if (__builtin_mul_overflow(view.dims[i] - 1, view.strides[i], &far)) return false;
    int64_t& side = far < 0 ? low : high;
    if (__builtin_add_overflow(side, far, &side)) return false;
  }
  return !__builtin_mul_overflow(low, int64_t(view.width), &view.low) &&
         !__builtin_mul_overflow(high, int64_t(view.width), &view.high);
}

// Element i of scales of type float32, float16 or bfloat16.
double scale_at(const void* data, uint32_t dtype, uint64_t i) {
  const char* const from = static_cast<const char*>(data);
  if (dtype == BELAY_DT_FLOAT32) {
    float value = 0;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    return double(value);
  }
  uint16_t bits = 0;
  std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
  if (dtype == BELAY_DT_BFLOAT16) return double(std::bit_cast<float>(uint32_t{bits} << 16));
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31 ? (fraction ? std::nan("") : HUGE_VAL)
                      : exponent == 0 ? std::ldexp(double(fraction), -24)
                                      : std::ldexp(double(1024 + fraction), exponent - 25);
  return bits >> 15 ? -size : size;
}

}  // namespace

std::string TensorView::text() const { return std::string(dtype_name(dtype)) + list(dims); }

TensorView TensorView::packed() const {
  TensorView out = *this;
  out.strides = dense_strides(dims);
  out.dense = true;
  out.low = 0, out.high = int64_t(bytes);
  return out;
}

Result<TensorView> view_of(const belay_tensor* tensor, const std::string& label, const Hal* hal) {
  const auto wrong = [&](Code code, const std::string& text) { return Status(code, label + " " + text); };
  if (!tensor) return wrong(Code::kInvalidArgument, "is NULL, want a tensor.");
  BELAY_TRY(check_size(*tensor, label));
  if (tensor->rank > BELAY_MAX_RANK)
    return wrong(Code::kInvalidArgument, "has rank " + std::to_string(tensor->rank) + ", at most " +
                                             std::to_string(BELAY_MAX_RANK) + " are possible.");
  if (tensor->rank && !tensor->dims)
    return wrong(Code::kInvalidArgument,
                 "has rank " + std::to_string(tensor->rank) + ", but its dims are NULL.");
  if (tensor->dtype == BELAY_DT_STRING)
    return wrong(Code::kUnimplemented, "is of strings, which lie in host memory only and cannot be queued.");
  const DtypeInfo* info = find_dtype(tensor->dtype);
  if (!info)
    return wrong(Code::kInvalidArgument,
                 "has element type " + std::to_string(tensor->dtype) + ", which is none of BELAY_DT_....");
  TensorView view;
  view.dtype = tensor->dtype;
  view.dims.assign(tensor->dims, tensor->dims + tensor->rank);
  for (size_t i = 0; i < view.dims.size(); ++i)
    if (view.dims[i] < 0)
      return wrong(Code::kInvalidArgument,
                   "has dims " + list(view.dims) + ": dim " + std::to_string(i) + " is negative.");
  const auto count = element_count(view.dims);
  const auto bytes = count ? dtype_bytes(view.dtype, *count) : std::nullopt;
  if (!bytes || *bytes > uint64_t(INT64_MAX))
    return wrong(Code::kOutOfRange, "is " + view.text() + ", which has more bytes than 63 bits count.");
  view.count = *count;
  view.bytes = *bytes;
  view.width = info->bits % 8 ? 0 : info->bits / 8;
  view.strides = dense_strides(view.dims);
  view.high = int64_t(view.bytes);
  if (tensor->strides && view.count) {
    for (size_t i = 0; i < view.dims.size(); ++i)
      if (view.dims[i] != 1 && tensor->strides[i] != view.strides[i]) view.dense = false;
    if (!view.dense) {
      view.strides.assign(tensor->strides, tensor->strides + tensor->rank);
      if (!view.width)
        return wrong(Code::kUnimplemented, "is " + view.text() + " with strides " + list(view.strides) +
                                               "; elements of less than a byte must be dense.");
      if (!reach(view))
        return wrong(Code::kOutOfRange,
                     "has strides " + list(view.strides) + ", which reach further than 63 bits count.");
    }
  }
  if (tensor->bytes && uint64_t(view.high) > tensor->bytes)
    return wrong(Code::kOutOfRange, "is " + view.text() +
                                        (view.dense ? "" : " with strides " + list(view.strides)) +
                                        ", which needs " + std::to_string(view.high) +
                                        " bytes; its storage has " + std::to_string(tensor->bytes) + ".");
  if (const belay_quant* quant = quant_of(*tensor)) BELAY_TRY(check_quant(*quant, view, label, hal));
  return view;
}

Status check_size(const belay_tensor& tensor, const std::string& label) {
  if (tensor.hdr.struct_size >= offsetof(belay_tensor, quant)) return {};
  return {Code::kInvalidArgument, label + " has struct_size " + std::to_string(tensor.hdr.struct_size) + ", want " +
                                      std::to_string(sizeof tensor) + "."};
}

Status check_sizes(const belay_datum& datum, const std::string& label, int depth) {
  if (datum.hdr.struct_size < sizeof datum)
    return {Code::kInvalidArgument, label + " is a datum of struct_size " + std::to_string(datum.hdr.struct_size) +
                                        ", want " + std::to_string(sizeof datum) + "."};
  if (datum.tensor) BELAY_TRY(check_size(*datum.tensor, label));
  for (uint64_t i = 0; datum.items && depth < kDeepestDatum && i < datum.item_count; ++i)
    if (datum.items[i]) BELAY_TRY(check_sizes(*datum.items[i], "Item " + std::to_string(i) + " of " + label, depth + 1));
  return {};
}

std::optional<ReservedPart> reserved_part(const Hal& hal, const belay_tensor& tensor) {
  const Buffer* const buffer = tensor.data ? nullptr : alive<Buffer>(tensor.buffer);
  if (!tensor.data && (!buffer || !buffer->mapped)) return std::nullopt;
  belay_tensor numbers = tensor;
  // Text is what refers to it, of the size of this type.
  if (tensor.dtype == BELAY_DT_STRING) numbers.dtype = BELAY_DT_COMPLEX128;
  const Result<TensorView> view = view_of(&numbers, "The tensor");
  if (!view.ok() || !view->count) return std::nullopt;
  const auto bytes = uint64_t(view->high - view->low);
  if (buffer) return buffer->part(tensor.offset + uint64_t(view->low), bytes);
  return hal.ledger().reserved(static_cast<const char*>(tensor.data) + view->low, bytes);
}

Result<char*> address_of(const Hal& hal, const belay_tensor& tensor, const TensorView& view,
                         const std::string& label) {
  const auto wrong = [&](Code code, const std::string& text) { return Status(code, label + " " + text); };
  if (!view.count) return nullptr;
  if (!tensor.data && !tensor.buffer)
    return wrong(Code::kInvalidArgument, "has no memory: set data or buffer.");
  if (tensor.data && tensor.buffer)
    return wrong(Code::kInvalidArgument, "has data and a buffer; set one of them.");
  char* address = static_cast<char*>(tensor.data);
  if (address) BELAY_TRY(hal.ledger().check_mapped(label, address + view.low, uint64_t(view.high - view.low)));
  if (tensor.buffer) {
    Buffer* buffer = alive<Buffer>(tensor.buffer);
    if (!buffer)
      return hal.bad_handle(tensor.buffer, BELAY_OBJ_BUFFER, "tensor", "its buffer")
          .while_doing("looking at " + label);
    if (buffer->hal != &hal) return wrong(Code::kInvalidArgument, "lies in a buffer of another runtime.");
    const uint64_t before = uint64_t{0} - uint64_t(view.low);  // bytes
    if (tensor.offset < before || !buffer->holds(tensor.offset - before, before + uint64_t(view.high)))
      return wrong(Code::kOutOfRange,
                   "is " + view.text() + " at offset " + std::to_string(tensor.offset) +
                       " and touches bytes " + std::to_string(view.low) + " to " + std::to_string(view.high) +
                       " from there; they are not inside its buffer, " + buffer->extent() + ".");
    if (!buffer->host)
      return wrong(Code::kUnimplemented,
                   "lies in memory of '" + buffer->device->name() + "' that the host does not see.");
    address = static_cast<char*>(buffer->host) + tensor.offset;
  }
  return address;
}

Status check_aligned(const TensorView& view, const char* address, const std::string& label) {
  const uint64_t align = std::min<uint64_t>(view.width ? view.width : 1, 8);
  if (std::has_single_bit(align) && reinterpret_cast<uintptr_t>(address) % align)
    return {Code::kInvalidArgument, label + " begins at an address that is not aligned to " +
                                        std::to_string(align) + " bytes, as its element type " +
                                        std::string(dtype_name(view.dtype)) + " needs."};
  return {};
}

Status check_apart(const TensorView& view, const std::string& label) {
  if (view.dense || !view.count) return {};
  std::vector<std::pair<uint64_t, int64_t>> axes;  // how far one step leads, steps
  for (size_t i = 0; i < view.dims.size(); ++i)
    if (view.dims[i] != 1) {
      const auto step = uint64_t(view.strides[i]);
      axes.emplace_back(view.strides[i] < 0 ? uint64_t{0} - step : step, view.dims[i]);
    }
  std::sort(axes.begin(), axes.end());
  uint64_t inner = 1;  // elements that the axes before this one span
  for (const auto& [step, size] : axes) {
    if (step < inner)
      return {Code::kInvalidArgument,
              label + " has dims " + list(view.dims) + " and strides " + list(view.strides) +
                  ", by which several elements may lie at one place; it is to be written."};
    inner = step * uint64_t(size - 1) + inner;
  }
  return {};
}

Status check_quant(const belay_quant& quant, const TensorView& view, const std::string& label, const Hal* hal) {
  const auto wrong = [&](const std::string& text) {
    return Status(Code::kInvalidArgument, label + " " + text);
  };
  if (quant.hdr.struct_size < sizeof quant)
    return wrong("has quantisation of struct_size " + std::to_string(quant.hdr.struct_size) + ", want " +
                 std::to_string(sizeof quant) + ".");
  if (quant.kind != BELAY_QUANT_TENSOR && quant.kind != BELAY_QUANT_AXIS && quant.kind != BELAY_QUANT_BLOCK)
    return wrong("has quantisation of kind " + std::to_string(quant.kind) + ", want TENSOR, AXIS or BLOCK.");
  std::vector<int64_t> dims;
  if (quant.kind != BELAY_QUANT_TENSOR) {
    if (quant.axis < 0 || uint64_t(quant.axis) >= view.dims.size())
      return wrong("is " + view.text() + ", quantised along axis " + std::to_string(quant.axis) +
                   ", want 0 to " + std::to_string(int64_t(view.dims.size()) - 1) + ".");
    dims = {view.dims[size_t(quant.axis)]};
  }
  if (quant.kind == BELAY_QUANT_BLOCK) {
    if (quant.block < 1)
      return wrong("is quantised in blocks of " + std::to_string(quant.block) + ", want 1 or more.");
    dims = view.dims;
    int64_t& cut = dims[size_t(quant.axis)];
    cut = cut / quant.block + (cut % quant.block != 0);
  }
  const auto check = [&](const belay_tensor* tensor, const char* name) -> Result<TensorView> {
    const std::string whose = "The " + std::string(name) + " of " + label;
    // Asked first: a chain of scales may lead back to this one.
    if (tensor && quant_of(*tensor)) return Status(Code::kInvalidArgument, whose + " is quantised itself.");
    BELAY_ASSIGN(TensorView part, view_of(tensor, whose));
    if (!part.in_host_memory(*tensor))
      return Status(Code::kInvalidArgument, whose + " must be dense, in host memory.");
    if (hal) BELAY_TRY(hal->ledger().check_mapped(whose, tensor->data, part.bytes));
    const bool one = quant.kind == BELAY_QUANT_TENSOR && part.count == 1 && part.dims.size() <= 1;
    if (part.dims != dims && !one)
      return Status(Code::kInvalidArgument,
                    whose + " has dims " + list(part.dims) + ", want " + list(dims) + ".");
    return part;
  };
  BELAY_ASSIGN(const TensorView scale, check(quant.scale, "scale"));
  if (scale.dtype != BELAY_DT_FLOAT32 && scale.dtype != BELAY_DT_FLOAT16 && scale.dtype != BELAY_DT_BFLOAT16)
    return wrong("has scales of type " + std::string(dtype_name(scale.dtype)) +
                 ", want float32, float16 or bfloat16.");
  for (uint64_t i = 0; i < scale.count; ++i) {
    const double one = scale_at(quant.scale->data, scale.dtype, i);
    if (!std::isfinite(one) || one == 0)
      return wrong("has the scale " + std::to_string(one) + ", want one that is finite and not 0.");
  }
  if (quant.zero_point) {
    BELAY_ASSIGN(const TensorView zero, check(quant.zero_point, "zero point"));
    if (zero.dtype != view.dtype)
      return wrong("is of " + std::string(dtype_name(view.dtype)) + " and its zero point of " +
                   std::string(dtype_name(zero.dtype)) + "; want the same type.");
  }
  return {};
}

// ---- copies
// ----------------------------------------------------------------------------------------------------------

namespace {

// Argument words of the kernel: to, from, bytes of an element, rank, then for each axis, the innermost first:
// steps, how far one leads in bytes in `to` and in `from`.
enum : size_t { kTo, kFrom, kWidth, kRank, kAxes };

template <size_t kBytes>
void copy_row(char* to, const char* from, int64_t steps, int64_t to_step, int64_t from_step) {
  for (int64_t i = 0; i < steps; ++i, to += to_step, from += from_step) std::memcpy(to, from, kBytes);
}

void copy_axis(const uint64_t* args, size_t axis, char* to, const char* from) {
  const uint64_t* const at = args + kAxes + 3 * axis;
  const auto steps = int64_t(at[0]), to_step = int64_t(at[1]), from_step = int64_t(at[2]);
  const uint64_t width = args[kWidth];
  if (axis > 0) {
    for (int64_t i = 0; i < steps; ++i, to += to_step, from += from_step) copy_axis(args, axis - 1, to, from);
  } else if (to_step == int64_t(width) && from_step == int64_t(width)) {
    std::memcpy(to, from, uint64_t(steps) * width);
  } else if (width == 4) {
    copy_row<4>(to, from, steps, to_step, from_step);
  } else if (width == 8) {
    copy_row<8>(to, from, steps, to_step, from_step);
  } else {
    for (int64_t i = 0; i < steps; ++i, to += to_step, from += from_step) std::memcpy(to, from, width);
  }
}

// On a thread of a device that runs no kernels of the host's; takes the words over.
void copy_on_host(void* user) noexcept {
  const std::unique_ptr<std::vector<uint64_t>> args(static_cast<std::vector<uint64_t>*>(user));
  const uint64_t* const words = args->data();
  copy_axis(words, size_t(words[kRank]) - 1, reinterpret_cast<char*>(words[kTo]),
            reinterpret_cast<const char*>(words[kFrom]));
}

// Rows of the outermost axis, on as many threads as there are and the work is worth.
belay_status copy_strided(const belay_exec* exec, const void*, const uint64_t* args) {
  const auto rank = size_t(args[kRank]);
  const uint64_t* const outer = args + kAxes + 3 * (rank - 1);
  if (rank == 1) {
    copy_axis(args, 0, reinterpret_cast<char*>(args[kTo]), reinterpret_cast<const char*>(args[kFrom]));
    return BELAY_OK;
  }
  struct Rows {
    const uint64_t* args;
    const uint64_t* outer;
    size_t axis;
  } rows{args, outer, rank - 2};
  exec->parallel_for(
      exec, outer[0],
      [](void* arg, uint64_t row) {
        const Rows& rows = *static_cast<const Rows*>(arg);
        copy_axis(rows.args, rows.axis,
                  reinterpret_cast<char*>(rows.args[kTo]) + int64_t(row) * int64_t(rows.outer[1]),
                  reinterpret_cast<const char*>(rows.args[kFrom]) + int64_t(row) * int64_t(rows.outer[2]));
      },
      &rows);
  return BELAY_OK;
}

constexpr belay_kernel kCopyStrided{
    {sizeof(belay_kernel), 0, nullptr}, copy_strided, nullptr, 0, {"copy_strided", 12}};

struct Axis {
  int64_t steps, to, from;  // in bytes
};

// The axes of the copy, the innermost first: those of one step left out, those that go on where the one
// inside ends joined with it.
std::vector<Axis> axes_of(const TensorView& to, const TensorView& from) {
  std::vector<Axis> axes;
  for (size_t i = to.dims.size(); i-- > 0;) {
    if (to.dims[i] == 1) continue;
    const Axis next{to.dims[i], to.strides[i] * int64_t(to.width), from.strides[i] * int64_t(from.width)};
    if (!axes.empty() && next.to == axes.back().to * axes.back().steps &&
        next.from == axes.back().from * axes.back().steps)
      axes.back().steps *= next.steps;
    else
      axes.push_back(next);
  }
  if (axes.empty()) axes.push_back({1, int64_t(to.width), int64_t(from.width)});
  return axes;
}

}  // namespace

belay_status copy_view(Stream& stream, const TensorView& to, char* to_address, const TensorView& from,
                       const char* from_address, belay_event* out) {
  if (!to.count) return out ? stream.record(out) : BELAY_OK;
  if (to.dense && from.dense) {
    belay_copy_req req{};
    req.hdr.struct_size = sizeof req;
    req.host_dst = to_address;
    req.host_src = from_address;
    req.bytes = to.bytes;
    return stream.copy(req, out);
  }
  const std::vector<Axis> axes = axes_of(to, from);
  std::vector<uint64_t> args = {reinterpret_cast<uint64_t>(to_address),
                                reinterpret_cast<uint64_t>(from_address), to.width, axes.size()};
  for (const Axis& axis : axes)
    args.insert(args.end(), {uint64_t(axis.steps), uint64_t(axis.to), uint64_t(axis.from)});
  if (!stream.device().host_visible()) {
    auto words = std::make_unique<std::vector<uint64_t>>(std::move(args));
    const belay_status status = stream.host_call(copy_on_host, words.get(), out);
    if (status == BELAY_OK) (void)words.release();
    return status;
  }
  belay_launch_req req{};
  req.hdr.struct_size = sizeof req;
  req.kernel = &kCopyStrided;
  req.args = args.data();
  req.arg_count = args.size();
  return stream.launch(req, out);
}

belay_status copy_tensor(Stream& stream, const belay_tensor* to, const belay_tensor* from, belay_event* out) {
  Hal& hal = *stream.hal;
  TensorView dst, src;
  char *dst_at = nullptr, *src_at = nullptr;
  const Status checked = [&]() -> Status {
    const std::string target = "The destination", source = "The source";
    BELAY_ASSIGN(dst, view_of(to, target, &hal));
    BELAY_ASSIGN(src, view_of(from, source, &hal));
    if (dst.dtype != src.dtype || dst.dims != src.dims)
      return {Code::kInvalidArgument, target + " is " + dst.text() + " and the source " + src.text() +
                                          "; want the same type and dims."};
    BELAY_TRY(check_apart(dst, target));
    BELAY_ASSIGN(dst_at, address_of(hal, *to, dst, target));
    BELAY_ASSIGN(src_at, address_of(hal, *from, src, source));
    if (dst.count && dst_at + dst.low < src_at + src.high && src_at + src.low < dst_at + dst.high)
      return {Code::kInvalidArgument,
              target + " and the source overlap in memory; copy by way of another tensor."};
    return {};
  }();
  if (!checked.ok())
    return hal.make(Status(checked).while_doing("copying a tensor on '" + stream.device().name() + "'"));
  return copy_view(stream, dst, dst_at, src, src_at, out);
}

}  // namespace belay::hal
