// Reads the text of a picture with PP-OCRv4: finds the boxes of text, then reads each.
//
//   belay_ocr MODELS PICTURE.ppm [--config FILE] [--set KEY=VALUE]...     MODELS: the folder with the
//   package's files
#include "detect.h"
#include "image.h"
#include "recognise.h"

#include <belay/runtime.hpp>

#include <chrono>
#include <clocale>
#include <cstdio>

namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

belay::Status read(const std::string& models, const std::string& picture,
                   const belay::RuntimeOptions& options) {
  BELAY_ASSIGN(const ocr::Image image, ocr::read_image(picture));
  BELAY_ASSIGN(const std::vector<std::string> keys, ocr::read_keys(models + "/ppocr_keys_v1.txt"));
  BELAY_ASSIGN(const belay::Runtime runtime, belay::Runtime::create(options));
  auto start = Clock::now();
  BELAY_ASSIGN(const belay::Model detector, runtime.load(models + "/ch_PP-OCRv4_det_infer.onnx"));
  BELAY_ASSIGN(const belay::Model recogniser, runtime.load(models + "/ch_PP-OCRv4_rec_infer.onnx"));
  BELAY_ASSIGN(belay::Context detection, detector.context());
  BELAY_ASSIGN(belay::Context recognition, recogniser.context());
  std::printf("models ready in %.0f ms; the picture (%d x %d):\n\n", ms_since(start), image.width,
              image.height);
  ocr::preview(image, 100);

  // Twice: the first time plans are made for the shapes at hand.
  for (const bool show : {false, true}) {
    start = Clock::now();
    BELAY_ASSIGN(const std::vector<ocr::Box> boxes, ocr::detect(detection, image));
    const double detected = ms_since(start);
    if (show)
      std::printf("\n%zu box%s of text found in %.1f ms\n", boxes.size(), boxes.size() == 1 ? "" : "es",
                  detected);
    for (const ocr::Box& box : boxes) {
      start = Clock::now();
      BELAY_ASSIGN(const ocr::Line line, ocr::recognise(recognition, keys, image, box));
      if (show)
        std::printf("  %-44s %5.1f %%  %.1f ms\n", line.text.c_str(), 100 * double(line.confidence),
                    ms_since(start));
    }
    if (boxes.empty()) return {belay::Code::kNotFound, "No text was found in '" + picture + "'."};
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  std::vector<std::string> words;
  belay::RuntimeOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if ((word == "--config" || word == "--set") && i + 1 < argc)
      (word == "--config" ? options.files : options.sets).emplace_back(argv[++i]);
    else
      words.push_back(word);
  }
  if (words.size() != 2 || words[0].starts_with("-") || words[1].starts_with("-")) {
    std::fprintf(stderr, "usage: %s MODELS PICTURE.ppm [--config FILE] [--set KEY=VALUE]...\n", argv[0]);
    return 2;
  }
  if (const belay::Status status = read(words[0], words[1], options); !status.ok()) {
    std::fprintf(stderr, "belay_ocr: %s\n", status.message().c_str());
    return 1;
  }
  return 0;
}
