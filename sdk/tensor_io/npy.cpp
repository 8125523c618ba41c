// NumPy's .npy: "\x93NUMPY", version (2 bytes), header length (2 or 4 bytes), header (a Python dict as text),
// data.
#include <belay/graph/dtype.hpp>
#include <belay/tensor_io.hpp>
#include <belay/tensor_io/wire.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace belay {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

Status damaged(const std::string& what) { return {Code::kDataLoss, "The .npy file " + what + "."}; }

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> dims;
};

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } and nothing more of Python.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  Result<Header> run() {
    Header out;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!take('{')) return bad("'{'");
    while (!take('}')) {
      std::string key;
      if (!quoted(key)) return bad("a quoted key");
      if (!take(':')) return bad("':'");
      if (key == "descr") {
        if (peek() == '[' || peek() == '(')
          return Status(Code::kUnimplemented, "The .npy file holds structures, which are not supported.");
        if (!quoted(out.descr)) return bad("a quoted type");
        has_descr = true;
      } else if (key == "fortran_order") {
        if (word("True")) {
          out.fortran = true;
        } else if (!word("False")) {
          return bad("True or False");
        }
        has_order = true;
      } else if (key == "shape") {
        if (!shape(out.dims)) return bad("a tuple of at most 32 sizes");
        has_shape = true;
      } else {
        return damaged("has the key '" + wire::printable(key) +
                       "' in its header, want descr, fortran_order and shape");
      }
      if (!take(',') && peek() != '}') return bad("',' or '}'");
    }
    if (!has_descr || !has_order || !has_shape)
      return damaged("lacks descr, fortran_order or shape in its header");
    return out;
  }

 private:
  Status bad(std::string_view want) const {
    return damaged("has a damaged header at character " + std::to_string(at_) + ", want " +
                   std::string(want));
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view word) {
    peek();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool quoted(std::string& out) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return false;
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return out.find('\\') == std::string::npos;
  }
  bool shape(std::vector<int64_t>& dims) {
    if (!take('(')) return false;
    while (!take(')')) {
      int64_t dim = -1;
      peek();
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0 || dims.size() == BELAY_MAX_RANK) return false;
      at_ = size_t(end - text_.data());
      word("L");  // Python 2 wrote long integers so
      dims.push_back(dim);
      if (!take(',') && peek() != ')') return false;
    }
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

struct ElementType {
  uint32_t dtype = 0;
  size_t width = 0;  // bytes of one element in the file
  size_t swap = 1;   // bytes to reverse, when the file is big-endian
  char text = 0;     // 'S' or 'U'
};

Result<ElementType> element_type(std::string_view descr, uint32_t hint) {
  const Status unknown(Code::kUnimplemented, "The .npy file has the type '" + wire::printable(descr) +
                                                 "', which is not supported.");
  if (descr.size() < 3) return unknown;
  const char order = descr[0], kind = descr[1];
  uint32_t width = 0;
  const auto [end, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), width);
  if (error != std::errc() || end != descr.data() + descr.size() ||
      (order != '<' && order != '>' && order != '|' && order != '='))
    return unknown;
  ElementType out;
  out.width = width;
  const bool big = order == '>';
  const auto pick = [&](std::initializer_list<std::pair<uint32_t, uint32_t>> choices) {
    for (const auto& [bytes, dtype] : choices)
      if (bytes == width) out.dtype = dtype;
  };
  switch (kind) {
    case 'f':
      pick({{2, BELAY_DT_FLOAT16}, {4, BELAY_DT_FLOAT32}, {8, BELAY_DT_FLOAT64}});
      break;
    case 'i':
      pick({{1, BELAY_DT_INT8}, {2, BELAY_DT_INT16}, {4, BELAY_DT_INT32}, {8, BELAY_DT_INT64}});
      break;
    case 'u':
      pick({{1, BELAY_DT_UINT8}, {2, BELAY_DT_UINT16}, {4, BELAY_DT_UINT32}, {8, BELAY_DT_UINT64}});
      break;
    case 'b':
      pick({{1, BELAY_DT_BOOL}});
      break;
    case 'c':
      pick({{8, BELAY_DT_COMPLEX64}, {16, BELAY_DT_COMPLEX128}});
      break;
    case 'V': {  // bytes whose meaning is not in the file
      const DtypeInfo* info = find_dtype(hint);
      if (info && info->bits > 0 && (info->bits == width * 8 || (info->bits < 8 && width == 1))) {
        out.dtype = hint;
      } else if (width == 2) {
        out.dtype = BELAY_DT_BFLOAT16;
      }
      break;
    }
    case 'S':
    case 'U':
      if (width > 1u << 20) return unknown;
      out.dtype = BELAY_DT_STRING;
      out.text = kind;
      if (kind == 'U') out.width = size_t{width} * 4;
      out.swap = big && kind == 'U' ? 4 : 1;
      return out;
    default:
      break;
  }
  if (out.dtype == 0) return unknown;
  if (big && kind != 'V') out.swap = kind == 'c' ? width / 2 : width;
  return out;
}

