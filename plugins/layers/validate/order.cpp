#include "order.hpp"

#include <algorithm>
#include <tuple>

namespace belay::validate {

void Recorded::finish() {
  coarse = uses;
  std::sort(coarse.begin(), coarse.end(), [](const Use& a, const Use& b) {
    return std::tie(a.binding, a.write, a.begin, a.end) < std::tie(b.binding, b.write, b.begin, b.end);
  });
  size_t kept = 0;
  for (const Use& use : coarse) {
    Use* const last = kept ? &coarse[kept - 1] : nullptr;
    if (last && last->binding == use.binding && last->write == use.write && use.begin <= last->end)
      last->end = std::max(last->end, use.end);
    else
      coarse[kept++] = use;
  }
  coarse.resize(kept);
  for (const Use& use : coarse) {
    if (use.binding >= need.size()) need.resize(use.binding + 1);
    need[use.binding] = std::max(need[use.binding], use.end);
  }
}

const std::string* Recorded::node_of(uint64_t binding, uint64_t begin, uint64_t end, bool write) const {
  for (const Use& use : uses)
    if (use.binding == binding && use.write == write && use.begin < end && begin < use.end) return &nodes[use.node];
  return nullptr;
}

void Order::add_stream(uint64_t timeline, const std::string& name) {
  const std::lock_guard lock(mutex_);
  Stream& stream = streams_[timeline] = Stream{name};
  stream.points.emplace_back(0, stream.clock);
  refresh(stream);
}

void Order::end_stream(uint64_t timeline) {
  const std::lock_guard lock(mutex_);
  const auto at = streams_.find(timeline);
  if (at == streams_.end()) return;
  host_ = joined(*host_, *at->second.clock);
  streams_.erase(at);
  ++host_version_;
}

void Order::end_buffer(uint64_t buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(buffer);
}

// Timelines that have ended are left out: all of them is reached.
ClockPtr Order::joined(const Clock& one, const Clock& other) const {
  auto made = std::make_shared<Clock>();
  for (const Clock* each : {&one, &other})
    for (const auto& [timeline, value] : *each)
      if (streams_.contains(timeline)) {
        uint64_t& mine = (*made)[timeline];
        mine = std::max(mine, value);
      }
  return made;
}

void Order::set_clock(Stream& stream, ClockPtr clock) {
  stream.clock = std::move(clock);
  if (!stream.points.empty() && stream.points.back().first == stream.last + 1)
    stream.points.back().second = stream.clock;
  else
    stream.points.emplace_back(stream.last + 1, stream.clock);
  if (stream.points.size() > kPoints) stream.points.pop_front();
}

void Order::refresh(Stream& stream) {
  if (stream.host_seen == host_version_) return;
  stream.host_seen = host_version_;
  set_clock(stream, joined(*stream.clock, *host_));
}

// Before the first point that is kept more may be taken for reached than is.
ClockPtr Order::at(const Stream& stream, uint64_t value) const {
  ClockPtr found = stream.points.front().second;
  for (const auto& [from, clock] : stream.points) {
    if (from > value) break;
    found = clock;
  }
  return found;
}

bool Order::reaches(const ClockPtr& clock, uint64_t timeline, uint64_t value) const {
  if (!streams_.contains(timeline)) return true;
  const auto at = clock->find(timeline);
  return at != clock->end() && at->second >= value;
}

void Order::wait(uint64_t timeline, belay_event event) {
  const std::lock_guard lock(mutex_);
  const auto waiting = streams_.find(timeline);
  if (waiting == streams_.end() || event.timeline == timeline || event.timeline == 0) return;
  Clock what;
  if (const auto source = streams_.find(event.timeline); source != streams_.end()) {
    what = *at(source->second, event.value);
    uint64_t& value = what[event.timeline];
    value = std::max(value, event.value);
  } else {
    // The host signals such a timeline, after work that may be anything that is queued.
    for (const auto& [other, stream] : streams_) what[other] = stream.last;
  }
  set_clock(waiting->second, joined(*waiting->second.clock, what));
}

ClockPtr Order::now(uint64_t timeline) {
  const std::lock_guard lock(mutex_);
  const auto at = streams_.find(timeline);
  if (at == streams_.end()) return nullptr;
  refresh(at->second);
  return at->second.clock;
}

std::string Order::describe(const Done& done, uint64_t begin, uint64_t end) const {
  const Access& access = done.access;
  const auto stream = streams_.find(done.timeline);
  std::string what = access.slot;
  if (access.program) {
    const std::string* const node =
        access.program->node_of(access.binding, begin - access.binding_begin, end - access.binding_begin, access.write);
    what = (node && !node->empty() ? "node '" + *node + "' of " : "launch of ") + access.program_name;
  }
  return "operation " + std::to_string(done.value) + " of " +
         (stream == streams_.end() ? "a stream" : stream->second.name) + " (" + what + ")";
}

void Order::look(const Done& done, std::vector<Race>& races) {
  const auto list = buffers_.find(done.access.buffer);
  if (list == buffers_.end()) return;
  for (const Done& other : list->second) {
    if (other.timeline == done.timeline || !(other.access.write || done.access.write)) continue;
    const uint64_t begin = std::max(other.access.begin, done.access.begin),
                   end = std::min(other.access.end, done.access.end);
    if (begin >= end || reaches(done.clock, other.timeline, other.value) ||
        reaches(other.clock, done.timeline, done.value))
      continue;
    const std::string& mine = streams_.at(done.timeline).name;
    const auto verb = [](const Done& each) { return each.access.write ? " writes " : " reads "; };
    const std::string bytes = "bytes " + std::to_string(begin) + " to " + std::to_string(end) + " of " + done.access.buffer_name;
    races.push_back({mine + "/" + streams_.at(other.timeline).name + "/" + done.access.slot + "/" + other.access.slot + "/" +
                         done.access.buffer_name,
                     describe(done, begin, end) + verb(done) + bytes + " and " + describe(other, begin, end) +
                         verb(other) + "them, with no order between the two: let " + mine + " wait for event " +
                         std::to_string(other.timeline) + ":" + std::to_string(other.value) + " before"});
    return;
  }
}

std::vector<Race> Order::races(uint64_t timeline, uint64_t value, const std::vector<Access>& accesses,
                               const ClockPtr& clock) {
  const std::lock_guard lock(mutex_);
  std::vector<Race> found;
  if (!clock || !streams_.contains(timeline)) return found;
  for (const Access& access : accesses) look({timeline, value, clock, access}, found);
  return found;
}

std::vector<Race> Order::queued(uint64_t timeline, uint64_t value, std::vector<Access> accesses, const ClockPtr& clock) {
  const std::lock_guard lock(mutex_);
  std::vector<Race> found;
  const auto at = streams_.find(timeline);
  if (!clock || at == streams_.end()) return found;
  at->second.last = std::max(at->second.last, value);
  for (Access& access : accesses) {
    if (access.begin == access.end) continue;
    Done done{timeline, value, clock, std::move(access)};
    look(done, found);
    std::deque<Done>& list = buffers_[done.access.buffer];
    // What is queued from now on comes after what is reached; and whatever is kept apart from this operation is
    // kept apart from those before it that it covers.
    std::erase_if(list, [&](const Done& old) {
      if (reaches(host_, old.timeline, old.value)) return true;
      const bool before = old.timeline == timeline ? old.value < value : reaches(clock, old.timeline, old.value);
      return before && done.access.begin <= old.access.begin && old.access.end <= done.access.end &&
             (done.access.write || !old.access.write);
    });
    list.push_back(std::move(done));
    if (list.size() > kAccesses) list.pop_front();
  }
  return found;
}

void Order::reached(uint64_t timeline, uint64_t value) {
  const std::lock_guard lock(mutex_);
  const auto source = streams_.find(timeline);
  if (source == streams_.end() || reaches(host_, timeline, value)) return;
  Clock what = *at(source->second, value);
  what[timeline] = value;
  host_ = joined(*host_, what);
  ++host_version_;
}

std::vector<Order::Pending> Order::pending(uint64_t buffer) {
  const std::lock_guard lock(mutex_);
  std::map<uint64_t, Pending> last;
  if (const auto list = buffers_.find(buffer); list != buffers_.end())
    for (const Done& done : list->second)
      if (!reaches(host_, done.timeline, done.value) && last[done.timeline].value <= done.value)
        last[done.timeline] = {done.timeline, done.value, describe(done, done.access.begin, done.access.end)};
  std::vector<Pending> all;
  for (auto& [timeline, each] : last) all.push_back(std::move(each));
  return all;
}

}  // namespace belay::validate
