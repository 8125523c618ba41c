// A runtime with the null driver: devices through the C++ API, configurations, life and death, fork.
#include "fakes/fork.h"

#include <belay/runtime.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

namespace {

namespace fs = std::filesystem;
using belay::Code;
using belay::Status;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kNull[] =
    "[runtime]\ndevice = \"null:0\"\n[models]\nformats = []\n[memory]\npolicies = []\n[engine]\nuse = \"\"\n"
    "[log]\nlevel = \"error\"\n";

belay::Runtime null_runtime(const std::string& more = "") {
  auto made = belay::Runtime::create({.text = kNull + more, .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

Status created(belay::RuntimeOptions options) {
  options.plugin_dirs.emplace_back(BELAY_TEST_PLUGIN_DIR);
  return belay::Runtime::create(options).status();
}

belay_status count_up(const belay_exec*, const void* state, const uint64_t*) {
  const_cast<std::atomic<int>*>(static_cast<const std::atomic<int>*>(state))->fetch_add(1);
  return BELAY_OK;
}

TEST(RuntimeTest, BytesGoToADeviceAndComeBack) {
  const belay::Runtime runtime = null_runtime();
  const belay::Device device = runtime.default_device().value();
  EXPECT_EQ(belay::to_string(device.info()->driver), "null");
  belay::Stream stream = device.stream().value();
  const belay::Buffer one = device.alloc(1000).value(), two = device.alloc(1000).value();
  std::vector<char> sent(1000, 'a'), got(1000);
  ASSERT_TRUE(stream.write(one, 0, sent.data(), 1000).ok());
  ASSERT_TRUE(stream.fill(one, 4, 8, uint32_t(0x62626262)).ok());
  ASSERT_TRUE(stream.copy(two, 0, one, 0, 1000).ok());
  const auto event = stream.read(two, 0, got.data(), 1000);
  ASSERT_TRUE(event.ok());
  ASSERT_TRUE(event->synchronize().ok());
  EXPECT_TRUE(event->reached());
  EXPECT_EQ(std::string(got.data(), 16), "aaaabbbbbbbbaaaa");
  int told = 0;
  EXPECT_TRUE(event->on_reached([&](const Status& status) { told += status.ok(); }).ok());
  EXPECT_EQ(told, 1);
  EXPECT_EQ(device.memory()->bytes, 2000u);
  EXPECT_EQ(*stream.pending(), 0u);
}

TEST(RuntimeTest, WorkIsCapturedAndPlayedBackOnADriverWithoutPrograms) {
  const belay::Runtime runtime = null_runtime();
  const belay::Device device = runtime.default_device().value();
  belay::Stream stream = device.stream().value();
  std::atomic<int> runs{0};
  const belay_kernel kernel{{sizeof(belay_kernel), 0, nullptr}, count_up, &runs, 0, belay::to_str("count")};
  ASSERT_TRUE(stream.capture_begin().ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(stream.launch(kernel, {}).ok());
  const belay::Program program = stream.capture_end().value();
  EXPECT_EQ(runs, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream.launch(program, {}).ok());
  ASSERT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(runs, 15);
}

TEST(RuntimeTest, EventsJoinStreamsAndDevices) {
  const belay::Runtime runtime = null_runtime("[plugin.null.config]\ndevices = 2\n");
  ASSERT_EQ(runtime.device_count(), 2u);
  const belay::Device first = runtime.device(0).value(), second = runtime.device(1).value();
  belay::Stream a = first.stream().value(), b = second.stream().value();
  std::atomic<int> order{0};
  int seen_a = -1, seen_b = -1;
  auto event = a.host_call([&] { seen_a = order++; });
  ASSERT_TRUE(event.ok());
  ASSERT_TRUE(b.wait(*event).ok());
  ASSERT_TRUE(b.host_call([&] { seen_b = order++; }).ok());
  ASSERT_TRUE(b.synchronize().ok());
  EXPECT_EQ(seen_a, 0);
  EXPECT_EQ(seen_b, 1);
}

TEST(RuntimeTest, ADeviceWithoutVirtualMemorySaysSo) {
  const belay::Runtime runtime = null_runtime();
  const Status status = runtime.default_device()->reserve(4096).status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'null:0'"), HasSubstr("has no virtual memory")));
}

TEST(RuntimeTest, EachThreadKeepsItsLastErrorWhoseverRuntimeItWas) {
  const belay::Runtime one = null_runtime(), two = null_runtime();
  (void)belay::last_error();  // of tests before
  EXPECT_FALSE(one.device(3).ok());
  EXPECT_FALSE(two.load("none.onnx").ok());
  EXPECT_EQ(belay_runtime_hal(nullptr, nullptr), nullptr);  // gives no status of its own
  std::thread([] { EXPECT_TRUE(belay::last_error().ok()); }).join();
  ASSERT_TRUE(one.device(0).ok());
  const Status last = belay::last_error();
  EXPECT_EQ(last.code(), Code::kInvalidArgument);
  EXPECT_THAT(last.message(), HasSubstr("belay_runtime_hal: the runtime is NULL"));
  EXPECT_TRUE(belay::last_error().ok());
  belay_model_destroy(nullptr);  // does nothing, which is no failure
  EXPECT_TRUE(belay::last_error().ok());
}

TEST(RuntimeTest, TwoRuntimesLiveInOneProcessAndTellTheirEventsApart) {
  const belay::Runtime one = null_runtime(), two = null_runtime("[plugin.null.config]\ndevices = 3\n");
  EXPECT_EQ(one.device_count(), 1u);
  EXPECT_EQ(two.device_count(), 3u);
  belay::Stream stream = one.default_device()->stream().value();
  const belay::Event event = stream.host_call([] {}).value();
  ASSERT_TRUE(event.synchronize().ok());
  // One in 4096 pairs of runtimes shares its salt; such an event is unknown or out of range there.
  EXPECT_FALSE(
      belay::take(two.hal().query(two.host(), {event.raw().timeline, event.raw().value + 100})).ok());
}

TEST(RuntimeTest, ManyThreadsShareAStream) {
  const belay::Runtime runtime = null_runtime();
  const belay::Device device = runtime.default_device().value();
  belay::Stream stream = device.stream().value();
  std::atomic<int> runs{0};
  const belay_kernel kernel{{sizeof(belay_kernel), 0, nullptr}, count_up, &runs, 0, belay::to_str("count")};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 250; ++i) {
        const auto event = stream.launch(kernel, {});
        EXPECT_TRUE(event.ok());
        if (i % 50 == 0) {
          EXPECT_TRUE(event->synchronize().ok());
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(runs, 1000);
}

// ---- configurations
// --------------------------------------------------------------------------------------------------

TEST(ConfigurationTest, WhatIsMissingOrWrongIsNamedWithItsPlace) {
  const Status driver = created({.text = std::string(kNull), .sets = {"runtime.device=nul:0"}});
  EXPECT_EQ(driver.code(), Code::kNotFound);
  EXPECT_THAT(driver.message(), HasSubstr("nul"));
  const Status number = created({.text = std::string(kNull), .sets = {"runtime.device=null:7"}});
  EXPECT_EQ(number.code(), Code::kNotFound);
  EXPECT_THAT(number.message(), AllOf(HasSubstr("null:7"), HasSubstr("null:0")));
  const Status key = created({.text = std::string(kNull) + "[runtime.x]\ny = 1\n"});
  EXPECT_EQ(key.code(), Code::kInvalidArgument);
  const Status spelling = created({.text = std::string(kNull), .sets = {"runtime.queue_ful=help"}});
  EXPECT_THAT(spelling.message(), HasSubstr("did you mean 'queue_full'"));
  const Status choice = created({.text = std::string(kNull), .sets = {"runtime.queue_full=wait"}});
  EXPECT_THAT(choice.message(), HasSubstr("queue_full"));
  const Status broken = created({.text = "[runtime\n"});
  EXPECT_THAT(broken.message(), HasSubstr(":1:"));
  const Status file = created({.files = {"/nowhere/belay.toml"}});
  EXPECT_EQ(file.code(), Code::kInvalidArgument);
  EXPECT_THAT(file.message(), HasSubstr("/nowhere/belay.toml"));
  const Status engine = created({.text = std::string(kNull), .sets = {"engine.use=warp"}});
  EXPECT_EQ(engine.code(), Code::kNotFound);
  EXPECT_THAT(engine.message(), HasSubstr("warp"));
  belay::RuntimeOptions relative{.text = kNull, .plugin_dirs = {"plugins"}};
  EXPECT_THAT(created(relative).message(), HasSubstr("'plugins' is not absolute"));
}

TEST(ConfigurationTest, IsCheckedShownAndExplainedWithoutLoadingAPlugin) {
  const std::string dir = BELAY_TEST_PLUGIN_DIR;
  const belay_str dirs[] = {belay::to_str(dir)};
  belay_runtime_req req{};
  req.hdr.struct_size = sizeof req;
  req.text = belay::to_str(kNull);
  req.plugin_dirs = dirs, req.plugin_dir_count = 1;
  belay::StringSink effective, example;
  Status status = belay::take(belay_config_check(&req, effective.sink()));
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(effective.text(), AllOf(HasSubstr("null:0"), HasSubstr("queue_full")));
  EXPECT_THAT(effective.text(),  // it has a device, but nothing that reads or runs a model
              AllOf(::testing::StartsWith("# note: "), HasSubstr("an engine ([engine] use)"),
                    ::testing::Not(HasSubstr("a device ("))));
  status = belay::take(belay_config_example(&req, example.sink()));
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(example.text(),
              AllOf(HasSubstr("[memory]"), HasSubstr("limit"), HasSubstr("plugin.null.config")));
  std::vector<std::string> found;
  status = belay::take(belay_plugins_find(
      &req,
      [](void* user, const belay_plugin_info* info) {
        static_cast<std::vector<std::string>*>(user)->push_back(belay::to_string(info->id) + " " +
                                                                belay::to_string(info->state));
      },
      &found));
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(found, ::testing::Contains("null found"));
}

TEST(ConfigurationTest, TheCheckSaysWhatStartWouldSay) {
  const std::string dir = BELAY_TEST_PLUGIN_DIR;
  const belay_str dirs[] = {belay::to_str(dir)};
  for (const char* set :
       {"runtime.drivers=[\"null\", \"null\"]", "plugin.null.use=[\"belay.driver/1:nil\"]"}) {
    const belay_str sets[] = {belay::to_str(std::string_view(set))};
    belay_runtime_req req{};
    req.hdr.struct_size = sizeof req;
    req.text = belay::to_str(kNull);
    req.sets = sets, req.set_count = 1;
    req.plugin_dirs = dirs, req.plugin_dir_count = 1;
    belay::StringSink effective;
    const Status checked = belay::take(belay_config_check(&req, effective.sink()));
    EXPECT_FALSE(checked.ok());
    EXPECT_EQ(checked.message(), created({.text = kNull, .sets = {set}}).message());
  }
}

TEST(ConfigurationTest, TheExampleIsAConfiguration) {
  const std::string dir = BELAY_TEST_PLUGIN_DIR;
  const belay_str dirs[] = {belay::to_str(dir)};
  belay_runtime_req req{};
  req.hdr.struct_size = sizeof req;
  req.plugin_dirs = dirs, req.plugin_dir_count = 1;
  belay::StringSink example, effective;
  ASSERT_TRUE(belay::take(belay_config_example(&req, example.sink())).ok());
  const std::string text = example.text() + "\n";
  const fs::path file = fs::temp_directory_path() / ("belay_example_" + std::to_string(getpid()) + ".toml");
  std::ofstream(file) << text;
  const std::string name = file;
  const belay_str files[] = {belay::to_str(name)};
  req.files = files, req.file_count = 1;
  const Status status = belay::take(belay_config_check(&req, effective.sink()));
  EXPECT_TRUE(status.ok()) << status.message();
  fs::remove(file);
}

TEST(ConfigurationTest, DoctorSaysWhatWorksAndWhatIsMissing) {
  const belay::Runtime runtime = null_runtime();
  std::map<std::string, uint64_t> outcomes;
  const Status status = belay::take(belay_runtime_doctor(
      runtime.get(),
      [](void* user, belay_str name, uint64_t outcome, belay_str) {
        (*static_cast<std::map<std::string, uint64_t>*>(user))[belay::to_string(name)] = outcome;
      },
      &outcomes));
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(outcomes.at("device.null:0"), uint64_t(BELAY_CHECK_PASSED));
  EXPECT_EQ(outcomes.at("plugin.null"), uint64_t(BELAY_CHECK_PASSED));
  EXPECT_EQ(outcomes.at("engine"), uint64_t(BELAY_CHECK_WARNING));
}

TEST(ServicesTest, APluginOfARuntimeFindsEveryServiceAndItsRecordsReachDiagnostics) {
  const auto checks = [](const std::string& more) {
    const auto made = belay::Runtime::create({.text = kNull + more + "[diagnostics]\nuse = [\"probe\"]\n",
                                              .plugin_dirs = {BELAY_TEST_PLUGIN_DIR, BELAY_PROBE_DIR}});
    EXPECT_TRUE(made.ok()) << made.status().message();
    std::map<std::string, std::string> texts;
    if (!made.ok()) return texts;
    const Status status = belay::take(belay_runtime_doctor(
        made->get(),
        [](void* user, belay_str name, uint64_t outcome, belay_str text) {
          (*static_cast<std::map<std::string, std::string>*>(user))[belay::to_string(name)] =
              (outcome == BELAY_CHECK_PASSED ? "" : "FAILED: ") + belay::to_string(text);
        },
        &texts));
    EXPECT_TRUE(status.ok()) << status.message();
    return texts;
  };
  const auto found = checks("");
  EXPECT_EQ(found.at("probe.trace"), "3 records");
  EXPECT_EQ(found.at("probe.files"), "written");
  EXPECT_EQ(found.at("probe.memory"), "8192 bytes");
  EXPECT_EQ(found.at("probe.metrics"), "probe.checks=1");
  EXPECT_EQ(found.at("probe.fault"), "nothing ordered");
  const auto ordered = checks(
      "[[fault.points]]\npoint = \"probe.order\"\ncode = \"ABORTED\"\n"
      "[[fault.points]]\npoint = \"probe.alloc\"\ncode = \"RESOURCE_EXHAUSTED\"\n");
  EXPECT_THAT(ordered.at("probe.fault"), HasSubstr("FAILED: A failure was ordered at 'probe.order', pass 1"));
  EXPECT_THAT(ordered.at("probe.memory"), HasSubstr("FAILED: A failure was ordered at 'probe.alloc'"));
}

// ---- life and death
// --------------------------------------------------------------------------------------------------

TEST(LifeTest, WhatOutlivesItsRuntimeStaysUsableAndEndsIt) {
  belay::Stream stream;
  belay::Buffer buffer;
  {
    const belay::Runtime runtime = null_runtime();
    const belay::Device device = runtime.default_device().value();
    stream = device.stream().value();
    buffer = device.alloc(64).value();
  }
  ASSERT_TRUE(stream.fill(buffer, 0, 64, uint8_t(7)).ok());
  EXPECT_TRUE(stream.synchronize().ok());
}  // the last of them ends the runtime: the address sanitizer sees that nothing is left

TEST(LifeTest, NullAndDeadHandlesAreErrors) {
  belay_runtime_destroy(nullptr);
  belay_model_destroy(nullptr);
  belay_context_destroy(nullptr);
  EXPECT_EQ(belay_runtime_hal(nullptr, nullptr), nullptr);
  EXPECT_EQ(belay_model_input_count(nullptr), 0u);
  belay_model_req req{};
  req.hdr.struct_size = sizeof req;
  belay_model* model = nullptr;
  belay_context* context = nullptr;
  belay_io_info info{};
  belay::StringSink text;
  EXPECT_EQ(belay::take(belay_runtime_create(nullptr, nullptr)).code(), Code::kInvalidArgument);
  EXPECT_EQ(belay::take(belay_model_load(nullptr, &req, &model)).code(), Code::kInvalidArgument);
  EXPECT_EQ(belay::take(belay_model_print(nullptr, &req, text.sink())).code(), Code::kInvalidArgument);
  EXPECT_EQ(belay::take(belay_model_input_info(nullptr, 0, &info)).code(), Code::kInvalidArgument);
  EXPECT_EQ(belay::take(belay_context_create(nullptr, &context)).code(), Code::kInvalidArgument);
  EXPECT_EQ(belay::take(belay_context_run(nullptr)).code(), Code::kInvalidArgument);
  EXPECT_EQ(belay::take(belay_context_set_input(nullptr, 0, nullptr)).code(), Code::kInvalidArgument);
  EXPECT_EQ(belay::take(belay_context_output(nullptr, 0, nullptr)).code(), Code::kInvalidArgument);
  belay_obj rubbish{};
  EXPECT_EQ(belay::take(belay_context_run(reinterpret_cast<belay_context*>(&rubbish))).code(),
            Code::kInvalidArgument);
  belay_runtime_req small{};
  belay_runtime* runtime = nullptr;
  EXPECT_THAT(belay::take(belay_runtime_create(&small, &runtime)).message(), HasSubstr("struct_size"));
  belay_code_info code{};
  code.hdr.struct_size = sizeof code;
  EXPECT_TRUE(belay::take(belay_code_describe(BELAY_NOT_FOUND, &code)).ok());
  EXPECT_EQ(belay::to_string(code.name), "NOT_FOUND");
  EXPECT_EQ(belay::take(belay_code_describe(9999, &code)).code(), Code::kOutOfRange);
}

TEST(LifeTest, NothingAtAnAddressIsRefusedWhereALengthIsGiven) {
  const belay::Runtime runtime = null_runtime();
  const auto refused = [](belay_status raw, const char* words) {
    const Status status = belay::take(raw);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << words;
    EXPECT_THAT(status.message(), HasSubstr(words));
  };
  const belay_str null{nullptr, 10};
  belay::StringSink text;
  const auto configured = [&](void (*change)(belay_runtime_req&), const char* words) {
    belay_runtime_req req{};
    req.hdr.struct_size = sizeof req;
    change(req);
    belay_runtime* none = nullptr;
    refused(belay_config_check(&req, text.sink()), words);
    refused(belay_config_example(&req, text.sink()), words);
    refused(belay_plugins_find(
                &req, [](void*, const belay_plugin_info*) {}, nullptr),
            words);
    refused(belay_runtime_create(&req, &none), words);
  };
  static const belay_str list[] = {{"a", 1}, {nullptr, 3}};
  configured([](auto& r) { r.text = {nullptr, 10}; }, ": text is NULL, but its length is 10");
  configured([](auto& r) { r.file_count = 2; }, ": files is NULL, but its count is 2");
  configured([](auto& r) { r.files = list, r.file_count = 2; }, ": files[1] is NULL, but its length is 3");
  configured([](auto& r) { r.sets = list, r.set_count = 2; }, ": sets[1] is NULL, but its length is 3");
  configured([](auto& r) { r.plugin_dir_count = 1; }, ": plugin_dirs is NULL, but its count is 1");
  refused(belay_runtime_explain(runtime.get(), null, text.sink()), "kind is NULL, but its length is 10");
  const belay_memory_policy_vt* table = nullptr;
  belay_obj* object = nullptr;
  refused(belay_runtime_policy(runtime.get(), null, &table, &object), "name is NULL, but its length is 10");

  const auto model = [&](void (*change)(belay_model_req&), const char* words) {
    belay_model_req req{};
    req.hdr.struct_size = sizeof req;
    req.path = belay::to_str("model.onnx");
    change(req);
    belay_model* none = nullptr;
    refused(belay_model_load(runtime.get(), &req, &none), words);
    refused(belay_model_print(runtime.get(), &req, text.sink()), words);
    refused(belay_model_freeze(runtime.get(), &req, text.sink()), words);
  };
  model([](auto& r) { r.path = {nullptr, 10}; }, "path is NULL, but its length is 10");
  model([](auto& r) { r.path = {}, r.bytes = {nullptr, 10}; }, "bytes is NULL, but its length is 10");
  model([](auto& r) { r.folder = {nullptr, 10}; }, "folder is NULL");
  model([](auto& r) { r.format = {nullptr, 10}; }, "format is NULL");
  model([](auto& r) { r.device = {nullptr, 10}; }, "device is NULL");
  model([](auto& r) { r.extra_output_count = 2; }, "extra_outputs is NULL, but its count is 2");
  model([](auto& r) { r.extra_outputs = list, r.extra_output_count = 2; }, "extra_outputs[1] is NULL");
  model([](auto& r) { r.hdr.struct_size = 40; }, "struct_size of the request is 40, want 48 or more");
  belay_model_req request{};
  request.hdr.struct_size = sizeof request;
  refused(belay_model_freeze(runtime.get(), &request, {}), "image.write is NULL");

  const belay::Device device = runtime.default_device().value();
  const Status bound = device.bind(nullptr, 10).status();
  EXPECT_EQ(bound.code(), Code::kInvalidArgument);
  EXPECT_THAT(bound.message(), HasSubstr("Host memory of 10 bytes to be used as a buffer is NULL"));
  EXPECT_EQ(device.bind(nullptr, 0).value().bytes(), 0u);
  char byte = 0;
  const Status past = device.bind(&byte, UINT64_MAX).status();
  EXPECT_THAT(past.message(), HasSubstr("the host memory lent to it ends past 2^64"));
  EXPECT_EQ(device.memory()->buffers, 0u);
  EXPECT_THAT(device.load_package("om", nullptr, 10).status().message(),
              HasSubstr("bytes is NULL, but its length is 10"));
  belay::Stream stream = device.stream().value();
  const belay::Buffer buffer = device.alloc(64).value();
  EXPECT_EQ(stream.write(buffer, 0, nullptr, 10).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(stream.read(buffer, 0, nullptr, 10).status().code(), Code::kInvalidArgument);
  const belay_hal_vt& vt = runtime.hal();
  belay_copy_req copy{};
  copy.hdr.struct_size = sizeof copy;
  copy.dst = buffer.get(), copy.host_src = &byte, copy.bytes = 1, copy.access_count = 2;
  refused(vt.copy(runtime.host(), stream.get(), &copy, nullptr), "accesses is NULL and access_count is 2");
  const belay_kernel kernel{{sizeof(belay_kernel), 0, nullptr}, count_up, nullptr, 0, belay::to_str("count")};
  belay_launch_req launch{};
  launch.hdr.struct_size = sizeof launch;
  launch.kernel = &kernel, launch.access_count = 2;
  refused(vt.launch(runtime.host(), stream.get(), &launch, nullptr),
          "accesses is NULL and access_count is 2");
  launch.access_count = 0, launch.arg_count = 3;
  refused(vt.launch(runtime.host(), stream.get(), &launch, nullptr), "args is NULL and arg_count is 3");
  belay_node node{};
  node.hdr.struct_size = sizeof node;
  node.kernel = &kernel, node.name = null;
  const belay_node* const nodes[] = {&node};
  belay_program_req program{};
  program.hdr.struct_size = sizeof program;
  program.nodes = nodes, program.node_count = 1;
  belay_obj* made = nullptr;
  refused(vt.program_create(runtime.host(), device.get(), &program, &made), "its name is NULL");
}

TEST(LifeTest, WithoutAnEngineLoadingSaysWhatToConfigure) {
  const belay::Runtime runtime = null_runtime();
  const Status status = runtime.load("model.onnx").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("[engine] use"));
}

TEST(LifeTest, AChildMakesItsOwnRuntimeAndLeavesItsParentsAlone) {
  belay::Runtime runtime = null_runtime();
  belay::Device device = runtime.default_device().value();
  belay::Stream stream = device.stream().value();
  const std::string creator = "process " + std::to_string(getpid());
  const pid_t child = belay::testing::fork_at_rest();
  if (child == 0) {
    int wrong = 0;
    const auto refused = [&](const Status& status) {
      wrong +=
          status.code() != Code::kFailedPrecondition || status.message().find(creator) == std::string::npos;
    };
    refused(stream.synchronize());
    refused(device.alloc(8).status());
    refused(runtime.load("model.onnx").status());
    refused(belay::take(belay_runtime_doctor(
        runtime.get(), [](void*, belay_str, uint64_t, belay_str) {}, nullptr)));
    {
      const belay::Runtime own = null_runtime();
      belay::Stream mine = own.default_device()->stream().value();
      int ran = 0;
      wrong += !mine.host_call([&] { ran = 1; }).ok() || !mine.synchronize().ok() || ran != 1;
    }
    belay_runtime_destroy(runtime.get());
    _exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(stream.host_call([] {}).ok());
  EXPECT_TRUE(stream.synchronize().ok());
}

}  // namespace
