#include "hal/call_site.h"

#include <belay/abi/plugin.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <cxxabi.h>
#include <dlfcn.h>
#include <pthread.h>

namespace belay::hal {
namespace {

// The thread's own stack; empty where the system does not say.
struct Stack {
  uintptr_t low = 0, high = 0;
  Stack() noexcept {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    void* base = nullptr;
    size_t bytes = 0;
    if (pthread_attr_getstack(&attributes, &base, &bytes) == 0) {
      low = reinterpret_cast<uintptr_t>(base);
      high = low + bytes;
    }
    pthread_attr_destroy(&attributes);
  }
};

// The word at an address of the stack; AddressSanitizer's redzones around a caller's variables are no
// concern.
#if BELAY_SANITIZER == BELAY_SANITIZER_ADDRESS
__attribute__((no_sanitize("address")))
#endif
uintptr_t
word_at(uintptr_t address) noexcept {
  return *reinterpret_cast<const uintptr_t*>(address);
}

std::string_view file_name(const char* path) {
  const std::string_view all(path ? path : "");
  return all.substr(all.rfind('/') + 1);
}

std::string name_of(const Dl_info& info, const void* address) {
  std::string where;
  char offset[32];
  if (info.dli_sname) {
    int failed = 0;
    const std::unique_ptr<char, void (*)(void*)> plain(
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &failed), std::free);
    where = failed == 0 ? plain.get() : info.dli_sname;
    std::snprintf(offset, sizeof offset, "+%#zx",
                  size_t(static_cast<const char*>(address) - static_cast<const char*>(info.dli_saddr)));
  } else {  // as addr2line takes it
    std::snprintf(offset, sizeof offset, "%#zx",
                  size_t(static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase)));
  }
  return where + offset + " (" + std::string(file_name(info.dli_fname)) + ")";
}

}  // namespace

CallSite CallSite::here() noexcept {
  static thread_local const Stack stack;
  CallSite site;
  auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  for (void*& caller : site.frames_) {
    if (frame < stack.low || frame % sizeof(void*) || frame > stack.high - 2 * sizeof(void*)) break;
    caller = reinterpret_cast<void*>(word_at(frame + sizeof(void*)));
    const uintptr_t next = word_at(frame);
    if (!caller || next <= frame) break;
    frame = next;
  }
  return site;
}

std::string CallSite::text() const {
  Dl_info own{};
  dladdr(reinterpret_cast<const void*>(&CallSite::here), &own);
  std::string all, inside;
  bool outside = false;
  for (void* const frame : frames_) {
    Dl_info info{};
    if (!frame) break;
    // The call is before the address that it returns to, which may be another function's.
    const void* const call = static_cast<const char*>(frame) - 1;
    if (dladdr(call, &info) == 0) break;  // no code: the chain has ended before
    outside = outside || info.dli_fbase != own.dli_fbase;
    std::string& list = outside ? all : inside;
    list += (list.empty() ? "" : ", ") + name_of(info, frame);
  }
  return all.empty() ? inside : all;  // where the library is part of the program
}

}  // namespace belay::hal
