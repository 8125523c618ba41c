// planner/skyline.hpp: exact search for a placement within a capacity.
//
// Time is cut into sections: the largest sets of buffers that live at once. Over the sections the placed
// buffers form a skyline that only rises: a buffer is put down on it where it is the lowest that is still
// to come in one section, so each section is a stack without gaps but for those that are decided to stay
// empty. What is still to come in a section has a lowest offset each, as jobs of one machine have release
// dates, and the capacity is their common deadline: the section's shortest makespan, and jobs that must come
// before others, prune and lift (Carlier and Pinson 1989, An algorithm for solving the job-shop problem).
// Parts that no buffer joins any more are solved one by one; what failed once is not tried again; sections
// that failed often come first (Boussemart et al. 2004, Boosting systematic search by weighting
// constraints).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace belay::reuse {

struct SpanBuffer {
  std::vector<std::pair<int32_t, int32_t>>
      spans;         // lives in sections [first, second), at least one; in order
  int32_t size = 0;  // more than 0, in units
};

class Skyline {
 public:
  enum class Outcome { kFound, kNone, kStopped };

  // All sections together must hold less than 2^30 units at once. `sections`: each holds a buffer.
  Skyline(const std::vector<SpanBuffer>& buffers, int32_t sections, uint64_t seed);

  // Looks for a placement with no end above `capacity` through at most `nodes` decisions. A way of choosing
  // is drawn anew at each call, but for one after success: what was good for one capacity is for a lower one,
  // too. What earlier calls learned is kept. kNone: there is no such placement.
  Outcome attempt(int32_t capacity, uint64_t nodes, const std::function<bool()>& stop);
  // What all calls have cost, in looks at buffers.
  uint64_t work() const { return work_; }
  // After kFound: the offset of each buffer, in units.
  const std::vector<int32_t>& offsets() const { return offset_; }

 private:
  // A list of buffers that are to be placed on their own; `frame` made the choice that led to it.
  struct Part {
    uint32_t first, count;
    int32_t frame;
    int32_t next;  // part to do after it, or -1
  };
  // A decision: which buffer is the lowest in `section`, or none at this height.
  struct Frame {
    size_t trail, members, parts;       // sizes to return to
    size_t choices, choices_end, next;  // in choices_; at the end: none of them, then nothing
    uint32_t first, count;              // its members
    int32_t rest;                       // parts to do after it
    int32_t parent;                     // frame whose choice led to it, or -1
    int32_t section, height;
    uint64_t key;
  };
  struct Undo {
    int32_t* where;
    int32_t old;
  };

  // How buffers and sections are chosen: exponents and factors.
  struct Way {
    double size, length, slack, height, noise;
    bool weigh_sections;
  };
  void draw();
  void restart(int32_t capacity);
  void set(int32_t& where, int32_t value) {
    trail_.push_back({&where, where});
    where = value;
  }
  void undo(size_t mark);
  void touch(int32_t section) {
    if (touched_mark_[size_t(section)]) return;
    touched_mark_[size_t(section)] = 1;
    touched_.push_back(section);
  }
  std::span<const int32_t> still_open(int32_t section) const {
    return {&at_[at_first_[size_t(section)]], size_t(open_[size_t(section)])};
  }
  std::span<const int32_t> sections_of(int32_t buffer) const {
    return {&sections_of_[places_first_[size_t(buffer)]],
            &sections_of_[0] + places_first_[size_t(buffer) + 1]};
  }
  uint32_t& place_of(int32_t buffer, int32_t section);
  bool lies_flat(int32_t buffer) const;
  void take_out(int32_t buffer, int32_t section);
  void blame(int32_t section);
  bool waste(int32_t section, int32_t amount);
  void lift(int32_t buffer, int32_t to);
  void count_candidates(int32_t section);
  bool check_section(int32_t section);
  bool settle();
  bool place(int32_t buffer);
  bool raise(int32_t section, int32_t to);
  bool raise_to_support(const Frame& frame);
  uint64_t key_of(const Frame& frame) const;
  int32_t choose_section(const Frame& frame);
  void collect_choices(const Frame& frame);
  bool open(const Part& part);
  int32_t split(uint32_t first, uint32_t count, int32_t frame, int32_t rest);
  int32_t choose(int32_t at);
  void forget_touched();

  std::vector<int32_t> size_, first_,
      last_;  // of each buffer: the last two with all its sections between them
  const int32_t sections_;
  bool gaps_ = false;  // some buffer has sections between its first and last in which it does not live
  std::vector<uint32_t> at_first_;  // of each section, in at_
  std::vector<int32_t> at_;         // buffers of each section, those that are to come first
  // Of each buffer its sections, and for each of them where it is in at_.
  std::vector<uint32_t> places_first_, place_in_at_;
  std::vector<int32_t> sections_of_;
  std::vector<int32_t> by_start_;  // all buffers in the order of their first section

  // The state, which `trail_` undoes. Of a section: where what comes next can begin at the lowest, where
  // what is placed ends, how much may stay empty, how many buffers can begin at `floor`, how many are to
  // come. Of a buffer: its lowest offset, where what is placed beneath it ends, whether it is placed.
  std::vector<int32_t> floor_, top_, slack_, candidates_, open_;
  std::vector<int32_t> lowest_, support_, placed_;
  std::vector<Undo> trail_;
  std::vector<int32_t> offset_;

  std::vector<int32_t> members_, choices_;
  std::vector<Part> parts_;
  std::vector<Frame> frames_;
  std::vector<int32_t> dry_;      // sections that may have no candidate left
  std::vector<int32_t> touched_;  // sections to check
  std::vector<uint8_t> touched_mark_;
  std::vector<uint8_t> counted_later_;  // sections whose candidates are counted when all have been lifted
  std::vector<uint64_t> late_;          // scratch of check_section: lowest offset << 32 | buffer
  std::vector<int32_t> early_, lifted_;
  std::vector<int32_t> plateau_end_, flat_, supported_;  // scratch of choose_section

  int32_t capacity_ = 0;
  uint64_t nodes_ = 0, work_ = 0;  // decisions of all calls, and what they cost
  std::mt19937_64 random_;
  std::vector<double> score_, buffer_weight_, section_weight_;
  double weight_step_ = 1;
  Way way_{};
  std::optional<Way> good_;  // the latest that led to a placement
  bool found_ = false;       // by the call before
  std::vector<uint64_t> buffer_key_, section_key_;
  std::vector<uint64_t> bad_;  // keys of states that have no placement
};

}  // namespace belay::reuse
