// The layer: a line and a sum for each call.
#pragma once

#include <belay/layer.hpp>
#include <belay/services.hpp>

#include "describe.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace belay::trace {

// Numbers of one slot since the layer was made.
struct Sum {
  const char *table = nullptr, *slot = nullptr;
  uint64_t calls = 0, failures = 0, total_ns = 0, most_ns = 0;
};

struct NoState {};

class Trace : public Layer<Trace, NoState> {
 public:
  struct File {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  // `file`: of lines, may be empty. `kinds`: tables that are traced; empty: all. `ring`: nullptr: no records.
  Trace(const belay_host& host, std::unique_ptr<std::FILE, File> file, std::set<std::string> kinds,
        const belay_trace_vt* records)
      : Layer(host),
        file_(std::move(file)),
        kinds_(std::move(kinds)),
        records_(records),
        begin_(host.now_ns(&host)) {}

  void attached(On& on) { life(on, "made"); }
  void detached(On& on) noexcept try { life(on, "gone"); } catch (...) {
  }

  template <class Call>
  auto around(Call& call) {
    if (!kinds_.empty() && !kinds_.contains(Call::table)) return call();
    const uint64_t begin = host().now_ns(&host());
    if constexpr (std::is_void_v<typename Call::Result>) {
      call();
      done(call, begin, BELAY_OK, "");
    } else {
      const auto result = call();
      if constexpr (Call::gives_status)
        done(call, begin, result, "");
      else if constexpr (std::is_integral_v<typename Call::Result>)
        done(call, begin, BELAY_OK, std::to_string(result));
      else
        done(call, begin, BELAY_OK, result ? "found" : "none");
      return result;
    }
  }

  Status report(belay_sink sink);

 private:
  template <class Call>
  void done(const Call& call, uint64_t begin, belay_status status, const std::string& result) noexcept try {
    const uint64_t took = host().now_ns(&host()) - begin;
    add(Call::table, call.slot, took, status);
    record(Call::table, call.slot, begin, took, status);
    if (!file_) return;
    std::string text = name_of(call.on.object) + "." + call.slot + "(";
    bool first = true;
    std::apply(
        [&](const auto&... args) {
          [[maybe_unused]] const auto put = [&](const std::string& arg) {
            if (arg.empty()) return;
            text += (first ? "" : ", ") + arg;
            first = false;
          };
          (put(describe_any(args)), ...);
        },
        call.args);
    line(begin, took, text + ")", status, result);
  } catch (...) {  // no memory for a line: it is missing, the call is not
  }
  void life(const On& on, const char* what);
  void add(const char* table, const char* slot, uint64_t took, belay_status status);
  void record(const char* table, const char* slot, uint64_t begin, uint64_t took, belay_status status);
  void line(uint64_t begin, uint64_t took, const std::string& call, belay_status status,
            const std::string& result);

  const std::unique_ptr<std::FILE, File> file_;
  const std::set<std::string> kinds_;
  const belay_trace_vt* const records_;
  const uint64_t begin_;
  std::mutex mutex_;  // of the next
  std::map<std::pair<const char*, const char*>, Sum> sums_;
};

}  // namespace belay::trace
