// tests/fakes/fork.h: children of a process with threads.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace belay::testing {

// Whether every other thread of this process sleeps.
inline bool others_sleep() {
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) return false;
  bool sleeping = true;
  while (const dirent* task = readdir(tasks)) {
    const pid_t id = pid_t(std::atoi(task->d_name));
    if (id == 0 || id == gettid()) continue;
    std::string stat;
    std::getline(std::ifstream("/proc/self/task/" + std::to_string(id) + "/stat"), stat);
    const size_t name_end = stat.rfind(')');  // "ID (NAME) STATE ...", and a name may hold anything
    // A thread that has ended has no file any more.
    if (name_end != std::string::npos && stat[name_end + 2] == 'R') sleeping = false;
  }
  closedir(tasks);
  return sleeping;
}

// fork() once no other thread runs (or after 10 s): the C library keeps its allocator whole over fork(), but
// that of AddressSanitizer hands a lock that another thread held to the child, where nobody opens it.
inline pid_t fork_at_rest() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!others_sleep() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return fork();
}

}  // namespace belay::testing
