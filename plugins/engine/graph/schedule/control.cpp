// Loop, Scan and SequenceMap: their bodies are graphs of their own, planned and kept like any other.
#include "ir/infer.hpp"
#include "schedule/session.hpp"

#include <algorithm>
#include <cstring>

namespace belay::schedule {
namespace {

Result<bool> truth(Session& session, Value value) {
  BELAY_TRY(session.to_host(value));
  if (!value.is_tensor() || value.dtype != BELAY_DT_BOOL || value.count() != 1)
    return Status(Code::kInvalidArgument,
                  "The condition is " + ir::to_string(value.type()) + ", want one bool.");
  return *static_cast<const uint8_t*>(value.host) != 0;
}

// What an iteration would have made of `inputs`: the shape of a result that no iteration made.
ir::Type type_of_none(Session& session, Frame& frame, ir::GraphId body, std::span<const Value> inputs,
                      ir::ValueId output) {
  const ir::Model& model = session.shared().model;
  ir::Env env(model);
  const ir::Graph& graph = model.graphs[body];
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const bool given = i < inputs.size() && inputs[i].kind;
    env.types[graph.inputs[i]] = given ? inputs[i].type() : model.values[graph.inputs[i]].type;
  }
  for (const ir::ValueId capture : session.shared().captures[body])
    if (const Value& value = frame.get(capture); value.kind) env.types[capture] = value.type();
  if (!ir::infer_graph(env, body).ok() || !env.type(output).is_tensor()) return model.values[output].type;
  return env.type(output);
}

// Results of iterations, stacked along a new axis. No model has a sequence here: what is declared one is a value that
// somebody looks at, which need not have one shape in all iterations, nor be a tensor.
Result<Value> stack(Session& session, Frame& frame, std::vector<Value>& parts, ir::GraphId body,
                    std::span<const Value> inputs, ir::ValueId output, int64_t axis, ir::ValueId result) {
  if (result != BELAY_NONE && session.shared().model.values[result].type.kind == BELAY_TYPE_SEQUENCE)
    return make_sequence(std::move(parts));
  if (!parts.empty()) {
    for (Value& part : parts) BELAY_TRY(session.to_host(part));
    return join(session.pool(), parts, axis, true);
  }
  const ir::Type type = type_of_none(session, frame, body, inputs, output);
  ir::Dims dims;
  for (const int64_t dim : type.dims) dims.push_back(std::max<int64_t>(dim, 0));
  const int64_t rank = int64_t(dims.size());
  dims.insert(dims.begin() + std::clamp<int64_t>(axis < 0 ? axis + rank + 1 : axis, 0, rank), 0);
  return make_tensor(session.pool(), type.dtype ? type.dtype : uint32_t(BELAY_DT_FLOAT32), std::move(dims));
}

Status run_loop(const ir::Node& node, Session& session, Frame& frame, std::vector<Value>& outputs) {
  const ir::GraphId body = node.graph_or_none("body");
  const ir::Graph& graph = session.shared().model.graphs[body];
  const size_t state_count = node.inputs.size() > 2 ? node.inputs.size() - 2 : 0;
  if (graph.inputs.size() != state_count + 2 || graph.outputs.size() < state_count + 1)
    return {Code::kInvalidArgument, "The body takes " + std::to_string(graph.inputs.size()) +
                                        " inputs, the node carries " + std::to_string(state_count) +
                                        " values."};
  int64_t most = INT64_MAX;
  if (node.input(0) != BELAY_NONE) {
    Value limit = frame.get(node.input(0));
    BELAY_TRY(session.to_host(limit));
    if (limit.dtype != BELAY_DT_INT64 || limit.count() != 1)
      return {Code::kInvalidArgument,
              "The trip count is " + ir::to_string(limit.type()) + ", want one int64."};
    std::memcpy(&most, limit.host, sizeof most);
  }
  bool going = true;
  if (node.input(1) != BELAY_NONE) {
    BELAY_ASSIGN(going, truth(session, frame.get(node.input(1))));
  }
  std::vector<Value> inputs(2);
  for (size_t i = 0; i < state_count; ++i) inputs.push_back(frame.get(node.inputs[i + 2]));
  std::vector<std::vector<Value>> scans(graph.outputs.size() - 1 - state_count);
  for (int64_t trip = 0; going && trip < most; ++trip) {
    BELAY_ASSIGN(inputs[0], make_tensor(session.pool(), BELAY_DT_INT64, {}));
    std::memcpy(inputs[0].host, &trip, sizeof trip);
    BELAY_ASSIGN(inputs[1], make_tensor(session.pool(), BELAY_DT_BOOL, {}));
    *static_cast<uint8_t*>(inputs[1].host) = 1;
    BELAY_ASSIGN(std::vector<Value> made, session.call(body, inputs, frame));
    BELAY_ASSIGN(going, truth(session, made[0]));
    for (size_t i = 0; i < state_count; ++i) inputs[i + 2] = std::move(made[i + 1]);
    for (size_t i = 0; i < scans.size(); ++i) scans[i].push_back(std::move(made[1 + state_count + i]));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (i < state_count) {
      outputs[i] = inputs[i + 2];
    } else if (i - state_count < scans.size() && node.outputs[i] != BELAY_NONE) {
      BELAY_ASSIGN(outputs[i],
                   stack(session, frame, scans[i - state_count], body, inputs, graph.outputs[i + 1], 0,
                         node.outputs[i]));
    }
  }
  return {};
}

int64_t entry(const ir::Node& node, const char* name, size_t i, int64_t otherwise) {
  const auto* values = node.ints(name);
  return values && i < values->size() ? (*values)[i] : otherwise;
}

// One pass over sequences: `states` and `scans` are inputs, results go to `outputs` (states, then stacked
// scans).
Status scan_once(const ir::Node& node, Session& session, Frame& frame, std::vector<Value> states,
                 std::vector<Value> scans, int64_t length, bool batched, std::vector<Value>& outputs) {
  const ir::GraphId body = node.graph_or_none("body");
  const ir::Graph& graph = session.shared().model.graphs[body];
  std::vector<int64_t> axes(scans.size(), 0);
  for (size_t i = 0; i < scans.size(); ++i) {
    BELAY_TRY(session.to_host(scans[i]));
    const int64_t rank = int64_t(scans[i].dims.size());
    if (!batched) axes[i] = entry(node, "scan_input_axes", i, 0);
    if (axes[i] < 0) axes[i] += rank;
    if (axes[i] < 0 || axes[i] >= rank)
      return {Code::kInvalidArgument, "Scan input " + std::to_string(i) + " has no axis to scan."};
    const int64_t dim = scans[i].dims[size_t(axes[i])];
    if (length < 0) length = dim;
    if (dim < length || (!batched && dim != length))
      return {Code::kInvalidArgument, "Scan inputs have different lengths."};
  }
  const size_t out_scans = graph.outputs.size() - states.size();
  std::vector<std::vector<Value>> parts(out_scans);
  const char* in_directions = batched ? "directions" : "scan_input_directions";
  for (int64_t step = 0; step < length; ++step) {
    std::vector<Value> inputs = states;
    for (size_t i = 0; i < scans.size(); ++i) {
      const int64_t at = entry(node, in_directions, i, 0) ? length - 1 - step : step;
      BELAY_ASSIGN(Value part, cut(session.pool(), scans[i], axes[i], at, at + 1, true));
      inputs.push_back(std::move(part));
    }
    BELAY_ASSIGN(std::vector<Value> made, session.call(body, inputs, frame));
    for (size_t i = 0; i < states.size(); ++i) states[i] = std::move(made[i]);
    for (size_t i = 0; i < out_scans; ++i) {
      const bool back = !batched && entry(node, "scan_output_directions", i, 0);
      parts[i].insert(back ? parts[i].begin() : parts[i].end(), std::move(made[states.size() + i]));
    }
  }
  const std::vector<Value> last = states;
  outputs = std::move(states);
  for (size_t i = 0; i < out_scans; ++i) {
    const int64_t axis = batched ? 0 : entry(node, "scan_output_axes", i, 0);
    const ir::ValueId result = batched ? ir::ValueId{BELAY_NONE} : node.output(outputs.size());
    BELAY_ASSIGN(Value out,
                 stack(session, frame, parts[i], body, last, graph.outputs[outputs.size()], axis, result));
    outputs.push_back(std::move(out));
  }
  return {};
}

Status run_scan(const ir::Node& node, Session& session, Frame& frame, std::vector<Value>& outputs) {
  const bool batched =
      node.version < 9;  // version 8 has a batch axis in front, and lengths as its first input
  const size_t first = batched ? 1 : 0,
               scan_count = size_t(std::max<int64_t>(0, node.int_or("num_scan_inputs", 0)));
  if (node.inputs.size() < first + scan_count || !scan_count)
    return {Code::kInvalidArgument, "It has too few inputs."};
  const size_t state_count = node.inputs.size() - first - scan_count;
  const ir::GraphId body = node.graph_or_none("body");
  if (session.shared().model.graphs[body].outputs.size() < state_count)
    return {Code::kInvalidArgument, "The body has too few outputs."};
  std::vector<Value> states, scans;
  for (size_t i = 0; i < node.inputs.size() - first; ++i) {
    Value value = frame.get(node.inputs[first + i]);
    BELAY_TRY(session.to_host(value));
    (i < state_count ? states : scans).push_back(std::move(value));
  }
  std::vector<Value> results;
  if (!batched) {
    BELAY_TRY(scan_once(node, session, frame, std::move(states), std::move(scans), -1, false, results));
  } else {
    if (scans[0].dims.size() < 2) return {Code::kInvalidArgument, "A scan input has no batch axis."};
    const int64_t batch = scans[0].dims[0], longest = scans[0].dims[1];
    Value lengths = frame.get(node.inputs[0]);
    BELAY_TRY(session.to_host(lengths));
    std::vector<std::vector<Value>> by_output;
    for (int64_t b = 0; b < batch; ++b) {
      const auto at = [&](const std::vector<Value>& from) -> Result<std::vector<Value>> {
        std::vector<Value> out;
        for (const Value& value : from) {
          if (value.dims.empty() || value.dims[0] != batch)
            return Status(Code::kInvalidArgument, "Inputs have different batch sizes.");
          BELAY_ASSIGN(Value part, cut(session.pool(), value, 0, b, b + 1, true));
          out.push_back(std::move(part));
        }
        return out;
      };
      int64_t length = longest;
      if (lengths.kind && lengths.dtype == BELAY_DT_INT64 && int64_t(lengths.count()) > b)
        std::memcpy(&length, static_cast<const char*>(lengths.host) + b * 8, 8);
      if (length < 0 || length > longest)
        return {Code::kInvalidArgument,
                "Length " + std::to_string(length) + " is not in [0, " + std::to_string(longest) + "]."};
      BELAY_ASSIGN(std::vector<Value> own_states, at(states));
      BELAY_ASSIGN(std::vector<Value> own_scans, at(scans));
      std::vector<Value> made;
      BELAY_TRY(
          scan_once(node, session, frame, std::move(own_states), std::move(own_scans), length, true, made));
      by_output.resize(made.size());
      for (size_t i = 0; i < made.size(); ++i) {
        Value& value = made[i];
        BELAY_TRY(session.to_host(value));
        if (i >= state_count && value.dims[0] < longest) {  // what lies beyond the length is zero
          ir::Dims dims = value.dims;
          dims[0] = longest;
          BELAY_ASSIGN(Value whole, make_tensor(session.pool(), value.dtype, std::move(dims)));
          std::memset(whole.host, 0, whole.bytes);
          if (value.bytes) std::memcpy(whole.host, value.host, value.bytes);
          if (value.dtype == BELAY_DT_STRING) whole.keeper = std::make_shared<const Value>(value);
          value = std::move(whole);
        }
        by_output[i].push_back(std::move(value));
      }
    }
    for (std::vector<Value>& parts : by_output) {
      BELAY_ASSIGN(Value whole, join(session.pool(), parts, 0, true));
      results.push_back(std::move(whole));
    }
  }
  for (size_t i = 0; i < outputs.size() && i < results.size(); ++i) outputs[i] = std::move(results[i]);
  return {};
}

Status run_sequence_map(const ir::Node& node, Session& session, Frame& frame, std::vector<Value>& outputs) {
  const ir::GraphId body = node.graph_or_none("body");
  std::vector<Value> all;
  for (const ir::ValueId id : node.inputs) all.push_back(frame.get(id));
  if (all.empty() || all[0].kind != BELAY_TYPE_SEQUENCE)
    return {Code::kInvalidArgument, "The first input is no sequence."};
  const size_t count = all[0].items ? all[0].items->size() : 0;
  std::vector<std::vector<Value>> made(outputs.size());
  for (size_t i = 0; i < count; ++i) {
    std::vector<Value> inputs;
    for (const Value& value : all) {
      if (value.kind == BELAY_TYPE_SEQUENCE && (!value.items || value.items->size() != count))
        return {Code::kInvalidArgument, "The sequences have different lengths."};
      inputs.push_back(value.kind == BELAY_TYPE_SEQUENCE ? (*value.items)[i] : value);
    }
    BELAY_ASSIGN(std::vector<Value> results, session.call(body, inputs, frame));
    for (size_t k = 0; k < made.size() && k < results.size(); ++k) made[k].push_back(std::move(results[k]));
  }
  for (size_t k = 0; k < made.size(); ++k) outputs[k] = make_sequence(std::move(made[k]));
  return {};
}

}  // namespace

std::optional<Status> run_control_op(const ir::Node& node, Session& session, Frame& frame,
                                     std::vector<Value>& outputs) {
  if (node.graph_or_none("body") == BELAY_NONE) return Status(Code::kInvalidArgument, "Its body is missing.");
  if (node.op == "Loop") return run_loop(node, session, frame, outputs);
  if (node.op == "Scan") return run_scan(node, session, frame, outputs);
  if (node.op == "SequenceMap") return run_sequence_map(node, session, frame, outputs);
  return std::nullopt;
}

}  // namespace belay::schedule
