// Finds the node that makes two sides differ.
#pragma once

#include "output.hpp"
#include "side.hpp"

#include <belay/graph/view.hpp>

#include <optional>
#include <set>
#include <span>

namespace belay::cli {

// A node that runs a branch or a body which the differing node is in.
struct Around {
  std::string node, op, graph;  // graph: the attribute, "then_branch"
  std::optional<int64_t> iteration;
};

struct Difference {
  uint32_t index = 0;  // of the node in the image
  std::string node, op, domain;
  uint32_t version = 0;
  std::vector<Around> around;  // the outermost first
  std::string value;      // the output of the node that differs
  Comparison comparison;  // of side A, with side B as what is expected
  std::string type;       // of the value: "float32 [1,8]"
  std::vector<std::string>
      inputs;  // values that the node reads, its subgraphs' captures included
  std::string kernel_a, kernel_b;
  // Seen only while the plans may fuse: with every value kept the results agree.
  bool fused = false;
};

class Bisection {
 public:
  // `image`: the model's frozen graph, verified; outlives this.
  Bisection(belay_span image, Side& a, Side& b, const std::vector<Input>& inputs, const Tolerance& tolerance);

  // The first node, in the order of the graph, whose results differ while what it reads does not, inside of what
  // runs a branch or a body where both sides can look into it: then in the first iteration that differs. `output`
  // is one of the graph's that differs. Nothing: no value of the main graph that both sides can give differs.
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
    std::vector<int64_t> iterations;  // of what loops around it, the outermost first; empty: not known
  };
  // A node that runs the graph, and which attribute has it.
  struct Owner {
    uint32_t node, graph;
    std::string attribute;
    bool loops;
  };
  std::string name_of(uint32_t value) const;
  std::string address_of(uint32_t value) const;
  // Calls f(attribute, graph) for the graphs of a node.
  template <class F>
  void each_graph(uint32_t node, F&& f) const;
  std::vector<Owner> owners_of(uint32_t value) const;
  void collect_inside(uint32_t node, std::vector<Candidate>& out) const;
  std::optional<Difference> inside(uint32_t node, const Output& progress);
  Seen seen(const HostDatum& found, const HostDatum& expected, size_t loops) const;
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
