// The plugin @ID@: diagnostics that count the records of a runtime by their kind and check one thing of the
// machine for `belay doctor`: that a process may have enough files open.
#include <belay/abi/diagnostics.h>
#include <belay/fill.hpp>
#include <belay/plugin.hpp>

#include <sys/resource.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

namespace {

using belay::Code;
using belay::Status;

constexpr std::array kKinds{"other", "operation", "copy", "alloc", "free", "wait", "load", "error", "range"};
static_assert(kKinds.size() == BELAY_TRACE_RANGE + 1);

// From open to close of the plugin.
struct Plugin {
  const belay_host& host;
  std::array<std::atomic<uint64_t>, kKinds.size()>
      counts{};  // of records, by BELAY_TRACE_...; 0: of no known kind

  explicit Plugin(const belay_host& from) : host(from) {}
  ~Plugin() {  // the host may still be called here, other than in `destroy` of an object
    const std::string text = std::to_string(total()) + " records were seen";
    host.log(&host, BELAY_LOG_INFO, belay::to_str(text));
  }
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::make_unique<Plugin>(host);
  }
  uint64_t total() const {
    uint64_t sum = 0;
    for (const auto& count : counts) sum += count.load(std::memory_order_relaxed);
    return sum;
  }
};

struct Diagnostics {
  Plugin& plugin;
  const uint64_t open_files;  // wanted
};

void on_records(belay_obj* object, const belay_trace_record* records, uint64_t count) noexcept {
  auto& counts = belay::self<Diagnostics>(object).plugin.counts;
  for (uint64_t i = 0; i < count; ++i)
    counts[records[i].kind < counts.size() ? records[i].kind : 0].fetch_add(1, std::memory_order_relaxed);
}

uint64_t check_count(belay_obj*) noexcept { return 1; }

Status check_index(uint64_t index) {
  if (index == 0) return {};
  return {Code::kOutOfRange, "There is no check " + std::to_string(index) + " of '@ID@', want 0."};
}

belay_status check_info(belay_obj* object, uint64_t index, belay_check_info* inout) noexcept {
  return belay::guard(belay::self<Diagnostics>(object).plugin.host, [&]() -> Status {
    BELAY_TRY(check_index(index));
    belay_check_info info{};
    info.name = belay::literal("@ID@.open-files");
    info.doc = belay::literal("A process may have enough files open.");
    belay::fill(inout, info);
    return {};
  });
}

belay_status run_check(belay_obj* object, uint64_t index, uint64_t* out_outcome, belay_sink text) noexcept {
  const Diagnostics& self = belay::self<Diagnostics>(object);
  return belay::guard(self.plugin.host, [&]() -> Status {
    BELAY_TRY(check_index(index));
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
      return {Code::kInternal,
              std::string("The limit of open files cannot be read: ") + std::strerror(errno) + "."};
    const bool enough = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= self.open_files;
    *out_outcome = enough ? BELAY_CHECK_PASSED : BELAY_CHECK_WARNING;
    belay::write(text, limit.rlim_cur == RLIM_INFINITY
                           ? std::string("any number of files may be open")
                           : std::to_string(limit.rlim_cur) + " files may be open");
    if (!enough)
      belay::write(text, ", want " + std::to_string(self.open_files) + ": raise it with ulimit -n");
    return {};
  });
}

belay_status dump(belay_obj* object, belay_str format, belay_sink sink) noexcept {
  const Diagnostics& self = belay::self<Diagnostics>(object);
  return belay::guard(self.plugin.host, [&]() -> Status {
    const std::string_view as = belay::to_view(format);
    if (as != "json" && as != "text")
      return {Code::kUnimplemented, "'@ID@' cannot write '" + std::string(as) + "', only json and text."};
    std::string out;
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      const std::string count = std::to_string(self.plugin.counts[kind].load(std::memory_order_relaxed));
      if (as == "json")
        out += std::string(out.empty() ? "{" : ", ") + "\"" + kKinds[kind] + "\": " + count;
      else
        out += std::string(kKinds[kind]) + " " + count + "\n";
    }
    belay::write(sink, as == "json" ? out + "}" : out);
    return {};
  });
}

void destroy(belay_obj* object) noexcept { delete &belay::self<Diagnostics>(object); }

constexpr belay_diagnostics_vt kTable{.hdr = {sizeof(belay_diagnostics_vt), 0, nullptr},
                                      .on_records = on_records,
                                      .check_count = check_count,
                                      .check_info = check_info,
                                      .run_check = run_check,
                                      .dump = dump,
                                      .flush = nullptr,
                                      .destroy = destroy};

belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) noexcept {
  Plugin& plugin = belay::state<Plugin>(ctx);
  return belay::guard(plugin.host, [&]() -> Status {
    const uint64_t files = uint64_t(belay::Value(config)["open_files"].as_int(256));
    belay::give(out, std::unique_ptr<Diagnostics>(new Diagnostics{plugin, files}), kTable);
    return {};
  });
}

constexpr belay_component kComponent{.hdr = {sizeof(belay_component), 0, nullptr},
                                     .kind = belay::literal(BELAY_DIAGNOSTICS_KIND),
                                     .name = belay::literal("@ID@"),
                                     .score = nullptr,
                                     .create = create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "@ID@", "0.1.0", kComponents)
