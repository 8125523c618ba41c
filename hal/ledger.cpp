#include "hal/ledger.h"

#include <algorithm>
#include <cstdio>

namespace belay::hal {

std::string print_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit ? "%.1f %s" : "%.0f %s", value, kUnits[unit]);
  return text;
}

void Ledger::add(Buffer* buffer, uint32_t device, std::string_view owner) {
  std::lock_guard lock(mutex_);
  auto at = std::find_if(usage_.begin(), usage_.end(),
                         [&](const Usage& usage) { return usage.device == device && usage.owner == owner; });
  if (at == usage_.end()) at = usage_.insert(usage_.end(), Usage{std::string(owner), device, 0, 0, 0, 0});
  addresses_.add(buffer);
  if (buffer->reserved()) {
    try {
      reserved_.add(buffer);
    } catch (...) {
      addresses_.remove(buffer);
      throw;
    }
    any_reserved_.store(true, std::memory_order_relaxed);
  }
  buffer->owner = uint32_t(at - usage_.begin());
  at->bytes += buffer->counted;
  at->peak_bytes = std::max(at->peak_bytes, at->bytes);
  ++at->buffers, ++at->allocations;
}

void Ledger::remove(Buffer* buffer, uint32_t) {
  addresses_.remove(buffer);
  if (buffer->reserved()) {
    reserved_.remove(buffer);
    buffer->mapped->clear();
  }
  std::lock_guard lock(mutex_);
  Usage& usage = usage_[buffer->owner];
  usage.bytes -= buffer->counted;
  --usage.buffers;
}

void Ledger::change(Buffer* buffer, int64_t bytes) {
  std::lock_guard lock(mutex_);
  Usage& usage = usage_[buffer->owner];
  usage.bytes += uint64_t(bytes);
  usage.peak_bytes = std::max(usage.peak_bytes, usage.bytes);
}

std::optional<ReservedPart> Ledger::reserved(const void* address, uint64_t bytes) const {
  if (!any_reserved_.load(std::memory_order_relaxed)) return std::nullopt;
  const AddressMap::Found found = reserved_.find(address);
  if (!found.buffer) return std::nullopt;
  return found.buffer->part(found.offset, bytes);
}

Status Ledger::check_mapped(std::string_view what, const void* address, uint64_t bytes) const {
  const std::optional<ReservedPart> part = bytes ? reserved(address, bytes) : std::nullopt;
  if (!part || part->has_memory()) return {};
  return {Code::kOutOfRange, std::string(what) + " lies in " + part->text() + "."};
}

std::string Ledger::owner(const Buffer& buffer) const {
  std::lock_guard lock(mutex_);
  return usage_[buffer.owner].owner;
}

std::vector<Ledger::Usage> Ledger::usage(uint32_t device) const {
  std::lock_guard lock(mutex_);
  std::vector<Usage> found;
  for (const Usage& usage : usage_)
    if (device == UINT32_MAX || usage.device == device) found.push_back(usage);
  return found;
}

std::string Ledger::describe(uint32_t device) const {
  std::vector<Usage> all = usage(device);
  std::sort(all.begin(), all.end(), [](const Usage& a, const Usage& b) { return a.bytes > b.bytes; });
  uint64_t bytes = 0, buffers = 0;
  std::string who;
  for (const Usage& usage : all) {
    bytes += usage.bytes, buffers += usage.buffers;
    if (usage.bytes) who += (who.empty() ? "" : ", ") + usage.owner + " " + print_bytes(usage.bytes);
  }
  return print_bytes(bytes) + " in " + std::to_string(buffers) + (buffers == 1 ? " buffer" : " buffers") +
         (who.empty() ? "" : " (" + who + ")");
}

}  // namespace belay::hal
