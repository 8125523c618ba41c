#include "node_runner.hpp"

#include "heavy/micro.hpp"

#include "convert.hpp"
#include "provider.hpp"

#include <belay/abi/kernel_provider.h>
#include <belay/graph/verify.hpp>
#include <belay/graph/view.hpp>

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

namespace belay::cpu::testing {
namespace {

// Memory at 64 bytes with a guard on both sides that is looked at when it is freed.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes), all_(bytes + 192, char(0xA5)) {
    at_ = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(all_.data()) + 64 + 63) / 64 * 64);
  }
  explicit Guarded(const std::string& bytes) : Guarded(bytes.size()) {
    std::memcpy(at_, bytes.data(), bytes.size());
  }
  char* data() const { return at_; }
  std::string bytes() const { return {at_, bytes_}; }
  bool intact() const {
    for (const char* p = all_.data(); p < at_; ++p)
      if (*p != char(0xA5)) return false;
    for (const char* p = at_ + bytes_; p < all_.data() + all_.size(); ++p)
      if (*p != char(0xA5)) return false;
    return true;
  }

 private:
  size_t bytes_;
  std::vector<char> all_;
  char* at_;
};

// The surroundings of a kernel: real threads, scratch that is freed at the end, outputs by shape.
struct Exec {
  belay_exec raw{};
  std::vector<std::unique_ptr<Guarded>> scratch;
  std::mutex mutex;
  std::vector<uint32_t> out_dtypes;
  std::vector<std::vector<int64_t>> out_dims;
  std::vector<std::unique_ptr<Guarded>> out_memory;
  std::string message;

  Exec(uint32_t threads, size_t outputs) : out_dtypes(outputs), out_dims(outputs), out_memory(outputs) {
    raw.hdr.struct_size = sizeof raw;
    raw.user = this;
    raw.threads = threads;
    raw.parallel_for = [](const belay_exec* exec, uint64_t count, void (*body)(void*, uint64_t), void* arg) {
      std::atomic<uint64_t> next{0};
      const auto work = [&] {
        for (uint64_t i; (i = next.fetch_add(1)) < count;) body(arg, i);
      };
      std::vector<std::thread> helpers;
      for (uint32_t t = 1; t < exec->threads; ++t) helpers.emplace_back(work);
      work();
      for (std::thread& helper : helpers) helper.join();
    };
    raw.scratch = [](const belay_exec* exec, uint64_t bytes) -> void* {
      Exec& self = *static_cast<Exec*>(exec->user);
      std::lock_guard lock(self.mutex);
      self.scratch.push_back(std::make_unique<Guarded>(bytes));
      return self.scratch.back()->data();
    };
    raw.output = [](const belay_exec* exec, uint64_t index, const int64_t* dims, uint32_t rank) -> void* {
      Exec& self = *static_cast<Exec*>(exec->user);
      self.out_dims[index].assign(dims, dims + rank);
      int64_t count = 1;
      for (uint32_t d = 0; d < rank; ++d) count *= dims[d];
      self.out_memory[index] =
          std::make_unique<Guarded>(dtype_bytes(self.out_dtypes[index], uint64_t(count)).value_or(0));
      return self.out_memory[index]->data();
    };
    raw.fail = [](const belay_exec* exec, uint32_t code, belay_str message) -> belay_status {
      static_cast<Exec*>(exec->user)->message = to_string(message);
      return code;
    };
  }
};

struct Claims {
  bool found = false;
  belay_claim claim{};
  std::vector<uint32_t> nodes, inputs, outputs;
  std::vector<belay_in_place> in_place;
  std::string refusal;

  belay_claim_sink sink() {
    return {this,
            [](void* user, const belay_claim* from) BELAY_NOEXCEPT {
              Claims& self = *static_cast<Claims*>(user);
              self.found = true;
              self.claim = *from;
              self.nodes.assign(from->nodes, from->nodes + from->node_count);
              self.inputs.assign(from->inputs, from->inputs + from->input_count);
              self.outputs.assign(from->outputs, from->outputs + from->output_count);
              self.in_place.assign(from->in_place, from->in_place + from->in_place_count);
              self.claim.nodes = self.nodes.data();
              self.claim.inputs = self.inputs.data();
              self.claim.outputs = self.outputs.data();
              self.claim.in_place = self.in_place.data();
            },
            [](void* user, uint32_t, belay_str reason)
                BELAY_NOEXCEPT { static_cast<Claims*>(user)->refusal = to_string(reason); }};
  }
};

