#include "plan/program.hpp"

#include "plan/lanes.hpp"
#include "plan/memory.hpp"

#include <belay/graph/view.hpp>

#include <algorithm>

namespace belay::plan {
namespace {

// Values that share bytes are one group, named by the value that a kernel (or an earlier stage) makes.
class ProgramMaker {
 public:
  ProgramMaker(const Target& target, ConstantPool& pool, const Image& image,
               const std::set<ir::ValueId>& before, const std::set<ir::ValueId>& needed, Stage& stage)
      : target_(target), pool_(pool), image_(image), before_(before), needed_(needed), stage_(stage) {}

  Status run(const Choice& choice, const std::function<bool(const ir::Node&)>& is_view) {
    std::set<uint32_t> fused;  // nodes inside claims of several
    for (const Claim& claim : choice.claims)
      if (claim.nodes.size() > 1) fused.insert(claim.nodes.begin(), claim.nodes.end());
    for (uint32_t n = 0; n < image_.nodes.size(); ++n) {
      const ir::Node& node = *image_.nodes[n];
      if (!fused.contains(n) && is_view(node)) {
        root_[node.outputs[0]] = root(stage_.env.resolve(node.inputs[0]));
        views_.insert(n);
      }
    }
    for (const Claim& claim : choice.claims)
      if (claim.nodes.size() > 1 || !views_.contains(claim.nodes[0])) claims_.push_back(&claim);
    BELAY_TRY(prepare_kernels());
    if (!stage_.unfit.empty()) return {};
    find_homes();
    find_shared();
    order();
    BELAY_TRY(place());
    return build();
  }

 private:
  ir::ValueId root(ir::ValueId value) const {
    const auto at = root_.find(value);
    return at == root_.end() ? value : at->second;
  }

  uint64_t bytes_of(ir::ValueId value) const {
    const ir::Type& type = stage_.env.types[value];
    return dtype_bytes(type.dtype, element_count(type.dims).value_or(0)).value_or(0);
  }

  Status prepare_kernels() {
    first_info_ = stage_.infos.size();
    for (const Claim* claim : claims_) {
      BELAY_ASSIGN(PreparedPtr kernel, prepare(target_.hal, image_, *claim, target_.info, target_.threads(),
                                               target_.options.precision));
      if ((*kernel)->kernel.hdr.flags &
          BELAY_KERNEL_WRITES_SHAPE) {  // no program can give it memory while it runs
        for (const uint32_t node : claim->nodes) stage_.unfit.push_back(image_.nodes[node]->id);
        continue;
      }
      stage_.packed_bytes += (*kernel)->packed_bytes;
      KernelInfo& info = stage_.infos.emplace_back();
      for (const uint32_t node : claim->nodes)
        info.node += (info.node.empty() ? "" : " + ") + image_.nodes[node]->name;
      info.op = operators_of(image_, *claim);
      info.provider = claim->provider.key;
      info.implementation = to_string((*kernel)->implementation);
      info.reason = to_string((*kernel)->reason);
      info.cost_ns = (*kernel)->kernel.cost_ns ? (*kernel)->kernel.cost_ns : claim->cost_ns;
      stage_.kernels.push_back(std::move(kernel));
    }
    return {};
  }

  // Decides which values get memory of their own and which are places in the arena.
  void find_homes() {
    std::map<ir::ValueId, std::vector<ir::ValueId>> outliving;  // members by group, the group itself apart
    for (const ir::ValueId value : needed_) {
      const ir::ValueId group = root(value);
      if (before_.contains(group)) {
        if (group != value) stage_.views.emplace_back(value, group);
      } else if (stage_.available.contains(group)) {
        std::vector<ir::ValueId>& members = outliving[group];
        if (value != group) members.push_back(value);
      }
    }
    for (const auto& [group, members] : outliving) {
      Made& made = stage_.made.emplace_back();
      made.bytes = bytes_of(group);
      made.members.push_back(group);
      made.members.insert(made.members.end(), members.begin(), members.end());
      made.binding = value_binding(group);
      own_.insert(group);
    }
  }

