#include "hal/operators.h"

#include "hal/operator_request.h"
#include "hal_fixture.h"

#include <belay/graph/verify.hpp>
#include <belay/graph/view.hpp>
#include <belay/operator.hpp>
#include <belay/testing/mock_engine.hpp>

#include <atomic>
#include <chrono>
#include <thread>

namespace belay::hal {
namespace {

using belay::testing::MockContext;
using belay::testing::MockEngine;
using belay::testing::MockExecutable;
using ::testing::ByMove;

// A request made of vectors that live as long as it.
struct Asked {
  explicit Asked(const char* op) {
    req.hdr.struct_size = sizeof req;
    req.op = to_str(op);
  }
  belay_tensor& add(std::vector<int64_t> dims, uint32_t dtype, bool output) {
    Tensor& kept = *tensors.emplace_back(std::make_unique<Tensor>(memory.data(), memory.size(), dtype, dims));
    auto& raw = *raws.emplace_back(std::make_unique<belay_tensor>(kept.raw()));
    (output ? outputs : inputs).push_back(&raw);
    return raw;
  }
  Asked& in(std::vector<int64_t> dims, uint32_t dtype = BELAY_DT_FLOAT32) {
    return add(std::move(dims), dtype, false), *this;
  }
  Asked& out(std::vector<int64_t> dims, uint32_t dtype = BELAY_DT_FLOAT32) {
    return add(std::move(dims), dtype, true), *this;
  }
  const belay_op_req& get() {
    req.inputs = inputs.data(), req.input_count = inputs.size();
    req.outputs = outputs.data(), req.output_count = outputs.size();
    return req;
  }
  belay_op_req req{};
  alignas(64) std::array<char, 4096> memory{};
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<std::unique_ptr<belay_tensor>> raws;
  std::vector<const belay_tensor*> inputs, outputs;
};

class OperatorsTest : public HalTest {
 protected:
  ~OperatorsTest() override { operators_.reset(); }
  void begin(uint64_t capacity = 8, bool with_engine = true) {
    start();
    auto mock = std::make_unique<NiceMock<MockEngine>>(host());
    engine_ = mock.get();
    adopted_ = {BELAY_OBJ_ENGINE, &table_for<MockEngine>(), mock.release()};
    operators_ = std::make_unique<Operators>(
        *hal_, NamedObject{"graph", "graph-plugin", with_engine ? adopted_.get() : nullptr}, nullptr,
        capacity);
  }
  Stream& made_stream() { return static_cast<Stream&>(*stream(device())); }
  void end(Stream& stream) { vt().stream_destroy(host(), &stream); }

