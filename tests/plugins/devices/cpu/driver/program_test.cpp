// Programs: arguments, bindings, dependencies, overlap, failures, capture.
#include "fixture.h"

#include <thread>

namespace belay::cpu::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

belay_arg buffer_arg(uint32_t binding, uint64_t offset, uint64_t bytes, uint32_t access = BELAY_ACCESS_READ) {
  return {BELAY_ARG_BUFFER, binding, offset, bytes, access, 0};
}
belay_arg scalar_arg(uint64_t value) { return {BELAY_ARG_SCALAR, 0, value, 0, 0, 0}; }

class ProgramTest : public CpuDevice {
 protected:
  struct Node {
    const belay_kernel* kernel;
    std::vector<belay_arg> args;
    std::string name;
  };
  using Object = std::unique_ptr<belay_obj, std::function<void(belay_obj*)>>;

  const belay_driver_program_vt& vt() {
    if (!device.get()) open();
    return *static_cast<const belay_driver_program_vt*>(device->extension(device, to_str(BELAY_DRIVER_PROGRAM)));
  }
  Object own(const belay_created& made) {
    auto* const object = new belay_obj{BELAY_OBJ_MAGIC, BELAY_OBJ_PROGRAM, 1, made.table, made.impl, {}};
    return Object(object, [this](belay_obj* o) {
      vt().destroy(o);
      delete o;
    });
  }
  Result<Object> create(const std::vector<Node>& nodes, uint64_t bindings,
                        const std::vector<std::pair<uint32_t, uint32_t>>* dependencies = nullptr) {
    std::vector<belay_node> raw;
    std::vector<const belay_node*> pointers;
    raw.reserve(nodes.size());
    for (const Node& n : nodes) {
      raw.push_back({{sizeof(belay_node), 0, nullptr}, n.kernel, n.args.data(), n.args.size(), to_str(n.name)});
      pointers.push_back(&raw.back());
    }
    std::vector<uint32_t> pairs;
    if (dependencies)
      for (const auto& [before, after] : *dependencies) pairs.insert(pairs.end(), {before, after});
    belay_program_req req{};
    req.hdr.struct_size = sizeof req;
    req.nodes = pointers.data();
    req.node_count = pointers.size();
    req.binding_count = bindings;
    static const uint32_t kNone = 0;
    if (dependencies) {
      req.dependencies = pairs.empty() ? &kNone : pairs.data();
      req.dependency_count = dependencies->size();
    }
    belay_created out{};
    out.hdr.struct_size = sizeof out;
    const belay_status status = vt().create(device, &req, &out);
    if (status != BELAY_OK) return host.take(status);
    return own(out);
  }
  Result<uint64_t> launch(const Object& program, TestStream& s, const std::vector<belay_binding>& bindings = {}) {
    return s.queued(
        [&](uint64_t* v) { return vt().launch(program.get(), s.get(), bindings.data(), bindings.size(), v); });
  }
  static belay_binding bind(std::vector<float>& memory) { return {nullptr, memory.data(), 0, memory.size() * 4}; }

  // out[i] = in[i] * factor, over `count` floats: arguments in, out, factor, count.
  TestKernel scale{"scale", [](auto, const uint64_t* args) -> belay_status {
                     const auto* in = reinterpret_cast<const float*>(args[0]);
                     auto* out = reinterpret_cast<float*>(args[1]);
                     for (uint64_t i = 0; i < args[3]; ++i) out[i] = in[i] * float(args[2]);
                     return BELAY_OK;
                   }};
};

TEST_F(ProgramTest, ReplaysItsNodesOverTheBuffersOfEachLaunch) {
  TestStream s = stream();
  const Result<Object> program = create({{&scale, {buffer_arg(0, 4, 8), buffer_arg(1, 0, 8), scalar_arg(2), scalar_arg(2)}, "a"},
                                         {nullptr, {}, "order"},
                                         {&scale, {buffer_arg(1, 0, 8), buffer_arg(1, 8, 8), scalar_arg(5), scalar_arg(2)}, "b"}},
                                        2);
  ASSERT_TRUE(program.ok()) << program.status().message();
  for (int round = 0; round < 30; ++round) {
    std::vector<float> in = {0, float(round), float(round + 1)}, out(4), other(4);
    ASSERT_TRUE(launch(*program, s, {bind(in), bind(out)}).ok());
    ASSERT_TRUE(launch(*program, s, {bind(in), bind(other)}).ok());
    ASSERT_TRUE(s.synchronize().ok());
    const std::vector<float> want = {2.f * float(round), 2.f * float(round + 1), 10.f * float(round), 10.f * float(round + 1)};
    EXPECT_EQ(out, want);
    EXPECT_EQ(other, want);
  }
}

