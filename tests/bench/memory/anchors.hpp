// Well-known rules of allocators, as simple as they can be written, to compare the pool with. All compute with offsets
// into ranges of a given capacity and touch no memory. place() gives a handle or kFull.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace belay::bench {

inline constexpr uint32_t kFull = UINT32_MAX;

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual uint32_t place(uint64_t bytes, uint32_t stream) = 0;
  virtual void release(uint32_t handle) = 0;
  virtual uint64_t reserved_peak() const = 0;  // of rules that grow; else the capacity
};

// Blocks linked by address.
template <class Node>
class Nodes {
 public:
  Node& operator[](uint32_t n) { return nodes_[n]; }
  const Node& operator[](uint32_t n) const { return nodes_[n]; }
  uint32_t make(const Node& node) {
    if (spare_.empty()) return nodes_.push_back(node), uint32_t(nodes_.size() - 1);
    const uint32_t n = spare_.back();
    spare_.pop_back();
    nodes_[n] = node;
    return n;
  }
  void join(uint32_t low, uint32_t high) {
    nodes_[low].size += nodes_[high].size;
    nodes_[low].after = nodes_[high].after;
    if (nodes_[low].after != kFull) nodes_[nodes_[low].after].before = low;
    drop(high);
  }
  void drop(uint32_t n) { spare_.push_back(n); }

 private:
  std::vector<Node> nodes_;
  std::vector<uint32_t> spare_;
};

// Free ranges in bins, a bit for each bin; blocks linked by address and merged at once. `exponent_bits` of sub-classes
// for each power of two. A search begins at the bin all of whose ranges are large enough.
template <uint32_t sub_bits>
class Binned final : public Allocator {
 public:
  explicit Binned(uint64_t capacity) : capacity_(capacity) {
    heads_.fill(kFull);
    link(nodes_.make({0, capacity / kGranule, kFull, kFull, kFull, kFull, false}));
  }
  uint32_t place(uint64_t bytes, uint32_t) override {
    const uint64_t size = std::max<uint64_t>(1, (bytes + kGranule - 1) / kGranule);
    const uint32_t bin = next_bin(bin_above(size));
    if (bin == kFull) return kFull;
    const uint32_t n = heads_[bin];
    unlink(n);
    if (nodes_[n].size > size) {
      const uint32_t rest = nodes_.make({nodes_[n].begin + size, nodes_[n].size - size, n, nodes_[n].after, kFull, kFull, false});
      if (nodes_[n].after != kFull) nodes_[nodes_[n].after].before = rest;
      nodes_[n].after = rest;
      nodes_[n].size = size;
      link(rest);
    }
    nodes_[n].used = true;
    return n;
  }
  void release(uint32_t n) override {
    nodes_[n].used = false;
    if (const uint32_t low = nodes_[n].before; low != kFull && !nodes_[low].used) {
      unlink(low);
      nodes_.join(low, n);
      n = low;
    }
    if (const uint32_t high = nodes_[n].after; high != kFull && !nodes_[high].used) {
      unlink(high);
      nodes_.join(n, high);
    }
    link(n);
  }
  uint64_t reserved_peak() const override { return capacity_; }
  uint64_t bytes(uint32_t n) const { return nodes_[n].size * kGranule; }

 private:
  static constexpr uint64_t kGranule = 256;
  static constexpr uint32_t kBins = 64 << sub_bits;
  struct Node {
    uint64_t begin, size;
    uint32_t before, after, left, right;
    bool used;
  };
  static uint32_t bin_below(uint64_t size) {
    if (size < 1u << sub_bits) return uint32_t(size);
    const auto top = uint32_t(63 - std::countl_zero(size));
    return ((top - sub_bits + 1) << sub_bits) + uint32_t(size >> (top - sub_bits) & ((1u << sub_bits) - 1));
  }
  static uint32_t bin_above(uint64_t size) {
    if (size < 1u << sub_bits) return uint32_t(size);
    const auto top = uint32_t(63 - std::countl_zero(size));
    return bin_below(size + (uint64_t{1} << (top - sub_bits)) - 1);
  }
  uint32_t next_bin(uint32_t bin) const {
    for (uint32_t word = bin / 64; word < bits_.size(); ++word) {
      uint64_t bits = bits_[word];
      if (word == bin / 64) bits &= ~uint64_t{0} << bin % 64;
      if (bits) return word * 64 + uint32_t(std::countr_zero(bits));
    }
    return kFull;
  }
  void link(uint32_t n) {
    const uint32_t bin = bin_below(nodes_[n].size);
    nodes_[n].left = kFull;
    nodes_[n].right = std::exchange(heads_[bin], n);
    if (nodes_[n].right != kFull) nodes_[nodes_[n].right].left = n;
    bits_[bin / 64] |= uint64_t{1} << bin % 64;
  }
  void unlink(uint32_t n) {
    const Node& x = nodes_[n];
    if (x.right != kFull) nodes_[x.right].left = x.left;
    if (x.left != kFull) {
      nodes_[x.left].right = x.right;
    } else {
      const uint32_t bin = bin_below(x.size);
      heads_[bin] = x.right;
      if (x.right == kFull) bits_[bin / 64] &= ~(uint64_t{1} << bin % 64);
    }
  }
  const uint64_t capacity_;
  Nodes<Node> nodes_;
  std::array<uint32_t, kBins> heads_;
  std::array<uint64_t, kBins / 64> bits_{};
};

