#include "schedule/executable.hpp"

#include <belay/abi/host.h>

#include <algorithm>
#include <cstring>

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
  for (Input& input : inputs_) input = {};
  for (Output& output : outputs_) output = {};
  frame_.results.clear();
  frame_.clear();
  stage_.reset();
  shapes_changed_ = memory_changed_ = true;
  simple_ = collected_ = false;
  session_.pool().end_run();
}

// ---- inputs and outputs
// ---------------------------------------------------------------------------------------------

Status Context::check_type(uint64_t index, const Value& value) const {
  const Executable::Io& want = executable_.inputs()[index];
  const auto refuse = [&](const std::string& found, const std::string& expected) {
    return Status(Code::kInvalidArgument, "Input '" + want.name + "' of '" + executable_.name() + "' is " +
                                              found + ", expected " + expected + ".");
  };
  const auto kind_name = [](uint32_t kind) {
    return kind == BELAY_TYPE_SEQUENCE   ? "a sequence"
           : kind == BELAY_TYPE_OPTIONAL ? "an optional"
           : kind == BELAY_TYPE_TENSOR   ? "a tensor"
                                         : "a map";
  };
  // An optional input takes its element as it is, too.
  if (want.kind && value.kind != want.kind && want.kind != BELAY_TYPE_OPTIONAL)
    return refuse(kind_name(value.kind), kind_name(want.kind));
  if (!value.is_tensor()) return {};
  ir::Type expected = ir::Type::unranked(want.dtype);
  if (want.kind == BELAY_TYPE_TENSOR && want.rank != BELAY_NONE)
    expected = ir::Type::tensor(want.dtype, want.dims);
  bool fits = want.dtype == BELAY_DT_UNDEFINED || value.dtype == want.dtype;
  if (expected.ranked) {
    fits &= value.dims.size() == want.dims.size();
    for (size_t i = 0; fits && i < want.dims.size(); ++i)
      fits = want.dims[i] < 0 || want.dims[i] == value.dims[i];
  }
  return fits ? Status() : refuse(ir::to_string(value.type()), ir::to_string(expected));
}

Result<Value> Context::take_tensor(uint64_t index, const belay_tensor& tensor) {
  const std::string label = "Input '" + executable_.inputs()[index].name + "'";
  Value out;
  out.kind = BELAY_TYPE_TENSOR;
  out.dtype = tensor.dtype;
  if (tensor.rank > BELAY_MAX_RANK)
    return Status(Code::kInvalidArgument, label + " has rank " + std::to_string(tensor.rank) + ", at most " +
                                              std::to_string(BELAY_MAX_RANK) + " are possible.");
  out.dims.assign(tensor.dims, tensor.dims + tensor.rank);
  const auto count = element_count(out.dims);
  const bool strings = tensor.dtype == BELAY_DT_STRING;
  const auto bytes = !count    ? std::nullopt
                     : strings ? std::optional<uint64_t>(*count * sizeof(belay_str))
                               : dtype_bytes(tensor.dtype, *count);
  if (!bytes)
    return Status(Code::kInvalidArgument, label + " is " + std::string(dtype_name(tensor.dtype)) +
                                              ir::dims_to_string(out.dims) + ", which is no tensor.");
  out.bytes = *bytes;
  if (!out.bytes) return out;
  bool dense = true;
  if (tensor.strides) {
    int64_t stride = 1;
    for (size_t i = out.dims.size(); i-- > 0; stride *= out.dims[i])
      if (out.dims[i] != 1 && tensor.strides[i] != stride) dense = false;
  }
  void* data = tensor.data;
  const plan::Hal& hal = session_.hal();
  if (!data && tensor.buffer) {
    belay_hal_buffer_info info{};
    info.hdr.struct_size = sizeof info;
    BELAY_TRY(hal.check(hal.vt->buffer_info(hal.host, tensor.buffer, &info)));
    if (tensor.offset > info.bytes || out.bytes > info.bytes - tensor.offset)
      return Status(Code::kOutOfRange, label + " reaches past the end of its buffer.");
    if (info.host) {
      data = static_cast<char*>(info.host) + tensor.offset;
    } else {
      if (!dense) return Status(Code::kUnimplemented, label + " has strides and lies in device memory.");
      out.buffer = tensor.buffer;
      out.offset = tensor.offset;
      return out;
    }
  }
  if (!data) return Status(Code::kInvalidArgument, label + " has no data.");
  if (dense && tensor.bytes && tensor.bytes < out.bytes)
    return Status(Code::kOutOfRange, label + " has " + std::to_string(tensor.bytes) + " bytes, " +
                                         ir::to_string(out.type()) + " needs " + std::to_string(out.bytes) +
                                         ".");
  if (dense && ir::is_aligned(data, tensor.dtype)) {
    out.host = data;
    return out;
  }
  const uint64_t width = out.bytes / *count;
  if (!dense && width * *count != out.bytes)
    return Status(Code::kUnimplemented, label + " has strides and elements of less than a byte.");
  BELAY_ASSIGN(out.storage, session_.pool().take_host(out.bytes));
  out.host = out.storage->host;
  input_copied.fetch_add(out.bytes, std::memory_order_relaxed);
  if (dense) {
    std::memcpy(out.host, data, out.bytes);
    return out;
  }
  std::vector<int64_t> at(out.dims.size(), 0);
  int64_t from = 0;
  for (uint64_t i = 0; i < *count; ++i) {
    std::memcpy(static_cast<char*>(out.host) + i * width,
                static_cast<const char*>(data) + from * int64_t(width), width);
    for (size_t d = at.size(); d-- > 0;) {
      from += tensor.strides[d];
      if (++at[d] < out.dims[d]) break;
      from -= tensor.strides[d] * at[d];
      at[d] = 0;
    }
  }
  return out;
}

