// planner/placer.hpp: places the buffers of an arena one after another in a given order.
#pragma once

#include "planner/arena.hpp"
#include "planner/field.hpp"
#include "planner/tops.hpp"

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

  // Places the buffers of `order`. Gives up (peak UINT64_MAX) as soon as the peak reaches `limit`, or `stop`
  // says so while there is a limit: without one the caller has nothing yet, so the rest goes on top. A gap is
  // looked for among all that is placed and meets the buffer, until that has cost `work` looks; from then on
  // buffers go on top: so time is bounded however many live at once.
  Placement run(const std::vector<uint32_t>& order, Fit fit, uint64_t limit, uint64_t work,
                const std::function<bool()>& stop);

 private:
  using Node = Field::Node;  // offsets are scaled
  struct Range {
    uint64_t from, to;
    bool operator<(const Range& other) const { return from < other.from; }
  };
  void find_unit();
  uint64_t down(uint64_t offset) const { return scale_ == 1 ? offset : offset / scale_; }
  uint64_t up(uint64_t offset) const { return down(offset + scale_ - 1); }
  void put(uint32_t buffer, uint64_t offset, Placement& out);
  template <class See>
  void each_near(const Buffer& buffer, See&& see);
  template <class Take>
  void each_taken(uint32_t buffer, uint32_t but, const Placement& out, Take&& take);
  bool is_free(uint32_t buffer, uint64_t offset, uint32_t but, const Placement& out);
  uint64_t in_gap(uint32_t buffer, Fit fit, const Placement& out);
  uint64_t in_sorted(uint32_t buffer, Fit fit, const Placement& out);
  uint64_t in_units(uint32_t buffer, Fit fit, const Placement& out);
  uint64_t on_top(uint32_t buffer, const Placement& out) const;

  const Arena& arena_;
  std::vector<uint8_t> placed_;
  // What is placed. Where it is not much, sorted by offset and looked through for each buffer.
  std::vector<Node> nodes_;
  bool sorted_ = true;
  Field field_;
  Tops tops_;
  std::vector<Range> taken_;  // by offset
  // Where sizes and alignments have a common unit and there are not too many of them, what is taken are bits:
  // to set them is cheaper than to sort. 0: there is no such unit.
  uint64_t unit_ = 0, scale_ = 1;      // scale_: that which is in use
  std::vector<uint64_t> bits_, full_;  // full_: a bit for each word of bits_ that stands for one full of ones
  uint64_t looks_ = 0;
};

}  // namespace belay::reuse
