// belay/kinds.hpp: the shapes of the tables of every kind of this SDK: required slots and destroy.
#pragma once

#include <belay/abi/diagnostics.h>
#include <belay/abi/driver.h>
#include <belay/abi/engine.h>
#include <belay/abi/kernel_provider.h>
#include <belay/abi/layer.h>
#include <belay/abi/memory_policy.h>
#include <belay/abi/model_format.h>
#include <belay/abi/native_model.h>
#include <belay/abi/virtual_memory.h>
#include <belay/table_shape.hpp>

#include <array>

namespace belay {
namespace shape {

#define BELAY_S(slot) BELAY_TABLE_SLOT(BELAY_TABLE, slot)
#define BELAY_TABLE belay_driver_vt
inline constexpr TableSlot kDriverSlots[] = {BELAY_S(device_count), BELAY_S(device_info),
                                             BELAY_S(open_device)};
inline constexpr TableShape kDriver{BELAY_DRIVER_KIND, BELAY_OBJ_DRIVER, BELAY_S(destroy), kDriverSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_device_vt
inline constexpr TableSlot kDeviceSlots[] = {BELAY_S(info),     BELAY_S(heap),          BELAY_S(alloc),
                                             BELAY_S(free),     BELAY_S(stream_create), BELAY_S(health),
                                             BELAY_S(extension)};
inline constexpr TableShape kDevice{"belay.driver/1 device", BELAY_OBJ_DEVICE, BELAY_S(destroy),
                                    kDeviceSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_stream_vt
inline constexpr TableSlot kStreamSlots[] = {BELAY_S(copy),       BELAY_S(fill),       BELAY_S(wait),
                                             BELAY_S(host_call),  BELAY_S(query),      BELAY_S(synchronize),
                                             BELAY_S(on_reached), BELAY_S(last_value), BELAY_S(recover)};
inline constexpr TableShape kStream{"belay.driver/1 stream", BELAY_OBJ_STREAM, BELAY_S(destroy),
                                    kStreamSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_driver_program_vt
inline constexpr TableSlot kProgramSlots[] = {BELAY_S(create), BELAY_S(launch), BELAY_S(capture_begin),
                                              BELAY_S(capture_end)};
inline constexpr TableShape kProgram{BELAY_DRIVER_PROGRAM, BELAY_OBJ_PROGRAM, BELAY_S(destroy),
                                     kProgramSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_driver_virtual_memory_vt
inline constexpr TableSlot kVirtualMemorySlots[] = {BELAY_S(granularity), BELAY_S(reserve), BELAY_S(map),
                                                    BELAY_S(unmap)};
inline constexpr TableShape kVirtualMemory{BELAY_DRIVER_VIRTUAL_MEMORY, BELAY_OBJ_BUFFER, {nullptr, 0},
                                           kVirtualMemorySlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_driver_native_model_vt
inline constexpr TableSlot kPackageSlots[] = {BELAY_S(accepts),    BELAY_S(load),        BELAY_S(info),
                                              BELAY_S(input_info), BELAY_S(output_info), BELAY_S(launch)};
inline constexpr TableShape kPackage{BELAY_DRIVER_NATIVE_MODEL, BELAY_OBJ_PACKAGE, BELAY_S(destroy), kPackageSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_memory_policy_vt  // the slots of its classes are required too: see `serves`
inline constexpr TableSlot kMemoryPolicySlots[] = {BELAY_S(serves), BELAY_S(stats)};
inline constexpr TableShape kMemoryPolicy{BELAY_MEMORY_POLICY_KIND, BELAY_OBJ_MEMORY_POLICY, BELAY_S(destroy),
                                          kMemoryPolicySlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_model_format_vt
inline constexpr TableSlot kModelFormatSlots[] = {BELAY_S(sniff), BELAY_S(parse)};
inline constexpr TableShape kModelFormat{BELAY_MODEL_FORMAT_KIND, BELAY_OBJ_MODEL_FORMAT, BELAY_S(destroy),
                                         kModelFormatSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_kernel_provider_vt
inline constexpr TableSlot kKernelProviderSlots[] = {BELAY_S(serves), BELAY_S(claim), BELAY_S(prepare),
                                                     BELAY_S(release)};
inline constexpr TableShape kKernelProvider{BELAY_KERNEL_PROVIDER_KIND, BELAY_OBJ_KERNEL_PROVIDER,
                                            BELAY_S(destroy), kKernelProviderSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_engine_vt
inline constexpr TableSlot kEngineSlots[] = {BELAY_S(load)};
inline constexpr TableShape kEngine{BELAY_ENGINE_KIND, BELAY_OBJ_ENGINE, BELAY_S(destroy), kEngineSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_executable_vt
inline constexpr TableSlot kExecutableSlots[] = {
    BELAY_S(input_count), BELAY_S(output_count), BELAY_S(input_info), BELAY_S(output_info),
    BELAY_S(context),     BELAY_S(stats),        BELAY_S(describe)};
inline constexpr TableShape kExecutable{"belay.engine/1 executable", BELAY_OBJ_EXECUTABLE, BELAY_S(destroy),
                                        kExecutableSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_context_vt
inline constexpr TableSlot kContextSlots[] = {BELAY_S(set_input), BELAY_S(set_output), BELAY_S(run),
                                              BELAY_S(run_async), BELAY_S(output)};
inline constexpr TableShape kContext{"belay.engine/1 context", BELAY_OBJ_CONTEXT, BELAY_S(destroy),
                                     kContextSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_diagnostics_vt
inline constexpr TableSlot kDiagnosticsSlots[] = {BELAY_S(check_count), BELAY_S(check_info),
                                                  BELAY_S(run_check)};
inline constexpr TableShape kDiagnostics{BELAY_DIAGNOSTICS_KIND, BELAY_OBJ_DIAGNOSTICS, BELAY_S(destroy),
                                         kDiagnosticsSlots};
#undef BELAY_TABLE
#define BELAY_TABLE belay_layer_vt
inline constexpr TableSlot kLayerSlots[] = {BELAY_S(attach), BELAY_S(detach), BELAY_S(report)};
inline constexpr TableShape kLayer{BELAY_LAYER_KIND, BELAY_OBJ_LAYER, BELAY_S(destroy), kLayerSlots};
#undef BELAY_TABLE
#undef BELAY_S

}  // namespace shape

// The kinds whose components a host creates.
inline constexpr std::array<TableShape, 7> kComponentKinds{shape::kDriver,      shape::kMemoryPolicy,
                                                           shape::kModelFormat, shape::kKernelProvider,
                                                           shape::kEngine,      shape::kDiagnostics,
                                                           shape::kLayer};

}  // namespace belay
