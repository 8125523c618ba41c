#include "alloc_trace.hpp"

#include "csv.hpp"
#include "failure.hpp"
#include "text.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_map>

namespace belay::cli {
namespace {

constexpr uint32_t kMostRows = 1u << 28, kMostStreams = 65535;

}  // namespace

AllocTrace read_alloc_trace(const std::string& path) {
  Lines lines(path);
  const std::string name = lines.name();
  const Header header(lines, "op,id,size,stream");
  const size_t op = header.need("op"), id = header.need("id"), size = header.need("size"),
               stream = header.need("stream");
  const std::optional<size_t> alignment = header.find("alignment");

  struct Live {
    uint64_t bytes;
    uint32_t slot, stream;
    AllocTrace::Op end;
  };
  AllocTrace out;
  std::unordered_map<std::string, Live> live;
  std::vector<bool> streams;
  std::vector<uint32_t> spare;
  uint64_t bytes = 0;
  for (std::string line; lines.next(line);) {
    if (line.empty()) continue;
    const std::vector<std::string_view> cells = header.cells(lines, line);
    const auto refuse = [&](const std::string& what) {
      fail_input("Line " + std::to_string(lines.number()) + " of " + name + " " + what + ".");
    };
    const auto number = [&](size_t at, const char* what, uint64_t most) {
      const auto value = number_of<uint64_t>(cells[at]);
      if (!value || *value > most)
        refuse("has the " + std::string(what) + " '" + printable(cells[at]) + "', want a number of 0 to " +
               std::to_string(most));
      return *value;
    };
    const std::string block(cells[id]);
    const auto shown = [&] { return printable(block); };
    const auto on = uint32_t(number(stream, "stream", kMostStreams));
    const uint64_t length = number(size, "size", uint64_t{1} << 62);
    if (on >= streams.size()) streams.resize(on + 1);
    streams[on] = true;
    const uint64_t align = alignment && cells[op] == "a" ? number(*alignment, "alignment", uint64_t{1} << 62)
                                                         : uint64_t{1} << AllocTrace::kAlignBits;
    if (!std::has_single_bit(align)) refuse("has the alignment " + std::to_string(align) + ", want a power of two");
    const auto found = live.find(block);
    if (cells[op] == "a") {
      if (found != live.end()) refuse("allocates " + shown() + ", which is allocated");
      uint32_t slot = out.slots;
      if (spare.empty()) {
        ++out.slots;
      } else {
        slot = spare.back();
        spare.pop_back();
      }
      live.emplace(block, Live{length, slot, on, AllocTrace::Op::kRelease});
      if ((bytes += length) > uint64_t{1} << 62) refuse("makes more than 2^62 bytes live at once");
      out.rows.push_back({length, slot, on, AllocTrace::Op::kPlace, uint8_t(std::countr_zero(align))});
      if (bytes > out.max_live) {
        out.max_live = bytes;
        out.fullest = out.rows.size();
      }
    } else if (cells[op] == "f" || cells[op] == "u") {
      if (found == live.end()) refuse("names " + shown() + ", which is not allocated");
      const Live it = found->second;
      if (cells[op] == "u") {
        out.rows.push_back({0, it.slot, on, AllocTrace::Op::kUse});
        found->second.end = AllocTrace::Op::kReleaseUsed;
        continue;
      }
      if (length != it.bytes)
        refuse("frees " + std::to_string(length) + " bytes of " + shown() + ", which has " +
               std::to_string(it.bytes));
      bytes -= it.bytes;
      spare.push_back(it.slot);
      live.erase(found);
      out.rows.push_back({0, it.slot, on, it.end});
      ++out.pairs;
    } else {
      refuse("has the op '" + printable(cells[op]) + "', want a, f or u");
    }
    if (out.rows.size() > kMostRows)
      fail_input(name + " has more than " + std::to_string(kMostRows) + " rows.");
  }
  std::vector<Live> left;
  for (const auto& [block, it] : live) left.push_back(it);
  std::sort(left.begin(), left.end(), [](const Live& a, const Live& b) { return a.slot < b.slot; });
  for (const Live& it : left) out.rows.push_back({0, it.slot, it.stream, it.end});
  out.left = left.size();
  out.pairs += left.size();
  out.streams = uint32_t(streams.size());
  out.streams_used = uint32_t(std::count(streams.begin(), streams.end(), true));
  return out;
}

}  // namespace belay::cli