  MockEngine* engine_ = nullptr;
  Adopted<belay_engine_vt> adopted_;
  std::unique_ptr<Operators> operators_;
  std::atomic<bool> reached_{false};
  int ended_ = 0;  // executables
};

TEST_F(OperatorsTest, ASignatureIsPreparedOnceAndMemoryIsNoPartOfIt) {
  begin();
  Stream& on = made_stream();
  auto made = std::make_unique<NiceMock<MockExecutable>>(host());
  auto context = std::make_unique<NiceMock<MockContext>>(host());
  EXPECT_CALL(*context, enqueue(&on)).Times(3);
  EXPECT_CALL(*context, set_input(0, _)).Times(3);
  EXPECT_CALL(*context, set_input(1, _)).Times(3);
  EXPECT_CALL(*context, set_output(0, _)).Times(3);
  EXPECT_CALL(*made, context).WillOnce(Return(ByMove(give<MockContext>(std::move(context)))));
  EXPECT_CALL(*engine_, load).WillOnce(Return(ByMove(give<MockExecutable>(std::move(made)))));
  for (int i = 0; i < 3; ++i) {
    Asked add("Add");
    ASSERT_TRUE(operators_->run(on, add.in({2, 3}).in({2, 3}).out({2, 3}).get(), nullptr).ok());
  }
  const belay_op_cache_stats stats = operators_->stats();
  EXPECT_EQ(stats.entries, 1u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.runs, 3u);
  end(on);
}

TEST_F(OperatorsTest, WhatAKernelIsPreparedForIsPartOfTheSignature) {
  const auto signature = [](auto&& change) {
    Asked asked("Op");
    asked.in({2, 3}).in({4}).out({2, 3});
    change(asked);
    return signature_of(asked.get());
  };
  static const int64_t one = 1, two = 2;
  static const belay_op_attribute with_one{
      {sizeof(belay_op_attribute), 0, nullptr}, to_str("axis"), BELAY_ATTR_INT, 0, &one, 1};
  belay_op_attribute with_two = with_one;
  with_two.values = &two;
  const belay_op_attribute* const list_one[] = {&with_one};
  const belay_op_attribute* const list_two[] = {&with_two};
  std::vector<std::string> all = {
      signature([](Asked&) {}),
      signature([](Asked& a) { a.req.op = to_str("Or"); }),
      signature([](Asked& a) { a.req.domain = to_str("com.microsoft"); }),
      signature([](Asked& a) { a.req.version = 11; }),
      signature([&](Asked& a) { a.req.attributes = list_one, a.req.attribute_count = 1; }),
      signature([&](Asked& a) { a.req.attributes = list_two, a.req.attribute_count = 1; }),
      signature([](Asked& a) { a.raws[1]->dtype = BELAY_DT_INT32; }),
      signature([](Asked& a) { a.raws[1]->rank = 0; }),
      signature([](Asked& a) { a.inputs[1] = nullptr; }),
      signature([](Asked& a) { a.inputs.pop_back(); }),
      signature([](Asked& a) { a.out({1}); }),
      signature([](Asked& a) { a.req.constant_inputs = 2; }),
      signature([](Asked& a) { a.req.constant_inputs = 2, a.memory[5] = 7; }),
      signature([](Asked& a) { a.raws[2]->dtype = BELAY_DT_FLOAT64; }),
  };
  EXPECT_EQ(signature([](Asked& a) { a.req.domain = to_str("ai.onnx"); }), all[0]);
  EXPECT_EQ(signature([](Asked& a) { a.req.version = 17; }), all[0]);
  EXPECT_EQ(signature([](Asked& a) { a.memory[5] = 7; }), all[0]);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

TEST_F(OperatorsTest, TheOneUsedLongestAgoGoesAndComesBackAsAMiss) {
  begin(2);
  Stream& on = made_stream();
  EXPECT_CALL(*engine_, load).Times(4);
  const auto run = [&](int64_t size) {
    Asked asked("Relu");
    EXPECT_TRUE(operators_->run(on, asked.in({size}).out({size}).get(), nullptr).ok());
  };
  run(1), run(2), run(1), run(3);  // 2 goes
  EXPECT_EQ(operators_->stats().evictions, 1u);
  run(1);
  run(2);  // 3 goes
  const belay_op_cache_stats stats = operators_->stats();
  EXPECT_EQ(stats.entries, 2u);
  EXPECT_EQ(stats.misses, 4u);
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.evictions, 2u);
  end(on);
}

TEST_F(OperatorsTest, WhatIsEvictedStaysUntilItsQueuedWorkHasEnded) {
  NiceDevice& on_device = add_device("mock");
  NiceStream& mock = next_stream(on_device);
  ON_CALL(mock, query).WillByDefault([&](uint64_t) {
    return reached_ ? Status() : Status(Code::kUnavailable, "");
  });
  begin(1);
  Stream& on = made_stream();
  mock.value = 5;
  EXPECT_CALL(*engine_, load)
      .WillRepeatedly([&](const belay_load_req&) -> Result<std::unique_ptr<MockExecutable>> {
        auto made = std::make_unique<NiceMock<MockExecutable>>(host());
        ON_CALL(*made, died).WillByDefault([this] { ++ended_; });
        return give<MockExecutable>(std::move(made));
      });
  const auto run = [&](int64_t size) {
    Asked asked("Relu");
    EXPECT_TRUE(operators_->run(on, asked.in({size}).out({size}).get(), nullptr).ok());
  };
  run(1), run(2), run(3);
  EXPECT_EQ(operators_->stats().evictions, 2u);
  EXPECT_EQ(ended_, 0);
  reached_ = true;
  run(4);
  EXPECT_GE(ended_, 2);
  end(on);
}

TEST_F(OperatorsTest, AContextOfAnotherStreamIsLeftAloneWhileItsWorkGoesOn) {
  NiceDevice& on_device = add_device("mock");
  NiceStream& busy = next_stream(on_device);
  begin();
  Stream& one = made_stream();
  ON_CALL(busy, query).WillByDefault([](uint64_t) { return Status(Code::kUnavailable, ""); });
  busy.value = 3;
  EXPECT_CALL(on_device, stream_create)
      .WillOnce([&](const belay_stream_req&) -> Result<std::unique_ptr<MockStream>> {
        return give<MockStream>(std::make_unique<NiceStream>(host()));
      });
  Stream& two = made_stream();
  auto made = std::make_unique<NiceMock<MockExecutable>>(host());
  EXPECT_CALL(*made, context).Times(2).WillRepeatedly([&]() -> Result<std::unique_ptr<MockContext>> {
    return give<MockContext>(std::make_unique<NiceMock<MockContext>>(host()));
  });
  EXPECT_CALL(*engine_, load).WillOnce(Return(ByMove(give<MockExecutable>(std::move(made)))));
  for (Stream* on : {&one, &two, &one, &two}) {
    Asked asked("Relu");
    EXPECT_TRUE(operators_->run(*on, asked.in({4}).out({4}).get(), nullptr).ok());
  }
  end(one), end(two);
}

TEST_F(OperatorsTest, WhereTheEngineGivesNoMoreContextsTheOneThatComesBackIsTaken) {
  NiceDevice& on_device = add_device("mock");
  NiceStream& busy = next_stream(on_device);
  begin();
  Stream& one = made_stream();
  ON_CALL(busy, query).WillByDefault([](uint64_t) { return Status(Code::kUnavailable, ""); });
  busy.value = 3;
  EXPECT_CALL(on_device, stream_create)
      .WillOnce([&](const belay_stream_req&) -> Result<std::unique_ptr<MockStream>> {
        return give<MockStream>(std::make_unique<NiceStream>(host()));
      });
  Stream& two = made_stream();
  auto made = std::make_unique<NiceMock<MockExecutable>>(host());
  EXPECT_CALL(*made, context)
      .WillOnce([&]() -> Result<std::unique_ptr<MockContext>> {
        return give<MockContext>(std::make_unique<NiceMock<MockContext>>(host()));
      })
      .WillOnce([]() -> Result<std::unique_ptr<MockContext>> {
        return Status(Code::kResourceExhausted, "All taken.");
      });
  EXPECT_CALL(*engine_, load).WillOnce(Return(ByMove(give<MockExecutable>(std::move(made)))));
  EXPECT_CALL(busy, synchronize(3, BELAY_FOREVER)).Times(::testing::AtLeast(1));  // its memory is free then
  for (Stream* on : {&one, &two}) {
    Asked asked("Relu");
    EXPECT_TRUE(operators_->run(*on, asked.in({4}).out({4}).get(), nullptr).ok());
  }
  end(one), end(two);
}

TEST_F(OperatorsTest, WhereNoContextIsLeftToComeBackNobodyWaitsForOne) {
  begin();
  Stream& on = made_stream();
  auto made = std::make_unique<NiceMock<MockExecutable>>(host());
  const auto none = []() -> Result<std::unique_ptr<MockContext>> {
    return Status(Code::kResourceExhausted, "No memory.");
  };
  EXPECT_CALL(*made, context).WillOnce(none).WillOnce([&]() -> Result<std::unique_ptr<MockContext>> {
    return give<MockContext>(std::make_unique<NiceMock<MockContext>>(host()));
  });
  EXPECT_CALL(*engine_, load).WillOnce(Return(ByMove(give<MockExecutable>(std::move(made)))));
  Asked asked("Relu");
  asked.in({4}).out({4});
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(operators_->run(on, asked.get(), nullptr).code(), Code::kResourceExhausted);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
  EXPECT_TRUE(operators_->run(on, asked.get(), nullptr).ok());
  end(on);
}

TEST_F(OperatorsTest, AFailureToPrepareNamesTheOperatorAndIsNotKept) {
  begin();
  Stream& on = made_stream();
  EXPECT_CALL(*engine_, load)
      .WillOnce(
          Return(ByMove(Result<std::unique_ptr<MockExecutable>>(Status(Code::kUnimplemented, "No kernel.")))))
      .WillOnce([&](const belay_load_req&) {
        return give<MockExecutable>(std::make_unique<NiceMock<MockExecutable>>(host()));
      });
  Asked asked("Frobnicate");
  asked.in({4}).out({4});
  const Status status = operators_->run(on, asked.get(), nullptr);
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_EQ(status.message(), "No kernel. (while preparing operator 'Frobnicate' for 'mock:0')");
  EXPECT_EQ(operators_->stats().entries, 0u);
  EXPECT_TRUE(operators_->run(on, asked.get(), nullptr).ok());
  end(on);
}

TEST_F(OperatorsTest, ThreadsThatWantOneSignaturePrepareItOnce) {
  begin();
  EXPECT_CALL(*engine_, load).WillOnce([&](const belay_load_req&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    auto made = std::make_unique<NiceMock<MockExecutable>>(host());
    return give<MockExecutable>(std::move(made));
  });
  belay_obj* on_device = device();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      belay_obj* own = stream(on_device);
      for (int i = 0; i < 50; ++i) {
        Asked asked("Relu");
        EXPECT_TRUE(operators_->run(static_cast<Stream&>(*own), asked.in({4}).out({4}).get(), nullptr).ok());
      }
      vt().stream_destroy(host(), own);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(operators_->stats().runs, 200u);
}

TEST_F(OperatorsTest, WithoutAnEngineOrItsEnqueueNothingRuns) {
  begin(8, false);
  Stream& on = made_stream();
  Asked asked("Relu");
  const Status status = operators_->run(on, asked.in({4}).out({4}).get(), nullptr);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("[engine] use"));
  end(on);
}

TEST_F(OperatorsTest, ACapturingStreamTakesNone) {
  begin();
  Stream& on = made_stream();
  EXPECT_CALL(*engine_, load).Times(0);
  ASSERT_TRUE(take(vt().capture_begin(host(), &on)).ok());
  Asked asked("Relu");
  const Status status = operators_->run(on, asked.in({4}).out({4}).get(), nullptr);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("the stream is capturing"));
  belay_obj* program = nullptr;
  ASSERT_TRUE(take(vt().capture_end(host(), &on, &program)).ok());
  vt().program_destroy(host(), program);
  end(on);
}

