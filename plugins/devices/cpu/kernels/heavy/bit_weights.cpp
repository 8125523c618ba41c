#include "bit_weights.hpp"

#include <algorithm>
#include <cstring>

namespace belay::cpu {
namespace {

float read_float(uint32_t dtype, const void* from, int64_t at) {
  float value = 0;
  dispatch<kF32 | kF16 | kBf16>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T raw;  // constants lie in files at any alignment
    std::memcpy(&raw, static_cast<const char*>(from) + at * int64_t(sizeof(T)), sizeof raw);
    value = Compute<T>::load(raw);
  });
  return value;
}

}  // namespace

bool BitWeights::set_groups(const int32_t* groups, int64_t& bad) {
  std::vector<std::vector<int32_t>> members(static_cast<size_t>(source_blocks));
  bool in_order = true;
  for (int64_t k = 0; k < rows; ++k) {
    int32_t group = 0;
    std::memcpy(&group, groups + k, sizeof group);
    if (group < 0 || group >= source_blocks) return bad = k, false;
    members[size_t(group)].push_back(int32_t(k));
    in_order = in_order && group == k / block;
  }
  row_of.clear(), block_of.clear();
  if (in_order) return true;
  for (size_t g = 0; g < members.size(); ++g)
    for (size_t i = 0; i < members[g].size(); i += size_t(block)) {
      block_of.push_back(int32_t(g));
      for (size_t k = i; k < i + size_t(block); ++k) row_of.push_back(k < members[g].size() ? members[g][k] : -1);
    }
  return true;
}

void BitWeights::pack(const BitSource& from, void* to) const {
  const int64_t each = 32 / bits, row_bytes = source_blocks * block * bits / 8, mask = (1 << bits) - 1;
  const int64_t zero_bytes = ceil_div(source_blocks * bits, 8);
  auto* words = static_cast<uint32_t*>(to);
  auto* scales = reinterpret_cast<float*>(static_cast<char*>(to) + scales_at());
  auto* packed_zeros = reinterpret_cast<uint8_t*>(static_cast<char*>(to) + zeros_at());
  auto* float_zeros = reinterpret_cast<float*>(static_cast<char*>(to) + float_zeros_at());
  const auto number = [&](const uint8_t* bytes, int64_t at) {
    return uint32_t(bytes[at * bits / 8] >> (at * bits % 8) & mask);
  };
  for (int64_t j0 = 0; j0 < panels() * kPanel; j0 += kPanel) {
    for (int64_t w = 0; w < blocks() * block_words(); ++w)
      for (int64_t j = j0; j < j0 + kPanel; ++j, ++words) {
        *words = 0;
        if (j >= columns) continue;
        const uint8_t* column = from.numbers + j * row_bytes;
        if (row_of.empty()) {
          for (int b = 0; b < 4; ++b) *words |= uint32_t{column[w * 4 + b]} << (8 * b);
        } else {
          for (int64_t i = 0; i < each; ++i)
            if (const int32_t k = row_of[size_t(w * each + i)]; k >= 0) *words |= number(column, k) << (i * bits);
        }
      }
    for (int64_t b = 0; b < blocks(); ++b)
      for (int64_t j = j0; j < j0 + kPanel; ++j) {
        const int64_t source = block_of.empty() ? b : block_of[size_t(b)], at = j * source_blocks + source;
        const bool there = j < columns;
        *scales++ = there ? read_float(dtype, from.scales, at) : 0;
        if (zeros == Zeros::kFloats) *float_zeros++ = there ? read_float(dtype, from.zeros, at) : 0;
        if (zeros == Zeros::kPacked)
          *packed_zeros++ =
              there ? uint8_t(number(static_cast<const uint8_t*>(from.zeros) + j * zero_bytes, source)) : uint8_t{0};
      }
  }
}

BitPanel BitWeights::panel(const void* packed, int64_t number) const {
  const auto* base = static_cast<const char*>(packed);
  const int64_t at = number * blocks() * kPanel;
  BitPanel out{bits, blocks(), block_words(), nullptr, nullptr, nullptr, nullptr};
  out.words = reinterpret_cast<const uint32_t*>(base) + at * block_words();
  out.scales = reinterpret_cast<const float*>(base + scales_at()) + at;
  if (zeros == Zeros::kPacked) out.zeros = reinterpret_cast<const uint8_t*>(base + zeros_at()) + at;
  if (zeros == Zeros::kFloats) out.float_zeros = reinterpret_cast<const float*>(base + float_zeros_at()) + at;
  return out;
}

}  // namespace belay::cpu
