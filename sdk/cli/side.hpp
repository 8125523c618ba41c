// One side of a comparison: something that runs the model.
#pragma once

#include "hosting.hpp"
#include "inputs.hpp"

#include <memory>
#include <string>
#include <vector>

namespace belay::cli {

class Side {
 public:
  virtual ~Side() = default;
  virtual std::string title() const = 0;  // "reference.toml", "ONNX Runtime 1.20.0"
  // Whether `extra` may have addresses of values of branches and bodies.
  virtual bool sees_inside() const = 0;
  // The model's outputs, then the values that `extra` names. Errors: what the side says of
  // the model, of a name, or of the run.
  virtual Result<std::vector<HostDatum>> run(const std::vector<Input>& inputs,
                                             const std::vector<std::string>& extra) = 0;
  // What ran a node in the latest run: "cpu: conv.tiles"; empty: not known.
  virtual std::string kernel_of(const std::string& node) const = 0;
};

// A configuration of this program.
class BelaySide : public Side {
 public:
  BelaySide(std::string title, const Common& common, const std::string& path);
  const Runtime& runtime() const { return runtime_; }
  const Model& model() const { return model_; }

  std::string title() const override { return title_; }
  Result<std::vector<HostDatum>> run(const std::vector<Input>& inputs,
                                     const std::vector<std::string>& extra) override;
  std::string kernel_of(const std::string& node) const override;
  bool sees_inside() const override { return true; }

 private:
  Result<std::vector<HostDatum>> run(const belay::Model& model, const std::vector<Input>& inputs);
  const std::string title_, path_;
  Runtime runtime_;
  const std::string device_;
  Model model_;
  std::string description_;  // of the latest run: JSON
};

}  // namespace belay::cli
