// belay/testing/mock_kernel_provider.hpp: a Google Mock class for belay_kernel_provider_vt. Without
// expectations (NiceMock) it serves every device with score 500 and claims nothing.
#pragma once

#include <belay/abi/kernel_provider.h>
#include <gmock/gmock.h>
#include <belay/testing/table.hpp>

namespace belay::testing {

class MockKernelProvider {
 public:
  explicit MockKernelProvider(const belay_host* host = nullptr) : host(host) {
    ON_CALL(*this, serves).WillByDefault(::testing::Return(500u));
  }
  virtual ~MockKernelProvider() { died(); }

  MOCK_METHOD(uint32_t, serves, (const belay_device_info&));
  MOCK_METHOD(Status, claim, (const belay_claim_req&, const belay_claim_sink&));
  MOCK_METHOD(Status, prepare, (const belay_prepare_req&, belay_prepared* out));
  MOCK_METHOD(void, release, (void* handle));
  MOCK_METHOD(void, died, ());

  const belay_host* const host;  // keeps the sentences of failures; may be NULL

  static const belay_kernel_provider_vt& table() {
    struct T {
      static MockKernelProvider& of(belay_obj* o) { return *static_cast<MockKernelProvider*>(o->impl); }
      static uint32_t serves(belay_obj* o, const belay_device_info* info) BELAY_NOEXCEPT {
        return of(o).serves(*info);
      }
      static belay_status claim(belay_obj* o, const belay_claim_req* req,
                                const belay_claim_sink* sink) BELAY_NOEXCEPT {
        return status_of(of(o).host, of(o).claim(*req, *sink));
      }
      static belay_status prepare(belay_obj* o, const belay_prepare_req* req,
                                  belay_prepared* out) BELAY_NOEXCEPT {
        return status_of(of(o).host, of(o).prepare(*req, out));
      }
      static void release(belay_obj* o, void* handle) BELAY_NOEXCEPT { of(o).release(handle); }
      static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
    };
    static constexpr belay_kernel_provider_vt table{.hdr = {sizeof(belay_kernel_provider_vt), 0, nullptr},
                                                    .serves = T::serves,
                                                    .claim = T::claim,
                                                    .prepare = T::prepare,
                                                    .release = T::release,
                                                    .destroy = T::destroy};
    return table;
  }
};

}  // namespace belay::testing
