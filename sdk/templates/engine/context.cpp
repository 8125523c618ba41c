#include "context.hpp"

#include <belay/abi/hal.h>
#include <belay/fill.hpp>
#include <belay/graph/dtype.hpp>

#include <cstring>

using belay::Code;
using belay::Result;
using belay::Status;

namespace {

std::string text_of(const std::vector<int64_t>& dims) {
  std::string out;
  for (const int64_t dim : dims)
    out += (out.empty() ? "" : "x") + (dim < 0 ? std::string("?") : std::to_string(dim));
  return "[" + out + "]";
}

// Calls each(address) for every element in row-major order.
template <class Each>
void walk(const Lent& lent, Each&& each) {
  if (lent.count == 0) return;
  if (lent.strides.empty()) {
    for (uint64_t i = 0; i < lent.count; ++i) each(lent.data + i * sizeof(float));
    return;
  }
  std::vector<int64_t> at(lent.dims.size(), 0);
  int64_t offset = 0;
  for (uint64_t i = 0; i < lent.count; ++i) {
    each(lent.data + offset * int64_t(sizeof(float)));
    for (size_t d = at.size(); d-- > 0;) {
      offset += lent.strides[d];
      if (++at[d] < lent.dims[d]) break;
      offset -= at[d] * lent.strides[d], at[d] = 0;
    }
  }
}

}  // namespace

Status Context::begin() {
  BELAY_TRY(model_.take_context());
  in_pool_ = true;
  return {};
}

Context::~Context() {
  if (in_pool_) model_.give_back_context();
}

Result<Lent> Context::lent(const belay_tensor& tensor, const Port& port, const char* what) {
  const std::string who = std::string(what) + " '" + port.name + "' of '" + model_.name + "'";
  Lent out;
  out.set = true;
  out.dims.assign(tensor.dims, tensor.dims + tensor.rank);
  if (tensor.dtype != BELAY_DT_FLOAT32)
    return Status(Code::kInvalidArgument,
                  who + " is of float32, not of " + std::string(belay::dtype_name(tensor.dtype)) + ".");
  bool fits = port.info.rank == BELAY_NONE || port.dims.size() == out.dims.size();
  for (size_t i = 0; fits && i < port.dims.size(); ++i)
    fits = port.dims[i] < 0 || port.dims[i] == out.dims[i];
  const auto count = belay::element_count(out.dims);
  if (!fits || !count)
    return Status(Code::kInvalidArgument,
                  who + " has the dims " + text_of(out.dims) + ", want " + text_of(port.dims) + ".");
  out.count = *count;
  if (tensor.strides) out.strides.assign(tensor.strides, tensor.strides + tensor.rank);
  out.data = static_cast<char*>(tensor.data);
  if (tensor.buffer) {
    const auto* hal =
        static_cast<const belay_hal_vt*>(host().get_service(&host(), belay::literal(BELAY_HOST_HAL)));
    belay_hal_buffer_info info{};
    info.hdr.struct_size = sizeof info;
    if (!hal)
      return Status(Code::kUnimplemented, who + " is in a buffer, and the host has no " BELAY_HOST_HAL ".");
    BELAY_TRY(belay::from_c(host(), hal->buffer_info(&host(), tensor.buffer, &info)));
    if (!info.host)
      return Status(Code::kInvalidArgument,
                    who + " is in a buffer that the host does not see; the engine '@ID@' runs there.");
    out.data = static_cast<char*>(info.host) + tensor.offset;
  }
  if (out.count && !out.data)
    return Status(Code::kInvalidArgument, who + " has no memory: its data is NULL.");
  return out;
}

Status Context::no_port(const char* what, uint64_t index, size_t count) const {
  return {Code::kOutOfRange, std::string(what) + " " + std::to_string(index) + " is not there: '" +
                                 model_.name + "' has " + std::to_string(count) + "."};
}

