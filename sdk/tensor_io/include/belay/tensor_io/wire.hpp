// belay/tensor_io/wire.hpp: reads protobuf messages of unknown origin. Header-only, over protozero's varints.
// Nothing is copied: what it gives points into the message. protozero's own reader cuts lengths to 32 bits,
// so a length of 4 GiB + 4 would pass for 4; here lengths are 64-bit and are checked against what is left.
// Not thread-safe.
#pragma once

#include <belay/status.hpp>

#include <protozero/exception.hpp>
#include <protozero/varint.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace belay::wire {

static_assert(std::endian::native == std::endian::little, "fixed-width fields are copied as they are");

inline constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;  // wire types

// `text` for a message: what is not printable UTF-8 is escaped as \xHH, long text is cut.
std::string printable(std::string_view text);
// All of `text` as UTF-8: bytes that are none become \xHH, the rest stays.
std::string utf8(std::string_view text);

// The fields of one message in the order of the file:
//   wire::Message m(bytes, base, "NodeProto");
//   while (m.next()) switch (m.field()) { case 3: name = m.bytes(); break; }
//   BELAY_TRY(m.status());
// Damage, or a getter that does not fit the field's wire type, ends the loop; status() says where (an offset
// from `base`, the begin of the file) and what was expected. Fields that no getter asks for are skipped.
class Message {
 public:
  Message(std::string_view bytes, const char* base, const char* what)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()), base_(base), what_(what) {}

  bool next() {
    if (!status_.ok() || at_ == end_) return false;
    start_ = at_;
    uint64_t tag = 0;
    if (!varint(at_, end_, tag)) return damaged("a tag of at most 10 bytes");
    if (tag >> 32 || tag >> 3 == 0) return damaged("a field number of 1 to 2^29 - 1");
    field_ = uint32_t(tag >> 3);
    type_ = uint32_t(tag & 7);
    switch (type_) {
      case kVarint:
        if (!varint(at_, end_, value_)) return damaged("a varint of at most 10 bytes");
        return true;
      case kFixed64:
        return fixed(8);
      case kFixed32:
        return fixed(4);
      case kBytes: {
        uint64_t length = 0;
        if (!varint(at_, end_, length)) return damaged("a length of at most 10 bytes");
        if (length > uint64_t(end_ - at_))
          return damaged("a length of at most the " + std::to_string(end_ - at_) + " bytes left, found " +
                         std::to_string(length));
        data_ = {at_, size_t(length)};
        at_ += length;
        return true;
      }
      default:
        return damaged("a wire type of 0, 1, 2 or 5, found " + std::to_string(type_));
    }
  }

  uint32_t field() const { return field_; }
  uint32_t type() const { return type_; }
  const Status& status() const { return status_; }

  // The value of the current field.
  uint64_t number() { return want(kVarint, "a varint") ? value_ : 0; }
  std::string_view bytes() { return want(kBytes, "bytes") ? data_ : std::string_view(); }
  float float32() { return want(kFixed32, "four bytes") ? std::bit_cast<float>(uint32_t(value_)) : 0; }
  double float64() { return want(kFixed64, "eight bytes") ? std::bit_cast<double>(value_) : 0; }

  // Every number of a repeated field, packed or not.
  template <class Use>
  void numbers(Use&& use) {
    if (type_ != kBytes) {
      if (want(kVarint, "a varint or packed varints")) use(value_);
      return;
    }
    const char* at = data_.data();
    const char* const end = at + data_.size();
    for (uint64_t value = 0; at != end; use(value))
      if (!varint(at, end, value)) {
        damaged("packed varints of at most 10 bytes");
        return;
      }
  }
  template <class Use>
  void floats(Use&& use) {
    fixed_values<float>(kFixed32, use);
  }
  template <class Use>
  void doubles(Use&& use) {
    fixed_values<double>(kFixed64, use);
  }

 private:
  // decode_varint reports by exceptions; a bool is enough here.
  static bool varint(const char*& at, const char* end, uint64_t& value) {
    if (at != end && !(uint8_t(*at) & 0x80)) {
      value = uint8_t(*at++);
      return true;
    }
    try {
      value = protozero::decode_varint(&at, end);
      return true;
    } catch (const protozero::exception&) {
      return false;
    }
  }

  bool fixed(int width) {
    if (end_ - at_ < width) return damaged(std::to_string(width) + " bytes, found the end of the message");
    value_ = 0;
    std::memcpy(&value_, at_, size_t(width));
    at_ += width;
    return true;
  }

  template <class T, class Use>
  void fixed_values(uint32_t type, Use&& use) {
    if (type_ != kBytes) {
      if (!want(type, "fixed-width numbers")) return;
      T value;
      std::memcpy(&value, &value_, sizeof value);
      use(value);
      return;
    }
    if (data_.size() % sizeof(T) != 0) {
      damaged("packed numbers of " + std::to_string(sizeof(T)) + " bytes each, found " +
              std::to_string(data_.size()) + " bytes");
      return;
    }
    for (size_t i = 0; i < data_.size(); i += sizeof(T)) {
      T value;
      std::memcpy(&value, data_.data() + i, sizeof value);
      use(value);
    }
  }

  bool want(uint32_t type, const char* text) {
    if (type_ == type) return true;
    return damaged(std::string(text) + ", found wire type " + std::to_string(type_));
  }

  // Always false.
  bool damaged(const std::string& want) {
    if (status_.ok())
      status_ = {Code::kDataLoss,
                 std::string(what_) + " is damaged at byte " + std::to_string(start_ - base_) +
                     (field_ ? " in field " + std::to_string(field_) : "") + ": want " + want + "."};
    return false;
  }

  const char* at_;
  const char* end_;
  const char* base_;
  const char* what_;
  const char* start_ = nullptr;  // of the current field
  uint32_t field_ = 0, type_ = 0;
  uint64_t value_ = 0;
  std::string_view data_;
  Status status_;
};

// Appends fields to a message.
inline void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  out += char(value);
}
inline void put_number(std::string& out, uint32_t field, uint64_t value) {
  put_varint(out, uint64_t{field} << 3 | kVarint);
  put_varint(out, value);
}
inline void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_varint(out, uint64_t{field} << 3 | kBytes);
  put_varint(out, bytes.size());
  out.append(bytes);
}

}  // namespace belay::wire
