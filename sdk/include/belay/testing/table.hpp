// belay/testing/table.hpp: C tables for tests: table_for<Mock>() calls a mock, TableBuilder makes a table that is old,
// incomplete or wrong.
#pragma once

#include <belay/abi/base.h>
#include <belay/status.hpp>

#include <cstddef>

namespace belay::testing {

// The C table whose slots call a Mock found in obj->impl and turn its results into statuses; each mock's header
// specialises this. Static storage, so that it may be used as a plugin's own table.
template <class Mock>
const auto& table_for() {
  return Mock::table();
}

// A copy of a table with changes; the copy lives as long as the builder.
//   TableBuilder<belay_stream_vt> old(table_for<MockStream>());
//   old.null(&belay_stream_vt::flush).shrink_before(&belay_stream_vt::recover);
template <class Table>
class TableBuilder {
 public:
  TableBuilder() { table_.hdr = {sizeof(Table), 0, nullptr}; }
  explicit TableBuilder(const Table& from) : table_(from) {}

  template <class Slot>
  TableBuilder& null(Slot Table::*slot) {
    table_.*slot = nullptr;
    return *this;
  }
  template <class Slot>
  TableBuilder& set(Slot Table::*slot, Slot value) {
    table_.*slot = value;
    return *this;
  }
  // As an author with older headers has it: the table ends before `slot`.
  template <class Slot>
  TableBuilder& shrink_before(Slot Table::*slot) {
    const auto* at = reinterpret_cast<const char*>(&(table_.*slot));
    table_.hdr.struct_size = uint32_t(at - reinterpret_cast<const char*>(&table_));
    return *this;
  }
  TableBuilder& struct_size(uint32_t bytes) {
    table_.hdr.struct_size = bytes;
    return *this;
  }
  const Table& table() const { return table_; }

 private:
  Table table_{};
};

// What a mock's slot gives back: the value by pointer, the failure as a bare code with the sentence kept by `host`.
inline belay_status status_of(const belay_host* host, const Status& status) {
  if (status.ok()) return BELAY_OK;
  return host ? to_c(*host, status) : belay_status(status.code());
}

template <class T>
belay_status result_of(const belay_host* host, Result<T> result, T* out) {
  if (!result.ok()) return status_of(host, result.status());
  *out = std::move(result).value();
  return BELAY_OK;
}

}  // namespace belay::testing