Status Context::set_input(uint64_t index, const belay_datum* datum) {
  if (index >= inputs_.size()) return no_port("Input", index, inputs_.size());
  if (!datum) {
    inputs_[index].from = {};
    return {};
  }
  if (datum->kind != BELAY_TYPE_TENSOR || !datum->tensor)
    return {Code::kInvalidArgument, "Input '" + model_.inputs[index].name + "' of '" + model_.name +
                                        "' is a tensor; something of kind " + std::to_string(datum->kind) +
                                        " came."};
  BELAY_ASSIGN(inputs_[index].from, lent(*datum->tensor, model_.inputs[index], "Input"));
  return {};
}

Status Context::set_output(uint64_t index, const belay_tensor* tensor) {
  if (index >= outputs_.size()) return no_port("Output", index, outputs_.size());
  if (!tensor) {
    outputs_[index].to = {};
    return {};
  }
  BELAY_ASSIGN(outputs_[index].to, lent(*tensor, model_.outputs[index], "Output"));
  return {};
}

Status Context::run() {
  ran_ = false;
  values_.clear();
  values_.resize(model_.value_count);
  uint64_t arena = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Lent& input = inputs_[i].from;
    Moved& moved = inputs_[i].moved = {};
    const uint64_t bytes = input.count * sizeof(float);
    if (!input.set)
      return {Code::kFailedPrecondition,
              "Input '" + model_.inputs[i].name + "' of '" + model_.name + "' was not set."};
    Value& value = values_[model_.inputs[i].value];
    value.dims = input.dims, value.count = input.count;
    if (input.strides.empty() && reinterpret_cast<uintptr_t>(input.data) % alignof(float) == 0) {
      value.data = reinterpret_cast<const float*>(input.data);
      model_.input_shared += moved.shared = bytes;
      continue;
    }
    value.storage.resize(input.count);
    float* to = value.storage.data();
    walk(input, [&](const char* from) { std::memcpy(to++, from, sizeof(float)); });
    value.data = value.storage.data();
    model_.input_copied += moved.copied = bytes;
    moved.reason = input.strides.empty() ? "it is not aligned" : "it is not dense";
  }
  for (const Step& step : model_.steps) {
    const Value& from = values_[step.from];
    Value& to = values_[step.to];
    to.dims = from.dims, to.count = from.count;
    to.storage.resize(from.count);
    for (uint64_t i = 0; i < from.count; ++i)
      to.storage[i] = from.data[i] < 0 ? 0 : from.data[i];  // NaN stays
    to.data = to.storage.data();
    arena += from.count * sizeof(float);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Value& value = values_[model_.outputs[i].value];
    Output& output = outputs_[i];
    if (value.storage.empty()) {  // an input that is an output: the result outlives what was lent
      value.storage.assign(value.data, value.data + value.count);
      value.data = value.storage.data();
    }
    output.tensor = {};
    output.tensor.hdr.struct_size = sizeof output.tensor;
    output.tensor.dtype = BELAY_DT_FLOAT32;
    output.tensor.rank = uint32_t(value.dims.size());
    output.tensor.dims = value.dims.data();
    output.tensor.data = const_cast<float*>(value.data);
    output.tensor.bytes = value.count * sizeof(float);
    output.datum = {};
    output.datum.hdr.struct_size = sizeof output.datum;
    output.datum.kind = BELAY_TYPE_TENSOR;
    output.datum.tensor = &output.tensor;
    output.moved = {};
    if (!output.to.set) {
      output.moved.shared = output.tensor.bytes;
      continue;
    }
    if (output.to.dims != value.dims)
      return {Code::kInvalidArgument, "Output '" + model_.outputs[i].name + "' of '" + model_.name +
                                          "' has the dims " + text_of(value.dims) + "; its memory is for " +
                                          text_of(output.to.dims) + "."};
    const float* from = value.data;
    walk(output.to, [&](char* to) { std::memcpy(to, from++, sizeof(float)); });
    model_.output_copied += output.moved.copied = output.tensor.bytes;
    output.moved.reason = "the engine computes in memory of its own";
  }
  model_.arena_bytes = arena;
  ++model_.runs;
  ran_ = true;
  return {};
}

