// core/base/text.h: small helpers for messages.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

inline std::string quote(std::string_view text) { return "'" + std::string(text) + "'"; }

template <class Range>
std::string joined(const Range& words, std::string_view between = ", ") {
  std::string all;
  for (const auto& word : words) all.append(all.empty() ? "" : between).append(word);
  return all;
}

// The candidate that differs least from the word, or "" when none is near: at most a third of its letters and
// three.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// " - did you mean 'x'?", or "".
inline std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : " - did you mean '" + near + "'?";
}

// [a-z][a-z0-9._-]{0,63}
bool valid_id(std::string_view text);

}  // namespace belay::core
