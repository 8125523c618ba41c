// core/base/signals_blocked.h: for making threads that leave signals to the application.
#pragma once

#include <pthread.h>
#include <csignal>

namespace belay::core {

// While one lives the calling thread, and every thread that it makes, gets no signals. Faults of a thread
// itself still go to their handlers: blocked, they would end the process.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace belay::core
