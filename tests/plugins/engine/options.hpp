// options.hpp: a table of integers and strings, as the engine gets its part of the configuration.
#pragma once

#include <belay/abi/value.h>
#include <belay/plugin.hpp>

#include <map>
#include <memory>
#include <string>

namespace belay::testing {

class Options : public belay_value {
 public:
  Options() : belay_value{&table()} {}
  Options(const Options&) = delete;
  void set(const std::string& key, int64_t value) {
    Options& child = make(key, BELAY_VALUE_INT);
    child.number_ = value;
  }
  void set(const std::string& key, const char* value) {
    Options& child = make(key, BELAY_VALUE_STRING);
    child.text_ = value;
  }

 private:
  Options& make(const std::string& key, uint32_t type) {
    auto& child = children_[key] = std::make_unique<Options>();
    child->type_ = type;
    return *child;
  }
  static const Options& of(const belay_value* value) { return *static_cast<const Options*>(value); }
  static const belay_value_vt& table() {
    static const belay_value_vt vt = [] {
      belay_value_vt out{};
      out.hdr.struct_size = sizeof out;
      out.type = [](const belay_value* v) BELAY_NOEXCEPT { return of(v).type_; };
      out.as_bool = [](const belay_value* v) BELAY_NOEXCEPT { return uint32_t(of(v).number_ != 0); };
      out.as_int = [](const belay_value* v) BELAY_NOEXCEPT { return of(v).number_; };
      out.as_float = [](const belay_value* v) BELAY_NOEXCEPT { return double(of(v).number_); };
      out.as_string = [](const belay_value* v) BELAY_NOEXCEPT {
        return belay_str{of(v).text_.data(), of(v).text_.size()};
      };
      out.count = [](const belay_value*) BELAY_NOEXCEPT { return uint64_t{0}; };
      out.at = [](const belay_value*, uint64_t) BELAY_NOEXCEPT -> const belay_value* { return nullptr; };
      out.get = [](const belay_value* v, belay_str key) BELAY_NOEXCEPT -> const belay_value* {
        const auto at = of(v).children_.find(to_string(key));
        return at == of(v).children_.end() ? nullptr : at->second.get();
      };
      out.key_at = [](const belay_value*, uint64_t) BELAY_NOEXCEPT { return belay_str{}; };
      out.where = [](const belay_value*, belay_sink) BELAY_NOEXCEPT {};
      return out;
    }();
    return vt;
  }
  std::map<std::string, std::unique_ptr<Options>> children_;
  uint32_t type_ = BELAY_VALUE_TABLE;
  int64_t number_ = 0;
  std::string text_;
};

}  // namespace belay::testing
