#include "memory_map.hpp"

#include "text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>

namespace belay::cli {
namespace {

constexpr double kWidth = 1200, kLeft = 90, kRight = 20, kTop = 76, kRow = 18, kGap = 4;
constexpr uint64_t kRows = 32;
constexpr double kLeastWidth = 0.02;  // of a box that is drawn

struct Look {
  const char *state, *fill;
};
constexpr Look kLooks[] = {{"used", "#4878a8"}, {"pending", "#e8a33d"}, {"free", "#e4e7ea"}};

const Look& look_of(const std::string& state) {
  const auto* at = std::find_if(std::begin(kLooks), std::end(kLooks), [&](const Look& look) { return state == look.state; });
  return at == std::end(kLooks) ? kLooks[2] : *at;
}

}  // namespace

std::string draw_memory_map(const nlohmann::json& snapshot, const std::string& title) {
  const nlohmann::json& segments = snapshot.at("segments");
  uint64_t total = 0, rows = 0;
  for (const auto& segment : segments) total += segment.at("bytes").get<uint64_t>();
  const uint64_t row_bytes = std::max<uint64_t>(1, total / kRows + 1);
  for (const auto& segment : segments) rows += (segment.at("bytes").get<uint64_t>() + row_bytes - 1) / row_bytes;
  std::string boxes;
  uint64_t first_row = 0, number = 0, bytes[3] = {}, count[3] = {};
  const double scale = (kWidth - kLeft - kRight) / double(row_bytes);
  for (const auto& segment : segments) {
    const auto size = segment.at("bytes").get<uint64_t>();
    const std::string name = "segment " + std::to_string(segment.at("segment").get<uint64_t>());
    for (const auto& block : segment.at("blocks")) {
      const auto offset = block.at("offset").get<uint64_t>(), length = block.at("bytes").get<uint64_t>();
      const Look& look = look_of(block.at("state").get<std::string>());
      bytes[&look - kLooks] += length;
      ++count[&look - kLooks];
      for (uint64_t at = offset; at < offset + length;) {  // to the end of each row
        const uint64_t row = at / row_bytes, end = std::min(offset + length, (row + 1) * row_bytes);
        const double width = double(end - at) * scale;
        if (width >= kLeastWidth)
          boxes += "<rect x=\"" + fixed(kLeft + double(at - row * row_bytes) * scale, 2) + "\" y=\"" +
                   fixed(kTop + double(first_row + row) * (kRow + kGap), 0) + "\" width=\"" + fixed(width, 2) +
                   "\" height=\"" + fixed(kRow, 0) + "\" fill=\"" + look.fill +
                   "\" stroke=\"white\" stroke-width=\"0.3\"><title>" + look.state + ": " + std::to_string(length) +
                   " bytes at " + std::to_string(offset) + " of " + name + "</title></rect>\n";
        at = end;
      }
    }
    ++number;
    for (uint64_t row = 0; row * row_bytes < size; ++row)
      boxes += "<text x=\"" + fixed(kLeft - 8, 0) + "\" y=\"" +
               fixed(kTop + double(first_row + row) * (kRow + kGap) + 13, 0) + "\" text-anchor=\"end\" fill=\"" +
               (row == 0 ? "#000" : "#888") + "\">" +
               (row == 0 ? "segment " + std::to_string(number) : bytes_text(row * row_bytes)) + "</text>\n";
    first_row += (size + row_bytes - 1) / row_bytes;
  }
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + fixed(kWidth, 0) + " " +
                    fixed(kTop + double(rows) * (kRow + kGap) + 16, 0) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
                    "fill=\"white\"/>\n";
  out += "<text x=\"" + fixed(kLeft, 0) + "\" y=\"22\" font-size=\"15\">" + xml_text(title) + "</text>\n<text x=\"" +
         fixed(kLeft, 0) + "\" y=\"40\" fill=\"#555\">" + bytes_text(total) + " in " + plural(segments.size(), "segment") +
         ", when most is live; offsets count from where a segment begins</text>\n";
  double x = kLeft;
  for (size_t i = 0; i < std::size(kLooks); ++i, x += 260)
    out += "<rect x=\"" + fixed(x, 0) + "\" y=\"50\" width=\"14\" height=\"14\" fill=\"" + kLooks[i].fill +
           "\"/><text x=\"" + fixed(x + 20, 0) + "\" y=\"62\">" + kLooks[i].state + ": " + bytes_text(bytes[i]) + " in " +
           plural(count[i], "block") + "</text>\n";
  return out + boxes + "</svg>\n";
}

}  // namespace belay::cli
