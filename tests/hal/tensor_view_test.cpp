#include "hal/tensor_view.h"

#include "hal_fixture.h"

#include <belay/tensor.hpp>

#include <cstring>
#include <random>

namespace belay::hal {
namespace {

// Runs what is launched or copied at once.
class TensorViewTest : public HalTest {
 protected:
  TensorViewTest() {
    NiceDevice& on = add_device("mock");
    NiceStream& mock = next_stream(on);
    ON_CALL(mock, launch).WillByDefault([&mock](const belay_launch_req& req) {
      belay_exec exec{};
      exec.hdr.struct_size = sizeof exec;
      exec.parallel_for = [](const belay_exec*, uint64_t count, void (*body)(void*, uint64_t), void* arg) {
        for (uint64_t i = count; i-- > 0;) body(arg, i);
      };
      EXPECT_EQ(req.kernel->fn(&exec, req.kernel->state, req.args), BELAY_OK);
      return Result<uint64_t>(++mock.value);
    });
    ON_CALL(mock, copy).WillByDefault([&mock](const belay_copy_req& req) {
      std::memcpy(req.host_dst, req.host_src, req.bytes);
      return Result<uint64_t>(++mock.value);
    });
    start();
    stream_ = static_cast<Stream*>(stream(device()));
  }
  ~TensorViewTest() override { vt().stream_destroy(host(), stream_); }
  Status copy(const Tensor& to, const Tensor& from) {
    const belay_tensor raw_to = to.raw(), raw_from = from.raw();
    belay_event event{};
    return take(copy_tensor(*stream_, &raw_to, &raw_from, &event));
  }
  static Status checked(const Tensor& tensor) {
    const belay_tensor raw = tensor.raw();
    return view_of(&raw, "T").status();
  }
  Stream* stream_ = nullptr;
};

TEST_F(TensorViewTest, AViewReadsWhatItsStridesSay) {
  int32_t from[24], to[6] = {};
  for (int i = 0; i < 24; ++i) from[i] = i;
  const Tensor whole = Tensor::of(from, {2, 3, 4});
  const Tensor part = whole.select(0, 1)->slice(1, 1, 4, 2)->permute({1, 0}).value();  // [2,3]
  EXPECT_EQ(part.dims(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(part.strides(), (std::vector<int64_t>{2, 4}));
  const Status status = copy(Tensor::of(to, {2, 3}), part);
  ASSERT_TRUE(status.ok()) << status.message();
  const int32_t expected[] = {13, 17, 21, 15, 19, 23};
  EXPECT_EQ(std::memcmp(to, expected, sizeof to), 0);
  ASSERT_TRUE(copy(Tensor::of(to, {6}), whole.select(1, 2)->select(0, 0)->slice(0, 0, 1)->reverse(0).value())
                  .code() == Code::kInvalidArgument);  // other dims
  int32_t four[4] = {};
  ASSERT_TRUE(copy(Tensor::of(four, {4}), whole.select(0, 0)->select(0, 2)->reverse(0).value()).ok());
  EXPECT_EQ(four[0], 11);
  EXPECT_EQ(four[3], 8);
}

// Against indices worked out one by one.
TEST_F(TensorViewTest, CopiesAgreeWithIndexArithmetic) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint16_t> from(4096), to(4096, 0xffff), expected;
    for (auto& element : from) element = uint16_t(random());
    expected = to;
    const size_t rank = random() % 5;
    std::vector<int64_t> dims(rank), in(rank), out(rank);
    int64_t step = 1, begin = 0;
    for (size_t i = rank; i-- > 0;) {
      dims[i] = 1 + int64_t(random() % 5);
      out[i] = step + int64_t(random() % 2);
      step = out[i] * dims[i];
      in[i] = int64_t(random() % 41) - 20;
      if (in[i] < 0) begin -= in[i] * (dims[i] - 1);
    }
    const auto raw = [&](std::vector<uint16_t>& elements, const std::vector<int64_t>& strides,
                         int64_t first) {
      belay_tensor tensor = request<belay_tensor>();
      tensor.dtype = BELAY_DT_UINT16, tensor.rank = uint32_t(rank);
      tensor.dims = dims.data(), tensor.strides = strides.data();
      tensor.data = elements.data() + first;
      return tensor;
    };
    const belay_tensor source = raw(from, in, begin), target = raw(to, out, 0);
    std::vector<int64_t> at(rank);
    for (;;) {
      int64_t reads = begin, writes = 0;
      for (size_t i = 0; i < rank; ++i) reads += at[i] * in[i], writes += at[i] * out[i];
      expected[size_t(writes)] = from[size_t(reads)];
      size_t axis = rank;
      while (axis > 0 && ++at[axis - 1] == dims[axis - 1]) at[--axis] = 0;
      if (axis == 0) break;
    }
    const Status status = take(copy_tensor(*stream_, &target, &source, nullptr));
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(to, expected) << "round " << round;
  }
}

// A copy reads bytes, so that any address will do.
TEST_F(TensorViewTest, PluginsCopyFromAnyAddress) {
  std::vector<char> bytes(25);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(i);
  const int64_t dims[] = {2, 3}, columns[] = {1, 2};
  for (const int64_t* strides : {static_cast<const int64_t*>(nullptr), columns}) {
    belay_tensor from = request<belay_tensor>();
    from.dtype = BELAY_DT_FLOAT32, from.rank = 2, from.dims = dims, from.strides = strides;
    from.data = bytes.data() + 1;
    float got[6] = {};
    belay_tensor to = from;
    to.strides = nullptr, to.data = got;
    const Status status = take(vt().tensor_copy(host(), stream_, &to, &from, nullptr));
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < 6; ++i) {
      const size_t at = strides ? i / 3 + i % 3 * 2 : i;
      EXPECT_EQ(std::memcmp(got + i, bytes.data() + 1 + 4 * at, 4), 0) << i;
    }
  }
}

TEST_F(TensorViewTest, BadNumbersAreNamed) {
  float data[24] = {};
  const Tensor good = Tensor::of(data, {4, 6});
  EXPECT_TRUE(checked(good).ok());
  belay_tensor raw = good.raw();
  const auto refused = [&](auto&& change) {
    raw = good.raw();
    change();
    return view_of(&raw, "T").status();
  };
  const int64_t huge[] = {INT64_MAX / 2, INT64_MAX / 2}, far[] = {INT64_MAX / 8, 1}, wide[] = {7, 1};
  EXPECT_EQ(refused([&] { raw.dims = huge; }).code(), Code::kOutOfRange);
  EXPECT_THAT(refused([&] { raw.strides = far; }).message(), HasSubstr("reach further than 63 bits count"));
  EXPECT_THAT(refused([&] { raw.strides = wide; }).message(),
              HasSubstr("T is float32[4,6] with strides [7,1], which needs 108 bytes; its storage has 96."));
  EXPECT_THAT(refused([&] { raw.hdr.struct_size = 20; }).message(), HasSubstr("struct_size 20"));
  EXPECT_EQ(view_of(nullptr, "T").status().message(), "T is NULL, want a tensor.");
  EXPECT_EQ(refused([&] { raw.dtype = BELAY_DT_STRING; }).code(), Code::kUnimplemented);
  EXPECT_THAT(refused([&] { raw.dtype = BELAY_DT_INT4, raw.strides = wide; }).message(),
              HasSubstr("less than a byte"));
  // An older caller's tensor ends before the quantisation.
  EXPECT_TRUE(refused([&] { raw.hdr.struct_size = offsetof(belay_tensor, quant); }).ok());
}

TEST_F(TensorViewTest, MemoryIsChecked) {
  float data[8] = {}, other[8] = {};
  const Tensor one = Tensor::of(data, {8});
  EXPECT_THAT(copy(one, one).message(), HasSubstr("overlap in memory"));
  EXPECT_THAT(copy(one.slice(0, 0, 4).value(), one.slice(0, 3, 7).value()).message(), HasSubstr("overlap"));
  EXPECT_THAT(copy(Tensor::of(other, {4, 2}), one).message(),
              HasSubstr("float32[4,2] and the source float32[8]"));
  EXPECT_THAT(copy(Tensor(nullptr, 0, BELAY_DT_FLOAT32, {8}), one).message(), HasSubstr("has no memory"));
  EXPECT_TRUE(
      copy(Tensor(nullptr, 0, BELAY_DT_FLOAT32, {0}), Tensor(nullptr, 0, BELAY_DT_FLOAT32, {0})).ok());
  belay_obj* memory = buffer(device(), 64);
  EXPECT_TRUE(copy(Tensor::in(memory, 64, 32, BELAY_DT_FLOAT32, {8}), one).ok());
  EXPECT_THAT(copy(Tensor::in(memory, 1000, 36, BELAY_DT_FLOAT32, {8}), one).message(),
              HasSubstr("at offset 36 and touches bytes 0 to 32 from there; they are not inside its buffer, which has 64 bytes"));
  EXPECT_THAT(copy(Tensor::in(memory, 0, UINT64_MAX - 3, BELAY_DT_FLOAT32, {8}), one).message(),
              HasSubstr("its buffer, which has 64 bytes"));
  const Tensor backwards = Tensor::in(memory, 64, 0, BELAY_DT_FLOAT32, {8}).reverse(0).value();
  EXPECT_TRUE(copy(one, backwards).ok());
  belay_tensor before = backwards.raw();
  before.offset = 4;  // seven elements before it there are not
  const belay_tensor target = one.raw();
  EXPECT_THAT(take(copy_tensor(*stream_, &target, &before, nullptr)).message(),
              HasSubstr("touches bytes -28 to 4"));
  vt().buffer_destroy(host(), memory);
  EXPECT_EQ(copy(one, backwards).code(), Code::kNotFound);
}

TEST_F(TensorViewTest, QuantisationFitsItsTensor) {
  int8_t stored[12] = {}, zeros[4] = {};
  float scales[6] = {1, 2, 3, 4, 5, 6}, bad[] = {0};
  const Tensor whole = Tensor::of(stored, {3, 4});
  EXPECT_TRUE(checked(whole.quantised(Tensor(scales, 4, BELAY_DT_FLOAT32, {}), Tensor())).ok());
  EXPECT_TRUE(
      checked(whole.quantised_along(1, Tensor(scales, 16, BELAY_DT_FLOAT32, {4}), Tensor::of(zeros, {4})))
          .ok());
  EXPECT_TRUE(checked(whole.quantised_in_blocks(1, 3, Tensor::of(scales, {3, 2}), Tensor())).ok());
  const auto message = [&](const Tensor& tensor) { return checked(tensor).message(); };
  EXPECT_THAT(message(whole.quantised_along(2, Tensor::of(scales, {6}), Tensor())),
              HasSubstr("along axis 2, want 0 to 1"));
  EXPECT_THAT(message(whole.quantised_along(1, Tensor::of(scales, {6}), Tensor())),
              HasSubstr("The scale of T has dims [6], want [4]"));
  EXPECT_THAT(message(whole.quantised_in_blocks(1, 0, Tensor::of(scales, {3, 2}), Tensor())),
              HasSubstr("in blocks of 0"));
  EXPECT_THAT(message(whole.quantised(Tensor::of(bad, {1}), Tensor())),
              HasSubstr("want one that is finite and not 0"));
  // Every type of scale: 0, infinity, NaN, and the least and largest that are good.
  for (const uint16_t bits : {0x0000, 0x8000, 0x7c00, 0xfc00, 0x7e00, 0x0001, 0x7bff})
    EXPECT_EQ(checked(whole.quantised(Tensor(const_cast<uint16_t*>(&bits), 2, BELAY_DT_FLOAT16, {}), Tensor())).ok(),
              bits == 0x0001 || bits == 0x7bff)
        << bits;
  for (const uint16_t bits : {0x0000, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x0001, 0x7f7f})
    EXPECT_EQ(checked(whole.quantised(Tensor(const_cast<uint16_t*>(&bits), 2, BELAY_DT_BFLOAT16, {}), Tensor())).ok(),
              bits == 0x0001 || bits == 0x7f7f)
        << bits;
  uint8_t other[] = {1};
  EXPECT_THAT(message(whole.quantised(Tensor(scales, 4, BELAY_DT_FLOAT32, {}), Tensor::of(other, {1}))),
              HasSubstr("is of int8 and its zero point of uint8"));
  EXPECT_EQ(whole.quantised_along(0, Tensor::of(scales, {6}), Tensor()).slice(0, 0, 1).status().code(),
            Code::kUnimplemented);
}

TEST_F(TensorViewTest, AScaleThatLeadsBackToItselfIsRefused) {
  int8_t stored[4] = {};
  float one = 1;
  belay_tensor scale = Tensor(&one, 4, BELAY_DT_FLOAT32, {}).raw(), tensor = request<belay_tensor>();
  const int64_t dims[] = {4};
  tensor.dtype = BELAY_DT_INT8, tensor.rank = 1, tensor.dims = dims, tensor.data = stored;
  belay_quant quant = request<belay_quant>();
  quant.kind = BELAY_QUANT_TENSOR;
  quant.scale = &scale;
  tensor.quant = scale.quant = &quant;
  EXPECT_EQ(view_of(&tensor, "T").status().message(), "The scale of T is quantised itself.");
  scale.quant = nullptr;
  EXPECT_TRUE(view_of(&tensor, "T").ok());
  quant.zero_point = &tensor;
  EXPECT_EQ(view_of(&tensor, "T").status().message(), "The zero point of T is quantised itself.");
}

}  // namespace
}  // namespace belay::hal
