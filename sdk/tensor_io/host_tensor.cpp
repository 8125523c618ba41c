#include <belay/graph/dtype.hpp>
#include <belay/tensor_io.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>

namespace belay {
namespace {

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

constexpr int kMaxNesting = 32;

// dst gets the elements of `t` in row-major order; every element is `width` bytes.
void copy_strided(const belay_tensor& t, size_t width, std::byte* dst) {
  const auto* src = static_cast<const std::byte*>(t.data);
  std::vector<int64_t> at(t.rank, 0);
  for (;;) {
    int64_t offset = 0;
    for (uint32_t i = 0; i < t.rank; ++i) offset += at[i] * t.strides[i];
    std::memcpy(dst, src + uint64_t(offset) * width, width);
    dst += width;
    uint32_t i = t.rank;
    while (i > 0 && ++at[i - 1] == t.dims[i - 1]) at[--i] = 0;
    if (i == 0) return;
  }
}

// Elements that the storage must hold for these strides; nothing: a stride is negative, or overflow.
std::optional<uint64_t> strided_extent(const belay_tensor& t) {
  int64_t last = 0;
  for (uint32_t i = 0; i < t.rank; ++i) {
    int64_t reach = 0;
    if (t.strides[i] < 0 || __builtin_mul_overflow(t.dims[i] - 1, t.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return std::nullopt;
  }
  return last == INT64_MAX ? std::nullopt : std::optional<uint64_t>(uint64_t(last) + 1);
}

Result<HostDatum> copy_datum_at(const belay_datum& datum, int depth) {
  if (depth > kMaxNesting) return invalid("A value is nested more than 32 deep.");
  HostDatum out;
  out.kind = datum.kind;
  if (datum.kind == BELAY_TYPE_TENSOR) {
    if (!datum.tensor) return invalid("A value says it is a tensor but has none.");
    BELAY_ASSIGN(out.tensor, copy_tensor(*datum.tensor));
    return out;
  }
  if (datum.kind > BELAY_TYPE_MAP || datum.kind == 0)
    return invalid("A value has the kind " + std::to_string(datum.kind) + ", want 1 to 4.");
  for (uint64_t i = 0; i < datum.item_count; ++i) {
    if (!datum.items[i]) return invalid("Item " + std::to_string(i) + " of a value is missing.");
    BELAY_ASSIGN(HostDatum item, copy_datum_at(*datum.items[i], depth + 1));
    out.items.push_back(std::move(item));
  }
  return out;
}

}  // namespace

uint64_t HostTensor::count() const { return element_count(dims).value_or(0); }

Result<HostTensor> HostTensor::make(uint32_t dtype, std::span<const int64_t> dims) {
  if (!find_dtype(dtype)) return invalid("Element type " + std::to_string(dtype) + " is not known.");
  if (dims.size() > BELAY_MAX_RANK)
    return invalid("A tensor has " + std::to_string(dims.size()) + " dims, want at most 32.");
  const auto count = element_count(dims);
  if (!count)
    return invalid("Shape " + dims_text(dims) + " has a negative dim, or more elements than 64 bits count.");
  HostTensor out;
  out.dtype = dtype;
  out.dims.assign(dims.begin(), dims.end());
  try {
    if (dtype == BELAY_DT_STRING) {
      out.strings.resize(*count);
    } else {
      const auto bytes = dtype_bytes(dtype, *count);
      if (!bytes) return invalid("Shape " + dims_text(dims) + " needs more bytes than 64 bits count.");
      out.bytes.resize(*bytes);
    }
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  "There is no memory for a tensor of shape " + dims_text(dims) + ".");
  } catch (const std::length_error&) {
    return Status(Code::kResourceExhausted,
                  "There is no memory for a tensor of shape " + dims_text(dims) + ".");
  }
  return out;
}

Result<HostTensor> HostTensor::copy_of(uint32_t dtype, std::span<const int64_t> dims,
                                       std::span<const std::byte> bytes) {
  const auto count = element_count(dims);
  const auto want = count ? dtype_bytes(dtype, *count) : std::nullopt;
  if (want != bytes.size())  // before anything is allocated
    return invalid("A tensor of " + std::string(dtype_name(dtype)) + dims_text(dims) + " got " +
                   std::to_string(bytes.size()) + " bytes, want " +
                   (want ? std::to_string(*want) : "a size it can have") + ".");
  BELAY_ASSIGN(HostTensor out, make(dtype, dims));
  std::copy(bytes.begin(), bytes.end(), out.bytes.begin());
  return out;
}

DatumView::DatumView(const HostDatum& datum) : root_(add(datum)) {}

belay_datum* DatumView::add(const HostDatum& datum) {
  belay_datum& out = data_.emplace_back();
  out.hdr = {sizeof out, 0, nullptr};
  out.kind = datum.kind;
  if (datum.kind == BELAY_TYPE_TENSOR) {
    const HostTensor& from = datum.tensor;
    belay_tensor& t = tensors_.emplace_back();
    t.hdr = {sizeof t, 0, nullptr};
    t.dtype = from.dtype;
    t.rank = uint32_t(from.dims.size());
    t.dims = from.dims.data();
    if (from.dtype == BELAY_DT_STRING) {
      auto& strings = strings_.emplace_back();
      for (const std::string& text : from.strings) strings.push_back(to_str(text));
      t.data = strings.data();
      t.bytes = strings.size() * sizeof(belay_str);
    } else {
      t.data = const_cast<std::byte*>(from.bytes.data());
      t.bytes = from.bytes.size();
    }
    out.tensor = &t;
    return &out;
  }
  std::vector<const belay_datum*> items;
  for (const HostDatum& item : datum.items) items.push_back(add(item));
  out.item_count = items.size();
  out.items = items_.emplace_back(std::move(items)).data();
  return &out;
}

Result<HostTensor> copy_tensor(const belay_tensor& t) {
  const std::span<const int64_t> dims{t.dims, t.rank};
  const auto count = t.rank <= BELAY_MAX_RANK ? element_count(dims) : std::nullopt;
  if (!count) return invalid("A tensor has a shape that is not one, of " + std::to_string(t.rank) + " dims.");
  if (t.buffer)
    return invalid("A tensor of " + dims_text(dims) + " lies in a device buffer, want host memory.");
  if (*count > 0 && !t.data) return invalid("A tensor of " + dims_text(dims) + " has no data.");
  const DtypeInfo* info = find_dtype(t.dtype);
  const bool strings = t.dtype == BELAY_DT_STRING;
  const auto dense =
      strings ? std::optional<uint64_t>(*count * sizeof(belay_str)) : dtype_bytes(t.dtype, *count);
  if (!info || !dense)
    return invalid("A tensor has the element type " + std::to_string(t.dtype) + ", which is not known.");
  uint64_t need = *dense;
  const size_t width = strings ? sizeof(belay_str) : info->bits / 8;
  if (t.strides && *count > 0) {
    const auto extent = info->bits % 8 == 0 ? strided_extent(t) : std::nullopt;
    if (!extent || __builtin_mul_overflow(*extent, uint64_t{width}, &need))
      return invalid("A tensor of " + dims_text(dims) + " has strides that are not supported.");
  }
  if (need > t.bytes)
    return invalid("A tensor of " + dims_text(dims) + " has " + std::to_string(t.bytes) + " bytes, want " +
                   std::to_string(need) + ".");
  BELAY_ASSIGN(HostTensor out, HostTensor::make(t.dtype, dims));
  if (*count == 0) return out;
  if (strings) {
    std::vector<belay_str> texts(*count);
    if (t.strides) {
      copy_strided(t, sizeof(belay_str), reinterpret_cast<std::byte*>(texts.data()));
    } else {
      std::memcpy(texts.data(), t.data, texts.size() * sizeof(belay_str));
    }
    for (size_t i = 0; i < texts.size(); ++i) out.strings[i] = to_string(texts[i]);
  } else if (t.strides) {
    copy_strided(t, width, out.bytes.data());
  } else {
    std::memcpy(out.bytes.data(), t.data, out.bytes.size());
  }
  return out;
}

Result<HostDatum> copy_datum(const belay_datum& datum) { return copy_datum_at(datum, 0); }

std::optional<uint32_t> parse_dtype(std::string_view name) {
  struct Alias {
    std::string_view name;
    uint32_t dtype;
  };
  static constexpr Alias kAliases[] = {
      {"f32", BELAY_DT_FLOAT32},    {"float", BELAY_DT_FLOAT32}, {"f64", BELAY_DT_FLOAT64},
      {"double", BELAY_DT_FLOAT64}, {"f16", BELAY_DT_FLOAT16},   {"half", BELAY_DT_FLOAT16},
      {"fp16", BELAY_DT_FLOAT16},   {"bf16", BELAY_DT_BFLOAT16}, {"i8", BELAY_DT_INT8},
      {"i16", BELAY_DT_INT16},      {"i32", BELAY_DT_INT32},     {"i64", BELAY_DT_INT64},
      {"u8", BELAY_DT_UINT8},       {"u16", BELAY_DT_UINT16},    {"u32", BELAY_DT_UINT32},
      {"u64", BELAY_DT_UINT64},     {"int", BELAY_DT_INT32},     {"long", BELAY_DT_INT64},
      {"str", BELAY_DT_STRING},     {"fp32", BELAY_DT_FLOAT32},  {"fp64", BELAY_DT_FLOAT64},
      {"byte", BELAY_DT_UINT8},     {"boolean", BELAY_DT_BOOL},
  };
  for (const DtypeInfo& info : kDtypes)
    if (info.name == name) return info.dtype;
  for (const Alias& alias : kAliases)
    if (alias.name == name) return alias.dtype;
  return std::nullopt;
}

Result<std::vector<int64_t>> parse_dims(std::string_view text) {
  std::vector<int64_t> dims;
  const std::string_view whole = text;
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const size_t end = text.find_first_of("x,");
    std::string_view item = text.substr(0, end);
    while (item.starts_with(' ')) item.remove_prefix(1);
    int64_t dim = 0;
    const auto [at, error] = std::from_chars(item.data(), item.data() + item.size(), dim);
    if (item.empty() || error != std::errc() || at != item.data() + item.size() || dim < -1)
      return invalid("Shape '" + std::string(whole) + "' has the dim '" + std::string(item) +
                     "', want numbers joined by x or commas, such as 1x3x224x224.");
    dims.push_back(dim);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
    if (text.empty()) return invalid("Shape '" + std::string(whole) + "' ends with a separator.");
  }
  if (dims.size() > BELAY_MAX_RANK)
    return invalid("Shape '" + std::string(whole) + "' has more than 32 dims.");
  return dims;
}

std::string dims_text(std::span<const int64_t> dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out.append(i > 0 ? "," : "").append(std::to_string(dims[i]));
  return out + "]";
}

}  // namespace belay
