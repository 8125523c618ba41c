// The model format "onnx": a ModelProto file to a frozen graph.
#include "importer.hpp"
#include "sniff.hpp"

#include <belay/abi/model_format.h>
#include <belay/plugin.hpp>

namespace belay::onnx {
namespace {

// The host's reader and sink as the importer sees them. One parse, one thread.
class HostFiles final : public Files {
 public:
  HostFiles(const belay_host& host, belay_model_reader& reader, const belay_model_sink& sink,
            belay_span model)
      : host_(host), reader_(reader), sink_(sink), model_(static_cast<const char*>(model.ptr), model.len) {}

  std::string_view model() override { return model_; }

  Result<Side> open(std::string_view name) override {
    Side out;
    BELAY_TRY(from_c(host_, reader_.open(&reader_, to_str(name), &out.source)));
    belay_span bytes{};
    BELAY_TRY(from_c(host_, reader_.map(&reader_, out.source, &bytes)));
    out.bytes = {static_cast<const char*>(bytes.ptr), bytes.len};
    // The importer keeps a record for each number up to this one.
    if (out.source == 0 || out.source > kMaxSources)
      return Status(Code::kInternal, "The reader gave the source number " + std::to_string(out.source) + ".");
    return out;
  }

  void warn(const std::string& text) override {
    if (BELAY_HAS(&sink_, belay_model_sink, warning)) sink_.warning(sink_.user, to_str(text));
  }

 private:
  static constexpr uint32_t kMaxSources = 1u << 20;
  const belay_host& host_;
  belay_model_reader& reader_;
  const belay_model_sink& sink_;
  const std::string_view model_;
};

struct OnnxPlugin {
  const belay_host& host;
  static Result<std::unique_ptr<OnnxPlugin>> open(const belay_host& host, Value) {
    return std::unique_ptr<OnnxPlugin>(new OnnxPlugin{host});
  }
};

struct OnnxFormat {  // the object; any thread
  const belay_host& host;
};

uint32_t sniff_slot(belay_obj*, const belay_sniff_req* req) noexcept {
  return sniff(to_view(req->file_name), {static_cast<const char*>(req->head.ptr), req->head.len},
               req->file_bytes);
}

belay_status parse_slot(belay_obj* object, belay_model_reader* reader, const belay_value*,
                        const belay_model_sink* sink) noexcept {
  const belay_host& host = self<OnnxFormat>(object).host;
  return guard(host, [&]() -> Status {
    belay_span model{};
    BELAY_TRY(from_c(host, reader->map(reader, 0, &model)));
    if (model.len == 0) return {Code::kDataLoss, "The file is empty, want an ONNX model."};
    HostFiles files(host, *reader, *sink, model);
    Importer importer(files);
    BELAY_ASSIGN(const std::string image, importer.run());
    BELAY_TRY(from_c(host, sink->graph(sink->user, {image.data(), image.size()})));
    return importer.check_operators();
  });
}

void destroy_slot(belay_obj* object) noexcept { delete &self<OnnxFormat>(object); }

constexpr belay_model_format_vt kTable{.hdr = {sizeof(belay_model_format_vt), 0, nullptr},
                                       .sniff = sniff_slot,
                                       .parse = parse_slot,
                                       .destroy = destroy_slot};

belay_status create(belay_ctx* ctx, const belay_value*, belay_created* out) noexcept {
  const belay_host& host = state<OnnxPlugin>(ctx).host;
  return guard(host, [&]() -> Status {
    give(out, std::unique_ptr<OnnxFormat>(new OnnxFormat{host}), kTable);
    return {};
  });
}

constexpr belay_component kComponent{.hdr = {sizeof(belay_component), 0, nullptr},
                                     .kind = literal(BELAY_MODEL_FORMAT_KIND),
                                     .name = literal("onnx"),
                                     .score = nullptr,
                                     .create = create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace
}  // namespace belay::onnx

BELAY_DEFINE_PLUGIN(belay::onnx::OnnxPlugin, "onnx", "0.1.0", belay::onnx::kComponents)