struct Harness {
  belay::testing::FakeHost host;
  PluginState state;
  belay_created created{};
  belay_obj object{};
  const belay_kernel_provider_vt* table;

  Harness() {
    state.host = &host;
    created.hdr.struct_size = sizeof created;
    const belay_component* component = belay_cpu_kernel_provider_component();
    if (component->create(reinterpret_cast<belay_ctx*>(&state), nullptr, &created) != BELAY_OK) std::abort();
    object = {BELAY_OBJ_MAGIC, BELAY_OBJ_KERNEL_PROVIDER, 1, created.table, created.impl, {}};
    table = static_cast<const belay_kernel_provider_vt*>(created.table);
  }
  ~Harness() { table->destroy(&object); }
};

Harness& harness() {
  static Harness harness;
  return harness;
}

}  // namespace

std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> out(size_t(tensor.count()));
  dispatch<kNumeric | kBool>(tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (size_t i = 0; i < out.size(); ++i) {
      T value;
      std::memcpy(&value, tensor.bytes.data() + i * sizeof(T), sizeof(T));
      out[i] = double(Compute<T>::load(value));
    }
  });
  return out;
}

Tensor tensor_of(uint32_t dtype, std::vector<int64_t> dims, const std::vector<double>& values) {
  Tensor out{dtype, std::move(dims), {}};
  dispatch<kNumeric | kBool>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const double value : values) {
      const T typed = from_double<T>(value);
      out.bytes.append(reinterpret_cast<const char*>(&typed), sizeof(T));
    }
  });
  return out;
}

std::vector<double> numbers(int64_t count, double low, double high, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> out(size_t(count), 0.0);
  for (double& value : out) value = low + (high - low) * double(random()) / 4294967296.0;
  return out;
}

Tensor bytes(uint32_t dtype, const std::vector<int64_t>& dims, uint32_t seed) {
  const double low = dtype == BELAY_DT_INT8 ? -128 : 0;
  std::vector<double> values = numbers(count_of(dims), low, low + 255.99, seed);
  for (double& v : values) v = std::floor(v);
  return tensor_of(dtype, dims, values);
}

Node& Node::attr(std::string name, int64_t value) {
  attributes_.push_back([=](graph::Builder& b, uint32_t node) { b.set_int(node, name, value); });
  return *this;
}
Node& Node::attr(std::string name, float value) {
  attributes_.push_back([=](graph::Builder& b, uint32_t node) { b.set_float(node, name, value); });
  return *this;
}
Node& Node::attr(std::string name, const char* value) {
  attributes_.push_back(
      [=, text = std::string(value)](graph::Builder& b, uint32_t node) { b.set_string(node, name, text); });
  return *this;
}
Node& Node::attr(std::string name, std::vector<int64_t> value) {
  attributes_.push_back([=](graph::Builder& b, uint32_t node) { b.set_ints(node, name, value); });
  return *this;
}
Node& Node::attr(std::string name, std::vector<float> value) {
  attributes_.push_back([=](graph::Builder& b, uint32_t node) { b.set_floats(node, name, value); });
  return *this;
}
Node& Node::attr(std::string name, std::vector<std::string> value) {
  attributes_.push_back([=](graph::Builder& b, uint32_t node) {
    const std::vector<std::string_view> views(value.begin(), value.end());
    b.set_strings(node, name, views);
  });
  return *this;
}
Node& Node::attr(std::string name, Tensor value) {
  attributes_.push_back([=](graph::Builder& b, uint32_t node) {
    b.set_tensor(node, name,
                 b.add_constant("", value.dtype, value.dims, {value.bytes.data(), value.bytes.size()}));
  });
  return *this;
}

