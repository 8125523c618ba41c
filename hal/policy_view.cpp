#include "hal/policy_view.h"

#include "core/base/last_error.h"
#include "hal/hal.h"
#include "hal/requests.h"

#include <belay/runtime.h>

#include <bit>

namespace belay::hal {
namespace {

Status wrong(const char* call, const std::string& text) {
  return {Code::kInvalidArgument, std::string(call) + ": " + text};
}

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(value));
  return text;
}

Status check_segment(const char* call, uint64_t segment) {
  if (segment >= BELAY_SEGMENT_CALLER) return {};
  return wrong(call, "segment is " + hex(segment) + ", want BELAY_SEGMENT_CALLER (" +
                         hex(BELAY_SEGMENT_CALLER) + ") or more: those below are the runtime's.");
}

Status check_heap(const char* call, uint64_t heap) {
  if (heap >= BELAY_HEAP_CALLER) return {};
  return wrong(call, "heap is " + hex(heap) + ", want BELAY_HEAP_CALLER (" + hex(BELAY_HEAP_CALLER) +
                         ") or more: those below are the runtime's.");
}

Status check_amount(const char* call, uint64_t bytes) {
  if (bytes <= uint64_t(INT64_MAX)) return {};
  return wrong(call, "bytes is " + std::to_string(bytes) + ", want less than 2^63.");
}

}  // namespace

Status check_bind_request(const belay_bind_req& req) {
  if (req.alignment && !std::has_single_bit(req.alignment))
    return wrong("bind", "alignment is " + std::to_string(req.alignment) + ", want a power of two.");
  if (!req.address && req.bytes)
    return wrong("bind", "address is NULL, but bytes is " + std::to_string(req.bytes) + ".");
  if (req.address + req.bytes < req.address)
    return wrong(
        "bind", std::to_string(req.bytes) + " bytes from address " + hex(req.address) + " on end past 2^64.");
  if (req.access & ~uint64_t(BELAY_ACCESS_READ | BELAY_ACCESS_WRITE))
    return wrong("bind", "access is " + std::to_string(req.access) + ", want READ, WRITE or both.");
  return {};
}

struct PolicyView::Slots {
  static PolicyView& of(belay_obj* object) { return *static_cast<PolicyView*>(object); }

  // What a policy throws does not reach the application; but of place and release, whose last act is the
  // policy's slot: a frame of their own would cost 1 ns in 20.
  template <class Call>
  static belay_status pass(PolicyView& view, const char* slot, Call&& call) noexcept {
    try {
      return call(view.raw_);
    } catch (const std::exception& error) {
      return thrown(view, slot, error.what());
    } catch (...) {
      return thrown(view, slot, "something that is no std::exception");
    }
  }
  [[gnu::cold, gnu::noinline]] static belay_status thrown(PolicyView& view, const char* slot,
                                                          const char* what) noexcept {
    return refused(view, [&] {
      return Status(Code::kInternal, std::string(slot) + ": an exception came out of a plugin: " + what);
    });
  }
  // The application is told of its own mistakes.
  template <class Check>
  [[gnu::cold, gnu::noinline]] static belay_status refused(PolicyView& view, Check&& check) noexcept {
    try {
      const belay_status status = view.hal_.make(check());
      core::keep_last_error(status);
      return status;
    } catch (...) {
      return BELAY_RESOURCE_EXHAUSTED;
    }
  }

  static uint64_t serves(belay_obj* o) noexcept { return of(o).raw_.serves(o); }

  static belay_status plan(belay_obj* o, const belay_plan_req* req, belay_plan_result* result) noexcept {
    PolicyView& view = of(o);
    const Request whole(req);
    const Request given(static_cast<const belay_plan_result*>(result));
    Status checked;
    try {
      checked = !whole   ? whole.refused("plan")
                : !given ? given.refused("plan", "the result")
                         : check_plan_request(*whole);
      if (checked.ok()) checked = check_plan_lists(*whole, *given);
    } catch (...) {
      return BELAY_RESOURCE_EXHAUSTED;
    }
    if (!checked.ok()) return refused(view, [&] { return checked; });
    belay_plan_result answer = complete(*given);
    const belay_status status =
        pass(view, "plan", [&](const auto& raw) { return raw.plan(o, &*whole, &answer); });
    if (status == BELAY_OK) fill(result, answer);
    return status;
  }

  static bool good(const belay_place_req* req, const belay_placed* out) {
    return req && req->hdr.struct_size >= sizeof *req && out && out->hdr.struct_size >= sizeof *out &&
           (req->align & (req->align - 1)) == 0 && req->bytes <= uint64_t(INT64_MAX) &&
           req->heap >= BELAY_HEAP_CALLER && (out->waits || !out->wait_count) &&
           (!req->progress || req->progress->reached);
  }
  static belay_status place(belay_obj* o, const belay_place_req* req, belay_placed* out) {
    PolicyView& view = of(o);
    if (good(req, out)) [[likely]]
      return view.raw_.place(o, req, out);
    return place_otherwise(view, req, out);
  }
  [[gnu::cold, gnu::noinline]] static belay_status place_otherwise(PolicyView& view,
                                                                   const belay_place_req* req,
                                                                   belay_placed* out) noexcept {
    const Request whole(req);
    if (whole && good(&*whole, out))
      return pass(view, "place", [&](const auto& raw) { return raw.place(&view, &*whole, out); });
    return refused(view, [&]() -> Status {
      if (!whole) return whole.refused("place");
      if (!out || out->hdr.struct_size < sizeof *out) return bad_size(out, sizeof *out, "place", "the place");
      BELAY_TRY(check_amount("place", whole->bytes));
      BELAY_TRY(check_heap("place", whole->heap));
      if (whole->align & (whole->align - 1))
        return wrong("place",
                     "align is " + std::to_string(whole->align) + ", want a power of two, or 0 for 1.");
      if (!out->waits && out->wait_count)
        return wrong("place", "waits is NULL, but wait_count is " + std::to_string(out->wait_count) + ".");
      return wrong("place", "progress has no function `reached`.");
    });
  }

