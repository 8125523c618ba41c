#include "peer.hpp"

#include "text.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include <dlfcn.h>

namespace belay::cli {
namespace fs = std::filesystem;
namespace {

// The library gives one table of functions, to which releases of 1.x only append. What is used, by its place
// there.
enum class Slot : size_t {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSession = 7,
  kCreateSessionFromArray = 8,
  kRun = 9,
  kCreateSessionOptions = 10,
  kCreateTensorAsOrtValue = 48,
  kCreateTensorWithData = 49,
  kGetTensorMutableData = 51,
  kFillStringTensor = 52,
  kGetStringTensorDataLength = 53,
  kGetStringTensorContent = 54,
  kGetTensorElementType = 60,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetTensorTypeAndShape = 65,
  kGetValueType = 67,
  kCreateCpuMemoryInfo = 69,
  kGetAllocatorWithDefaultOptions = 78,
  kReleaseEnv = 92,
  kReleaseStatus = 93,
  kReleaseMemoryInfo = 94,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseTensorTypeAndShapeInfo = 99,
  kReleaseSessionOptions = 100,
  kAddSessionConfigEntry = 130,
};
constexpr uint32_t kApiVersion = 12;  // of the first release that has all of them; later ones give it too
constexpr int kLogErrors = 3, kArenaAllocator = 1, kDefaultMemory = 0, kTypeTensor = 1;

struct ApiBase {
  void* const* (*get_api)(uint32_t version);
  const char* (*version)();
};

class OrtApi {
 public:
  explicit OrtApi(void* const* table) : table_(table) {}

  template <class... Args>
  Status operator()(Slot slot, Args... args) const {
    void* const status = function<void*(Args...)>(slot)(args...);
    if (!status) return {};
    const std::string text = function<const char*(const void*)>(Slot::kGetErrorMessage)(status);
    release(Slot::kReleaseStatus, status);
    return {Code::kInvalidArgument, text};
  }
  void release(Slot slot, void* object) const {
    if (object) function<void(void*)>(slot)(object);
  }

 private:
  template <class F>
  F* function(Slot slot) const {
    return reinterpret_cast<F*>(table_[size_t(slot)]);
  }
  void* const* table_;
};

// An object of the library and the function that ends it.
class Owned {
 public:
  Owned(const OrtApi& api, Slot end) : api_(&api), end_(end) {}
  Owned(Owned&& other) noexcept
      : api_(other.api_), end_(other.end_), object_(std::exchange(other.object_, nullptr)) {}
  ~Owned() { api_->release(end_, object_); }
  void** out() { return &object_; }
  void* get() const { return object_; }

 private:
  const OrtApi* api_;
  Slot end_;
  void* object_ = nullptr;
};

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  return out += char(value);
}
// A length-delimited field of a protobuf message.
std::string field(uint32_t number, const std::string& content) {
  return varint(number << 3 | 2) + varint(content.size()) + content;
}

// A second graph of a ModelProto is merged with the first, so its outputs are appended (field 7 is the graph,
// 12 an output, 1 its name).
std::string with_outputs(std::string model, const std::vector<std::string>& names) {
  std::string outputs;
  for (const std::string& name : names) outputs += field(12, field(1, name));
  return model += field(7, outputs);
}

class OnnxRuntimeSide : public Side {
 public:
  OnnxRuntimeSide(void* const* table, std::string version, std::string path, std::vector<std::string> inputs,
                  std::vector<std::string> outputs)
      : api_(table),
        version_(std::move(version)),
        path_(std::move(path)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)) {}

  Status start() {
    BELAY_TRY(api_(Slot::kCreateEnv, kLogErrors, "belay", env_.out()));
    BELAY_TRY(api_(Slot::kCreateSessionOptions, options_.out()));
    // Side files of a model in memory lie where the model's file lies.
    const std::string folder = fs::absolute(path_).parent_path().string();
    BELAY_TRY(api_(Slot::kAddSessionConfigEntry, options_.get(),
                   "session.model_external_initializers_file_folder_path", folder.c_str()));
    BELAY_TRY(api_(Slot::kCreateCpuMemoryInfo, kArenaAllocator, kDefaultMemory, memory_.out()));
    return api_(Slot::kGetAllocatorWithDefaultOptions, &allocator_);
  }

  std::string title() const override { return "ONNX Runtime " + version_; }
  std::string kernel_of(const std::string&) const override { return {}; }
  bool sees_inside() const override { return false; }

  Result<std::vector<HostDatum>> run(const std::vector<Input>& inputs,
                                     const std::vector<std::string>& extra) override {
    Owned session(api_, Slot::kReleaseSession);
    if (extra.empty()) {
      BELAY_TRY(api_(Slot::kCreateSession, env_.get(), path_.c_str(), options_.get(), session.out()));
    } else {
      BELAY_ASSIGN(const std::string bytes, read_file(path_));
      const std::string model = with_outputs(bytes, extra);
      BELAY_TRY(api_(Slot::kCreateSessionFromArray, env_.get(), static_cast<const void*>(model.data()),
                     model.size(), options_.get(), session.out()));
    }
    std::vector<Owned> given;
    std::vector<const char*> input_names, output_names;
    std::vector<const void*> values;
    for (const Input& input : inputs) {
      BELAY_ASSIGN(Owned value, value_of(input));
      values.push_back(value.get());
      given.push_back(std::move(value));
      input_names.push_back(inputs_[input.index].c_str());
    }
    for (const auto* names : {&outputs_, &extra})
      for (const std::string& name : *names) output_names.push_back(name.c_str());
    std::vector<void*> results(output_names.size());
    const Status status =
        api_(Slot::kRun, session.get(), static_cast<const void*>(nullptr), input_names.data(), values.data(),
             values.size(), output_names.data(), output_names.size(), results.data());
    std::vector<Owned> owned;
    for (void* const result : results) *owned.emplace_back(api_, Slot::kReleaseValue).out() = result;
    BELAY_TRY(status);
    std::vector<HostDatum> out;
    for (const Owned& result : owned) {
      BELAY_ASSIGN(HostTensor tensor, tensor_of(result.get()));
      out.emplace_back(std::move(tensor));
    }
    return out;
  }