TEST_F(ProgramTest, ArgumentsOfBytesAreCopiedAndAbsentOnesAreNull) {
  TestStream s = stream();
  std::string text = "hello";
  std::string seen;
  uint64_t absent = 1;
  TestKernel kernel("k", [&](auto, const uint64_t* args) -> belay_status {
    seen.assign(reinterpret_cast<const char*>(args[0]), 5);
    absent = args[1];
    return BELAY_OK;
  });
  const Result<Object> program =
      create({{&kernel, {{BELAY_ARG_BYTES, 0, reinterpret_cast<uint64_t>(text.data()), 5, 0, 0},
                         buffer_arg(BELAY_NO_BINDING, 0, 0)}, "n"}}, 0);
  ASSERT_TRUE(program.ok());
  text = "XXXXX";
  ASSERT_TRUE(launch(*program, s).ok());
  ASSERT_TRUE(s.synchronize().ok());
  EXPECT_EQ(seen, "hello");
  EXPECT_EQ(absent, 0u);
}

TEST_F(ProgramTest, WhatIsWrongIsNamed) {
  TestKernel shaped("unique", [](auto, auto) -> belay_status { return BELAY_OK; }, 0, BELAY_KERNEL_WRITES_SHAPE);
  EXPECT_THAT(create({{&scale, {buffer_arg(3, 0, 4)}, "conv1"}}, 2).status().message(),
              AllOf(HasSubstr("argument 0 of node 0 'conv1'"), HasSubstr("binding 3"), HasSubstr("there are 2")));
  EXPECT_THAT(create({{&scale, {{9, 0, 0, 0, 0, 0}}, "x"}}, 0).status().message(), HasSubstr("kind 9"));
  EXPECT_THAT(create({{&scale, {buffer_arg(0, ~uint64_t{0}, 4)}, "x"}}, 1).status().message(), HasSubstr("past the end"));
  EXPECT_THAT(create({{&shaped, {}, "x"}}, 0).status().message(), HasSubstr("WRITES_SHAPE"));
  const std::vector<std::pair<uint32_t, uint32_t>> backwards = {{1, 0}};
  EXPECT_THAT(create({{&scale, {}, "a"}, {&scale, {}, "b"}}, 0, &backwards).status().message(), HasSubstr("(1, 0)"));

  TestStream s = stream();
  const Result<Object> program = create({{&scale, {buffer_arg(0, 8, 8)}, "x"}}, 1);
  ASSERT_TRUE(program.ok());
  std::vector<float> small(3);
  const Status status = launch(*program, s, {bind(small)}).status();
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("Binding 0"), HasSubstr("12 bytes"), HasSubstr("uses 16")));
  EXPECT_EQ(launch(*program, s).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(s.last(), 0u) << "nothing was queued";
}

TEST_F(ProgramTest, AFailureNamesTheNode) {
  TestStream s = stream();
  int ran = 0;
  TestKernel bad("direct", [](const belay_exec* e, auto) { return e->fail(e, BELAY_INTERNAL, to_str("Boom.")); });
  TestKernel good("good", [&](auto, auto) -> belay_status { return ++ran, BELAY_OK; });
  const Result<Object> program = create({{&good, {}, "a"}, {&bad, {}, "conv1"}, {&good, {}, "c"}}, 0);
  ASSERT_TRUE(program.ok());
  ASSERT_TRUE(launch(*program, s).ok());
  ASSERT_TRUE(launch(*program, s).ok());
  const Status status = s.synchronize();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("operation 1 of stream 1"), HasSubstr("node 1 'conv1' (kernel 'direct')"),
                                      HasSubstr("Boom.")));
  EXPECT_EQ(ran, 1);
}

