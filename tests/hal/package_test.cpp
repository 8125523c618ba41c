#include "hal_fixture.h"

#include <belay/testing/mock_package.hpp>

namespace belay::hal {
namespace {

using belay::testing::MockNativeModels;
using belay::testing::MockPackage;
using ::testing::ByMove;

class PackageTest : public HalTest {
 protected:
  NiceDevice& add_native() {
    NiceDevice& on = add_device("mock");
    ON_CALL(on, extension).WillByDefault(&MockNativeModels::extension);
    return on;
  }
  Status try_load(const char* kind, belay_obj** out, const std::string& bytes = "compiled") {
    auto req = request<belay_package_req>();
    req.kind = to_str(kind), req.bytes = {bytes.data(), bytes.size()}, req.name = to_str("net.om");
    return take(vt().package_load(host(), device(), &req, out));
  }
  Status launch(belay_obj* package, belay_obj* on, std::vector<belay_binding> bindings,
                belay_event* out = nullptr) {
    return take(vt().package_launch(host(), package, on, bindings.data(), bindings.size(), out));
  }
  NiceMock<MockNativeModels> models_{host()};
};

TEST_F(PackageTest, IsLoadedDescribedAndRunAsOneOperation) {
  add_native();
  start();
  auto mock = std::make_unique<NiceMock<MockPackage>>(host());
  MockPackage& driver = *mock;
  EXPECT_CALL(models_, load).WillOnce([&](const belay_package_req& req) {
    EXPECT_EQ(to_view(req.kind), "om");
    EXPECT_EQ(std::string_view(static_cast<const char*>(req.bytes.ptr), req.bytes.len), "compiled");
    return give<MockPackage>(std::move(mock));
  });
  belay_obj* package = nullptr;
  const Status status = try_load("om", &package);
  ASSERT_TRUE(status.ok()) << status.message();
  auto info = request<belay_package_info>();
  ASSERT_TRUE(take(vt().package_info(host(), package, &info)).ok());
  EXPECT_EQ(info.inputs, 1u);
  EXPECT_CALL(driver, output_info(0, _)).WillOnce([](uint64_t, belay_io_info* io) {
    io->dtype = BELAY_DT_FLOAT16;
    return Status();
  });
  auto io = request<belay_io_info>();
  ASSERT_TRUE(take(vt().package_output_info(host(), package, 0, &io)).ok());
  EXPECT_EQ(io.dtype, BELAY_DT_FLOAT16);
  belay_obj* on = stream(device());
  belay_obj* memory = buffer(device(), 128);
  EXPECT_CALL(driver, launch(on, _, 2)).WillOnce([&](belay_obj*, const belay_binding* bindings, uint64_t) {
    EXPECT_EQ(bindings[0].buffer, memory);
    EXPECT_EQ(bindings[1].offset, 64u);
    return Result<uint64_t>(9);
  });
  belay_event event{};
  EXPECT_TRUE(launch(package, on, {{memory, nullptr, 0, 64}, {memory, nullptr, 64, 64}}, &event).ok());
  EXPECT_EQ(event.value, 9u);
  EXPECT_CALL(driver, died());
  vt().package_destroy(host(), package);
  EXPECT_EQ(launch(package, on, {}).code(), Code::kNotFound);
  vt().stream_destroy(host(), on);
  vt().buffer_destroy(host(), memory);
}

TEST_F(PackageTest, BadLaunchesNeverReachTheDriver) {
  add_native();
  start();
  auto mock = std::make_unique<NiceMock<MockPackage>>(host());
  EXPECT_CALL(*mock, launch).Times(0);
  EXPECT_CALL(models_, load).WillOnce(Return(ByMove(give<MockPackage>(std::move(mock)))));
  belay_obj* package = nullptr;
  ASSERT_TRUE(try_load("om", &package).ok());
  belay_obj* on = stream(device());
  belay_obj* memory = buffer(device(), 128);
  const belay_binding good{memory, nullptr, 0, 64};
  EXPECT_THAT(launch(package, on, {good}).message(),
              HasSubstr("1 bindings were given, want 1 inputs and 1 outputs"));
  EXPECT_THAT(launch(package, on, {good, {memory, nullptr, 100, 64}}).message(),
              AllOf(HasSubstr("binding 1 is bytes 100 + 64"), HasSubstr("'net.om'")));
  EXPECT_EQ(launch(package, on, {good, {memory, nullptr, UINT64_MAX, 64}}).code(), Code::kOutOfRange);
  EXPECT_THAT(launch(package, on, {good, {nullptr, nullptr, 0, 64}}).message(),
              HasSubstr("neither a buffer nor"));
  EXPECT_THAT(launch(package, memory, {good, good}).message(),
              HasSubstr("stream is a buffer, want a stream"));
  EXPECT_EQ(take(vt().package_launch(host(), package, on, nullptr, 2, nullptr)).code(),
            Code::kInvalidArgument);
  auto io = request<belay_io_info>();
  EXPECT_THAT(take(vt().package_input_info(host(), package, 1, &io)).message(),
              HasSubstr("Input 1 of package 'net.om'"));
  ASSERT_TRUE(take(vt().capture_begin(host(), on)).ok());
  EXPECT_EQ(launch(package, on, {good, good}).code(), Code::kFailedPrecondition);
  belay_obj* program = nullptr;
  ASSERT_TRUE(take(vt().capture_end(host(), on, &program)).ok());
  vt().program_destroy(host(), program);
  vt().package_destroy(host(), package);
  vt().stream_destroy(host(), on);
  vt().buffer_destroy(host(), memory);
}

TEST_F(PackageTest, WhatADeviceDoesNotTakeIsNamed) {
  add_native();
  start();
  belay_obj* package = nullptr;
  EXPECT_CALL(models_, load)
      .WillOnce(Return(ByMove(
          Result<std::unique_ptr<MockPackage>>(Status(Code::kDataLoss, "Section 3 ends past the file.")))));
  EXPECT_THAT(try_load("om", &package).message(),
              HasSubstr("Section 3 ends past the file. (while loading package 'net.om' on 'mock:0')"));
  EXPECT_EQ(try_load("trt", &package).code(), Code::kUnimplemented);
  EXPECT_THAT(try_load("trt", &package).message(), HasSubstr("of kind 'trt' on 'mock:0'"));
  EXPECT_EQ(try_load("", &package).code(), Code::kInvalidArgument);
  EXPECT_EQ(try_load("om", &package, "").code(), Code::kInvalidArgument);
}

TEST_F(PackageTest, ADeviceWithoutCompiledModelsSaysSo) {
  start();
  belay_obj* package = nullptr;
  EXPECT_THAT(try_load("om", &package).message(), HasSubstr("takes no compiled models"));
}

TEST_F(PackageTest, WhatIsLeftEndsWithTheRuntimeAndIsLogged) {
  add_native();
  start();
  belay_obj* package = nullptr;
  ASSERT_TRUE(try_load("om", &package).ok());
  hal_.reset();
  EXPECT_THAT(log(), Contains(HasSubstr("A package of 'mock:0' was not destroyed")));
}

}  // namespace
}  // namespace belay::hal