  // What a caller may give one memory for: as in the arena, but for what comes from outside and goes there.
  void find_shared() {
    std::map<ir::ValueId, uint32_t> reads;  // by group
    for (const Claim* claim : claims_)
      for (const uint32_t value : claim->inputs)
        if (value != BELAY_NONE) ++reads[root(image_.values[value])];
    for (const Claim* claim : claims_)
      for (const belay_in_place& pair : claim->in_place) {
        const uint32_t in = claim->inputs[pair.input], out = claim->outputs[pair.output];
        if (in == BELAY_NONE || out == BELAY_NONE || image_.constants[in]) continue;
        const ir::ValueId from = image_.values[in], to = root(image_.values[out]);
        if (!before_.contains(from) || needed_.contains(from) || reads[root(from)] != 1) continue;
        for (const Made& made : stage_.made)
          if (made.members[0] == to)
            for (const ir::ValueId member : made.members) stage_.shared.emplace_back(from, member);
      }
  }

  // Spreads the kernels over lanes, where that is wanted, and puts them into the order of their beginnings.
  void order() {
    LaneRequest req;
    std::unordered_map<ir::ValueId, uint32_t> makers;
    for (uint32_t k = 0; k < claims_.size(); ++k) {
      req.cost_ns.push_back(stage_.kernels[k]->kernel().cost_ns);
      for (const uint32_t value : claims_[k]->inputs)
        if (value != BELAY_NONE)
          if (const auto at = makers.find(root(image_.values[value])); at != makers.end())
            req.edges.emplace_back(at->second, k);
      for (const uint32_t value : claims_[k]->outputs)
        if (value != BELAY_NONE) makers[root(image_.values[value])] = k;
    }
    const uint64_t streams = target_.options.streams;
    req.lanes = uint32_t(std::min<uint64_t>(streams ? streams : target_.threads(), 64));
    req.always = streams > 1;
    lanes_ = spread(req);
    if (!lanes_.parallel) return;
    std::vector<uint32_t> position(claims_.size());
    const auto claims = claims_;
    const auto kernels = stage_.kernels;
    const std::vector<KernelInfo> infos(stage_.infos.begin() + ptrdiff_t(first_info_), stage_.infos.end());
    for (uint32_t i = 0; i < claims.size(); ++i) {
      const uint32_t k = lanes_.order[i];
      position[k] = i;
      claims_[i] = claims[k];
      stage_.kernels[i] = kernels[k];
      stage_.infos[first_info_ + i] = infos[k];
    }
    for (const auto& [before, after] : req.edges)
      dependencies_.emplace_back(position[before], position[after]);
    if (streams) dependencies_.insert(dependencies_.end(), lanes_.chains.begin(), lanes_.chains.end());
  }

  // Places in the arena that more than one value takes, one after the other: what writes the next one waits
  // for all that use the one before.
  void add_reuse_dependencies() {
    std::vector<std::vector<uint32_t>> users(buffers_.size());  // positions
    std::vector<std::vector<uint32_t>> written(claims_.size());
    for (uint32_t k = 0; k < claims_.size(); ++k) {
      const auto use = [&](uint32_t value, bool write) {
        if (value == BELAY_NONE) return;
        const auto at = arena_of_.find(root(image_.values[value]));
        if (at == arena_of_.end()) return;
        users[at->second].push_back(k);
        if (write) written[k].push_back(at->second);
      };
      for (const uint32_t value : claims_[k]->inputs) use(value, false);
      for (const uint32_t value : claims_[k]->outputs) use(value, true);
      if (const auto at = workspace_of_.find(k); at != workspace_of_.end()) {
        users[at->second].push_back(k);
        written[k].push_back(at->second);
      }
    }
    std::map<uint64_t, std::pair<uint64_t, uint32_t>> owners;  // begin: end, buffer
    for (uint32_t k = 0; k < claims_.size(); ++k)
      for (const uint32_t buffer : written[k]) {
        const uint64_t begin = places_.offsets[buffer], end = begin + buffers_[buffer].bytes;
        if (begin == end) continue;
        auto at = owners.upper_bound(begin);
        if (at != owners.begin() && std::prev(at)->second.first > begin) --at;
        while (at != owners.end() && at->first < end) {
          const auto [from, piece] = *at;
          for (const uint32_t user : users[piece.second])
            if (user != k) dependencies_.emplace_back(user, k);
          at = owners.erase(at);
          if (from < begin) owners[from] = {begin, piece.second};
          if (piece.first > end) owners[end] = piece;
        }
        owners[begin] = {end, buffer};
      }
  }

