// belay_tensor_to_dlpack and back: tensors of the host in the form that array libraries exchange.
#include "c_api.h"
#include "hal/hal.h"
#include "hal/tensor_view.h"

#include <dlpack/dlpack.h>

#include <belay/graph/dtype.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

using namespace belay;
using namespace belay::c_api;

namespace {

// Type codes that are newer than the header of Debian 12.
enum : uint8_t {
  kBool = 6,
  kFloat8E4M3FN = 10,
  kFloat8E4M3FNUZ = 11,
  kFloat8E5M2 = 12,
  kFloat8E5M2FNUZ = 13,
  kFloat8E8M0FNU = 14,
  kFloat6E2M3FN = 15,
  kFloat6E3M2FN = 16,
  kFloat4E2M1FN = 17,
};

// Elements of less than a byte are packed by both, from the low end.
struct Known {
  uint32_t dtype;
  uint8_t code, bits;
};
constexpr Known kKnown[] = {
    {BELAY_DT_FLOAT32, kDLFloat, 32},
    {BELAY_DT_UINT8, kDLUInt, 8},
    {BELAY_DT_INT8, kDLInt, 8},
    {BELAY_DT_UINT16, kDLUInt, 16},
    {BELAY_DT_INT16, kDLInt, 16},
    {BELAY_DT_INT32, kDLInt, 32},
    {BELAY_DT_INT64, kDLInt, 64},
    {BELAY_DT_BOOL, kBool, 8},
    {BELAY_DT_FLOAT16, kDLFloat, 16},
    {BELAY_DT_FLOAT64, kDLFloat, 64},
    {BELAY_DT_UINT32, kDLUInt, 32},
    {BELAY_DT_UINT64, kDLUInt, 64},
    {BELAY_DT_COMPLEX64, kDLComplex, 64},
    {BELAY_DT_COMPLEX128, kDLComplex, 128},
    {BELAY_DT_BFLOAT16, kDLBfloat, 16},
    {BELAY_DT_FLOAT8E4M3FN, kFloat8E4M3FN, 8},
    {BELAY_DT_FLOAT8E4M3FNUZ, kFloat8E4M3FNUZ, 8},
    {BELAY_DT_FLOAT8E5M2, kFloat8E5M2, 8},
    {BELAY_DT_FLOAT8E5M2FNUZ, kFloat8E5M2FNUZ, 8},
    {BELAY_DT_UINT4, kDLUInt, 4},
    {BELAY_DT_INT4, kDLInt, 4},
    {BELAY_DT_FLOAT4E2M1, kFloat4E2M1FN, 4},
    {BELAY_DT_FLOAT8E8M0, kFloat8E8M0FNU, 8},
    {BELAY_DT_UINT2, kDLUInt, 2},
    {BELAY_DT_INT2, kDLInt, 2},
    {BELAY_DT_COMPLEX32, kDLComplex, 32},
    {BELAY_DT_UINT1, kDLUInt, 1},
    {BELAY_DT_FLOAT6E3M2, kFloat6E3M2FN, 6},
    {BELAY_DT_FLOAT6E2M3, kFloat6E2M3FN, 6},
};

struct Exported {
  DLManagedTensor managed{};
  std::vector<int64_t> dims, strides;
  void (*release)(void* user);
  void* user;
};

void delete_exported(DLManagedTensor* managed) {
  auto* exported = static_cast<Exported*>(managed->manager_ctx);
  if (exported->release) exported->release(exported->user);
  delete exported;
}

Status wrong(const std::string& text) { return {Code::kInvalidArgument, "The DLPack tensor " + text}; }

Result<uint32_t> dtype_from(const DLDataType& type) {
  if (type.lanes != 1)
    return Status(Code::kUnimplemented, "The DLPack tensor has dtype.lanes " + std::to_string(type.lanes) +
                                            ", want 1: give vectors as one more dim.");
  for (const Known& known : kKnown)
    if (known.code == type.code && known.bits == type.bits) return known.dtype;
  return Status(Code::kUnimplemented, "The DLPack tensor has dtype.code " + std::to_string(type.code) +
                                          " with dtype.bits " + std::to_string(type.bits) +
                                          ", which is no element type of Belay.");
}

}  // namespace

