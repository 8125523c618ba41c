#include "core/services/host_memory.h"

#include "core/base/text.h"
#include "core/config/units.h"
#include "core/host_call.h"
#include "core/services/services.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <bit>
#include <cerrno>
#include <cstring>

namespace belay::core {
namespace {

constexpr uint64_t kMostAlign = 1u << 30;

Status no_memory(const belay_memory_req& req, const std::string& why) {
  return {Code::kResourceExhausted,
          "No " + print_size(int64_t(req.bytes)) + " of " +
              (req.hdr.flags & BELAY_MEMORY_PINNED ? "pinned " : "") + "host memory" +
              (req.usage.len ? " for " + quote(printable(to_view(req.usage).substr(0, 64))) : "") + ": " +
              why + "."};
}

// Pages at an address that is a multiple of `align`; nullptr, errno: there are none.
void* map_aligned(uint64_t bytes, uint64_t align, uint64_t page) {
  const uint64_t room = align > page ? bytes + align - page : bytes;
  void* const begin = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  char* const first = static_cast<char*>(begin);
  char* const block = first + (align - uintptr_t(first) % align) % align;
  if (block != first) munmap(first, size_t(block - first));
  if (const uint64_t after = room - uint64_t(block - first) - bytes) munmap(block + bytes, after);
  return block;
}

std::string lock_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return " (the limit of locked memory, ulimit -l, is " + print_size(int64_t(limit.rlim_cur)) + ")";
}

}  // namespace

HostMemory::~HostMemory() {
  for (const auto& [address, block] : blocks_) munmap(address, block.bytes);
}

Result<void*> HostMemory::alloc(HostTable& plugin, const belay_memory_req& req) {
  const uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
  const uint64_t align = std::max(req.align, page);
  if (req.bytes == 0 || (req.align != 0 && !std::has_single_bit(req.align)) || align > kMostAlign ||
      req.hdr.flags & ~(BELAY_MEMORY_PINNED | BELAY_MEMORY_HUGE))
    return Status(Code::kInvalidArgument,
                  "Memory of " + std::to_string(req.bytes) + " bytes, alignment " +
                      std::to_string(req.align) + ", flags " + std::to_string(req.hdr.flags) +
                      ": want a byte or more, a power of two up to 1GiB, known flags.");
  BELAY_TRY(services_of(plugin).faults.at(plugin.plugin, "alloc"));
  if (req.bytes > uint64_t(INT64_MAX) - align - page) return no_memory(req, "no machine has so much");
  const uint64_t bytes = (req.bytes + page - 1) / page * page;
  if (!plugin.memory.charge(bytes))
    return no_memory(req, "plugin " + quote(plugin.plugin) + " has " +
                              print_size(int64_t(plugin.memory.bytes.load())) + " of its limit " +
                              print_size(int64_t(plugin.memory.limit.load())) + " (plugin." + plugin.plugin +
                              ".memory_limit)");
  const auto give_up = [&](void* address, const std::string& why) {
    if (address) munmap(address, bytes);
    plugin.memory.discharge(bytes);
    return no_memory(req, why);
  };
  void* const address = map_aligned(bytes, align, page);
  if (!address) return give_up(nullptr, std::strerror(errno));
  if (req.hdr.flags & BELAY_MEMORY_HUGE) madvise(address, bytes, MADV_HUGEPAGE);
  if (req.hdr.flags & BELAY_MEMORY_PINNED) {
    if (mlock(address, bytes) != 0) {
      const std::string why = std::strerror(errno);
      return give_up(address, why + lock_limit());
    }
    madvise(address, bytes, MADV_DONTFORK);
  }
  try {
    std::lock_guard lock(mutex_);
    blocks_.emplace(address, Block{&plugin, bytes, (req.hdr.flags & BELAY_MEMORY_PINNED) != 0,
                                   printable(to_view(req.usage).substr(0, 64))});
  } catch (const std::bad_alloc&) {
    return give_up(address, "no room for the record of it");
  }
  return address;
}

bool HostMemory::free(HostTable& plugin, void* address) {
  std::lock_guard lock(mutex_);
  const auto at = blocks_.find(address);
  if (at == blocks_.end() || at->second.owner != &plugin) return false;
  munmap(address, at->second.bytes);
  plugin.memory.discharge(at->second.bytes);
  blocks_.erase(at);
  return true;
}

uint64_t HostMemory::pinned_bytes(const HostTable& plugin) const {
  std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [address, block] : blocks_)
    if (block.owner == &plugin && block.pinned) sum += block.bytes;
  return sum;
}

std::vector<std::string> HostMemory::take_back(HostTable& plugin) {
  std::vector<std::string> left;
  std::lock_guard lock(mutex_);
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    const auto here = at++;
    if (here->second.owner != &plugin) continue;
    left.push_back(std::string(here->second.pinned ? "pinned" : "host") + " memory of " +
                   print_size(int64_t(here->second.bytes)) +
                   (here->second.usage.empty() ? "" : " for " + quote(here->second.usage)));
    munmap(here->first, here->second.bytes);
    plugin.memory.discharge(here->second.bytes);
    blocks_.erase(here);
  }
  return left;
}

const belay_memory_vt kMemoryTable = {
    {sizeof(belay_memory_vt), 0, nullptr},
    [](const belay_host* host, const belay_memory_req* req, void** out) {
      return host_call<belay_status>(host, [&](HostTable& table) -> Status {
        if (!req || !out || req->hdr.struct_size < sizeof *req)
          return {Code::kInvalidArgument,
                  "alloc of memory was given no request, or no place for the address."};
        BELAY_ASSIGN(*out, services_of(table).memory.alloc(table, *req));
        return {};
      });
    },
    [](const belay_host* host, void* address) {
      host_call<void>(host, [&](HostTable& table) {
        if (address && !services_of(table).memory.free(table, address))
          table.host->misbehaved(table.plugin, "free of host memory that it does not have");
      });
    },
    [](const belay_host* host, belay_memory_usage* inout) {
      return host_call<belay_status>(host, [&](HostTable& table) -> Status {
        if (!inout || inout->hdr.struct_size < sizeof *inout)
          return {Code::kInvalidArgument, "usage of memory was given no belay_memory_usage to fill."};
        inout->bytes = table.memory.bytes, inout->peak_bytes = table.memory.peak;
        inout->blocks = table.memory.blocks, inout->limit = table.memory.limit;
        inout->pinned_bytes = services_of(table).memory.pinned_bytes(table);
        return {};
      });
    }};

}  // namespace belay::core
