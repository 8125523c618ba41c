// The plugin `zerocopy`: a memory policy that has host memory used where it lies as memory of a device, and
// says why where it cannot be.
#include <belay/fill.hpp>
#include <belay/plugin.hpp>

#include <belay/abi/memory_policy.h>

#include <bit>
#include <cstdio>

namespace {

struct Policy {
  const belay_host& host;
  uint64_t least;
  bool written;
};

uint64_t serves(belay_obj*) noexcept { return BELAY_POLICY_BIND; }

std::string hex(uint64_t address) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

// Why memory must be copied, as what follows "because"; empty: it is shared.
std::string reason_to_copy(const Policy& policy, const belay_bind_req& req) {
  if (!(req.device_flags & BELAY_DEVICE_BINDS_HOST))
    return "the device does not address host memory: its flags are " + std::to_string(req.device_flags) +
           ", without BINDS_HOST (" + std::to_string(BELAY_DEVICE_BINDS_HOST) + ")";
  if (req.alignment > 1 && req.address % req.alignment)
    return "its address " + hex(req.address) + " is not aligned to " + std::to_string(req.alignment) +
           " bytes, as its user wants";
  if ((req.access & BELAY_ACCESS_WRITE) && !policy.written)
    return "it is written, and plugin.zerocopy.config.written is false";
  if (req.bytes < policy.least)
    return "it has " + std::to_string(req.bytes) + " bytes, fewer than the " + std::to_string(policy.least) +
           " of plugin.zerocopy.config.least";
  return {};
}

belay_status bind(belay_obj* object, const belay_bind_req* req, belay_bound* bound) noexcept {
  const Policy& policy = belay::self<Policy>(object);
  return belay::guard(policy.host, [&]() -> belay::Status {
    const auto wrong = [&](const std::string& text) {
      return belay::Status(belay::Code::kInvalidArgument, "Host memory of " + std::to_string(req->bytes) +
                                                              " bytes at " + hex(req->address) + ": " + text);
    };
    if (req->alignment && !std::has_single_bit(req->alignment))
      return wrong("alignment is " + std::to_string(req->alignment) + ", want a power of two.");
    if (!req->address && req->bytes) return wrong("there is no memory at NULL.");
    if (req->address + req->bytes < req->address) return wrong("it ends past the last address.");
    const std::string reason = reason_to_copy(policy, *req);
    bound->mode = reason.empty() ? BELAY_BIND_SHARE : BELAY_BIND_COPY;
    if (bound->reason.write) belay::write(bound->reason, reason);
    return {};
  });
}

// It holds no memory at all.
belay_status stats(belay_obj*, belay_policy_stats* inout) noexcept {
  belay::fill(inout, belay_policy_stats{});
  return BELAY_OK;
}

void destroy(belay_obj* object) noexcept { delete &belay::self<Policy>(object); }

constexpr belay_memory_policy_vt kTable{.hdr = {sizeof(belay_memory_policy_vt), 0, nullptr},
                                        .serves = serves,
                                        .plan = nullptr,
                                        .place = nullptr,
                                        .release = nullptr,
                                        .segment_add = nullptr,
                                        .segment_remove = nullptr,
                                        .trim = nullptr,
                                        .bind = bind,
                                        .stats = stats,
                                        .destroy = destroy,
                                        .snapshot = nullptr};

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::make_unique<Plugin>(Plugin{host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> belay::Status {
    const belay::Value keys(config);
    const int64_t least = keys["least"].as_int(0);
    belay::give(out,
                std::make_unique<Policy>(
                    Policy{host, least < 0 ? 0 : uint64_t(least), keys["written"].as_bool(true)}),
                kTable);
    return {};
  });
}

constexpr belay_component kComponent{{sizeof(belay_component), 0, nullptr},
                                     belay::literal(BELAY_MEMORY_POLICY_KIND),
                                     belay::literal("zerocopy"),
                                     nullptr,
                                     create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "zerocopy", "0.1.0", kComponents)
