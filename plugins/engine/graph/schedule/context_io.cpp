// What a caller gives a context: inputs, and memory for outputs.
#include "schedule/executable.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace belay::schedule {

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

// Dims of one name are equal over all inputs.
Status Context::check_symbols() const {
  struct Seen {
    size_t input, axis;
  };
  std::unordered_map<int64_t, Seen> seen;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const ir::Type& declared = executable_.model().values[executable_.inputs()[i].value].type;
    const Value& value = inputs_[i].value;
    if (!inputs_[i].set || !value.is_tensor() || !declared.is_tensor() || !declared.ranked) continue;
    for (size_t axis = 0; axis < declared.dims.size() && axis < value.dims.size(); ++axis) {
      const int64_t symbol = declared.dims[axis];
      if (symbol > ir::kFirstSymbol) continue;
      const auto [at, fresh] = seen.try_emplace(symbol, Seen{i, axis});
      const Seen& other = at->second;
      const int64_t size = inputs_[other.input].value.dims[other.axis];
      if (fresh || size == value.dims[axis]) continue;
      const auto describe = [&](size_t input, size_t of) {
        const Value& tensor = inputs_[input].value;
        return std::to_string(tensor.dims[of]) + " in axis " + std::to_string(of) + " of input '" +
               executable_.inputs()[input].name + "' (" + ir::to_string(tensor.type()) + ")";
      };
      return {Code::kInvalidArgument, "The dim '" + executable_.model().symbol_of(symbol) + "' of '" +
                                          executable_.name() + "' is " + describe(other.input, other.axis) +
                                          " and " + describe(i, axis) + "; all must be equal."};
    }
  }
  return {};
}

namespace {

constexpr uint32_t kMaxDepth = 16;  // of items in items; a caller's mistake may make it endless

// A caller's tensor has as many dims as it says.
Status check_dims(const std::string& label, const belay_tensor& tensor) {
  if (tensor.rank > BELAY_MAX_RANK)
    return {Code::kInvalidArgument, label + " has rank " + std::to_string(tensor.rank) + ", at most " +
                                        std::to_string(BELAY_MAX_RANK) + " are possible."};
  if (tensor.rank && !tensor.dims)
    return {Code::kInvalidArgument,
            label + " has rank " + std::to_string(tensor.rank) + ", but its dims are NULL."};
  return {};
}

// What is read, in bytes from the first element: [low, high).
struct Extent {
  int64_t low, high;
};

// Nothing where strides reach further than 64 bits count.
std::optional<Extent> extent_of(const ir::Dims& dims, const int64_t* strides, uint64_t width) {
  Extent out{0, 1};
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t far = 0;
    if (__builtin_mul_overflow(dims[i] - 1, strides[i], &far)) return std::nullopt;
    int64_t& side = far < 0 ? out.low : out.high;
    if (__builtin_add_overflow(side, far, &side)) return std::nullopt;
  }
  if (__builtin_mul_overflow(out.low, int64_t(width), &out.low) ||
      __builtin_mul_overflow(out.high, int64_t(width), &out.high))
    return std::nullopt;
  return out;
}

}  // namespace

