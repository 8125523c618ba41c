#include "schedule/value.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace belay::schedule {

StorageRef::~StorageRef() {
  if (at_ && --at_->refs == 0) at_->pool->give_back(at_);
}

Result<StorageRef> StoragePool::take(std::vector<std::unique_ptr<Storage>>& free, uint64_t bytes,
                                     bool plain) {
  // The smallest that fits, the latest given back among equals (its lines are still in the cache).
  auto best = free.end();
  for (auto at = free.begin(); at != free.end(); ++at)
    if ((*at)->capacity >= bytes && (best == free.end() || (*at)->capacity <= (*best)->capacity)) best = at;
  if (best != free.end() && (*best)->capacity <= 2 * bytes + 4096) {
    Storage* storage = best->release();
    free.erase(best);
    storage->last_use = run_;
    return StorageRef(storage);
  }
  auto storage = std::make_unique<Storage>();
  storage->pool = this;
  storage->capacity = (bytes + 63) / 64 * 64;
  storage->last_use = run_;
  if (plain) {
    storage->plain = {std::aligned_alloc(64, std::max<uint64_t>(64, storage->capacity)), &std::free};
    storage->host = storage->plain.get();
    if (!storage->host)
      return Status(Code::kResourceExhausted, "The host has no " + std::to_string(bytes) + " bytes left.");
  } else {
    BELAY_ASSIGN(storage->buffer, plan::Buffer::create(hal_, device_, storage->capacity, 0));
    storage->host = host_visible_ ? storage->buffer.host : nullptr;
  }
  bytes_ += storage->capacity;
  return StorageRef(storage.release());
}

void StoragePool::give_back(Storage* storage) {
  auto& free = storage->plain ? host_free_ : device_free_;
  free.emplace_back(storage);
}

void StoragePool::end_run() {
  ++run_;
  for (auto* free : {&device_free_, &host_free_})
    std::erase_if(*free, [&](const std::unique_ptr<Storage>& storage) {
      if (storage->last_use + 8 > run_) return false;
      bytes_ -= storage->capacity;
      return true;
    });
}

ir::Type Value::type() const {
  if (kind == BELAY_TYPE_TENSOR) return ir::Type::tensor(dtype, dims);
  ir::Type out;
  out.kind = kind;
  if (items && !items->empty()) {
    ir::Type element = items->front().type();
    element.ranked = false;
    element.dims.clear();
    out.element = std::make_shared<const ir::Type>(std::move(element));
  } else if (dtype) {
    out.element = std::make_shared<const ir::Type>(ir::Type::unranked(dtype));
  }
  return out;
}

Value value_of(const ir::ConstantPtr& constant) {
  Value out;
  out.kind = BELAY_TYPE_TENSOR;
  out.dtype = constant->dtype;
  out.dims = constant->dims;
  out.bytes = constant->bytes;
  if (constant->dtype == BELAY_DT_STRING) {
    const uint64_t count = constant->count();
    auto strings = std::make_shared<std::vector<belay_str>>(count);
    const auto* text = reinterpret_cast<const char*>(constant->data) + (count + 1) * 8;
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t from = 0, to = 0;
      std::memcpy(&from, constant->data + i * 8, 8);
      std::memcpy(&to, constant->data + (i + 1) * 8, 8);
      (*strings)[i] = {text + from, to - from};
    }
    out.host = strings->data();
    out.bytes = count * sizeof(belay_str);
    // The text lies in the constant, so both are kept.
    out.keeper = std::make_shared<std::pair<std::shared_ptr<std::vector<belay_str>>, ir::ConstantPtr>>(
        strings, constant);
    return out;
  }
  ir::ConstantPtr readable = constant;
  if (!ir::is_aligned(constant->data,
                      constant->dtype)) {  // a file has it at an odd place; kernels read whole elements
    auto copy = ir::make_constant(constant->dtype, constant->dims);
    if (!copy) throw std::bad_alloc();
    std::memcpy(const_cast<std::byte*>(copy->data), constant->data, constant->bytes);
    readable = std::move(copy);
  }
  out.host = const_cast<std::byte*>(readable->data);
  // Keeps what is read, and says which constant it is: that address stays taken.
  auto both = std::make_shared<std::pair<ir::ConstantPtr, ir::ConstantPtr>>(std::move(readable), constant);
  out.keeper = std::shared_ptr<const void>(std::move(both), constant.get());
  return out;
}

Result<Value> make_tensor(StoragePool& pool, uint32_t dtype, ir::Dims dims) {
  const auto count = element_count(dims);
  const bool strings = dtype == BELAY_DT_STRING;
  std::optional<uint64_t> bytes;
  if (count && strings && *count <= UINT64_MAX / sizeof(belay_str))
    bytes = *count * sizeof(belay_str);
  else if (count && !strings)
    bytes = dtype_bytes(dtype, *count);
  if (!bytes)
    return Status(Code::kInvalidArgument,
                  "A tensor of " + std::string(dtype_name(dtype)) + ir::dims_to_string(dims) + " overflows.");
  BELAY_ASSIGN(StorageRef storage, pool.take_host(*bytes));
  Value out;
  out.kind = BELAY_TYPE_TENSOR;
  out.dtype = dtype;
  out.dims = std::move(dims);
  out.host = storage->host;
  out.bytes = *bytes;
  out.storage = std::move(storage);
  if (strings) std::fill_n(static_cast<belay_str*>(out.host), *count, belay_str{});
  return out;
}

void own_text(Value& value) {
  if (value.items)
    for (Value& item : *value.items) own_text(item);
  if (!value.is_tensor() || value.dtype != BELAY_DT_STRING || !value.bytes) return;
  struct Copy {
    std::vector<belay_str> strings;
    std::string text;
  };
  auto copy = std::make_shared<Copy>();
  const std::span<const belay_str> from(static_cast<const belay_str*>(value.host), value.count());
  for (const belay_str& element : from) copy->text.append(element.ptr, element.len);
  const char* at = copy->text.data();
  for (const belay_str& element : from) {
    copy->strings.push_back({at, element.len});
    at += element.len;
  }
  value.host = copy->strings.data();
  value.storage = {};
  value.keeper = std::move(copy);
}

Value make_sequence(std::vector<Value> items) {
  Value out;
  out.kind = BELAY_TYPE_SEQUENCE;
  if (!items.empty()) out.dtype = items.front().dtype;
  out.items = std::make_shared<std::vector<Value>>(std::move(items));
  return out;
}

}  // namespace belay::schedule