TEST_F(OperatorsTest, OperandsWithStridesGoByWayOfDenseMemory) {
  NiceDevice& on_device = add_device("mock");
  NiceStream& mock = next_stream(on_device);
  begin();
  Stream& on = made_stream();
  auto made = std::make_unique<NiceMock<MockExecutable>>(host());
  auto context = std::make_unique<NiceMock<MockContext>>(host());
  Asked asked("Relu");
  asked.in({2, 3}).out({3, 2});
  const int64_t in_strides[] = {1, 2}, out_strides[] = {1, 3};
  asked.raws[0]->strides = in_strides;
  asked.raws[1]->strides = out_strides;
  asked.raws[1]->data = asked.memory.data() + 1024;
  ::testing::InSequence order;
  EXPECT_CALL(mock, launch).WillOnce([&](const belay_launch_req& req) {  // gathers
    EXPECT_EQ(req.args[1], reinterpret_cast<uint64_t>(asked.memory.data()));
    return Result<uint64_t>(++mock.value);
  });
  EXPECT_CALL(*context, set_input(0, _)).WillOnce([&](uint64_t, const belay_datum* datum) {
    EXPECT_EQ(datum->tensor->strides, nullptr);
    EXPECT_NE(datum->tensor->data, asked.memory.data());
    return Status();
  });
  EXPECT_CALL(*context, set_output(0, _));
  EXPECT_CALL(*context, enqueue(&on));
  EXPECT_CALL(mock, launch).WillOnce([&](const belay_launch_req& req) {  // scatters
    EXPECT_EQ(req.args[0], reinterpret_cast<uint64_t>(asked.memory.data() + 1024));
    return Result<uint64_t>(++mock.value);
  });
  EXPECT_CALL(*made, context).Times(0);
  ::testing::Mock::VerifyAndClearExpectations(made.get());
  ON_CALL(*made, context).WillByDefault([&]() -> Result<std::unique_ptr<MockContext>> {
    return give<MockContext>(std::move(context));
  });
  ON_CALL(*engine_, load).WillByDefault([&](const belay_load_req&) {
    return give<MockExecutable>(std::move(made));
  });
  belay_event event{};
  const Status status = operators_->run(on, asked.get(), &event);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(event.value, 2u);
  end(on);
}

