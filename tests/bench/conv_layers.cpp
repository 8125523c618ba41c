// How near to the peak of the processor the convolutions of known networks run, each as a model of one node through
// libbelay.so, on one thread:
//
//   conv_layers [--seconds S] [--set KEY=VALUE]... [C,H,W,M,K,STRIDE,GROUPS[,DILATION]]...
//
// C channels of H x W become M by K x K; pads keep the size. Each line is one layer: the median and the least
// processor time of a run, GFLOP/s at the median (of a sum over all terms, whatever the kernel computes) and its share of
// the peak, which is measured from registers in the same run. Processor time, because machines are shared.
#include <belay/runtime.hpp>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Layer {
  int64_t inputs, height, width, outputs, kernel, stride, groups, dilation = 1;
};
const std::vector<Layer> kLayers = {
    {3, 224, 224, 64, 7, 2, 1},    {3, 224, 224, 32, 3, 2, 1},    {64, 56, 56, 64, 3, 1, 1},
    {128, 28, 28, 128, 3, 1, 1},   {256, 14, 14, 256, 3, 1, 1},   {512, 7, 7, 512, 3, 1, 1},
    {128, 56, 56, 128, 3, 2, 1},   {64, 80, 80, 64, 3, 1, 1, 5},  {64, 56, 56, 256, 1, 1, 1},
    {512, 28, 28, 128, 1, 1, 1},   {1024, 14, 14, 256, 1, 1, 1},  {512, 7, 7, 2048, 1, 1, 1},
    {16, 112, 112, 96, 1, 1, 1},   {144, 56, 56, 24, 1, 1, 1},    {960, 7, 7, 160, 1, 1, 1},
    {32, 112, 112, 32, 3, 1, 32},  {96, 112, 112, 96, 3, 2, 96},  {384, 14, 14, 384, 3, 1, 384},
    {960, 7, 7, 960, 3, 1, 960},   {240, 12, 80, 240, 5, 1, 240},
};

// ---- a model of one node, as an ONNX file
class Message {
 public:
  Message& number(int field, uint64_t value) { return varint(uint64_t(field) << 3).varint(value); }
  Message& text(int field, const std::string& value) {
    varint(uint64_t(field) << 3 | 2).varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  Message& varint(uint64_t value) {
    for (; value > 127; value >>= 7) bytes_ += char(value | 128);
    bytes_ += char(value);
    return *this;
  }
  std::string bytes_;
};

Message value_info(const std::string& name, const std::vector<int64_t>& dims) {
  Message shape;
  for (const int64_t dim : dims) shape.message(1, Message().number(1, uint64_t(dim)));
  return Message().text(1, name).message(2, Message().message(1, Message().number(1, 1).message(2, shape)));
}
Message tensor(const std::string& name, const std::vector<int64_t>& dims, const std::vector<float>& values) {
  Message out;
  for (const int64_t dim : dims) out.number(1, uint64_t(dim));
  return out.number(2, 1).text(8, name).text(
      9, std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}
Message attribute(const std::string& name, const std::vector<int64_t>& values) {
  Message out;
  out.text(1, name);
  for (const int64_t value : values) out.number(8, uint64_t(value));
  return out.number(20, 7);  // INTS
}
std::vector<float> numbers(int64_t count) {
  std::vector<float> out;
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    out.push_back(float(state >> 8) / float(1 << 24) - 0.5f);
  }
  return out;
}

std::string model_of(const Layer& l) {
  const int64_t pad = l.kernel / 2 * l.dilation;
  const int64_t height = (l.height - 1) / l.stride + 1, width = (l.width - 1) / l.stride + 1;
  const std::vector<int64_t> weights{l.outputs, l.inputs / l.groups, l.kernel, l.kernel};
  Message node;
  node.text(1, "x").text(1, "w").text(1, "b").text(2, "y").text(4, "Conv");
  node.message(5, attribute("strides", {l.stride, l.stride})).message(5, attribute("pads", {pad, pad, pad, pad}));
  node.message(5, attribute("dilations", {l.dilation, l.dilation}));
  node.message(5, Message().text(1, "group").number(3, uint64_t(l.groups)).number(20, 2));  // INT
  Message graph;
  graph.message(1, node).text(2, "layer");
  graph.message(5, tensor("w", weights, numbers(l.outputs * weights[1] * l.kernel * l.kernel)));
  graph.message(5, tensor("b", {l.outputs}, numbers(l.outputs)));
  graph.message(11, value_info("x", {1, l.inputs, l.height, l.width}));
  graph.message(12, value_info("y", {1, l.outputs, height, width}));
  return Message().number(1, 8).message(7, graph).message(8, Message().number(2, 17)).bytes();
}

// ---- measuring
double now() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// Floating-point operations of a round of multiply-adds that wait for nothing but themselves.
template <class V>
[[gnu::always_inline]] inline double multiply_adds(int64_t rounds) {
  V sum[12], x = 0.5f - V{};
  for (V& s : sum) s = 1.0f - V{};
  for (int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) sum[j] = sum[j] * x + x;
  for (int j = 1; j < 12; ++j) sum[0] += sum[j];
  volatile float kept = sum[0][0];
  (void)kept;
  return 12 * double(sizeof(V) / sizeof(float)) * 2;
}
typedef float Floats8 __attribute__((vector_size(32)));
typedef float Floats16 __attribute__((vector_size(64)));
__attribute__((target("avx512f"))) double multiply_adds_512(int64_t rounds) { return multiply_adds<Floats16>(rounds); }
__attribute__((target("avx2,fma"))) double multiply_adds_256(int64_t rounds) { return multiply_adds<Floats8>(rounds); }
// GFLOP/s of one thread; 0: the processor has no FMA.
double peak() {
  auto* loop = __builtin_cpu_supports("avx512f") ? multiply_adds_512
               : __builtin_cpu_supports("fma")   ? multiply_adds_256
                                                 : nullptr;
  double best = 0;
  for (int i = 0; loop && i < 20; ++i) {
    constexpr int64_t kRounds = 200000;
    const double begin = now(), each = loop(kRounds);
    best = std::max(best, each * double(kRounds) / (now() - begin) * 1e-9);
  }
  return best;
}

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "conv_layers: %s\n", what.c_str());
  std::exit(1);
}
template <class T>
T must(belay::Result<T> result) {
  if (!result.ok()) die(result.status().message());
  return std::move(result).value();
}
void must(const belay::Status& status) {
  if (!status.ok()) die(status.message());
}

