// belay/testing/mock_memory_policy.hpp: a Google Mock class for belay_memory_policy_vt. Without expectations
// (NiceMock) it serves all classes and every slot succeeds without an answer; slots that a policy lacks are
// left out of the table with TableBuilder.
#pragma once

#include <belay/abi/memory_policy.h>
#include <gmock/gmock.h>
#include <belay/testing/table.hpp>

#include <functional>

namespace belay::testing {

class MockMemoryPolicy {
 public:
  explicit MockMemoryPolicy(const belay_host* host = nullptr) : host(host) {
    ON_CALL(*this, serves)
        .WillByDefault(::testing::Return(BELAY_POLICY_PLAN | BELAY_POLICY_PLACE | BELAY_POLICY_BIND));
  }
  virtual ~MockMemoryPolicy() { died(); }

  MOCK_METHOD(uint64_t, serves, ());
  MOCK_METHOD(Status, plan, (const belay_plan_req&, belay_plan_result* result));
  MOCK_METHOD(Status, place, (const belay_place_req&, belay_placed* out));
  MOCK_METHOD(Status, release, (uint64_t cookie, const belay_event* uses, uint64_t count));
  MOCK_METHOD(Status, segment_add, (uint64_t segment, uint64_t bytes, uint64_t heap));
  MOCK_METHOD(Status, segment_remove, (uint64_t segment));
  MOCK_METHOD(Status, trim, (uint64_t bytes, const std::function<void(uint64_t segment)>& each));
  MOCK_METHOD(Status, bind, (const belay_bind_req&, belay_bound* out));
  MOCK_METHOD(Status, stats, (belay_policy_stats * inout));
  MOCK_METHOD(Status, snapshot, (const std::function<void(std::string_view json)>& write));
  MOCK_METHOD(void, died, ());

  const belay_host* const host;  // keeps the sentences of failures; may be NULL

  static const belay_memory_policy_vt& table();
};

inline const belay_memory_policy_vt& MockMemoryPolicy::table() {
  struct T {
    static MockMemoryPolicy& of(belay_obj* o) { return *static_cast<MockMemoryPolicy*>(o->impl); }
    static belay_status give(belay_obj* o, const Status& status) { return status_of(of(o).host, status); }
    static uint64_t serves(belay_obj* o) BELAY_NOEXCEPT { return of(o).serves(); }
    static belay_status plan(belay_obj* o, const belay_plan_req* req,
                             belay_plan_result* result) BELAY_NOEXCEPT {
      return give(o, of(o).plan(*req, result));
    }
    static belay_status place(belay_obj* o, const belay_place_req* req, belay_placed* out) BELAY_NOEXCEPT {
      return give(o, of(o).place(*req, out));
    }
    static belay_status release(belay_obj* o, uint64_t cookie, const belay_event* uses,
                                uint64_t n) BELAY_NOEXCEPT {
      return give(o, of(o).release(cookie, uses, n));
    }
    static belay_status segment_add(belay_obj* o, uint64_t segment, uint64_t bytes,
                                    uint64_t heap) BELAY_NOEXCEPT {
      return give(o, of(o).segment_add(segment, bytes, heap));
    }
    static belay_status segment_remove(belay_obj* o, uint64_t segment) BELAY_NOEXCEPT {
      return give(o, of(o).segment_remove(segment));
    }
    static belay_status trim(belay_obj* o, uint64_t bytes, void (*each)(void*, uint64_t),
                             void* user) BELAY_NOEXCEPT {
      return give(o, of(o).trim(bytes, [&](uint64_t segment) { each(user, segment); }));
    }
    static belay_status bind(belay_obj* o, const belay_bind_req* req, belay_bound* out) BELAY_NOEXCEPT {
      return give(o, of(o).bind(*req, out));
    }
    static belay_status stats(belay_obj* o, belay_policy_stats* inout) BELAY_NOEXCEPT {
      return give(o, of(o).stats(inout));
    }
    static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
    static belay_status snapshot(belay_obj* o, belay_sink json) BELAY_NOEXCEPT {
      return give(
          o, of(o).snapshot([&](std::string_view text) { json.write(json.user, text.data(), text.size()); }));
    }
  };
  static constexpr belay_memory_policy_vt table{.hdr = {sizeof(belay_memory_policy_vt), 0, nullptr},
                                                .serves = T::serves,
                                                .plan = T::plan,
                                                .place = T::place,
                                                .release = T::release,
                                                .segment_add = T::segment_add,
                                                .segment_remove = T::segment_remove,
                                                .trim = T::trim,
                                                .bind = T::bind,
                                                .stats = T::stats,
                                                .destroy = T::destroy,
                                                .snapshot = T::snapshot};
  return table;
}

}  // namespace belay::testing
