#include <belay/tensor_io/onnx_tensor.hpp>

#include <belay/abi/tensor.h>
#include <belay/graph/dtype.hpp>
#include <belay/tensor_io.hpp>

#include <charconv>

namespace belay::wire {

namespace {

// Bytes of the UTF-8 character that `text` begins with; 0: it is none.
size_t character(std::string_view text) {
  const auto byte = [&](size_t i) { return uint8_t(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) >= 0xa0, too_large = lead == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

bool is_control(std::string_view character) {
  const auto lead = uint8_t(character[0]);
  return lead < 0x20 || lead == 0x7f || (lead == 0xc2 && uint8_t(character[1]) < 0xa0);
}

std::string escaped(std::string_view text, size_t most, bool controls) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  while (!text.empty() && out.size() < most) {
    size_t length = character(text);
    if (length > 0 && !(controls && is_control(text))) {
      out.append(text.substr(0, length));
    } else {
      const auto byte = uint8_t(text[0]);
      out.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
      length = 1;
    }
    text.remove_prefix(length);
  }
  return text.empty() ? out : out + "...";
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, 160, true); }
std::string utf8(std::string_view text) { return escaped(text, SIZE_MAX, false); }

}  // namespace belay::wire

namespace belay::onnx {
namespace {

// Fields of TensorProto that hold typed data.
constexpr uint32_t kFloatData = 4, kInt32Data = 5, kStringData = 6, kInt64Data = 7, kDoubleData = 10,
                   kUint64Data = 11;

uint32_t typed_field(uint32_t dtype) {
  switch (dtype) {
    case BELAY_DT_FLOAT32:
    case BELAY_DT_COMPLEX64:
      return kFloatData;
    case BELAY_DT_FLOAT64:
    case BELAY_DT_COMPLEX128:
      return kDoubleData;
    case BELAY_DT_INT64:
      return kInt64Data;
    case BELAY_DT_UINT32:
    case BELAY_DT_UINT64:
      return kUint64Data;
    case BELAY_DT_STRING:
      return kStringData;
    default:
      return kInt32Data;
  }
}

std::string describe(const TensorProto& t) {
  return "Tensor '" + wire::printable(t.name) + "'" +
         (t.dtype ? " (" + std::string(dtype_name(t.dtype)) + dims_text(t.dims) + ")" : "");
}
Status invalid(const TensorProto& t, const std::string& what) {
  return {Code::kInvalidArgument, describe(t) + " " + what + "."};
}

Result<uint64_t> decimal(const TensorProto& t, std::string_view key, std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    return invalid(t, "has external data whose " + std::string(key) + " is '" + wire::printable(text) +
                          "', want a decimal number below 2^64");
  return value;
}

Status read_external(TensorProto& t, const std::vector<std::string_view>& entries) {
  for (const std::string_view entry : entries) {  // StringStringEntryProto: 1 key, 2 value
    std::string_view key, value;
    wire::Message m(entry, t.base, "StringStringEntryProto");
    while (m.next()) {
      if (m.field() == 1) key = m.bytes();
      if (m.field() == 2) value = m.bytes();
    }
    BELAY_TRY(m.status());
    if (key == "location") {
      t.location = value;
    } else if (key == "offset") {
      BELAY_ASSIGN(t.offset, decimal(t, key, value));
    } else if (key == "length") {
      BELAY_ASSIGN(t.length, decimal(t, key, value));
    }  // others, such as checksum, are ignored as everyone does
  }
  if (t.location.empty()) return invalid(t, "has external data without a location");
  return {};
}

}  // namespace

Result<TensorProto> read_tensor(std::string_view message, const char* base) {
  TensorProto t;
  t.message = message;
  t.base = base;
  bool has_raw = false, segment = false;
  uint64_t location = 0;
  int32_t type = 0;
  uint64_t typed_counts[16] = {};  // by field
  std::vector<std::string_view> entries;
  bool too_many_dims = false;
  wire::Message m(message, base, "TensorProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        m.numbers([&](uint64_t dim) {
          if (t.dims.size() < BELAY_MAX_RANK) {
            t.dims.push_back(int64_t(dim));
          } else {
            too_many_dims = true;
          }
        });
        break;
      case 2:
        type = int32_t(m.number());
        break;
      case 3:
        segment = true;
        break;
      case kFloatData:
        m.floats([&](float) { ++typed_counts[kFloatData]; });
        break;
      case kDoubleData:
        m.doubles([&](double) { ++typed_counts[kDoubleData]; });
        break;
      case kInt32Data:
      case kInt64Data:
      case kUint64Data:
        m.numbers([&](uint64_t) { ++typed_counts[m.field()]; });
        break;
      case kStringData:
        m.bytes();
        ++typed_counts[kStringData];
        break;
      case 8:
        t.name = m.bytes();
        break;
      case 9:
        t.raw = m.bytes();
        has_raw = true;
        break;
      case 13:
        entries.push_back(m.bytes());
        break;
      case 14:
        location = m.number();
        break;
      default:
        break;
    }
  }
  BELAY_TRY(m.status());
  if (segment)
    return Status(Code::kUnimplemented, describe(t) + " is stored in segments, which are not supported.");
  if (type <= 0 || !find_dtype(uint32_t(type)) ||
      uint32_t(type) >= BELAY_DT_COMPLEX32)  // ONNX's own end at 26
    return invalid(t, "has the data type " + std::to_string(type) + ", which is not a known element type");
  t.dtype = uint32_t(type);
  if (too_many_dims) return invalid(t, "has more than 32 dims");
  for (size_t i = 0; i < t.dims.size(); ++i)
    if (t.dims[i] < 0)
      return invalid(
          t, "has dims[" + std::to_string(i) + "] = " + std::to_string(t.dims[i]) + ", want 0 or more");
  const auto count = element_count(t.dims);
  if (!count) return invalid(t, "has more elements than 64 bits count");
  t.count = *count;
  const bool strings = t.dtype == BELAY_DT_STRING;
  if (!strings) {
    const auto bytes = dtype_bytes(t.dtype, t.count);
    if (!bytes) return invalid(t, "needs more bytes than 64 bits count");
    t.bytes = *bytes;
  }

  const uint32_t field = typed_field(t.dtype);
  uint64_t typed_total = 0;
  for (const uint64_t n : typed_counts) typed_total += n;
  if (typed_total != typed_counts[field]) return invalid(t, "has its values in a field of another type");
  if (location > 1) return invalid(t, "has data_location " + std::to_string(location) + ", want 0 or 1");
  const bool external = location == 1;
  // An empty raw_data next to external or typed data is what some writers leave; only bytes count as data.
  const int kinds = int(external) + int(has_raw && !t.raw.empty()) + int(typed_total > 0);
  if (kinds > 1) return invalid(t, "has more than one of raw, typed and external data");
  if (external) {
    if (strings) return invalid(t, "holds strings, which cannot be external");
    t.data = TensorProto::Data::kExternal;
    t.raw = {};
    BELAY_TRY(read_external(t, entries));
    if (t.length && *t.length != t.bytes)
      return invalid(
          t, "has external data of " + std::to_string(*t.length) + " bytes, want " + std::to_string(t.bytes));
    return t;
  }
  if (strings || typed_total > 0) {
    if (has_raw && !t.raw.empty()) return invalid(t, "holds strings in raw_data, want string_data");
    t.data = TensorProto::Data::kTyped;
    const DtypeInfo& info = *find_dtype(t.dtype);
    const bool pairs = t.dtype == BELAY_DT_COMPLEX64 || t.dtype == BELAY_DT_COMPLEX128;
    const uint64_t want = pairs ? 2 * t.count : info.bits > 0 && info.bits < 8 ? t.bytes : t.count;
    if (typed_total != want)
      return invalid(t, "has " + std::to_string(typed_total) + " values, want " + std::to_string(want));
    return t;
  }
  if (t.raw.size() != t.bytes)
    return invalid(
        t, "has " + std::to_string(t.raw.size()) + " bytes of raw data, want " + std::to_string(t.bytes));
  return t;
}

