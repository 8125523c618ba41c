// Reads handwritten digits with Belay: draws some of the images with the answers, then says how many of all
// it read right, how long one takes and where the memory went.
//
//   belay_digits FOLDER [--config FILE] [--set KEY=VALUE]...     FOLDER: this one
#include <belay/runtime.hpp>
#include <belay/tensor_io.hpp>

#include <langinfo.h>
#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using belay::HostTensor;
using belay::Result;
using belay::Status;

constexpr int64_t kSide = 8, kPixels = kSide * kSide, kDigits = 10;

struct Data {
  HostTensor images, labels,
      expected;  // [N,1,8,8] of 0 to 16; [N]; probabilities [N,10] of the trained network
  int64_t count() const { return images.dims[0]; }
  float* image(int64_t i) { return images.as<float>().data() + i * kPixels; }
  int64_t label(int64_t i) const { return labels.as<int64_t>()[size_t(i)]; }
};

Result<Data> read_data(const std::string& folder) {
  Data data;
  BELAY_ASSIGN(data.images, belay::read_npy(folder + "/heldout_images.npy"));
  BELAY_ASSIGN(data.labels, belay::read_npy(folder + "/heldout_labels.npy"));
  BELAY_ASSIGN(data.expected, belay::read_npy(folder + "/heldout_probabilities.npy"));
  const int64_t n = data.images.dims.empty() ? 0 : data.images.dims[0];
  if (n == 0 || data.images.dims != std::vector<int64_t>{n, 1, kSide, kSide} ||
      data.labels.dims != std::vector<int64_t>{n} || data.expected.dims != std::vector<int64_t>{n, kDigits})
    return Status(belay::Code::kInvalidArgument,
                  "The held-out files in '" + folder + "' do not fit each other.");
  return data;
}

int64_t best(const float* probabilities) {
  return std::max_element(probabilities, probabilities + kDigits) - probabilities;
}

// Five shades: blocks where the terminal knows UTF-8, else letters.
void draw(Data& data, const std::vector<float>& answers, const std::vector<int64_t>& chosen) {
  const bool utf8 = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  const char* const blocks[] = {"  ", "\u2591\u2591", "\u2592\u2592", "\u2593\u2593", "\u2588\u2588"};
  const char* const letters[] = {"  ", "..", "++", "**", "##"};
  for (int64_t row = 0; row < kSide; ++row) {
    for (const int64_t i : chosen) {
      std::fputs("  ", stdout);
      for (int64_t column = 0; column < kSide; ++column) {
        const int shade = std::clamp(int(data.image(i)[row * kSide + column] / 4 + 0.5f), 0, 4);
        std::fputs((utf8 ? blocks : letters)[shade], stdout);
      }
    }
    std::puts("");
  }
  for (const int64_t i : chosen) {
    const float* p = answers.data() + i * kDigits;
    char text[64];
    std::snprintf(text, sizeof text, "read %d (%.1f %%)%s", int(best(p)), 100 * double(p[best(p)]),
                  best(p) == data.label(i) ? "" : " WRONG");
    std::printf("  %-16s", text);
  }
  std::puts("");
}

