// The plugin @ID@ as its file is built, called as a host calls it.
#include <belay/abi/engine.h>
#include <belay/graph/builder.hpp>
#include <belay/testing/plugin_file.hpp>

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace {

using belay::Code;
using belay::Status;
using belay::testing::Adopted;
using belay::testing::FakeHost;
using belay::testing::PluginFile;

std::vector<uint64_t> chain_of(const std::vector<const char*>& ops, const std::vector<int64_t>& dims) {
  belay::graph::Builder graph;
  const uint32_t type = graph.tensor_type(BELAY_DT_FLOAT32, dims);
  uint32_t last = graph.add_value(0, "x", type);
  graph.add_input(0, last);
  for (const char* op : ops) {
    const uint32_t next = graph.add_value(0, "y", BELAY_NONE);
    graph.add_node(0, "", op, 14, "first", std::vector{last}, std::vector{next});
    last = next;
  }
  graph.add_output(0, last);
  const std::string image = graph.freeze().value();
  std::vector<uint64_t> words((image.size() + 7) / 8);  // an image is aligned to 8 bytes
  std::memcpy(words.data(), image.data(), image.size());
  return words;
}

class Engine : public testing::Test {
 protected:
  Status load(const std::vector<const char*>& ops, const std::vector<int64_t>& dims) {
    const std::vector<uint64_t> image = chain_of(ops, dims);
    belay_load_req req{};
    req.hdr.struct_size = sizeof req;
    req.image = {image.data(), image.size() * 8}, req.name = belay::to_str("chain");
    belay_created made{};
    made.hdr.struct_size = sizeof made;
    const Status status = host.take(engine->load(engine, &req, &made));
    if (status.ok()) model = plugin.adopt<belay_executable_vt>(belay::shape::kExecutable, made);
    return status;
  }
  Adopted<belay_context_vt> context() {
    belay_created made{};
    made.hdr.struct_size = sizeof made;
    EXPECT_EQ(model->context(model, &made), BELAY_OK);
    return plugin.adopt<belay_context_vt>(belay::shape::kContext, made);
  }
  static belay_tensor tensor(float* data, const std::vector<int64_t>& dims,
                             const int64_t* strides = nullptr) {
    belay_tensor out{};
    out.hdr.struct_size = sizeof out;
    out.dtype = BELAY_DT_FLOAT32, out.rank = uint32_t(dims.size()), out.dims = dims.data(), out.data = data;
    out.strides = strides;
    return out;
  }
  static belay_datum datum(const belay_tensor& tensor) {
    return {{sizeof(belay_datum), 0, nullptr}, BELAY_TYPE_TENSOR, 0, &tensor, nullptr, 0};
  }

  FakeHost host;
  PluginFile plugin{host, BELAY_PLUGIN_FILE};
  Adopted<belay_engine_vt> engine = plugin.make<belay_engine_vt>(BELAY_ENGINE_KIND);
  Adopted<belay_executable_vt> model;
};

TEST_F(Engine, RunsAChainAndWritesWhereItIsAskedTo) {
  ASSERT_TRUE(load({"Relu", "Relu"}, {-1, 2}).ok());
  ASSERT_EQ(model->input_count(model), 1u);
  belay_io_info info{};
  info.hdr.struct_size = sizeof info;
  ASSERT_EQ(model->input_info(model, 0, &info), BELAY_OK);
  EXPECT_EQ(belay::to_view(info.name), "x");
  EXPECT_EQ(info.rank, 2u);
  EXPECT_EQ(info.dims[0], -1);

  const auto run = context();
  float x[]{1, -2, -3, 4}, mine[4]{};
  const std::vector<int64_t> dims{2, 2};
  const int64_t turned[]{1, 2};  // the other order of the same memory
  const belay_tensor in = tensor(x, dims, turned), out = tensor(mine, dims);
  const belay_datum given = datum(in);
  EXPECT_EQ(host.take(run->run(run)).code(), Code::kFailedPrecondition);  // no input yet
  ASSERT_EQ(run->set_input(run, 0, &given), BELAY_OK);
  ASSERT_EQ(run->set_output(run, 0, &out), BELAY_OK);
  ASSERT_EQ(run->run(run), BELAY_OK);
  const belay_datum* result = nullptr;
  ASSERT_EQ(run->output(run, 0, &result), BELAY_OK);
  const float* y = static_cast<const float*>(result->tensor->data);
  const float expected[]{1, 0, 0, 4};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(y[i], expected[i]) << i;
    EXPECT_EQ(mine[i], expected[i]) << i;
  }

  belay_io_memory moved{};
  moved.hdr.struct_size = sizeof moved;
  EXPECT_EQ(run->input_memory(run, 0, &moved), BELAY_OK);
  EXPECT_EQ(moved.copied_bytes, sizeof x);
  EXPECT_EQ(belay::to_view(moved.reason), "it is not dense");

  x[0] = 9;  // lent, so the next run reads what is there then
  belay_status ended = BELAY_UNKNOWN;
  const belay_completion done{
      &ended, [](void* user, belay_status status) noexcept { *static_cast<belay_status*>(user) = status; }};
  EXPECT_EQ(run->run_async(run, done), BELAY_DEFERRED);
  host.run_all();
  EXPECT_EQ(ended, BELAY_OK);
  EXPECT_EQ(mine[0], 9);
  belay_executable_stats stats{};
  stats.hdr.struct_size = sizeof stats;
  EXPECT_EQ(model->stats(model, &stats), BELAY_OK);
  EXPECT_EQ(stats.runs, 2u);
  EXPECT_EQ(stats.kernels, 2u);
}

TEST_F(Engine, NamesWhatItDoesNotRun) {
  const Status status = load({"Relu", "Tanh"}, {2});
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_NE(status.message().find("Tanh-14"), std::string::npos) << status.message();
}

TEST_F(Engine, RefusesInputsThatDoNotFit) {
  ASSERT_TRUE(load({"Relu"}, {-1, 2}).ok());
  const auto run = context();
  float x[3]{};
  const std::vector<int64_t> dims{1, 3};
  belay_tensor in = tensor(x, dims);
  const belay_datum given = datum(in);
  const Status shape = host.take(run->set_input(run, 0, &given));
  EXPECT_EQ(shape.code(), Code::kInvalidArgument);
  EXPECT_NE(shape.message().find("[1x3], want [?x2]"), std::string::npos) << shape.message();
  in.dtype = BELAY_DT_INT8;
  EXPECT_NE(host.take(run->set_input(run, 0, &given)).message().find("int8"), std::string::npos);
  EXPECT_EQ(host.take(run->set_input(run, 1, &given)).code(), Code::kOutOfRange);
}

TEST_F(Engine, BoundsItsContexts) {
  ASSERT_TRUE(load({"Relu"}, {2}).ok());
  std::vector<Adopted<belay_context_vt>> all;
  for (int i = 0; i < 16; ++i) all.push_back(context());
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  EXPECT_EQ(host.take(model->context(model, &made)).code(), Code::kResourceExhausted);
  all.pop_back();
  all.push_back(context());
}

}  // namespace