Status read_values(const TensorProto& t, std::span<std::byte> out) {
  const DtypeInfo& info = *find_dtype(t.dtype);
  const uint32_t field = typed_field(t.dtype);
  const size_t width = field == kFloatData ? 4 : field == kDoubleData ? 8 : info.bits < 8 ? 1 : info.bits / 8;
  if (out.size() != t.bytes || t.dtype == BELAY_DT_STRING)
    return invalid(t, "was asked for values of another size");
  size_t at = 0;
  bool fits = true;
  const auto put = [&](const auto& value) {
    if (at + width > out.size()) {  // counted before; the message cannot have changed
      fits = false;
      return;
    }
    std::memcpy(out.data() + at, &value, width);
    at += width;
  };
  // Signed types take what sign extension of their width gives, unsigned ones and bits take 0 to 2^width - 1.
  const bool is_signed = t.dtype == BELAY_DT_INT8 || t.dtype == BELAY_DT_INT16 || t.dtype == BELAY_DT_INT32;
  const uint32_t bits = uint32_t(width) * 8;
  std::optional<int64_t> misfit;
  wire::Message m(t.message, t.base, "TensorProto");
  while (m.next()) {
    if (m.field() != field) continue;
    switch (field) {
      case kFloatData:
        m.floats(put);
        break;
      case kDoubleData:
        m.doubles(put);
        break;
      case kInt64Data:
        m.numbers(put);
        break;
      case kUint64Data:
        m.numbers([&](uint64_t value) {
          if (width == 4 && value > UINT32_MAX) misfit = int64_t(value);
          put(value);
        });
        break;
      default:
        m.numbers([&](uint64_t raw) {
          const auto value = int64_t(raw);
          const int64_t low = is_signed || info.bits < 8 ? -(int64_t{1} << (bits - 1)) : 0;
          const int64_t high =
              t.dtype == BELAY_DT_BOOL ? 1 : (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
          if (value < low || value > high) misfit = value;
          put(value);
        });
    }
  }
  BELAY_TRY(m.status());
  if (misfit)
    return invalid(t, "has the value " + std::to_string(*misfit) + ", which its element type cannot hold");
  if (!fits || at != out.size()) return invalid(t, "has another number of values than its dims say");
  return {};
}

Result<std::vector<std::string_view>> read_strings(const TensorProto& t) {
  std::vector<std::string_view> out;
  wire::Message m(t.message, t.base, "TensorProto");
  while (m.next())
    if (m.field() == kStringData) out.push_back(m.bytes());
  BELAY_TRY(m.status());
  if (out.size() != t.count) return invalid(t, "has another number of strings than its dims say");
  return out;
}

}  // namespace belay::onnx
