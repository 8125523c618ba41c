// The catalogue of codes: the one place that says what each means; documentation and `explain` are made from
// it.
#include "core/base/status_catalogue.h"

#include "core/base/text.h"

#include <cctype>

namespace belay::core {
namespace {

#define ENTRY(name, title, cause, remedy) \
  { BELAY_##name, #name, title, cause, remedy }
constexpr CodeInfo kCatalogue[] = {
    ENTRY(OK, "Success", "Nothing failed.", "Nothing is to be done."),
    ENTRY(CANCELLED, "Cancelled", "The caller, or the end of the runtime, cancelled the operation.",
          "Call again if the result is still wanted."),
    ENTRY(UNKNOWN, "Unknown error", "A device or a library failed without saying why.",
          "Set [log] level = \"debug\" and look at what was logged just before."),
    ENTRY(INVALID_ARGUMENT, "Invalid argument",
          "A value, a file or a key of the configuration breaks its rules.",
          "Correct the value that the message shows; a position is file:line:column."),
    ENTRY(DEADLINE_EXCEEDED, "Deadline exceeded", "The time given was over before the work; it goes on.",
          "Wait again with more time, or look for what holds it: `belay doctor`."),
    ENTRY(NOT_FOUND, "Not found", "No file, plugin, device or object has that name, or it is gone already.",
          "Compare the name with what the message lists; `belay plugins list` shows plugins and where they "
          "are sought."),
    ENTRY(ALREADY_EXISTS, "Already exists",
          "Two things claim one name: a key of two plugins, a device opened twice.",
          "Remove one, or list the key under [runtime] override."),
    ENTRY(PERMISSION_DENIED, "Permission denied",
          "A file cannot be read, or others could change a plugin's file.",
          "Correct owner and mode as the message says; for development there is [runtime] allow_insecure = "
          "true."),
    ENTRY(
        RESOURCE_EXHAUSTED, "Out of memory or another resource",
        "A limit of memory, contexts, queues or files is reached.",
        "Free what is not needed, make the limit in the configuration higher, or run fewer things at once."),
    ENTRY(FAILED_PRECONDITION, "Not possible in this state",
          "The call came too early, too late, from inside itself or "
          "after fork.",
          "Do first what the message names."),
    ENTRY(ABORTED, "Aborted", "Something else that happened at the same time made the operation give up.",
          "Try again."),
    ENTRY(OUT_OF_RANGE, "Out of range", "An index, an offset or a size lies outside of its object.",
          "Keep to the range that the message shows."),
    ENTRY(UNIMPLEMENTED, "Not implemented", "This version, plugin or device does not do that.",
          "Choose another plugin or device, or a newer version; `belay plugins explain KIND` shows what "
          "there is."),
    ENTRY(INTERNAL, "Internal error",
          "A rule that should always hold was broken: a fault in Belay or in a plugin.",
          "Report it with the message and the log; [runtime] layers = [\"validate\"] finds what a plugin "
          "does wrong."),
    ENTRY(UNAVAILABLE, "Not available now", "A device or service is absent, busy or not ready.",
          "Look at the reason in the message (`belay devices`, `belay doctor`); try again later."),
    ENTRY(DATA_LOSS, "Damaged data", "A file is truncated or corrupt, or changed while it was in use.",
          "Get the file again; do not write to a model that is loaded."),
    ENTRY(UNAUTHENTICATED, "Not authenticated", "A service wants to know who asks.",
          "Give the credentials it wants."),
    ENTRY(DEFERRED, "Accepted", "The operation goes on; its completion tells the outcome.",
          "Wait for the completion."),
    ENTRY(QUEUE_FULL, "Queue full", "A stream holds as many operations as it may; nothing was queued.",
          "Synchronise the stream and call again, or raise queue_depth."),
    ENTRY(DEVICE_LOST, "Device lost", "The device failed and is unusable until it is reset; its work failed.",
          "Reset the device or make a new runtime; look at the system's log for its driver."),
    ENTRY(NEED_SEGMENT, "Segment needed", "A memory policy wants more raw memory before it can place.",
          "Handled inside; seen outside it is a fault of the caller of the policy."),
    ENTRY(DECLINED, "Declined", "A plugin says the request is for another.",
          "Handled inside; seen outside nobody wanted the request: configure another policy."),
};
#undef ENTRY
static_assert(std::size(kCatalogue) == BELAY_CODE_COUNT);

}  // namespace

Result<CodeInfo> describe_code(uint32_t code) {
  if (code < BELAY_CODE_COUNT) return kCatalogue[code];
  return Status(Code::kOutOfRange, "Code " + std::to_string(code) + " is none: want 0 to " +
                                       std::to_string(BELAY_CODE_COUNT - 1) + ".");
}

Result<CodeInfo> find_code(std::string_view text) {
  std::string word(text);
  for (char& c : word) c = c == '-' || c == ' ' ? '_' : char(std::toupper(static_cast<unsigned char>(c)));
  if (word.starts_with("BELAY_")) word.erase(0, 6);
  std::vector<std::string> names;
  for (const CodeInfo& info : kCatalogue) {
    if (info.name == word || std::to_string(info.code) == word) return info;
    names.emplace_back(info.name);
  }
  return Status(Code::kNotFound, "No code is called " + quote(text) + did_you_mean(word, names) +
                                     " Codes are 0 to " + std::to_string(BELAY_CODE_COUNT - 1) + ": " +
                                     joined(names) + ".");
}

}  // namespace belay::core