  static belay_status release(belay_obj* o, uint64_t cookie, const belay_event* uses, uint64_t count) {
    if (uses || !count) [[likely]]
      return of(o).raw_.release(o, cookie, uses, count);
    return no_uses(of(o), count);
  }
  [[gnu::cold, gnu::noinline]] static belay_status no_uses(PolicyView& view, uint64_t count) noexcept {
    return refused(view, [&] {
      return wrong("release", "uses is NULL, but its count is " + std::to_string(count) + ".");
    });
  }

  static belay_status segment_add(belay_obj* o, uint64_t segment, uint64_t bytes, uint64_t heap) noexcept {
    if (segment >= BELAY_SEGMENT_CALLER && heap >= BELAY_HEAP_CALLER && bytes <= uint64_t(INT64_MAX))
      return pass(of(o), "segment_add",
                  [&](const auto& raw) { return raw.segment_add(o, segment, bytes, heap); });
    return refused(of(o), [&]() -> Status {
      BELAY_TRY(check_segment("segment_add", segment));
      BELAY_TRY(check_heap("segment_add", heap));
      return check_amount("segment_add", bytes);
    });
  }

  static belay_status segment_remove(belay_obj* o, uint64_t segment) noexcept {
    if (segment >= BELAY_SEGMENT_CALLER)
      return pass(of(o), "segment_remove", [&](const auto& raw) { return raw.segment_remove(o, segment); });
    return refused(of(o), [&] { return check_segment("segment_remove", segment); });
  }

  static belay_status trim(belay_obj* o, uint64_t bytes, void (*each)(void* user, uint64_t segment),
                           void* user) noexcept {
    if (each) return pass(of(o), "trim", [&](const auto& raw) { return raw.trim(o, bytes, each, user); });
    return refused(of(o), [] { return null_argument("trim", "each"); });
  }

  static belay_status bind(belay_obj* o, const belay_bind_req* req, belay_bound* out) noexcept {
    const Request whole(req);
    const bool sized = out && out->hdr.struct_size >= sizeof(belay_hdr);
    if (!whole || !sized || !check_bind_request(*whole).ok())
      return refused(of(o), [&] {
        return !whole   ? whole.refused("bind")
               : !sized ? bad_size(out, sizeof(belay_hdr), "bind", "inout")
                        : check_bind_request(*whole);
      });
    belay_bound bound = complete(*out);
    const belay_status status =
        pass(of(o), "bind", [&](const auto& raw) { return raw.bind(o, &*whole, &bound); });
    if (status == BELAY_OK) fill(out, bound);
    return status;
  }

  static belay_status stats(belay_obj* o, belay_policy_stats* inout) noexcept {
    if (inout && inout->hdr.struct_size >= sizeof(belay_hdr))
      return pass(of(o), "stats", [&](const auto& raw) { return raw.stats(o, inout); });
    return refused(of(o), [&] { return bad_size(inout, sizeof(belay_hdr), "stats", "inout"); });
  }

  static void destroy(belay_obj*) noexcept {}  // the policy is the runtime's

  static belay_status snapshot(belay_obj* o, belay_sink json) noexcept {
    if (json.write) return pass(of(o), "snapshot", [&](const auto& raw) { return raw.snapshot(o, json); });
    return refused(of(o), [] { return null_argument("snapshot", "json.write"); });
  }
};

PolicyView::PolicyView(Hal& hal, const NamedObject& policy)
    : belay_obj(*policy.object),
      hal_(hal),
      raw_(*static_cast<const belay_memory_policy_vt*>(policy.object->table)),
      table_{
          .hdr = {sizeof table_, 0, nullptr},
          .serves = Slots::serves,
          .plan = BELAY_HAS(&raw_, belay_memory_policy_vt, plan) ? Slots::plan : nullptr,
          .place = BELAY_HAS(&raw_, belay_memory_policy_vt, place) ? Slots::place : nullptr,
          .release = BELAY_HAS(&raw_, belay_memory_policy_vt, release) ? Slots::release : nullptr,
          .segment_add = BELAY_HAS(&raw_, belay_memory_policy_vt, segment_add) ? Slots::segment_add : nullptr,
          .segment_remove =
              BELAY_HAS(&raw_, belay_memory_policy_vt, segment_remove) ? Slots::segment_remove : nullptr,
          .trim = BELAY_HAS(&raw_, belay_memory_policy_vt, trim) ? Slots::trim : nullptr,
          .bind = BELAY_HAS(&raw_, belay_memory_policy_vt, bind) ? Slots::bind : nullptr,
          .stats = Slots::stats,
          .destroy = Slots::destroy,
          .snapshot = BELAY_HAS(&raw_, belay_memory_policy_vt, snapshot) ? Slots::snapshot : nullptr} {
  belay_obj::table = &table_;
}

}  // namespace belay::hal