Outcome Node::run(const Way& way, const std::vector<Tensor>* known) const {
  Harness& h = harness();
  graph::Builder builder;
  std::vector<uint32_t> inputs, outputs;
  std::vector<std::unique_ptr<Guarded>> memory;
  for (const auto& input : inputs_) {
    memory.push_back(input ? std::make_unique<Guarded>(input->bytes) : nullptr);
    if (!input) {
      inputs.push_back(BELAY_NONE);
      continue;
    }
    inputs.push_back(
        builder.add_value(0, "in" + std::to_string(inputs.size()),
                          builder.tensor_type(input->dtype, std::span<const int64_t>(input->dims))));
    builder.add_input(0, inputs.back());
  }
  const std::vector<uint32_t> out_types =
      outputs_.empty() ? std::vector<uint32_t>{inputs_[0]->dtype} : outputs_;
  for (size_t o = 0; o < out_types.size(); ++o) {
    if (out_types[o] == BELAY_DT_UNDEFINED) {
      outputs.push_back(BELAY_NONE);
      continue;
    }
    const uint32_t type = way.shapes
                              ? builder.tensor_type(out_types[o], std::span<const int64_t>((*known)[o].dims))
                              : builder.tensor_type(out_types[o], std::nullopt);
    outputs.push_back(builder.add_value(0, "out" + std::to_string(o), type));
    builder.add_output(0, outputs.back());
  }
  const uint32_t node = builder.add_node(0, domain_, op_, version_, "n", inputs, outputs);
  for (const auto& set : attributes_) set(builder, node);
  Result<std::string> image = builder.freeze();
  if (!image.ok()) return {image.status(), {}};
  const belay_span span{image->data(), image->size()};
  if (Status status = graph::verify(span); !status.ok()) return {status, {}};
  const graph::View view(span);

  belay_device_info device{};
  device.hdr = {sizeof device, BELAY_DEVICE_HOST_VISIBLE, nullptr};
  device.driver = to_str("cpu");
  std::vector<const void*> constants(view.values().size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] != BELAY_NONE && (way.constants || fixed_.contains(i))) constants[inputs[i]] = memory[i]->data();

  belay_claim_req claim_req{};
  claim_req.hdr.struct_size = sizeof claim_req;
  claim_req.image = span;
  claim_req.device = &device;
  claim_req.constants = constants.data();
  Claims claims;
  const belay_claim_sink sink = claims.sink();
  if (const belay_status raw = h.table->claim(&h.object, &claim_req, &sink)) return {from_c(h.host, raw), {}};
  if (!claims.found) return {{Code::kUnimplemented, claims.refusal}, {}};
  if (way.host_constants)
    for (size_t i = 0; i < inputs.size(); ++i)
      if (claims.claim.host_inputs >> i & 1) constants[inputs[i]] = memory[i]->data();

  belay_prepare_req prepare_req{};
  prepare_req.hdr.struct_size = sizeof prepare_req;
  prepare_req.image = span;
  prepare_req.threads = way.threads;
  prepare_req.claim = &claims.claim;
  prepare_req.device = &device;
  prepare_req.constants = constants.data();
  prepare_req.precision = precision_;
  belay_prepared prepared{};
  prepared.hdr.struct_size = sizeof prepared;
  if (const belay_status raw = h.table->prepare(&h.object, &prepare_req, &prepared))
    return {from_c(h.host, raw), {}};
  std::unique_ptr<void, std::function<void(void*)>> handle(prepared.handle,
                                                           [&](void* p) { h.table->release(&h.object, p); });

  Exec exec(way.threads, outputs.size());
  const bool writes_shape = (prepared.kernel.hdr.flags & BELAY_KERNEL_WRITES_SHAPE) != 0;
  std::vector<uint64_t> args;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool unused = prepared.unused_inputs >> i & 1;
    args.push_back(memory[i] && !unused ? reinterpret_cast<uint64_t>(memory[i]->data()) : 0);
  }
  std::vector<Guarded*> in_place_of(outputs.size(), nullptr);
  for (size_t o = 0; o < outputs.size(); ++o) {
    exec.out_dtypes[o] = out_types[o];
    if (known) exec.out_dims[o] = (*known)[o].dims;
    if (outputs[o] == BELAY_NONE || writes_shape) {
      args.push_back(0);
      continue;
    }
    if (way.in_place)
      for (const belay_in_place& pair : claims.in_place)
        if (pair.output == o && !in_place_of[o]) in_place_of[o] = memory[pair.input].get();
    if (in_place_of[o]) {
      args.push_back(reinterpret_cast<uint64_t>(in_place_of[o]->data()));
      continue;
    }
    exec.out_memory[o] = std::make_unique<Guarded>((*known)[o].bytes.size());
    args.push_back(reinterpret_cast<uint64_t>(exec.out_memory[o]->data()));
  }
  Guarded workspace(prepared.workspace_bytes);
  if (prepared.workspace_bytes) args.push_back(reinterpret_cast<uint64_t>(workspace.data()));

  const belay_status status = prepared.kernel.fn(&exec.raw, prepared.kernel.state, args.data());
  if (status != BELAY_OK) return {{Code(BELAY_STATUS_CODE(status)), exec.message}, {}};
  Outcome outcome;
  outcome.implementation = to_string(prepared.implementation);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] == BELAY_NONE) {
      outcome.outputs.emplace_back();
      continue;
    }
    Guarded* at = in_place_of[o] ? in_place_of[o] : exec.out_memory[o].get();
    if (!at) return {{Code::kInternal, "Output " + std::to_string(o) + " was not given."}, {}};
    outcome.outputs.push_back({exec.out_dtypes[o], exec.out_dims[o], at->bytes()});
    EXPECT_TRUE(at->intact()) << op_ << " wrote outside of output " << o;
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!memory[i]) continue;
    EXPECT_TRUE(memory[i]->intact()) << op_ << " wrote outside of input " << i;
    if (std::find(in_place_of.begin(), in_place_of.end(), memory[i].get()) == in_place_of.end()) {
      EXPECT_EQ(memory[i]->bytes(), inputs_[i]->bytes) << op_ << " wrote to input " << i;
    }
  }
  EXPECT_TRUE(workspace.intact()) << op_ << " wrote outside of its workspace";
  for (const auto& s : exec.scratch)
    EXPECT_TRUE(s->intact()) << op_ << " wrote outside of its scratch memory";
  return outcome;
}