 private:
  Result<Owned> value_of(const Input& input) const {
    Owned value(api_, Slot::kReleaseValue);
    if (input.datum.kind != BELAY_TYPE_TENSOR)
      return Status(Code::kUnimplemented, "Input '" + inputs_[input.index] +
                                              "' is no tensor, and only tensors are given to the peer.");
    const HostTensor& tensor = input.datum.tensor;
    const int type = int(tensor.dtype);  // the numbers are those of ONNX on both sides
    if (tensor.dtype == BELAY_DT_STRING) {
      BELAY_TRY(api_(Slot::kCreateTensorAsOrtValue, allocator_, tensor.dims.data(), tensor.dims.size(), type,
                     value.out()));
      std::vector<const char*> texts;
      for (const std::string& text : tensor.strings) texts.push_back(text.c_str());
      BELAY_TRY(api_(Slot::kFillStringTensor, value.get(), texts.data(), texts.size()));
    } else {
      BELAY_TRY(api_(Slot::kCreateTensorWithData, memory_.get(),
                     const_cast<void*>(static_cast<const void*>(tensor.bytes.data())), tensor.bytes.size(),
                     tensor.dims.data(), tensor.dims.size(), type, value.out()));
    }
    return value;
  }

  Result<HostTensor> tensor_of(void* value) const {
    int kind = 0, type = 0;
    size_t rank = 0;
    BELAY_TRY(api_(Slot::kGetValueType, value, &kind));
    if (kind != kTypeTensor)
      return Status(Code::kUnimplemented,
                    "A result is no tensor, and only tensors are compared with the peer.");
    Owned shape(api_, Slot::kReleaseTensorTypeAndShapeInfo);
    BELAY_TRY(api_(Slot::kGetTensorTypeAndShape, value, shape.out()));
    BELAY_TRY(api_(Slot::kGetTensorElementType, shape.get(), &type));
    BELAY_TRY(api_(Slot::kGetDimensionsCount, shape.get(), &rank));
    std::vector<int64_t> dims(rank);
    BELAY_TRY(api_(Slot::kGetDimensions, shape.get(), dims.data(), rank));
    BELAY_ASSIGN(HostTensor out, HostTensor::make(uint32_t(type), dims));
    if (out.dtype != BELAY_DT_STRING) {
      void* bytes = nullptr;
      BELAY_TRY(api_(Slot::kGetTensorMutableData, value, &bytes));
      if (!out.bytes.empty()) std::memcpy(out.bytes.data(), bytes, out.bytes.size());
      return out;
    }
    size_t length = 0;
    BELAY_TRY(api_(Slot::kGetStringTensorDataLength, value, &length));
    std::string text(length, '\0');
    std::vector<size_t> begins(out.strings.size());
    BELAY_TRY(api_(Slot::kGetStringTensorContent, value, static_cast<void*>(text.data()), length,
                   begins.data(), begins.size()));
    for (size_t i = 0; i < begins.size(); ++i)
      out.strings[i] = text.substr(begins[i], (i + 1 < begins.size() ? begins[i + 1] : length) - begins[i]);
    return out;
  }

  const OrtApi api_;
  const std::string version_, path_;
  const std::vector<std::string> inputs_, outputs_;
  Owned env_{api_, Slot::kReleaseEnv}, options_{api_, Slot::kReleaseSessionOptions},
      memory_{api_, Slot::kReleaseMemoryInfo};
  void* allocator_ = nullptr;  // the library's own
};

std::vector<std::string> io_names_of(const std::vector<IoInfo>& infos) {
  std::vector<std::string> names;
  for (const IoInfo& info : infos) names.push_back(info.name);
  return names;
}

}  // namespace

std::unique_ptr<Side> onnxruntime_side(const std::string& path, const std::string& model,
                                       const std::vector<IoInfo>& inputs,
                                       const std::vector<IoInfo>& outputs) {
  const char* const named = std::getenv("BELAY_ORT_LIB");
  std::vector<std::string> places;
  if (!path.empty())
    places = {path};
  else if (named && *named)
    places = {named};
  else
    places = {"libonnxruntime.so.1", "libonnxruntime.so"};
  void* library = nullptr;
  std::string why;
  for (const std::string& place : places) {
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays: it cannot be unloaded
    if (library) break;
    why += (why.empty() ? "" : "; ") + std::string(dlerror());
  }
  if (!library)
    throw Failure{Exit::kInput, "NOT_FOUND", "ONNX Runtime is not found: " + why + ".",
                  "Name its library: --peer-lib /path/libonnxruntime.so.1, or BELAY_ORT_LIB."};
  const auto base = reinterpret_cast<const ApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
  const std::string version = base ? base()->version() : "";
  void* const* const table = version.starts_with("1.") ? base()->get_api(kApiVersion) : nullptr;
  if (!table)
    throw Failure{Exit::kInput, "INVALID_ARGUMENT",
                  base ? "The peer's library is ONNX Runtime " + version + "; want 1.12 or a later 1.x."
                       : "The peer's library has no function OrtGetApiBase, so it is no ONNX Runtime.",
                  ""};
  auto side = std::make_unique<OnnxRuntimeSide>(table, version, model, io_names_of(inputs), io_names_of(outputs));
  if (Status status = side->start(); !status.ok()) fail(Stage::kDevice, status);
  return side;
}

}  // namespace belay::cli
