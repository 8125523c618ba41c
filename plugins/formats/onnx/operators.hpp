// The operators of ONNX: their versions, and how a node may use each. Facts only; operator_table.hpp holds them.
#pragma once

#include <belay/status.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace belay::onnx {

inline constexpr int64_t kMaxOpset = 27;  // of ai.onnx, known to operator_table.hpp

// The domain as a frozen graph writes it: "ai.onnx" is "".
inline std::string_view plain_domain(std::string_view domain) {
  return domain == "ai.onnx" ? std::string_view() : domain;
}

// Newest version known of a domain of the standard; nothing: the domain is not of the standard.
std::optional<int64_t> newest_version(std::string_view domain);

// One version of an operator, as a line of text of operator_table.hpp; empty where nothing is known of its use.
struct Operator {
  uint32_t since_version = 0;
  std::string_view use;  // "(rro,r)axis:i,to:i!"
};

// The definition in force at the imported version. Errors, as the end of a sentence that begins "Operator 'X'
// ": UNIMPLEMENTED (not known, newer than the import, gone). com.microsoft has one version; what
// it holds beyond the table is the business of who runs it.
Result<Operator> find_operator(std::string_view domain, std::string_view name, int64_t imported);

// Kinds of attributes as letters: AttributeProto.type 1 to 14.
inline constexpr std::string_view kAttributeKinds = "?fistgFISTGpPyY";

// Letter of the attribute `name`, '\0' when the operator has none of it.
char attribute_kind(const Operator& op, std::string_view name);
// The first required attribute for which `has` is false; empty: none.
template <class Has>
std::string_view missing_attribute(const Operator& op, Has&& has);

// Checks the numbers of inputs and outputs and that required inputs are there (given[i] says whether input i
// has a name). The error is the end of a sentence that begins "Node 'n' (Add) ".
Status check_use(const Operator& op, std::span<const bool> given, size_t outputs);

// ---- implementation
// ---------------------------------------------------------------------------------------------- Calls
// each(name, letter, required) for the attributes of a version until it returns false.
template <class Each>
void each_attribute(std::string_view use, Each&& each) {
  const size_t end = use.find(')');
  std::string_view list = end == std::string_view::npos ? std::string_view() : use.substr(end + 1);
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    const size_t colon = item.find(':');
    if (!each(item.substr(0, colon), item[colon + 1], item.back() == '!')) return;
    list.remove_prefix(item.size() < list.size() ? item.size() + 1 : list.size());
  }
}

template <class Has>
std::string_view missing_attribute(const Operator& op, Has&& has) {
  std::string_view missing;
  each_attribute(op.use, [&](std::string_view name, char, bool required) {
    if (required && !has(name)) missing = name;
    return missing.empty();
  });
  return missing;
}

}  // namespace belay::onnx
