#include "window.hpp"

#include "lanes.hpp"

#include <algorithm>

namespace belay::cpu {

Window::Part Window::part(int d, int64_t from, int64_t to) const {
  const int64_t first = to >= 0 ? 0 : std::min(kernel[d], ceil_div(-to, dilation[d]));
  const int64_t last = from >= in[d] ? first : std::min(kernel[d], ceil_div(in[d] - from, dilation[d]));
  return {first, std::max(first, last)};
}

bool Window::pointwise() const {
  for (int d = 0; d < 3; ++d)
    if (kernel[d] != 1 || stride[d] != 1 || begin[d] != 0 || end[d] != 0) return false;
  return true;
}

Result<std::vector<int64_t>> spatial_list(const OpContext& context, const Attributes& attributes,
                                          std::string_view name, size_t rank, int64_t otherwise,
                                          int64_t least) {
  const auto found = attributes.ints(name);
  if (!found || found->empty()) return std::vector<int64_t>(rank, otherwise);
  if (found->size() != rank)
    return context.bad("attribute " + std::string(name) + " has " + std::to_string(found->size()) +
                       " values, want " + std::to_string(rank));
  for (const int64_t value : *found)
    if (value < least || value > INT32_MAX)
      return context.bad("attribute " + std::string(name) + " is " + text_of(*found) +
                         ", want values of at least " + std::to_string(least) + " and below 2^31");
  return *found;
}

Status read_window(const OpContext& context, const Attributes& attributes, const Dims& x,
                   std::span<const int64_t> kernel, const WindowRules& rules, Window& window) {
  const size_t rank = kernel.size();
  if (x.size() < 3 || x.size() != rank + 2)
    return context.bad("the input has the shape " + text_of(x) + ", want batch, channels and " +
                       std::to_string(rank) + " spatial dims");
  if (rank > 3)
    return context.bad("it has " + std::to_string(rank) + " spatial dims, want 3 at most",
                       Code::kUnimplemented);
  window.rank = rank;
  for (const int64_t size : kernel)
    if (size < 1 || size > INT32_MAX)
      return context.bad("the kernel has the shape " + text_of(kernel) +
                         ", want dims of at least 1 and below 2^31");
  BELAY_ASSIGN(const std::vector<int64_t> strides, spatial_list(context, attributes, "strides", rank, 1, 1));
  BELAY_ASSIGN(const std::vector<int64_t> dilations,
               spatial_list(context, attributes, "dilations", rank, 1, 1));
  BELAY_ASSIGN(const std::vector<int64_t> pads, spatial_list(context, attributes, "pads", rank * 2, 0, 0));
  const std::string_view auto_pad = attributes.string_or("auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (!same && auto_pad != "NOTSET" && auto_pad != "VALID" && !auto_pad.empty())
    return context.bad("attribute auto_pad is '" + std::string(auto_pad) +
                       "', want NOTSET, SAME_UPPER, SAME_LOWER or VALID");

  for (size_t i = 0; i < rank; ++i) {
    const size_t d = 3 - rank + i;
    window.in[d] = x[i + 2];
    window.kernel[d] = kernel[i];
    window.stride[d] = strides[i];
    window.dilation[d] = dilations[i];
    const int64_t reach = window.reach(int(d));
    if (rules.transposed) {
      window.begin[d] = pads[i];
      window.end[d] = pads[i + rank];
      continue;
    }
    if (same) {
      window.out[d] = ceil_div(window.in[d], strides[i]);
      const int64_t total = std::max<int64_t>(0, (window.out[d] - 1) * strides[i] + reach - window.in[d]);
      window.begin[d] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      window.end[d] = total - window.begin[d];
      continue;
    }
    if (auto_pad != "VALID") {
      window.begin[d] = pads[i];
      window.end[d] = pads[i + rank];
    }
    const int64_t room = window.in[d] + window.begin[d] + window.end[d] - reach;
    if (room < 0)
      return context.bad("the kernel reaches over " + std::to_string(reach) + " elements of spatial dim " +
                         std::to_string(i) + ", which has " + std::to_string(window.in[d]) + " and pads of " +
                         std::to_string(window.begin[d]) + " and " + std::to_string(window.end[d]));
    window.out[d] = (rules.ceil_mode ? ceil_div(room, strides[i]) : room / strides[i]) + 1;
    // A window that would begin behind the input and its leading pad sees nothing: there is none.
    if (rules.ceil_mode && (window.out[d] - 1) * strides[i] >= window.in[d] + window.begin[d])
      --window.out[d];
  }
  return {};
}

}  // namespace belay::cpu
