// Any bytes as an ONNX model: refused with a sentence, or an image that the verifier accepts and that can be
// printed.
#include "plugins/formats/onnx/importer.hpp"
#include "plugins/formats/onnx/sniff.hpp"

#include <belay/graph/verify.hpp>

#include <cstdio>
#include <cstdlib>

namespace {

class FuzzFiles final : public belay::onnx::Files {
 public:
  explicit FuzzFiles(std::string_view model) : model_(model) {}
  std::string_view model() override { return model_; }
  belay::Result<Side> open(std::string_view name) override {
    // The name is promised to be relative, normal and below the folder.
    if (name.empty() || name[0] == '/' || name.find("..") == 0 || name.find("/../") != std::string_view::npos)
      std::abort();
    if (name.size() % 2) return belay::Status(belay::Code::kNotFound, "There is no such file.");
    return Side{1 + uint32_t(name.size() % 3), {kSide, sizeof kSide}};
  }
  void warn(const std::string&) override {}

 private:
  static constexpr char kSide[64] = {};
  std::string_view model_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  (void)belay::onnx::sniff("", file.substr(0, 4096), size);
  FuzzFiles files(file);
  const auto image = belay::onnx::Importer(files).run();
  if (!image.ok()) {
    if (image.status().message().empty()) std::abort();
    return 0;
  }
  const belay_span span{image->data(), image->size()};
  if (const belay::Status status = belay::graph::verify(span); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::abort();
  }
  belay::StringSink text;
  belay::graph::print(span, text.sink());
  return 0;
}
