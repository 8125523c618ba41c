#include "operators.hpp"

#include "operator_table.hpp"

#include <belay/tensor_io/wire.hpp>

#include <algorithm>
#include <charconv>
#include <utility>

namespace belay::onnx {
namespace {

constexpr std::string_view kMicrosoft = "com.microsoft";

const OperatorRow* find_row(std::string_view domain, std::string_view name) {
  const auto key = [](const OperatorRow& row) { return std::pair(row.domain, row.name); };
  const OperatorRow* at =
      std::lower_bound(std::begin(kOperatorTable), std::end(kOperatorTable), std::pair(domain, name),
                       [&](const OperatorRow& row, const auto& wanted) { return key(row) < wanted; });
  return at != std::end(kOperatorTable) && at->domain == domain && at->name == name ? at : nullptr;
}

// Number of parameters of "rrov1": least, and most (nothing: no limit).
struct Arity {
  size_t least = 0;
  std::optional<size_t> most = 0;
};
Arity arity(std::string_view letters) {
  Arity out;
  size_t position = 0;
  for (size_t i = 0; i < letters.size(); ++i, ++position) {
    if (letters[i] == 'r') out.least = position + 1;
    if (letters[i] != 'v') continue;
    out.least = std::max(out.least, position + size_t(letters[i + 1] - '0'));
    return {out.least, std::nullopt};
  }
  out.most = position;
  return out;
}

std::string counted(size_t found, const Arity& want, std::string_view what) {
  std::string text = "has " + std::to_string(found) + " " + std::string(what) + ", want ";
  if (!want.most) return text + std::to_string(want.least) + " or more";
  if (want.least == *want.most) return text + std::to_string(want.least);
  return text + std::to_string(want.least) + " to " + std::to_string(*want.most);
}

}  // namespace

std::optional<int64_t> newest_version(std::string_view domain) {
  if (domain.empty()) return kMaxOpset;
  if (domain == "ai.onnx.ml") return 5;
  if (domain == "ai.onnx.preview.training" || domain == "ai.onnx.training" || domain == kMicrosoft) return 1;
  return std::nullopt;
}

Result<Operator> find_operator(std::string_view domain, std::string_view name, int64_t imported) {
  const OperatorRow* row = find_row(domain, name);
  if (!row && domain == kMicrosoft) return Operator{1, {}};
  if (!row) return Status(Code::kUnimplemented, "is not known");
  std::string_view rest = row->versions, use;
  Operator out;
  bool gone = false;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    uint32_t version = 0;
    const char* end = std::from_chars(item.data(), item.data() + item.size(), version).ptr;
    const std::string_view text = item.substr(size_t(end - item.data()));
    if (int64_t(version) > imported) {
      if (out.since_version == 0)
        return Status(Code::kUnimplemented, "came with version " + std::to_string(version));
      break;
    }
    if (!text.empty()) use = text;
    gone = use == "x";
    out = {version, use};
  }
  if (gone) return Status(Code::kUnimplemented, "is gone since version " + std::to_string(out.since_version));
  return out;
}

char attribute_kind(const Operator& op, std::string_view name) {
  char kind = '\0';
  each_attribute(op.use, [&](std::string_view at, char letter, bool) {
    if (at == name) kind = letter;
    return kind == '\0';
  });
  return kind;
}

Status check_use(const Operator& op, std::span<const bool> given, size_t outputs) {
  if (op.use.empty()) return {};
  const size_t comma = op.use.find(','), end = op.use.find(')');
  const std::string_view in = op.use.substr(1, comma - 1), out = op.use.substr(comma + 1, end - comma - 1);
  const Arity inputs = arity(in), results = arity(out);
  if (given.size() < inputs.least || (inputs.most && given.size() > *inputs.most))
    return {Code::kInvalidArgument, counted(given.size(), inputs, "inputs")};
  for (size_t i = 0; i < given.size() && i < in.size() && in[i] != 'v'; ++i)
    if (in[i] == 'r' && !given[i])
      return {Code::kInvalidArgument, "lacks input " + std::to_string(i) + ", which is required"};
  if (outputs < results.least || (results.most && outputs > *results.most))
    return {Code::kInvalidArgument, counted(outputs, results, "outputs")};
  return {};
}

}  // namespace belay::onnx
