#include "core/base/status_table.h"

#include "core/base/status_catalogue.h"

#include <atomic>
#include <thread>

namespace belay::core {
namespace {

// A slot's word: generation << 2 | state. Whoever turns it to kBusy owns the slot; nothing waits for a lock,
// so a child forked meanwhile only loses the slots that were busy.
enum : uint64_t { kFree = 0, kBusy = 1, kLive = 2, kState = 3 };
constexpr uint64_t kSlots = 4096, kSlotBits = 12, kGenerations = (1ull << 36) - 1;

struct Slot {
  std::atomic<uint64_t> word{kFree};
  StatusDetail* detail = nullptr;
};
constinit Slot slots[kSlots];  // trivially destructible: what is in it outlives everything
constinit std::atomic<uint64_t> cursor{0}, live{0};

uint64_t generation_of(uint64_t word) { return word >> 2; }

// Takes the live slot of a status, or gives nullptr. put() ends it.
Slot* take(belay_status status) {
  const uint64_t handle = status >> 16, generation = handle >> kSlotBits;
  if (generation == 0) return nullptr;
  Slot& slot = slots[handle % kSlots];
  for (int spin = 0; spin < 100000; ++spin) {  // bounded: the reader of a forked parent is not here to finish
    uint64_t want = generation << 2 | kLive;
    if (slot.word.compare_exchange_strong(want, generation << 2 | kBusy, std::memory_order_acquire))
      return &slot;
    if (want != (generation << 2 | kBusy)) return nullptr;
    std::this_thread::yield();
  }
  return nullptr;
}
void put(Slot& slot, uint64_t state) {
  slot.word.store((slot.word.load(std::memory_order_relaxed) & ~uint64_t(kState)) | state,
                  std::memory_order_release);
}

}  // namespace

belay_status make_status(uint32_t code, std::string_view message, std::string_view plugin,
                         int64_t vendor_code) noexcept try {
  if (code == BELAY_OK) return BELAY_OK;
  if (code >= BELAY_CODE_COUNT) code = BELAY_INTERNAL;
  auto detail = std::make_unique<StatusDetail>(
      StatusDetail{std::string(message.substr(0, 16384)), std::string(plugin), vendor_code});
  for (uint64_t tries = 0; tries < kSlots; ++tries) {
    const uint64_t index = cursor.fetch_add(1, std::memory_order_relaxed) % kSlots;
    Slot& slot = slots[index];
    uint64_t word = slot.word.load(std::memory_order_relaxed);
    if ((word & kState) != kFree) continue;
    const uint64_t generation = generation_of(word) % kGenerations + 1;
    if (!slot.word.compare_exchange_strong(word, generation << 2 | kBusy, std::memory_order_acquire))
      continue;
    slot.detail = detail.release();
    live.fetch_add(1, std::memory_order_relaxed);
    put(slot, kLive);
    return (generation << kSlotBits | index) << 16 | code;
  }
  return code;
} catch (...) {
  return code < BELAY_CODE_COUNT ? code : BELAY_INTERNAL;  // no memory for a sentence
}

Result<StatusDetail> status_detail(belay_status status) {
  const uint32_t code = BELAY_STATUS_CODE(status);
  if (code >= BELAY_CODE_COUNT || (status >> 8 & 0xff) != 0)
    return Status(Code::kInvalidArgument, "Status " + std::to_string(status) + " has no code of the ABI.");
  if (status >> 16 == 0) return StatusDetail{std::string(describe_code(code)->title), {}, 0};
  Slot* slot = take(status);
  if (!slot)
    return Status(Code::kNotFound,
                  "Status " + std::to_string(status) + " has no detail, or it was released.");
  StatusDetail copy;
  try {
    copy = *slot->detail;
  } catch (...) {
    put(*slot, kLive);
    throw;
  }
  put(*slot, kLive);
  return copy;
}

void status_text(belay_status status, belay_sink sink) noexcept try {
  if (const auto detail = status_detail(status); detail.ok()) return write(sink, detail->message);
  const uint32_t code = BELAY_STATUS_CODE(status);
  write(sink, code < BELAY_CODE_COUNT ? describe_code(code)->title : "A code that is not of this ABI");
} catch (...) {  // no memory: no text
}

void release_status(belay_status status) noexcept {
  if (Slot* slot = take(status)) {
    delete std::exchange(slot->detail, nullptr);
    live.fetch_sub(1, std::memory_order_relaxed);
    put(*slot, kFree);
  }
}

uint64_t live_details() noexcept { return live.load(std::memory_order_relaxed); }

}  // namespace belay::core
