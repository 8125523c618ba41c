#include "show.hpp"
#include "text.hpp"

#include <belay/graph/dtype.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace belay::cli {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kShownWhole = 64;     // elements of a tensor that is printed whole
constexpr uint64_t kJsonValues = 10000;  // elements in JSON; more is left to --output-dir
constexpr uint64_t kTop = 5, kFirst = 8;

bool is_integer(uint32_t dtype) {
  switch (dtype) {
    case BELAY_DT_INT8:
    case BELAY_DT_INT16:
    case BELAY_DT_INT32:
    case BELAY_DT_INT64:
    case BELAY_DT_UINT8:
    case BELAY_DT_UINT16:
    case BELAY_DT_UINT32:
    case BELAY_DT_UINT64:
      return true;
    default:
      return false;
  }
}
bool is_complex(uint32_t dtype) {
  return dtype == BELAY_DT_COMPLEX64 || dtype == BELAY_DT_COMPLEX128 || dtype == BELAY_DT_COMPLEX32;
}

std::string element(const HostTensor& tensor, uint64_t index) {
  if (tensor.dtype == BELAY_DT_STRING) return "\"" + printable(tensor.strings[index]) + "\"";
  if (is_integer(tensor.dtype) || is_complex(tensor.dtype) || tensor.dtype == BELAY_DT_BOOL)
    return element_text(tensor, index);
  char text[48];
  std::snprintf(text, sizeof text, "%.6g", element_value(tensor, index));
  return text;
}

std::string index_text(const HostTensor& tensor, uint64_t index) {
  std::vector<int64_t> at(tensor.dims.size());
  for (size_t d = tensor.dims.size(); d-- > 0;) {
    at[d] = int64_t(index % uint64_t(tensor.dims[d]));
    index /= uint64_t(tensor.dims[d]);
  }
  return dims_text(at);
}

// Rows of the last dimension under each other, wrapped at 100 columns.
std::string whole(const HostTensor& tensor, int indent) {
  const uint64_t count = tensor.count();
  const uint64_t row = tensor.dims.empty() ? 1 : std::max<int64_t>(tensor.dims.back(), 1);
  const std::string margin(size_t(indent), ' ');
  size_t widest = 0;
  for (uint64_t i = 0; i < count; ++i) widest = std::max(widest, element(tensor, i).size());
  std::string out, line;
  for (uint64_t i = 0; i < count; ++i) {
    if (i % row == 0 && i > 0) out += margin + line + "\n", line.clear();
    const std::string text = element(tensor, i);
    if (line.size() + widest + 2 > 100) out += margin + line + "\n", line.clear();
    line += (line.empty() ? "" : "  ") + std::string(row == 1 ? 0 : widest - text.size(), ' ') + text;
  }
  return out + margin + line + "\n";
}

std::string summary(const HostTensor& tensor, int indent) {
  const std::string margin(size_t(indent), ' ');
  const uint64_t count = tensor.count();
  std::string out;
  if (tensor.dtype != BELAY_DT_STRING && !is_complex(tensor.dtype)) {
    const Statistics s = statistics(tensor);
    char text[256];
    std::snprintf(text, sizeof text, "min %.6g  max %.6g  mean %.6g  deviation %.6g", s.min, s.max, s.mean,
                  s.deviation);
    out += margin + text;
    if (s.nan) out += "  NaN " + std::to_string(s.nan);
    if (s.infinite) out += "  infinite " + std::to_string(s.infinite);
    out += "\n";
    if (tensor.dtype != BELAY_DT_BOOL) {
      std::vector<uint64_t> order(count);
      std::iota(order.begin(), order.end(), uint64_t{0});
      const auto rank = [&](uint64_t i) {
        const double value = element_value(tensor, i);
        return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
      };
      std::partial_sort(order.begin(), order.begin() + kTop, order.end(), [&](uint64_t a, uint64_t b) {
        return rank(a) != rank(b) ? rank(a) > rank(b) : a < b;
      });
      out += margin + "largest";
      for (uint64_t i = 0; i < kTop; ++i)
        out += "  " + index_text(tensor, order[i]) + " " + element(tensor, order[i]);
      out += "\n";
    }
  }
  out += margin + "first";
  for (uint64_t i = 0; i < kFirst; ++i) out += "  " + element(tensor, i);
  return out + "  ...\n";
}

