// belay/graph/string_table.hpp: the bytes of a string constant (abi/graph.h): count + 1 offsets of 64 bits,
// then the text. Header-only.
#pragma once

#include <belay/abi/base.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace belay::graph {

inline uint64_t string_offset(belay_span table, uint64_t index) {
  uint64_t offset = 0;
  std::memcpy(&offset, static_cast<const char*>(table.ptr) + index * sizeof offset, sizeof offset);
  return offset;
}

// True when `table` holds exactly `count` strings: its offsets begin at 0, never fall and end at the end of
// the text.
inline bool is_string_table(belay_span table, uint64_t count) {
  if (count >= table.len / sizeof(uint64_t)) return false;
  const uint64_t text = table.len - (count + 1) * sizeof(uint64_t);
  uint64_t last = 0;
  for (uint64_t i = 0; i <= count; ++i) {
    const uint64_t offset = string_offset(table, i);
    if (i == 0 ? offset != 0 : offset < last) return false;
    last = offset;
  }
  return last == text;
}

// Element `index` of a table that is_string_table(table, count); valid as long as the table.
inline std::string_view string_element(belay_span table, uint64_t count, uint64_t index) {
  const char* text = static_cast<const char*>(table.ptr) + (count + 1) * sizeof(uint64_t);
  const uint64_t from = string_offset(table, index);
  return {text + from, string_offset(table, index + 1) - from};
}

}  // namespace belay::graph
