// The plugin @ID@: a layer that counts the calls of every slot of every object that plugins make.
#include <belay/layer.hpp>

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace {

using belay::Status;

struct State {};  // what is kept of each object: nothing

class Counter : public belay::Layer<Counter, State> {
 public:
  Counter(const belay_host& host, uint64_t least) : Layer(host), least_(least) {}

  // Stands before every slot, on any thread: `call()` goes on to the one below and gives its answer.
  template <class Call>
  auto around(Call& call) {
    {
      const std::lock_guard lock(mutex_);
      ++calls_[{call.table, call.slot}];
    }
    return call();
  }

  // A line for each slot: "stream.copy 12".
  Status report(belay_sink sink) {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [slot, calls] : calls_)
        if (calls >= least_) text += slot.first + "." + slot.second + " " + std::to_string(calls) + "\n";
    }
    belay::write(sink, text);
    return {};
  }

 private:
  const uint64_t least_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, uint64_t> calls_;  // by table and slot
};

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::unique_ptr<Plugin>(new Plugin{host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    const uint64_t least = uint64_t(belay::Value(config)["least"].as_int(1));
    belay::give(out, std::make_unique<Counter>(host, least), Counter::table());
    return {};
  });
}

constexpr belay_component kComponent{.hdr = {sizeof(belay_component), 0, nullptr},
                                     .kind = belay::literal(BELAY_LAYER_KIND),
                                     .name = belay::literal("@ID@"),
                                     .score = nullptr,
                                     .create = create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "@ID@", "0.1.0", kComponents)
