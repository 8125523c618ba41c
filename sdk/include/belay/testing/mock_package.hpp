// belay/testing/mock_package.hpp: a Google Mock class for the extension belay.driver.native-model/1 of a
// MockDevice:
//
//   MockNativeModels models;             // outlives the device
//   ON_CALL(device, extension).WillByDefault([&](std::string_view id) { return models.extension(id); });
//   EXPECT_CALL(models, load)...         // by default a package with one input and one output
#pragma once

#include <belay/abi/native_model.h>
#include <gmock/gmock.h>
#include <belay/testing/mock_driver.hpp>
#include <belay/testing/table.hpp>

#include <memory>
#include <string_view>

namespace belay::testing {

class MockPackage {
 public:
  explicit MockPackage(const belay_host* host = nullptr) : host(host) {
    ON_CALL(*this, info).WillByDefault([](belay_package_info* inout) {
      inout->inputs = inout->outputs = 1;
      return Status();
    });
    ON_CALL(*this, launch).WillByDefault([](belay_obj*, const belay_binding*, uint64_t) {
      return uint64_t(1);
    });
  }
  virtual ~MockPackage() { died(); }

  MOCK_METHOD(Status, info, (belay_package_info * inout));
  MOCK_METHOD(Status, input_info, (uint64_t index, belay_io_info* inout));
  MOCK_METHOD(Status, output_info, (uint64_t index, belay_io_info* inout));
  MOCK_METHOD(Result<uint64_t>, launch, (belay_obj * stream, const belay_binding* bindings, uint64_t count));
  MOCK_METHOD(void, died, ());

  const belay_host* const host;  // keeps the sentences of failures; may be NULL
};

// The driver's part. The table has no place for a state of its own, so there is one of these at a time.
class MockNativeModels {
 public:
  explicit MockNativeModels(const belay_host* host = nullptr) : host(host) {
    current() = this;
    ON_CALL(*this, accepts).WillByDefault([](std::string_view kind) { return kind == "om"; });
    ON_CALL(*this, load)
        .WillByDefault([this](const belay_package_req&) -> Result<std::unique_ptr<MockPackage>> {
          return std::unique_ptr<MockPackage>(new ::testing::NiceMock<MockPackage>(this->host));
        });
  }
  virtual ~MockNativeModels() { current() = nullptr; }

  MOCK_METHOD(bool, accepts, (std::string_view kind));
  MOCK_METHOD(Result<std::unique_ptr<MockPackage>>, load, (const belay_package_req&));

  const belay_host* const host;

  static const void* extension(std::string_view id) {
    return id == BELAY_DRIVER_NATIVE_MODEL ? &table() : nullptr;
  }
  static const belay_driver_native_model_vt& table() {
    struct T {
      static MockPackage& of(belay_obj* o) { return *static_cast<MockPackage*>(o->impl); }
      static uint64_t accepts(belay_obj*, belay_str kind) BELAY_NOEXCEPT {
        return current()->accepts(to_view(kind));
      }
      static belay_status load(belay_obj*, const belay_package_req* req, belay_created* out) BELAY_NOEXCEPT {
        auto made = current()->load(*req);
        if (!made.ok()) return status_of(current()->host, made.status());
        out->impl = std::move(made).value().release();
        out->table = &table();
        return BELAY_OK;
      }
      static belay_status info(belay_obj* o, belay_package_info* inout) BELAY_NOEXCEPT {
        return status_of(of(o).host, of(o).info(inout));
      }
      static belay_status input_info(belay_obj* o, uint64_t index, belay_io_info* inout) BELAY_NOEXCEPT {
        return status_of(of(o).host, of(o).input_info(index, inout));
      }
      static belay_status output_info(belay_obj* o, uint64_t index, belay_io_info* inout) BELAY_NOEXCEPT {
        return status_of(of(o).host, of(o).output_info(index, inout));
      }
      static belay_status launch(belay_obj* o, belay_obj* stream, const belay_binding* bindings,
                                 uint64_t count, uint64_t* out) BELAY_NOEXCEPT {
        return result_of(of(o).host, of(o).launch(stream, bindings, count), out);
      }
      static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
    };
    static constexpr belay_driver_native_model_vt table{
        .hdr = {sizeof(belay_driver_native_model_vt), 0, nullptr},
        .accepts = T::accepts,
        .load = T::load,
        .info = T::info,
        .input_info = T::input_info,
        .output_info = T::output_info,
        .launch = T::launch,
        .destroy = T::destroy};
    return table;
  }

 private:
  static MockNativeModels*& current() {
    static MockNativeModels* one = nullptr;
    return one;
  }
};

}  // namespace belay::testing
