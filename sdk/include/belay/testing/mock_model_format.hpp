// belay/testing/mock_model_format.hpp: a Google Mock class for belay_model_format_vt, and the reader and sink
// that a host gives to one. Without expectations (NiceMock) a format knows nothing (sniff 0) and parse gives
// no result.
#pragma once

#include <belay/abi/model_format.h>
#include <gmock/gmock.h>
#include <belay/testing/table.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace belay::testing {

class MockModelFormat {
 public:
  explicit MockModelFormat(const belay_host* host = nullptr) : host(host) {
    ON_CALL(*this, parse).WillByDefault([](belay_model_reader&, const belay_value*, const belay_model_sink&) {
      return Status(Code::kDataLoss, "The mock format knows no file.");
    });
  }
  virtual ~MockModelFormat() { died(); }

  MOCK_METHOD(uint32_t, sniff, (const belay_sniff_req&));
  MOCK_METHOD(Status, parse, (belay_model_reader&, const belay_value* options, const belay_model_sink&));
  MOCK_METHOD(void, died, ());

  const belay_host* const host;  // keeps the sentences of failures; may be NULL

  static const belay_model_format_vt& table() {
    struct T {
      static MockModelFormat& of(belay_obj* object) { return *static_cast<MockModelFormat*>(object->impl); }
      static uint32_t sniff(belay_obj* o, const belay_sniff_req* req) BELAY_NOEXCEPT {
        return of(o).sniff(*req);
      }
      static belay_status parse(belay_obj* o, belay_model_reader* reader, const belay_value* options,
                                const belay_model_sink* sink) BELAY_NOEXCEPT {
        return status_of(of(o).host, of(o).parse(*reader, options, *sink));
      }
      static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
    };
    static constexpr belay_model_format_vt table{.hdr = {sizeof(belay_model_format_vt), 0, nullptr},
                                                 .sniff = T::sniff,
                                                 .parse = T::parse,
                                                 .destroy = T::destroy};
    return table;
  }
};

// A model in memory with side files by name, as a host's reader gives them. The texts must not change while
// it is used.
class FakeReader : public belay_model_reader {
 public:
  explicit FakeReader(std::string_view model, belay_host* host = nullptr)
      : belay_model_reader{}, host_(host) {
    hdr = {sizeof(belay_model_reader), 0, nullptr};
    belay_model_reader::map = slot_map;
    belay_model_reader::open = slot_open;
    sources_.push_back(model);
  }
  void add_file(std::string name, std::string_view bytes) { files_[std::move(name)] = bytes; }
  const std::vector<std::string>& opened() const { return opened_; }  // names asked for, in order

 private:
  belay_status fail(Code code, const std::string& text) {
    return host_ ? host_->status_make(host_, uint32_t(code), to_str(text)) : belay_status(code);
  }
  static belay_status slot_map(belay_model_reader* reader, uint32_t source, belay_span* out) BELAY_NOEXCEPT {
    auto& self = *static_cast<FakeReader*>(reader);
    if (source >= self.sources_.size())
      return self.fail(Code::kOutOfRange, "There is no source " + std::to_string(source) + ".");
    *out = {self.sources_[source].data(), self.sources_[source].size()};
    return BELAY_OK;
  }
  static belay_status slot_open(belay_model_reader* reader, belay_str name, uint32_t* out) BELAY_NOEXCEPT {
    auto& self = *static_cast<FakeReader*>(reader);
    self.opened_.push_back(to_string(name));
    const auto file = self.files_.find(to_string(name));
    if (file == self.files_.end())
      return self.fail(Code::kNotFound, "There is no file '" + to_string(name) + "'.");
    const auto [at, added] = self.numbers_.try_emplace(file->first, uint32_t(self.sources_.size()));
    if (added) self.sources_.push_back(file->second);
    *out = at->second;
    return BELAY_OK;
  }

  belay_host* host_;
  std::map<std::string, std::string_view> files_;
  std::map<std::string, uint32_t> numbers_;
  std::vector<std::string_view> sources_;
  std::vector<std::string> opened_;
};

// Keeps what a format gives.
class FakeSink : public belay_model_sink {
 public:
  FakeSink() : belay_model_sink{} {
    hdr = {sizeof(belay_model_sink), 0, nullptr};
    user = this;
    belay_model_sink::graph = [](void* user, belay_span image) BELAY_NOEXCEPT {
      of(user).images.emplace_back(static_cast<const char*>(image.ptr), image.len);
      return of(user).answer;
    };
    belay_model_sink::package = [](void* user, belay_str kind, belay_span image) BELAY_NOEXCEPT {
      of(user).package_kinds.push_back(to_string(kind));
      of(user).images.emplace_back(static_cast<const char*>(image.ptr), image.len);
      return of(user).answer;
    };
    belay_model_sink::warning = [](void* user, belay_str text)
                                    BELAY_NOEXCEPT { of(user).warnings.push_back(to_string(text)); };
  }
  FakeSink(const FakeSink&) = delete;

  std::vector<std::string> images, package_kinds, warnings;
  belay_status answer = BELAY_OK;  // what graph and package return

 private:
  static FakeSink& of(void* user) { return *static_cast<FakeSink*>(user); }
};

}  // namespace belay::testing
