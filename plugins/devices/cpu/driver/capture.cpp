#include "capture.h"

#include "copy.h"
#include "device.h"
#include "program.h"
#include "stream.h"

#include <algorithm>

namespace belay::cpu {
namespace {

Exec& exec_of(const belay_exec* api) { return *reinterpret_cast<Exec*>(const_cast<belay_exec*>(api)); }

belay_status copy_node(const belay_exec* api, const void*, const uint64_t* words) noexcept {
  copy_bytes(exec_of(api), pointer<void>(words[0]), pointer<const void>(words[1]), words[2]);
  return BELAY_OK;
}

belay_status fill_node(const belay_exec* api, const void*, const uint64_t* words) noexcept {
  fill_bytes(exec_of(api), pointer<void>(words[0]), words[1], words[2], words[3]);
  return BELAY_OK;
}

belay_status host_call_node(const belay_exec*, const void*, const uint64_t* words) noexcept {
  reinterpret_cast<void (*)(void*)>(words[0])(pointer<void>(words[1]));
  return BELAY_OK;
}

belay_status program_node(const belay_exec* api, const void*, const uint64_t* words) noexcept {
  Instance& instance = *pointer<Instance>(words[0]);
  return instance.program->run(exec_of(api), instance);
}

// words: kernel, output, its user, the kernel's own.
belay_status shaped_node(const belay_exec* api, const void*, const uint64_t* words) noexcept {
  Exec& exec = exec_of(api);
  const auto& kernel = *pointer<const belay_kernel>(words[0]);
  exec.output = reinterpret_cast<decltype(exec.output)>(words[1]);
  exec.output_user = pointer<void>(words[2]);
  const belay_status status = kernel.fn(api, kernel.state, words + 3);
  exec.output = nullptr;
  return status;
}

}  // namespace

Recorder::~Recorder() {
  for (Instance* instance : launched_) Program::unbind(*instance);
}

const belay_kernel& Recorder::own(const char* name, belay_kernel_fn fn, uint64_t cost_ns, uint32_t flags) {
  own_.push_back(std::make_unique<belay_kernel>(belay_kernel{.hdr = {sizeof(belay_kernel), flags, nullptr},
                                                             .fn = fn,
                                                             .state = nullptr,
                                                             .cost_ns = cost_ns,
                                                             .name = to_str(name)}));
  return *own_.back();
}

void Recorder::add(const belay_kernel& kernel, const uint64_t* words, uint64_t count) {
  Recorded node{&kernel, {}};
  node.args.reserve(count);
  for (uint64_t i = 0; i < count; ++i)
    node.args.push_back({.kind = BELAY_ARG_SCALAR, .binding = 0, .value = words[i], .bytes = 0, .access = 0, .reserved = 0});
  nodes_.push_back(std::move(node));
}

void Recorder::add_copy(void* to, const void* from, uint64_t bytes) {
  const uint64_t words[] = {word(to), word(from), bytes};
  add(own("copy", copy_node, copy_cost(bytes), 0), words, 3);
}

void Recorder::add_fill(void* to, uint64_t bytes, uint64_t pattern, uint64_t pattern_bytes) {
  const uint64_t words[] = {word(to), bytes, pattern, pattern_bytes};
  add(own("fill", fill_node, copy_cost(bytes), 0), words, 4);
}

void Recorder::add_host_call(void (*fn)(void*), void* user) {
  const uint64_t words[] = {reinterpret_cast<uint64_t>(fn), word(user)};
  add(own("host callback", host_call_node, 0, BELAY_KERNEL_USER), words, 2);
}

void Recorder::add_program(Instance& instance, uint32_t cost_ns, bool foreign) {
  const uint64_t words[] = {word(&instance)};
  launched_.push_back(&instance);
  add(own("program", program_node, cost_ns == kUnknownCost ? 0 : std::max<uint64_t>(cost_ns, 1),
          foreign ? BELAY_KERNEL_USER : 0),
      words, 1);
}

void Recorder::add_shaped(const belay_launch_req& req) {
  std::vector<uint64_t> words = {word(req.kernel), reinterpret_cast<uint64_t>(req.output), word(req.output_user)};
  words.insert(words.end(), req.args, req.args + req.arg_count);
  const uint32_t flags = req.kernel->hdr.flags & ~BELAY_KERNEL_WRITES_SHAPE;  // the launch has said where they go
  belay_kernel& kernel = const_cast<belay_kernel&>(own("", shaped_node, req.kernel->cost_ns, flags));
  kernel.name = req.kernel->name;
  add(kernel, words.data(), words.size());
}

Result<std::unique_ptr<Program>> Recorder::finish(Device& device) {
  std::vector<belay_node> nodes;
  std::vector<const belay_node*> pointers;
  nodes.reserve(nodes_.size());
  for (const Recorded& r : nodes_) {
    nodes.push_back({.hdr = {sizeof(belay_node), 0, nullptr},
                     .kernel = r.kernel,
                     .args = r.args.data(),
                     .arg_count = r.args.size(),
                     .name = {}});
    pointers.push_back(&nodes.back());
  }
  belay_program_req req{};
  req.hdr.struct_size = sizeof req;
  req.nodes = pointers.data();
  req.node_count = pointers.size();
  BELAY_ASSIGN(std::unique_ptr<Program> program, Program::create(device, req));
  program->launched = std::move(launched_);
  launched_.clear();
  program->own_kernels = std::move(own_);
  return program;
}

}  // namespace belay::cpu