  uint32_t value_binding(ir::ValueId value) {
    const auto [at, fresh] = value_bindings_.try_emplace(value, uint32_t(stage_.bindings.size()));
    if (fresh) {
      Binding& binding = stage_.bindings.emplace_back();
      binding.kind = Binding::kValue;
      binding.value = value;
    }
    return at->second;
  }

  bool in_arena(ir::ValueId group) const {
    return !before_.contains(group) && !own_.contains(group) && !stage_.env.constants[group];
  }

  Status place() {
    std::vector<belay_pair> in_place;
    std::vector<ir::ValueId> groups;
    for (uint64_t step = 0; step < claims_.size(); ++step) {
      const Claim& claim = *claims_[step];
      const uint64_t end = lanes_.end[step];
      for (const uint32_t value : claim.outputs) {
        if (value == BELAY_NONE) continue;
        const ir::ValueId group = root(image_.values[value]);
        if (!in_arena(group) || arena_of_.contains(group)) continue;
        arena_of_[group] = uint32_t(buffers_.size());
        buffers_.push_back({bytes_of(group), step, end});
        groups.push_back(group);
      }
      for (const uint32_t value : claim.inputs) {
        if (value == BELAY_NONE) continue;
        if (const auto at = arena_of_.find(root(image_.values[value])); at != arena_of_.end())
          buffers_[at->second].end = std::max(buffers_[at->second].end, end);
      }
      if ((*stage_.kernels[step])->workspace_bytes) {
        workspace_of_[step] = uint32_t(buffers_.size());
        buffers_.push_back({(*stage_.kernels[step])->workspace_bytes, step, end});
      }
    }
    if (lanes_.parallel) find_other_ends();
    for (uint64_t step = 0; step < claims_.size(); ++step) add_in_place(step, in_place);
    BELAY_ASSIGN(places_, place_buffers(target_.hal, buffers_, in_place));
    const uint64_t limit =
        target_.options.memory_limit ? target_.options.memory_limit : target_.info.memory_bytes;
    if (limit && places_.bytes > limit)
      return {Code::kResourceExhausted, "The plan needs " + std::to_string(places_.bytes) +
                                            " bytes for intermediate tensors, the limit is " +
                                            std::to_string(limit) + "."};
    stage_.arena_bytes = places_.bytes;
    stage_.live_bytes = places_.live_bytes;
    return {};
  }

  // When all uses of a buffer but the last to begin have ended.
  void find_other_ends() {
    last_user_.resize(buffers_.size());
    others_end_.resize(buffers_.size());
    for (uint64_t step = 0; step < claims_.size(); ++step)
      for (const auto* list : {&claims_[step]->outputs, &claims_[step]->inputs})
        for (const uint32_t value : *list) {
          if (value == BELAY_NONE) continue;
          const auto at = arena_of_.find(root(image_.values[value]));
          if (at == arena_of_.end() || last_user_[at->second] == step) continue;
          uint64_t& end = others_end_[at->second];
          end = std::max(end, buffers_[at->second].begin == step ? 0 : lanes_.end[last_user_[at->second]]);
          last_user_[at->second] = step;
        }
  }

