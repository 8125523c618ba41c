#include <belay/graph/outputs.hpp>

#include <belay/graph/view.hpp>

#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_map>

namespace belay::graph {

Status add_outputs(std::vector<uint64_t>& image, std::span<const std::string> names) {
  const View view({image.data(), image.size() * sizeof(uint64_t)});
  std::unordered_map<std::string_view, uint32_t> values;
  for (uint32_t i = 0; i < view.values().size(); ++i)
    if (view.values()[i].graph == 0) values.emplace(view.string(view.values()[i].name), i);

  const std::span<const uint32_t> old = view.section<uint32_t>(view.header().indices),
                                  outputs = view.indices(view.graphs()[0].outputs);
  if (old.size() + outputs.size() + names.size() > std::numeric_limits<uint32_t>::max())
    return {Code::kOutOfRange, "The graph cannot have " + std::to_string(names.size()) + " more outputs."};
  std::vector<uint32_t> pool(old.begin(), old.end());
  pool.insert(pool.end(), outputs.begin(), outputs.end());
  for (const std::string& name : names) {
    const auto at = values.find(name);
    if (at == values.end() || name.empty())
      return {Code::kNotFound, "The main graph has no value '" + name + "' that could be an output."};
    pool.push_back(at->second);
  }
  const belay_list list{uint32_t(old.size()), uint32_t(pool.size() - old.size())};

  // The pool grows at the end of the image, so that nothing else moves; the old one is left unused.
  const size_t begin = image.size();
  image.resize(begin + (pool.size() * sizeof(uint32_t) + 7) / 8);
  std::memcpy(image.data() + begin, pool.data(), pool.size() * sizeof(uint32_t));
  auto* const header = reinterpret_cast<belay_graph_image*>(image.data());
  header->indices = {begin * sizeof(uint64_t), pool.size()};
  header->total_bytes = image.size() * sizeof(uint64_t);
  auto* const main =
      reinterpret_cast<belay_graph_graph*>(reinterpret_cast<char*>(image.data()) + header->graphs.offset);
  main->outputs = list;
  return {};
}

}  // namespace belay::graph
