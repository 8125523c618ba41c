#include "importer.hpp"

#include <belay/tensor_io/wire.hpp>

namespace belay::onnx {
namespace {

constexpr int64_t kMinIr = 3, kMaxIr = 13;  // of ONNX 1.0 to 1.22
constexpr size_t kShownUnknown = 8;

}  // namespace

Status Importer::check_operators() const {
  if (unknown_.empty()) return {};
  std::string text = unknown_.size() == 1 ? "An operator cannot be used: " : "Operators cannot be used: ";
  for (size_t i = 0; i < unknown_.size() && i < kShownUnknown; ++i)
    text.append(i > 0 ? "; " : "").append(unknown_[i]);
  if (unknown_.size() > kShownUnknown)
    text += "; and " + std::to_string(unknown_.size() - kShownUnknown) + " more";
  return {Code::kUnimplemented, text + "."};
}

Result<std::string> Importer::run() {
  builder_.set_source_bytes(0, file_.size());
  BELAY_ASSIGN(const ModelProto model, read_model(file_));
  BELAY_TRY(read_versions(model));
  if (!model.graph) return invalid("The model has no graph.");
  BELAY_TRY(read_functions(model));
  if (model.training) warn_once("The model has training information, which is not used.");
  add_metadata(model);

  BELAY_ASSIGN(const GraphProto graph, read_graph(*model.graph, base_));
  if (graph.outputs.empty()) return invalid("The model's graph has no outputs.");
  builder_.set_graph_name(0, wire::utf8(graph.name));
  Scope scope;
  scope.opsets = &opsets_;
  BELAY_TRY(import_graph(graph, scope, "the graph"));
  return builder_.freeze();
}

Status Importer::read_versions(const ModelProto& model) {
  if (!model.ir_version)
    return invalid("The model has no ir_version; it is not an ONNX model, or is damaged.");
  ir_version_ = *model.ir_version;
  if (ir_version_ < kMinIr || ir_version_ > kMaxIr)
    return {ir_version_ > kMaxIr ? Code::kUnimplemented : Code::kInvalidArgument,
            "The model has ir_version " + std::to_string(ir_version_) + ", want " + std::to_string(kMinIr) +
                " to " + std::to_string(kMaxIr) + "."};
  if (model.opsets.empty()) return invalid("The model imports no opset, want at least one of ai.onnx.");
  BELAY_ASSIGN(opsets_, read_opsets(model.opsets, "The model"));
  return {};
}

Result<Importer::Opsets> Importer::read_opsets(const std::vector<OpsetImport>& imports,
                                               const std::string& what) const {
  Opsets out;
  for (const OpsetImport& import : imports) {
    const std::string_view domain = plain_domain(import.domain);
    const std::string shown = domain.empty() ? "ai.onnx" : wire::printable(domain);
    const std::string text = what + " imports opset " + std::to_string(import.version) + " of " + shown;
    const auto newest = newest_version(domain);
    if (import.version < 1) return invalid(text + ", want 1 or more.");
    // Old meanings of a newer operator would be silently wrong. Versions of domains that nobody here knows do
    // not matter: real files import them without using them.
    if (newest && domain != "com.microsoft" && import.version > *newest)
      return Status(Code::kUnimplemented,
                    text + ", which is newer than what is known, " + std::to_string(*newest) + ".");
    const auto [at, added] = out.try_emplace(domain, import.version);
    if (!added && at->second != import.version)
      return invalid(text + " and also opset " + std::to_string(at->second) + ", want one.");
  }
  return out;
}

Status Importer::read_functions(const ModelProto& model) {
  for (const std::string_view message : model.functions) {
    BELAY_ASSIGN(FunctionProto proto, read_function(message, base_));
    const std::string text =
        "Function '" + wire::printable(proto.name) + "' of domain '" + wire::printable(proto.domain) + "'";
    if (proto.name.empty()) return invalid(text + " has no name.");
    BELAY_ASSIGN(Opsets opsets, read_opsets(proto.opsets, text));
    const std::tuple key(plain_domain(proto.domain), proto.name, proto.overload);
    if (!functions_.try_emplace(key, Function{std::move(proto), std::move(opsets)}).second)
      return invalid(text + " is defined twice.");
  }
  return {};
}

void Importer::add_metadata(const ModelProto& model) {
  const auto add = [&](const std::string& key, std::string_view value) {
    if (!value.empty()) builder_.add_metadata(key, wire::utf8(value));
  };
  add("format", "onnx");
  add("onnx.ir_version", std::to_string(ir_version_));
  for (const auto& [domain, version] : opsets_)
    add("onnx.opset." + (domain.empty() ? "ai.onnx" : wire::utf8(domain)), std::to_string(version));
  add("onnx.producer_name", model.producer_name);
  add("onnx.producer_version", model.producer_version);
  add("onnx.domain", model.domain);
  if (model.model_version != 0) add("onnx.model_version", std::to_string(model.model_version));
  add("onnx.doc", model.doc);
  for (const auto& [key, value] : model.metadata) add("onnx.metadata." + wire::utf8(key), value);
}

void Importer::warn_once(const std::string& text) {
  if (warned_.insert(text).second) files_.warn(text);
}

}  // namespace belay::onnx
