#include "core/base/text.h"

#include <numeric>
#include <utility>

namespace belay::core {

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  if (word.size() > 128) return best;  // the work grows with the product of the lengths
  size_t least = std::min<size_t>(3, (word.size() + 2) / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 128) continue;
    std::vector<size_t> row(candidate.size() +
                            1);  // distances of Levenshtein with swaps of neighbours left out
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = std::exchange(row[0], i);
      for (size_t j = 1; j <= candidate.size(); ++j)
        diagonal = std::exchange(
            row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (word[i - 1] != candidate[j - 1])}));
    }
    if (row.back() < least) least = row.back(), best = candidate;
  }
  return best;
}

bool valid_id(std::string_view text) {
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !text.empty() && text.size() <= 64 && letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
         });
}

}  // namespace belay::core
