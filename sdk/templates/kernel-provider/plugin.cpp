// The plugin @ID@: kernels for one operator, Relu of float32, on every device whose memory the host sees.
#include <belay/abi/kernel_provider.h>
#include <belay/graph/dtype.hpp>
#include <belay/graph/view.hpp>
#include <belay/plugin.hpp>

#include <algorithm>
#include <optional>
#include <string>

namespace {

using belay::Code;
using belay::Status;
using belay::graph::NodeView;
using belay::graph::View;

struct Provider {
  const belay_host& host;
  const uint32_t rank;  // among the providers for a device
};

// One Relu of known shape; what `prepare` makes and `release` ends.
struct Relu {
  uint64_t count;  // elements

  static constexpr uint64_t kPart = 1 << 14;  // elements that one thread does at a time

  static belay_status run(const belay_exec* exec, const void* state, const uint64_t* args) noexcept {
    struct Part {
      const float* from;
      float* to;
      uint64_t count;
    } all{reinterpret_cast<const float*>(args[0]), reinterpret_cast<float*>(args[1]),
          static_cast<const Relu*>(state)->count};
    exec->parallel_for(
        exec, (all.count + kPart - 1) / kPart,
        [](void* arg, uint64_t part) noexcept {
          const Part& all = *static_cast<Part*>(arg);
          const uint64_t end = std::min(all.count, (part + 1) * kPart);
          for (uint64_t i = part * kPart; i < end; ++i)
            all.to[i] = all.from[i] < 0 ? 0 : all.from[i];  // NaN stays
        },
        &all);
    return BELAY_OK;
  }
};

std::string name_of(const NodeView& node) {
  return std::string(node.op()) + "-" + std::to_string(node.version()) + " of domain '" +
         std::string(node.domain().empty() ? "ai.onnx" : node.domain()) + "'";
}

std::optional<uint64_t> elements_of(const View& view, uint32_t value) {
  const auto dims = view.shape(value);
  return dims ? belay::element_count(*dims) : std::nullopt;
}

// Why a node is not claimed; empty: it is.
std::string refusal(const View& view, const NodeView& node) {
  if (!node.domain().empty() || node.op() != "Relu") return "'@ID@' has Relu alone, not " + name_of(node);
  if (view.dtype(node.input(0)) != BELAY_DT_FLOAT32)
    return "'@ID@' has " + name_of(node) + " for float32 alone, not for " +
           std::string(belay::dtype_name(view.dtype(node.input(0))));
  if (node.output(0) == BELAY_NONE) return name_of(node) + " has no output that is wanted";
  if (!elements_of(view, node.input(0)))
    return "the dims of the input of " + name_of(node) + " depend on data";
  return "";
}

uint32_t serves(belay_obj* object, const belay_device_info* device) noexcept {
  return device->hdr.flags & BELAY_DEVICE_HOST_VISIBLE ? belay::self<Provider>(object).rank : 0;
}

belay_status claim(belay_obj* object, const belay_claim_req* req, const belay_claim_sink* sink) noexcept {
  return belay::guard(belay::self<Provider>(object).host, [&]() -> Status {
    const View view(req->image);
    const belay_list nodes = view.graphs()[req->graph].nodes;
    for (uint32_t index = nodes.first; index < nodes.first + nodes.count; ++index) {
      const NodeView node = view.node(index);
      if (const std::string reason = refusal(view, node); !reason.empty()) {
        sink->refuse(sink->user, index, belay::to_str(reason));
        continue;
      }
      const belay_in_place in_place{0, 0};
      belay_claim one{};
      one.hdr.struct_size = sizeof one;
      one.nodes = &index, one.node_count = 1;
      one.inputs = node.inputs().data(), one.input_count = 1;
      one.outputs = node.outputs().data(), one.output_count = 1;
      one.score = 500;  // as is usual for one node
      one.cost_ns = *elements_of(view, node.input(0)) / 4;
      one.in_place = &in_place, one.in_place_count = 1;
      sink->claim(sink->user, &one);
    }
    return {};
  });
}

belay_status prepare(belay_obj* object, const belay_prepare_req* req, belay_prepared* out) noexcept {
  return belay::guard(belay::self<Provider>(object).host, [&]() -> Status {
    const View view(req->image);
    const NodeView node = view.node(req->claim->nodes[0]);
    if (const std::string reason = refusal(view, node); !reason.empty())
      return {Code::kInvalidArgument, "No kernel can be prepared: " + reason + "."};
    auto relu = std::make_unique<Relu>(Relu{*elements_of(view, node.input(0))});
    out->kernel = {};
    out->kernel.hdr.struct_size = sizeof out->kernel;
    out->kernel.fn = Relu::run;
    out->kernel.state = relu.get();
    out->kernel.cost_ns = relu->count / 4;
    out->kernel.name = belay::literal("Relu");
    out->workspace_bytes = out->packed_bytes = out->unused_inputs = 0;
    out->implementation = belay::literal("@ID@:loop");
    out->reason = belay::literal("the only one of '@ID@'");
    out->handle = relu.release();
    return {};
  });
}

void release(belay_obj*, void* handle) noexcept { delete static_cast<Relu*>(handle); }
void destroy(belay_obj* object) noexcept { delete &belay::self<Provider>(object); }

constexpr belay_kernel_provider_vt kTable{.hdr = {sizeof(belay_kernel_provider_vt), 0, nullptr},
                                          .serves = serves,
                                          .claim = claim,
                                          .prepare = prepare,
                                          .release = release,
                                          .destroy = destroy};

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::unique_ptr<Plugin>(new Plugin{host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    const uint32_t rank = uint32_t(belay::Value(config)["rank"].as_int(600));
    belay::give(out, std::unique_ptr<Provider>(new Provider{host, rank}), kTable);
    return {};
  });
}

constexpr belay_component kComponent{.hdr = {sizeof(belay_component), 0, nullptr},
                                     .kind = belay::literal(BELAY_KERNEL_PROVIDER_KIND),
                                     .name = belay::literal("@ID@"),
                                     .score = nullptr,
                                     .create = create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "@ID@", "0.1.0", kComponents)
