// Memory that an application and Belay share: inputs and outputs where they lie, buffers in the order of streams, host
// memory as a buffer, addresses that get memory later, tensors of other libraries, and what a policy would do.
//
//   belay_memory MODEL [KEY=VALUE]...     MODEL: sdk/examples/digits/digits.onnx
#include <belay/runtime.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

namespace {

belay::Status show(const char* path, std::vector<std::string> sets) {
  BELAY_ASSIGN(belay::Runtime runtime, belay::Runtime::create({.sets = std::move(sets)}));
  BELAY_ASSIGN(belay::Device device, runtime.default_device());
  BELAY_ASSIGN(belay::Stream stream, device.stream());
  BELAY_ASSIGN(belay::Model model, runtime.load(path));
  BELAY_ASSIGN(belay::Context context, model.context());

  // An input and an output where the application has them: each run reads and writes there, nothing is copied.
  alignas(64) std::array<float, 64> image{};
  alignas(64) std::array<float, 10> answer{};
  BELAY_TRY(context.set_input(0, belay::Tensor::of(image, {1, 1, 8, 8})));
  BELAY_TRY(context.set_output(0, belay::Tensor::of(answer, {1, 10})));
  BELAY_TRY(context.run());
  BELAY_ASSIGN(const belay::IoMemory in, context.input_memory(0));
  BELAY_ASSIGN(const belay::IoMemory out, context.output_memory(0));
  std::printf("bound: %zu bytes shared, %zu copied\n", size_t(in.shared_bytes + out.shared_bytes),
              size_t(in.copied_bytes + out.copied_bytes));

  // Memory in the order of a stream: it ends while queued work still uses it, and nobody waits.
  for (int frame = 0; frame < 3; ++frame) {
    BELAY_ASSIGN(belay::Buffer pixels, stream.alloc(sizeof image));
    BELAY_TRY(stream.fill(pixels, 0, sizeof image, float(frame)).status());
    BELAY_ASSIGN(const belay::Event read, stream.read(pixels, 0, image.data(), sizeof image));
    BELAY_TRY(pixels.destroy_after({read}));
    BELAY_TRY(context.enqueue(stream).status());
  }
  BELAY_TRY(stream.synchronize());
  std::printf("streams: the most likely digit is %td\n", std::max_element(answer.begin(), answer.end()) - answer.begin());

  // Host memory as a buffer, for copies on streams; one that is only read may be given as a copy.
  {
    BELAY_ASSIGN(const belay::Buffer lent, device.bind(image.data(), sizeof image, BELAY_ACCESS_READ));
    BELAY_ASSIGN(const belay::Buffer buffer, device.alloc(sizeof image));
    BELAY_TRY(stream.copy(buffer, 0, lent, 0, sizeof image).status());
    BELAY_TRY(stream.synchronize());
  }

  // Addresses first, memory when it is needed, where the device has virtual memory.
  if (belay::Result<belay::Buffer> growing = device.reserve(uint64_t{1} << 30); growing.ok()) {
    const uint64_t page = growing->granularity();
    BELAY_TRY(growing->map(0, page));
    BELAY_TRY(stream.fill(*growing, 0, page, 1.0f).status());
    BELAY_TRY(stream.synchronize());  // before it goes
    BELAY_TRY(growing->unmap(0, page));
  }

  // To another array library, and back from it: the elements stay where they are.
  BELAY_ASSIGN(DLManagedTensor * managed, belay::to_dlpack(belay::Tensor::of(answer, {1, 10})));
  BELAY_ASSIGN(const belay::Dlpack foreign, belay::Dlpack::take(managed));
  std::printf("dlpack: %s\n", foreign.tensor().data() == answer.data() ? "the same elements" : "a copy");

  // What policies there are, and what the device has given.
  BELAY_ASSIGN(const std::vector<belay::Runtime::PolicyInfo> policies, runtime.policies());
  for (const auto& policy : policies)
    std::printf("policy: %s%s%s%s\n", policy.name.c_str(), policy.serves & BELAY_POLICY_PLAN ? " plans" : "",
                policy.serves & BELAY_POLICY_PLACE ? " places" : "", policy.serves & BELAY_POLICY_BIND ? " binds" : "");
  BELAY_ASSIGN(const belay_hal_memory_info memory, device.memory());
  std::printf("device: %zu bytes in use, %zu at most\n", size_t(memory.bytes), size_t(memory.peak_bytes));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: belay_memory MODEL [KEY=VALUE]...\n");
    return 2;
  }
  const belay::Status status = show(argv[1], {argv + 2, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
