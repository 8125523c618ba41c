// plan/constants.hpp: where kernels find constants: in the model's file where they lie aligned, else in
// memory of ours.
#pragma once

#include "ir/types.hpp"
#include "plan/hal.hpp"

#include <map>
#include <mutex>

namespace belay::plan {

struct ConstantPlace {
  const void* host = nullptr;  // base of the binding on a host-visible device
  belay_obj* buffer = nullptr;
  uint64_t base_bytes = 0;  // of the binding
  uint64_t offset = 0;      // of the constant in the binding
};

// Shared by all plans of an executable; thread-safe.
class ConstantPool {
 public:
  ConstantPool(const Hal& hal, belay_obj* device, bool host_visible, std::vector<belay_span> sources,
               bool copy_all)
      : hal_(hal),
        device_(device),
        host_visible_(host_visible),
        copy_all_(copy_all),
        sources_(std::move(sources)) {}

  // Bytes of the constant for a provider to read, aligned for the element type: its own or those of a copy
  // that lasts until trim().
  const void* readable(const ir::Constant& constant);
  // Gives each constant a place that lasts as long as the pool. New places are made in one buffer.
  Result<std::vector<ConstantPlace>> place(const std::vector<ir::ConstantPtr>& constants);
  // Drops copies that readable() made.
  void trim();

  uint64_t copied_bytes() const;
  uint64_t borrowed_bytes() const;

 private:
  bool borrowable(const ir::Constant& constant) const;

  const Hal hal_;
  belay_obj* const device_;
  const bool host_visible_, copy_all_;
  const std::vector<belay_span> sources_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<ir::Constant>> copies_;  // by key
  std::map<uint64_t, ConstantPlace> places_;                  // by key
  std::vector<Buffer> buffers_;
  uint64_t copied_ = 0, borrowed_ = 0;
};

}  // namespace belay::plan
