#include "program.h"

#include "device.h"
#include "memory.h"
#include "task_run.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace belay::cpu {
namespace {

belay_status do_nothing(const belay_exec*, const void*, const uint64_t*) noexcept { return BELAY_OK; }

}  // namespace

Program::Program(Device& device) : device_(device) {}

Program::~Program() {
  for (Instance* instance : launched) unbind(*instance);
}

// ---- creation ----------------------------------------------------------------------------------------------------------
std::string Program::node_name(uint64_t index) const {
  std::string text = "node " + std::to_string(index);
  if (!names_[index].empty()) text += " '" + names_[index] + "'";
  if (const belay_kernel* kernel = kernels_[index]; kernel && kernel->name.len)
    text += " (kernel '" + to_string(kernel->name) + "')";
  return text;
}

Status Program::add_argument(const belay_arg& arg, uint64_t index, const belay_node& node, uint64_t node_index,
                             uint64_t binding_count) {
  const auto wrong = [&](const std::string& what) {
    return Status(Code::kInvalidArgument, "Program on " + device_.name() + ": argument " + std::to_string(index) +
                                              " of node " + std::to_string(node_index) + " '" + to_string(node.name) +
                                              "' " + what);
  };
  switch (arg.kind) {
    case BELAY_ARG_SCALAR: words_.push_back(arg.value); return {};
    case BELAY_ARG_BYTES: {
      const uint64_t size = std::max<uint64_t>((arg.bytes + 63) & ~uint64_t{63}, 64);
      if (arg.bytes > uint64_t{1} << 40 || (arg.bytes && !arg.value))
        return wrong("says it has " + std::to_string(arg.bytes) + " bytes at address " + std::to_string(arg.value) + ".");
      blobs_.emplace_back(static_cast<char*>(std::aligned_alloc(64, size)), std::free);
      if (!blobs_.back()) throw std::bad_alloc();
      if (arg.bytes) std::memcpy(blobs_.back().get(), pointer<const void>(arg.value), arg.bytes);
      words_.push_back(word(blobs_.back().get()));
      return {};
    }
    case BELAY_ARG_BUFFER:
      if (arg.binding != BELAY_NO_BINDING) {
        if (arg.binding >= binding_count)
          return wrong("uses binding " + std::to_string(arg.binding) + " and there are " +
                       std::to_string(binding_count) + ".");
        if (arg.bytes > std::numeric_limits<uint64_t>::max() - arg.value)
          return wrong("covers bytes " + std::to_string(arg.value) + " and " + std::to_string(arg.bytes) +
                       " more, past the end of any memory.");
        needed_[arg.binding] = std::max(needed_[arg.binding], arg.value + arg.bytes);
        patches_.push_back({uint32_t(words_.size()), arg.binding, arg.value});
      }
      words_.push_back(0);
      return {};
    default: return wrong("is of kind " + std::to_string(arg.kind) + "; want BUFFER, SCALAR or BYTES (1 to 3).");
  }
}

Status Program::add_node(const belay_node& node, uint64_t index, uint64_t binding_count) {
  const belay_kernel* const kernel = node.kernel;
  if (kernel && kernel->hdr.flags & BELAY_KERNEL_WRITES_SHAPE)
    return {Code::kInvalidArgument, "Program on " + device_.name() + ": the kernel '" + to_string(kernel->name) +
                                        "' of node " + std::to_string(index) + " '" + to_string(node.name) +
                                        "' chooses the shapes of its outputs (WRITES_SHAPE), which a program cannot "
                                        "wait for; launch it by itself."};
  uint32_t cost = 0;
  if (kernel) {
    cost = kernel->cost_ns == 0 || kernel->cost_ns >= kUnknownCost ? kUnknownCost : uint32_t(kernel->cost_ns);
    foreign_ = foreign_ || kernel->hdr.flags & (BELAY_KERNEL_BLOCKING | BELAY_KERNEL_USER);
  }
  nodes_.push_back({kernel ? kernel->fn : do_nothing, kernel ? kernel->state : nullptr, uint32_t(words_.size()), cost, 0});
  kernels_.push_back(kernel);
  names_.push_back(to_string(node.name));
  for (uint64_t i = 0; i < node.arg_count; ++i)
    BELAY_TRY(add_argument(node.args[i], i, node, index, binding_count));
  return {};
}

