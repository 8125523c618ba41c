// belay/table_shape.hpp: what a host must know of a kind's table to own its objects without knowing their
// meaning: which slots may not be null, and where `destroy` is. The shapes of the kinds of this SDK are in
// belay/kinds.hpp.
#pragma once

#include <belay/abi/base.h>
#include <belay/status.hpp>

#include <cstring>
#include <span>
#include <string>

namespace belay {

struct TableSlot {
  const char* name;
  uint32_t offset;
};
// BELAY_TABLE_SLOT(belay_stream_vt, copy)
#define BELAY_TABLE_SLOT(type, slot) (::belay::TableSlot{#slot, uint32_t(offsetof(type, slot))})

// Static strings and storage.
struct TableShape {
  const char* kind;                     // "belay.driver/1", or a name for messages: "belay.driver/1 stream"
  uint32_t object_kind;                 // BELAY_OBJ_...
  TableSlot destroy;                    // void (*)(belay_obj*); without a name: the table makes no objects
  std::span<const TableSlot> required;  // `destroy` need not be listed
};

// INTERNAL names every required slot that `table` lacks in one message; `who`: "plugin 'x'".
inline Status check_table(const TableShape& shape, const void* table, const std::string& who) {
  if (!table) return {Code::kInternal, who + " gave no table for a " + shape.kind + "."};
  const auto& hdr = *static_cast<const belay_hdr*>(table);
  if (hdr.struct_size > 65536 || hdr.struct_size < sizeof(belay_hdr))
    return {Code::kInternal, who + " gave a table for " + shape.kind + " whose struct_size is " +
                                 std::to_string(hdr.struct_size) + ", want " +
                                 std::to_string(sizeof(belay_hdr)) + " to 65536."};
  std::string missing;
  const auto look = [&](const TableSlot& slot) {
    void* function = nullptr;
    if (slot.offset + sizeof(void*) <= hdr.struct_size)
      std::memcpy(&function, static_cast<const char*>(table) + slot.offset, sizeof function);
    if (!function) missing.append(missing.empty() ? "" : ", ").append(slot.name);
  };
  for (const TableSlot& slot : shape.required) look(slot);
  if (shape.destroy.name) look(shape.destroy);
  if (missing.empty()) return {};
  return {Code::kInternal, who + " left required slots of " + shape.kind + " null: " + missing + "."};
}

// Calls the table's destroy. The table was checked.
inline void destroy_object(const TableShape& shape, belay_obj* object) {
  void (*destroy)(belay_obj*) = nullptr;
  std::memcpy(&destroy, static_cast<const char*>(object->table) + shape.destroy.offset, sizeof destroy);
  destroy(object);
}

}  // namespace belay
