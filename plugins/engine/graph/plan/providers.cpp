#include "plan/providers.hpp"

#include <algorithm>

namespace belay::plan {

std::vector<Provider> serving(const std::vector<Provider>& all, const belay_device_info& device) {
  std::vector<std::pair<uint32_t, const Provider*>> ranked;
  for (const Provider& provider : all)
    if (const uint32_t score = provider.vt()->serves(provider.object, &device))
      ranked.emplace_back(score, &provider);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Provider> out;
  for (const auto& [score, provider] : ranked) out.push_back(*provider);
  return out;
}

}  // namespace belay::plan
