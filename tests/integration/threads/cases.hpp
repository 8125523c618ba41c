// cases.hpp: models with inputs and the outputs they must give.
#pragma once

#include <gtest/gtest.h>
#include <belay/runtime.hpp>
#include <belay/tensor_io.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace belay::testing {

struct Case {
  std::vector<HostDatum> inputs, outputs;
};

struct LoadedModel {
  std::string name;
  Model model;
  std::vector<Case> cases;
  Tolerance tolerance;
};
using Models = std::vector<std::unique_ptr<LoadedModel>>;

// The first wrong output in words; empty: all are right.
inline std::string run_case(Context& context, const LoadedModel& of, const Case& at) {
  std::vector<DatumView> views;
  for (const HostDatum& input : at.inputs) views.emplace_back(input);
  const auto wrong = [&](const std::string& what) { return of.name + ": " + what; };
  for (size_t i = 0; i < views.size(); ++i)
    if (const Status set = context.set_input(i, views[i].get()); !set.ok()) return wrong(set.message());
  if (const Status ran = context.run(); !ran.ok()) return wrong(ran.message());
  for (size_t i = 0; i < at.outputs.size(); ++i) {
    const auto datum = context.datum(i);
    if (!datum.ok()) return wrong(datum.status().message());
    const auto found = copy_datum(**datum);
    if (!found.ok()) return wrong(found.status().message());
    const Comparison same = compare(*found, at.outputs[i], of.tolerance);
    if (!same.equal) return wrong("output " + std::to_string(i) + ": " + same.reason);
  }
  return {};
}

// A folder with model.onnx and test_data_set_0 and so on.
inline std::unique_ptr<LoadedModel> load_folder(const Runtime& runtime, const std::filesystem::path& folder,
                                                Tolerance tolerance = {}) {
  auto out = std::make_unique<LoadedModel>();
  out->name = folder.filename().string();
  out->tolerance = tolerance;
  Result<Model> model = runtime.load((folder / "model.onnx").string());
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return nullptr;
  out->model = std::move(*model);
  for (int set = 0;; ++set) {
    const auto data = folder / ("test_data_set_" + std::to_string(set));
    if (!std::filesystem::exists(data)) break;
    Case& at = out->cases.emplace_back();
    const auto read = [&](const char* prefix, uint64_t index, uint32_t kind, std::vector<HostDatum>& to) {
      const auto file = data / (prefix + std::to_string(index) + ".pb");
      if (!std::filesystem::exists(file)) return;
      Result<HostDatum> datum = read_pb(file.string(), kind);
      EXPECT_TRUE(datum.ok()) << datum.status().message();
      if (datum.ok()) to.push_back(std::move(*datum));
    };
    for (uint64_t i = 0; i < out->model.input_count(); ++i)
      read("input_", i, out->model.input_info(i)->kind, at.inputs);
    for (uint64_t i = 0; i < out->model.output_count(); ++i)
      read("output_", i, out->model.output_info(i)->kind, at.outputs);
  }
  EXPECT_FALSE(out->cases.empty()) << folder;
  return out;
}

// sdk/examples/digits: the kept-out images in batches of different sizes.
inline std::unique_ptr<LoadedModel> load_digits(const Runtime& runtime) {
  const std::string folder = BELAY_TEST_ROOT "/sdk/examples/digits/";
  auto out = std::make_unique<LoadedModel>();
  out->name = "digits";
  Result<Model> model = runtime.load(folder + "digits.onnx");
  const auto images = read_npy(folder + "heldout_images.npy");
  const auto answers = read_npy(folder + "heldout_probabilities.npy");
  EXPECT_TRUE(model.ok() && images.ok() && answers.ok());
  if (!model.ok() || !images.ok() || !answers.ok()) return nullptr;
  out->model = std::move(*model);
  const auto rows = [](const HostTensor& from, int64_t begin, int64_t count) {
    const size_t row = from.bytes.size() / size_t(from.dims[0]);
    HostTensor part = from;
    part.dims[0] = count;
    part.bytes.assign(from.bytes.begin() + ptrdiff_t(row) * begin,
                      from.bytes.begin() + ptrdiff_t(row) * (begin + count));
    return part;
  };
  int64_t begin = 0;
  for (const int64_t count : {1, 7, 32, 2, 64, 5, 16, 3})
    out->cases.push_back({{rows(*images, begin, count)}, {rows(*answers, begin, count)}}), begin += count;
  return out;
}

}  // namespace belay::testing
