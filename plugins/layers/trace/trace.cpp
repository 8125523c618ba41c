#include "trace.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace belay::trace {
namespace {

std::string number_of_thread() { return std::to_string(syscall(SYS_gettid)); }

std::string microseconds(uint64_t ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f us", double(ns) / 1000);
  return text;
}

}  // namespace

void Trace::add(const char* table, const char* slot, uint64_t took, belay_status status) {
  const uint32_t code = BELAY_STATUS_CODE(status);
  const std::lock_guard lock(mutex_);
  Sum& sum = sums_[{table, slot}];
  sum.table = table, sum.slot = slot;
  ++sum.calls;
  sum.total_ns += took;
  sum.most_ns = std::max(sum.most_ns, took);
  // What is no failure: not reached yet, not mine, needs a segment, tells later.
  const bool answer = code == BELAY_OK || code == BELAY_UNAVAILABLE || code == BELAY_DECLINED ||
                      code == BELAY_NEED_SEGMENT || code == BELAY_DEFERRED;
  sum.failures += !answer;
}

void Trace::record(const char* table, const char* slot, uint64_t begin, uint64_t took, belay_status status) {
  if (!records_) return;
  belay_trace_ring* const ring = records_->ring(&host());
  if (!ring) return;
  belay_trace_record one{};
  const std::string text = std::string(table) + "." + slot;
  if (const belay_status raw = records_->name(&host(), to_str(text), &one.name); raw != BELAY_OK) {
    host().status_release(&host(), raw);
    return;
  }
  one.begin_ns = begin;
  one.duration_ns = uint32_t(std::min<uint64_t>(took, UINT32_MAX));
  one.kind = BELAY_TRACE_RANGE;
  one.value = BELAY_STATUS_CODE(status);
  belay_trace_write(ring, &one);
}

void Trace::life(const On& on, const char* what) {
  if (!file_) return;
  line(host().now_ns(&host()), 0, name_of(on.object) + " of plugin '" + on.plugin + "' " + what, BELAY_OK,
       "");
}

void Trace::line(uint64_t begin, uint64_t took, const std::string& call, belay_status status,
                 const std::string& result) {
  StringSink why;
  if (status != BELAY_OK) host().status_text(&host(), status, why.sink());
  std::string text = std::to_string((begin - begin_) / 1000) + " us [" + number_of_thread() + "] " + call;
  if (!result.empty()) text += " = " + result;
  if (status != BELAY_OK)
    text += " = status " + std::to_string(BELAY_STATUS_CODE(status)) + ": " + why.text();
  if (took) text += " (" + microseconds(took) + ")";
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), file_.get());  // of the C library's own lock: a line is whole
}

Status Trace::report(belay_sink sink) {
  if (file_) std::fflush(file_.get());
  std::vector<Sum> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, sum] : sums_) all.push_back(sum);
  }
  std::sort(all.begin(), all.end(), [](const Sum& a, const Sum& b) { return a.total_ns > b.total_ns; });
  for (const Sum& sum : all)
    write(sink, std::string(sum.table) + "." + sum.slot + ": " + std::to_string(sum.calls) + " calls, " +
                    (sum.failures ? std::to_string(sum.failures) + " failed, " : "") +
                    microseconds(sum.total_ns) + " in all, " + microseconds(sum.most_ns) + " at most\n");
  if (file_ && std::ferror(file_.get()))
    write(sink, "The file has not got all lines: it could not be written.\n");
  return {};
}

}  // namespace belay::trace
