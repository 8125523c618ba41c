#include "task_run.h"

#include "device.h"

#include <algorithm>
#include <limits>

namespace belay::cpu {
namespace {

// Less work than this beside the critical path is not worth a second thread, nor are tasks so short on average.
constexpr uint64_t kWorthSharing = 2 * kWorthWaking;  // ns
constexpr uint64_t kShortTask = 2'000;                // ns

}  // namespace

// ---- planning ----------------------------------------------------------------------------------------------------------
std::unique_ptr<TaskGraph> Program::plan_tasks(const uint32_t* pairs, uint64_t count) const {
  const uint64_t threads = device_.options().threads;
  if (threads < 2 || cost_ns_ == kUnknownCost || nodes_.size() < 2) return nullptr;
  const auto n = uint32_t(nodes_.size());
  std::vector<std::vector<uint32_t>> next(n);
  std::vector<uint32_t> before(n, 0);
  for (uint64_t i = 0; i < count; ++i) next[pairs[2 * i]].push_back(pairs[2 * i + 1]);
  for (std::vector<uint32_t>& list : next) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    for (const uint32_t v : list) ++before[v];
  }
  // Nodes come in topological order, so one pass backwards gives the time from each to the end.
  std::vector<uint64_t> remaining(n, 0);
  uint64_t critical = 0;
  for (uint32_t v = n; v-- > 0;) {
    for (const uint32_t w : next[v]) remaining[v] = std::max(remaining[v], remaining[w]);
    remaining[v] += nodes_[v].cost_ns;
    critical = std::max(critical, remaining[v]);
  }
  if (cost_ns_ < critical + kWorthSharing) return nullptr;

  // A node joins the task of the one before it when each is the only neighbour of the other.
  auto graph = std::make_unique<TaskGraph>();
  std::vector<uint32_t> task_of(n);
  std::vector<char> begins(n, 1);
  for (uint32_t v = 0; v < n; ++v)
    if (next[v].size() == 1 && before[next[v][0]] == 1) begins[next[v][0]] = 0;
  for (uint32_t v = 0; v < n; ++v) {
    if (!begins[v]) continue;
    TaskGraph::Task task{uint32_t(graph->nodes.size()), 0, 0, 0, before[v], remaining[v]};
    for (uint32_t at = v;; at = next[at][0]) {
      task_of[at] = uint32_t(graph->tasks.size());
      graph->nodes.push_back(at);
      ++task.node_count;
      if (next[at].size() != 1 || begins[next[at][0]]) break;
    }
    graph->tasks.push_back(task);
  }
  if (cost_ns_ / graph->tasks.size() < kShortTask) return nullptr;
  for (TaskGraph::Task& task : graph->tasks) {
    const uint32_t last = graph->nodes[task.first_node + task.node_count - 1];
    task.first_next = uint32_t(graph->next.size());
    for (const uint32_t w : next[last]) graph->next.push_back(task_of[w]);
    task.next_count = uint32_t(graph->next.size()) - task.first_next;
  }
  graph->width = uint32_t(std::min<uint64_t>(threads, graph->tasks.size()));
  return graph;
}

// ---- running -----------------------------------------------------------------------------------------------------------
TaskRun::TaskRun(Program& program, const TaskGraph& graph) : program_(program), graph_(graph) {
  before_.reserve(graph.tasks.size());
  ready_.reserve(graph.tasks.size());
  take = [](Source& source, Exec& exec) {
    auto& self = static_cast<TaskRun&>(source);
    bool any = false;
    while (!exec.device->lanes().wanted() && self.run_one(exec)) any = true;
    return any;
  };
}

void TaskRun::begin(const Instance& instance, Stream& stream) {
  instance_ = &instance;
  stream_ = &stream;
  before_.clear();
  ready_.clear();
  running_ = ended_ = 0;
  status_ = BELAY_OK;
  for (uint32_t i = 0; i < graph_.tasks.size(); ++i) {
    before_.push_back(graph_.tasks[i].before);
    if (graph_.tasks[i].before == 0) ready_.push_back(i);
  }
  const auto less = [this](uint32_t a, uint32_t b) { return graph_.tasks[a].priority < graph_.tasks[b].priority; };
  std::make_heap(ready_.begin(), ready_.end(), less);
}

