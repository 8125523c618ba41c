// Runs one operator through the kernel provider as an engine would: image, claim, prepare, launch. Each case
// runs in several ways (output shapes known or not, inputs constant or not, one thread or two, in place or
// not), and all must give the same bytes.
#pragma once

#include "shape.hpp"
#include "types.hpp"

#include <belay/abi/kernel_provider.h>
#include <belay/graph/builder.hpp>
#include <belay/status.hpp>
#include <belay/testing/fake_host.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace belay::cpu::testing {

struct Tensor {
  uint32_t dtype = BELAY_DT_UNDEFINED;
  std::vector<int64_t> dims;
  std::string bytes;
  int64_t count() const {
    int64_t n = 1;
    for (const int64_t d : dims) n *= d;
    return n;
  }
  bool operator==(const Tensor&) const = default;
};

template <class T>
constexpr uint32_t dtype_of() {
  if constexpr (std::is_same_v<T, float>) return BELAY_DT_FLOAT32;
  if constexpr (std::is_same_v<T, double>) return BELAY_DT_FLOAT64;
  if constexpr (std::is_same_v<T, Half>) return BELAY_DT_FLOAT16;
  if constexpr (std::is_same_v<T, BFloat16>) return BELAY_DT_BFLOAT16;
  if constexpr (std::is_same_v<T, bool>) return BELAY_DT_BOOL;
  if constexpr (std::is_same_v<T, int8_t>) return BELAY_DT_INT8;
  if constexpr (std::is_same_v<T, int16_t>) return BELAY_DT_INT16;
  if constexpr (std::is_same_v<T, int32_t>) return BELAY_DT_INT32;
  if constexpr (std::is_same_v<T, int64_t>) return BELAY_DT_INT64;
  if constexpr (std::is_same_v<T, uint8_t>) return BELAY_DT_UINT8;
  if constexpr (std::is_same_v<T, uint16_t>) return BELAY_DT_UINT16;
  if constexpr (std::is_same_v<T, uint32_t>) return BELAY_DT_UINT32;
  if constexpr (std::is_same_v<T, uint64_t>) return BELAY_DT_UINT64;
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, Half>)
    return to_half(float(value));
  else if constexpr (std::is_same_v<T, BFloat16>)
    return to_bfloat16(float(value));
  else
    return T(value);
}

template <class T>
Tensor tensor(std::vector<int64_t> dims, const std::vector<T>& values) {
  Tensor out{dtype_of<T>(), std::move(dims), {}};
  for (const T value : values) out.bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  return out;
}
inline Tensor floats(std::vector<int64_t> dims, const std::vector<float>& values) {
  return tensor<float>(std::move(dims), values);
}
inline Tensor ints(std::vector<int64_t> dims, const std::vector<int64_t>& values) {
  return tensor<int64_t>(std::move(dims), values);
}
inline int64_t count_of(const std::vector<int64_t>& dims) { return Tensor{0, dims, {}}.count(); }
// The index of element `at` in row-major order.
inline std::vector<int64_t> unravel(int64_t at, const std::vector<int64_t>& dims) {
  std::vector<int64_t> index(dims.size());
  for (size_t d = dims.size(); d-- > 0; at /= dims[d]) index[d] = at % dims[d];
  return index;
}
inline constexpr uint32_t kFloatTypes[] = {BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_FLOAT16,
                                           BELAY_DT_BFLOAT16};
inline constexpr uint32_t kByteTypes[] = {BELAY_DT_UINT8, BELAY_DT_INT8};

// Values of any type, as doubles; and a tensor of `dtype` from doubles.
std::vector<double> values_of(const Tensor& tensor);
Tensor tensor_of(uint32_t dtype, std::vector<int64_t> dims, const std::vector<double>& values);
// `count` numbers in [low, high), always the same for one seed.
std::vector<double> numbers(int64_t count, double low, double high, uint32_t seed = 1);
// Every value of an 8-bit type is as likely as every other.
Tensor bytes(uint32_t dtype, const std::vector<int64_t>& dims, uint32_t seed);

struct Outcome {
  Status status;
  std::vector<Tensor> outputs;
  std::string implementation = {};
};

class Node {
 public:
  explicit Node(std::string op, uint32_t version = 17, std::string domain = "")
      : op_(std::move(op)), domain_(std::move(domain)), version_(version) {}
  Node& in(Tensor tensor) { return inputs_.push_back(std::make_unique<Tensor>(std::move(tensor))), *this; }
  // An input that is constant in every way to run the node.
  Node& constant(Tensor tensor) { return fixed_.insert(inputs_.size()), in(std::move(tensor)); }
  Node& absent() { return inputs_.push_back(nullptr), *this; }
  Node& attr(std::string name, int64_t value);
  Node& attr(std::string name, int value) { return attr(std::move(name), int64_t{value}); }
  Node& attr(std::string name, float value);
  Node& attr(std::string name, double value) { return attr(std::move(name), float(value)); }
  Node& attr(std::string name, const char* value);
  Node& attr(std::string name, std::vector<int64_t> value);
  Node& attr(std::string name, std::vector<float> value);
  Node& attr(std::string name, std::vector<std::string> value);
  Node& attr(std::string name, Tensor value);
  // The element type of the next output; none called: one output of the first input's type.
  Node& out(uint32_t dtype) { return outputs_.push_back(dtype), *this; }
  // The next output is not wanted.
  Node& no_out() { return out(BELAY_DT_UNDEFINED); }

  // Bits BELAY_PRECISION_... What these allow depends on constants, so inputs are constant in all ways then.
  Node& precision(uint64_t bits) { return precision_ = bits, *this; }

  // The result of all ways to run it; reports a test failure where they differ.
  Outcome run() const;
  // Only the first way, for what is expected to fail or is random.
  Outcome run_once() const;

 private:
  struct Way {
    bool shapes, constants, host_constants, in_place;
    uint32_t threads;
  };
  Outcome run(const Way& way, const std::vector<Tensor>* known) const;

  std::string op_, domain_;
  uint32_t version_;
  uint64_t precision_ = BELAY_PRECISION_FLOAT32;
  std::vector<std::unique_ptr<Tensor>> inputs_;
  std::set<size_t> fixed_;
  std::vector<std::function<void(graph::Builder&, uint32_t)>> attributes_;
  std::vector<uint32_t> outputs_;
};

// Calls f once for each level of the instruction set that this CPU runs, with the heavy loops of that level.
void each_micro(const std::function<void()>& f);

// Equal dtype and dims, and each element within atol + rtol * |expected|; NaN equals NaN.
::testing::AssertionResult close(const Tensor& actual, const Tensor& expected, double rtol = 0,
                                 double atol = 0);
// The single output of a node that must succeed.
Tensor result(const Node& node);
// The message of a failure, or "" when it succeeds.
std::string failure(const Node& node);

}  // namespace belay::cpu::testing
