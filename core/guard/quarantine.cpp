#include "core/guard/quarantine.h"

#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/config/value.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

namespace belay::core {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMostBytes = 64 << 10;
constexpr const char* kLoadingEnd = ".loading";
constexpr const char* kEntryEnd = ".quarantine";
constexpr const char* kHarmlessEnd = ".harmless";

// What tells a file from what is there after it was changed or replaced; empty: it is not there.
std::string state_of(const std::string& file) {
  struct stat now;
  if (stat(file.c_str(), &now) != 0) return "";
  const auto time = [](const timespec& at) {
    return std::to_string(at.tv_sec) + "." + std::to_string(at.tv_nsec);
  };
  return std::to_string(now.st_dev) + " " + std::to_string(now.st_ino) + " " + std::to_string(now.st_size) +
         " " + time(now.st_mtim) + " " + time(now.st_ctim);
}

// When a process began, in ticks since the system did: two processes of one number differ in it. Empty: no
// such.
std::string begin_of(pid_t process) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), stat);
  const size_t end = stat.rfind(')');  // of the name, which may hold anything
  if (end == std::string::npos) return "";
  size_t at = end + 1;
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  return at == std::string::npos ? "" : stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
}

std::string this_boot() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

struct Record {
  std::string id, file, state, reason;  // reason: of an entry
  std::string boot, begin;              // of a journal
  std::string crash, of;                // what a mark adds to it
  std::string toml() const {
    const auto line = [](const char* key, const std::string& value) {
      return value.empty() ? "" : std::string(key) + " = " + quote_toml(value) + "\n";
    };
    return line("id", id) + line("file", file) + line("state", state) + line("reason", reason) +
           line("boot", boot) + line("begin", begin);
  }
};

// Nothing, where it cannot be read or is no such file: others may remove or write it meanwhile.
std::unique_ptr<Record> read_record(const std::string& path) {
  const Result<OpenFile> file = open_regular(path, kMostBytes, "record", false);
  if (!file.ok()) return nullptr;
  const Result<std::string> text = read_at(*file, 0, uint64_t(file->stat.st_size), path);
  if (!text.ok()) return nullptr;
  const auto root = parse_toml(path, *text, "record");
  if (!root.ok()) return nullptr;
  auto record = std::make_unique<Record>();
  const auto get = [&](const char* key, std::string& into) {
    if (const Node* node = (*root)->find(key); node && node->type == BELAY_VALUE_STRING) into = node->text;
  };
  get("id", record->id), get("file", record->file), get("state", record->state),
      get("reason", record->reason);
  get("boot", record->boot), get("begin", record->begin);
  get("crash", record->crash), get("of", record->of);
  return record->id.empty() || record->file.empty() ? nullptr : std::move(record);
}

std::vector<std::string> files_of(const std::string& directory, std::string_view end) {
  std::vector<std::string> all;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), last; !error && at != last; at.increment(error))
    if (at->path().native().ends_with(end)) all.push_back(at->path().native());
  return all;
}

std::string usable(std::string directory) {
  if (directory.empty()) return "";
  std::error_code error;
  fs::create_directories(directory, error);
  struct stat found;
  if (error || stat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return "";
  return found.st_uid == geteuid() && !(found.st_mode & 022) ? directory : "";
}

}  // namespace

std::string Quarantine::directory(const std::string& configured) {
  if (!configured.empty()) return configured[0] == '/' ? configured : "";
  if (getauxval(AT_SECURE)) return "";
  const auto absolute = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value && value[0] == '/' ? value : "";
  };
  if (const char* const own = std::getenv("BELAY_STATE"); own && std::string_view(own) == "none") return "";
  if (const std::string own = absolute("BELAY_STATE"); !own.empty()) return own;
  if (const std::string state = absolute("XDG_STATE_HOME"); !state.empty()) return state + "/belay";
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.local/state/belay";
}

Quarantine::Quarantine(std::string directory) : directory_(usable(std::move(directory))) {}

std::string Quarantine::entry_of(const std::string& file, const char* end) const {
  return directory_ + "/" + hex(sha256(file)).substr(0, 32) + end;
}

Status Quarantine::check(const std::string& id, const std::string& file) const {
  if (directory_.empty()) return {};
  const auto entry = read_record(entry_of(file, kEntryEnd));
  if (!entry || entry->file != file || entry->state != state_of(file)) return {};
  return {Code::kFailedPrecondition, "plugin " + quote(id) + " quarantined: " + entry->reason +
                                         " - replace " + file +
                                         ", or let it be tried again: belay plugins release " + id};
}

