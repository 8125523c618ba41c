// core/base/thread_owned.h: objects that belong to a thread.
#pragma once

#include <new>
#include <utility>

#include <pthread.h>

namespace belay::core {

// A T for each thread that asks for it; it ends with its thread. A thread_local with a destructor cannot be refused:
// where there is no memory to note the destructor, the C library ends the process.
template <class T>
class ThreadOwned {
 public:
  // Null: there is no memory, or this thread's T has ended already.
  static T* get() noexcept {
    if (own_ || ended_) return own_;
    static const Key key;
    T* const fresh = new (std::nothrow) T;
    if (!key.watch(fresh)) return delete fresh, nullptr;
    return own_ = fresh;
  }

 private:
  class Key {
   public:
    Key() noexcept : made_(pthread_key_create(&key_, &ThreadOwned::end) == 0) {}
    ~Key() {
      if (made_) pthread_key_delete(key_);  // threads that end later must not call into a library that is gone
    }
    bool watch(T* own) const noexcept { return own && made_ && pthread_setspecific(key_, own) == 0; }

   private:
    pthread_key_t key_{};
    const bool made_;
  };
  static void end(void*) noexcept {
    ended_ = true;
    delete std::exchange(own_, nullptr);
  }

  static inline constinit thread_local T* own_ = nullptr;
  static inline constinit thread_local bool ended_ = false;
};

}  // namespace belay::core
