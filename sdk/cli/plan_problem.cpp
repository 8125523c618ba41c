#include "plan_problem.hpp"

#include "csv.hpp"
#include "failure.hpp"
#include "text.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <unordered_set>

namespace belay::cli {
namespace {

constexpr size_t kMostBuffers = size_t{1} << 26;
constexpr size_t kMostBoxes = 20'000;

}  // namespace

PlanProblem read_plan_problem(const std::string& path) {
  Lines lines(path);
  const std::string name = lines.name();
  const Header header(lines, "id,lower,upper,size");
  const size_t id = header.need("id"), lower = header.need("lower"), upper = header.need("upper"),
               size = header.need("size");
  const std::optional<size_t> alignment = header.find("alignment");

  PlanProblem out;
  std::unordered_set<std::string> known;
  for (std::string line; lines.next(line);) {
    if (line.empty()) continue;
    const std::vector<std::string_view> cells = header.cells(lines, line);
    const std::string where = "Line " + std::to_string(lines.number()) + " of " + name;
    const auto number = [&](size_t at, const char* what) {
      const auto value = number_of<uint64_t>(cells[at]);
      if (!value)
        fail_input(where + " has the " + what + " '" + printable(cells[at]) +
                   "', want a number from 0 to 2^64 - 1.");
      return *value;
    };
    const uint64_t begin = number(lower, "lower"), end = number(upper, "upper");
    if (end < begin)
      fail_input(where + " lives from " + std::to_string(begin) + " to " + std::to_string(end) +
                 "; the upper must not be below the lower.");
    const uint64_t align = alignment ? number(*alignment, "alignment") : 1;
    if (!std::has_single_bit(align))
      fail_input(where + " has the alignment " + std::to_string(align) + ", want a power of two.");
    out.ids.emplace_back(cells[id]);
    if (!known.insert(out.ids.back()).second)
      fail_input(where + " has the id '" + printable(out.ids.back()) + "', which another line has.");
    out.lives.push_back({begin, end});
    out.bytes.push_back(number(size, "size"));
    out.align.push_back(align);
    if (out.ids.size() > kMostBuffers)
      fail_input(name + " has more than " + std::to_string(kMostBuffers) + " buffers.");
  }
  return out;
}

std::string check_plan_answer(const PlanProblem& problem, const std::vector<uint64_t>& offsets,
                              uint64_t peak) {
  struct Change {
    uint64_t step;
    bool begins;  // at one step ends come first
    uint32_t buffer;
  };
  const auto name = [&](uint32_t i) { return "buffer '" + printable(problem.ids[i]) + "'"; };
  std::vector<Change> changes;
  for (uint32_t i = 0; i < problem.ids.size(); ++i) {
    if (offsets[i] % problem.align[i])
      return name(i) + " at offset " + std::to_string(offsets[i]) + " is not aligned to " +
             std::to_string(problem.align[i]);
    if (problem.bytes[i] > peak || offsets[i] > peak - problem.bytes[i])
      return name(i) + " at offset " + std::to_string(offsets[i]) + " ends above the peak";
    if (!problem.bytes[i] || problem.lives[i].begin == problem.lives[i].end) continue;
    changes.push_back({problem.lives[i].begin, true, i});
    changes.push_back({problem.lives[i].end, false, i});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tie(a.step, a.begins, a.buffer) < std::tie(b.step, b.begins, b.buffer);
  });
  std::map<uint64_t, uint32_t> live;  // by offset
  for (const Change& change : changes) {
    const uint32_t i = change.buffer;
    if (!change.begins) {
      live.erase(offsets[i]);
      continue;
    }
    const auto after = live.lower_bound(offsets[i]);
    const auto report = [&](uint32_t other) {
      return name(i) + " and " + name(other) + " overlap at step " + std::to_string(change.step);
    };
    if (after != live.end() && after->first < offsets[i] + problem.bytes[i]) return report(after->second);
    if (after != live.begin()) {
      const auto before = std::prev(after);
      if (before->first + problem.bytes[before->second] > offsets[i]) return report(before->second);
    }
    live.emplace(offsets[i], i);
  }
  return "";
}

