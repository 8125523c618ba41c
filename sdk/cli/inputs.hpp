// The inputs of a run: what the command line gives, or what it asks to make up.
#pragma once

#include "hosting.hpp"
#include "output.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace belay::cli {

struct InputOptions {
  std::vector<std::string>
      files;  // NAME=FILE, NAME=FILE:float32:1x3x224x224, or FILE where there is one input
  std::vector<std::string> values;  // NAME=1,2,3
  std::vector<std::string> shapes;  // NAME=1x3x224x224, or SYMBOL=4
  std::optional<uint64_t> random;   // seed
  bool zeros = false;
  std::string test_data;      // folder of input_N.pb
};

struct Input {
  size_t index = 0;  // among the model's inputs
  HostDatum datum;
  std::string from;  // "x.npy", "zeros", "random, seed 1"
};

// All inputs that are needed. Throws a Failure that says what is missing, what came and what was expected.
std::vector<Input> gather_inputs(const Model& model, const InputOptions& options, const Output& output);

// Files PREFIX_0.pb, PREFIX_1.pb ... of a folder, in order, up to the first that is not there.
std::vector<std::string> numbered_files(const std::string& folder, const std::string& prefix);
// The model's inputs that `count` files of a test case stand for: those without a default where that is their
// number, else the first ones.
std::vector<size_t> inputs_for_files(const std::vector<IoInfo>& inputs, size_t count);

}  // namespace belay::cli
