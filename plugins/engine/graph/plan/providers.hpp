// plan/providers.hpp: the kernel providers of a runtime, ordered for one device, and kernels that they
// prepared.
#pragma once

#include "plan/options.hpp"

#include <belay/abi/kernel_provider.h>
#include <belay/status.hpp>

#include <memory>
#include <string>
#include <vector>

namespace belay::plan {

struct Provider {
  std::string key;  // "belay.kernel-provider/1:cpu"
  belay_obj* object = nullptr;
  const belay_kernel_provider_vt* vt() const {
    return static_cast<const belay_kernel_provider_vt*>(object->table);
  }
};

// A prepared kernel; released with its last user.
class Prepared {
 public:
  Prepared(const Provider& provider, const belay_prepared& what) : provider_(provider), what_(what) {}
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() { provider_.vt()->release(provider_.object, what_.handle); }
  const belay_prepared* operator->() const { return &what_; }
  const belay_kernel& kernel() const { return what_.kernel; }

 private:
  Provider provider_;
  belay_prepared what_;
};
using PreparedPtr = std::shared_ptr<const Prepared>;

// Those of `all` that serve `device`, the best first.
std::vector<Provider> serving(const std::vector<Provider>& all, const belay_device_info& device);

}  // namespace belay::plan
