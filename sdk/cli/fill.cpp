#include "fill.hpp"

#include "text.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace belay::cli {
namespace {

class Random {  // splitmix64: the same numbers from a seed on every machine
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double unit() { return double(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

template <class T, class Make>
void each(HostTensor& tensor, Make make) {
  for (T& value : tensor.as<T>()) value = make();
}

}  // namespace

uint16_t to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return uint16_t(sign | 0x7e00u);
  if (magnitude >= 65520.0f) return uint16_t(sign | 0x7c00u);
  if (magnitude < 0x1p-14f) return uint16_t(sign | uint32_t(std::nearbyint(magnitude * 0x1p24f)));
  const uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + ((bits >> 13) & 1u);
  return uint16_t(sign | ((rounded - (112u << 23)) >> 13));
}

uint16_t to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return uint16_t((bits >> 16) | 0x40u);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void fill_random(HostTensor& tensor, uint64_t seed) {
  Random random(seed);
  const auto real = [&] { return random.unit() * 2 - 1; };
  switch (tensor.dtype) {
    case BELAY_DT_FLOAT32:
    case BELAY_DT_COMPLEX64:
      return each<float>(tensor, real);
    case BELAY_DT_FLOAT64:
    case BELAY_DT_COMPLEX128:
      return each<double>(tensor, real);
    case BELAY_DT_FLOAT16:
    case BELAY_DT_COMPLEX32:
      return each<uint16_t>(tensor, [&] { return to_half(float(real())); });
    case BELAY_DT_BFLOAT16:
      return each<uint16_t>(tensor, [&] { return to_bfloat16(float(real())); });
    case BELAY_DT_INT8:
    case BELAY_DT_UINT8:
      return each<uint8_t>(tensor, [&] { return uint8_t(random.next()); });
    case BELAY_DT_BOOL:
      return each<uint8_t>(tensor, [&] { return uint8_t(random.next() & 1); });
    // Wider integers are mostly ids, lengths and indices: 0 and 1 are valid nearly everywhere.
    case BELAY_DT_INT16:
    case BELAY_DT_UINT16:
      return each<uint16_t>(tensor, [&] { return uint16_t(random.next() & 1); });
    case BELAY_DT_INT32:
    case BELAY_DT_UINT32:
      return each<uint32_t>(tensor, [&] { return uint32_t(random.next() & 1); });
    case BELAY_DT_INT64:
    case BELAY_DT_UINT64:
      return each<uint64_t>(tensor, [&] { return random.next() & 1; });
    case BELAY_DT_STRING:
      for (std::string& text : tensor.strings) text = std::string(1, char('a' + random.next() % 26));
      return;
    default:  // small formats may have bit patterns that are no number: they stay zero
      return;
  }
}

Status set_element(HostTensor& tensor, uint64_t index, std::string_view text) {
  const auto bad = [&](const char* want) -> Status {
    return {Code::kInvalidArgument, "'" + std::string(text) + "' is " + want + "."};
  };
  if (tensor.dtype == BELAY_DT_STRING) {
    tensor.strings[index] = std::string(text);
    return {};
  }
  if (text == "true") text = "1";
  if (text == "false") text = "0";
  const auto put = [&](auto value) {
    std::memcpy(tensor.bytes.data() + index * sizeof value, &value, sizeof value);
    return Status();
  };
  const auto integer = [&]<class T>(T) -> Status {
    const auto value = number_of<T>(text);
    return value ? put(*value) : bad("no integer that fits");
  };
  double real = 0;
  if (tensor.dtype == BELAY_DT_FLOAT32 || tensor.dtype == BELAY_DT_FLOAT64 ||
      tensor.dtype == BELAY_DT_FLOAT16 || tensor.dtype == BELAY_DT_BFLOAT16) {
    const auto value = number_of<double>(text);
    if (!value) return bad("no number");
    real = *value;
  }
  switch (tensor.dtype) {
    case BELAY_DT_FLOAT32:
      return put(float(real));
    case BELAY_DT_FLOAT64:
      return put(real);
    case BELAY_DT_FLOAT16:
      return put(to_half(float(real)));
    case BELAY_DT_BFLOAT16:
      return put(to_bfloat16(float(real)));
    case BELAY_DT_INT8:
      return integer(int8_t());
    case BELAY_DT_BOOL:
      if (text != "0" && text != "1") return bad("neither true nor false");
      return integer(uint8_t());
    case BELAY_DT_UINT8:
      return integer(uint8_t());
    case BELAY_DT_INT16:
      return integer(int16_t());
    case BELAY_DT_UINT16:
      return integer(uint16_t());
    case BELAY_DT_INT32:
      return integer(int32_t());
    case BELAY_DT_UINT32:
      return integer(uint32_t());
    case BELAY_DT_INT64:
      return integer(int64_t());
    case BELAY_DT_UINT64:
      return integer(uint64_t());
    default:
      return {Code::kUnimplemented,
              "Values of this element type cannot be written on the command line; use a file."};
  }
}

}  // namespace belay::cli
