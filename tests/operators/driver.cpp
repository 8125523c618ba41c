// Runs models that come through standard input, in one process: see drive.py, which starts it.
//
//   operators_driver FOLDER-OF-PLUGINS [KEY=VALUE]...
//   in:  length of the model, its bytes; number of inputs; each: kind (BELAY_TYPE_...), length, a TensorProto or the like
//   out: code of the status, length of its text, the text; where the code is 0: number of outputs; each: kind, length, bytes
// Numbers are of 32 bits. Each model runs twice; what comes out is of the second run.
#include <belay/runtime.hpp>
#include <belay/tensor_io.hpp>

#include <cstdio>
#include <optional>

namespace {

using belay::Status;

struct Answer {
  uint32_t kind = BELAY_TYPE_TENSOR;
  std::string bytes;
};

std::optional<uint32_t> number() {
  uint32_t value = 0;
  if (std::fread(&value, sizeof value, 1, stdin) != 1) return std::nullopt;
  return value;
}

std::string bytes() {
  std::string out(number().value_or(0), '\0');
  if (std::fread(out.data(), 1, out.size(), stdin) != out.size()) std::exit(2);
  return out;
}

void write(uint32_t value) { std::fwrite(&value, sizeof value, 1, stdout); }

void write(const std::string& text) {
  write(uint32_t(text.size()));
  std::fwrite(text.data(), 1, text.size(), stdout);
}

Status run(const belay::Runtime& runtime, const std::string& model_bytes, const std::vector<Answer>& inputs,
           std::vector<Answer>& outputs) {
  BELAY_ASSIGN(const belay::Model model, runtime.load_from_memory(model_bytes.data(), model_bytes.size()));
  BELAY_ASSIGN(belay::Context context, model.context());
  std::vector<belay::HostDatum> values;
  values.reserve(inputs.size());
  std::vector<belay::DatumView> views;
  for (const Answer& input : inputs) {
    BELAY_ASSIGN(belay::HostDatum value, belay::parse_pb(input.bytes, input.kind));
    values.push_back(std::move(value));
    views.emplace_back(values.back());
    BELAY_TRY(context.set_input(views.size() - 1, views.back().get()));
  }
  BELAY_TRY(context.run());
  BELAY_TRY(context.run());
  for (uint64_t i = 0; i < model.output_count(); ++i) {
    BELAY_ASSIGN(const belay_datum* found, context.datum(i));
    BELAY_ASSIGN(const belay::HostDatum copy, belay::copy_datum(*found));
    outputs.push_back({copy.kind, belay::to_pb(copy)});
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  belay::RuntimeOptions options;
  options.plugin_dirs = {argv[1]};
  options.sets.assign(argv + 2, argv + argc);
  auto runtime = belay::Runtime::create(options);
  if (!runtime.ok()) {
    std::fprintf(stderr, "%s\n", runtime.status().message().c_str());
    return 3;
  }
  while (const std::optional<uint32_t> length = number()) {
    std::string model(*length, '\0');
    if (std::fread(model.data(), 1, model.size(), stdin) != model.size()) return 2;
    std::vector<Answer> inputs(number().value_or(0)), outputs;
    for (Answer& input : inputs) {
      input.kind = number().value_or(0);
      input.bytes = bytes();
    }
    const Status status = run(runtime.value(), model, inputs, outputs);
    write(uint32_t(status.code()));
    write(status.message());
    if (status.ok()) {
      write(uint32_t(outputs.size()));
      for (const Answer& output : outputs) {
        write(output.kind);
        write(output.bytes);
      }
    }
    std::fflush(stdout);
  }
  return 0;
}
