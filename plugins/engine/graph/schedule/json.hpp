// schedule/json.hpp: writes JSON text, member by member.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace belay::schedule {

class Json {
 public:
  Json& open(char bracket) { return comma(), text_ += bracket, fresh_ = true, *this; }
  Json& close(char bracket) { return text_ += bracket, fresh_ = false, *this; }
  Json& key(std::string_view name) { return string(name), text_ += ':', fresh_ = true, *this; }
  Json& string(std::string_view text) {
    comma();
    text_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\')
        (text_ += '\\') += c;
      else if (static_cast<unsigned char>(c) < 0x20) {
        static constexpr char kHex[] = "0123456789abcdef";
        text_ += "\\u00";
        text_ += kHex[c >> 4];
        text_ += kHex[c & 15];
      } else {
        text_ += c;
      }
    }
    return text_ += '"', *this;
  }
  Json& number(uint64_t value) { return comma(), text_ += std::to_string(value), *this; }
  Json& boolean(bool value) { return comma(), text_ += value ? "true" : "false", *this; }
  Json& member(std::string_view name, std::string_view value) { return key(name), string(value); }
  Json& member(std::string_view name, uint64_t value) { return key(name), number(value); }
  const std::string& text() const { return text_; }

 private:
  void comma() {
    if (!fresh_) text_ += ',';
    fresh_ = false;
  }
  std::string text_;
  bool fresh_ = true;
};

}  // namespace belay::schedule
