#include "schedule/executable.hpp"

#include <belay/abi/host.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace belay::schedule {

Context::Context(Executable& of, plan::Stream stream)
    : executable_(of),
      stream_(std::move(stream)),
      session_(of.shared(), stream_.get()),
      frame_(session_, 0),
      inputs_(of.inputs().size()),
      outputs_(of.outputs().size()),
      bindings_of_input_(of.inputs().size()) {}

Result<std::unique_ptr<Context>> Context::create(Executable& of) {
  const plan::Hal& hal = of.target().hal;
  belay_hal_stream_req req{};
  req.hdr.struct_size = sizeof req;
  req.hdr.flags = BELAY_HAL_STREAM_SINGLE_PRODUCER | BELAY_HAL_STREAM_BLOCK;
  belay_obj* stream = nullptr;
  BELAY_TRY(hal.check(hal.vt->stream_create(hal.host, of.target().device, &req, &stream))
                .while_doing("making an execution context"));
  return std::unique_ptr<Context>(new Context(of, plan::Stream(hal, stream)));
}

void Context::reset() {
  settle();
  for (Input& input : inputs_) input = {};
  for (Output& output : outputs_) output = {};
  frame_.results.clear();
  frame_.clear();
  session_.forget_stages();
  stage_.reset();
  shapes_changed_ = memory_changed_ = true;
  simple_ = collected_ = input_copies_ = false;
  session_.pool().end_run();
}

// ---- running
// --------------------------------------------------------------------------------------------------------

Status Context::prepare() {
  settle();  // the plan and the arena of what is queued are about to go
  const auto& io = executable_.inputs();
  std::vector<std::pair<ir::ValueId, const Value*>> begin;
  std::map<ir::ValueId, ir::ConstantPtr> known;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const ir::ConstantPtr& otherwise = executable_.model().values[io[i].value].constant;
    if (!inputs_[i].set) {
      if (otherwise) {
        known[io[i].value] = otherwise;
      } else if (io[i].kind == BELAY_TYPE_OPTIONAL) {
        inputs_[i].value.kind = BELAY_TYPE_OPTIONAL;
        inputs_[i].value.items = std::make_shared<std::vector<Value>>();
      } else {
        return {Code::kFailedPrecondition,
                "Input '" + io[i].name + "' of '" + executable_.name() + "' was not set; it has no default."};
      }
    }
    begin.emplace_back(io[i].value, &inputs_[i].value);
  }
  BELAY_TRY(check_symbols());
  frame_.clear();
  BELAY_ASSIGN(stage_, session_.plan_for(0, begin, known));
  session_.forget_stages();
  simple_ = stage_->steps.empty() && executable_.target().host_visible;
  if (simple_) executable_.remember({stage_});
  for (auto& bindings : bindings_of_input_) bindings.clear();
  for (uint32_t b = 0; b < stage_->bindings.size(); ++b)
    for (size_t i = 0; i < io.size(); ++i)
      if (stage_->bindings[b].kind == plan::Binding::kValue && stage_->bindings[b].value == io[i].value)
        bindings_of_input_[i].push_back(b);
  shapes_changed_ = false;
  memory_changed_ = true;
  return {};
}

// Gives the frame inputs and the user's result memory.
Status Context::rebind() {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].set || inputs_[i].value.kind) frame_.set(executable_.inputs()[i].value, inputs_[i].value);
  frame_.results.clear();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    if (!output.user_data) continue;
    // Written while an input is still read, it would spoil it: then the result is copied at the end.
    output.not_direct = output.not_lent;
    if (const auto input = spoiled_input(i); input && output.not_direct.empty())
      output.not_direct = "its memory is that of input '" + executable_.inputs()[*input].name +
                          "', which is still read when it is made";
    frame_.results.push_back({executable_.outputs()[i].value, &output.user,
                              output.not_direct.empty() ? output.user_data : nullptr});
  }
  if (simple_) BELAY_TRY(frame_.bind(stage_));
  memory_changed_ = false;
  collected_ = false;
  return {};
}

