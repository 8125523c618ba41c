// What a Builder holds until it is frozen; shared by builder.cpp and freeze.cpp, not installed.
#pragma once

#include <belay/graph/builder.hpp>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace belay::graph {

inline constexpr uint64_t kMaxRecords = 0xfffffffeu;  // BELAY_NONE is no index
inline constexpr size_t kMaxRank = 32;                // BELAY_MAX_RANK of abi/tensor.h

struct NodeRecord {
  uint32_t domain, op, since_version, name, graph;
  std::vector<uint32_t> inputs, outputs, control_inputs;
  std::vector<belay_graph_attribute> attributes;  // lists point into the pools of State
};

struct GraphRecord {
  uint32_t name, parent;
  std::vector<uint32_t> inputs, outputs;
};

struct Builder::State {
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  std::string bytes;
  std::vector<belay_graph_string> strings;
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> string_ids;
  std::vector<uint32_t> indices;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<belay_graph_dim> dims;
  std::vector<belay_graph_shape> shapes;
  std::map<std::vector<Dim>, uint32_t> shape_ids;
  std::vector<belay_graph_type> types;
  std::map<std::vector<uint32_t>, uint32_t> type_ids;
  std::vector<belay_graph_quant> quants;
  std::vector<belay_graph_constant> constants;
  std::vector<belay_graph_source> sources;
  std::vector<belay_graph_value> values;
  std::vector<NodeRecord> nodes;
  std::vector<GraphRecord> graphs;
  std::vector<belay_graph_pair> metadata;
  std::string data;
  Status misuse;  // the first wrong call; freeze returns it

  void fail(Code code, std::string message) {
    if (misuse.ok()) misuse = {code, std::move(message)};
  }
  // Index of the record that is added next to a section of `size` records.
  uint32_t next(size_t size, std::string_view section) {
    if (size < kMaxRecords) return uint32_t(size);
    fail(Code::kResourceExhausted, "The graph has more than 2^32 - 2 " + std::string(section) + ".");
    return 0;
  }
  // True when `index` is a record of `size`; else the call that used it is misuse.
  bool check(uint32_t index, size_t size, std::string_view what) {
    if (index < size) return true;
    fail(Code::kInvalidArgument, "A call of the graph builder names " + std::string(what) + " " +
                                     std::to_string(index) + ", of which there are " + std::to_string(size) +
                                     ".");
    return false;
  }
  uint32_t intern(std::string_view text);
  uint32_t type(const belay_graph_type& type);
  template <class T>
  belay_list append(std::vector<T>& pool, std::span<const T> items, std::string_view section) {
    if (items.size() > kMaxRecords - pool.size()) {
      fail(Code::kResourceExhausted, "The graph has more than 2^32 - 2 " + std::string(section) + ".");
      return {0, 0};
    }
    const belay_list list{uint32_t(pool.size()), uint32_t(items.size())};
    pool.insert(pool.end(), items.begin(), items.end());
    return list;
  }
  belay_list constant_dims(std::span<const int64_t> values);
  uint32_t constant(std::string_view name, uint32_t dtype, std::span<const int64_t> dims, uint32_t source,
                    uint64_t offset, uint64_t size);
  void attribute(uint32_t node, std::string_view name, uint32_t kind, belay_list values);
  std::string_view text(uint32_t string) const {
    return {bytes.data() + strings[string].offset, size_t(strings[string].len)};
  }
};

}  // namespace belay::graph
