// belay/slots.hpp: the slots of every table that an object can have or that an extension gives, by name, for
// code that treats all of them alike.
#pragma once

#include <belay/abi/diagnostics.h>
#include <belay/abi/driver.h>
#include <belay/abi/engine.h>
#include <belay/abi/kernel_provider.h>
#include <belay/abi/memory_policy.h>
#include <belay/abi/model_format.h>
#include <belay/abi/native_model.h>
#include <belay/abi/virtual_memory.h>

namespace belay {

// STATUS(slot) for slots that give a belay_status, VALUE(slot) for others. Of each table all slots, in its
// order.
#define BELAY_SLOTS_OF_belay_driver_vt(STATUS, VALUE) \
  VALUE(device_count) STATUS(device_info) STATUS(open_device) VALUE(destroy)
#define BELAY_SLOTS_OF_belay_device_vt(STATUS, VALUE)                                              \
  STATUS(info)                                                                                     \
  STATUS(heap) STATUS(alloc) VALUE(free) STATUS(map) STATUS(stream_create) STATUS(timeline_signal) \
      VALUE(timeline_destroy) STATUS(health) STATUS(reset) VALUE(extension) VALUE(destroy)
#define BELAY_SLOTS_OF_belay_stream_vt(STATUS, VALUE)                                                        \
  STATUS(copy)                                                                                               \
  STATUS(fill) STATUS(launch) STATUS(wait) STATUS(host_call) STATUS(flush) STATUS(query) STATUS(synchronize) \
      STATUS(on_reached) VALUE(last_value) STATUS(recover) VALUE(destroy)
#define BELAY_SLOTS_OF_belay_driver_program_vt(STATUS, VALUE) \
  STATUS(create) STATUS(launch) STATUS(capture_begin) STATUS(capture_end) VALUE(destroy)
#define BELAY_SLOTS_OF_belay_driver_virtual_memory_vt(STATUS, VALUE) \
  VALUE(granularity) STATUS(reserve) STATUS(map) STATUS(unmap)
#define BELAY_SLOTS_OF_belay_driver_native_model_vt(STATUS, VALUE) \
  VALUE(accepts)                                                   \
  STATUS(load) STATUS(info) STATUS(input_info) STATUS(output_info) STATUS(launch) VALUE(destroy)
#define BELAY_SLOTS_OF_belay_memory_policy_vt(STATUS, VALUE)                                         \
  VALUE(serves)                                                                                      \
  STATUS(plan) STATUS(place) STATUS(release) STATUS(segment_add) STATUS(segment_remove) STATUS(trim) \
      STATUS(bind) STATUS(stats) VALUE(destroy) STATUS(snapshot)
#define BELAY_SLOTS_OF_belay_model_format_vt(STATUS, VALUE) VALUE(sniff) STATUS(parse) VALUE(destroy)
#define BELAY_SLOTS_OF_belay_kernel_provider_vt(STATUS, VALUE) \
  VALUE(serves) STATUS(claim) STATUS(prepare) VALUE(release) VALUE(destroy)
#define BELAY_SLOTS_OF_belay_engine_vt(STATUS, VALUE) STATUS(load) VALUE(destroy)
#define BELAY_SLOTS_OF_belay_executable_vt(STATUS, VALUE)                                                   \
  VALUE(input_count)                                                                                        \
  VALUE(output_count) STATUS(input_info) STATUS(output_info) STATUS(context) STATUS(stats) STATUS(describe) \
      VALUE(destroy)
#define BELAY_SLOTS_OF_belay_context_vt(STATUS, VALUE)                                           \
  STATUS(set_input)                                                                              \
  STATUS(set_output) STATUS(run) STATUS(run_async) STATUS(output) VALUE(destroy) STATUS(enqueue) \
      STATUS(input_memory) STATUS(output_memory)
#define BELAY_SLOTS_OF_belay_diagnostics_vt(STATUS, VALUE) \
  VALUE(on_records)                                        \
  VALUE(check_count) STATUS(check_info) STATUS(run_check) STATUS(dump) STATUS(flush) VALUE(destroy)

// X(table, name for messages)
#define BELAY_SLOT_TABLES(X)                                                                         \
  X(belay_driver_vt, "driver")                                                                       \
  X(belay_device_vt, "device") X(belay_stream_vt, "stream") X(belay_driver_program_vt, "program")    \
      X(belay_driver_virtual_memory_vt, "virtual_memory") X(belay_driver_native_model_vt, "package") \
          X(belay_memory_policy_vt, "memory_policy") X(belay_model_format_vt, "model_format")        \
              X(belay_kernel_provider_vt, "kernel_provider") X(belay_engine_vt, "engine")            \
                  X(belay_executable_vt, "executable") X(belay_context_vt, "context")                \
                      X(belay_diagnostics_vt, "diagnostics")

template <class Table>
struct SlotsOf;  // name; each(visit): visit.template operator()<&Table::slot, gives_status>("slot") for each
                 // slot

#define BELAY_SLOT_STATUS_(slot) visit.template operator()<&Table::slot, true>(#slot);
#define BELAY_SLOT_VALUE_(slot) visit.template operator()<&Table::slot, false>(#slot);
#define BELAY_SLOTS_OF_(type, text)                                \
  template <>                                                      \
  struct SlotsOf<type> {                                           \
    static constexpr const char* name = text;                      \
    template <class Visit>                                         \
    static constexpr void each(Visit&& visit) {                    \
      using Table = type;                                          \
      BELAY_SLOTS_OF_##type(BELAY_SLOT_STATUS_, BELAY_SLOT_VALUE_) \
    }                                                              \
  };
BELAY_SLOT_TABLES(BELAY_SLOTS_OF_)
#undef BELAY_SLOTS_OF_
#undef BELAY_SLOT_STATUS_
#undef BELAY_SLOT_VALUE_

}  // namespace belay
