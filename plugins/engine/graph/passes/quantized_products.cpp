// Conv, MatMul and Gemm between DequantizeLinear and QuantizeLinear become products of integers.
//
// The sums are then exact and scaled once, where the float graph rounds each term: a result may be the
// neighbouring quantisation step, no more.
#include "passes/quantized.hpp"

#include <algorithm>
#include <cmath>

namespace belay::passes {
namespace {

class Products {
 public:
  explicit Products(QuantizedGraph graph) : graph_(std::move(graph)) {}

  uint64_t run() {
    return graph_.each_node([&](ir::Node& node) {
      return node.is("Conv") ? conv(node) : node.is("MatMul") ? matmul(node) : node.is("Gemm") && gemm(node);
    });
  }

 private:
  // What follows a product: Q, or Relu or Clip and then Q.
  struct End {
    ir::Node *clamp = nullptr, *quantize = nullptr;
    Clamp by{};
    Dequantized to;
  };
  std::optional<End> end_of(ir::ValueId made) {
    End out;
    ir::Node* next = graph_.only_reader(made);
    if (const auto clamp = graph_.clamps(next); clamp && next->input(0) == made) {
      out.clamp = next;
      out.by = *clamp;
      next = graph_.only_reader(next->output(0));
    }
    const auto to = graph_.quantizes(next);
    if (!to) return std::nullopt;
    out.quantize = next;
    out.to = *to;
    return out;
  }

  // The node that ends with `end` makes what `op` of `inputs` does; gives it.
  ir::Node& finish(const End& end, std::string_view domain, std::string_view op, uint32_t version,
                   std::vector<ir::ValueId> inputs, const ir::Node& product) {
    ir::Node& last = end.clamp ? *end.clamp : *end.quantize;
    if (end.clamp) {
      graph_.retype(last.output(0));
      graph_.become_clamp(*end.quantize, last.output(0), end.to, end.by);
    }
    graph_.become(last, domain, op, version, std::move(inputs));
    last.attributes = product.attributes;
    if (!product.name.empty()) last.name = product.name;
    return last;
  }

  // Sums of `terms` products of bytes with a bias of `bias` fit into 32 bits.
  static bool fits(int64_t terms, double bias = 0) { return double(terms) * 255 * 255 + bias < 2147483648.0; }

  // A bias in units of scales[c] = the products' scales, or nothing. `step`: of the result's quantisation,
  // beside which it may be rounded; 0: the result is floats, and only a DQ of these units will do.
  std::optional<std::vector<int64_t>> bias_of(ir::ValueId value, const std::vector<double>& scales,
                                              double step) {
    const auto from = graph_.dequantized(value);
    const ir::ConstantPtr constant = graph_.constant(from ? from->bytes : value);
    if (!constant || constant->count() != scales.size() || constant->dims.size() != 1) return std::nullopt;
    if (from ? from->dtype != BELAY_DT_INT32 && !from->is_bytes()
             : step == 0 || constant->dtype != BELAY_DT_FLOAT32)
      return std::nullopt;
    const auto values = ir::as_doubles(*constant);
    if (!values) return std::nullopt;
    std::vector<int64_t> out;
    for (size_t c = 0; c < scales.size(); ++c) {
      double real = (*values)[c], in_units = real / scales[c];
      if (from) {
        const size_t at = from->per_tensor() ? 0 : c;
        if (at && from->axis != 0) return std::nullopt;
        const double steps = real - from->zeros[at], ratio = from->scales[at] / scales[c];
        const bool same = std::fabs(ratio - 1) < 1e-5;
        if (step == 0 && !same && steps != 0) return std::nullopt;
        real = steps * from->scales[at];
        in_units = same ? steps : steps * ratio;
      }
      const double rounded = std::nearbyint(in_units);
      if (!(std::fabs(rounded) <= 2e9)) return std::nullopt;
      // Units of the products may be larger than the result's.
      if (step > 0 && std::fabs(rounded * scales[c] - real) > step / 4) return std::nullopt;
      out.push_back(int64_t(rounded));
    }
    return out;
  }
  static double largest(const std::vector<int64_t>& values) {
    double out = 0;
    for (const int64_t v : values) out = std::max(out, std::fabs(double(v)));
    return out;
  }
  static std::vector<double> product_scales(const Dequantized& a, const Dequantized& b, uint64_t channels) {
    std::vector<double> out;
    for (uint64_t c = 0; c < channels; ++c) out.push_back(a.scales[0] * b.scales[b.per_tensor() ? 0 : c]);
    return out;
  }

