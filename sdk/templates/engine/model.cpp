#include "model.hpp"

#include "context.hpp"

#include <belay/fill.hpp>
#include <belay/graph/dtype.hpp>
#include <belay/graph/view.hpp>

using belay::Code;
using belay::Status;
using belay::graph::NodeView;
using belay::graph::View;

namespace {

// The text as JSON has it.
std::string json(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      constexpr const char* kDigits = "0123456789abcdef";
      out += std::string("\\u00") + kDigits[c >> 4] + kDigits[c & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

void read_port(const View& view, uint32_t value, Port& port) {
  port.value = value;
  port.name = view.string(view.values()[value].name);
  port.info.kind = BELAY_TYPE_TENSOR;
  port.info.dtype = BELAY_DT_FLOAT32;
  port.info.rank = BELAY_NONE;
  const belay_graph_type* type = view.type(value);
  if (type && type->shape != BELAY_NONE) {
    for (const belay_graph_dim& dim :
         view.dims(view.section<belay_graph_shape>(view.header().shapes)[type->shape].dims)) {
      port.dims.push_back(dim.value);
      port.symbols.emplace_back(view.string(dim.symbol));
    }
    for (const std::string& symbol : port.symbols) port.symbol_views.push_back(belay::to_str(symbol));
    port.info.rank = uint32_t(port.dims.size());
  }
  port.info.name = belay::to_str(port.name);
  port.info.dims = port.dims.data();
  port.info.symbols = port.symbol_views.data();
}

}  // namespace

Model::Model(const belay_host& from, const belay_load_req& req)
    : host(from),
      name(belay::to_string(req.name)),
      max_contexts_(uint64_t(belay::Value(req.options)["max_contexts"].as_int(16))),
      waits_(belay::Value(req.options)["contexts_full"].as_string("error") == "wait") {}

Status Model::read(belay_span image) {
  const uint64_t begin = host.now_ns(&host);
  const View view(image);
  const belay_graph_graph& main = view.graphs()[0];
  for (uint32_t i = main.nodes.first; i < main.nodes.first + main.nodes.count; ++i) {
    const NodeView node = view.node(i);
    const std::string who = "Node '" + std::string(node.name()) + "' of '" + name + "'";
    if (!node.domain().empty() || node.op() != "Relu")
      return {Code::kUnimplemented, who + " is " + std::string(node.op()) + "-" +
                                        std::to_string(node.version()) + " of domain '" +
                                        std::string(node.domain().empty() ? "ai.onnx" : node.domain()) +
                                        "'; the engine '@ID@' runs Relu alone."};
    if (node.output(0) == BELAY_NONE) continue;  // nobody wants it
    steps.push_back({node.input(0), node.output(0), who});
  }
  value_count = view.values().size();
  std::vector<bool> known(value_count, false);
  for (const uint32_t value : view.indices(main.inputs)) {
    const belay_graph_type* type = view.type(value);
    if (!type || type->kind != BELAY_TYPE_TENSOR || type->dtype != BELAY_DT_FLOAT32)
      return {Code::kUnimplemented, "Input '" + std::string(view.string(view.values()[value].name)) +
                                        "' of '" + name + "' is of type " +
                                        std::string(belay::dtype_name(view.dtype(value))) +
                                        "; the engine '@ID@' takes tensors of float32."};
    if (view.values()[value].constant != BELAY_NONE)
      return {Code::kUnimplemented, "Input '" + std::string(view.string(view.values()[value].name)) +
                                        "' of '" + name +
                                        "' has a default value; the engine '@ID@' knows no constants."};
    read_port(view, value, inputs.emplace_back());
    known[value] = true;
  }
  for (const Step& step : steps) {  // in topological order
    if (!known[step.from])
      return {Code::kUnimplemented, step.name + " reads a constant; the engine '@ID@' knows none."};
    known[step.to] = true;
  }
  for (const uint32_t value : view.indices(main.outputs)) {
    if (!known[value])
      return {Code::kUnimplemented, "Output '" + std::string(view.string(view.values()[value].name)) +
                                        "' of '" + name + "' is a constant; the engine '@ID@' knows none."};
    read_port(view, value, outputs.emplace_back());
  }
  create_ns_ = host.now_ns(&host) - begin;
  return {};
}

Status Model::take_context() {
  std::unique_lock lock(mutex_);
  if (waits_) given_back_.wait(lock, [&] { return contexts_ < max_contexts_; });
  if (contexts_ >= max_contexts_)
    return {Code::kResourceExhausted,
            "All " + std::to_string(max_contexts_) + " contexts of '" + name +
                "' are in use ([engine] max_contexts); destroy one, or run one after the other."};
  ++contexts_;
  return {};
}

void Model::give_back_context() {
  {
    const std::lock_guard lock(mutex_);
    --contexts_;
  }
  given_back_.notify_one();
}

void Model::fill(belay_executable_stats& all) {
  all.nodes = all.kernels = steps.size();
  all.plans = 1;
  {
    const std::lock_guard lock(mutex_);
    all.contexts = contexts_;
  }
  all.arena_bytes = all.live_bytes = arena_bytes;
  all.create_ns = create_ns_;
  all.runs = runs;
  all.input_bytes_copied = input_copied, all.input_bytes_shared = input_shared;
  all.output_bytes_copied = output_copied;
}

std::string Model::describe() const {
  std::string kernels;
  for (const Step& step : steps)
    kernels += std::string(kernels.empty() ? "" : ", ") + "{\"op\": \"Relu\", \"nodes\": " + json(step.name) +
               ", \"provider\": \"@ID@\", \"implementation\": \"loop\", \"reason\": \"the only one\"}";
  return "{\"engine\": \"@ID@\", \"kernels\": [" + kernels + "]}";
}

// ---- the table
// -----------------------------------------------------------------------------------------------------
namespace {

Model& at(belay_obj* object) { return belay::self<Model>(object); }

belay_status port_info(Model& model, const std::deque<Port>& ports, const char* what, uint64_t index,
                       belay_io_info* inout) {
  return belay::guard(model.host, [&]() -> Status {
    if (index >= ports.size())
      return {Code::kOutOfRange, std::string(what) + " " + std::to_string(index) + " is not there: '" +
                                     model.name + "' has " + std::to_string(ports.size()) + "."};
    belay::fill(inout, ports[index].info);
    return {};
  });
}

uint64_t input_count(belay_obj* object) noexcept { return at(object).inputs.size(); }
uint64_t output_count(belay_obj* object) noexcept { return at(object).outputs.size(); }
belay_status input_info(belay_obj* object, uint64_t index, belay_io_info* inout) noexcept {
  return port_info(at(object), at(object).inputs, "Input", index, inout);
}
belay_status output_info(belay_obj* object, uint64_t index, belay_io_info* inout) noexcept {
  return port_info(at(object), at(object).outputs, "Output", index, inout);
}
belay_status context(belay_obj* object, belay_created* out) noexcept {
  Model& model = at(object);
  return belay::guard(model.host, [&]() -> Status {
    auto made = std::make_unique<Context>(model);
    BELAY_TRY(made->begin());
    belay::give(out, std::move(made), Context::table());
    return {};
  });
}
belay_status stats(belay_obj* object, belay_executable_stats* inout) noexcept {
  return belay::guard(at(object).host, [&]() -> Status {
    belay_executable_stats all{};
    at(object).fill(all);
    belay::fill(inout, all);
    return {};
  });
}
belay_status describe(belay_obj* object, belay_sink sink) noexcept {
  return belay::guard(at(object).host, [&]() -> Status {
    belay::write(sink, at(object).describe());
    return {};
  });
}
void destroy(belay_obj* object) noexcept { delete &at(object); }

constexpr belay_executable_vt kTable{.hdr = {sizeof(belay_executable_vt), 0, nullptr},
                                     .input_count = input_count,
                                     .output_count = output_count,
                                     .input_info = input_info,
                                     .output_info = output_info,
                                     .context = context,
                                     .stats = stats,
                                     .describe = describe,
                                     .destroy = destroy};

}  // namespace

const belay_executable_vt& Model::table() { return kTable; }