ordered_json number_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";  // JSON has no numbers for them
}

ordered_json element_json(const HostTensor& tensor, uint64_t i) {
  switch (tensor.dtype) {
    case BELAY_DT_STRING:
      return tensor.strings[i];
    case BELAY_DT_BOOL:
      return element_value(tensor, i) != 0;
    case BELAY_DT_INT64:
      return tensor.as<int64_t>()[i];
    case BELAY_DT_UINT64:
      return tensor.as<uint64_t>()[i];
    case BELAY_DT_COMPLEX32:
    case BELAY_DT_COMPLEX64:
    case BELAY_DT_COMPLEX128:
      return element_text(tensor, i);
    case BELAY_DT_FLOAT32: {  // the shortest text that is this float, not its neighbour among the doubles
      const float value = tensor.as<float>()[i];
      if (!std::isfinite(value)) return number_json(value);
      return std::stod(element_text(tensor, i));
    }
    default:
      break;
  }
  if (is_integer(tensor.dtype)) return int64_t(element_value(tensor, i));
  return number_json(element_value(tensor, i));
}

}  // namespace

Statistics statistics(const HostTensor& tensor) {
  Statistics s;
  s.count = tensor.count();
  double sum = 0, squares = 0;
  uint64_t finite = 0;
  for (uint64_t i = 0; i < s.count; ++i) {
    const double value = element_value(tensor, i);
    if (std::isnan(value)) {
      ++s.nan;
    } else if (std::isinf(value)) {
      ++s.infinite;
    } else {
      s.min = finite == 0 ? value : std::min(s.min, value);
      s.max = finite == 0 ? value : std::max(s.max, value);
      ++finite;
      const double before = sum / double(std::max<uint64_t>(finite - 1, 1));
      sum += value;
      // Welford's update: no cancellation for values far from zero.
      squares += (value - (finite > 1 ? before : value)) * (value - sum / double(finite));
    }
  }
  if (finite > 0)
    s.mean = sum / double(finite), s.deviation = std::sqrt(std::max(0.0, squares / double(finite)));
  return s;
}

std::string type_text(const HostDatum& datum) {
  switch (datum.kind) {
    case BELAY_TYPE_TENSOR:
      return std::string(dtype_name(datum.tensor.dtype)) + " " + dims_text(datum.tensor.dims);
    case BELAY_TYPE_SEQUENCE:
      return "sequence of " + plural(datum.items.size(), "item");
    case BELAY_TYPE_OPTIONAL:
      return datum.items.empty() ? "optional, empty" : "optional with " + type_text(datum.items[0]);
    case BELAY_TYPE_MAP:
      return "map of " + std::to_string(datum.items.size() / 2) +
             (datum.items.size() == 2 ? " entry" : " entries");
    default:
      return "unknown kind " + std::to_string(datum.kind);
  }
}

std::string values_text(const HostDatum& datum, int indent) {
  if (datum.kind == BELAY_TYPE_TENSOR) {
    const uint64_t count = datum.tensor.count();
    if (count == 0) return std::string(size_t(indent), ' ') + "(no elements)\n";
    return count <= kShownWhole ? whole(datum.tensor, indent) : summary(datum.tensor, indent);
  }
  constexpr size_t kShownItems = 10;
  std::string out;
  const std::string margin(size_t(indent), ' ');
  for (size_t i = 0; i < datum.items.size(); ++i) {
    if (i == kShownItems) return out + margin + "... " + plural(datum.items.size() - i, "more item") + "\n";
    out += margin + "[" + std::to_string(i) + "] " + type_text(datum.items[i]) + "\n" +
           values_text(datum.items[i], indent + 2);
  }
  return out;
}