// Calls use(source index) for each element in row-major order of a column-major array.
template <class Use>
void each_fortran(const std::vector<int64_t>& dims, uint64_t count, Use&& use) {
  std::vector<uint64_t> stride(dims.size(), 1);
  for (size_t i = 1; i < dims.size(); ++i) stride[i] = stride[i - 1] * uint64_t(dims[i - 1]);
  std::vector<int64_t> at(dims.size(), 0);
  uint64_t source = 0;
  for (uint64_t i = 0; i < count; ++i) {
    use(source);
    for (size_t d = dims.size(); d-- > 0;) {
      source += stride[d];
      if (++at[d] < dims[d]) break;
      source -= stride[d] * uint64_t(dims[d]);
      at[d] = 0;
    }
  }
}

void append_utf8(std::string& out, uint32_t c) {
  if (c >= 0x110000 || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
  if (c < 0x80) {
    out += char(c);
  } else if (c < 0x800) {
    out += char(0xc0 | c >> 6);
    out += char(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += char(0xe0 | c >> 12);
    out += char(0x80 | (c >> 6 & 63));
    out += char(0x80 | (c & 63));
  } else {
    out += char(0xf0 | c >> 18);
    out += char(0x80 | (c >> 12 & 63));
    out += char(0x80 | (c >> 6 & 63));
    out += char(0x80 | (c & 63));
  }
}

std::string text_of(const ElementType& type, std::string_view bytes) {
  std::string out;
  if (type.text == 'S') {
    out = bytes;
    out.erase(out.find_last_not_of('\0') + 1);
    return out;
  }
  std::vector<uint32_t> points;
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    uint32_t point;
    std::memcpy(&point, bytes.data() + i, 4);
    points.push_back(type.swap == 4 ? __builtin_bswap32(point) : point);
  }
  while (!points.empty() && points.back() == 0) points.pop_back();
  for (const uint32_t point : points) append_utf8(out, point);
  return out;
}

// Code points of UTF-8; nothing when it is not.
std::optional<std::vector<uint32_t>> code_points(std::string_view text) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < text.size();) {
    const auto lead = uint8_t(text[i]);
    const int more = lead < 0x80                   ? 0
                     : lead >= 0xc2 && lead < 0xe0 ? 1
                     : lead >= 0xe0 && lead < 0xf0 ? 2
                     : lead >= 0xf0 && lead < 0xf5 ? 3
                                                   : -1;
    if (more < 0 || i + size_t(more) >= text.size()) return std::nullopt;
    uint32_t point = more == 0 ? lead : lead & (0x3fu >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = uint8_t(text[i + size_t(k)]);
      if ((next & 0xc0) != 0x80) return std::nullopt;
      point = point << 6 | (next & 0x3f);
    }
    out.push_back(point);
    i += size_t(more) + 1;
  }
  return out;
}

std::string header_text(std::string_view descr, std::span<const int64_t> dims) {
  std::string shape = "(";
  for (size_t i = 0; i < dims.size(); ++i) shape.append(i > 0 ? ", " : "").append(std::to_string(dims[i]));
  shape += dims.size() == 1 ? ",)" : ")";
  std::string text =
      "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': " + shape + ", }";
  const bool wide = text.size() + 64 > 65535;
  const size_t prefix = kMagic.size() + 2 + (wide ? 4 : 2);
  text.append((64 - (prefix + text.size() + 1) % 64) % 64, ' ');
  text += '\n';
  std::string out(kMagic);
  out += wide ? '\2' : '\1';
  out += '\0';
  for (int i = 0; i < (wide ? 4 : 2); ++i) out += char(text.size() >> (8 * i));
  return out + text;
}

std::string descr_of(uint32_t dtype) {
  switch (dtype) {
    case BELAY_DT_BOOL:
      return "|b1";
    case BELAY_DT_INT8:
      return "|i1";
    case BELAY_DT_UINT8:
      return "|u1";
    case BELAY_DT_INT16:
      return "<i2";
    case BELAY_DT_UINT16:
      return "<u2";
    case BELAY_DT_INT32:
      return "<i4";
    case BELAY_DT_UINT32:
      return "<u4";
    case BELAY_DT_INT64:
      return "<i8";
    case BELAY_DT_UINT64:
      return "<u8";
    case BELAY_DT_FLOAT16:
      return "<f2";
    case BELAY_DT_FLOAT32:
      return "<f4";
    case BELAY_DT_FLOAT64:
      return "<f8";
    case BELAY_DT_COMPLEX64:
      return "<c8";
    case BELAY_DT_COMPLEX128:
      return "<c16";
    case BELAY_DT_BFLOAT16:
      return "<V2";
    default:
      return "|V" + std::to_string(std::max(1u, find_dtype(dtype) ? find_dtype(dtype)->bits / 8 : 1));
  }
}