Status Context::run_async(belay_completion completion) {
  const auto* executor =
      static_cast<const belay_executor_vt*>(host().get_service(&host(), belay::literal(BELAY_HOST_EXECUTOR)));
  if (!executor) return {Code::kUnimplemented, "The host has no " BELAY_HOST_EXECUTOR "; call run."};
  waiting_ = completion;
  return belay::from_c(
      host(), executor->post_blocking(
                  &host(),
                  [](void* user) noexcept {
                    Context& self = *static_cast<Context*>(user);
                    const belay_completion done = self.waiting_;  // `done` may end this context
                    const belay_status status = belay::guard(self.host(), [&] { return self.run(); });
                    done.done(done.user, status);
                  },
                  this));
}

Status Context::output(uint64_t index, const belay_datum** out) {
  if (index >= outputs_.size()) return no_port("Output", index, outputs_.size());
  if (!ran_)
    return {Code::kFailedPrecondition, "'" + model_.name + "' has not run with success in this context."};
  *out = &outputs_[index].datum;
  return {};
}

void Context::fill(const Moved& moved, belay_io_memory* inout) {
  belay_io_memory all{};
  all.shared_bytes = moved.shared, all.copied_bytes = moved.copied, all.reason = belay::literal(moved.reason);
  belay::fill(inout, all);
}

Status Context::input_memory(uint64_t index, belay_io_memory* inout) const {
  if (index >= inputs_.size()) return no_port("Input", index, inputs_.size());
  fill(inputs_[index].moved, inout);
  return {};
}

Status Context::output_memory(uint64_t index, belay_io_memory* inout) const {
  if (index >= outputs_.size()) return no_port("Output", index, outputs_.size());
  fill(outputs_[index].moved, inout);
  return {};
}

// ---- the table
// -----------------------------------------------------------------------------------------------------
namespace {

template <class Body>
belay_status with(belay_obj* object, Body&& body) noexcept {
  Context& context = belay::self<Context>(object);
  return belay::guard(context.host(), [&]() -> Status { return body(context); });
}

belay_status set_input(belay_obj* object, uint64_t index, const belay_datum* datum) noexcept {
  return with(object, [&](Context& context) { return context.set_input(index, datum); });
}
belay_status set_output(belay_obj* object, uint64_t index, const belay_tensor* tensor) noexcept {
  return with(object, [&](Context& context) { return context.set_output(index, tensor); });
}
belay_status run(belay_obj* object) noexcept {
  return with(object, [](Context& context) { return context.run(); });
}
belay_status run_async(belay_obj* object, belay_completion completion) noexcept {
  const belay_status status = with(object, [&](Context& context) { return context.run_async(completion); });
  return status == BELAY_OK ? BELAY_DEFERRED : status;
}
belay_status output(belay_obj* object, uint64_t index, const belay_datum** out) noexcept {
  return with(object, [&](Context& context) { return context.output(index, out); });
}
belay_status input_memory(belay_obj* object, uint64_t index, belay_io_memory* inout) noexcept {
  return with(object, [&](Context& context) { return context.input_memory(index, inout); });
}
belay_status output_memory(belay_obj* object, uint64_t index, belay_io_memory* inout) noexcept {
  return with(object, [&](Context& context) { return context.output_memory(index, inout); });
}
void destroy(belay_obj* object) noexcept { delete &belay::self<Context>(object); }

constexpr belay_context_vt kTable{.hdr = {sizeof(belay_context_vt), 0, nullptr},
                                  .set_input = set_input,
                                  .set_output = set_output,
                                  .run = run,
                                  .run_async = run_async,
                                  .output = output,
                                  .destroy = destroy,
                                  .enqueue = nullptr,
                                  .input_memory = input_memory,
                                  .output_memory = output_memory};

}  // namespace

const belay_context_vt& Context::table() { return kTable; }
