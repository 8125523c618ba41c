#include "findings.hpp"

#include <algorithm>
#include <vector>

namespace belay::validate {

void Findings::add(const char* rule, const std::string& key, const std::string& text) {
  const std::string whole = "[" + std::string(rule) + "] " + text;
  {
    const std::lock_guard lock(mutex_);
    const std::string id = std::string(rule) + ":" + key;
    if (const auto at = entries_.find(id); at != entries_.end()) return void(++at->second.count);
    if (entries_.size() == kMost) return void(++more_);
    entries_.emplace(id, Entry{whole, entries_.size(), 1});
  }
  host_.log(&host_, BELAY_LOG_ERROR, to_str(whole));
}

void Findings::note(const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (!notes_.emplace(text, notes_.size()).second) return;
  }
  host_.log(&host_, BELAY_LOG_INFO, to_str(text));
}

void Findings::report(belay_sink sink) {
  const std::lock_guard lock(mutex_);
  std::vector<const Entry*> all;
  for (const auto& [id, entry] : entries_) all.push_back(&entry);
  std::sort(all.begin(), all.end(), [](const Entry* a, const Entry* b) { return a->order < b->order; });
  for (const Entry* entry : all)
    write(sink, entry->text + (entry->count > 1 ? " (" + std::to_string(entry->count) + " times)" : "") + "\n");
  if (more_) write(sink, std::to_string(more_) + " more were found after " + std::to_string(kMost) + " different ones.\n");
  for (const auto& [text, order] : notes_) write(sink, "note: " + text + "\n");
}

}  // namespace belay::validate