Status Context::run() {
  settle();
  if (needs_recover_) {
    BELAY_TRY(session_.hal().check(session_.hal().vt->recover(session_.hal().host, stream_.get())));
    needs_recover_ = false;
  }
  if (shapes_changed_) BELAY_TRY(prepare());
  if (memory_changed_ || !simple_) BELAY_TRY(rebind());
  if (input_copies_) BELAY_TRY(copy_inputs());
  if (simple_) {
    if (stage_->program) BELAY_TRY(session_.launch(stage_->program.get(), frame_.bindings()));
  } else {
    BELAY_TRY(run_frame());
  }
  if (!collected_) BELAY_TRY(collect());
  if (copies_) BELAY_TRY(copy_results());
  count_run();
  return {};
}

Status Context::run_frame() {
  session_.begin_run();
  Status status = frame_.run(stage_);
  session_.pool().end_run();
  if (status.ok() && session_.stages_changed()) executable_.remember(session_.stages());
  return status;
}

// Describes the results; for simple plans once for many runs.
Status Context::collect() {
  copies_ = false;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    output.tensors.clear();
    output.data.clear();
    output.lists.clear();
    output.keep.clear();
    BELAY_TRY(collect_output(i));
  }
  account();
  collected_ = simple_;
  return {};
}

Status Context::collect_output(size_t i) {
  Output& output = outputs_[i];
  const std::string& name = executable_.outputs()[i].name;
  Value value = frame_.get(executable_.outputs()[i].value);
  if (!value.kind) return {Code::kInternal, "Output '" + name + "' was not made."};
  if (output.user_data && (!value.is_tensor() || value.dtype != output.user.dtype || value.dims != output.user_dims))
    return {Code::kInvalidArgument,
            "Output '" + name + "' is " + ir::to_string(value.type()) + "; memory was set for " +
                ir::to_string(ir::Type::tensor(output.user.dtype, output.user_dims)) + "."};
  output.moved = describe_move(value);
  if (output.user_data && output.moved.copied) output.moved.reason = output.not_direct;
  BELAY_TRY(session_.to_host(value, output.user_data));
  own_text(value);
  if (output.user_data && value.bytes && value.host != output.user_data) {
    output.moved = {0, value.bytes, why_made_elsewhere(i, value)};
    copies_ = true;
  }
  output.keep.push_back(value);
  output.datum = describe_value(output, value);
  return {};
}

Status Context::copy_results() {
  for (Output& output : outputs_) {
    if (!output.user_data || output.keep.empty()) continue;
    const Value& value = output.keep[0];
    if (!value.bytes || value.host == output.user_data) continue;
    belay_tensor to = output.user;
    to.hdr.struct_size = sizeof to;
    to.data = output.user_data, to.buffer = nullptr, to.offset = 0, to.bytes = value.bytes;
    belay_tensor from = to;
    from.data = value.host;
    BELAY_TRY(session_.copy(to, from));
    output.tensors[0]->data = output.user_data;
  }
  return {};
}

const belay_datum* Context::describe_value(Output& to, const Value& value) {
  to.data.push_back(std::make_unique<belay_datum>());
  belay_datum& datum = *to.data.back();
  datum.hdr.struct_size = sizeof datum;
  datum.kind = value.kind;
  if (value.is_tensor()) {
    to.tensors.push_back(std::make_unique<belay_tensor>());
    belay_tensor& tensor = *to.tensors.back();
    tensor.hdr.struct_size = sizeof tensor;
    tensor.dtype = value.dtype;
    tensor.rank = uint32_t(value.dims.size());
    to.keep.push_back(value);  // for its dims; the vector's own buffer does not move with it
    tensor.dims = to.keep.back().dims.data();
    tensor.data = value.bytes ? value.host : nullptr;
    tensor.bytes = value.bytes;
    datum.tensor = &tensor;
    return &datum;
  }
  to.lists.push_back(std::make_unique<std::vector<const belay_datum*>>());
  auto& list = *to.lists.back();
  if (value.items)
    for (const Value& item : *value.items) list.push_back(describe_value(to, item));
  datum.items = list.data();
  datum.item_count = list.size();
  return &datum;
}

Result<const belay_datum*> Context::output(uint64_t index) {
  if (index >= outputs_.size())
    return Status(Code::kOutOfRange, "Output " + std::to_string(index) + " is not there: '" +
                                         executable_.name() + "' has " + std::to_string(outputs_.size()) +
                                         ".");
  if (!outputs_[index].datum)
    return Status(Code::kFailedPrecondition, "'" + executable_.name() + "' has not run in this context yet.");
  return outputs_[index].datum;
}