// The first image of each of five digits, so that each run shows the same.
std::vector<int64_t> choose(const Data& data) {
  std::vector<int64_t> chosen;
  for (const int64_t digit : {2, 0, 4, 7, 9})
    for (int64_t i = 0; i < data.count(); ++i)
      if (data.label(i) == digit) {
        chosen.push_back(i);
        break;
      }
  return chosen;
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// Runs `count` images from `first` on and gives the microseconds; the probabilities go to `to`.
Result<double> run(belay::Context& context, Data& data, int64_t first, int64_t count, float* to) {
  const belay::Tensor input(data.image(first), uint64_t(count * kPixels) * sizeof(float), BELAY_DT_FLOAT32,
                            {count, 1, kSide, kSide});
  const auto start = Clock::now();
  BELAY_TRY(context.set_input(0, input));
  BELAY_TRY(context.run());
  BELAY_ASSIGN(const belay::Tensor output, context.output(0));
  if (output.dims() != std::vector<int64_t>{count, kDigits} || !output.data())
    return Status(belay::Code::kInternal,
                  "The model gave another shape than [" + std::to_string(count) + ",10].");
  std::memcpy(to, output.data(), size_t(count * kDigits) * sizeof(float));
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double status_mib(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::strtod(line.c_str() + std::strlen(key), nullptr) / 1024;
  return 0;
}

Status demo(const std::string& folder, const belay::RuntimeOptions& options) {
  BELAY_ASSIGN(Data data, read_data(folder));
  auto start = Clock::now();
  BELAY_ASSIGN(const belay::Runtime runtime, belay::Runtime::create(options));
  const double start_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  BELAY_ASSIGN(const belay::Device device, runtime.default_device());
  BELAY_ASSIGN(const belay_device_info device_info, device.info());
  start = Clock::now();
  BELAY_ASSIGN(const belay::Model model, runtime.load(folder + "/digits.onnx"));
  const double load_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  BELAY_ASSIGN(belay::Context context, model.context());

  std::vector<float> answers(size_t(data.count() * kDigits));
  std::vector<double> one, all;
  constexpr int kRounds = 5, kBatches = 20;
  for (int round = 0; round < kRounds; ++round)
    for (int64_t i = 0; i < data.count(); ++i) {
      BELAY_ASSIGN(const double us, run(context, data, i, 1, answers.data() + i * kDigits));
      if (round > 0) one.push_back(us);  // the first round warms caches
    }
  BELAY_ASSIGN(const belay_executable_stats single, model.stats());
  std::vector<float> batch(answers.size());
  for (int i = 0; i <= kBatches; ++i) {
    BELAY_ASSIGN(const double us, run(context, data, 0, data.count(), batch.data()));
    if (i > 0) all.push_back(us);
  }
  BELAY_ASSIGN(const belay_executable_stats many, model.stats());

  int64_t right = 0;
  float difference = 0;
  for (int64_t i = 0; i < data.count(); ++i) right += best(answers.data() + i * kDigits) == data.label(i);
  for (size_t i = 0; i < answers.size(); ++i)
    difference = std::max({difference, std::abs(answers[i] - data.expected.as<float>()[i]),
                           std::abs(batch[i] - data.expected.as<float>()[i])});

  draw(data, answers, choose(data));
  const double mib = 1 << 20, kib = 1 << 10;
  std::printf("\naccuracy  %lld of %lld held-out images right (%.2f %%)\n", (long long)right,
              (long long)data.count(), 100.0 * double(right) / double(data.count()));
  std::printf("          probabilities at most %.1e from those of the network as it was trained\n",
              double(difference));
  std::printf("device    %s, %llu thread%s\n", belay::to_string(device_info.name).c_str(),
              (unsigned long long)device_info.threads, device_info.threads == 1 ? "" : "s");
  std::printf("time      one image %.1f us; in a batch of %lld %.2f us each (medians)\n", median(one),
              (long long)data.count(), median(all) / double(data.count()));
  std::printf("          runtime started in %.1f ms, model ready in %.1f ms\n", start_ms, load_ms);
  std::printf("memory    weights %.1f KiB: %.1f used in the file, %.1f copied, %.1f packed for kernels\n",
              double(single.weight_bytes) / kib, double(single.borrowed_bytes) / kib,
              double(single.copied_bytes) / kib, double(single.packed_bytes) / kib);
  std::printf(
      "          activations %.1f KiB for one image, %.2f MiB for the batch (at most %.2f MiB alive at "
      "once)\n",
      double(single.arena_bytes) / kib, double(many.arena_bytes) / mib, double(many.live_bytes) / mib);
  std::printf("          the process: %.1f MiB resident, %.1f MiB at most\n", status_mib("VmRSS:"),
              status_mib("VmHWM:"));
  if (right * 100 < data.count() * 97)
    return {belay::Code::kInternal,
            "Less than 97 % are right: this build does not compute what the network was trained for."};
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  std::string folder = ".";
  belay::RuntimeOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if ((word == "--config" || word == "--set") && i + 1 < argc) {
      (word == "--config" ? options.files : options.sets).emplace_back(argv[++i]);
    } else if (word.starts_with("-")) {
      std::fprintf(stderr, "usage: %s FOLDER [--config FILE] [--set KEY=VALUE]...\n", argv[0]);
      return 2;
    } else {
      folder = word;
    }
  }
  if (const Status status = demo(folder, options); !status.ok()) {
    std::fprintf(stderr, "belay_digits: %s\n", status.message().c_str());
    return 1;
  }
  return std::ferror(stdout) || std::fflush(stdout) != 0 ? 1 : 0;
}