TEST_F(ProgramTest, IndependentNodesRunAtOnceWhereTheirCostIsWorthIt) {
  TestStream s = stream();
  // Two nodes that meet: each waits for the other, for as long as a busy machine may need.
  std::atomic<int> inside{0}, met{0};
  TestKernel meet("meet", [&](auto, auto) -> belay_status {
    ++inside;
    for (int i = 0; i < 10'000 && inside < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    met += inside >= 2;
    return BELAY_OK;
  }, 1'000'000);
  std::string order;
  TestKernel first("first", [&](auto, auto) -> belay_status { return order += 'f', BELAY_OK; }, 1000);
  TestKernel last("last", [&](auto, auto) -> belay_status { return order += 'l', BELAY_OK; }, 1000);
  const std::vector<std::pair<uint32_t, uint32_t>> diamond = {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {0, 1}};
  const Result<Object> program = create({{&first, {}, "f"}, {&meet, {}, "m1"}, {&meet, {}, "m2"}, {&last, {}, "l"}}, 0, &diamond);
  ASSERT_TRUE(program.ok());
  for (int round = 1; round <= 3; ++round) {
    inside = met = 0;
    ASSERT_TRUE(launch(*program, s).ok());
    ASSERT_TRUE(s.synchronize().ok());
    EXPECT_EQ(met, 2);
    EXPECT_EQ(order.size(), size_t(2 * round));
  }
  EXPECT_EQ(order, "flflfl");
}

TEST_F(ProgramTest, CheapNodesRunInOrderOnOneThread) {
  TestStream s = stream();
  std::string order;
  std::vector<std::unique_ptr<TestKernel>> kernels;
  std::vector<Node> nodes;
  for (char c = 'a'; c < 'k'; ++c) {
    kernels.push_back(std::make_unique<TestKernel>(std::string(1, c), [&order, c](auto, auto) -> belay_status {
      return order += c, BELAY_OK;
    }, 100));
    nodes.push_back({kernels.back().get(), {}, ""});
  }
  const std::vector<std::pair<uint32_t, uint32_t>> none;
  const Result<Object> program = create(nodes, 0, &none);
  ASSERT_TRUE(program.ok());
  ASSERT_TRUE(launch(*program, s).ok());
  ASSERT_TRUE(s.synchronize().ok());
  EXPECT_EQ(order, "abcdefghij");
}

TEST_F(ProgramTest, RandomGraphsKeepEveryDependency) {
  config.set("threads", 3);
  uint64_t seed = 12345;
  const auto random = [&](uint64_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
  };
  TestStream s = stream(), other = stream();
  for (int round = 0; round < 30; ++round) {
    const uint32_t count = 2 + uint32_t(random(60));
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    for (uint32_t v = 1; v < count; ++v)
      for (uint64_t k = random(3); k > 0; --k) pairs.emplace_back(uint32_t(random(v)), v);
    const auto ended = std::make_unique<std::atomic<int>[]>(count);
    std::atomic<int> wrong{0};
    std::vector<std::unique_ptr<TestKernel>> kernels;
    std::vector<Node> nodes;
    for (uint32_t v = 0; v < count; ++v) {
      kernels.push_back(std::make_unique<TestKernel>("v" + std::to_string(v), [&, v](const belay_exec* exec, auto) -> belay_status {
        for (const auto& [before, after] : pairs)
          if (after == v && ended[before].load() <= ended[v].load()) ++wrong;
        std::atomic<int> tiles{0};
        exec->parallel_for(exec, 5, [](void* arg, uint64_t) { ++*static_cast<std::atomic<int>*>(arg); }, &tiles);
        if (tiles != 5) ++wrong;
        ++ended[v];
        return BELAY_OK;
      }, 20'000 + random(100'000)));
      nodes.push_back({kernels.back().get(), {}, ""});
    }
    const Result<Object> program = create(nodes, 0, &pairs);
    ASSERT_TRUE(program.ok());
    for (int i = 1; i <= 5; ++i) {
      ASSERT_TRUE(launch(*program, s).ok());
      if (i % 2) { ASSERT_TRUE(s.flush().ok()); }
      ASSERT_TRUE(s.synchronize().ok());
      for (uint32_t v = 0; v < count; ++v) ASSERT_EQ(ended[v], i);
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST_F(ProgramTest, AFailureOfOneBranchEndsTheReplayAndTheNextOneWorks) {
  TestStream s = stream();
  std::atomic<bool> fails{true};
  TestKernel branch("branch", [&](const belay_exec* e, auto) {
    return fails ? e->fail(e, BELAY_INTERNAL, to_str("Boom.")) : belay_status{BELAY_OK};
  }, 1'000'000);
  int ended = 0;
  TestKernel last("last", [&](auto, auto) -> belay_status { return ++ended, BELAY_OK; }, 1000);
  const std::vector<std::pair<uint32_t, uint32_t>> pairs = {{0, 2}, {1, 2}};
  const Result<Object> program = create({{&branch, {}, "b1"}, {&branch, {}, "b2"}, {&last, {}, "l"}}, 0, &pairs);
  ASSERT_TRUE(program.ok());
  ASSERT_TRUE(launch(*program, s).ok());
  EXPECT_THAT(s.synchronize().message(), HasSubstr("Boom."));
  EXPECT_EQ(ended, 0);
  ASSERT_TRUE(s.recover().ok());
  fails = false;
  ASSERT_TRUE(launch(*program, s).ok());
  EXPECT_TRUE(s.synchronize().ok());
  EXPECT_EQ(ended, 1);
}

TEST_F(ProgramTest, ManyThreadsLaunchOneProgramOverBuffersOfTheirOwn) {
  const Result<Object> program = create({{&scale, {buffer_arg(0, 0, 400), buffer_arg(1, 0, 400), scalar_arg(3), scalar_arg(100)}, "a"},
                                         {&scale, {buffer_arg(1, 0, 400), buffer_arg(0, 0, 400), scalar_arg(1), scalar_arg(100)}, "b"}},
                                        2);
  ASSERT_TRUE(program.ok());
  std::vector<TestStream> streams;
  for (int i = 0; i < 6; ++i) streams.push_back(stream());
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 100; ++round) {
        std::vector<float> in(100), out(100);
        for (int i = 0; i < 100; ++i) in[size_t(i)] = float(t * 100 + i);
        ASSERT_TRUE(launch(*program, streams[size_t(t)], {bind(in), bind(out)}).ok());
        ASSERT_TRUE(streams[size_t(t)].synchronize().ok());
        for (int i = 0; i < 100; ++i) ASSERT_EQ(in[size_t(i)], 3.f * float(t * 100 + i));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ProgramTest, ACaptureReplaysWhatWasQueued) {
  TestStream s = stream();
  const auto* stream_vt = static_cast<const belay_stream_vt*>(s.get()->table);
  std::vector<float> in = {1, 2, 3, 4}, middle(4), out(4);
  std::atomic<int> calls{0};
  ASSERT_TRUE(s.launch(scale, {0, 0, 0, 0}).ok());
  EXPECT_EQ(host.take(vt().capture_end(s.get(), nullptr)).code(), Code::kFailedPrecondition);
  const Result<Object> inner = create({{&scale, {buffer_arg(0, 0, 16), buffer_arg(1, 0, 16), scalar_arg(10), scalar_arg(4)}, "x"}}, 2);
  ASSERT_TRUE(inner.ok());

  ASSERT_TRUE(host.take(vt().capture_begin(s.get())).ok());
  EXPECT_EQ(host.take(vt().capture_begin(s.get())).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(s.copy(middle.data(), in.data(), 16).ok());
  ASSERT_TRUE(launch(*inner, s, {bind(middle), bind(out)}).ok());
  ASSERT_TRUE(s.launch(scale, {reinterpret_cast<uint64_t>(out.data()), reinterpret_cast<uint64_t>(out.data()), 2, 4}).ok());
  ASSERT_TRUE(s.call([](void* user) { ++*static_cast<std::atomic<int>*>(user); }, &calls).ok());
  ASSERT_TRUE(s.wait({s.id(), 1}).ok());
  TestStream other = stream();
  ASSERT_TRUE(other.launch(scale, {0, 0, 0, 0}).ok());
  EXPECT_THAT(s.wait(other.event()).status().message(), HasSubstr("is recording"));
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  ASSERT_TRUE(host.take(vt().capture_end(s.get(), &made)).ok());
  const Object program = own(made);

  ASSERT_TRUE(s.synchronize().ok());
  EXPECT_EQ(out[0], 0) << "recorded, not run";
  for (int round = 1; round <= 3; ++round) {
    in[3] = float(round);
    ASSERT_TRUE(launch(program, s).ok());
    ASSERT_TRUE(s.synchronize().ok());
    EXPECT_EQ(out, (std::vector<float>{20, 40, 60, 20.f * float(round)}));
    EXPECT_EQ(calls, round);
  }
  (void)stream_vt;
}

}  // namespace
}  // namespace belay::cpu::testing