using OffsetBins = Binned<3>;  // eight bins for each power of two
using TwoLevel = Binned<5>;    // two-level segregated fit, 32 classes for each

// What is released is kept by its size, rounded up to eight for each power of two; emptied where nothing else is left.
class CachedBins final : public Allocator {
 public:
  explicit CachedBins(uint64_t capacity) : below_(capacity) {}
  uint32_t place(uint64_t bytes, uint32_t stream) override {
    uint64_t size = std::max<uint64_t>(bytes, 256);
    const uint64_t step = std::max<uint64_t>(256, std::bit_floor(size) / 8);
    size = (size + step - 1) / step * step;
    std::vector<uint32_t>& kept = kept_[class_of(size)];
    if (!kept.empty()) {
      const uint32_t n = kept.back();
      kept.pop_back();
      return n;
    }
    uint32_t n = below_.place(size, stream);
    if (n == kFull) {
      for (auto& list : kept_) {
        for (const uint32_t old : list) below_.release(old);
        list.clear();
      }
      n = below_.place(size, stream);
    }
    return n;
  }
  void release(uint32_t n) override { kept_[class_of(below_.bytes(n))].push_back(n); }
  uint64_t reserved_peak() const override { return below_.reserved_peak(); }

 private:
  static size_t class_of(uint64_t size) {
    const auto top = uint32_t(63 - std::countl_zero(size));
    return top * 8 + (size >> (top - 3) & 7);
  }
  OffsetBins below_;
  std::array<std::vector<uint32_t>, 512> kept_;
};

// The smallest range that fits, the lowest of equals: one tree by size, one by address.
class BestFit final : public Allocator {
 public:
  explicit BestFit(uint64_t capacity) : capacity_(capacity) { add(0, capacity); }
  uint32_t place(uint64_t bytes, uint32_t) override {
    const uint64_t size = std::max<uint64_t>(256, (bytes + 255) / 256 * 256);
    const auto at = by_size_.lower_bound({size, 0});
    if (at == by_size_.end()) return kFull;
    const auto [room, begin] = *at;
    by_size_.erase(at);
    by_address_.erase(begin);
    if (room > size) add(begin + size, room - size);
    uint32_t handle = uint32_t(blocks_.size());
    if (spare_.empty()) {
      blocks_.emplace_back();
    } else {
      handle = spare_.back();
      spare_.pop_back();
    }
    blocks_[handle] = {begin, size};
    return handle;
  }
  void release(uint32_t handle) override {
    auto [begin, size] = blocks_[handle];
    spare_.push_back(handle);
    auto next = by_address_.lower_bound(begin);
    if (next != by_address_.end() && next->first == begin + size) {
      size += next->second;
      by_size_.erase({next->second, next->first});
      next = by_address_.erase(next);
    }
    if (next != by_address_.begin())
      if (const auto low = std::prev(next); low->first + low->second == begin) {
        begin = low->first;
        size += low->second;
        by_size_.erase({low->second, low->first});
        by_address_.erase(low);
      }
    add(begin, size);
  }
  uint64_t reserved_peak() const override { return capacity_; }

 private:
  void add(uint64_t begin, uint64_t size) {
    by_size_.emplace(size, begin);
    by_address_.emplace(begin, size);
  }
  const uint64_t capacity_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
  std::map<uint64_t, uint64_t> by_address_;
  std::vector<std::pair<uint64_t, uint64_t>> blocks_;
  std::vector<uint32_t> spare_;
};

// Regions that are asked for as needed, blocks split and merged inside each, free blocks in ordered sets: what the two
// below have in common.
class Regions : public Allocator {
 public:
  explicit Regions(uint64_t capacity) : capacity_(capacity) {}
  void release(uint32_t n) override {
    nodes_[n].used = false;
    if (const uint32_t low = nodes_[n].before; low != kFull && !nodes_[low].used) {
      set_of(low).erase({nodes_[low].size, low});
      nodes_.join(low, n);
      n = low;
    }
    if (const uint32_t high = nodes_[n].after; high != kFull && !nodes_[high].used) {
      set_of(high).erase({nodes_[high].size, high});
      nodes_.join(n, high);
    }
    set_of(n).insert({nodes_[n].size, n});
  }
  uint64_t reserved_peak() const override { return peak_; }