Status Program::check_dependencies(const belay_program_req& req) const {
  for (uint64_t i = 0; i < req.dependency_count; ++i) {
    const uint32_t before = req.dependencies[2 * i], after = req.dependencies[2 * i + 1];
    if (before >= after || after >= req.node_count)
      return {Code::kInvalidArgument, "Program on " + device_.name() + ": dependency " + std::to_string(i) + " is (" +
                                          std::to_string(before) + ", " + std::to_string(after) +
                                          "); want the smaller node first and both below " +
                                          std::to_string(req.node_count) + "."};
  }
  return {};
}

Result<std::unique_ptr<Program>> Program::create(Device& device, const belay_program_req& req) {
  if (req.node_count > std::numeric_limits<uint32_t>::max() - 1)
    return Status(Code::kInvalidArgument,
                  "Program on " + device.name() + " has " + std::to_string(req.node_count) + " nodes, too many.");
  std::unique_ptr<Program> program(new Program(device));
  program->needed_.resize(req.binding_count);
  program->nodes_.reserve(req.node_count);
  uint64_t cost = 0;
  for (uint64_t i = 0; i < req.node_count; ++i) {
    BELAY_TRY(program->add_node(*req.nodes[i], i, req.binding_count));
    if (program->words_.size() > std::numeric_limits<uint32_t>::max())
      return Status(Code::kInvalidArgument, "Program on " + device.name() + " has more than 2^32 arguments.");
    cost += program->nodes_.back().cost_ns;
    if (program->nodes_.back().cost_ns == kUnknownCost) program->cost_ns_ = kUnknownCost;
  }
  if (program->cost_ns_ != kUnknownCost) program->cost_ns_ = uint32_t(std::min<uint64_t>(cost, kUnknownCost - 1));
  std::stable_sort(program->patches_.begin(), program->patches_.end(),
                   [](const Patch& a, const Patch& b) { return a.binding < b.binding; });
  if (req.dependencies) {
    BELAY_TRY(program->check_dependencies(req));
    if (!program->foreign_) program->tasks_ = program->plan_tasks(req.dependencies, req.dependency_count);
  }
  return program;
}

// ---- instances ---------------------------------------------------------------------------------------------------------
void Program::patch(Instance& instance, const std::vector<char*>& bases, bool all) const {
  for (const Patch& p : patches_)
    if (all || instance.bases[p.binding] != bases[p.binding])
      instance.words[p.word] = bases[p.binding] ? word(bases[p.binding] + p.offset) : 0;
  instance.bases = bases;
}

