// Which operators there are kernels for, and how they are prepared.
#pragma once

#include "context.hpp"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace belay::cpu {

enum class InPlace : uint8_t {
  kNone,
  kFirst,       // output 0 in the memory of input 0, if they are equally large
  kElementwise  // output 0 in the memory of any of inputs 0 and 1 that has its size: each element is read
                // before the one that is written in its place
};

using PrepareFn = Status (*)(OpContext&);

// One operator in its canonical form (newest definition up to opset 17). Old attribute forms are read where
// that is trivial.
struct OpDef {
  std::string_view op;
  PrepareFn prepare;
  TypeMask types[7] = {};                  // by input; the last that is not 0 stands for all that follow
  uint8_t min_inputs = 1, max_inputs = 1;  // 255: any number
  uint8_t max_outputs = 1;
  InPlace in_place = InPlace::kNone;
  uint64_t optional = 0;        // bit i: may be absent though it is one of the first min_inputs
  uint64_t host_inputs = 0;     // bit i: prepare needs the value of input i
  bool host_for_shape = false;  // ... but not where the dims of output 0 are known
  belay_in_place shared[2] = {};  // outputs that may have the memory of an input as large; output 0 is in_place's
  std::string_view domain = "";
  double ns_per_byte = 0.1;  // cost of a byte of operands, for the estimate of claim
};

// What a claim or a pattern may look at.
struct ClaimContext {
  const graph::View& view;
  uint32_t graph;
  const void* const* constants;  // may be null
  const std::vector<uint32_t>&
      uses;  // by value: consumers in this graph, plus one for an output or a capture
  const void* constant(uint32_t value) const {
    return value == BELAY_NONE || !constants ? nullptr : constants[value];
  }
  // The only node that reads `value`, if nothing else does; else BELAY_NONE.
  uint32_t only_consumer(uint32_t value) const;
  const std::vector<uint32_t>& last_consumer;  // by value: the last node that reads it, or BELAY_NONE
};

// A unit of several nodes that a pattern found.
struct Match {
  std::vector<uint32_t> nodes;  // in topological order
  std::vector<uint32_t> inputs, outputs;
  uint64_t score = 600;  // a single operator has 500
  uint64_t cost_ns = 0;
  std::vector<belay_in_place> in_place;
  uint64_t host_inputs = 0;
};

// What a pattern's prepare gets besides the operands of the match: the nodes it is made of.
struct PatternContext {
  OpContext& op;
  const graph::View& view;
  const std::vector<uint32_t>& nodes;
  graph::NodeView node(size_t i) const { return view.node(nodes[i]); }
  Attributes attributes(size_t i) const { return Attributes(view, node(i)); }
};

// Several nodes that together form one kernel. match() is asked with each node of op `root`; it must depend
// on nothing but its arguments: prepare asks it again to find out which pattern a claim was.
struct PatternDef {
  std::string_view name;  // "Conv+activation"
  std::string_view root;  // operator of the node that match() is asked with
  bool (*match)(const ClaimContext&, uint32_t node, Match& out);
  Status (*prepare)(PatternContext&);
};

// Filled once, read by many threads.
class Registry {
 public:
  Registry();  // all operators of this library
  // An operator has one kernel: a second one throws.
  void add(const OpDef& def);
  void add(const PatternDef& def) { patterns_.emplace(def.root, def); }
  const OpDef* find(std::string_view domain, std::string_view op) const;
  auto patterns(std::string_view root) const { return patterns_.equal_range(root); }
  auto begin() const { return ops_.begin(); }
  auto end() const { return ops_.end(); }

 private:
  std::map<std::pair<std::string_view, std::string_view>, OpDef> ops_;
  std::multimap<std::string_view, PatternDef> patterns_;
};

}  // namespace belay::cpu
