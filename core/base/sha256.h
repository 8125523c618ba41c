// core/base/sha256.h: the digest that pairs a manifest with its library.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace belay::core {

using Sha256 = std::array<uint8_t, 32>;

// SHA-256 (FIPS 180-4), in pieces of any size.
class Sha256Stream {
 public:
  void add(std::string_view bytes);
  Sha256 finish();  // once

 private:
  void block(const uint8_t* from);
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> rest_{};
  uint64_t bytes_ = 0;
};

Sha256 sha256(std::string_view bytes);
std::string hex(const Sha256& digest);

}  // namespace belay::core