  // Whether `step` is the last to use the buffer, and alone then; between lanes the buffer's life then ends
  // with the beginning of `step`, as policies want it.
  bool dies_in(uint64_t step, ArenaBuffer& buffer) {
    if (!lanes_.parallel) return buffer.end == step + 1;
    const size_t at = size_t(&buffer - buffers_.data());
    if (last_user_[at] != step || others_end_[at] > step || buffer.begin == step) return false;
    buffer.end = step + 1;
    return true;
  }

  void add_in_place(uint64_t step, std::vector<belay_pair>& out) {
    const Claim& claim = *claims_[step];
    for (const belay_in_place& pair : claim.in_place) {
      const uint32_t in = claim.inputs[pair.input], result = claim.outputs[pair.output];
      if (in == BELAY_NONE || result == BELAY_NONE) continue;
      const ir::ValueId from = root(image_.values[in]), to = root(image_.values[result]);
      const auto a = arena_of_.find(from), b = arena_of_.find(to);
      if (a == arena_of_.end() || b == arena_of_.end() || buffers_[b->second].begin != step) continue;
      // A value that the kernel reads by two arguments may be wanted by the other after it was overwritten.
      const auto same = [&](uint32_t value) {
        return value != BELAY_NONE && root(image_.values[value]) == from;
      };
      if (std::count_if(claim.inputs.begin(), claim.inputs.end(), same) > 1) continue;
      if (!dies_in(step, buffers_[a->second])) continue;
      out.push_back({a->second, b->second});
    }
  }

