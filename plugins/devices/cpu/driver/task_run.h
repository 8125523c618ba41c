// One replay of a program whose nodes may run at once: which tasks are ready, running and done.
#pragma once

#include "parallel.h"
#include "program.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace belay::cpu {

// Used again by later replays. The thread that replays and the workers that help take ready tasks from it.
struct TaskRun : Source {
  TaskRun(Program& program, const TaskGraph& graph);

  void begin(const Instance& instance, Stream& stream);
  // Takes the ready task with the longest way to go and runs it. False: none is ready.
  bool run_one(Exec& exec);
  // All tasks have ended, or one failed and none runs.
  bool done();
  // The first failure, to be taken once; BELAY_OK.
  belay_status take_status();

  // Moves when a task ends; whoever waits for it polls, then sleeps in the kernel.
  std::atomic<uint32_t> word{0};
  std::atomic<uint32_t> sleepers{0};

 private:
  void end(uint32_t task, belay_status status);

  Program& program_;
  const TaskGraph& graph_;
  const Instance* instance_ = nullptr;
  Stream* stream_ = nullptr;

  std::mutex mutex_;
  std::vector<uint32_t> before_;  // for each task: tasks that must still end
  std::vector<uint32_t> ready_;   // a heap by priority
  uint32_t running_ = 0, ended_ = 0;
  belay_status status_ = BELAY_OK;
};

}  // namespace belay::cpu