bool TaskRun::run_one(Exec& exec) {
  const auto less = [this](uint32_t a, uint32_t b) { return graph_.tasks[a].priority < graph_.tasks[b].priority; };
  uint32_t task = 0;
  {
    std::lock_guard lock(mutex_);
    if (ready_.empty()) return false;
    std::pop_heap(ready_.begin(), ready_.end(), less);
    task = ready_.back();
    ready_.pop_back();
    ++running_;
  }
  exec.stream = stream_;
  exec.api.stream = uint32_t(stream_->id());
  const TaskGraph::Task& t = graph_.tasks[task];
  belay_status status = BELAY_OK;
  for (uint32_t i = 0; i < t.node_count && status == BELAY_OK; ++i)
    status = program_.run_node(exec, *instance_, graph_.nodes[t.first_node + i]);
  end(task, status);
  return true;
}

void TaskRun::end(uint32_t task, belay_status status) {
  const auto less = [this](uint32_t a, uint32_t b) { return graph_.tasks[a].priority < graph_.tasks[b].priority; };
  const TaskGraph::Task& t = graph_.tasks[task];
  uint32_t more = 0;
  uint64_t most = 0;
  belay_status unwanted = BELAY_OK;
  {
    std::lock_guard lock(mutex_);
    --running_;
    ++ended_;
    if (status != BELAY_OK) {
      unwanted = status_ == BELAY_OK ? BELAY_OK : status;
      if (status_ == BELAY_OK) status_ = status;
      ready_.clear();
    }
    for (uint32_t i = 0; i < t.next_count && status_ == BELAY_OK; ++i) {
      const uint32_t next = graph_.next[t.first_next + i];
      if (--before_[next] > 0) continue;
      ready_.push_back(next);
      std::push_heap(ready_.begin(), ready_.end(), less);
      most = std::max(most, graph_.tasks[next].priority);
      ++more;
    }
  }
  Device& device = program_.device();
  if (unwanted != BELAY_OK) device.host().status_release(&device.host(), unwanted);
  word.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0) futex_wake(&word, std::numeric_limits<int>::max());
  if (more > 1) device.workers().offer(std::min(more, graph_.width) - 1, most >= kWorthWaking);  // one is ours
}

bool TaskRun::done() {
  std::lock_guard lock(mutex_);
  return running_ == 0 && (status_ != BELAY_OK || ended_ == graph_.tasks.size());
}

belay_status TaskRun::take_status() {
  std::lock_guard lock(mutex_);
  return std::exchange(status_, BELAY_OK);
}

belay_status Program::run_tasks(Exec& exec, const Instance& instance) {
  std::unique_ptr<TaskRun> run;
  {
    std::lock_guard lock(mutex_);
    if (free_runs_.empty()) {
      run = std::make_unique<TaskRun>(*this, *tasks_);
    } else {
      run = std::move(free_runs_.back());
      free_runs_.pop_back();
    }
  }
  Stream& stream = *exec.stream;
  run->begin(instance, stream);
  Sharing::Slot* const slot = device_.sharing().share(*run);
  if (slot) device_.workers().offer(tasks_->width - 1, true);
  for (;;) {
    const uint32_t seen = run->word.load(std::memory_order_seq_cst);
    if (run->run_one(exec)) continue;
    if (run->done()) break;
    // Others run what is left: help them with their loops, poll, then sleep until one of them ends a task.
    bool moved = false;
    for (const uint64_t until = clock_ns() + device_.options().spin_ns; !moved && clock_ns() < until;) {
      if (device_.sharing().help(exec)) moved = true;
      for (int i = 0; i < 8 && !moved; ++i) {
        relax();
        moved = run->word.load(std::memory_order_relaxed) != seen;
      }
    }
    if (moved) continue;
    run->sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(run->word, seen, kForever);
    run->sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  if (slot) device_.sharing().unshare(slot);
  exec.stream = &stream;
  exec.api.stream = uint32_t(stream.id());
  const belay_status status = run->take_status();
  std::lock_guard lock(mutex_);
  free_runs_.push_back(std::move(run));
  return status;
}

}  // namespace belay::cpu
