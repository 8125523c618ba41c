// What was found: each different thing once, with a count.
#pragma once

#include <belay/status.hpp>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace belay::validate {

// Thread-safe.
class Findings {
 public:
  explicit Findings(const belay_host& host) : host_(host) {}
  // `key`: what tells it from others of its rule, as numbers in the text may differ each time. The first text
  // is logged and kept.
  void add(const char* rule, const std::string& key, const std::string& text);
  // What is no fault, once.
  void note(const std::string& text);
  void report(belay_sink sink);

 private:
  static constexpr size_t kMost = 1000;  // different ones
  struct Entry {
    std::string text;
    uint64_t order, count;
  };
  const belay_host& host_;
  std::mutex mutex_;  // of the rest
  std::map<std::string, Entry> entries_;
  std::map<std::string, uint64_t> notes_;  // order
  uint64_t more_ = 0;
};

}  // namespace belay::validate