 protected:
  struct Node {
    uint64_t size;
    uint32_t before, after, pool;
    bool used;
  };
  using FreeSet = std::set<std::pair<uint64_t, uint32_t>>;
  virtual FreeSet& set_of(uint32_t n) = 0;

  uint32_t grow(uint64_t bytes, uint32_t pool) {
    if (bytes > capacity_ - std::min(reserved_, capacity_)) return kFull;
    reserved_ += bytes;
    peak_ = std::max(peak_, reserved_);
    return nodes_.make({bytes, kFull, kFull, pool, false});
  }
  uint32_t use(uint32_t n, uint64_t size, bool split) {
    if (split) {
      const uint32_t rest = nodes_.make({nodes_[n].size - size, n, nodes_[n].after, nodes_[n].pool, false});
      if (nodes_[n].after != kFull) nodes_[nodes_[n].after].before = rest;
      nodes_[n].after = rest;
      nodes_[n].size = size;
      set_of(rest).insert({nodes_[rest].size, rest});
    }
    nodes_[n].used = true;
    return n;
  }
  const uint64_t capacity_;
  uint64_t reserved_ = 0, peak_ = 0;
  Nodes<Node> nodes_;
};

// PyTorch's rules: a small and a large pool for each stream; what is empty goes back where nothing is left.
class PerStream final : public Regions {
 public:
  using Regions::Regions;
  uint32_t place(uint64_t bytes, uint32_t stream) override {
    const uint64_t size = std::max<uint64_t>(512, (bytes + 511) / 512 * 512);
    const bool small = size <= 1 << 20;
    const uint32_t pool = stream * 2 + small;
    if (pool >= pools_.size()) pools_.resize(pool + 1);
    uint32_t n;
    if (const auto at = pools_[pool].lower_bound({size, 0}); at != pools_[pool].end()) {
      n = at->second;
      pools_[pool].erase(at);
    } else {
      const uint64_t region = small ? 2 << 20 : size < 10 << 20 ? 20 << 20 : (size + (2 << 20) - 1) / (2 << 20) * (2 << 20);
      n = grow(region, pool);
      if (n == kFull) {
        give_back();
        n = grow(region, pool);
      }
      if (n == kFull) return kFull;
    }
    const uint64_t rest = nodes_[n].size - size;
    return use(n, size, small ? rest >= 512 : rest > 1 << 20);
  }

 private:
  FreeSet& set_of(uint32_t n) override { return pools_[nodes_[n].pool]; }
  void give_back() {
    for (FreeSet& pool : pools_)
      for (auto at = pool.begin(); at != pool.end();) {
        const uint32_t n = at->second;
        if (nodes_[n].before != kFull || nodes_[n].after != kFull) {
          ++at;
          continue;
        }
        reserved_ -= nodes_[n].size;
        nodes_.drop(n);
        at = pool.erase(at);
      }
  }
  std::vector<FreeSet> pools_;
};

// The rules of ONNX Runtime's arena: bins for each power of two, regions that double, split where half would be lost.
class DoublingBins final : public Regions {
 public:
  using Regions::Regions;
  uint32_t place(uint64_t bytes, uint32_t) override {
    const uint64_t size = std::max<uint64_t>(256, (bytes + 255) / 256 * 256);
    uint32_t n = find(size);
    if (n == kFull) {
      while (next_ < size) next_ *= 2;
      n = grow(next_, 0);
      if (n != kFull)
        next_ *= 2;
      else if ((n = grow(size, 0)) == kFull)
        return kFull;
    }
    const uint64_t rest = nodes_[n].size - size;
    return use(n, size, nodes_[n].size >= 2 * size || rest >= 128 << 20);
  }

 private:
  static size_t bin_of(uint64_t size) { return std::min<size_t>(20, size_t(63 - std::countl_zero(size / 256))); }
  FreeSet& set_of(uint32_t n) override { return bins_[bin_of(nodes_[n].size)]; }
  uint32_t find(uint64_t size) {
    for (size_t bin = bin_of(size); bin < bins_.size(); ++bin)
      if (const auto at = bins_[bin].lower_bound({size, 0}); at != bins_[bin].end()) {
        const uint32_t n = at->second;
        bins_[bin].erase(at);
        return n;
      }
    return kFull;
  }
  std::array<FreeSet, 21> bins_;
  uint64_t next_ = 1 << 20;
};

}  // namespace belay::bench
