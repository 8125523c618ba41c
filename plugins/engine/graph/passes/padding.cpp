// A Pad with zeros goes into the convolution or the average that reads it.
#include "passes/rewriter.hpp"

#include <algorithm>

namespace belay::passes {
namespace {

class Padding {
 public:
  explicit Padding(Rewriter graph) : graph_(std::move(graph)) {}

  uint64_t run() {
    return graph_.each_node([&](ir::Node& node) { return (node.is("Conv") || node.is("AveragePool")) && fold(node); });
  }

 private:
  bool fold(ir::Node& node) {
    const ir::Node* pad = graph_.maker(node.input(0));
    if (!pad || !pad->is("Pad") || pad->string_or("mode", "constant") != "constant" || pad->input(3) != BELAY_NONE) return false;
    const ir::ConstantPtr amounts = pad->input(1) == BELAY_NONE ? nullptr : graph_.constant(pad->input(1));
    if (!amounts || !is_zero(pad->input(2))) return false;
    const auto added = ir::as_int64s(*amounts);
    if (!added || added->size() % 2 || added->size() < 6) return false;
    const size_t rank = added->size() / 2;
    for (size_t i = 0; i < added->size(); ++i)  // of batch and channels none, and nothing is cut off
      if ((*added)[i] < 0 || (*added)[i] > INT32_MAX || (i % rank < 2 && (*added)[i] != 0)) return false;

    const std::string_view how = node.string_or("auto_pad", "NOTSET");
    if (how != "NOTSET" && how != "VALID") return false;
    std::vector<int64_t> pads(2 * (rank - 2), 0);
    if (const auto* own = node.ints("pads"); own && how == "NOTSET") {
      if (own->size() != pads.size()) return false;
      pads = *own;
    }
    if (node.is("AveragePool")) {
      // What was padded counts; a window of ceil_mode may reach further than what counts.
      const bool padded = std::any_of(pads.begin(), pads.end(), [](int64_t n) { return n != 0; });
      if (node.int_or("ceil_mode", 0) || (padded && !node.int_or("count_include_pad", 0))) return false;
      node.set_int("count_include_pad", 1);
    }
    for (size_t i = 0; i < pads.size(); ++i) pads[i] += (*added)[i + (i < rank - 2 ? 2 : 4)];
    node.erase("auto_pad");
    node.set_ints("pads", std::move(pads));
    node.inputs[0] = pad->input(0);
    return true;
  }

  bool is_zero(ir::ValueId value) {
    if (value == BELAY_NONE) return true;
    const ir::ConstantPtr constant = graph_.constant(value);
    const auto number = constant && constant->count() == 1 ? ir::as_doubles(*constant) : std::nullopt;
    return number && (*number)[0] == 0;
  }

  Rewriter graph_;
};

}  // namespace

Result<uint64_t> fold_padding(ir::Model& model, const Evaluator&) {
  BELAY_ASSIGN(Rewriter graph, Rewriter::of(model));
  return Padding(std::move(graph)).run();
}

}  // namespace belay::passes
