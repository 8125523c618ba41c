// Many threads on real models, through the hosting API, on the CPU device.
#include "cases.hpp"

#include <unistd.h>

#include <barrier>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <pthread.h>

namespace belay::testing {
namespace {

namespace fs = std::filesystem;

RuntimeOptions options(std::vector<std::string> sets = {}) {
  RuntimeOptions out;
  out.plugin_dirs = {BELAY_TEST_PLUGIN_DIR};
  out.sets = std::move(sets);
  return out;
}

// Names of the process's threads, by id.
std::map<std::string, std::string> threads_now() {
  std::map<std::string, std::string> out;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name)) out[task.path().filename().string()] = name;  // it may have just ended
  }
  return out;
}

// What goes wrong on any of many threads.
class Trouble {
 public:
  void note(const std::string& text) {
    if (text.empty()) return;
    std::lock_guard lock(mutex_);
    if (all_.size() < 5) all_.push_back(text);
    ++count_;
  }
  uint64_t count() const { return count_; }
  std::string text() const {
    std::string out;
    for (const std::string& line : all_) out += line + "\n";
    return out;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> all_;
  uint64_t count_ = 0;
};

fs::path good() { return fs::absolute("models/good"); }

// One model on 8 threads at once, each with inputs of its own.
class OneModelTest : public ::testing::TestWithParam<const char*> {};

TEST_P(OneModelTest, EightThreadsGetTheOutputsOfTheirOwnInputs) {
  const std::string name = GetParam();
  if (name != "digits" && !fs::exists(good() / name / "model.onnx"))
    GTEST_SKIP() << "no " << good() / name << ": it is made where python3-onnx is installed";
  Result<Runtime> runtime = Runtime::create(options());
  ASSERT_TRUE(runtime.ok()) << runtime.status().message();
  const auto of = name == "digits" ? load_digits(*runtime) : load_folder(*runtime, good() / name);
  ASSERT_TRUE(of);
  constexpr size_t kThreads = 8, kRounds = 24;
  Trouble trouble;
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      Result<Context> context = of->model.context();
      if (!context.ok()) return trouble.note(context.status().message());
      for (size_t round = 0; round < kRounds; ++round)
        trouble.note(run_case(*context, *of, of->cases[(t + round) % of->cases.size()]));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trouble.count(), 0u) << trouble.text();
  EXPECT_EQ(of->model.stats()->runs, kThreads * kRounds);
}

INSTANTIATE_TEST_SUITE_P(Models, OneModelTest,
                         ::testing::Values("digits", "symbolic_batch", "transformer_block",
                                           "loop_scan_outputs", "loop_growing", "if_different_shapes",
                                           "two_lanes", "strings"),
                         [](const auto& info) { return std::string(info.param); });

// All models at 2 threads from 16 callers: the process has the callers and threads of ours, no team of a
// library's.
TEST(ThreadsTest, SixteenCallersOfAllModelsLeaveOnlyOurThreads) {
  const auto before = threads_now();
  {
    Result<Runtime> runtime = Runtime::create(options({"engine.threads=2", "plugin.cpu.config.threads=2"}));
    ASSERT_TRUE(runtime.ok()) << runtime.status().message();
    Models models;
    models.push_back(load_digits(*runtime));
    std::set<fs::path> folders;  // sorted
    if (fs::exists(good()))
      for (const auto& entry : fs::directory_iterator(good()))
        if (fs::exists(entry.path() / "model.onnx")) folders.insert(entry.path());
    for (const fs::path& folder : folders) {
      Tolerance tolerance;
      std::ifstream(folder / "tolerance") >> tolerance.rtol >> tolerance.atol;  // where the usual is too narrow
      models.push_back(load_folder(*runtime, folder, tolerance));
    }
    for (const char* name : {"blazeface_front_128", "fr_landmark", "silero_vad_v5", "oww_embedding"})
      if (const fs::path folder = fs::path(BELAY_SHARED_DATA) / "models" / name;
          fs::exists(folder / "model.onnx"))
        models.push_back(load_folder(*runtime, folder));
    for (const auto& model : models) ASSERT_TRUE(model);
    std::printf("%zu models\n", models.size());

    constexpr size_t kCallers = 16;
    Trouble trouble;
    std::barrier finished(kCallers + 1), checked(kCallers + 1);
    std::vector<std::thread> callers;
    for (size_t t = 0; t < kCallers; ++t)
      callers.emplace_back([&, t] {
        pthread_setname_np(pthread_self(), ("caller-" + std::to_string(t)).c_str());
        for (size_t i = 0; i < models.size(); ++i) {
          const LoadedModel& of =
              *models[(i + t * 3) % models.size()];  // at each time most run different ones
          Result<Context> context = of.model.context();
          if (!context.ok()) {
            trouble.note(of.name + ": " + context.status().message());
            continue;
          }
          for (const Case& at : of.cases) trouble.note(run_case(*context, of, at));
        }
        finished.arrive_and_wait();
        checked.arrive_and_wait();
      });
    // While the callers still live, as a library's team ends with the thread that made it. Threads take the
    // name of the one that made them, so a second thread of a name is a team's.
    finished.arrive_and_wait();
    std::map<std::string, size_t> names;
    for (const auto& [id, name] : threads_now())
      if (!before.contains(id)) ++names[name];
    size_t ours = 0, others = 0;
    for (const auto& [name, count] : names) {
      (name.starts_with("belay-") ? ours : others) += count;
      EXPECT_TRUE(name.starts_with("belay-") || (name.starts_with("caller-") && count == 1))
          << count << " threads are called '" << name << "'";
    }
    EXPECT_EQ(others, kCallers);
    EXPECT_LE(ours, 8u) << "2 workers and the runtime's own";
    checked.arrive_and_wait();
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(trouble.count(), 0u) << trouble.text();
  }
  usleep(20'000);  // the kernel removes a thread a moment after it was joined
  const auto after = threads_now();
  for (const auto& [id, name] : after) EXPECT_TRUE(before.contains(id)) << "'" << name << "' is left";
}

}  // namespace
}  // namespace belay::testing