Result<Instance*> Program::bind(const belay_binding* bindings, uint64_t count) {
  if (count != needed_.size())
    return Status(Code::kInvalidArgument, "A launch on " + device_.name() + " has " + std::to_string(count) +
                                              " bindings and the program takes " + std::to_string(needed_.size()) + ".");
  // Where the launch's memory begins; null where it has none or too little.
  const auto base = [&](uint64_t i) -> char* {
    const belay_binding& b = bindings[i];
    if (b.bytes < needed_[i]) return nullptr;
    if (!b.buffer) return b.host ? static_cast<char*>(b.host) + b.offset : nullptr;
    const Buffer& buffer = *static_cast<const Buffer*>(b.buffer->impl);
    return b.offset <= buffer.bytes && b.bytes <= buffer.bytes - b.offset ? buffer.data + b.offset : nullptr;
  };
  for (uint64_t i = 0; i < count; ++i) {
    if (base(i) || needed_[i] == 0) continue;
    const belay_binding& b = bindings[i];
    std::string there = b.buffer ? "a buffer of " + std::to_string(static_cast<const Buffer*>(b.buffer->impl)->bytes) +
                                       " bytes from its byte " + std::to_string(b.offset)
                                 : std::string(b.host ? "host memory" : "no memory");
    return Status(Code::kOutOfRange, "Binding " + std::to_string(i) + " of a launch on " + device_.name() + " gives " +
                                         std::to_string(b.bytes) + " bytes of " + there + "; the program uses " +
                                         std::to_string(needed_[i]) + ".");
  }

  std::lock_guard lock(mutex_);
  Instance* free = nullptr;
  for (const auto& instance : instances_) {
    bool same = true;
    for (uint64_t i = 0; i < count && same; ++i) same = instance->bases[i] == base(i);
    if (same) {
      instance->launches.fetch_add(1, std::memory_order_relaxed);
      return instance.get();
    }
    // Acquire: what the last launch read was read before we patch it.
    if (instance->launches.load(std::memory_order_acquire) == 0) free = instance.get();
  }
  std::vector<char*> bases(count);
  for (uint64_t i = 0; i < count; ++i) bases[i] = base(i);
  if (free && instances_.size() >= kKeptInstances) {
    patch(*free, bases, false);
    free->launches.store(1, std::memory_order_relaxed);
    return free;
  }
  return make_instance(bases);
}

Result<Instance*> Program::make_instance(const std::vector<char*>& bases) {
  auto instance = std::make_unique<Instance>();
  instance->program = this;
  instance->words = words_;
  patch(*instance, bases, true);
  instance->launches.store(1, std::memory_order_relaxed);
  // Above the usual number, those that are idle go.
  if (instances_.size() >= kKeptInstances)
    std::erase_if(instances_, [](const auto& i) { return i->launches.load(std::memory_order_acquire) == 0; });
  instances_.push_back(std::move(instance));
  return instances_.back().get();
}

// ---- replay ------------------------------------------------------------------------------------------------------------
belay_status Program::name_failure(belay_status status, uint32_t index) const {
  const Status raw = from_c(device_.host(), status);
  return device_.fail(uint32_t(raw.code()), node_name(index) + ": " + raw.message());
}

belay_status Program::run_in_order(Exec& exec, const Instance& instance) {
  ThreadState& me = *exec.thread;
  std::atomic<uint32_t>& flight = *exec.stream->flight_word();
  const ScratchMark mark(me);
  const uint64_t* const words = instance.words.data();
  const uint32_t count = uint32_t(nodes_.size());
  const Node* node = nodes_.data();
  for (uint32_t i = 0; i < count; ++i, ++node) {
    flight.store(i, std::memory_order_relaxed);
    exec.cost_ns = node->cost_ns;
    // Replay of small kernels waits for their states more than it computes.
    if (i + 2 < count) __builtin_prefetch(node[2].state);
    if (const belay_status status = node->fn(&exec.api, node->state, words + node->first_word); status != BELAY_OK)
        [[unlikely]]
      return name_failure(status, i);
    if (me.scratch) [[unlikely]]
      mark.restore();
  }
  return BELAY_OK;
}

belay_status Program::run_node(Exec& exec, const Instance& instance, uint32_t index) {
  const Node& node = nodes_[index];
  exec.stream->flight_word()->store(index, std::memory_order_relaxed);
  exec.cost_ns = node.cost_ns;
  const ScratchMark mark(*exec.thread);
  const belay_status status = node.fn(&exec.api, node.state, instance.words.data() + node.first_word);
  return status == BELAY_OK ? status : name_failure(status, index);
}

belay_status Program::run(Exec& exec, const Instance& instance) {
  return tasks_ ? run_tasks(exec, instance) : run_in_order(exec, instance);
}

belay_status run_program(Exec& exec, const Packet& packet) {
  Instance& instance = *pointer<Instance>(packet.words[0]);
  const belay_status status = instance.program->run(exec, instance);
  Program::unbind(instance);
  return status;
}

}  // namespace belay::cpu
