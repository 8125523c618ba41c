// passes/quantized.hpp: what the passes over quantised models share: QuantizeLinear (Q) and DequantizeLinear (DQ) as
// they are around the operators that can work on bytes. Inside passes only.
#pragma once

#include "passes/rewriter.hpp"

namespace belay::passes {

inline constexpr std::string_view kMicrosoft = "com.microsoft";
inline constexpr std::string_view kOwnDomain = "belay";  // operators that no format has

// A float value that is scale * (bytes - zero).
struct Dequantized {
  ir::ValueId bytes = BELAY_NONE, scale = BELAY_NONE, zero = BELAY_NONE;  // zero may be absent
  uint32_t dtype = BELAY_DT_UNDEFINED;                                    // of the bytes
  std::vector<double> scales;                                             // one, or one for each place of `axis`
  std::vector<double> zeros;                                              // as many
  int64_t axis = 0;
  bool per_tensor() const { return scales.size() == 1; }
  bool is_bytes() const { return dtype == BELAY_DT_INT8 || dtype == BELAY_DT_UINT8; }
};

// Relu, or Clip by constants: the least and largest value it gives.
struct Clamp {
  float low, high;
};

class QuantizedGraph : public Rewriter {
 public:
  static Result<QuantizedGraph> of(ir::Model& model, const Evaluator& evaluate);

  // What DQ or Q does, where its scales and zero points are constant and make sense. The first reads a DQ that makes
  // `value`; a constant that a Q makes bytes of is made so.
  std::optional<Dequantized> dequantized(ir::ValueId value);
  std::optional<Dequantized> parameters(const ir::Node& node);  // of a Q (bytes: its output) or DQ
  // A Q with one scale that makes bytes.
  std::optional<Dequantized> quantizes(const ir::Node* node);
  // Of `node`, which may be null.
  std::optional<Clamp> clamps(const ir::Node* node);

  // A new constant of bytes or int32.
  ir::ValueId bytes(ir::GraphId graph, const std::string& name, uint32_t dtype, const std::vector<int64_t>& values,
                    ir::Dims dims);
  // A zero point of the right type, for operators that need one.
  ir::ValueId zero_of(ir::GraphId graph, const Dequantized& of);

  // Makes `node`, which makes `dtype`, look its bytes up: table[i] is what the byte with the bits i of `from` becomes.
  void become_table(ir::Node& node, ir::ValueId from, uint32_t from_dtype, uint32_t dtype,
                    const std::vector<int64_t>& table);
  // The same for bytes of `to` that are clamped: quantisation keeps order, so clamping before or after it is the same.
  void become_clamp(ir::Node& node, ir::ValueId from, const Dequantized& to, const Clamp& clamp);

 private:
  QuantizedGraph(ir::Model& model, ir::Env env, const Evaluator& evaluate)
      : Rewriter(model, std::move(env)), evaluate_(&evaluate) {}
  const Evaluator* evaluate_;
};

// What Q makes of a number, as QuantizeLinear defines it.
int64_t quantize(float x, float scale, int64_t zero, uint32_t dtype);
// The byte with the bits `i`, as a number of `dtype`.
int64_t byte_value(int i, uint32_t dtype);

}  // namespace belay::passes