Outcome Node::run_once() const {
  return run({false, precision_ != BELAY_PRECISION_FLOAT32, true, false, 1}, nullptr);
}

Outcome Node::run() const {
  const Outcome first = run_once();
  if (!first.status.ok()) return first;
  const struct {
    const char* name;
    Way way;
  } ways[] = {
      {"known shapes", {true, false, true, false, 1}},
      {"two threads", {true, false, true, false, 2}},
      {"constant inputs", {true, true, true, false, 1}},
      {"constant inputs, unknown shapes", {false, true, true, false, 2}},
      {"host inputs that come late", {true, false, false, false, 1}},
      {"host inputs that come late, unknown shapes", {false, false, false, false, 1}},
      {"in place", {true, false, true, true, 2}},
  };
  for (const auto& [name, way] : ways) {
    Way now = way;
    now.constants = now.constants || precision_ != BELAY_PRECISION_FLOAT32;
    const Outcome again = run(now, &first.outputs);
    EXPECT_TRUE(again.status.ok()) << op_ << ", " << name << ": " << again.status.message();
    if (!again.status.ok()) continue;
    for (size_t o = 0; o < first.outputs.size(); ++o)
      EXPECT_TRUE(again.outputs[o] == first.outputs[o])
          << op_ << ", " << name << ": output " << o << " differs";
  }
  return first;
}

void each_micro(const std::function<void()>& f) {
  const Micro& best = micro();
  for (const Micro* level : {&kMicroSse2, &kMicroAvx2, &kMicroAvx512}) {
    ::testing::ScopedTrace trace(__FILE__, __LINE__, level->name);
    use_micro(*level);
    f();
    if (level == &best) break;  // the CPU has no higher one
  }
  use_micro(best);
}

::testing::AssertionResult close(const Tensor& actual, const Tensor& expected, double rtol, double atol) {
  if (actual.dtype != expected.dtype)
    return ::testing::AssertionFailure()
           << "type " << dtype_name(actual.dtype) << ", want " << dtype_name(expected.dtype);
  if (actual.dims != expected.dims)
    return ::testing::AssertionFailure()
           << "shape " << text_of(actual.dims) << ", want " << text_of(expected.dims);
  const std::vector<double> a = values_of(actual), e = values_of(expected);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i])) ||
                      std::fabs(a[i] - e[i]) <= atol + rtol * std::fabs(e[i]);
    if (!same)
      return ::testing::AssertionFailure()
             << "element " << i << " of " << a.size() << " is " << a[i] << ", want " << e[i];
  }
  if (rtol == 0 && atol == 0 && element_bytes(actual.dtype) == 8 && !(type_bit(actual.dtype) & kFloats) &&
      actual.bytes != expected.bytes)
    return ::testing::AssertionFailure() << "64-bit integers differ in bits that a double does not hold";
  return ::testing::AssertionSuccess();
}

Tensor result(const Node& node) {
  Outcome outcome = node.run();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  return outcome.status.ok() ? std::move(outcome.outputs[0]) : Tensor{};
}

std::string failure(const Node& node) { return node.run_once().status.message(); }

}  // namespace belay::cpu::testing