// ---- runs on a stream of the caller's
// ---------------------------------------------------------------------------------------------

void Context::settle() {
  if (!queued_.timeline) return;
  const plan::Hal& hal = session_.hal();
  hal.host->status_release(hal.host, hal.vt->synchronize(hal.host, queued_, BELAY_FOREVER));
  queued_ = {};
}

// Nothing may be read or written before its turn: what the host does at set or after a run cannot be queued.
Status Context::check_queueable() const {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kUnimplemented,
                  "A run of '" + executable_.name() + "' cannot be queued on a stream: " + why);
  };
  if (!executable_.target().host_visible)
    return refuse("results on its device are brought to the host first.");
  if (!simple_) return refuse("what it launches depends on values that the host must see while it runs.");
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Value& value = inputs_[i].value;
    const std::string name = "input '" + executable_.inputs()[i].name + "'";
    if (inputs_[i].set && (!value.is_tensor() || value.dtype == BELAY_DT_STRING))
      return refuse(name + " is no tensor of numbers.");
  }
  return {};
}

Result<belay_event> Context::enqueue(belay_obj* stream) {
  const plan::Hal& hal = session_.hal();
  belay_event done{};
  BELAY_TRY(hal.check(hal.vt->record(hal.host, stream, &done)));
  if (queued_.timeline && queued_.timeline != done.timeline) settle();  // there is one arena
  if (shapes_changed_) BELAY_TRY(prepare());
  BELAY_TRY(check_queueable());
  if (memory_changed_) BELAY_TRY(rebind());
  if (!collected_) BELAY_TRY(collect());
  std::vector<belay_copy_req> copies;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    const Value& value = output.keep[0];
    const std::string name = "Output '" + executable_.outputs()[i].name + "' of '" + executable_.name() + "'";
    if (!value.is_tensor() || value.dtype == BELAY_DT_STRING)
      return Status(Code::kUnimplemented, name + " is no tensor of numbers; such a run cannot be queued.");
    if (!output.user_data || !value.bytes || value.host == output.user_data) continue;
    const auto* from = static_cast<const char*>(value.host);
    const auto* to = static_cast<const char*>(output.user_data);
    if (from < to + value.bytes && to < from + value.bytes)
      return Status(Code::kInvalidArgument,
                    name +
                        " is to be written over a part of what it is a copy of; give it "
                        "memory apart, or the very same.");
    belay_copy_req& req = copies.emplace_back();
    req.hdr.struct_size = sizeof req;
    req.host_src = value.host;
    req.host_dst = output.user_data;
    req.bytes = value.bytes;
    output.tensors[0]->data = output.user_data;
  }
  if (input_copies_) BELAY_TRY(queue_input_copies(stream));
  if (stage_->program) {
    BELAY_TRY(hal.check(hal.vt->program_launch(hal.host, stage_->program.get(), stream,
                                               frame_.bindings().data(), frame_.bindings().size(), &done)));
    queued_ = done;
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    BELAY_TRY(hal.check(hal.vt->copy(hal.host, stream, &copies[i], &done)));
    queued_ = done;
  }
  count_run();
  return done;
}

// ---- asynchronous runs
// ----------------------------------------------------------------------------------------------

// Tells the caller that the run has ended; after that the context may be gone.
void Context::complete(belay_status status) {
  const belay_completion then = waiting_;
  const std::shared_ptr<Pending> pending = pending_;
  std::thread::id before;
  {
    std::lock_guard lock(pending->mutex);
    before = std::exchange(pending->completing, std::this_thread::get_id());
  }
  then.done(then.user, status);
  std::lock_guard lock(pending->mutex);
  pending->completing = before;
  --pending->runs;
  pending->ended.notify_all();
}

void Context::wait_for_run() {
  std::unique_lock lock(pending_->mutex);
  pending_->ended.wait(lock,
                       [&] { return !pending_->runs || pending_->completing == std::this_thread::get_id(); });
}

