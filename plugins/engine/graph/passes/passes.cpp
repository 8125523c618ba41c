#include "passes/passes.hpp"

#include "ir/infer.hpp"

#include <algorithm>

namespace belay::passes {
namespace {

// "belay" is the domain of operators that no format has. ByteTable: y = table[x], by the bits of each byte.
constexpr Made kTable{"belay", "ByteTable", 1, "bb", 'b'};
constexpr Made kToFloat{"com.microsoft", "MatMulIntegerToFloat", 1, "bbffbbf", 'f'};
constexpr Made kProducts[] = {{"", "QLinearConv", 10, "bfbbfbfbi", 'b'},
                              {"", "QLinearMatMul", 10, "bfbbfbfb", 'b'},
                              {"com.microsoft", "QGemm", 1, "bfbbfbifb", 'b'},
                              kToFloat,
                              kTable};
constexpr Made kElementwise[] = {{"com.microsoft", "QLinearAdd", 1, "bfbbfbfb", 'b'},
                                 {"com.microsoft", "QLinearMul", 1, "bfbbfbfb", 'b'},
                                 {"com.microsoft", "QLinearAveragePool", 1, "bfbfb", 'b'},
                                 {"com.microsoft", "QLinearGlobalAveragePool", 1, "bfbfb", 'b'},
                                 kTable};
constexpr Made kLayerNorm[] = {{"", "LayerNormalization", 17, "fff", 'f'}};
constexpr Made kGelu[] = {{"com.microsoft", "Gelu", 1, "f", 'f'}};
constexpr Made kDynamic[] = {kToFloat};

constexpr std::string_view kSqrt[] = {"Sqrt"}, kErf[] = {"Erf"}, kPad[] = {"Pad"}, kGradient[] = {"Gradient"}, kDequantize[] = {"DequantizeLinear"},
                           kQuantize[] = {"QuantizeLinear"},
                           kIntegers[] = {"MatMulInteger", "MatMulIntegerToFloat"};

constexpr Pass kPasses[] = {
    {"version-lift", "brings each node to the newest definition up to opset 17", lift_versions},
    {"contrib", "writes operators of com.microsoft as those of ONNX that do the same", write_contrib},
    {"gradient", "puts the nodes that compute it in place of a Gradient", expand_gradients, {}, kGradient},
    {"constant-folding", "runs nodes whose inputs are constant", fold_constants},
    {"identity", "drops what gives its input as it is: Identity, Dropout outside training, casts to the type there is", drop_identities},
    {"inline-if", "puts the branch of a constant condition in place of its If", inline_branches},
    {"common-nodes", "computes once what several nodes compute from the same", join_common},
    {"pad-folding", "pads in the convolution or the average that reads zeros from a Pad", fold_padding, {}, kPad},
    {"layer-norm", "makes one LayerNormalization of its parts", join_layer_norms, kLayerNorm, kSqrt},
    {"gelu", "makes one Gelu of its parts", join_gelus, kGelu, kErf},
    {"quantized-products", "multiplies bytes where DequantizeLinear and QuantizeLinear are around a product",
     quantize_products, kProducts, kDequantize},
    {"quantized-elementwise", "looks bytes up, or moves them, between DequantizeLinear and QuantizeLinear",
     quantize_elementwise, kElementwise, kQuantize},
    {"dynamic-products", "joins MatMulInteger with what scales its sums", join_dynamic_products, kDynamic,
     kIntegers},
    {"dead-code", "drops nodes that nobody reads", remove_dead_code},
    {"dequantized-constants",
     "runs DequantizeLinear where its inputs are constant",
     fold_dequantized,
     {},
     kDequantize},
    {"affine-folding", "folds scale and shift into the weights before them", fold_affine},
};

}  // namespace

std::span<const Pass> all_passes() { return kPasses; }

bool Pass::concerns(const ir::Model& model) const {
  return begins.empty() || std::any_of(model.graphs.begin(), model.graphs.end(), [&](const ir::Graph& graph) {
           return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](ir::NodeId id) {
             return std::find(begins.begin(), begins.end(), model.nodes[id].op) != begins.end();
           });
         });
}

Result<ir::Env> infer_model(const ir::Model& model) {
  ir::Env env(model);
  for (const ir::ValueId input : model.graphs[0].inputs) env.types[input] = model.values[input].type;
  BELAY_TRY(ir::infer_graph(env, 0));
  return env;
}

Result<std::vector<Ran>> run_passes(ir::Model& model, const Evaluator& evaluate,
                                    const std::set<std::string, std::less<>>& disabled,
                                    const std::function<uint64_t()>& now) {
  std::vector<Ran> ran;
  for (const Pass& pass : kPasses)
    if (!disabled.contains(pass.name)) ran.push_back({std::string(pass.name), 0, 0});
  // One pass opens the way for another (a folded condition inlines a branch, whose constants fold), so they
  // go round; each round but the last takes nodes away or makes constants, so it ends. The bound is for what
  // nobody thought of.
  for (int round = 0; round < 8; ++round) {
    uint64_t changes = 0;
    for (const Pass& pass : kPasses) {
      if (disabled.contains(pass.name) || !pass.concerns(model)) continue;
      Ran& at = *std::find_if(ran.begin(), ran.end(), [&](const Ran& one) { return one.name == pass.name; });
      const uint64_t begin = now();
      Result<uint64_t> made = pass.run(model, evaluate);
      if (!made.ok()) return std::move(made).status().while_doing("running the pass '" + at.name + "'");
      at.changes += *made;
      at.ns += now() - begin;
      changes += *made;
    }
    if (!changes) break;
  }
  BELAY_ASSIGN(const ir::Env env, infer_model(model));
  for (ir::ValueId i = 0; i < model.values.size(); ++i) {
    ir::Value& value = model.values[i];
    const ir::Type& type = env.type(i);
    if (value.is_input || value.constant || !type.kind) continue;
    const ir::Type declared = std::move(value.type);
    value.type = type;
    // A name for an unknown dim is worth keeping for whoever reads the signature.
    if (!type.ranked && declared.kind == type.kind && declared.dtype == type.dtype && declared.ranked) {
      value.type = declared;
      for (int64_t& dim : value.type.dims) dim = std::min<int64_t>(dim, ir::kUnknown);
    } else if (type.ranked && declared.ranked && declared.dims.size() == type.dims.size()) {
      for (size_t d = 0; d < type.dims.size(); ++d)
        if (type.dims[d] == ir::kUnknown && declared.dims[d] < 0) value.type.dims[d] = declared.dims[d];
    }
  }
  return ran;
}

}  // namespace belay::passes
