// A plan request of any bytes: a refusal, or an answer in which the checker finds nothing wrong.
#include <plan_checker.hpp>
#include <planner/planner.hpp>

#include <cstdio>
#include <cstdlib>

namespace {

using belay::testing::PlanProblem;

// Numbers out of the bytes; 0 when there are no more.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
  uint64_t next(uint64_t below) { return at_ < end_ ? *at_++ % below : 0; }
  bool empty() const { return at_ == end_; }

 private:
  const uint8_t *at_, *end_;
};

PlanProblem problem_of(Bytes bytes) {
  PlanProblem problem{
      .arenas = 1 + bytes.next(3), .budget_ns = bytes.next(2) * 300'000, .seed = bytes.next(256)};
  const uint64_t kinds = bytes.next(16);  // what a request has beside lifetimes
  while (!bytes.empty() && problem.buffers.size() < 64) {
    PlanProblem::Buffer b{.bytes = bytes.next(256) << bytes.next(8), .begin = bytes.next(40), .end = 0};
    b.end = b.begin + bytes.next(16);
    b.align = uint64_t{1} << bytes.next(9);
    b.arena = uint32_t(bytes.next(problem.arenas));
    if (kinds & 1 && bytes.next(4) == 0) b.more.push_back({b.end + 1 + bytes.next(5), b.end + 7});
    if (kinds & 2 && problem.buffers.empty()) b.fixed = bytes.next(8) * 4096;
    problem.buffers.push_back(b);
  }
  const auto count = uint32_t(problem.buffers.size());
  for (uint32_t i = 0; i + 1 < count; ++i) {
    const auto &a = problem.buffers[i], &b = problem.buffers[i + 1];
    if (kinds & 4 && a.more.empty() && a.end == b.begin + 1) problem.in_place.push_back({i, i + 1});
    if (kinds & 8 && i % 5 == 0 && a.fixed == BELAY_OFFSET_FREE && b.fixed == BELAY_OFFSET_FREE)
      problem.conflicts.push_back({i, i + 1});
  }
  return problem;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const PlanProblem problem = problem_of({data, size});
  belay::testing::PlanAnswer answer;
  belay_plan_result result = answer.room_for(problem);
  const belay::testing::PlanRequest request(problem);
  if (!belay::reuse::plan(request.req(), result).ok()) return 0;
  if (const std::string wrong = check(problem, answer); !wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
