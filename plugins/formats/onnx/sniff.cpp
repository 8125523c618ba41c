#include "sniff.hpp"

#include <belay/tensor_io/wire.hpp>

#include <algorithm>

namespace belay::onnx {
namespace {

// Wire type of each field of ModelProto, by number; -1: no such field.
int wire_type_of(uint64_t field) {
  switch (field) {
    case 1:
    case 5:
      return int(wire::kVarint);
    case 2:
    case 3:
    case 4:
    case 6:
    case 7:
    case 8:
    case 14:
    case 20:
    case 25:
    case 26:
      return int(wire::kBytes);
    default:
      return -1;
  }
}

bool take_varint(std::string_view& rest, uint64_t& value) {
  value = 0;
  for (size_t i = 0; i < rest.size() && i < 10; ++i) {
    value |= uint64_t(uint8_t(rest[i]) & 0x7f) << (7 * i);
    if (uint8_t(rest[i]) & 0x80) continue;
    rest.remove_prefix(i + 1);
    return true;
  }
  return false;
}

// A model begins with a control character; what a server says instead of a file does not.
bool is_text(std::string_view head) {
  return head.size() >= 8 && std::all_of(head.begin(), head.end(), [](char c) {
           return uint8_t(c) >= 0x20 || c == '\n' || c == '\r' || c == '\t';
         });
}

}  // namespace

uint32_t sniff(std::string_view file_name, std::string_view head, uint64_t file_bytes) {
  if (is_text(head)) return 0;
  const bool named = file_name.ends_with(".onnx");
  bool version = false, whole_graph = false, cut = false;
  uint32_t fields = 0;
  std::string_view rest = head;
  while (!rest.empty() && !cut) {
    uint64_t tag = 0, value = 0;
    if (!take_varint(rest, tag)) {
      cut = rest.size() < 10 && head.size() < file_bytes;  // the head ends inside it
      if (!cut) return named ? 1 : 0;
      break;
    }
    const int type = wire_type_of(tag >> 3);
    if (type < 0 || int(tag & 7) != type) return named ? 1 : 0;
    if (!take_varint(rest, value)) break;
    ++fields;
    if (tag >> 3 == 1) {
      if (value < 1 || value > 1000) return named ? 1 : 0;
      version = true;
    }
    if (type == int(wire::kBytes)) {
      const uint64_t left = file_bytes - uint64_t(rest.data() - head.data());
      if (tag >> 3 == 7) whole_graph = value <= left;
      cut = value > rest.size();
      rest.remove_prefix(cut ? rest.size() : size_t(value));
    }
  }
  if (!version) return named ? (fields > 0 ? 100 : 1) : (whole_graph && fields > 2 ? 50 : 0);
  return 500u + (whole_graph ? 400u : 0u) + (named ? 100u : 0u);
}

}  // namespace belay::onnx