Result<Value> Context::take_tensor(uint64_t index, const belay_tensor& tensor, Taken& taken) {
  const std::string label = "Input '" + executable_.inputs()[index].name + "'";
  Value out;
  out.kind = BELAY_TYPE_TENSOR;
  out.dtype = tensor.dtype;
  BELAY_TRY(check_dims(label, tensor));
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
  const uint64_t width = out.bytes / *count;
  if (!dense && width * *count != out.bytes)
    return Status(Code::kUnimplemented, label + " has strides and elements of less than a byte.");
  Extent extent{0, int64_t(out.bytes)};
  if (!dense) {
    const auto strided = extent_of(out.dims, tensor.strides, width);
    if (!strided)
      return Status(Code::kOutOfRange, label + " has strides that reach further than 64 bits count.");
    extent = *strided;
  }
  void* data = tensor.data;
  const plan::Target& target = executable_.target();
  const plan::Hal& hal = session_.hal();
  bool of_device = false;  // it lies in memory of the model's device
  if (!data && tensor.buffer) {
    belay_hal_buffer_info info{};
    info.hdr.struct_size = sizeof info;
    BELAY_TRY(hal.check(hal.vt->buffer_info(hal.host, tensor.buffer, &info)));
    if (tensor.offset > info.bytes || uint64_t(extent.high) > info.bytes - tensor.offset ||
        uint64_t{0} - uint64_t(extent.low) > tensor.offset)
      return Status(Code::kOutOfRange, label + " reaches past the end of its buffer.");
    of_device = !info.device || info.device == target.device;
    if (info.host) {
      data = static_cast<char*>(info.host) + tensor.offset;
    } else {
      if (!of_device)
        return Status(Code::kUnimplemented, label + " lies in a buffer of another device, whose memory the host does "
                                                    "not see; copy it to host memory or to the model's device.");
      if (!dense) return Status(Code::kUnimplemented, label + " has strides and lies in device memory.");
      taken.moved.shared += out.bytes;
      out.buffer = tensor.buffer;
      out.offset = tensor.offset;
      return out;
    }
  }
  if (!data) return Status(Code::kInvalidArgument, label + " has no data.");
  if (tensor.bytes && tensor.bytes < uint64_t(extent.high))
    return Status(Code::kOutOfRange, label + " has " + std::to_string(tensor.bytes) + " bytes, " +
                                         ir::to_string(out.type()) + " needs " + std::to_string(extent.high) +
                                         ".");
  std::string reason;
  if (!dense) {
    reason = "its strides are " + ir::dims_to_string({tensor.strides, tensor.strides + tensor.rank}) +
             ", not those of dense elements";
  } else if (!of_device) {
    BELAY_ASSIGN(reason, hal.copy_reason(target.device, data, out.bytes, BELAY_ACCESS_READ,
                                         ir::alignment_of(tensor.dtype)));
  } else if (!ir::is_aligned(data, tensor.dtype)) {
    reason = "byte " + std::to_string(tensor.offset) + " of its buffer is not aligned to " +
             std::to_string(ir::alignment_of(tensor.dtype)) + " bytes, as its element type wants";
  }
  // To a device whose memory the host does not see it is brought where a kernel there reads it, from any place that
  // the host's own kernels could read, too.
  const bool in_place = dense && ir::is_aligned(data, tensor.dtype) && (reason.empty() || !target.host_visible);
  if (!reason.empty()) taken.moved.reason = std::move(reason);
  if (in_place) {
    out.host = data;
    taken.moved.shared += out.bytes;
    return out;
  }
  settle();  // the block may be one that a queued run still uses
  BELAY_ASSIGN(out.storage, session_.pool().take_host(out.bytes));
  out.host = out.storage->host;
  taken.moved.copied += out.bytes;
  taken.copies.push_back({tensor.dtype, out.dims, {}, data, out.host, out.bytes});
  if (!dense) taken.copies.back().strides.assign(tensor.strides, tensor.strides + tensor.rank);
  return out;
}

