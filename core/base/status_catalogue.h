// core/base/status_catalogue.h: what each code of the ABI is called, why it comes, what to do.
#pragma once

#include <belay/status.hpp>

#include <cstdint>
#include <string_view>

namespace belay::core {

// An entry of the catalogue, from which documentation and `belay explain` are made. Static strings.
struct CodeInfo {
  uint32_t code;
  std::string_view name, title, cause, remedy;
};
// OUT_OF_RANGE says which codes there are.
Result<CodeInfo> describe_code(uint32_t code);
// By name ("NOT_FOUND", any case) or number. NOT_FOUND names the nearest.
Result<CodeInfo> find_code(std::string_view name_or_number);

}  // namespace belay::core
