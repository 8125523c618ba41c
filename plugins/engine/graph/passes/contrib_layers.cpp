// Layers of transformers and of diffusion models that com.microsoft has under one name.
#include "passes/contrib.hpp"

#include <cmath>

namespace belay::passes {

// ---- attention: the projection is a product like others

Status Contrib::refuse_rotary(const ir::Node& node) {
  if (const int64_t value = node.int_or("do_rotary", 0); value != 0)
    return refuse(node, "attribute 'do_rotary' is " + std::to_string(value) +
                            ", only 0 is supported: the operator does not say by which angles; put RotaryEmbedding before "
                            "MultiHeadAttention in its place");
  return {};
}
Result<bool> Contrib::attention(ir::Node& node) {
  BELAY_TRY(refuse_rotary(node));
  ir::ValueId qkv = before(node, {"MatMul", 13}, {node.input(0), node.input(1)});
  if (node.input(2) != BELAY_NONE) qkv = before(node, {"Add", 14}, {qkv, node.input(2)});
  keep_attributes(node, {"mask_filter_value", "num_heads", "past_present_share_buffer", "qkv_hidden_sizes", "scale",
                         "unidirectional"});
  become(node, "QkvAttention", 1, {qkv, node.input(3), node.input(4), node.input(5), node.input(6)}, kOwnDomain);
  return true;
}
Result<bool> Contrib::quantized_attention(ir::Node& node) {
  BELAY_TRY(refuse_rotary(node));
  if (node.int_or("past_present_share_buffer", 0) != 0)
    return refuse(node, "attribute 'past_present_share_buffer' is 1, but no input says how much the buffer holds");
  const ir::ValueId qkv = before(node, {"MatMulIntegerToFloat", 1, kMicrosoft},
                                 {node.input(0), node.input(1), node.input(3), node.input(4), node.input(6),
                                  node.input(7), node.input(2)});
  keep_attributes(node, {"mask_filter_value", "num_heads", "scale", "unidirectional"});
  become(node, "QkvAttention", 1, {qkv, node.input(5), node.input(8)}, kOwnDomain);
  return true;
}

// One token of a decoder: MultiHeadAttention with its inputs in another order. What beams share is refused.
Result<bool> Contrib::decoder_attention(ir::Node& node) {
  if (node.int_or("past_present_share_buffer", 0) != 0)
    return refuse(node, "attribute 'past_present_share_buffer' is 1, only 0 is supported: the keys of its buffer are in another order");
  for (const auto& [input, name] : {std::pair<size_t, const char*>{8, "beam_width"}, {9, "cache_indirection"}})
    if (node.input(input) != BELAY_NONE) return refuse(node, "input " + std::string(name) + " is not supported");
  std::vector<ir::ValueId> parts{node.input(0), node.input(1), node.input(2)};
  if (parts[1] == BELAY_NONE) {
    if (parts[2] != BELAY_NONE) return refuse(node, "value is given without key", Code::kInvalidArgument);
    parts = several(node, {"Split", 13, {}, {whole("axis", -1)}}, {parts[0]}, 3);
  }
  keep_attributes(node, {"mask_filter_value", "num_heads", "scale"});
  become(node, "MultiHeadAttention", 1,
         {parts[0], parts[1], parts[2], node.input(10), node.input(3), node.input(4), node.input(5), node.input(6)}, kMicrosoft);
  return true;
}

// ---- word, position and segment of each place, added and normalised

// Rows of a table; of bytes only those that are wanted become numbers.
ir::ValueId Contrib::look_up(const ir::Node& of, const Table& table, ir::ValueId ids) {
  const ir::ValueId rows = before(of, {"Gather", 13}, {table.data, ids});
  return table.scale == BELAY_NONE ? rows : dequantized(of, rows, table.scale, table.zero);
}
Result<bool> Contrib::add_embeddings(ir::Node& node, const Table& words, const Table& places, const Table& kinds, ir::ValueId gamma,
                                     ir::ValueId beta, ir::ValueId place_ids) {
  const ir::ValueId ids = node.input(0), kind_ids = node.input(1), mask = node.input(7);
  ir::ValueId sum = look_up(node, words, ids);
  if (kind_ids != BELAY_NONE && kinds.data != BELAY_NONE) sum = before(node, {"Add", 14}, {sum, look_up(node, kinds, kind_ids)});
  const ir::ValueId shape = before(node, {"Shape", 15}, {ids});
  ir::ValueId placed = BELAY_NONE;
  if (place_ids != BELAY_NONE) {
    placed = look_up(node, places, place_ids);
  } else {
    const ir::ValueId length = before(node, {"Slice", 13}, {shape, ints({1}), ints({2}), ints({0})});
    placed = before(node, {"Slice", 13}, {places.data, ints({0}), length, ints({0})});
    if (places.scale != BELAY_NONE) placed = dequantized(node, placed, places.scale, places.zero);
  }
  if (const ir::ValueId counts = node.output(1); counts != BELAY_NONE) {
    ir::Node& last = mask == BELAY_NONE ? zeros(node, shape) : ones(node, mask);
    last.outputs = {counts};
    append(last);
  }
  const ir::ValueId sums = node.output(2);
  node.outputs = {node.output(0)};
  if (sums != BELAY_NONE) node.outputs.insert(node.outputs.end(), {BELAY_NONE, BELAY_NONE, sums});
  const float epsilon = node.float_or("epsilon", 1e-12f);
  node.attributes.clear();
  node.set_float("epsilon", epsilon);
  become(node, "SkipLayerNormalization", 1, {sum, placed, gamma, beta}, kMicrosoft);
  return true;
}
Result<bool> Contrib::embedding(ir::Node& node) {
  return add_embeddings(node, {node.input(2)}, {node.input(3)}, {node.input(4)}, node.input(5), node.input(6), node.input(8));
}
Result<bool> Contrib::quantized_embedding(ir::Node& node) {
  const auto table = [&](size_t data, size_t scale) { return Table{node.input(data), node.input(scale), node.input(scale + 5)}; };
  const Table words = table(2, 8), places = table(3, 9), kinds = table(4, 10);
  const ir::ValueId gamma = dequantized(node, node.input(5), node.input(11), node.input(16));
  const ir::ValueId beta = dequantized(node, node.input(6), node.input(12), node.input(17));
  return add_embeddings(node, words, places, kinds, gamma, beta, BELAY_NONE);
}
// How many ones there are in each row of a mask. The node is not in the list yet.
ir::Node& Contrib::ones(const ir::Node& of, ir::ValueId mask) {
  const ir::ValueId one = before(of, {"Cast", 13, {}, {whole("to", BELAY_DT_INT32)}},
                                 {constant(ir::make_int64s(std::vector<int64_t>{1}, {}))});
  const ir::ValueId equal = before(of, {"Equal", 13}, {mask, one});
  const ir::ValueId counted = before(of, {"Cast", 13, {}, {whole("to", BELAY_DT_INT32)}}, {equal});
  ir::Node& node = model_.add_node(graph_, "ReduceSum", 13, of.name);
  node.inputs = {counted, ints({1})};
  node.set_int("keepdims", 0);
  return node;
}
ir::Node& Contrib::zeros(const ir::Node& of, ir::ValueId shape) {
  const ir::ValueId rows = before(of, {"Slice", 13}, {shape, ints({0}), ints({1}), ints({0})});
  ir::Node& node = model_.add_node(graph_, "ConstantOfShape", 9, of.name);
  node.inputs = {rows};
  ir::Attribute& value = node.attributes.emplace_back();
  value.name = "value";
  value.kind = BELAY_ATTR_TENSOR;
  value.tensors = {ir::make_constant(BELAY_DT_INT32, {1})};
  return node;
}

// ---- softmax and dropout of a sum

Result<bool> Contrib::bias_softmax(ir::Node& node) {
  const ir::Type &data = env_.type(node.input(0)), &bias = env_.type(node.input(1));
  const int64_t given = node.int_or("axis", 1);
  ir::ValueId added = node.input(1);
  // A bias that has no dims in the middle is the same along those of the data.
  if (node.int_or("is_inner_broadcast", 0) != 0 && data.ranked && bias.ranked && bias.dims.size() < data.dims.size()) {
    const int64_t rank = int64_t(data.dims.size()), axis = given < 0 ? given + rank : given;
    const int64_t missing = rank - int64_t(bias.dims.size());
    std::vector<int64_t> axes;
    for (int64_t d = axis - missing; d < axis; ++d) axes.push_back(d);
    if (axis > rank || axes.front() < 0)
      return refuse(node, "the bias has rank " + std::to_string(bias.dims.size()) + ", the data rank " + std::to_string(rank) +
                              ": no dims before axis " + std::to_string(axis) + " can be left out",
                    Code::kInvalidArgument);
    added = before(node, {"Unsqueeze", 13}, {added, ints(axes)});
  }
  const ir::ValueId sum = before(node, {"Add", 14}, {node.input(0), added});
  node.attributes.clear();
  node.set_int("axis", given);
  become(node, "Softmax", 11, {sum});
  return true;
}

Result<bool> Contrib::bias_dropout(ir::Node& node) {
  const ir::ValueId sum = before(node, {"Add", 14}, {node.input(0), node.input(1)}), residual = node.input(2);
  std::vector<ir::ValueId> inputs{sum, node.input(3), node.input(4)};
  if (residual == BELAY_NONE) {
    become(node, "Dropout", 13, std::move(inputs));
    return true;
  }
  while (inputs.back() == BELAY_NONE) inputs.pop_back();
  ir::Node& dropout = model_.add_node(graph_, "Dropout", 13, node.name);
  dropout.inputs = std::move(inputs);
  dropout.attributes = take_attributes(node);
  dropout.outputs = {model_.add_value(graph_, node.name + ".Dropout")};
  if (node.output(1) != BELAY_NONE) dropout.outputs.push_back(node.output(1));
  append(dropout);
  node.outputs.resize(1);
  become(node, "Add", 14, {dropout.outputs[0], residual});
  return true;
}

// ---- biases of positions

// A bias for each head by how far a key is from a query, in buckets whose sizes grow with the distance.
Result<bool> Contrib::relative_position_bias(ir::Node& node) {
  const ir::Type table = env_.type(node.input(0));
  if (!table.ranked || table.dims.size() != 2 || table.dims[0] < 2 || table.dims[1] < 1 || table.dtype == BELAY_DT_UNDEFINED)
    return refuse(node, "the shape of bias_table must be known and have two buckets at least, it is " + ir::to_string(table),
                  Code::kInvalidArgument);
  const bool both = node.int_or("is_bidirectional", 0) != 0;
  const int64_t buckets = table.dims[0], heads = table.dims[1], each = both ? buckets / 2 : buckets, exact = std::max<int64_t>(1, each / 2);
  const int64_t most = node.int_or("max_distance", 0);
  if (most <= exact)
    return refuse(node, "attribute 'max_distance' is " + std::to_string(most) + ", want more than " + std::to_string(exact),
                  Code::kInvalidArgument);
  const auto number = [&](double value) { return constant(ir::make_scalar(BELAY_DT_FLOAT32, value)); };
  const auto whole_number = [&](int64_t value) { return constant(ir::make_int64s(std::vector<int64_t>{value}, {})); };
  const auto op = [&](std::string_view name, uint32_t version, std::vector<ir::ValueId> inputs) {
    return before(node, {name, version}, std::move(inputs));
  };
  const auto cast = [&](ir::ValueId value, uint32_t to) { return before(node, {"Cast", 13, {}, {whole("to", to)}}, {value}); };
  const auto scalar = [&](ir::ValueId value) { return op("Reshape", 14, {value, constant(ir::make_int64s(std::vector<int64_t>{}))}); };
  const auto places = [&](ir::ValueId length, int64_t axis) {
    const ir::ValueId row = op("Range", 11, {whole_number(0), scalar(length), whole_number(1)});
    return op("Unsqueeze", 13, {row, ints({axis})});
  };
  // How far the key is behind the query; ahead of it counts as 0, or has buckets of its own.
  const ir::ValueId apart = op("Sub", 14, {places(node.input(1), 1), places(node.input(2), 0)});
  ir::ValueId offset = BELAY_NONE, distance = BELAY_NONE;
  if (both) {
    const ir::ValueId ahead = cast(op("Less", 13, {apart, whole_number(0)}), BELAY_DT_INT64);
    offset = op("Mul", 14, {ahead, whole_number(each)});
    distance = op("Abs", 13, {apart});
  } else {
    distance = op("Max", 13, {apart, whole_number(0)});
  }
  const ir::ValueId wide = op("Div", 14, {cast(op("Max", 13, {distance, whole_number(1)}), BELAY_DT_FLOAT32), number(double(exact))});
  const ir::ValueId share = op("Div", 14, {op("Log", 13, {wide}), number(std::log(double(most) / double(exact)))});
  const ir::ValueId far = cast(op("Mul", 14, {share, number(double(each - exact))}), BELAY_DT_INT64);
  const ir::ValueId large = op("Min", 13, {op("Add", 14, {far, whole_number(exact)}), whole_number(each - 1)});
  ir::ValueId bucket = op("Where", 16, {op("Less", 13, {distance, whole_number(exact)}), distance, large});
  if (offset != BELAY_NONE) bucket = op("Add", 14, {bucket, offset});
  // The table lies head by head in memory, whatever its dims say.
  const ir::ValueId by_head = op("Reshape", 14, {node.input(0), ints({heads, buckets})});
  const ir::ValueId made = before(node, {"Gather", 13, {}, {whole("axis", 1)}}, {by_head, bucket});
  node.attributes.clear();
  become(node, "Unsqueeze", 13, {made, ints({0})});
  return true;
}

// A bias of positions that each query turns up or down, by a small product of its head.
Result<bool> Contrib::gated_position_bias(ir::Node& node) {
  if (node.input(6) != BELAY_NONE) return refuse(node, "input token_offset is not supported");
  const int64_t heads = node.int_or("num_heads", 0);
  if (heads < 1) return refuse(node, "attribute 'num_heads' is " + std::to_string(heads) + ", want 1 or more", Code::kInvalidArgument);
  const uint32_t dtype = env_.type(node.input(0)).dtype;
  if (!ir::is_float(dtype)) return refuse(node, "the type of query_layer is not known to be a float type", Code::kInvalidArgument);
  const auto op = [&](std::string_view name, uint32_t version, std::vector<ir::ValueId> inputs) {
    return before(node, {name, version}, std::move(inputs));
  };
  const auto number = [&](double value) { return constant(ir::make_scalar(dtype, value)); };
  const ir::ValueId query = op("Add", 14, {node.input(0), node.input(1)});
  const ir::ValueId split = op("Reshape", 14, {query, ints({0, 0, heads, -1})});
  const ir::ValueId by_head = before(node, {"Transpose", 13, {}, {list("perm", {0, 2, 1, 3})}}, {split});
  const ir::ValueId made = op("Add", 14, {op("MatMul", 13, {by_head, node.input(3)}), node.input(4)});
  // [batch, heads, queries, 2, half], summed over the halves.
  const ir::ValueId front = op("Slice", 13, {op("Shape", 15, {made}), ints({0}), ints({3})});
  const ir::ValueId shape = before(node, {"Concat", 13, {}, {whole("axis", 0)}}, {front, ints({2, -1})});
  const ir::ValueId sums = before(node, {"ReduceSum", 13, {}, {whole("keepdims", 0)}}, {op("Reshape", 14, {made, shape}), ints({4})});
  const std::vector<ir::ValueId> gates = several(node, {"Split", 13, {}, {whole("axis", -1)}}, {op("Sigmoid", 13, {sums})}, 2);
  const ir::ValueId inner = op("Sub", 14, {op("Mul", 14, {gates[1], node.input(5)}), number(1)});
  const ir::ValueId factor = op("Add", 14, {op("Mul", 14, {gates[0], inner}), number(2)});
  node.attributes.clear();
  become(node, "Mul", 14, {factor, node.input(2)});
  return true;
}

// ---- GroupNorm and SkipGroupNorm: channels last, an activation behind

Result<bool> Contrib::group_norm(ir::Node& node) {
  const bool skips = node.op == "SkipGroupNorm", last = node.int_or("channels_last", 1) != 0;
  const int64_t activation = node.int_or("activation", 0), groups = node.int_or("groups", 0);
  if (activation != 0 && activation != 1)
    return refuse(node, "attribute 'activation' is " + std::to_string(activation) + ", want 0 or 1", Code::kInvalidArgument);
  const uint32_t dtype = env_.type(node.input(0)).dtype;
  const float epsilon = node.float_or("epsilon", 1e-5f);
  const auto op = [&](std::string_view name, uint32_t version, std::vector<ir::ValueId> inputs) {
    return before(node, {name, version}, std::move(inputs));
  };
  const auto like_data = [&](ir::ValueId value) {
    return dtype == BELAY_DT_UNDEFINED || env_.type(value).dtype == dtype
               ? value
               : before(node, {"Cast", 13, {}, {whole("to", dtype)}}, {value});
  };
  ir::ValueId x = node.input(0);
  if (skips) {
    if (!last) return refuse(node, "attribute 'channels_last' is 0, only 1 is supported");
    const ir::Type& skip = env_.type(node.input(3));
    if (!skip.ranked) return refuse(node, "the rank of skip is not known, want 2 or 4", Code::kInvalidArgument);
    ir::ValueId added = node.input(3);
    if (skip.dims.size() == 2) added = op("Unsqueeze", 13, {added, ints({1, 2})});
    if (node.input(4) != BELAY_NONE) added = op("Add", 14, {added, node.input(4)});
    if (const ir::ValueId sum = node.output(1); sum != BELAY_NONE) {
      ir::Node& add = model_.add_node(graph_, "Add", 14, node.name);
      add.inputs = {x, added};
      add.outputs = {sum};
      append(add);
      x = sum;
    } else {
      x = op("Add", 14, {x, added});
    }
    node.outputs.resize(1);
  }
  if (last) x = before(node, {"Transpose", 13, {}, {list("perm", {0, 3, 1, 2})}}, {x});
  node.attributes.clear();
  node.set_int("num_groups", groups);
  node.set_float("epsilon", epsilon);
  ir::ValueId y = before(node, {"GroupNormalization", 21, {}, take_attributes(node)}, {x, like_data(node.input(1)), like_data(node.input(2))});
  if (activation == 1) y = op("Mul", 14, {y, op("Sigmoid", 13, {y})});
  if (!last) {
    become(node, "Identity", 14, {y});
    return true;
  }
  node.set_ints("perm", {0, 2, 3, 1});
  become(node, "Transpose", 13, {y});
  return true;
}

// ---- a convolution over what was and what is, channel by channel

Result<bool> Contrib::causal_conv(ir::Node& node) {
  for (const auto& [name, want] : {std::pair<const char*, int64_t>{"ndim", 1}, {"channels_last", 0}, {"state_window", 0}})
    if (const int64_t value = node.int_or(name, want); value != want)
      return refuse(node, "attribute '" + std::string(name) + "' is " + std::to_string(value) + ", only " + std::to_string(want) +
                              " is supported");
  const std::string activation(node.string_or("activation", "none"));
  if (activation != "none" && activation != "silu" && activation != "swish")
    return refuse(node, "attribute 'activation' is '" + activation + "', want 'none', 'silu' or 'swish'", Code::kInvalidArgument);
  const ir::Type weight = env_.type(node.input(1));
  if (!weight.concrete() || weight.dims.size() != 3)
    return refuse(node, "the weight is " + ir::to_string(weight) + ", want [channels,1,size], known", Code::kInvalidArgument);
  const int64_t dilation = node.int_or("dilation", 1);
  int64_t before_it = 0;
  if (dilation < 1 || __builtin_mul_overflow(weight.dims[2] - 1, dilation, &before_it))
    return refuse(node, "attribute 'dilation' is " + std::to_string(dilation) + ", want 1 or more, and a place for each of " +
                            std::to_string(weight.dims[2]) + " taps in 63 bits", Code::kInvalidArgument);
  const auto op = [&](std::string_view name, uint32_t version, std::vector<ir::ValueId> inputs) {
    return before(node, {name, version}, std::move(inputs));
  };
  ir::ValueId x = node.input(0);
  if (node.input(3) != BELAY_NONE)
    x = before(node, {"Concat", 13, {}, {whole("axis", 2)}}, {node.input(3), x});
  else
    x = op("Pad", 13, {x, ints({0, 0, before_it, 0, 0, 0})});
  if (const ir::ValueId state = node.output(1); state != BELAY_NONE) {
    const ir::ValueId length = op("Slice", 13, {op("Shape", 15, {x}), ints({2}), ints({3})});
    const ir::ValueId first = op("Sub", 14, {length, ints({before_it})});
    ir::Node& slice = model_.add_node(graph_, "Slice", 13, node.name);
    slice.inputs = {x, first, length, ints({2})};
    slice.outputs = {state};
    append(slice);
  }
  node.outputs.resize(1);
  node.attributes.clear();
  node.set_int("group", weight.dims[0]);
  node.set_ints("dilations", {dilation});
  std::vector<ir::ValueId> inputs{x, node.input(1), node.input(2)};
  if (activation == "none") {
    become(node, "Conv", 11, std::move(inputs));
    return true;
  }
  const ir::ValueId y = before(node, {"Conv", 11, {}, take_attributes(node)}, std::move(inputs));
  become(node, "Mul", 14, {y, op("Sigmoid", 13, {y})});
  return true;
}

}  // namespace belay::passes