belay_status belay_tensor_to_dlpack(const belay_tensor* tensor, void (*release)(void* user), void* user,
                                    DLManagedTensor** out) {
  return guarded("belay_tensor_to_dlpack", [&]() -> Status {
    const std::string label = "The tensor for DLPack";
    if (!out) return null_argument("belay_tensor_to_dlpack", "out");
    BELAY_ASSIGN(hal::TensorView view, hal::view_of(tensor, label));
    if (hal::quant_of(*tensor))
      return {Code::kUnimplemented, label + " is quantised, which DLPack cannot say; give its stored numbers "
                                            "without quant, and the scales apart."};
    const Known* known = nullptr;
    for (const Known& one : kKnown)
      if (one.dtype == view.dtype) known = &one;
    if (!known)
      return {Code::kUnimplemented, label + " is of dtype " + std::string(dtype_name(view.dtype)) +
                                        ", which DLPack does not have."};
    char* address = static_cast<char*>(tensor->data);
    if (tensor->buffer) {
      const hal::Buffer* buffer = hal::alive<hal::Buffer>(tensor->buffer);
      if (!buffer) return {Code::kNotFound, label + " lies in a buffer that is none, or was destroyed."};
      BELAY_ASSIGN(address, hal::address_of(*buffer->hal, *tensor, view, label));
    } else if (!address && view.count) {
      return {Code::kInvalidArgument, label + " has no memory: set data or buffer."};
    }
    auto exported = std::make_unique<Exported>();
    exported->dims = std::move(view.dims);
    exported->strides = std::move(view.strides);
    exported->release = release, exported->user = user;
    DLTensor& to = exported->managed.dl_tensor;
    to.data = view.count ? address : nullptr;
    to.device = {kDLCPU, 0};
    to.ndim = int32_t(exported->dims.size());
    to.dtype = {known->code, known->bits, 1};
    to.shape = exported->dims.data();
    to.strides = exported->strides.data();
    exported->managed.manager_ctx = exported.get();
    exported->managed.deleter = delete_exported;
    *out = &exported.release()->managed;
    return {};
  });
}

belay_status belay_tensor_from_dlpack(const DLManagedTensor* managed, belay_tensor* inout) {
  return guarded("belay_tensor_from_dlpack", [&]() -> Status {
    if (!managed) return {Code::kInvalidArgument, "belay_tensor_from_dlpack: the DLPack tensor is NULL."};
    BELAY_TRY(check_answer(inout, "belay_tensor_from_dlpack"));
    const DLTensor& from = managed->dl_tensor;
    if (from.device.device_type != kDLCPU && from.device.device_type != kDLCUDAHost &&
        from.device.device_type != kDLROCMHost)
      return {Code::kUnimplemented, "The DLPack tensor has device.device_type " +
                                        std::to_string(int(from.device.device_type)) +
                                        ", want memory of the host: 1 (kDLCPU), 3 (kDLCUDAHost) or 11 (kDLROCMHost)."};
    if (from.ndim < 0 || uint32_t(from.ndim) > BELAY_MAX_RANK)
      return wrong("has ndim " + std::to_string(from.ndim) + ", want 0 to " + std::to_string(BELAY_MAX_RANK) + ".");
    if (from.ndim && !from.shape) return wrong("has ndim " + std::to_string(from.ndim) + ", but its shape is NULL.");
    belay_tensor tensor{};
    tensor.hdr.struct_size = sizeof tensor;
    BELAY_ASSIGN(tensor.dtype, dtype_from(from.dtype));
    tensor.rank = uint32_t(from.ndim);
    tensor.dims = from.shape;
    tensor.strides = from.strides;
    BELAY_ASSIGN(const hal::TensorView view, hal::view_of(&tensor, "The DLPack tensor"));
    if (view.count && !from.data) return wrong("has data NULL and " + std::to_string(view.count) + " elements.");
    const auto base = reinterpret_cast<uintptr_t>(from.data);
    if (view.count && base + from.byte_offset < base)
      return wrong("has byte_offset " + std::to_string(from.byte_offset) + ", which leads past the last address.");
    tensor.data = view.count ? static_cast<char*>(from.data) + from.byte_offset : nullptr;
    tensor.bytes = view.dense ? view.bytes : 0;
    if (view.dense) tensor.strides = nullptr;  // what looks at strides first need not
    tensor.hdr.struct_size = inout->hdr.struct_size;
    std::memcpy(inout, &tensor, std::min<size_t>(inout->hdr.struct_size, sizeof tensor));
    return {};
  });
}

void belay_dlpack_delete(DLManagedTensor* managed) {
  if (managed && managed->deleter) managed->deleter(managed);
}
