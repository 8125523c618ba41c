// belay.host.log/1: lines with fields, through the host's own log.
#include "core/base/text.h"
#include "core/host_call.h"
#include "core/services/services.h"

namespace belay::core {
namespace {

constexpr uint64_t kMostFields = 32, kLongestValue = 1024;

std::string logger_of(const HostTable& table, belay_str part) {
  return valid_id(to_view(part)) ? table.logger + "." + to_string(part) : table.logger;
}

Level level_of(uint64_t level) { return level <= BELAY_LOG_CRITICAL ? Level(level) : Level::kError; }

// " key=value", quoted where spaces, quotes or nothing would make it unclear.
std::string print_field(const belay_log_field& field) {
  const std::string value = printable(to_view(field.value).substr(0, kLongestValue));
  std::string out = " " + (valid_id(to_view(field.key)) ? to_string(field.key) : "?") + "=";
  if (!value.empty() && value.find_first_of(" \"=\\") == std::string::npos) return out + value;
  out += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

const belay_log_vt kLogTable = {
    {sizeof(belay_log_vt), 0, nullptr},
    [](const belay_host* host, uint32_t level, belay_str part) {
      return host_call<uint32_t>(host, [&](HostTable& table) {
        return uint32_t(table.host->log().enabled(logger_of(table, part), level_of(level)));
      });
    },
    [](const belay_host* host, const belay_log_req* req) {
      host_call<void>(host, [&](HostTable& table) {
        if (!req || req->hdr.struct_size < sizeof *req) return;
        const std::string logger = logger_of(table, req->part);
        if (!table.host->log().enabled(logger, level_of(req->level))) return;
        std::string fields;
        for (uint64_t i = 0; req->fields && i < std::min(req->field_count, kMostFields); ++i)
          fields += print_field(req->fields[i]);
        table.host->log().write(logger, level_of(req->level), to_view(req->message), fields);
      });
    },
    [](const belay_host* host) {
      host_call<void>(host, [](HostTable& table) { table.host->log().flush(); });
    }};

}  // namespace belay::core
