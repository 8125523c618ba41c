// belay/fill.hpp: structs of the C ABI that a caller may know fewer fields of: answers to it, and its
// requests.
#pragma once

#include <belay/abi/base.h>
#include <belay/status.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace belay {

// `value` without its header, as far as the caller, who set inout->hdr, knows the struct.
template <class T>
void fill(T* inout, const T& value) {
  const belay_hdr header = inout->hdr;
  std::memcpy(static_cast<void*>(inout), &value, std::min<size_t>(header.struct_size, sizeof(T)));
  inout->hdr = header;
}

// The fields that the caller knows and sets, zeros for the others: a struct that can be given on as a whole.
template <class T>
T complete(const T& known) {
  T whole{};
  std::memcpy(static_cast<void*>(&whole), &known, std::min<size_t>(known.hdr.struct_size, sizeof(T)));
  whole.hdr.struct_size = sizeof(T);
  return whole;
}

// How much of a request its caller has to know: up to the last field that must be said. What comes behind it
// was added later or means with 0 what it means to callers that do not know of it. Declared beside who reads
// the request:
//   template <> struct belay::LeastSize<belay_copy_req> : UpTo<BELAY_SIZE_TO(belay_copy_req, bytes)> {};
template <class T>
struct LeastSize;
template <size_t n>
struct UpTo {
  static constexpr size_t value = n;
};
#define BELAY_SIZE_TO(type, field) (offsetof(type, field) + sizeof(type::field))

inline Status null_argument(const char* call, const char* name) {
  return {Code::kInvalidArgument, std::string(call) + ": " + name + " is NULL."};
}

// What is wrong with a struct of fewer than `least` bytes; `name`: "the request".
template <class T>
Status bad_size(const T* given, size_t least, const char* call, const char* name) {
  if (!given) return null_argument(call, name);
  return {Code::kInvalidArgument, std::string(call) + ": struct_size of " + name + " is " +
                                      std::to_string(given->hdr.struct_size) + ", want " +
                                      std::to_string(least) + " or more."};
}

// A request with all fields that this side knows: where the caller has it if it has all of them, else a copy
// that is completed. False: NULL or too short, as refused() says. Refers to the caller's memory.
template <class T>
class Request {
 public:
  explicit Request(const T* given) : given_(given) {
    if (!given || given->hdr.struct_size < LeastSize<T>::value) return;
    whole_ = given;
    if (given->hdr.struct_size >= sizeof(T)) [[likely]]
      return;
    room_ = complete(*given);
    whole_ = &room_;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  explicit operator bool() const { return whole_ != nullptr; }
  const T& operator*() const { return *whole_; }
  const T* operator->() const { return whole_; }
  Status refused(const char* call, const char* name = "the request") const {
    return bad_size(given_, LeastSize<T>::value, call, name);
  }

 private:
  const T* given_;
  const T* whole_ = nullptr;
  T room_;  // set where it is used: requests are read on hot paths
};

}  // namespace belay