  bool conv(ir::Node& node) {
    const auto x = graph_.dequantized(node.input(0));
    if (!x || !x->per_tensor() || !x->is_bytes()) return false;
    const auto end = end_of(node.output(0));
    if (!end) return false;
    const auto w = graph_.dequantized(node.input(1));
    if (!w || !w->is_bytes() || (!w->per_tensor() && w->axis != 0)) return false;
    const ir::ConstantPtr weights = graph_.constant(w->bytes);
    if (!weights || weights->dims.size() < 3 || !weights->count()) return false;
    const uint64_t channels = uint64_t(weights->dims[0]);
    if (!w->per_tensor() && w->scales.size() != channels) return false;
    std::vector<int64_t> bias;
    if (node.input(2) != BELAY_NONE) {
      const auto made = bias_of(node.input(2), product_scales(*x, *w, channels), end->to.scales[0]);
      if (!made) return false;
      bias = *made;
    }
    if (!fits(int64_t(weights->count() / channels), largest(bias))) return false;
    std::vector<ir::ValueId> inputs{x->bytes,
                                    x->scale,
                                    graph_.zero_of(node.graph, *x),
                                    w->bytes,
                                    w->scale,
                                    graph_.zero_of(node.graph, *w),
                                    end->to.scale,
                                    graph_.zero_of(node.graph, end->to)};
    if (!bias.empty())
      inputs.push_back(
          graph_.bytes(node.graph, node.name + ".bias", BELAY_DT_INT32, bias, {int64_t(bias.size())}));
    finish(*end, "", "QLinearConv", 10, std::move(inputs), node);
    return true;
  }

  // Both operands of a product whose right one has rank 2 and at most one scale for each of its columns, on
  // axis `column_axis`.
  struct Operands {
    Dequantized a, b;
    int64_t terms, columns;
  };
  std::optional<Operands> operands_of(const ir::Node& node, int64_t column_axis) {
    const auto a = graph_.dequantized(node.input(0));
    if (!a || !a->per_tensor() || !a->is_bytes()) return std::nullopt;
    const auto b = graph_.dequantized(node.input(1));
    if (!b || !b->is_bytes()) return std::nullopt;
    const ir::ConstantPtr right = graph_.constant(b->bytes);
    if (!right || right->dims.size() != 2) return std::nullopt;
    const int64_t columns = right->dims[size_t(column_axis)], terms = right->dims[size_t(1 - column_axis)];
    if (!b->per_tensor() && (b->axis != column_axis || int64_t(b->scales.size()) != columns))
      return std::nullopt;
    if (columns < 1 || terms < 1) return std::nullopt;
    return Operands{*a, *b, terms, columns};
  }

  bool matmul(ir::Node& node) {
    const auto of = operands_of(node, 1);
    if (!of || !fits(of->terms)) return false;
    const ir::ValueId a_zero = graph_.zero_of(node.graph, of->a), b_zero = graph_.zero_of(node.graph, of->b);
    if (const auto end = end_of(node.output(0))) {
      finish(*end, "", "QLinearMatMul", 10,
             {of->a.bytes, of->a.scale, a_zero, of->b.bytes, of->b.scale, b_zero, end->to.scale,
              graph_.zero_of(node.graph, end->to)},
             node);
      return true;
    }
    // The sums go on as floats.
    graph_.become(node, kMicrosoft, "MatMulIntegerToFloat", 1,
                  {of->a.bytes, of->b.bytes, of->a.scale, of->b.scale, a_zero, b_zero});
    return true;
  }

  bool gemm(ir::Node& node) {
    if (node.int_or("transA", 0) != 0) return false;
    const float alpha = node.float_or("alpha", 1), beta = node.float_or("beta", 1);
    const bool transposed = node.int_or("transB", 0) != 0;
    const auto of = operands_of(node, transposed ? 0 : 1);
    if (!of || !(alpha > 0) || !std::isfinite(alpha)) return false;
    const auto end = end_of(node.output(0));
    std::vector<int64_t> bias;
    if (node.input(2) != BELAY_NONE && beta != 0) {
      if (beta != 1) return false;
      std::vector<double> scales = product_scales(of->a, of->b, uint64_t(of->columns));
      for (double& scale : scales) scale *= double(alpha);
      const auto made = bias_of(node.input(2), scales, end ? end->to.scales[0] : 0);
      if (!made) return false;
      bias = *made;
    }
    if (!fits(of->terms, largest(bias))) return false;
    std::vector<ir::ValueId> inputs{of->a.bytes, of->a.scale, graph_.zero_of(node.graph, of->a),
                                    of->b.bytes, of->b.scale, graph_.zero_of(node.graph, of->b),
                                    BELAY_NONE};
    if (!bias.empty())
      inputs[6] = graph_.bytes(node.graph, node.name + ".bias", BELAY_DT_INT32, bias, {int64_t(bias.size())});
    ir::Node* made = &node;
    if (end) {
      inputs.push_back(end->to.scale);
      inputs.push_back(graph_.zero_of(node.graph, end->to));
      made = &finish(*end, kMicrosoft, "QGemm", 1, std::move(inputs), node);
      made->attributes.clear();
    } else {
      if (bias.empty()) inputs.pop_back();
      graph_.become(node, kMicrosoft, "QGemm", 1, std::move(inputs));
    }
    if (transposed) made->set_int("transB", 1);
    if (alpha != 1) {
      ir::Attribute attribute;
      attribute.name = "alpha";
      attribute.kind = BELAY_ATTR_FLOAT;
      attribute.floats = {alpha};
      made->attributes.push_back(std::move(attribute));
    }
    return true;
  }

  QuantizedGraph graph_;
};

}  // namespace

Result<uint64_t> quantize_products(ir::Model& model, const Evaluator& evaluate) {
  BELAY_ASSIGN(QuantizedGraph graph, QuantizedGraph::of(model, evaluate));
  return Products(std::move(graph)).run();
}

}  // namespace belay::passes
