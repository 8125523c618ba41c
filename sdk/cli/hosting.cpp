#include "hosting.hpp"
#include "text.hpp"

#include <belay/graph/dtype.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>

namespace belay::cli {
namespace fs = std::filesystem;
namespace {

template <class T>
T sized() {
  T value{};
  value.hdr.struct_size = sizeof(T);
  return value;
}

std::vector<belay_str> views(const std::vector<std::string>& texts) {
  std::vector<belay_str> out;
  for (const std::string& text : texts) out.push_back(to_str(text));
  return out;
}

PluginInfo plugin_info(const belay_plugin_info& raw) {
  return {to_string(raw.id),    to_string(raw.version), to_string(raw.file),   to_string(raw.abi),
          to_string(raw.kinds), to_string(raw.state),   to_string(raw.reason), to_string(raw.manifest)};
}

void collect(void* user, const belay_plugin_info* info) {
  static_cast<std::vector<PluginInfo>*>(user)->push_back(plugin_info(*info));
}

}  // namespace

RuntimeRequest::RuntimeRequest(const Common& common, std::vector<std::string> extra_sets) {
  for (const std::string& file : common.configs) {
    if (!fs::exists(look_at(file, Exit::kUsage)))
      fail_usage("There is no configuration file '" + file + "'.", did_you_mean_file(file));
    options_.files.push_back(file);
  }
  for (const std::string& dir : common.plugin_dirs) {
    if (!fs::is_directory(look_at(dir, Exit::kUsage)))
      fail_usage("--plugin-dir '" + dir + "' is no folder.", did_you_mean_file(dir));
    options_.plugin_dirs.push_back(fs::absolute(dir).lexically_normal().string());
  }
  if (common.verbose > 0) options_.sets.push_back(common.verbose > 1 ? "log.level=debug" : "log.level=info");
  if (common.quiet) options_.sets.push_back("log.level=error");
  options_.sets.insert(options_.sets.end(), extra_sets.begin(), extra_sets.end());
  options_.sets.insert(options_.sets.end(), common.sets.begin(), common.sets.end());
  file_views_ = views(options_.files);
  set_views_ = views(options_.sets);
  dir_views_ = views(options_.plugin_dirs);
  req_.hdr.struct_size = sizeof req_;
  req_.files = file_views_.data(), req_.file_count = file_views_.size();
  req_.sets = set_views_.data(), req_.set_count = set_views_.size();
  req_.plugin_dirs = dir_views_.data(), req_.plugin_dir_count = dir_views_.size();
}

Runtime::Runtime(const Common& common, std::vector<std::string> extra_sets) : quiet_(common.quiet) {
  const RuntimeRequest request(common, std::move(extra_sets));
  raw_ = value_or_fail(belay::Runtime::create(request.options()), Stage::kConfigure);
  // Also where the verb has no use for it: a device that is not there is a mistake.
  if (!common.device.empty()) device_id(common.device);
}

Runtime::~Runtime() {
  if (quiet_) return;
  const auto reports = raw_.report();
  if (!reports.ok()) return;
  for (const belay::Runtime::LayerReport& report : *reports) {
    std::istringstream lines(report.text);
    for (std::string line; std::getline(lines, line);)
      std::fprintf(stderr, "belay: layer %s: %s\n", report.layer.c_str(), printable(line).c_str());
  }
}

std::vector<DeviceInfo> Runtime::devices(bool with_heaps) const {
  const belay_hal_vt* const hal = &raw_.hal();
  const belay_host* const host = raw_.host();
  std::vector<DeviceInfo> out;
  for (uint64_t i = 0; i < hal->device_count(host); ++i) {
    DeviceInfo device;
    belay_obj* object = nullptr;
    auto info = sized<belay_device_info>();
    Status status = take(hal->device(host, i, &object));
    if (status.ok()) status = take(hal->device_info(host, object, &info));
    if (!status.ok()) {
      device.id = "#" + std::to_string(i);
      device.problem = status.message();
      out.push_back(std::move(device));
      continue;
    }
    device.driver = to_string(info.driver);
    device.id = device.driver + ":" + std::to_string(info.index);
    device.name = to_string(info.name), device.arch = to_string(info.arch),
    device.features = to_string(info.features);
    device.flags = info.hdr.flags, device.threads = info.threads, device.memory_bytes = info.memory_bytes;
    device.queue_depth = info.queue_depth;
    for (uint64_t h = 0; with_heaps && h < info.heap_count; ++h) {
      auto heap = sized<belay_heap_info>();
      if (take(hal->heap_info(host, object, h, &heap)).ok())
        device.heaps.push_back({heap.heap_class, heap.bytes, heap.free_bytes, heap.alignment});
    }
    out.push_back(std::move(device));
  }
  return out;
}

std::string Runtime::default_device() const {
  const std::vector<DeviceInfo> all = devices(false);
  const uint64_t index = belay_runtime_default_device(raw_.get());
  return index < all.size() ? all[index].id : "";
}

std::vector<PluginInfo> Runtime::plugins() const {
  std::vector<PluginInfo> out;
  check(belay_runtime_plugins(raw_.get(), collect, &out), Stage::kConfigure);
  return out;
}

std::string Runtime::device_id(const std::string& wanted) const {
  if (wanted.empty() || wanted == "auto") return default_device();
  std::vector<std::string> ids;
  for (const DeviceInfo& device : devices(false)) {
    if (!device.problem.empty()) continue;
    if (device.id == wanted || device.driver == wanted) return device.id;
    ids.push_back(device.id);
  }
  std::string near = did_you_mean(wanted, ids);
  throw Failure{Exit::kDevice, "NOT_FOUND",
                "There is no device '" + wanted + "'; there " + (ids.size() == 1 ? "is " : "are ") +
                    (ids.empty() ? "none" : joined(ids)) + ".",
                near.empty() ? "Name one of them, a driver for its first, or 'auto' for the default." : near};
}

HostTensor Runtime::fetch(const belay_tensor& tensor) const {
  if (!tensor.buffer) return value_or_fail(copy_tensor(tensor), Stage::kModel);
  if (tensor.strides)
    fail(Stage::kModel, {Code::kUnimplemented, "Tensors with strides in device memory cannot be fetched."});
  const belay_hal_vt* const hal = &raw_.hal();
  const belay_host* const host = raw_.host();
  HostTensor out = value_or_fail(HostTensor::make(tensor.dtype, {tensor.dims, tensor.rank}), Stage::kModel);
  auto info = sized<belay_hal_buffer_info>();
  check(hal->buffer_info(host, tensor.buffer, &info), Stage::kDevice);
  auto stream_req = sized<belay_hal_stream_req>();
  belay_obj* stream = nullptr;
  check(hal->stream_create(host, info.device, &stream_req, &stream), Stage::kDevice);
  auto copy = sized<belay_copy_req>();
  copy.src = tensor.buffer, copy.src_offset = tensor.offset;
  copy.host_dst = out.bytes.data(), copy.bytes = out.bytes.size();
  belay_event event{};
  Status status = take(hal->copy(host, stream, &copy, &event));
  if (status.ok()) status = take(hal->synchronize(host, event, BELAY_FOREVER));
  hal->stream_destroy(host, stream);
  if (!status.ok()) fail(Stage::kDevice, status);
  return out;
}

HostDatum Runtime::fetch(const belay_datum& datum) const {
  if (datum.kind == BELAY_TYPE_TENSOR && datum.tensor) return HostDatum(fetch(*datum.tensor));
  HostDatum out;
  out.kind = datum.kind;
  for (uint64_t i = 0; i < datum.item_count; ++i) out.items.push_back(fetch(*datum.items[i]));
  return out;
}

std::vector<PluginInfo> find_plugins(const Common& common) {
  std::vector<PluginInfo> out;
  check(belay_plugins_find(RuntimeRequest(common).get(), collect, &out), Stage::kConfigure);
  return out;
}

std::string io_text(const IoInfo& info) {
  const char* const kinds[] = {"?", "", "sequence of ", "optional ", "map of "};
  std::string out = kinds[info.kind <= BELAY_TYPE_MAP ? info.kind : 0] + std::string(dtype_name(info.dtype));
  if (!info.rank_known) return out + (info.kind == BELAY_TYPE_TENSOR ? " [any shape]" : "");
  out += " [";
  for (size_t i = 0; i < info.dims.size(); ++i) {
    if (i) out += ",";
    out += info.dims[i] >= 0         ? std::to_string(info.dims[i])
           : info.symbols[i].empty() ? "?"
                                     : printable(info.symbols[i]);
  }
  return out + "]";
}

void check_model_file(const std::string& path) {
  const fs::file_status status = look_at(path);
  if (!fs::exists(status))
    throw Failure{Exit::kInput, "NOT_FOUND", "There is no file '" + path + "'.", did_you_mean_file(path)};
  if (fs::is_directory(status)) {
    std::error_code error;
    const std::string inside = (fs::path(path) / "model.onnx").string();
    fail_input("'" + path + "' is a folder, want a model's file.",
               fs::exists(inside, error) ? "did you mean '" + inside + "'?" : "");
  }
}

Model::Model(const Runtime& runtime, const std::string& path, const std::string& device) {
  check_model_file(path);
  Result<belay::Model> loaded = runtime.get().load(path, {.device = device});
  const bool lacks = !loaded.ok() && loaded.status().code() == Code::kUnimplemented;
  // No engine, or no format: of the configuration, not of the model.
  if (!loaded.ok() && loaded.status().code() == Code::kFailedPrecondition)
    throw Failure{Exit::kUsage, code_name(Code::kFailedPrecondition), loaded.status().message(), ""};
  raw_ = value_or_fail(std::move(loaded), Stage::kModel,
                       lacks ? "'belay inspect " + path +
                                   "' shows all operators; another device or plugin may have what is missing."
                             : "");
  for (uint64_t i = 0; i < raw_.input_count(); ++i)
    inputs_.push_back(value_or_fail(raw_.input_info(i), Stage::kModel));
  for (uint64_t i = 0; i < raw_.output_count(); ++i)
    outputs_.push_back(value_or_fail(raw_.output_info(i), Stage::kModel));
}

}  // namespace belay::cli