Result<bool> Context::run_async(belay_completion completion) {
  settle();
  const plan::Hal& hal = session_.hal();
  if (shapes_changed_) BELAY_TRY(prepare());
  const auto begin = [&] {
    waiting_ = completion;
    std::lock_guard lock(pending_->mutex);
    ++pending_->runs;
  };
  const auto give_up = [&](Status status) {
    std::lock_guard lock(pending_->mutex);
    --pending_->runs;
    return status;
  };
  if (simple_ && stage_->program && !needs_recover_ && !input_copies_) {
    if (memory_changed_) BELAY_TRY(rebind());
    if (!collected_) BELAY_TRY(collect());
    if (!copies_) {
      belay_event done{};
      BELAY_TRY(hal.check(hal.vt->program_launch(hal.host, stage_->program.get(), stream_.get(),
                                                 frame_.bindings().data(), frame_.bindings().size(), &done)));
      const belay_completion finish{this, [](void* user, belay_status status) BELAY_NOEXCEPT {
                                      auto& self = *static_cast<Context*>(user);
                                      if (status == BELAY_OK)
                                        self.count_run();
                                      else
                                        self.needs_recover_ = true;
                                      self.complete(status);
                                    }};
      begin();
      if (Status status = hal.check(hal.vt->on_reached(hal.host, done, finish)); !status.ok()) {
        // Nobody will tell of its end, so it is waited for here; that it may fail, too, says nothing new.
        needs_recover_ = !hal.check(hal.vt->synchronize(hal.host, done, BELAY_FOREVER)).ok();
        return give_up(std::move(status));
      }
      return true;
    }
  }
  const auto task = [](void* user) BELAY_NOEXCEPT {
    auto& self = *static_cast<Context*>(user);
    self.complete(guard(*self.session_.hal().host, [&] { return self.run(); }));
  };
  const auto* executor =
      static_cast<const belay_executor_vt*>(hal.host->get_service(hal.host, to_str(BELAY_HOST_EXECUTOR)));
  begin();
  if (executor) {
    if (Status status = hal.check(executor->post_blocking(hal.host, task, this)); !status.ok())
      return give_up(std::move(status));
  } else {
    task(this);  // a host without threads: it is done before the caller goes on
  }
  return true;
}

// ---- table
// ----------------------------------------------------------------------------------------------------------

namespace {

const belay_host& host_of(belay_obj* object) {
  return *static_cast<Context*>(object->impl)->executable().target().hal.host;
}
Context& at(belay_obj* object) { return *static_cast<Context*>(object->impl); }

belay_status set_input(belay_obj* object, uint64_t index, const belay_datum* datum) noexcept {
  return guard(host_of(object), [&] { return at(object).set_input(index, datum); });
}
belay_status set_output(belay_obj* object, uint64_t index, const belay_tensor* tensor) noexcept {
  return guard(host_of(object), [&] { return at(object).set_output(index, tensor); });
}
belay_status run(belay_obj* object) noexcept {
  return guard(host_of(object), [&] { return at(object).run(); });
}
belay_status run_async(belay_obj* object, belay_completion completion) noexcept {
  bool started = false;
  const belay_status status = guard(host_of(object), [&]() -> Status {
    BELAY_ASSIGN(started, at(object).run_async(completion));
    return {};
  });
  return started ? BELAY_DEFERRED : status;
}
belay_status output(belay_obj* object, uint64_t index, const belay_datum** out) noexcept {
  return guard(host_of(object), [&]() -> Status {
    BELAY_ASSIGN(*out, at(object).output(index));
    return {};
  });
}
belay_status enqueue(belay_obj* object, belay_obj* stream, belay_event* out) noexcept {
  return guard(host_of(object), [&]() -> Status {
    BELAY_ASSIGN(*out, at(object).enqueue(stream));
    return {};
  });
}
belay_status input_memory(belay_obj* object, uint64_t index, belay_io_memory* inout) noexcept {
  return guard(host_of(object), [&] { return at(object).input_memory(index, *inout); });
}
belay_status output_memory(belay_obj* object, uint64_t index, belay_io_memory* inout) noexcept {
  return guard(host_of(object), [&] { return at(object).output_memory(index, *inout); });
}
void destroy(belay_obj* object) noexcept {
  std::unique_ptr<Context> context(&at(object));
  context->wait_for_run();
  Executable& executable = context->executable();
  executable.give_back(std::move(context));
}

constexpr belay_context_vt kTable{{sizeof(belay_context_vt), 0, nullptr},
                                  set_input,
                                  set_output,
                                  run,
                                  run_async,
                                  output,
                                  destroy,
                                  enqueue,
                                  input_memory,
                                  output_memory};

}  // namespace

const belay_context_vt& Context::table() { return kTable; }

}  // namespace belay::schedule
