// A problem of static memory planning in a file, the check of an answer to it, and its picture.
#pragma once

#include <belay/abi/memory_policy.h>

#include <cstdint>
#include <string>
#include <vector>

namespace belay::cli {

struct PlanProblem {
  std::vector<std::string> ids;
  std::vector<uint64_t> bytes, align;
  std::vector<belay_interval> lives;
};

// Reads comma-separated rows, plain or compressed by gzip. The header names the columns in any order: `id`,
// `lower` and `upper` (the buffer lives from step lower to just before step upper), `size` in bytes, and, if
// there, `alignment` (a power of two; 1 without it). Failures name the file, the line and the column.
PlanProblem read_plan_problem(const std::string& path);

// "" where each buffer is aligned, ends at `peak` or before, and overlaps none that lives with it; else what
// is wrong. n log n.
std::string check_plan_answer(const PlanProblem& problem, const std::vector<uint64_t>& offsets,
                              uint64_t peak);

// An SVG document: time to the right, offsets up, a box for each buffer and a line at the lower bound. Of
// very many only the largest boxes are drawn; the document says so.
std::string draw_plan(const PlanProblem& problem, const std::vector<uint64_t>& offsets, uint64_t peak,
                      uint64_t lower_bound, const std::string& title);

}  // namespace belay::cli