TEST_F(OperatorsTest, BadRequestsAreNamed) {
  begin();
  Stream& on = made_stream();
  const auto refused = [&](auto&& change) {
    Asked asked("Add");
    asked.in({2, 3}).in({2, 3}).out({2, 3});
    change(asked);
    const Status status = operators_->run(on, asked.get(), nullptr);
    EXPECT_FALSE(status.ok());
    return status.message();
  };
  EXPECT_CALL(*engine_, load).Times(::testing::AnyNumber());
  EXPECT_THAT(refused([](Asked& a) {
                a.req.domain = {nullptr, 4};
              }),
              HasSubstr("The domain of operator 'Add' is NULL, but its length is 4"));
  EXPECT_THAT(refused([](Asked& a) { a.req.op = {}; }), HasSubstr("no name"));
  EXPECT_THAT(refused([](Asked& a) { a.raws[1]->rank = 40; }),
              HasSubstr("Input 1 of operator 'Add' has rank 40"));
  EXPECT_THAT(refused([](Asked& a) { a.raws[1]->dims = nullptr; }), HasSubstr("its dims are NULL"));
  static const int64_t negative[] = {2, -3};
  EXPECT_THAT(refused([](Asked& a) { a.raws[0]->dims = negative; }),
              HasSubstr("dims [2,-3]: dim 1 is negative"));
  EXPECT_THAT(refused([](Asked& a) { a.raws[2]->dtype = 99; }),
              HasSubstr("Output 0 of operator 'Add' has element type 99"));
  EXPECT_THAT(refused([](Asked& a) { a.raws[0]->bytes = 20; }),
              HasSubstr("needs 24 bytes; its storage has 20"));
  EXPECT_THAT(refused([](Asked& a) { a.raws[0]->data = nullptr; }),
              HasSubstr("Input 0 of operator 'Add' has no memory"));
  EXPECT_THAT(refused([](Asked& a) { a.raws[0]->data = a.memory.data() + 1; }),
              HasSubstr("not aligned to 4"));
  EXPECT_THAT(refused([](Asked& a) { a.outputs[0] = nullptr; }), HasSubstr("no output that is wanted"));
  EXPECT_THAT(refused([](Asked& a) { a.req.constant_inputs = 8; }),
              HasSubstr("constant_inputs names others"));
  static const int64_t zeros[] = {0, 1};
  EXPECT_THAT(refused([](Asked& a) { a.raws[2]->strides = zeros; }),
              HasSubstr("several elements may lie at one place"));
  static const belay_op_attribute graph{
      {sizeof graph, 0, nullptr}, to_str("body"), BELAY_ATTR_GRAPH, 0, zeros, 1};
  static const belay_op_attribute* const graphs[] = {&graph};
  EXPECT_THAT(refused([](Asked& a) { a.req.attributes = graphs, a.req.attribute_count = 1; }),
              HasSubstr("Attribute 0 of operator 'Add', 'body', is of kind 5"));
  EXPECT_THAT(refused([](Asked& a) { a.req.attribute_count = 3; }), HasSubstr("3 attributes at NULL"));
  end(on);
}