Status Quarantine::add(const std::string& id, const std::string& file, const std::string& reason) const {
  if (directory_.empty()) return {};
  return keep(entry_of(file, kEntryEnd), Record{id, file, state_of(file), reason, "", "", "", ""}.toml(), id);
}

bool Quarantine::harmless(const std::string& file) const {
  if (directory_.empty()) return true;
  const auto entry = read_record(entry_of(file, kHarmlessEnd));
  return entry && entry->file == file && entry->state == state_of(file);
}

void Quarantine::set_harmless(const std::string& id, const std::string& file) const {
  if (directory_.empty()) return;  // a place that takes no file: it is probed again
  static_cast<void>(
      keep(entry_of(file, kHarmlessEnd), Record{id, file, state_of(file), "", "", "", "", ""}.toml(), id));
}

// Others read it whole or not at all.
Status Quarantine::keep(const std::string& path, const std::string& text, const std::string& id) const {
  static std::atomic<uint64_t> count{0};
  const std::string draft = path + "." + std::to_string(getpid()) + "-" + std::to_string(count.fetch_add(1));
  std::ofstream out(draft, std::ios::binary);
  out << text;
  out.close();
  std::error_code error;
  if (out) fs::rename(draft, path, error);
  if (out && !error) return {};
  const std::string why = error ? error.message() : std::strerror(errno);
  fs::remove(draft, error);
  return {Code::kUnavailable, "what plugin " + quote(id) + " did is not remembered: " + directory_ +
                                  " takes no file (" + why + ")"};
}

Status Quarantine::release(const std::string& id) const {
  std::vector<std::string> known;
  bool found = false;
  for (const std::string& path : files_of(directory_.empty() ? "/nonexistent" : directory_, kEntryEnd)) {
    const auto entry = read_record(path);
    if (!entry) continue;
    known.push_back(entry->id);
    std::error_code error;
    if (entry->id == id && !fs::remove(path, error) && error)
      return {Code::kPermissionDenied, path + " cannot be removed: " + error.message()};
    found |= entry->id == id;
  }
  if (found) return {};
  return {Code::kNotFound, "There is no plugin " + quote(id) + " in quarantine; there " +
                               (known.size() == 1 ? "is " : "are ") +
                               (known.empty() ? "none" : joined(known)) + "."};
}

std::vector<Quarantine::Entry> Quarantine::list() const {
  std::vector<Entry> all;
  if (directory_.empty()) return all;
  for (const std::string& path : files_of(directory_, kEntryEnd))
    if (const auto entry = read_record(path); entry && entry->state == state_of(entry->file))
      all.push_back({entry->id, entry->file, entry->reason});
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  return all;
}

void Quarantine::look_for_the_dead() const {
  if (directory_.empty()) return;
  const std::string boot = this_boot();
  for (const std::string& path : files_of(directory_, kLoadingEnd)) {
    const auto journal = read_record(path);
    const auto process = pid_t(std::atoi(fs::path(path).filename().c_str()));
    if (!journal || (journal->boot == boot && journal->begin == begin_of(process))) continue;
    if (!journal->crash.empty() && journal->of == journal->id)
      static_cast<void>(
          add(journal->id, journal->file,
              journal->crash + " ended process " + std::to_string(process) + ", which loaded it"));
    std::error_code error;
    fs::remove(path, error);
  }
}

void Quarantine::Journal::loading(const std::string& id, const std::string& file) {
  if (quarantine_.directory_.empty()) return;
  if (fd_.get() < 0) {
    boot_ = this_boot(), begin_ = begin_of(getpid());
    static std::atomic<uint64_t> count{0};
    path_ = quarantine_.directory_ + "/" + std::to_string(getpid()) + "-" +
            std::to_string(count.fetch_add(1)) + kLoadingEnd;
    fd_ = Fd(open(path_.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd_.get() < 0) return;
    mark_.emplace(fd_.get());
  }
  const std::string text = Record{id, file, "", "", boot_, begin_, "", ""}.toml();
  if (ftruncate(fd_.get(), 0) != 0 || ::write(fd_.get(), text.data(), text.size()) != ssize_t(text.size()))
    unlink(path_.c_str());  // a full disk: no journal
}

Quarantine::Journal::~Journal() {
  mark_.reset();
  if (fd_.get() >= 0) unlink(path_.c_str());
}

}  // namespace belay::core