Result<Value> Context::take_datum(uint64_t index, const belay_datum& datum) {
  if (datum.kind == BELAY_TYPE_TENSOR) {
    if (!datum.tensor)
      return Status(Code::kInvalidArgument,
                    "Input '" + executable_.inputs()[index].name + "' is a tensor without a tensor.");
    return take_tensor(index, *datum.tensor);
  }
  if (datum.kind != BELAY_TYPE_SEQUENCE && datum.kind != BELAY_TYPE_OPTIONAL)
    return Status(Code::kUnimplemented,
                  "Input '" + executable_.inputs()[index].name +
                      "' is of a kind that no operator takes: " + std::to_string(datum.kind) + ".");
  std::vector<Value> items;
  for (uint64_t i = 0; i < datum.item_count; ++i) {
    BELAY_ASSIGN(Value item, take_datum(index, *datum.items[i]));
    items.push_back(std::move(item));
  }
  const uint32_t declared = executable_.inputs()[index].dtype;
  Value out = make_sequence(std::move(items));
  out.kind = datum.kind;
  if (!out.dtype) out.dtype = declared;
  return out;
}

Status Context::set_input(uint64_t index, const belay_datum* datum) {
  if (index >= inputs_.size())
    return {Code::kOutOfRange, "Input " + std::to_string(index) + " is not there: '" + executable_.name() +
                                   "' has " + std::to_string(inputs_.size()) + "."};
  Input& input = inputs_[index];
  if (!datum) {
    shapes_changed_ |= input.set;
    input = {};
    return {};
  }
  // The usual case first: a tensor that looks like the last one and can be used where it lies.
  const belay_tensor* tensor = datum->kind == BELAY_TYPE_TENSOR ? datum->tensor : nullptr;
  if (input.set && tensor && tensor->data && !tensor->strides && input.value.is_tensor() &&
      !input.value.storage && input.value.host && tensor->dtype == input.value.dtype &&
      tensor->rank == input.value.dims.size() && ir::is_aligned(tensor->data, tensor->dtype) &&
      (!tensor->bytes || tensor->bytes >= input.value.bytes) &&
      std::equal(input.value.dims.begin(), input.value.dims.end(), tensor->dims)) {
    if (input.value.host == tensor->data) return {};
    input.value.host = tensor->data;
    if (simple_ && !memory_changed_ && !stage_->views.size() && !copies_) {
      for (const uint32_t binding : bindings_of_input_[index]) frame_.bindings()[binding].host = tensor->data;
      return {};
    }
    memory_changed_ = true;
    return {};
  }
  BELAY_ASSIGN(Value value, take_datum(index, *datum));
  BELAY_TRY(check_type(index, value));
  const bool same = input.set && value.is_tensor() && input.value.is_tensor() &&
                    value.dtype == input.value.dtype && value.dims == input.value.dims;
  shapes_changed_ |= !same;
  memory_changed_ = true;
  input.value = std::move(value);
  input.set = true;
  return {};
}