TEST_F(OperatorsTest, AnImageHoldsTheNodeItsConstantsAndItsQuantisation) {
  start();
  float scales[] = {0.5f, 0.25f};
  int8_t zeros[] = {1, 2};
  std::array<char, 64> memory{};
  int64_t axes[] = {1};
  const Tensor image = Tensor(memory.data(), 64, BELAY_DT_INT8, {2, 8})
                           .quantised_along(0, Tensor::of(scales, {2}), Tensor::of(zeros, {2}));
  const Tensor which = Tensor::of(axes, {1}), out(memory.data(), 64, BELAY_DT_FLOAT32, {2});
  const belay_tensor raw_image = image.raw(), raw_which = which.raw(), raw_out = out.raw();
  const belay_tensor* inputs[] = {&raw_image, &raw_which};
  const belay_tensor* outputs[] = {&raw_out};
  const int64_t keep = 0;
  const belay_op_attribute attribute{
      {sizeof attribute, 0, nullptr}, to_str("keepdims"), BELAY_ATTR_INT, 0, &keep, 1};
  const belay_op_attribute* attributes[] = {&attribute};
  belay_op_req req{};
  req.hdr.struct_size = sizeof req;
  req.op = to_str("ReduceSum"), req.domain = to_str("ai.onnx");
  req.attributes = attributes, req.attribute_count = 1;
  req.inputs = inputs, req.input_count = 2;
  req.outputs = outputs, req.output_count = 1;
  req.constant_inputs = 2;
  ASSERT_TRUE(check_operator(*hal_, req).ok()) << check_operator(*hal_, req).status().message();
  const Result<std::string> made = image_of(req);
  ASSERT_TRUE(made.ok()) << made.status().message();
  std::vector<uint64_t> words((made->size() + 7) / 8);
  std::memcpy(words.data(), made->data(), made->size());
  ASSERT_TRUE(graph::verify({words.data(), made->size()}).ok());
  const graph::View view({words.data(), made->size()});
  ASSERT_EQ(view.nodes().size(), 2u);
  EXPECT_EQ(view.node(0).op(), "DequantizeLinear");
  EXPECT_EQ(view.node(0).int_or("axis", -1), 0);
  EXPECT_EQ(view.node(0).inputs().size(), 3u);
  EXPECT_EQ(view.node(1).op(), "ReduceSum");
  EXPECT_EQ(view.node(1).domain(), "");
  EXPECT_EQ(view.node(1).version(), 17u);
  EXPECT_EQ(view.node(1).int_or("keepdims", 7), 0);
  EXPECT_EQ(view.node(1).input(0), view.node(0).output(0));
  EXPECT_EQ(view.dtype(view.node(0).input(0)), BELAY_DT_INT8);
  const auto& graph = view.graphs()[0];
  EXPECT_EQ(view.indices(graph.inputs).size(), 1u);  // the axes are a constant
  EXPECT_EQ(view.indices(graph.outputs).size(), 1u);
}

}  // namespace
}  // namespace belay::hal
