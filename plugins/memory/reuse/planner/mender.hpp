// planner/mender.hpp: makes a placement lower by moving the few buffers that reach too high.
#pragma once

#include "planner/arena.hpp"
#include "planner/field.hpp"
#include "planner/placer.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

namespace belay::reuse {

// Most of a good placement is as low as it must be: of 100,000 buffers perhaps 200 end above the height that
// is wanted. Each is taken out and put where it displaces least, which then looks for another place itself;
// the more often a buffer was displaced, the harder it is to displace.
class Mender {
 public:
  using Stop = std::function<bool()>;

  // `placed`: the buffers that have a place in `start`.
  Mender(const Arena& arena, Placement start, const std::vector<uint32_t>& placed);

  // Brings the peak down as far as `goal`; ends where that takes more than `looks` at pairs of buffers, no
  // longer helps, or `stop` says so.
  void lower(uint64_t goal, uint64_t looks, const Stop& stop);
  // Places more buffers, small and short ones: below the peak where that takes no more than `looks`.
  void add(const std::vector<uint32_t>& more, uint64_t looks, const Stop& stop);

  const Placement& placement() const { return out_; }

 private:
  // What is displaced at an offset, and how much that changes at another.
  struct Load {
    double weight;
    int64_t count;
    Load operator-() const { return {-weight, -count}; }
    void operator+=(const Load& other) {
      weight += other.weight;
      count += other.count;
    }
  };
  struct Bucket {
    float more, less;    // weight
    int64_t begin, end;  // count
    bool wanted;
    Load change() const { return {double(more) + double(less), begin + end}; }
  };
  struct Event {
    uint64_t at;
    Load change;
  };
  struct Move {
    uint32_t buffer;
    uint64_t offset;  // before it
  };
  struct Range {
    uint64_t from, to;
  };

  uint64_t end_of(uint32_t buffer) const { return out_.offsets[buffer] + arena_.buffers[buffer].bytes; }
  float first_weight(uint32_t buffer) const;
  void put(uint32_t buffer, uint64_t offset);
  void take(uint32_t buffer);
  void displace(uint32_t buffer);
  void find_near(uint32_t buffer);
  void find_peak();
  std::optional<uint64_t> over_partner(uint32_t buffer, uint64_t height) const;
  std::optional<uint64_t> best_place(uint32_t buffer, uint64_t height);
  uint64_t lowest_free(uint32_t buffer);
  bool place_queued(uint64_t height, uint64_t most, const Stop& stop);
  bool lower_to(uint64_t height, uint64_t most, const Stop& stop);
  std::vector<uint32_t> add_in_blocks(const std::vector<uint32_t>& more, uint32_t bits, uint64_t most);
  void add_each(const std::vector<uint32_t>& more, uint64_t most, const Stop& stop);
  bool add_in_gap(uint32_t buffer);

  const Arena& arena_;
  Placement out_;
  std::vector<uint32_t> all_;  // buffers that have bytes and, but for those in the queue, a place
  std::vector<uint8_t> placed_;
  std::vector<float> weights_;
  Field field_;
  uint64_t looks_ = 0;
  uint64_t least_ = 0;                                                   // that the peak can be
  std::priority_queue<std::tuple<uint64_t, uint64_t, uint32_t>> queue_;  // bytes, life, buffer
  std::vector<Move> moves_;

  std::vector<Field::Node> near_;  // scratch
  std::vector<Bucket> buckets_;
  std::vector<Event> events_, starts_;
  std::vector<Range> taken_, gaps_;
  std::vector<Field::Node> added_;
};

}  // namespace belay::reuse
