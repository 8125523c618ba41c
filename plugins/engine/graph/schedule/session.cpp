#include "schedule/session.hpp"

#include <algorithm>
#include <cstring>

namespace belay::schedule {

void append_type(std::string& key, const Value& value) {
  const auto word = [&](int64_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  word(value.kind);
  word(value.dtype);
  if (!value.is_tensor()) return;
  word(int64_t(value.dims.size()));
  for (const int64_t dim : value.dims) word(dim);
}

// ---- Session
// --------------------------------------------------------------------------------------------------------

Session::~Session() {
  idle_.clear();  // frames hold storages of the pool
}

Result<plan::StagePtr> Session::plan_for(ir::GraphId graph,
                                         std::span<const std::pair<ir::ValueId, const Value*>> inputs,
                                         const std::map<ir::ValueId, ir::ConstantPtr>& known) {
  std::string key;
  for (const auto& [id, value] : inputs) {
    append_type(key, *value);
    if (const auto at = known.find(id); at != known.end()) {
      const bool default_value = at->second == shared_.model.values[id].constant;
      key += default_value ? 'd' : 'k';
      if (!default_value) key.append(reinterpret_cast<const char*>(at->second->data), at->second->bytes);
    }
  }
  return shared_.plans.find(PlanCache::root_of(graph), key, [&](const plan::Stage* like) -> Result<plan::StagePtr> {
    plan::Seed seed{ir::Env(shared_.model), {}, {}};
    for (const auto& [id, value] : inputs) {
      if (const auto at = known.find(id); at != known.end()) {
        seed.env.set_constant(id, at->second);
        continue;
      }
      if (!value->kind) continue;
      seed.env.types[id] = value->type();
      seed.available.insert(id);
    }
    for (const ir::NodeId node : shared_.model.graphs[graph].nodes)
      seed.nodes.push_back(&shared_.model.nodes[node]);
    return shared_.planner.build(seed, shared_.model.graphs[graph].outputs, like);
  });
}

Result<std::vector<Value>> Session::call(ir::GraphId graph, std::span<const Value> inputs, Frame& outer) {
  auto& idle = idle_[graph];
  std::unique_ptr<Frame> frame;
  if (idle.empty()) {
    frame = std::make_unique<Frame>(*this, graph);
  } else {
    frame = std::move(idle.back());
    idle.pop_back();
  }
  const ir::Graph& body = shared_.model.graphs[graph];
  std::vector<std::pair<ir::ValueId, const Value*>> begin;
  std::map<ir::ValueId, ir::ConstantPtr> known;
  for (size_t i = 0; i < body.inputs.size() && i < inputs.size(); ++i)
    begin.emplace_back(body.inputs[i], &inputs[i]);
  for (const ir::ValueId capture : shared_.captures[graph]) {
    // What the outer plan knows small values to be, shapes of the body may depend on.
    const ir::ConstantPtr& constant = outer.stage().env.constants[outer.stage().env.resolve(capture)];
    if (constant && constant->bytes <= 512 && constant->dtype != BELAY_DT_STRING) known[capture] = constant;
    begin.emplace_back(capture, &outer.get(capture));
  }
  BELAY_ASSIGN(plan::StagePtr stage, plan_for(graph, begin, known));
  for (const auto& [id, value] : begin)
    if (!known.contains(id)) frame->set(id, *value);
  BELAY_TRY(frame->run(std::move(stage)));
  std::vector<Value> out;
  for (const ir::ValueId output : body.outputs) own_text(out.emplace_back(frame->get(output)));
  frame->clear();
  idle.push_back(std::move(frame));
  return out;
}

Status Session::launch(belay_obj* program, std::span<const belay_binding> bindings) {
  const plan::Hal& hal = shared_.target.hal;
  belay_event done{};
  return finish(hal.vt->program_launch(hal.host, program, stream_, bindings.data(), bindings.size(), &done), done);
}

Status Session::copy(const belay_tensor& to, const belay_tensor& from) {
  // From what no cache holds on a device copies around the caches; below, memcpy on this thread is the best there is.
  constexpr uint64_t kByDevice = uint64_t{16} << 20;
  const auto *begin = static_cast<const char*>(from.data), *end = begin + to.bytes;
  const auto* into = static_cast<const char*>(to.data);
  const bool apart = into >= end || begin >= into + to.bytes;
  if (!from.strides && (to.bytes < kByDevice || !apart)) {
    std::memmove(to.data, from.data, to.bytes);
    return {};
  }
  belay_event done{};
  return finish(hal().vt->tensor_copy(hal().host, stream_, &to, &from, &done), done);
}

// Of what was queued: waits for its end.
Status Session::finish(belay_status raw, belay_event done) {
  const plan::Hal& hal = shared_.target.hal;
  if (raw == BELAY_OK) raw = hal.vt->synchronize(hal.host, done, BELAY_FOREVER);
  if (raw == BELAY_OK) return {};
  Status status = hal.check(raw);
  // The failure is told; what is launched next must not fail for it.
  if (const belay_status again = hal.vt->recover(hal.host, stream_); again != BELAY_OK)
    return std::move(status).while_doing("recovering the stream: " + hal.check(again).message());
  return status;
}

void Session::meet(const plan::StagePtr& stage) {
  if (met_ < stages_.size() && stages_[met_] == stage) {  // as in the run before
    ++met_;
    return;
  }
  if (met_ == kMostStages) return;
  for (size_t i = 0; i < met_; ++i)
    if (stages_[i] == stage) return;
  stages_.resize(met_);
  stages_.push_back(stage);
  ++met_;
  stages_changed_ = true;
}

Result<const plan::Buffer*> Session::arena(uint64_t bytes) {
  if (arena_.bytes < bytes || !arena_.object) {
    arena_ = {};
    BELAY_ASSIGN(arena_, plan::Buffer::create(shared_.target.hal, shared_.target.device, bytes,
                                              shared_.target.heaps.working));
  }
  return &arena_;
}

Status Session::to_host(Value& value, void* into) {
  if (value.items)
    for (Value& item : *value.items) BELAY_TRY(to_host(item));
  if (!value.is_tensor() || value.host || value.bytes == 0) return {};
  StorageRef storage;
  if (!into) {
    BELAY_ASSIGN(storage, pool_.take_host(value.bytes));
    into = storage->host;
  }
  belay_copy_req req{};
  req.hdr.struct_size = sizeof req;
  req.src = value.buffer;
  req.src_offset = value.offset;
  req.host_dst = into;
  req.bytes = value.bytes;
  belay_event done{};
  BELAY_TRY(hal().check(hal().vt->copy(hal().host, stream_, &req, &done)));
  BELAY_TRY(hal().check(hal().vt->synchronize(hal().host, done, BELAY_FOREVER)));
  value.host = into;
  value.buffer = nullptr;
  value.offset = 0;
  value.storage = std::move(storage);
  return {};
}

Status Session::to_device(Value& value) {
  if (shared_.target.host_visible || value.buffer || value.bytes == 0) return {};
  BELAY_ASSIGN(StorageRef storage, pool_.take_device(value.bytes));
  belay_copy_req req{};
  req.hdr.struct_size = sizeof req;
  req.dst = storage->buffer.object.get();
  req.host_src = value.host;
  req.bytes = value.bytes;
  belay_event done{};
  BELAY_TRY(hal().check(hal().vt->copy(hal().host, stream_, &req, &done)));
  BELAY_TRY(hal().check(hal().vt->synchronize(hal().host, done, BELAY_FOREVER)));
  value.buffer = storage->buffer.object.get();
  value.host = nullptr;
  value.storage = std::move(storage);
  value.keeper.reset();
  return {};
}

Status Session::run_engine_op(const ir::Node& node, Frame& frame, std::vector<Value>& outputs) {
  if (auto status = run_text_op(node, *this, frame, outputs)) return std::move(*status);
  if (auto status = run_sequence_op(node, *this, frame, outputs)) return std::move(*status);
  if (auto status = run_control_op(node, *this, frame, outputs)) return std::move(*status);
  return {Code::kUnimplemented, "Nothing runs " + node.label() + "."};
}

// ---- Frame
// ----------------------------------------------------------------------------------------------------------

Value& Frame::slot(ir::ValueId value) { return values_[value]; }

void Frame::set(ir::ValueId value, Value to) { slot(value) = std::move(to); }

void Frame::clear() {
  for (auto& [id, value] : values_) value = {};  // keeps the table: the next run has the same values
  stage_.reset();
}

const Value& Frame::get(ir::ValueId value) {
  static const Value nothing;
  if (value == BELAY_NONE) return nothing;
  const ir::ValueId id = stage_ ? stage_->env.resolve(value) : value;
  if (stage_ && stage_->env.constants[id]) {
    Value& at = constants_[id];
    const ir::ConstantPtr& constant = stage_->env.constants[id];
    if (!at.kind || at.keeper != constant) at = value_of(constant);
    return at;
  }
  const auto at = values_.find(id);
  return at == values_.end() ? nothing : at->second;
}

void* Frame::result_memory(ir::ValueId value, uint32_t dtype, std::span<const int64_t> dims) const {
  for (const ResultMemory& result : results)
    if (result.data && stage_->env.resolve(result.value) == value && result.tensor->dtype == dtype &&
        std::equal(dims.begin(), dims.end(), result.tensor->dims, result.tensor->dims + result.tensor->rank))
      return result.data;
  return nullptr;
}

Status Frame::make_values() {
  for (const plan::Made& made : stage_->made) {
    Value to;
    const ir::Type& type = stage_->env.types[made.members[0]];
    to.kind = BELAY_TYPE_TENSOR;
    to.dtype = type.dtype;
    to.dims = type.dims;
    to.bytes = made.bytes;
    for (const ir::ValueId id : made.members)
      if (!to.host) to.host = result_memory(id, stage_->env.types[id].dtype, stage_->env.types[id].dims);
    if (!to.host) {
      BELAY_ASSIGN(to.storage, session_.pool().take_device(made.bytes));
      to.host = to.storage->host;
      if (!to.host) to.buffer = to.storage->buffer.object.get();
    }
    for (size_t i = 1; i < made.members.size(); ++i) {
      Value& member = slot(made.members[i]);
      member = to;
      member.dims = stage_->env.types[made.members[i]].dims;
    }
    slot(made.members[0]) = std::move(to);
  }
  return {};
}

Status Frame::fill_bindings() {
  bindings_.clear();
  for (const plan::Binding& from : stage_->bindings) {
    belay_binding& binding = bindings_.emplace_back();
    if (from.kind == plan::Binding::kArena) {
      BELAY_ASSIGN(const plan::Buffer* arena, session_.arena(stage_->arena_bytes));
      binding.buffer = arena->object.get();
      binding.bytes = arena->bytes;
    } else if (from.kind == plan::Binding::kConstant) {
      binding.buffer = from.place.host ? nullptr : from.place.buffer;
      binding.host = const_cast<void*>(from.place.host);
      binding.bytes = from.place.base_bytes;
    } else {
      Value& value = slot(from.value);
      BELAY_TRY(session_.to_device(value));
      if (!value.host && !value.buffer) {  // no elements and so no memory, but a binding must lead somewhere
        BELAY_ASSIGN(value.storage, session_.pool().take_device(1));
        value.host = value.storage->host;
        if (!value.host) value.buffer = value.storage->buffer.object.get();
      }
      binding.buffer = value.host ? nullptr : value.buffer;
      binding.host = value.host;
      binding.offset = value.host ? 0 : value.offset;
      binding.bytes = value.bytes;
    }
  }
  return {};
}

Status Frame::bind(plan::StagePtr stage) {
  stage_ = std::move(stage);
  BELAY_TRY(make_values());
  if (stage_->program) BELAY_TRY(fill_bindings());
  for (const auto& [id, of] : stage_->views) {
    Value value = slot(of);
    value.dims = stage_->env.types[id].dims;
    slot(id) = std::move(value);
  }
  return {};
}

Status Frame::launch() {
  BELAY_TRY(bind(stage_));
  return stage_->program ? session_.launch(stage_->program.get(), bindings_) : Status();
}

Status Frame::run(plan::StagePtr stage) {
  stage_ = std::move(stage);
  std::string key;
  for (;;) {
    session_.meet(stage_);
    BELAY_TRY(launch());
    if (stage_->steps.empty()) return {};
    key.clear();
    for (const plan::HostStep& step : stage_->steps) BELAY_TRY(run_step(step, key));
    BELAY_TRY(follow(key));
  }
}

Status Frame::run_step(const plan::HostStep& step, std::string& key) {
  if (step.kind == plan::HostStep::kRead) {
    Value& value = slot(step.value);
    BELAY_TRY(session_.to_host(value));
    if (value.dtype == BELAY_DT_STRING)
      return {Code::kUnimplemented, "Shapes that depend on strings are not supported."};
    key.append(static_cast<const char*>(value.host), value.bytes);
    return {};
  }
  if (step.kind == plan::HostStep::kKernel) {
    BELAY_TRY(run_kernel(step).while_doing("running " + step.node->label()));
  } else {
    std::vector<Value> outputs(step.node->outputs.size());
    BELAY_TRY(
        session_.run_engine_op(*step.node, *this, outputs).while_doing("running " + step.node->label()));
    for (size_t i = 0; i < outputs.size(); ++i)
      if (step.node->outputs[i] != BELAY_NONE) slot(step.node->outputs[i]) = std::move(outputs[i]);
  }
  for (const ir::ValueId id : step.node->outputs)
    if (id != BELAY_NONE) append_type(key, slot(id));
  return {};
}

Status Frame::run_kernel(const plan::HostStep& step) {
  const plan::HostKernel& kernel = step.kernel;
  std::vector<uint64_t> args;
  for (const ir::ValueId id : kernel.inputs) {
    if (id == BELAY_NONE) {
      args.push_back(0);
      continue;
    }
    if (stage_->env.constants[id]) {
      args.push_back(reinterpret_cast<uint64_t>(get(id).host));
      continue;
    }
    Value& value = slot(id);
    BELAY_TRY(session_.to_host(value));
    args.push_back(reinterpret_cast<uint64_t>(value.host));
  }
  const auto make = [&](size_t index, std::span<const int64_t> dims) -> void* {
    if (index >= kernel.outputs.size() || kernel.outputs[index] == BELAY_NONE) return nullptr;
    const ir::ValueId id = kernel.outputs[index];
    uint32_t dtype = stage_->env.types[id].dtype;
    if (dtype == BELAY_DT_UNDEFINED) dtype = session_.shared().model.values[id].type.dtype;
    if (dtype == BELAY_DT_UNDEFINED) return nullptr;
    if (void* there = result_memory(id, dtype, dims)) {
      Value& value = slot(id) = {};
      value.kind = BELAY_TYPE_TENSOR;
      value.dtype = dtype;
      value.dims.assign(dims.begin(), dims.end());
      value.host = there;
      value.bytes = dtype_bytes(dtype, value.count()).value_or(0);
      return there;
    }
    Result<Value> made = make_tensor(session_.pool(), dtype, ir::Dims(dims.begin(), dims.end()));
    if (!made.ok()) return nullptr;
    slot(id) = std::move(made).value();
    return slot(id).host;
  };
  for (size_t i = 0; i < kernel.outputs.size(); ++i) {
    const ir::ValueId id = kernel.outputs[i];
    if (id == BELAY_NONE || kernel.writes_shape()) {
      args.push_back(0);
      continue;
    }
    const ir::Type& type = stage_->env.types[id];
    if (!type.concrete())
      return {Code::kInternal, "The kernel does not give the shape of its output, which is not known."};
    void* memory = make(i, type.dims);
    if (!memory && element_count(type.dims) != 0)
      return {Code::kResourceExhausted, "There is no memory for an output of " + ir::to_string(type) + "."};
    args.push_back(reinterpret_cast<uint64_t>(memory));
  }
  StorageRef workspace;
  if (const uint64_t bytes = (*kernel.kernel)->workspace_bytes) {
    BELAY_ASSIGN(workspace, session_.pool().take_host(bytes));
    args.push_back(reinterpret_cast<uint64_t>(workspace->host));
  }
  BELAY_TRY(plan::run_on_host(session_.hal(), kernel.kernel->kernel(), args, make));
  for (const ir::ValueId id : kernel.outputs)
    if (id != BELAY_NONE && !slot(id).kind)
      return {Code::kInternal, "The kernel left an output without a shape."};
  return {};
}

Status Frame::follow(const std::string& key) {
  const auto build = [&](const plan::Stage* like) -> Result<plan::StagePtr> {
    plan::Seed seed{stage_->env, stage_->rest, stage_->available};
    BELAY_TRY(learn(seed));
    return session_.shared().planner.build(seed, session_.shared().model.graphs[graph_].outputs, like);
  };
  BELAY_ASSIGN(stage_, session_.shared().plans.find(stage_->id, key, build));
  return {};
}

// What the steps of the stage saw.
Status Frame::learn(plan::Seed& seed) {
  for (const plan::HostStep& step : stage_->steps) {
    if (step.kind == plan::HostStep::kRead) {
      const Value& value = slot(step.value);
      auto constant = ir::make_constant(value.dtype, value.dims);
      if (!constant)
        return {Code::kResourceExhausted, "There is no memory for a value that shapes depend on."};
      if (value.bytes) std::memcpy(const_cast<std::byte*>(constant->data), value.host, value.bytes);
      seed.env.set_constant(step.value, std::move(constant));
      continue;
    }
    for (const ir::ValueId id : step.node->outputs) {
      if (id == BELAY_NONE) continue;
      seed.env.types[id] = slot(id).type();
      seed.available.insert(id);
    }
  }
  return {};
}

}  // namespace belay::schedule