std::string weights_text(const belay_executable_stats& stats) {
  // What kernels have packed, and what was computed ahead into other constants, is used in neither place.
  const std::string all = bytes_text(stats.weight_bytes);
  if (stats.plans == 0 && stats.kernels == 0) return all;
  return all + ", of them " + bytes_text(stats.borrowed_bytes) + " used in the file and " +
         bytes_text(stats.copied_bytes) + " copied; " + bytes_text(stats.packed_bytes) +
         " packed for kernels";
}

void MovedBytes::add(const std::string& name, const IoMemory& memory) {
  shared += memory.shared_bytes, copied += memory.copied_bytes;
  if (first.empty() && memory.copied_bytes) first = "'" + printable(name) + "' because " + printable(memory.reason);
}

std::string moved_text(const MovedBytes& moved) {
  return bytes_text(moved.shared) + " shared, " + bytes_text(moved.copied) + " copied" +
         (moved.first.empty() ? "" : " (" + moved.first + ")");
}

void add_memory(ordered_json& to, const IoMemory& memory) {
  to["shared_bytes"] = memory.shared_bytes;
  to["copied_bytes"] = memory.copied_bytes;
  to["copy_reason"] = memory.copied_bytes ? ordered_json(memory.reason) : ordered_json(nullptr);
}

ordered_json datum_json(const HostDatum& datum) {
  ordered_json out;
  if (datum.kind != BELAY_TYPE_TENSOR) {
    out["kind"] = datum.kind == BELAY_TYPE_SEQUENCE   ? "sequence"
                  : datum.kind == BELAY_TYPE_OPTIONAL ? "optional"
                                                      : "map";
    out["items"] = ordered_json::array();
    for (const HostDatum& item : datum.items) out["items"].push_back(datum_json(item));
    return out;
  }
  const HostTensor& tensor = datum.tensor;
  out["kind"] = "tensor";
  out["dtype"] = dtype_name(tensor.dtype);
  out["dims"] = tensor.dims;
  const uint64_t count = tensor.count();
  if (count <= kJsonValues) {
    ordered_json& values = out["values"] = ordered_json::array();
    for (uint64_t i = 0; i < count; ++i) values.push_back(element_json(tensor, i));
  }
  if (tensor.dtype != BELAY_DT_STRING && !is_complex(tensor.dtype)) {
    const Statistics s = statistics(tensor);
    out["statistics"] = {{"count", s.count}, {"nan", s.nan},   {"infinite", s.infinite},  {"min", s.min},
                         {"max", s.max},     {"mean", s.mean}, {"deviation", s.deviation}};
  }
  return out;
}

ordered_json io_json(const IoInfo& info) {
  const char* const kinds[] = {"unknown", "tensor", "sequence", "optional", "map"};
  ordered_json out{{"name", info.name},
                   {"kind", kinds[info.kind <= BELAY_TYPE_MAP ? info.kind : 0]},
                   {"dtype", dtype_name(info.dtype)}};
  out["dims"] = nullptr;
  if (info.rank_known) {
    out["dims"] = ordered_json::array();
    for (size_t i = 0; i < info.dims.size(); ++i) {
      if (info.dims[i] >= 0)
        out["dims"].push_back(info.dims[i]);
      else
        out["dims"].push_back(info.symbols[i].empty() ? "?" : info.symbols[i]);
    }
  }
  out["optional"] = info.optional;
  return out;
}

std::string comparison_text(const Comparison& c) {
  if (!c.equal) return "DIFFERS: " + printable(c.reason);
  char worst[64];
  std::snprintf(worst, sizeof worst, "%.3g", c.worst_difference);
  return "equal within the tolerance (" + plural(c.elements, "element") +
         (c.worst_at.empty() && c.worst_difference == 0 ? "" : ", largest difference " + std::string(worst)) +
         ")";
}

nlohmann::ordered_json comparison_json(const Comparison& c) {
  return {{"equal", c.equal},
          {"reason", c.reason},
          {"elements", c.elements},
          {"differing", c.differing},
          {"worst_difference",
           std::isfinite(c.worst_difference) ? nlohmann::ordered_json(c.worst_difference) : nullptr},
          {"worst_at", c.worst_at}};
}

}  // namespace belay::cli
