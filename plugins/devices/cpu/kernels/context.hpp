// What an operator's prepare function works with: its operands, attributes and constants going in; output
// shapes and the kernel coming out.
#pragma once

#include "attributes.hpp"
#include "pack_cache.hpp"
#include "run.hpp"
#include "types.hpp"

#include <belay/abi/kernel_provider.h>
#include <belay/graph/view.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace belay::cpu {

struct OpDef;

// A value that goes into or comes out of a kernel.
struct Operand {
  bool present = false;
  uint32_t dtype = BELAY_DT_UNDEFINED;
  std::optional<Dims> dims;        // as the image has them: -1 where one is not known; nothing: unknown rank
  const void* constant = nullptr;  // its bytes, only while preparing
  uint64_t constant_key = 0;
  std::string name;
};

// What the operands and attributes of one unit are; owns all but the constants' bytes.
struct Signature {
  const OpDef* def = nullptr;  // of a single operator; null for a pattern
  std::string op, domain, name;
  uint64_t version = 0;
  Attributes attributes;  // of the (first) node
  std::vector<Operand> inputs, outputs;
};

// The kernel that a prepare function made, with what the host has to know about it.
class KernelBox {
 public:
  virtual ~KernelBox() = default;
  virtual belay_status run(const Run& run) const = 0;
};

template <class K>
class KernelOf final : public KernelBox {
 public:
  explicit KernelOf(K kernel) : kernel_(std::move(kernel)) {}
  belay_status run(const Run& run) const override {
    if constexpr (std::is_void_v<decltype(kernel_(run))>) {
      kernel_(run);
      return BELAY_OK;
    } else {
      return kernel_(run);
    }
  }

 private:
  K kernel_;
};

class OpContext {
 public:
  OpContext(const Signature& signature, PackCache* cache, uint32_t threads, uint64_t precision)
      : signature_(signature), cache_(cache), threads_(threads), precision_(precision) {}

  std::string_view op() const { return signature_.op; }
  uint64_t version() const { return signature_.version; }
  const Attributes& attr() const { return signature_.attributes; }
  uint32_t threads() const { return threads_; }
  bool fast() const { return precision_ & BELAY_PRECISION_FAST; }
  bool winograd() const { return precision_ & BELAY_PRECISION_WINOGRAD; }

  size_t inputs() const { return signature_.inputs.size(); }
  size_t outputs() const { return signature_.outputs.size(); }
  bool has(size_t i) const { return i < inputs() && signature_.inputs[i].present; }
  bool wants(size_t o) const { return o < outputs() && signature_.outputs[o].present; }
  // Of an input that is there; all dims are known at prepare.
  uint32_t dtype(size_t i) const { return signature_.inputs[i].dtype; }
  const Dims& dims(size_t i) const { return *signature_.inputs[i].dims; }
  size_t rank(size_t i) const { return dims(i).size(); }
  int64_t count(size_t i) const { return product(dims(i)); }
  // Element type of an output as the image has it (BELAY_DT_UNDEFINED: not known), its dims if all are known.
  uint32_t out_dtype(size_t o) const { return wants(o) ? signature_.outputs[o].dtype : BELAY_DT_UNDEFINED; }
  std::optional<Dims> known_out_dims(size_t o) const;

  // Bytes of a constant input, null if it is none. Not valid after prepare: copy or pack what the kernel
  // needs.
  const void* constant(size_t i) const { return has(i) ? signature_.inputs[i].constant : nullptr; }
  uint64_t constant_key(size_t i) const { return signature_.inputs[i].constant_key; }
  // The value of an int32 or int64 input. When it is not known yet the prepare function is left with
  // kDeferred, and is run again in front of each run of the kernel, when it is.
  Result<std::vector<int64_t>> ints(size_t i) const;
  // The same of any input that holds numbers, as doubles.
  Result<std::vector<double>> numbers(size_t i) const;
  // Packed form of constant input i, shared where the key allows; counted in packed_bytes. make() returns a
  // std::shared_ptr<Packed>.
  std::shared_ptr<const Packed> packed(size_t i, std::string_view form, const PackCache::Make& make);
  // Input i was packed: its argument word may be null.
  void input_unused(size_t i) { unused_inputs_ |= uint64_t{1} << i; }

  // Declares what output `o` is; must be called for every wanted output. Errors: the image says something
  // else.
  Status output(size_t o, uint32_t dtype, const Dims& dims);
  // An output whose dims depend on data: the kernel calls Run::resize for each wanted output.
  Status output_dynamic(size_t o, uint32_t dtype);
  // The kernel: a callable `belay_status (const Run&) const` or `void (const Run&) const`.
  template <class K>
  void kernel(K kernel, std::string implementation = "loops", std::string reason = {}) {
    box_ = std::make_unique<KernelOf<K>>(std::move(kernel));
    implementation_ = std::move(implementation);
    reason_ = std::move(reason);
  }
  void workspace(uint64_t bytes) { workspace_bytes_ = bytes; }
  void cost_ns(double ns) { cost_ns_ = ns; }  // on one thread

  // A failure that names the node, and what is wrong with it ("axis is 5, want -3 to 2").
  Status bad(std::string_view what, Code code = Code::kInvalidArgument) const;
  // `axis` normalised against input i, or the failure.
  Result<size_t> axis(int64_t axis, size_t rank, std::string_view name = "axis") const;
  // The same of a list, in which none may be twice.
  Result<std::vector<size_t>> axes(const std::vector<int64_t>& axes, size_t rank) const;

 private:
  friend class Preparation;
  const Signature& signature_;
  PackCache* cache_;
  uint32_t threads_;
  uint64_t precision_;

  std::unique_ptr<KernelBox> box_;
  std::string implementation_, reason_;
  std::vector<std::optional<Dims>> declared_;  // by output; nothing inside: dynamic or not declared
  bool resize_ = false;  // some output's dims are not in the image: give them at the run
  bool dynamic_ = false;
  uint64_t workspace_bytes_ = 0, packed_bytes_ = 0, unused_inputs_ = 0;
  double cost_ns_ = 0;
};

// Leaves a prepare function that needs the value of an input that is not known yet.
inline constexpr Code kDeferred = Code::kDeferred;

}  // namespace belay::cpu
