// Models through the hosting API, with the plugins that a user gets.
#include "fakes/fork.h"

#include <belay/runtime.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

namespace {

namespace fs = std::filesystem;
using belay::Code;
using belay::Status;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kDigits[] = BELAY_TEST_ROOT "/sdk/examples/digits/digits.onnx";
constexpr size_t kPixels = 64, kClasses = 10;

class ModelsTest : public ::testing::Test {
 protected:
  ModelsTest() {
    std::string name = (fs::temp_directory_path() / "belay_models_XXXXXX").string();
    dir_ = mkdtemp(name.data());
    auto made = belay::Runtime::create(
        {.sets = {"log.level=error", "engine.threads=1"}, .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
    EXPECT_TRUE(made.ok()) << made.status().message();
    runtime_ = std::move(made).value();
  }
  ~ModelsTest() override { fs::remove_all(dir_); }

  static std::vector<float> image(int seed) {
    std::vector<float> pixels(kPixels);
    for (size_t i = 0; i < kPixels; ++i) pixels[i] = float((i * 7 + size_t(seed) * 13) % 17) / 16;
    return pixels;
  }
  static Status run(belay::Context& context, std::vector<float>& pixels, std::vector<float>* answer) {
    BELAY_TRY(context.set_input(0, belay::Tensor::of(pixels, {1, 1, 8, 8})));
    BELAY_TRY(context.run());
    BELAY_ASSIGN(const belay::Tensor output, context.output(0));
    answer->assign(output.as<float>(), output.as<float>() + output.count());
    return {};
  }
  std::string copy_of_digits(const char* name) {
    const fs::path to = fs::path(dir_) / name;
    fs::copy_file(kDigits, to);
    return to;
  }
  std::string write(const char* name, const std::string& bytes) {
    std::ofstream(fs::path(dir_) / name, std::ios::binary) << bytes;
    return (fs::path(dir_) / name).string();
  }

  std::string dir_;
  belay::Runtime runtime_;
};

TEST_F(ModelsTest, AModelIsReadDescribedAndRun) {
  const auto model = runtime_.load(kDigits);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->input_count(), 1u);
  const belay::IoInfo input = model->input_info(0).value();
  EXPECT_EQ(input.dtype, uint32_t(BELAY_DT_FLOAT32));
  EXPECT_EQ(input.dims.size(), 4u);
  EXPECT_FALSE(model->input_info(1).ok());
  EXPECT_THAT(*model->describe(), HasSubstr("{"));
  belay::Context context = model->context().value();
  std::vector<float> pixels = image(1), answer;
  const Status status = run(context, pixels, &answer);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(answer.size(), kClasses);
  float sum = 0;
  for (float value : answer) sum += value;
  EXPECT_NEAR(sum, 1, 1e-4);
  const auto text = runtime_.print(kDigits);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_THAT(*text, HasSubstr("Conv"));
}

TEST_F(ModelsTest, AGraphWithOperatorsThatAreNotKnownIsShownAndNotRun) {
  std::ifstream file(kDigits, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  for (size_t at = 0; (at = bytes.find("\x04Relu", at)) != std::string::npos;) bytes[at + 1] = 'X';
  belay_model_req req{};
  req.hdr.struct_size = sizeof req;
  req.bytes = {bytes.data(), bytes.size()};
  belay::StringSink text;
  const Status shown = belay::take(belay_model_print(runtime_.get(), &req, text.sink()));
  EXPECT_EQ(shown.code(), Code::kUnimplemented);
  EXPECT_THAT(shown.message(), HasSubstr("'Xelu'"));
  EXPECT_THAT(text.text(), AllOf(HasSubstr(" = Conv"), HasSubstr(" = Xelu")));
  const auto model = runtime_.load_from_memory(bytes.data(), bytes.size());
  EXPECT_EQ(model.status().code(), Code::kUnimplemented);
  EXPECT_EQ(model.status().message(), shown.message());
}

TEST_F(ModelsTest, FromMemoryItGivesTheSame) {
  std::ifstream file(kDigits, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto from_memory = runtime_.load_from_memory(bytes.data(), bytes.size());
  ASSERT_TRUE(from_memory.ok()) << from_memory.status().message();
  const auto from_file = runtime_.load(kDigits);
  belay::Context one = from_memory->context().value(), two = from_file->context().value();
  std::vector<float> pixels = image(2), first, second;
  ASSERT_TRUE(run(one, pixels, &first).ok());
  ASSERT_TRUE(run(two, pixels, &second).ok());
  EXPECT_EQ(first, second);
}

TEST_F(ModelsTest, WhatCannotBeReadSaysWhy) {
  copy_of_digits("digits.onnx");
  const Status missing = runtime_.load(dir_ + "/digit.onnx").status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("did you mean 'digits.onnx'"));
  const Status empty = runtime_.load(write("empty.onnx", "")).status();
  EXPECT_EQ(empty.code(), Code::kDataLoss);
  EXPECT_THAT(empty.message(), HasSubstr("empty.onnx"));
  EXPECT_FALSE(runtime_.load(write("text.txt", "Dear model, how are you?")).ok());
  EXPECT_EQ(runtime_.load(dir_).status().code(), Code::kInvalidArgument);
  const Status format = runtime_.load(kDigits, {.format = "onxn"}).status();
  EXPECT_EQ(format.code(), Code::kNotFound);
  EXPECT_THAT(format.message(), HasSubstr("did you mean 'onnx'"));
  const Status device = runtime_.load(kDigits, {.device = "gpu:0"}).status();
  EXPECT_EQ(device.code(), Code::kNotFound);
  EXPECT_THAT(device.message(), AllOf(HasSubstr("gpu:0"), HasSubstr("cpu:0")));
  std::ifstream file(kDigits, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const Status cut = runtime_.load(write("cut.onnx", bytes.substr(0, bytes.size() / 2))).status();
  EXPECT_FALSE(cut.ok());
  EXPECT_THAT(cut.message(), HasSubstr("cut.onnx"));
}

TEST_F(ModelsTest, EightThreadsRunOneModelWithInputsOfTheirOwn) {
  const auto model = runtime_.load(kDigits);
  ASSERT_TRUE(model.ok());
  std::vector<std::vector<float>> expected(8);
  {
    belay::Context context = model->context().value();
    for (int i = 0; i < 8; ++i) {
      std::vector<float> pixels = image(i);
      ASSERT_TRUE(run(context, pixels, &expected[size_t(i)]).ok());
    }
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      belay::Context context = model->context().value();
      std::vector<float> pixels = image(i), answer;
      for (int k = 0; k < 50; ++k) {
        const Status status = run(context, pixels, &answer);
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(answer, expected[size_t(i)]);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ModelsTest, AnAsynchronousRunTellsItsEndOnce) {
  const auto model = runtime_.load(kDigits);
  belay::Context context = model->context().value();
  std::vector<float> pixels = image(3);
  ASSERT_TRUE(context.set_input(0, belay::Tensor::of(pixels, {1, 1, 8, 8})).ok());
  std::promise<Status> end;
  const Status started = context.run_async([&](const Status& status) { end.set_value(status); });  // throws at a second
  ASSERT_TRUE(started.ok()) << started.message();
  const Status ended = end.get_future().get();
  EXPECT_TRUE(ended.ok()) << ended.message();
  const Status again = context.run();  // it has been told, so the next may begin
  EXPECT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(context.output(0)->count(), kClasses);
}

TEST_F(ModelsTest, AFileThatChangesIsNamedByTheNextRun) {
  const std::string path = copy_of_digits("changing.onnx");
  const auto model = runtime_.load(path);
  ASSERT_TRUE(model.ok());
  belay::Context context = model->context().value();
  std::vector<float> pixels = image(4), answer;
  ASSERT_TRUE(run(context, pixels, &answer).ok());
  std::ofstream(path, std::ios::app) << "x";
  // The file is looked at once in a millisecond of the coarse clock, whose steps are some milliseconds long.
  Status status;
  for (int i = 0; i < 100000 && status.ok(); ++i) status = context.run();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("changing.onnx"));
}

TEST_F(ModelsTest, CopiedFilesMayChange) {
  auto runtime = belay::Runtime::create(
      {.sets = {"log.level=error", "models.weights=copy"}, .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
  ASSERT_TRUE(runtime.ok());
  const std::string path = copy_of_digits("copied.onnx");
  const auto model = runtime->load(path);
  ASSERT_TRUE(model.ok());
  ASSERT_EQ(truncate(path.c_str(), 10), 0);
  belay::Context context = model->context().value();
  std::vector<float> pixels = image(5), answer;
  EXPECT_TRUE(run(context, pixels, &answer).ok());
}

TEST_F(ModelsTest, WhatIsDestroyedTooEarlyStaysForThoseWhoUseIt) {
  belay::Context context;
  {
    auto model = runtime_.load(kDigits);
    ASSERT_TRUE(model.ok());
    context = model->context().value();
  }
  runtime_ = belay::Runtime();
  std::vector<float> pixels = image(6), answer;
  const Status status = run(context, pixels, &answer);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(ModelsTest, InAChildModelsNameTheProcessThatMadeThem) {
  const auto model = runtime_.load(kDigits);
  belay::Context context = model->context().value();
  const std::string creator = "process " + std::to_string(getpid());
  const pid_t child = belay::testing::fork_at_rest();
  if (child == 0) {
    const Status run = context.run(), made = model->context().status();
    belay_context_destroy(context.get());
    belay_model_destroy(model->get());
    const bool good = run.code() == Code::kFailedPrecondition && made.code() == Code::kFailedPrecondition &&
                      run.message().find(creator) != std::string::npos;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::vector<float> pixels = image(7), answer;
  EXPECT_TRUE(run(context, pixels, &answer).ok());
}

}  // namespace