std::string draw_plan(const PlanProblem& problem, const std::vector<uint64_t>& offsets, uint64_t peak,
                      uint64_t lower_bound, const std::string& title) {
  constexpr double kWidth = 1200, kHeight = 640, kLeft = 90, kTop = 48, kBottom = 40, kRight = 40;
  uint64_t first = UINT64_MAX, last = 0;
  std::vector<uint32_t> shown;
  for (uint32_t i = 0; i < problem.ids.size(); ++i) {
    if (!problem.bytes[i] || problem.lives[i].begin == problem.lives[i].end) continue;
    first = std::min(first, problem.lives[i].begin);
    last = std::max(last, problem.lives[i].end);
    shown.push_back(i);
  }
  if (shown.empty()) first = 0, last = 1;
  const size_t all = shown.size();
  if (all > kMostBoxes) {
    const auto area = [&](uint32_t i) {
      return double(problem.bytes[i]) * double(problem.lives[i].end - problem.lives[i].begin);
    };
    std::nth_element(shown.begin(), shown.begin() + kMostBoxes, shown.end(),
                     [&](uint32_t a, uint32_t b) { return area(a) > area(b); });
    shown.resize(kMostBoxes);
  }
  const double wide = (kWidth - kLeft - kRight) / double(last - first);
  const double high = (kHeight - kTop - kBottom) / double(std::max<uint64_t>(peak, 1));
  const auto x = [&](uint64_t step) { return kLeft + double(step - first) * wide; };
  const auto y = [&](uint64_t offset) { return kHeight - kBottom - double(offset) * high; };
  std::string out;
  const auto add = [&](const char* format, auto... values) {
    char text[512];
    out.append(text,
               size_t(std::min<int>(std::snprintf(text, sizeof text, format, values...), sizeof text - 1)));
  };
  add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  out += "<text x=\"" + fixed(kLeft, 0) + "\" y=\"20\" font-size=\"15\">" + xml_text(title) + "</text>\n";
  const std::string many = all > shown.size() ? "; the largest " + std::to_string(shown.size()) + " of " +
                                                    std::to_string(all) + " are drawn"
                                              : "";
  out += "<text x=\"" + fixed(kLeft, 0) + "\" y=\"38\" fill=\"#555\">" + plural(all, "buffer") + ", peak " +
         bytes_text(peak) + ", lower bound " + bytes_text(lower_bound) + many + "</text>\n";
  for (const uint32_t i : shown) {
    const belay_interval& life = problem.lives[i];
    // Neighbours of the list get colours that lie far apart.
    add("<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"hsl(%u,60%%,72%%)\" "
        "stroke=\"#444\" "
        "stroke-width=\"0.3\"><title>",
        x(life.begin), y(offsets[i] + problem.bytes[i]), double(life.end - life.begin) * wide,
        double(problem.bytes[i]) * high, unsigned(uint64_t(i) * 137 % 360));
    out += xml_text(problem.ids[i]) + ": " + std::to_string(problem.bytes[i]) + " bytes at " +
           std::to_string(offsets[i]) + ", steps " + std::to_string(life.begin) + " to " +
           std::to_string(life.end) + "</title></rect>\n";
  }
  add("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>\n",
      kLeft, y(lower_bound), kWidth - kRight, y(lower_bound));
  // In integers: the largest of 64 bits have no double.
  const auto quarters = [](uint64_t of, uint64_t many) { return of / 4 * many + of % 4 * many / 4; };
  for (uint64_t tick = 0; tick <= 4; ++tick) {
    const uint64_t offset = quarters(peak, tick);
    add("<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", kLeft - 6, y(offset) + 4,
        bytes_text(offset).c_str());
    const uint64_t step = first + quarters(last - first, tick);
    add("<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%llu</text>\n", x(step), kHeight - kBottom + 18,
        static_cast<unsigned long long>(step));
  }
  add("<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\" fill=\"#555\">step</text>\n", kWidth / 2,
      kHeight - 6);
  return out + "</svg>\n";
}

}  // namespace belay::cli
