// Reads ONNX files and writes what became of each as one line of JSON, for compare_with_onnx.py:
//   print_onnx FILE...     or, with --text FILE, the frozen graph as text; with --image FILE, the image
//   itself
#include "onnx_files.hpp"

#include <cstdio>

namespace {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    char code[8];
    if (c == '"' || c == '\\' || uint8_t(c) < 0x20) {
      std::snprintf(code, sizeof code, "\\u%04x", uint8_t(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string facts(const std::string& image) {
  const belay::graph::View view({image.data(), image.size()});
  std::map<std::string, int> ops;
  for (uint32_t n = 0; n < view.nodes().size(); ++n)
    ++ops[std::string(view.node(n).domain()) + ":" + std::string(view.node(n).op()) + ":" +
          std::to_string(view.node(n).version())];
  uint64_t constant_bytes = 0, constants = 0;
  for (const auto& value : view.values())
    if (value.constant != BELAY_NONE) {
      const auto& constant = view.constants()[value.constant];
      ++constants;
      if (constant.dtype != BELAY_DT_STRING) constant_bytes += constant.bytes;
    }
  std::string out = "\"ops\":{";
  for (const auto& [op, count] : ops)
    out += (out.back() == '{' ? "" : ",") + json_string(op) + ":" + std::to_string(count);
  out += "},\"graphs\":" + std::to_string(view.graphs().size()) +
         ",\"constants\":" + std::to_string(constants) +
         ",\"constant_bytes\":" + std::to_string(constant_bytes);
  for (const bool inputs : {true, false}) {
    out += inputs ? ",\"inputs\":[" : ",\"outputs\":[";
    for (const uint32_t v : view.indices(inputs ? view.graphs()[0].inputs : view.graphs()[0].outputs))
      out += (out.back() == '[' ? "" : ",") + json_string(view.string(view.values()[v].name));
    out += "]";
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc == 3 ? argv[1] : "";
  if (verb == "--text" || verb == "--image") {
    const auto image = belay::onnx::import_file(argv[2]);
    if (!image.ok()) {
      std::fprintf(stderr, "%s\n", image.status().message().c_str());
      return 1;
    }
    belay::StringSink text;
    if (verb == "--text") belay::graph::print({image->data(), image->size()}, text.sink());
    const std::string& out = verb == "--text" ? text.text() : *image;
    return std::fwrite(out.data(), 1, out.size(), stdout) == out.size() ? 0 : 1;
  }
  for (int i = 1; i < argc; ++i) {
    std::vector<std::string> warnings;
    const auto image = belay::onnx::import_file(argv[i], &warnings);
    std::string line = "{\"file\":" + json_string(argv[i]);
    if (image.ok()) {
      line += "," + facts(*image) + ",\"warnings\":" + std::to_string(warnings.size());
    } else {
      line += ",\"code\":" + std::to_string(int(image.status().code())) +
              ",\"error\":" + json_string(image.status().message());
    }
    std::puts((line + "}").c_str());
  }
  return 0;
}