  Status build() {
    if (claims_.empty()) return {};
    // Constants that no kernel packed need a place.
    std::vector<ir::ConstantPtr> constants;
    std::unordered_map<ir::ValueId, size_t> constant_at;
    for (size_t k = 0; k < claims_.size(); ++k)
      for (size_t i = 0; i < claims_[k]->inputs.size(); ++i) {
        const uint32_t value = claims_[k]->inputs[i];
        if (value == BELAY_NONE || !image_.constants[value] ||
            (i < 64 && ((*stage_.kernels[k])->unused_inputs >> i & 1)))
          continue;
        const ir::ValueId id = image_.values[value];
        if (constant_at.try_emplace(id, constants.size()).second)
          constants.push_back(stage_.env.constants[id]);
      }
    BELAY_ASSIGN(const std::vector<ConstantPlace> places, pool_.place(constants, stage_.constants));
    std::map<std::pair<const void*, const void*>, uint32_t> constant_bindings;
    uint32_t arena_binding = BELAY_NONE;
    const auto arena = [&] {
      if (arena_binding == BELAY_NONE) {
        arena_binding = uint32_t(stage_.bindings.size());
        stage_.bindings.emplace_back();
      }
      return arena_binding;
    };

    std::vector<std::vector<belay_arg>> args(claims_.size());
    std::vector<belay_node> nodes(claims_.size());
    std::vector<std::string> names(claims_.size());
    for (size_t k = 0; k < claims_.size(); ++k) {
      const Claim& claim = *claims_[k];
      const auto add = [&](uint32_t value, uint32_t access, bool unused) {
        belay_arg& arg = args[k].emplace_back();
        arg.kind = BELAY_ARG_BUFFER;
        arg.binding = BELAY_NO_BINDING;
        if (value == BELAY_NONE || unused) return;
        arg.access = access;
        const ir::ValueId id = image_.values[value], group = root(id);
        if (image_.constants[value]) {
          const ConstantPlace& place = places[constant_at[id]];
          const auto [at, fresh] =
              constant_bindings.try_emplace({place.host, place.buffer}, uint32_t(stage_.bindings.size()));
          if (fresh) {
            Binding& binding = stage_.bindings.emplace_back();
            binding.kind = Binding::kConstant;
            binding.place = place;
          }
          arg.binding = at->second;
          arg.value = place.offset;
          arg.bytes = stage_.env.constants[id]->bytes;
          return;
        }
        arg.bytes = bytes_of(id);
        if (const auto at = arena_of_.find(group); at != arena_of_.end()) {
          arg.binding = arena();
          arg.value = places_.offsets[at->second];
        } else {
          arg.binding = value_binding(group);
        }
      };
      for (size_t i = 0; i < claim.inputs.size(); ++i)
        add(claim.inputs[i], BELAY_ACCESS_READ, i < 64 && ((*stage_.kernels[k])->unused_inputs >> i & 1));
      for (const uint32_t value : claim.outputs) add(value, BELAY_ACCESS_WRITE, false);
      if (const auto at = workspace_of_.find(k); at != workspace_of_.end()) {
        belay_arg& arg = args[k].emplace_back();
        arg.kind = BELAY_ARG_BUFFER;
        arg.binding = arena();
        arg.value = places_.offsets[at->second];
        arg.bytes = buffers_[at->second].bytes;
        arg.access = BELAY_ACCESS_READ | BELAY_ACCESS_WRITE;
      }
      names[k] = image_.nodes[claim.nodes.back()]->label();
      nodes[k].hdr.struct_size = sizeof(belay_node);
      nodes[k].kernel = &stage_.kernels[k]->kernel();
      nodes[k].args = args[k].data();
      nodes[k].arg_count = args[k].size();
      nodes[k].name = to_str(names[k]);
    }
    std::vector<const belay_node*> pointers;
    for (const belay_node& node : nodes) pointers.push_back(&node);
    belay_program_req req{};
    req.hdr.struct_size = sizeof req;
    req.nodes = pointers.data();
    req.node_count = pointers.size();
    req.binding_count = stage_.bindings.size();
    std::vector<uint32_t> flat;
    if (lanes_.parallel) {
      add_reuse_dependencies();
      dependencies_ = reduce(std::move(dependencies_), uint32_t(claims_.size()));
      for (const auto& [before, after] : dependencies_) flat.insert(flat.end(), {before, after});
      // Without any dependency a pointer must still be there: NULL would mean one after the other.
      if (flat.empty()) flat.resize(2);
      req.dependencies = flat.data();
      req.dependency_count = dependencies_.size();
    }
    belay_obj* program = nullptr;
    BELAY_TRY(
        target_.hal.check(target_.hal.vt->program_create(target_.hal.host, target_.device, &req, &program)));
    stage_.program = {target_.hal, program};
    for (size_t k = 0; k < claims_.size(); ++k)  // as the request has it; drivers keep about as much
      stage_.program_bytes += sizeof(belay_node) + args[k].size() * sizeof(belay_arg) + names[k].size();
    return {};
  }

  const Target& target_;
  ConstantPool& pool_;
  const Image& image_;
  const std::set<ir::ValueId>&before_, &needed_;
  Stage& stage_;
  std::vector<const Claim*> claims_;
  std::set<uint32_t> views_;
  std::set<ir::ValueId> own_;
  std::unordered_map<ir::ValueId, ir::ValueId> root_;
  std::unordered_map<ir::ValueId, uint32_t> value_bindings_, arena_of_;
  std::map<uint64_t, uint32_t> workspace_of_;
  std::vector<ArenaBuffer> buffers_;
  ArenaPlan places_;
  size_t first_info_ = 0;  // of the program's kernels
  Lanes lanes_;
  Pairs dependencies_;                            // of positions
  std::vector<uint64_t> last_user_, others_end_;  // by buffer
};

}  // namespace

Status make_program(const Target& target, ConstantPool& pool, const Image& image, const Choice& choice,
                    const std::set<ir::ValueId>& before, const std::set<ir::ValueId>& needed,
                    const std::function<bool(const ir::Node&)>& is_view, Stage& stage) {
  return ProgramMaker(target, pool, image, before, needed, stage).run(choice, is_view);
}

}  // namespace belay::plan