std::string strings_to_npy(const HostTensor& tensor) {
  std::vector<std::vector<uint32_t>> points;
  size_t longest = 1;
  for (const std::string& text : tensor.strings) {
    auto of = code_points(text);
    if (!of) break;
    longest = std::max(longest, of->size());
    points.push_back(std::move(*of));
  }
  if (points.size() == tensor.strings.size()) {
    std::string out = header_text("<U" + std::to_string(longest), tensor.dims);
    for (const auto& text : points) {
      out.append(reinterpret_cast<const char*>(text.data()), text.size() * 4);
      out.append((longest - text.size()) * 4, '\0');
    }
    return out;
  }
  longest = 1;
  for (const std::string& text : tensor.strings) longest = std::max(longest, text.size());
  std::string out = header_text("|S" + std::to_string(longest), tensor.dims);
  for (const std::string& text : tensor.strings) out.append(text).append(longest - text.size(), '\0');
  return out;
}

}  // namespace

Result<HostTensor> parse_npy(std::string_view file, uint32_t hint) {
  if (!file.starts_with(kMagic) || file.size() < 10)
    return damaged("does not begin with \\x93NUMPY and a version");
  const int major = file[6];
  if (major < 1 || major > 3) return damaged("has the version " + std::to_string(major) + ", want 1, 2 or 3");
  const size_t width = major == 1 ? 2 : 4;
  if (file.size() < 8 + width) return damaged("ends in its header");
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < width; ++i) header_bytes |= uint64_t{uint8_t(file[8 + i])} << (8 * i);
  if (header_bytes > file.size() - 8 - width)
    return damaged("has a header of " + std::to_string(header_bytes) + " bytes, past its end");
  BELAY_ASSIGN(const Header header, HeaderReader(file.substr(8 + width, header_bytes)).run());
  if (header.descr.ends_with('O'))
    return Status(Code::kUnimplemented,
                  "The .npy file holds Python objects, which are code and are not read.");
  BELAY_ASSIGN(const ElementType type, element_type(header.descr, hint));
  const std::string_view data = file.substr(8 + width + header_bytes);

  std::vector<int64_t> dims = header.dims;
  const DtypeInfo& info = *find_dtype(type.dtype);
  const bool packed = info.bits > 0 && info.bits < 8;  // the file's elements are bytes of several each
  const auto in_file = element_count(dims);
  uint64_t want = 0;
  if (!in_file || __builtin_mul_overflow(*in_file, uint64_t{type.width}, &want) || want != data.size())
    return damaged("has " + std::to_string(data.size()) + " bytes of data, want " +
                   (in_file ? std::to_string(*in_file) + " elements" : std::string("a possible number")) +
                   " of " + std::to_string(type.width) + " bytes for shape " + dims_text(dims));
  if (packed) {
    if (dims.size() != 1)
      return Status(Code::kUnimplemented,
                    "The .npy file holds packed sub-byte elements; want one dim, of bytes.");
    dims[0] *= int64_t(8 / info.bits);
  }
  // Strings of width 0 take no bytes in the file but do in memory: the shape alone must not decide.
  if (type.width == 0 && *in_file > (uint64_t{1} << 20)) return damaged("has more than 2^20 empty strings");
  BELAY_ASSIGN(HostTensor out, HostTensor::make(type.dtype, dims));
  const bool fortran = header.fortran && dims.size() > 1;
  uint64_t i = 0;
  const auto copy = [&](uint64_t source) {
    const std::string_view bytes = data.substr(source * type.width, type.width);
    if (type.dtype == BELAY_DT_STRING) {
      out.strings[i++] = text_of(type, bytes);
      return;
    }
    char* to = reinterpret_cast<char*>(out.bytes.data()) + i++ * type.width;
    std::memcpy(to, bytes.data(), type.width);
    for (size_t at = 0; type.swap > 1 && at < type.width; at += type.swap)
      std::reverse(to + at, to + at + type.swap);
  };
  if (fortran) {
    each_fortran(dims, *in_file, copy);
  } else if (type.dtype != BELAY_DT_STRING && type.swap == 1) {
    std::copy(data.begin(), data.end(), reinterpret_cast<char*>(out.bytes.data()));
  } else {
    for (uint64_t n = 0; n < *in_file; ++n) copy(n);
  }
  return out;
}

std::string to_npy(const HostTensor& tensor) {
  if (tensor.dtype == BELAY_DT_STRING) return strings_to_npy(tensor);
  const DtypeInfo* info = find_dtype(tensor.dtype);
  std::vector<int64_t> dims = tensor.dims;
  if (info && info->bits < 8) dims = {int64_t(tensor.bytes.size())};
  std::string out = header_text(descr_of(tensor.dtype), dims);
  return out.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
}

}  // namespace belay
