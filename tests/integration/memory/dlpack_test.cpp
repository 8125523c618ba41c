// Tensors for other array libraries and from them; dlpack_test.py has NumPy as one of those.
#include <belay/runtime.hpp>
#include <dlpack/dlpack.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace {

using belay::Code;
using belay::Dlpack;
using belay::Status;
using belay::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A tensor of a library of one's own, whose deleter counts.
struct Foreign : DLManagedTensor {
  std::array<float, 12> data{};
  std::array<int64_t, 2> dims{3, 4}, steps{4, 1};
  int deleted = 0;
  Foreign() : DLManagedTensor{} {
    for (size_t i = 0; i < 12; ++i) data[i] = float(i);
    dl_tensor = {data.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, dims.data(), steps.data(), 0};
    manager_ctx = this;
    deleter = [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
  }
};

TEST(DlpackTest, AForeignTensorIsSeenWhereItLiesAndEndsOnce) {
  Foreign foreign;
  {
    auto taken = Dlpack::take(&foreign);
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    const Dlpack moved = std::move(taken).value();
    EXPECT_EQ(moved.tensor().data(), foreign.data.data());
    EXPECT_EQ(moved.tensor().dims(), (std::vector<int64_t>{3, 4}));
    EXPECT_TRUE(moved.tensor().strides().empty());  // they are those of dense elements
    EXPECT_EQ(moved.tensor().bytes(), 48u);
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DlpackTest, StridesOffsetsAndPinnedMemoryAreTaken) {
  Foreign foreign;
  foreign.dims = {4, 3}, foreign.steps = {1, 4};
  foreign.dl_tensor.byte_offset = 0;
  foreign.dl_tensor.device = {kDLCUDAHost, 0};
  belay_tensor raw{};
  raw.hdr.struct_size = sizeof raw;
  ASSERT_EQ(belay_tensor_from_dlpack(&foreign, &raw), BELAY_OK);
  ASSERT_TRUE(raw.strides);
  EXPECT_EQ(raw.strides[1], 4);
  foreign.dims = {2, 2}, foreign.steps = {4, 1}, foreign.dl_tensor.byte_offset = 20;  // the corner at [1, 1]
  ASSERT_EQ(belay_tensor_from_dlpack(&foreign, &raw), BELAY_OK);
  EXPECT_EQ(*static_cast<float*>(raw.data), 5.0f);
  foreign.dl_tensor.strides = nullptr;  // dense
  ASSERT_EQ(belay_tensor_from_dlpack(&foreign, &raw), BELAY_OK);
  EXPECT_EQ(raw.strides, nullptr);
  EXPECT_EQ(foreign.deleted, 0);  // a look takes nothing
}

TEST(DlpackTest, WhatCannotBeNamesTheFieldAndItsValueAndEndsOnceToo) {
  int tried = 0;
  const auto refused = [&](auto change) {
    Foreign foreign;
    change(foreign);
    const Status status = Dlpack::take(&foreign).status();
    EXPECT_EQ(foreign.deleted, 1) << status.message();
    EXPECT_FALSE(status.ok());
    ++tried;
    return status.message();
  };
  EXPECT_THAT(refused([](Foreign& f) { f.dl_tensor.ndim = -1; }), HasSubstr("ndim -1, want 0 to 32"));
  EXPECT_THAT(refused([](Foreign& f) { f.dl_tensor.ndim = 33; }), HasSubstr("ndim 33"));
  EXPECT_THAT(refused([](Foreign& f) { f.dl_tensor.shape = nullptr; }), HasSubstr("its shape is NULL"));
  EXPECT_THAT(refused([](Foreign& f) { f.dims[1] = -4; }), HasSubstr("dims [3,-4]: dim 1 is negative"));
  EXPECT_THAT(refused([](Foreign& f) { f.dl_tensor.data = nullptr; }), HasSubstr("data NULL and 12 elements"));
  EXPECT_THAT(refused([](Foreign& f) { f.dl_tensor.dtype.lanes = 4; }), HasSubstr("dtype.lanes 4, want 1"));
  EXPECT_THAT(refused([](Foreign& f) { f.dl_tensor.dtype.code = kDLOpaqueHandle; }),
              HasSubstr("dtype.code 3 with dtype.bits 32"));
  EXPECT_THAT(refused([](Foreign& f) { f.dl_tensor.dtype.bits = 7; }), HasSubstr("dtype.bits 7"));
  EXPECT_THAT(refused([](Foreign& f) { f.dl_tensor.device.device_type = kDLCUDA; }),
              HasSubstr("device.device_type 2, want memory of the host"));
  EXPECT_THAT(refused([](Foreign& f) { f.dl_tensor.byte_offset = ~uint64_t{0}; }),
              HasSubstr("byte_offset 18446744073709551615"));
  EXPECT_THAT(refused([](Foreign& f) { f.steps = {INT64_MAX, 1}; }), HasSubstr("further than 63 bits"));
  EXPECT_EQ(tried, 11);
  EXPECT_EQ(Dlpack::take(nullptr).status().code(), Code::kInvalidArgument);
  Foreign without;
  without.deleter = nullptr;
  EXPECT_TRUE(Dlpack::take(&without).ok());
}

TEST(DlpackTest, ATensorIsLentUntilItsDeleterIsCalled) {
  std::vector<int16_t> elements(24);
  auto keep = std::make_shared<int>(1);
  const Tensor view = Tensor::of(elements, {2, 3, 4}).permute({2, 0, 1})->slice(1, 1, 2).value();
  DLManagedTensor* managed = belay::to_dlpack(view, keep).value();
  EXPECT_EQ(keep.use_count(), 2);
  const DLTensor& lent = managed->dl_tensor;
  EXPECT_EQ(lent.data, elements.data() + 12);
  EXPECT_EQ(lent.ndim, 3);
  EXPECT_EQ(lent.dtype.code, kDLInt);
  EXPECT_EQ(lent.dtype.bits, 16);
  EXPECT_EQ(lent.dtype.lanes, 1);
  EXPECT_EQ(lent.device.device_type, kDLCPU);
  EXPECT_EQ((std::vector<int64_t>(lent.shape, lent.shape + 3)), (std::vector<int64_t>{4, 1, 3}));
  EXPECT_EQ((std::vector<int64_t>(lent.strides, lent.strides + 3)), (std::vector<int64_t>{1, 12, 4}));
  managed->deleter(managed);
  EXPECT_EQ(keep.use_count(), 1);
}

TEST(DlpackTest, EveryTypeThatBothKnowComesBack) {
  std::array<char, 64> bytes{};
  int known = 0;
  for (uint32_t dtype = 0; dtype < 80; ++dtype) {
    const Tensor tensor(bytes.data(), bytes.size(), dtype, {2, 2});
    const auto managed = belay::to_dlpack(tensor);
    if (!managed.ok()) continue;
    ++known;
    auto back = Dlpack::take(*managed);
    ASSERT_TRUE(back.ok()) << dtype << ": " << back.status().message();
    EXPECT_EQ(back->tensor().dtype(), dtype);
    EXPECT_EQ(back->tensor().dims(), tensor.dims());
    EXPECT_EQ(back->tensor().data(), bytes.data());
  }
  EXPECT_EQ(known, 29);
}

TEST(DlpackTest, WhatCannotBeLentTakesNothing) {
  std::array<float, 4> data{};
  auto keep = std::make_shared<int>(1);
  const auto refused = [&](const Tensor& tensor) {
    const Status status = belay::to_dlpack(tensor, keep).status();
    EXPECT_EQ(keep.use_count(), 1);
    return status.message();
  };
  EXPECT_THAT(refused(Tensor(data.data(), 16, BELAY_DT_STRING, {1})), HasSubstr("string"));
  EXPECT_THAT(refused(Tensor(data.data(), 16, BELAY_DT_HIFLOAT8, {4})), HasSubstr("hifloat8, which DLPack does not have"));
  EXPECT_THAT(refused(Tensor(nullptr, 16, BELAY_DT_FLOAT32, {4})), HasSubstr("no memory"));
  EXPECT_THAT(refused(Tensor(data.data(), 12, BELAY_DT_FLOAT32, {4})), HasSubstr("its storage has 12"));
  float one = 1;
  EXPECT_THAT(refused(Tensor(data.data(), 4, BELAY_DT_INT8, {4}).quantised(Tensor(&one, 4, BELAY_DT_FLOAT32, {}), Tensor())),
              HasSubstr("quantised"));
}

TEST(DlpackTest, NoElementsNeedNoMemory) {
  auto keep = std::make_shared<int>(1);
  DLManagedTensor* empty = belay::to_dlpack(Tensor(nullptr, 0, BELAY_DT_FLOAT32, {0, 3}), keep).value();
  EXPECT_EQ(empty->dl_tensor.data, nullptr);
  EXPECT_EQ(keep.use_count(), 2);
  belay_dlpack_delete(empty);
  EXPECT_EQ(keep.use_count(), 1);
}

TEST(DlpackTest, ABufferOfADeviceIsLent) {
  auto made = belay::Runtime::create({.sets = {"log.level=error"}, .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
  ASSERT_TRUE(made.ok()) << made.status().message();
  belay::Runtime runtime = std::move(made).value();
  belay::Buffer buffer = runtime.default_device()->alloc(64).value();
  DLManagedTensor* managed = belay::to_dlpack(buffer.tensor(BELAY_DT_FLOAT32, {4}, 16)).value();
  EXPECT_EQ(managed->dl_tensor.data, static_cast<char*>(buffer.host()) + 16);
  belay_dlpack_delete(managed);
  EXPECT_THAT(belay::to_dlpack(buffer.tensor(BELAY_DT_FLOAT32, {13}, 16)).status().message(), HasSubstr("its storage has 48"));
}

}  // namespace
