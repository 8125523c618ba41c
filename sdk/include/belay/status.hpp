// belay/status.hpp: errors as values in C++, one word in C. Header-only, for hosts and plugins; no part of the ABI.
#pragma once

#include <belay/abi/host.h>

#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace belay {

enum class Code : uint8_t {
  kOk = BELAY_OK,
  kCancelled = BELAY_CANCELLED,
  kUnknown = BELAY_UNKNOWN,
  kInvalidArgument = BELAY_INVALID_ARGUMENT,
  kDeadlineExceeded = BELAY_DEADLINE_EXCEEDED,
  kNotFound = BELAY_NOT_FOUND,
  kAlreadyExists = BELAY_ALREADY_EXISTS,
  kPermissionDenied = BELAY_PERMISSION_DENIED,
  kResourceExhausted = BELAY_RESOURCE_EXHAUSTED,
  kFailedPrecondition = BELAY_FAILED_PRECONDITION,
  kAborted = BELAY_ABORTED,
  kOutOfRange = BELAY_OUT_OF_RANGE,
  kUnimplemented = BELAY_UNIMPLEMENTED,
  kInternal = BELAY_INTERNAL,
  kUnavailable = BELAY_UNAVAILABLE,
  kDataLoss = BELAY_DATA_LOSS,
  kUnauthenticated = BELAY_UNAUTHENTICATED,
  kDeferred = BELAY_DEFERRED,
  kQueueFull = BELAY_QUEUE_FULL,
  kDeviceLost = BELAY_DEVICE_LOST,
  kNeedSegment = BELAY_NEED_SEGMENT,
  kDeclined = BELAY_DECLINED,
};

inline belay_str to_str(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view to_view(belay_str text) { return {text.ptr, text.ptr ? text.len : 0}; }
inline std::string to_string(belay_str text) { return std::string(to_view(text)); }

// A code and, for a failure, a sentence that names the object, shows the value and says what was expected.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // "... (while reading model.onnx)".
  Status while_doing(std::string_view what) && {
    if (!ok()) message_.append(" (while ").append(what).append(")");
    return std::move(*this);
  }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A value or the status of the failure.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}          // NOLINT: a value is a result
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}   // NOLINT: so is a failure

  bool ok() const { return state_.index() == 0; }
  Status status() const& { return ok() ? Status() : std::get<1>(state_); }
  Status status() && { return ok() ? Status() : std::move(std::get<1>(state_)); }
  // Only when ok().
  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

#define BELAY_CONCAT_INNER(a, b) a##b
#define BELAY_CONCAT(a, b) BELAY_CONCAT_INNER(a, b)

// Returns from the function with the failure of `expr` (a Status).
#define BELAY_TRY(expr)                                   \
  do {                                                    \
    if (::belay::Status s_ = (expr); !s_.ok()) return s_; \
  } while (0)

// BELAY_ASSIGN(auto x, f()): x takes the value of the Result, or the function returns its status.
#define BELAY_ASSIGN(declaration, expr) BELAY_ASSIGN_AS(BELAY_CONCAT(belay_result_, __COUNTER__), declaration, expr)
#define BELAY_ASSIGN_AS(name, declaration, expr)     \
  auto name = (expr);                                \
  if (!name.ok()) return std::move(name).status();   \
  declaration = std::move(name).value()

// Collects what a callee writes.
class StringSink {
 public:
  belay_sink sink() {
    return {this, [](void* user, const void* bytes, uint64_t len) BELAY_NOEXCEPT {
              static_cast<StringSink*>(user)->text_.append(static_cast<const char*>(bytes), len);
            }};
  }
  std::string str() && { return std::move(text_); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

inline void write(belay_sink sink, std::string_view text) {
  if (sink.write) sink.write(sink.user, text.data(), text.size());
}

// C++ to C. The host keeps the sentence and the word carries its handle; a full table leaves the code alone.
inline belay_status to_c(const belay_host& host, const Status& status) noexcept {
  return status.ok() ? BELAY_OK : host.status_make(&host, uint32_t(status.code()), to_str(status.message()));
}

// C to C++. Takes `raw` over: its detail is copied, then given back to the host that issued it.
inline Status from_c(const belay_host& host, belay_status raw) {
  if (raw == BELAY_OK) return {};
  StringSink text;
  host.status_text(&host, raw, text.sink());
  host.status_release(&host, raw);
  const uint32_t code = BELAY_STATUS_CODE(raw);
  return {code == 0 || code >= BELAY_CODE_COUNT ? Code::kInternal : static_cast<Code>(code), std::move(text).str()};
}

// The body of a slot: whatever it throws becomes a status, nothing leaves the plugin.
template <class Body>
belay_status guard(const belay_host& host, Body&& body) noexcept try {
  return to_c(host, body());
} catch (const std::bad_alloc&) {
  return BELAY_RESOURCE_EXHAUSTED;  // a bare code needs no memory
} catch (const std::exception& error) {
  return host.status_make(&host, BELAY_INTERNAL, to_str(error.what()));
} catch (...) {
  return BELAY_INTERNAL;
}

}  // namespace belay
