// belay/graph/dtype.hpp: facts about element types (BELAY_DT_...).
#pragma once

#include <belay/abi/graph.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace belay {

struct DtypeInfo {
  uint32_t dtype;
  std::string_view name;  // "float32", as numpy names it where numpy has it
  uint32_t bits;          // of one element; 0: strings
};

// All types known, in the order of their numbers.
inline constexpr DtypeInfo kDtypes[] = {
    {BELAY_DT_FLOAT32, "float32", 32},           {BELAY_DT_UINT8, "uint8", 8},
    {BELAY_DT_INT8, "int8", 8},                  {BELAY_DT_UINT16, "uint16", 16},
    {BELAY_DT_INT16, "int16", 16},               {BELAY_DT_INT32, "int32", 32},
    {BELAY_DT_INT64, "int64", 64},               {BELAY_DT_STRING, "string", 0},
    {BELAY_DT_BOOL, "bool", 8},                  {BELAY_DT_FLOAT16, "float16", 16},
    {BELAY_DT_FLOAT64, "float64", 64},           {BELAY_DT_UINT32, "uint32", 32},
    {BELAY_DT_UINT64, "uint64", 64},             {BELAY_DT_COMPLEX64, "complex64", 64},
    {BELAY_DT_COMPLEX128, "complex128", 128},    {BELAY_DT_BFLOAT16, "bfloat16", 16},
    {BELAY_DT_FLOAT8E4M3FN, "float8e4m3fn", 8},  {BELAY_DT_FLOAT8E4M3FNUZ, "float8e4m3fnuz", 8},
    {BELAY_DT_FLOAT8E5M2, "float8e5m2", 8},      {BELAY_DT_FLOAT8E5M2FNUZ, "float8e5m2fnuz", 8},
    {BELAY_DT_UINT4, "uint4", 4},                {BELAY_DT_INT4, "int4", 4},
    {BELAY_DT_FLOAT4E2M1, "float4e2m1", 4},      {BELAY_DT_FLOAT8E8M0, "float8e8m0", 8},
    {BELAY_DT_UINT2, "uint2", 2},                {BELAY_DT_INT2, "int2", 2},
    {BELAY_DT_COMPLEX32, "complex32", 32},       {BELAY_DT_HIFLOAT8, "hifloat8", 8},
    {BELAY_DT_UINT1, "uint1", 1},                {BELAY_DT_FLOAT6E3M2, "float6e3m2", 6},
    {BELAY_DT_FLOAT6E2M3, "float6e2m3", 6},      {BELAY_DT_FLOAT4E1M2, "float4e1m2", 4},
};

inline const DtypeInfo* find_dtype(uint32_t dtype) {
  for (const DtypeInfo& info : kDtypes)
    if (info.dtype == dtype) return &info;
  return nullptr;
}

inline std::string_view dtype_name(uint32_t dtype) {
  const DtypeInfo* info = find_dtype(dtype);
  return info ? info->name : "undefined";
}

// Bytes of `count` packed elements; nothing for strings, unknown types and overflow.
inline std::optional<uint64_t> dtype_bytes(uint32_t dtype, uint64_t count) {
  const DtypeInfo* info = find_dtype(dtype);
  uint64_t bits = 0;
  if (!info || info->bits == 0 || __builtin_mul_overflow(count, uint64_t{info->bits}, &bits) || bits > UINT64_MAX - 7)
    return std::nullopt;
  return (bits + 7) / 8;
}

// Number of elements; nothing for a negative dim or overflow of int64.
template <class Dims>
std::optional<uint64_t> element_count(const Dims& dims) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) empty = true;
    if (dim != 0 && __builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  return empty ? 0 : uint64_t(count);
}

}  // namespace belay
