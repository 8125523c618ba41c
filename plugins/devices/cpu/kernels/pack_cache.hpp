// Constants as kernels want them (reordered, widened), made once and shared over shapes and instances.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace belay::cpu {

struct Packed {
  virtual ~Packed() = default;
  uint64_t bytes = 0;  // that it takes
};

// Plain memory aligned to 64 bytes.
struct PackedBytes final : Packed {
  explicit PackedBytes(uint64_t size);
  ~PackedBytes() override;
  PackedBytes(const PackedBytes&) = delete;
  PackedBytes& operator=(const PackedBytes&) = delete;
  void* data = nullptr;
};

// An entry lives as long as a kernel holds it. Thread-safe; two threads that want the same one wait for each
// other, others do not.
class PackCache {
 public:
  using Make = std::function<std::shared_ptr<Packed>()>;
  // `key`: constant_keys of the request, 0: make a new one that nobody shares. `form` says how it is packed,
  // with all that the form depends on ("conv oihw16i16o groups=2").
  std::shared_ptr<const Packed> get(uint64_t key, std::string_view form, const Make& make);

 private:
  struct Entry {
    std::mutex mutex;
    std::weak_ptr<const Packed> packed;
  };
  std::mutex mutex_;
  std::map<std::pair<uint64_t, std::string>, std::shared_ptr<Entry>> entries_;
};

}  // namespace belay::cpu
