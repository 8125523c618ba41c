#include "hal/package.h"

#include "hal/hal.h"

namespace belay::hal {

Status Package::prepare() {
  info_.hdr.struct_size = sizeof info_;
  return hal->take(vt().info(this, &info_), device_.driver(), "native_model.info");
}

belay_status Package::io(bool output, uint64_t index, belay_io_info* inout) {
  const uint64_t count = output ? info_.outputs : info_.inputs;
  if (index >= count)
    return hal->make({Code::kOutOfRange, std::string(output ? "Output " : "Input ") + std::to_string(index) +
                                             " of package '" + name_ + "': there are " +
                                             std::to_string(count) + "."});
  return hal->pass((output ? vt().output_info : vt().input_info)(this, index, inout), device_.driver(),
                   "native_model.io");
}

belay_status Package::launch(Stream& stream, const belay_binding* bindings, uint64_t count,
                             belay_event* out) {
  const auto wrong = [&](Code code, const std::string& text) {
    return hal->make({code, "Launch of package '" + name_ + "' on '" + device_.name() + "': " + text});
  };
  if (&stream.device() != &device_)
    return wrong(Code::kInvalidArgument, "the stream is one of '" + stream.device().name() + "'.");
  if (stream.capturing())
    return wrong(Code::kFailedPrecondition,
                 "the stream is capturing, and a package is no part of a program.");
  if (count != info_.inputs + info_.outputs)
    return wrong(Code::kInvalidArgument, std::to_string(count) + " bindings were given, want " +
                                             std::to_string(info_.inputs) + " inputs and " +
                                             std::to_string(info_.outputs) + " outputs.");
  if (count && !bindings) return wrong(Code::kInvalidArgument, "bindings is NULL.");
  if (Status good = check_bindings(device_, "package_launch", bindings, count); !good.ok())
    return hal->make(std::move(good).while_doing("launching package '" + name_ + "'"));
  return stream.queue("native_model.launch", out,
                      [&](uint64_t* value) { return vt().launch(this, &stream, bindings, count, value); });
}

}  // namespace belay::hal
