// What comes before what, over streams and events, and what no order keeps apart.
#pragma once

#include <belay/abi/driver.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace belay::validate {

// What the nodes of a program, or what was captured, do to the bindings of a launch.
struct Recorded {
  struct Use {
    uint64_t binding, begin, end;
    bool write;
    uint32_t node;
  };
  std::vector<std::string> nodes;
  std::vector<Use> uses;     // of each node
  std::vector<Use> coarse;   // the same bytes with neighbours joined: `node` is one of theirs
  std::vector<uint64_t> need;  // bytes that each binding must have
  void finish();             // makes `coarse` and `need` of `uses`
  // The node that uses such bytes of the binding.
  const std::string* node_of(uint64_t binding, uint64_t begin, uint64_t end, bool write) const;
};

// One range of a buffer that one operation touches.
struct Access {
  const belay_obj* object;
  uint64_t buffer;  // its number
  std::string buffer_name;
  uint64_t begin, end;
  bool write;
  const char* slot;
  std::shared_ptr<const Recorded> program = nullptr;  // of a launch
  std::string program_name = {};
  uint64_t binding = 0, binding_begin = 0;  // where binding-relative byte 0 is in the buffer
};

// Values that are reached before something, by timeline.
using Clock = std::map<uint64_t, uint64_t>;
using ClockPtr = std::shared_ptr<const Clock>;

// Two operations on bytes of one buffer, at least one of them writing, that nothing keeps apart.
struct Race {
  std::string key, text;
};

// Vector clocks by timeline. Where it cannot know an order (a timeline of the host's own, a past that is too long
// ago) it takes one for granted, so what it finds is none. Thread-safe.
class Order {
 public:
  void add_stream(uint64_t timeline, const std::string& name);
  void end_stream(uint64_t timeline);  // its work is done
  void end_buffer(uint64_t buffer);

  // A stream waits from the next operation on.
  void wait(uint64_t timeline, belay_event event);
  // What is reached before an operation that is queued now.
  ClockPtr now(uint64_t timeline);
  // The next operation's accesses against what is queued already.
  std::vector<Race> races(uint64_t timeline, uint64_t value, const std::vector<Access>& accesses,
                          const ClockPtr& clock);
  // It was queued; gives its races as well.
  std::vector<Race> queued(uint64_t timeline, uint64_t value, std::vector<Access> accesses, const ClockPtr& clock);
  // The host knows that it is reached (or has failed).
  void reached(uint64_t timeline, uint64_t value);

  // The last operation of each stream on the buffer that the host does not know to be reached.
  struct Pending {
    uint64_t timeline, value;
    std::string text;
  };
  std::vector<Pending> pending(uint64_t buffer);

 private:
  static constexpr size_t kPoints = 256, kAccesses = 2048;
  struct Stream {
    std::string name;
    uint64_t last = 0;
    ClockPtr clock = std::make_shared<Clock>();
    uint64_t host_seen = 0;                           // version of host_
    std::deque<std::pair<uint64_t, ClockPtr>> points = {};  // from this value on
  };
  struct Done {
    uint64_t timeline, value;
    ClockPtr clock;
    Access access;
  };
  ClockPtr joined(const Clock& one, const Clock& other) const;
  void set_clock(Stream& stream, ClockPtr clock);
  void refresh(Stream& stream);
  ClockPtr at(const Stream& stream, uint64_t value) const;
  bool reaches(const ClockPtr& clock, uint64_t timeline, uint64_t value) const;
  std::string describe(const Done& done, uint64_t begin, uint64_t end) const;
  void look(const Done& done, std::vector<Race>& races);

  std::mutex mutex_;
  std::unordered_map<uint64_t, Stream> streams_;  // by timeline
  ClockPtr host_ = std::make_shared<Clock>();
  uint64_t host_version_ = 0;
  std::unordered_map<uint64_t, std::deque<Done>> buffers_;
};

}  // namespace belay::validate
