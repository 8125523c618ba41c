// What a run copies between the caller's memory and the kernels', what it shares, and why.
#include "schedule/executable.hpp"

#include <belay/fill.hpp>

namespace belay::schedule {

// Where the host cannot use what the caller lent: into a block of the context, anew for each run, so that it sees
// what the caller has written since.
template <class Copy>
Status Context::each_input_copy(Copy&& queue_or_copy) const {
  for (const Input& input : inputs_) {
    for (const HostCopy& copy : input.taken.copies) {
      belay_tensor to{};
      to.hdr.struct_size = sizeof to;
      // Text is copied as what refers to it, of the size of this type.
      static_assert(sizeof(belay_str) == 16);
      to.dtype = copy.dtype == BELAY_DT_STRING ? BELAY_DT_COMPLEX128 : copy.dtype;
      to.rank = uint32_t(copy.dims.size());
      to.dims = copy.dims.data();
      to.data = copy.to;
      to.bytes = copy.bytes;
      belay_tensor from = to;
      from.data = copy.from;
      if (!copy.strides.empty()) from.strides = copy.strides.data(), from.bytes = 0;
      BELAY_TRY(queue_or_copy(to, from));
    }
  }
  return {};
}

Status Context::copy_inputs() {
  return each_input_copy([&](const belay_tensor& to, const belay_tensor& from) { return session_.copy(to, from); });
}

// In their turn, so that they read what is there then; the blocks are those of this context's runs alone, which follow
// one another.
Status Context::queue_input_copies(belay_obj* stream) {
  const plan::Hal& hal = session_.hal();
  return each_input_copy([&](const belay_tensor& to, const belay_tensor& from) {
    return hal.check(hal.vt->tensor_copy(hal.host, stream, &to, &from, &queued_));
  });
}

// Before the value is brought to the host: in memory of the context the caller reads it where kernels wrote it.
Context::Moved Context::describe_move(const Value& value) {
  Moved moved;
  if (value.items)
    for (const Value& item : *value.items) {
      const Moved part = describe_move(item);
      moved.shared += part.shared, moved.copied += part.copied;
      if (!part.reason.empty()) moved.reason = part.reason;
    }
  if (!value.is_tensor()) return moved;
  if (value.dtype == BELAY_DT_STRING) return {0, value.bytes, "text is kept by the context that gives it"};
  if (!value.host && value.bytes) return {0, value.bytes, "the device's memory is not the host's"};
  return {value.bytes, 0, {}};
}

std::string Context::why_made_elsewhere(size_t index, const Value& value) const {
  const Output& output = outputs_[index];
  if (!output.not_direct.empty()) return output.not_direct;
  const ir::Env& env = frame_.stage().env;
  if (env.constants[env.resolve(executable_.outputs()[index].value)]) return "it is a constant of the model";
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].value.host == value.host) return "it is input '" + executable_.inputs()[i].name + "' as it came";
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (i != index && outputs_[i].user_data == value.host)
      return "it has the elements of output '" + executable_.outputs()[i].name + "', which lie there";
  return "what makes it gives it in memory of its own";
}

void Context::account() {
  run_inputs_ = run_outputs_ = {};
  const bool visible = executable_.target().host_visible;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    input.moved = input.taken.moved;
    const Value& value = input.value;
    if (!visible && input.set && value.is_tensor() && value.host && frame_.get(executable_.inputs()[i].value).buffer) {
      input.moved.shared = 0;  // a kernel of the device read it
      input.moved.copied += value.bytes;
    }
    if (!input.moved.copied) input.moved.reason.clear();
    run_inputs_.shared += input.moved.shared, run_inputs_.copied += input.moved.copied;
  }
  for (const Output& output : outputs_)
    run_outputs_.shared += output.moved.shared, run_outputs_.copied += output.moved.copied;
}

void Context::count_run() {
  const auto add = [](std::atomic<uint64_t>& to, uint64_t more) {
    to.store(to.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  };
  add(runs, 1);
  add(of_inputs.shared, run_inputs_.shared), add(of_inputs.copied, run_inputs_.copied);
  add(of_outputs.shared, run_outputs_.shared), add(of_outputs.copied, run_outputs_.copied);
}

Status Context::fill(const Moved& moved, belay_io_memory& out) {
  belay_io_memory memory{};
  memory.shared_bytes = moved.shared;
  memory.copied_bytes = moved.copied;
  memory.reason = to_str(moved.reason);
  belay::fill(&out, memory);
  return {};
}

Status Context::input_memory(uint64_t index, belay_io_memory& out) const {
  if (index >= inputs_.size())
    return {Code::kOutOfRange, "Input " + std::to_string(index) + " is not there: '" + executable_.name() +
                                   "' has " + std::to_string(inputs_.size()) + "."};
  return fill(inputs_[index].moved, out);
}

Status Context::output_memory(uint64_t index, belay_io_memory& out) const {
  if (index >= outputs_.size())
    return {Code::kOutOfRange, "Output " + std::to_string(index) + " is not there: '" + executable_.name() +
                                   "' has " + std::to_string(outputs_.size()) + "."};
  return fill(outputs_[index].moved, out);
}

}  // namespace belay::schedule