Result<Value> Context::take_datum(uint64_t index, const belay_datum& datum, Taken& taken, uint32_t depth) {
  if (depth > kMaxDepth)
    return Status(Code::kInvalidArgument, "Input '" + executable_.inputs()[index].name +
                                              "' has items in items, more than " + std::to_string(kMaxDepth) +
                                              " deep.");
  if (datum.kind == BELAY_TYPE_TENSOR) {
    if (!datum.tensor)
      return Status(Code::kInvalidArgument,
                    "Input '" + executable_.inputs()[index].name + "' is a tensor without a tensor.");
    return take_tensor(index, *datum.tensor, taken);
  }
  if (datum.kind != BELAY_TYPE_SEQUENCE && datum.kind != BELAY_TYPE_OPTIONAL)
    return Status(Code::kUnimplemented,
                  "Input '" + executable_.inputs()[index].name +
                      "' is of a kind that no operator takes: " + std::to_string(datum.kind) + ".");
  std::vector<Value> items;
  for (uint64_t i = 0; i < datum.item_count; ++i) {
    if (!datum.items || !datum.items[i])
      return Status(Code::kInvalidArgument, "Item " + std::to_string(i) + " of input '" +
                                                executable_.inputs()[index].name + "' is NULL.");
    BELAY_ASSIGN(Value item, take_datum(index, *datum.items[i], taken, depth + 1));
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
  const auto replace = [&](Input next) {
    if (!input.taken.copies.empty()) settle();  // a queued run still uses the block that is given back
    next.moved = std::move(input.moved);  // of the last run still
    input = std::move(next);
    input_copies_ = std::any_of(inputs_.begin(), inputs_.end(),
                                [](const Input& each) { return !each.taken.copies.empty(); });
  };
  if (!datum) {
    shapes_changed_ |= input.set;
    replace({});
    return {};
  }
  // The usual case first: a tensor that looks like the last one and can be used where it lies.
  const belay_tensor* tensor = datum->kind == BELAY_TYPE_TENSOR ? datum->tensor : nullptr;
  if (input.set && tensor && tensor->data && !tensor->strides && input.value.is_tensor() &&
      !input.value.storage && input.value.host && tensor->dtype == input.value.dtype &&
      tensor->rank == input.value.dims.size() && (!tensor->rank || tensor->dims) &&
      ir::is_aligned(tensor->data, tensor->dtype) && (!tensor->bytes || tensor->bytes >= input.value.bytes) &&
      std::equal(input.value.dims.begin(), input.value.dims.end(), tensor->dims)) {
    if (input.value.host == tensor->data) return {};
    const plan::Target& target = executable_.target();
    BELAY_ASSIGN(const std::string reason,
                 target.hal.copy_reason(target.device, tensor->data, input.value.bytes, BELAY_ACCESS_READ,
                                        ir::alignment_of(tensor->dtype)));
    if (reason == input.taken.moved.reason) {
      // What is written where depends on which inputs lie in the memory of outputs.
      const bool apart =
          !meets_output(input.value.host, input.value.bytes) && !meets_output(tensor->data, input.value.bytes);
      input.value.host = tensor->data;
      if (apart && simple_ && !memory_changed_ && !stage_->views.size() && !copies_) {
        for (const uint32_t binding : bindings_of_input_[index]) frame_.bindings()[binding].host = tensor->data;
        return {};
      }
      memory_changed_ = true;
      return {};
    }
  }
  Taken taken;
  BELAY_ASSIGN(Value value, take_datum(index, *datum, taken));
  BELAY_TRY(check_type(index, value));
  const bool same = input.set && value.is_tensor() && input.value.is_tensor() &&
                    value.dtype == input.value.dtype && value.dims == input.value.dims;
  shapes_changed_ |= !same;
  memory_changed_ = true;
  replace({true, std::move(value), std::move(taken), {}});
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
  BELAY_TRY(check_dims(label, *tensor));
  void* data = tensor->data;
  const plan::Target& target = executable_.target();
  const plan::Hal& hal = target.hal;
  bool of_device = false;
  if (!data && tensor->buffer) {
    belay_hal_buffer_info info{};
    info.hdr.struct_size = sizeof info;
    BELAY_TRY(hal.check(hal.vt->buffer_info(hal.host, tensor->buffer, &info)));
    if (!info.host) return {Code::kUnimplemented, label + ": the host cannot write to that buffer."};
    if (tensor->offset > info.bytes || tensor->bytes > info.bytes - tensor->offset)
      return {Code::kOutOfRange, label + " reaches past the end of its buffer."};
    data = static_cast<char*>(info.host) + tensor->offset;
    of_device = !info.device || info.device == target.device;
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
  std::string reason;
  if (*bytes && !of_device) {
    BELAY_ASSIGN(reason, hal.copy_reason(target.device, data, *bytes, BELAY_ACCESS_WRITE,
                                         ir::alignment_of(tensor->dtype)));
  } else if (*bytes && !ir::is_aligned(data, tensor->dtype)) {
    reason = "byte " + std::to_string(tensor->offset) + " of its buffer is not aligned to " +
             std::to_string(ir::alignment_of(tensor->dtype)) + " bytes, as its element type wants";
  }
  output.not_lent = std::move(reason);
  output.user = *tensor;
  output.user_dims = dims;
  output.user.dims = output.user_dims.data();
  output.user_data = data ? data : &output;  // no bytes: any address will do, and none is read
  memory_changed_ = true;
  return {};
}

namespace {

bool overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
  const auto *x = static_cast<const char*>(a), *y = static_cast<const char*>(b);
  return x && y && x < y + b_bytes && y < x + a_bytes;
}

}  // namespace

// The exception is one memory for an input and the output that takes its place, as for a cache that grows in place.
std::optional<size_t> Context::spoiled_input(uint64_t output) const {
  const Output& out = outputs_[output];
  const ir::ValueId made = stage_->env.resolve(executable_.outputs()[output].value);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Value& value = inputs_[i].value;
    if (!overlap(out.user_data, out.user.bytes, value.host, value.bytes)) continue;
    const bool shared = simple_ && value.host == out.user_data && value.dtype == out.user.dtype && value.dims == out.user_dims &&
                        std::find(stage_->shared.begin(), stage_->shared.end(),
                                  std::pair{executable_.inputs()[i].value, made}) != stage_->shared.end();
    if (!shared) return i;
  }
  return std::nullopt;
}

bool Context::meets_output(const void* data, uint64_t bytes) const {
  return std::any_of(outputs_.begin(), outputs_.end(), [&](const Output& output) {
    return output.user_data && overlap(data, bytes, output.user_data, output.user.bytes);
  });
}

}  // namespace belay::schedule