void measure(const belay::Runtime& runtime, const Layer& l, double seconds, double peak) {
  const std::string bytes = model_of(l);
  const belay::Model model = must(runtime.load_from_memory(bytes.data(), bytes.size()));
  belay::Context context = must(model.context());
  std::vector<float> x = numbers(l.inputs * l.height * l.width);
  must(context.set_input(0, belay::Tensor::of(x, {1, l.inputs, l.height, l.width})));
  must(context.run());
  double begin = now();
  must(context.run());
  // Batches of 2 ms at least: the clock costs a system call.
  const int64_t batch = std::max<int64_t>(1, int64_t(2e-3 / std::max(now() - begin, 1e-7)));
  std::vector<double> times;
  for (const double end = now() + seconds; times.size() < 5 || now() < end;) {
    begin = now();
    for (int64_t i = 0; i < batch; ++i) must(context.run());
    times.push_back((now() - begin) / double(batch));
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const double pixels = double((l.height - 1) / l.stride + 1) * double((l.width - 1) / l.stride + 1);
  const double flops = 2 * pixels * double(l.outputs * (l.inputs / l.groups) * l.kernel * l.kernel);
  std::printf("%5ld x %3ld x %3ld -> %4ld  %ldx%ld stride %ld groups %3ld dilation %ld  %9.1f us (least %9.1f)  %6.1f GFLOP/s",
              long(l.inputs), long(l.height), long(l.width), long(l.outputs), long(l.kernel), long(l.kernel),
              long(l.stride), long(l.groups), long(l.dilation), median * 1e6, times[0] * 1e6, flops / median * 1e-9);
  if (peak > 0) std::printf("  %4.0f %%", flops / median * 1e-9 / peak * 100);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  belay::RuntimeOptions options;
  options.sets = {"engine.threads=1"};
  std::vector<Layer> layers;
  double seconds = 0.2;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if ((arg == "--seconds" || arg == "--set") && i + 1 < argc) {
      if (arg == "--set")
        options.sets.emplace_back(argv[++i]);
      else
        seconds = std::atof(argv[++i]);
      continue;
    }
    long v[8] = {0, 0, 0, 0, 0, 0, 0, 1};
    if (std::sscanf(argv[i], "%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7) < 7 ||
        *std::min_element(v, v + 8) < 1 || v[0] % v[6])
      die("'" + arg + "' is no layer: want C,H,W,M,K,STRIDE,GROUPS[,DILATION], all at least 1, C a multiple of GROUPS");
    layers.push_back({v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]});
  }
  const belay::Runtime runtime = must(belay::Runtime::create(options));
  const double most = peak();
  if (most > 0) std::printf("peak of one thread %.1f GFLOP/s\n", most);
  for (const Layer& layer : layers.empty() ? kLayers : layers) measure(runtime, layer, seconds, most);
}
