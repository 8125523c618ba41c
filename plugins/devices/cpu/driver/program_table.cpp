// The slots of the extension belay.driver.program/1.
#include "program.h"
#include "queueing.h"

namespace belay::cpu {
namespace {

belay_status run_foreign_program(Exec& exec, const Packet& packet) {
  return run_foreign(exec, [&] { return run_program(exec, packet); });
}

belay_status program_create(belay_obj* object, const belay_program_req* req, belay_created* out) noexcept {
  Device& device = Device::of(object);
  if (device.in_child()) return device.refuse_in_child();
  return guard(device.host(), [&]() -> Status {
    BELAY_ASSIGN(std::unique_ptr<Program> program, Program::create(device, *req));
    give(out, std::move(program), kProgramTable);
    return {};
  });
}

belay_status program_launch(belay_obj* object, belay_obj* on, const belay_binding* bindings, uint64_t count,
                            uint64_t* out_value) noexcept {
  Program& program = self<Program>(object);
  Stream& stream = self<Stream>(on);
  Device& device = stream.device();
  if (device.in_child()) [[unlikely]]
    return device.refuse_in_child();
  if (&program.device() != &device) [[unlikely]]
    return device.fail(BELAY_INVALID_ARGUMENT, "A program of " + program.device().name() + " cannot run on the " +
                                                   where(stream) + ".");
  if (program.foreign()) [[unlikely]] {
    if (Status status = device.workers().ensure_one(); !status.ok()) return to_c(device.host(), status);
  }
  Instance* instance = nullptr;
  const belay_status bound = guard(device.host(), [&]() -> Status {
    BELAY_ASSIGN(instance, program.bind(bindings, count));
    return {};
  });
  if (bound != BELAY_OK) [[unlikely]]
    return bound;
  belay_status status = BELAY_OK;
  if (stream.recorder()) [[unlikely]] {
    status = record(
        stream, [&](Recorder& r) { r.add_program(*instance, program.cost_ns(), program.foreign()); }, out_value);
  } else if (program.foreign()) [[unlikely]] {
    device.foreign_queued();
    status = queue(stream, Kind::kProgram, run_foreign_program, kWorkerOnly, program.cost_ns(), word(instance), 0, 0, 0,
                   out_value);
    if (status != BELAY_OK) device.foreign_ended();
  } else {
    status = queue(stream, Kind::kProgram, run_program, 0, program.cost_ns(), word(instance), 0, 0, 0, out_value);
  }
  if (status != BELAY_OK) [[unlikely]]
    Program::unbind(*instance);
  return status;
}

belay_status capture_begin(belay_obj* object) noexcept {
  Stream& stream = self<Stream>(object);
  Device& device = stream.device();
  if (device.in_child()) return device.refuse_in_child();
  return guard(device.host(), [&]() -> Status {
    if (stream.recorder()) return {Code::kFailedPrecondition, "The " + where(stream) + " is recording already."};
    stream.set_recorder(std::make_unique<Recorder>());
    return {};
  });
}

belay_status capture_end(belay_obj* object, belay_created* out) noexcept {
  Stream& stream = self<Stream>(object);
  Device& device = stream.device();
  if (device.in_child()) return device.refuse_in_child();
  return guard(device.host(), [&]() -> Status {
    if (!stream.recorder())
      return {Code::kFailedPrecondition, "The " + where(stream) + " is not recording: begin a capture first."};
    const std::unique_ptr<Recorder> recorder = stream.take_recorder();
    BELAY_ASSIGN(std::unique_ptr<Program> program, recorder->finish(device));
    give(out, std::move(program), kProgramTable);
    return {};
  });
}

void program_destroy(belay_obj* object) noexcept {
  Program* const program = &self<Program>(object);
  if (!program->device().in_child()) delete program;
}

}  // namespace

const belay_driver_program_vt kProgramTable = {.hdr = {sizeof(belay_driver_program_vt), 0, nullptr},
                                               .create = program_create,
                                               .launch = program_launch,
                                               .capture_begin = capture_begin,
                                               .capture_end = capture_end,
                                               .destroy = program_destroy};

}  // namespace belay::cpu