Status Context::set_output(uint64_t index, const belay_tensor* tensor) {
  if (index >= outputs_.size())
    return {Code::kOutOfRange, "Output " + std::to_string(index) + " is not there: '" + executable_.name() +
                                   "' has " + std::to_string(outputs_.size()) + "."};
  Output& output = outputs_[index];
  const std::string label = "Output '" + executable_.outputs()[index].name + "'";
  if (!tensor) {
    memory_changed_ |= output.user_data != nullptr;
    output.user_data = nullptr;
    output.user = {};
    return {};
  }
  void* data = tensor->data;
  if (!data && tensor->buffer) {
    belay_hal_buffer_info info{};
    info.hdr.struct_size = sizeof info;
    const plan::Hal& hal = session_.hal();
    BELAY_TRY(hal.check(hal.vt->buffer_info(hal.host, tensor->buffer, &info)));
    if (!info.host) return {Code::kUnimplemented, label + ": the host cannot write to that buffer."};
    if (tensor->offset > info.bytes || tensor->bytes > info.bytes - tensor->offset)
      return {Code::kOutOfRange, label + " reaches past the end of its buffer."};
    data = static_cast<char*>(info.host) + tensor->offset;
  }
  if (tensor->strides) return {Code::kUnimplemented, label + ": results are written dense, without strides."};
  if (tensor->dtype == BELAY_DT_STRING)
    return {Code::kUnimplemented, label + ": strings are given in memory of the context only."};
  const ir::Dims dims(tensor->dims, tensor->dims + tensor->rank);
  const auto count = element_count(dims);
  const auto bytes = count ? dtype_bytes(tensor->dtype, *count) : std::nullopt;
  if (!bytes) return {Code::kInvalidArgument, label + " is no tensor: " + ir::dims_to_string(dims) + "."};
  if (tensor->bytes < *bytes)
    return {Code::kOutOfRange, label + " has room for " + std::to_string(tensor->bytes) +
                                   " bytes, it needs " + std::to_string(*bytes) + "."};
  if (!data && *bytes) return {Code::kInvalidArgument, label + " has no memory."};
  if (output.user_data == data && output.user.dtype == tensor->dtype && output.user_dims == dims) return {};
  output.user = *tensor;
  output.user_dims = dims;
  output.user.dims = output.user_dims.data();
  output.user_data = data ? data : &output;  // no bytes: any address will do, and none is read
  memory_changed_ = true;
  return {};
}

bool Context::overlaps_input(const void* data, uint64_t bytes) const {
  const auto* begin = static_cast<const char*>(data);
  for (const Input& input : inputs_) {
    const auto* other = static_cast<const char*>(input.value.host);
    if (other && begin < other + input.value.bytes && other < begin + bytes) return true;
  }
  return false;
}

// ---- running
// --------------------------------------------------------------------------------------------------------

Status Context::prepare() {
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
  frame_.clear();
  BELAY_ASSIGN(stage_, session_.plan_for(0, begin, known));
  executable_.remember(stage_);
  simple_ = stage_->steps.empty() && executable_.target().host_visible;
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
    const bool direct = ir::is_aligned(output.user_data, output.user.dtype) &&
                        !overlaps_input(output.user_data, output.user.bytes);
    frame_.results.push_back(
        {executable_.outputs()[i].value, &output.user, direct ? output.user_data : nullptr});
  }
  if (simple_) BELAY_TRY(frame_.bind(stage_));
  memory_changed_ = false;
  collected_ = false;
  return {};
}

