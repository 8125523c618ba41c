// core/base/bounded_call.h: calls foreign code that may never come back.
#pragma once

#include <chrono>
#include <functional>

namespace belay::core {

// Runs `body` on a thread of its own and waits for it until the deadline. False: it has not returned, and its
// thread stays behind with it, so `body` must own, or share, all that it touches. Signals are blocked in it.
// `late` is called on the calling thread after one second, five, and every ten more. Without memory or
// threads `body` runs on the calling thread, and the deadline holds nobody.
bool call_bounded(std::function<void()> body, std::chrono::nanoseconds deadline,
                  const std::function<void(std::chrono::seconds)>& late);

}  // namespace belay::core
