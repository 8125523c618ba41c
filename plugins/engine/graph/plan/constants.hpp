// plan/constants.hpp: where kernels find constants: in the model's file where they lie aligned, else in
// memory of ours.
#pragma once

#include "ir/types.hpp"
#include "plan/heaps.hpp"

#include <map>
#include <mutex>
#include <span>

namespace belay::plan {

struct ConstantPlace {
  const void* host = nullptr;  // base of the binding on a host-visible device
  belay_obj* buffer = nullptr;
  uint64_t base_bytes = 0;  // of the binding
  uint64_t offset = 0;      // of the constant in the binding
};

// Shared by all plans of an executable; thread-safe. Constants that are older than the pool are the model's
// and keep their place; younger ones were computed for a plan and go with it.
class ConstantPool {
 public:
  ConstantPool(const Hal& hal, belay_obj* device, const Heaps& heaps, bool host_visible,
               std::vector<belay_span> sources, bool copy_all)
      : hal_(hal),
        device_(device),
        heaps_(heaps),
        host_visible_(host_visible),
        copy_all_(copy_all),
        sources_(std::move(sources)),
        first_later_(ir::next_constant_key()) {}

  // Bytes of the constant for a provider to read, aligned for the element type: its own or those of a copy
  // that lasts until the last Use ends.
  const void* readable(const ir::Constant& constant);
  // Gives each constant a place: in the file, in a buffer of the pool, or, where it is a plan's, in a buffer
  // that is added to `own`.
  Result<std::vector<ConstantPlace>> place(const std::vector<ir::ConstantPtr>& constants,
                                           std::vector<Buffer>& own);

  // While somebody plans. With the last one go the copies that readable() made.
  class Use {
   public:
    explicit Use(ConstantPool& pool) : pool_(pool) {
      std::lock_guard lock(pool_.mutex_);
      ++pool_.users_;
    }
    Use(const Use&) = delete;
    ~Use() {
      std::lock_guard lock(pool_.mutex_);
      if (--pool_.users_ == 0) pool_.copies_.clear();
    }

   private:
    ConstantPool& pool_;
  };

  // A constant that kernels read in a copy.
  struct Copied {
    uint64_t key, bytes;
    std::string reason;  // what follows "because"
  };
  std::vector<Copied> copied() const;
  uint64_t copied_bytes() const;
  uint64_t borrowed_bytes() const;

 private:
  // Why kernels cannot read it where it lies; empty: they can.
  Result<std::string> copy_reason(const ir::Constant& constant) const;
  using Places = std::map<uint64_t, ConstantPlace>;  // by key
  Status copy(std::vector<const ir::Constant*> constants, Places& places, std::vector<Buffer>& to) const;
  Result<Buffer> copy_into(uint64_t heap, std::span<const ir::Constant* const> constants,
                           Places& places) const;

  const Hal hal_;
  belay_obj* const device_;
  const Heaps heaps_;
  const bool host_visible_, copy_all_;
  const std::vector<belay_span> sources_;
  const uint64_t first_later_;  // key of the first constant that may be a plan's
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<ir::Constant>> copies_;  // by key
  Places places_;
  std::vector<Buffer> buffers_;
  std::vector<Copied> copied_;
  uint64_t borrowed_ = 0, users_ = 0;
};

}  // namespace belay::plan
