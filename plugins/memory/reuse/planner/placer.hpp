// planner/placer.hpp: places the buffers of an arena one after another in a given order.
#pragma once

#include "planner/arena.hpp"

#include <functional>

namespace belay::reuse {

struct Placement {
  std::vector<uint64_t> offsets;
  uint64_t peak = 0;
};

enum class Fit { kTightest, kLowest };  // gap that a buffer is put into

class Placer {
 public:
  explicit Placer(const Arena& arena);

  // Places all buffers, those of `light` after those of `order` and, where the peak allows, simply on top of
  // what lives with them. Gives up (peak UINT64_MAX) as soon as the peak reaches `limit`, or `stop` says so
  // while there is a limit: without one the caller has nothing yet. A gap is looked for among all that is
  // placed and meets the buffer, until that has cost `work` looks; from then on buffers go on top: so time is
  // bounded however many live at once.
  Placement run(const std::vector<uint32_t>& order, const std::vector<uint32_t>& light, Fit fit,
                uint64_t limit, uint64_t work, const std::function<bool()>& stop);

 private:
  struct Node {
    uint64_t from, to;     // offsets
    uint32_t first, last;  // moments
    uint32_t buffer, next;
  };
  struct Range {
    uint64_t from, to;
    bool operator<(const Range& other) const { return from < other.from; }
  };
  void put(uint32_t buffer, uint64_t offset, Placement& out);
  template <class See>
  void each_near(const Buffer& buffer, See&& see);
  void gather(uint32_t buffer, uint32_t but, const Placement& out);
  uint64_t in_gap(uint32_t buffer, Fit fit, const Placement& out);
  uint64_t on_top(uint32_t buffer, const Placement& out) const;
  // Of moments [first, last), at least one.
  uint64_t highest(uint32_t first, uint32_t last) const;
  void cover(uint32_t first, uint32_t last, uint64_t end);

  const Arena& arena_;
  std::vector<uint8_t> placed_;
  // What is placed. Where it is not much, sorted by offset and looked through for each buffer. Else by first
  // moment, in lists for 2^k moments each; a buffer is in the level of its length, so what meets a range is
  // in the lists that the range covers and in those just before it.
  std::vector<Node> nodes_;
  bool sorted_ = true;
  std::vector<std::vector<uint32_t>> levels_;  // head of each list
  // The end of what is placed highest at each moment: a segment tree; `end` of a node holds for its whole
  // range.
  struct Top {
    uint64_t end, highest;
  };
  std::vector<Top> tops_;
  uint32_t leaves_ = 1;
  std::vector<Range> taken_;  // by offset
  uint64_t looks_ = 0;
};

}  // namespace belay::reuse