Status Context::run() {
  if (needs_recover_) {
    BELAY_TRY(session_.hal().check(session_.hal().vt->recover(session_.hal().host, stream_.get())));
    needs_recover_ = false;
  }
  if (shapes_changed_) BELAY_TRY(prepare());
  if (memory_changed_ || !simple_) BELAY_TRY(rebind());
  if (simple_) {
    if (stage_->program) BELAY_TRY(session_.launch(stage_->program.get(), frame_.bindings()));
  } else {
    BELAY_TRY(run_frame());
  }
  if (!collected_) BELAY_TRY(collect());
  if (copies_) BELAY_TRY(copy_results());
  runs.store(runs.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return {};
}

Status Context::run_frame() {
  Status status = frame_.run(stage_);
  session_.pool().end_run();
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
    Value value = frame_.get(executable_.outputs()[i].value);
    if (!value.kind) return {Code::kInternal, "Output '" + executable_.outputs()[i].name + "' was not made."};
    BELAY_TRY(session_.to_host(value));
    if (output.user_data) {
      const ir::Dims& dims = value.dims;
      if (!value.is_tensor() || value.dtype != output.user.dtype || dims != output.user_dims)
        return {Code::kInvalidArgument,
                "Output '" + executable_.outputs()[i].name + "' is " + ir::to_string(value.type()) +
                    "; memory was set for " +
                    ir::to_string(ir::Type::tensor(output.user.dtype, output.user_dims)) + "."};
      if (value.bytes && value.host != output.user_data) copies_ = true;
    }
    output.keep.push_back(value);
    output.datum = describe_value(output, value);
  }
  collected_ = simple_;
  return {};
}

Status Context::copy_results() {
  for (Output& output : outputs_) {
    if (!output.user_data || output.keep.empty()) continue;
    const Value& value = output.keep[0];
    if (!value.bytes || value.host == output.user_data) continue;
    std::memmove(output.user_data, value.host, value.bytes);
    output_copied.fetch_add(value.bytes, std::memory_order_relaxed);
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

// ---- asynchronous runs
// ----------------------------------------------------------------------------------------------

Result<bool> Context::run_async(belay_completion completion) {
  const plan::Hal& hal = session_.hal();
  if (shapes_changed_) BELAY_TRY(prepare());
  if (simple_ && stage_->program && !needs_recover_) {
    if (memory_changed_) BELAY_TRY(rebind());
    if (!collected_) BELAY_TRY(collect());
    if (!copies_) {
      waiting_ = completion;
      belay_event done{};
      BELAY_TRY(hal.check(hal.vt->program_launch(hal.host, stage_->program.get(), stream_.get(),
                                                 frame_.bindings().data(), frame_.bindings().size(), &done)));
      const belay_completion finish{this, [](void* user, belay_status status) BELAY_NOEXCEPT {
                                      auto& self = *static_cast<Context*>(user);
                                      if (status == BELAY_OK)
                                        self.runs.fetch_add(1, std::memory_order_relaxed);
                                      else
                                        self.needs_recover_ = true;
                                      const belay_completion then = self.waiting_;
                                      then.done(then.user, status);
                                    }};
      BELAY_TRY(hal.check(hal.vt->on_reached(hal.host, done, finish)));
      return true;
    }
  }
  waiting_ = completion;
  const auto task = [](void* user) BELAY_NOEXCEPT {
    auto& self = *static_cast<Context*>(user);
    const belay_host& host = *self.session_.hal().host;
    const belay_status status = guard(host, [&] { return self.run(); });
    const belay_completion then = self.waiting_;
    then.done(then.user, status);
  };
  const auto* executor =
      static_cast<const belay_executor_vt*>(hal.host->get_service(hal.host, to_str(BELAY_HOST_EXECUTOR)));
  if (executor)
    BELAY_TRY(hal.check(executor->post_blocking(hal.host, task, this)));
  else
    task(this);  // a host without threads: it is done before the caller goes on
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
void destroy(belay_obj* object) noexcept {
  std::unique_ptr<Context> context(&at(object));
  Executable& executable = context->executable();
  executable.give_back(std::move(context));
}

constexpr belay_context_vt kTable{
    {sizeof(belay_context_vt), 0, nullptr}, set_input, set_output, run, run_async, output, destroy};

}  // namespace

const belay_context_vt& Context::table() { return kTable; }

}  // namespace belay::schedule
