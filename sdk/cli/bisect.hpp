// Finds the node that makes two sides differ.
#pragma once

#include "output.hpp"
#include "side.hpp"

#include <belay/graph/view.hpp>

#include <optional>
#include <set>
#include <span>

namespace belay::cli {

struct Difference {
  std::string node, op, domain;
  uint32_t version = 0;
  std::string value;      // the output of the node that differs
  Comparison comparison;  // of side A, with side B as what is expected
  std::string type;       // of the value: "float32 [1,8]"
  std::vector<std::string>
      inputs;  // values of the main graph that the node reads, its subgraphs' captures included
  std::string kernel_a, kernel_b;
  // Seen only while the plans may fuse: with every value kept the results agree.
  bool fused = false;
};

class Bisection {
 public:
  // `image`: the model's frozen graph, verified; outlives this.
  Bisection(belay_span image, Side& a, Side& b, const std::vector<Input>& inputs, const Tolerance& tolerance);

  // The first node, in the order of the graph, whose results differ while what it reads does not; `output` is
  // one of the graph's that differs. Nothing: no value of the main graph that both sides can give differs.
  std::optional<Difference> find(const std::string& output, const Output& progress);
  uint64_t compared() const { return compared_; }
  // Values that a side did not give: it has no such name, or it is no tensor to it.
  uint64_t skipped() const { return skipped_.size(); }

 private:
  struct Candidate {
    uint32_t node, value;
  };
  struct Seen {
    Comparison comparison;
    std::string type;
  };
  std::string name_of(uint32_t value) const;
  std::vector<uint32_t> reads_of(uint32_t node) const;
  std::vector<std::optional<Seen>> look(std::span<const Candidate> at);
  std::optional<Difference> with_all_kept(const Output& progress);
  std::optional<Difference> with_one_kept(const std::string& output, const Output& progress);
  std::optional<Difference> differs_at(const Candidate& at);
  Difference difference(const Candidate& at, Seen seen) const;

  const belay::graph::View view_;
  Side& a_;
  Side& b_;
  const std::vector<Input>& inputs_;
  const Tolerance tolerance_;
  std::vector<Candidate> candidates_;  // in the order of the graph
  std::set<uint32_t> skipped_;
  uint64_t compared_ = 0;
};

}  // namespace belay::cli
