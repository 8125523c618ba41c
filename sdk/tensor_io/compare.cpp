#include "elements.hpp"

#include <belay/graph/dtype.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace belay {
namespace {

std::string short_number(double value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 4).ptr};
}

std::vector<int64_t> index_of(uint64_t flat, std::span<const int64_t> dims) {
  std::vector<int64_t> at(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    at[i] = int64_t(flat % uint64_t(dims[i]));
    flat /= uint64_t(dims[i]);
  }
  return at;
}

Comparison differs(std::string reason) {
  Comparison out;
  out.equal = false;
  out.reason = std::move(reason);
  return out;
}

bool is_number(std::complex<double> v) { return !std::isnan(v.real()) && !std::isnan(v.imag()); }
bool is_finite(std::complex<double> v) { return std::isfinite(v.real()) && std::isfinite(v.imag()); }

// |a - b| of 64-bit integers, which a double would round.
template <class T>
double exact_difference(const HostTensor& a, const HostTensor& b, uint64_t i) {
  const T x = a.as<T>()[i], y = b.as<T>()[i];
  return x > y ? double(uint64_t(x) - uint64_t(y)) : double(uint64_t(y) - uint64_t(x));
}

Comparison compare_exact(const HostTensor& found, const HostTensor& expected, uint64_t count) {
  Comparison out;
  out.elements = count;
  for (uint64_t i = 0; i < count; ++i) {
    const bool same = expected.dtype == BELAY_DT_STRING ? found.strings[i] == expected.strings[i]
                                                        : found.bytes[i] == expected.bytes[i];
    if (same || out.differing++ > 0) continue;
    out.worst_at = index_of(i, expected.dims);
    out.reason = "element " + dims_text(out.worst_at) + " is " + element_text(found, i) + ", want " +
                 element_text(expected, i);
  }
  return out;
}

Comparison compare_numbers(const HostTensor& found, const HostTensor& expected, uint64_t count,
                           const Tolerance& tolerance) {
  const Decode decode = decoder(expected.dtype);
  const std::byte *a = found.bytes.data(), *b = expected.bytes.data();
  double atol = tolerance.atol;
  if (tolerance.atol_of_largest > 0) {
    double largest = 0;
    for (uint64_t i = 0; i < count; ++i)
      if (const auto v = decode(b, i); is_finite(v)) largest = std::max(largest, std::abs(v));
    atol = std::max(atol, tolerance.atol_of_largest * largest);
  }
  Comparison out;
  out.elements = count;
  double worst_excess = -1;
  uint64_t worst = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const auto x = decode(a, i), y = decode(b, i);
    double difference = 0;
    if (expected.dtype == BELAY_DT_INT64) {
      difference = exact_difference<int64_t>(found, expected, i);
    } else if (expected.dtype == BELAY_DT_UINT64) {
      difference = exact_difference<uint64_t>(found, expected, i);
    } else if (!is_number(x) || !is_number(y)) {
      difference = is_number(x) == is_number(y) ? 0 : HUGE_VAL;
    } else if (x != y) {
      difference = is_finite(x) && is_finite(y) ? std::abs(x - y) : HUGE_VAL;
    }
    const double allowed = is_finite(y) ? atol + tolerance.rtol * std::abs(y) : 0;
    if (difference <= allowed) continue;
    ++out.differing;
    if (const double excess = difference - allowed; excess > worst_excess) {
      worst_excess = excess;
      worst = i;
      out.worst_difference = difference;
    }
  }
  if (out.differing == 0) return out;
  out.worst_at = index_of(worst, expected.dims);
  out.reason =
      "element " + dims_text(out.worst_at) + " is " + element_text(found, worst) + ", want " +
      element_text(expected, worst) + " (differs by " + short_number(out.worst_difference) + ", allowed " +
      short_number(is_finite(decode(b, worst)) ? atol + tolerance.rtol * std::abs(decode(b, worst)) : 0) +
      ")";
  return out;
}

std::string_view kind_name(uint32_t kind) {
  constexpr std::string_view kNames[] = {"value", "tensor", "sequence", "optional", "map"};
  return kNames[kind <= BELAY_TYPE_MAP ? kind : 0];
}

}  // namespace

Comparison compare(const HostTensor& found, const HostTensor& expected, const Tolerance& tolerance) {
  if (found.dtype != expected.dtype)
    return differs("The element type is " + std::string(dtype_name(found.dtype)) + ", want " +
                   std::string(dtype_name(expected.dtype)) + ".");
  if (found.dims != expected.dims)
    return differs("The shape is " + dims_text(found.dims) + ", want " + dims_text(expected.dims) + ".");
  const uint64_t count = expected.count();
  if (found.bytes.size() != expected.bytes.size() || found.strings.size() != expected.strings.size())
    return differs("The tensors have another number of bytes.");
  const bool exact = expected.dtype == BELAY_DT_BOOL || !decoder(expected.dtype);
  Comparison out =
      exact ? compare_exact(found, expected, count) : compare_numbers(found, expected, count, tolerance);
  out.equal = out.differing == 0;
  if (!out.equal)
    out.reason = std::to_string(out.differing) + " of " + std::to_string(count) +
                 (out.differing == 1 ? " elements differs; " : " elements differ; the worst: ") + out.reason +
                 ".";
  return out;
}

Comparison compare(const HostDatum& found, const HostDatum& expected, const Tolerance& tolerance) {
  if (found.kind != expected.kind)
    return differs("It is a " + std::string(kind_name(found.kind)) + ", want a " +
                   std::string(kind_name(expected.kind)) + ".");
  if (expected.kind == BELAY_TYPE_TENSOR) return compare(found.tensor, expected.tensor, tolerance);
  if (found.items.size() != expected.items.size())
    return differs("The " + std::string(kind_name(expected.kind)) + " has " +
                   std::to_string(found.items.size()) + " items, want " +
                   std::to_string(expected.items.size()) + ".");
  Comparison out;
  for (size_t i = 0; i < expected.items.size(); ++i) {
    Comparison item = compare(found.items[i], expected.items[i], tolerance);
    item.elements += out.elements;
    item.differing += out.differing;
    if (!out.equal) {  // the first item that differs speaks
      out.elements = item.elements;
      out.differing = item.differing;
      continue;
    }
    if (!item.equal) item.reason = "Item " + std::to_string(i) + ": " + item.reason;
    out = std::move(item);
  }
  return out;
}

}  // namespace belay
