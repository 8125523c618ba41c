#include "plan/program.hpp"

#include <algorithm>

namespace belay::plan {
namespace {

// Values that share bytes are one group, named by the value that a kernel (or an earlier stage) makes.
class ProgramMaker {
 public:
  ProgramMaker(const Target& target, ConstantPool& pool, const Outline* like, Stage& stage)
      : target_(target),
        pool_(pool),
        before_(stage.outline.before),
        needed_(stage.outline.needed),
        like_(like),
        stage_(stage),
        out_(stage.outline) {}

  Status run() {
    for (const ir::Node* node : out_.views)
      root_[node->outputs[0]] = root(stage_.env.resolve(node->inputs[0]));
    find_homes();
    find_shared();
    find_edges();
    BELAY_TRY(place());
    describe_kernels();
    BELAY_TRY(build());
    out_.lanes = std::move(lanes_);
    out_.layout = std::move(layout_);
    return {};
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

  void describe_kernels() {
    for (const Unit* unit : units_) {
      const Prepared& kernel = *unit->kernel;
      stage_.packed_bytes += kernel->packed_bytes;
      KernelInfo& info = stage_.infos.emplace_back();
      for (const ir::Node* node : unit->nodes) {
        info.node += (info.node.empty() ? "" : " + ") + node->name;
        info.op += (info.op.empty() ? "" : "+") + node->op;
      }
      info.provider = unit->provider.key;
      info.implementation = to_string(kernel->implementation);
      info.reason = to_string(kernel->reason);
      info.cost_ns = kernel.kernel().cost_ns ? kernel.kernel().cost_ns : unit->cost_ns;
    }
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
    for (const Unit& unit : out_.units)
      for (const ir::ValueId value : unit.inputs)
        if (value != BELAY_NONE) ++reads[root(value)];
    for (const Unit& unit : out_.units)
      for (const belay_in_place& pair : unit.in_place) {
        const ir::ValueId in = unit.inputs[pair.input], out = unit.outputs[pair.output];
        if (in == BELAY_NONE || out == BELAY_NONE || stage_.env.constants[in]) continue;
        const ir::ValueId from = in, to = root(out);
        if (!before_.contains(from) || needed_.contains(from) || reads[root(from)] != 1) continue;
        for (const Made& made : stage_.made)
          if (made.members[0] == to)
            for (const ir::ValueId member : made.members) stage_.shared.emplace_back(from, member);
      }
  }

  void find_edges() {
    std::unordered_map<ir::ValueId, uint32_t> makers;
    for (uint32_t k = 0; k < out_.units.size(); ++k) {
      for (const ir::ValueId value : out_.units[k].inputs)
        if (value != BELAY_NONE)
          if (const auto at = makers.find(root(value)); at != makers.end())
            edges_.emplace_back(at->second, k);
      for (const ir::ValueId value : out_.units[k].outputs)
        if (value != BELAY_NONE) makers[root(value)] = k;
    }
  }

  // Spreads the kernels over lanes, where that is wanted.
  Lanes spread_kernels() const {
    LaneRequest req;
    req.edges = edges_;
    for (const Unit& unit : out_.units) req.cost_ns.push_back(unit.kernel->kernel().cost_ns);
    const uint64_t streams = target_.options.streams;
    req.lanes = uint32_t(std::min<uint64_t>(streams ? streams : target_.threads(), 64));
    req.always = streams > 1;
    return spread(req);
  }

  // Puts the kernels into the order of their beginnings, and finds what must be placed then.
  void arrange(Lanes lanes) {
    lanes_ = std::move(lanes);
    units_.clear();
    dependencies_.clear();
    std::vector<uint32_t> position(out_.units.size());
    for (const uint32_t k : lanes_.order) {
      position[k] = uint32_t(units_.size());
      units_.push_back(&out_.units[k]);
    }
    if (lanes_.parallel) {
      for (const auto& [before, after] : edges_)
        dependencies_.emplace_back(position[before], position[after]);
      if (target_.options.streams)
        dependencies_.insert(dependencies_.end(), lanes_.chains.begin(), lanes_.chains.end());
    }
    collect_buffers();
  }

  // Places in the arena that more than one value takes, one after the other: what writes the next one waits
  // for all that use the one before.
  void add_reuse_dependencies() {
    std::vector<std::vector<uint32_t>> users(layout_.buffers.size());  // positions
    std::vector<std::vector<uint32_t>> written(units_.size());
    for (uint32_t k = 0; k < units_.size(); ++k) {
      const auto use = [&](ir::ValueId value, bool write) {
        if (value == BELAY_NONE) return;
        const auto at = arena_of_.find(root(value));
        if (at == arena_of_.end()) return;
        users[at->second].push_back(k);
        if (write) written[k].push_back(at->second);
      };
      for (const ir::ValueId value : units_[k]->inputs) use(value, false);
      for (const ir::ValueId value : units_[k]->outputs) use(value, true);
      if (const auto at = workspace_of_.find(k); at != workspace_of_.end()) {
        users[at->second].push_back(k);
        written[k].push_back(at->second);
      }
    }
    std::map<uint64_t, std::pair<uint64_t, uint32_t>> owners;  // begin: end, buffer
    for (uint32_t k = 0; k < units_.size(); ++k)
      for (const uint32_t buffer : written[k]) {
        const uint64_t begin = layout_.offsets[buffer], end = begin + layout_.buffers[buffer].bytes;
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

  void collect_buffers() {
    auto& buffers = layout_.buffers;
    layout_ = {};
    arena_of_.clear();
    workspace_of_.clear();
    for (uint32_t step = 0; step < units_.size(); ++step) {
      const Unit& unit = *units_[step];
      const uint64_t end = lanes_.end[step];
      for (const ir::ValueId value : unit.outputs) {
        if (value == BELAY_NONE) continue;
        const ir::ValueId group = root(value);
        if (!in_arena(group) || arena_of_.contains(group)) continue;
        arena_of_[group] = uint32_t(buffers.size());
        buffers.push_back({bytes_of(group), step, end, group});
      }
      for (const ir::ValueId value : unit.inputs) {
        if (value == BELAY_NONE) continue;
        if (const auto at = arena_of_.find(root(value)); at != arena_of_.end())
          buffers[at->second].end = std::max(buffers[at->second].end, end);
      }
      if ((*unit.kernel)->workspace_bytes) {
        workspace_of_[step] = uint32_t(buffers.size());
        const uint64_t owner = uint64_t{1} << 32 | lanes_.order[step];
        buffers.push_back({(*unit.kernel)->workspace_bytes, step, end, owner});
      }
    }
    if (lanes_.parallel) find_other_ends();
    for (uint64_t step = 0; step < units_.size(); ++step) add_in_place(step);
  }

  Status place() {
    const uint64_t limit =
        target_.options.memory_limit ? target_.options.memory_limit : target_.info.memory_bytes;
    if (like_) {
      arrange(like_->lanes);
      if (like_->layout.holds(layout_.buffers, layout_.in_place)) layout_ = like_->layout;
    }
    if (layout_.offsets.empty()) {
      arrange(spread_kernels());
      const ArenaLayout exact = layout_;
      if (like_) add_room(layout_.buffers, like_->layout.buffers, target_.options.plan_growth);
      BELAY_TRY(place_buffers(target_.hal, layout_));
      if (like_ && limit && layout_.bytes > limit) {
        layout_ = exact;
        BELAY_TRY(place_buffers(target_.hal, layout_));
      }
    }
    if (limit && layout_.bytes > limit)
      return {Code::kResourceExhausted, "The plan needs " + std::to_string(layout_.bytes) +
                                            " bytes for intermediate tensors, the limit is " +
                                            std::to_string(limit) + "."};
    stage_.arena_bytes = layout_.bytes;
    stage_.live_bytes = layout_.live_bytes;
    return {};
  }

  // When all uses of a buffer but the last to begin have ended.
  void find_other_ends() {
    last_user_.assign(layout_.buffers.size(), 0);
    others_end_.assign(layout_.buffers.size(), 0);
    for (uint64_t step = 0; step < units_.size(); ++step)
      for (const auto* list : {&units_[step]->outputs, &units_[step]->inputs})
        for (const ir::ValueId value : *list) {
          if (value == BELAY_NONE) continue;
          const auto at = arena_of_.find(root(value));
          if (at == arena_of_.end() || last_user_[at->second] == step) continue;
          uint64_t& end = others_end_[at->second];
          const bool fresh = layout_.buffers[at->second].begin == step;
          end = std::max(end, fresh ? 0 : lanes_.end[last_user_[at->second]]);
          last_user_[at->second] = step;
        }
  }

  // Whether `step` is the last to use the buffer, and alone then; between lanes the buffer's life then ends
  // with the beginning of `step`, as policies want it.
  bool dies_in(uint64_t step, ArenaBuffer& buffer) {
    if (!lanes_.parallel) return buffer.end == step + 1;
    const size_t at = size_t(&buffer - layout_.buffers.data());
    if (last_user_[at] != step || others_end_[at] > step || buffer.begin == step) return false;
    buffer.end = step + 1;
    return true;
  }

  void add_in_place(uint64_t step) {
    const Unit& unit = *units_[step];
    for (const belay_in_place& pair : unit.in_place) {
      const ir::ValueId in = unit.inputs[pair.input], result = unit.outputs[pair.output];
      if (in == BELAY_NONE || result == BELAY_NONE) continue;
      const ir::ValueId from = root(in), to = root(result);
      const auto a = arena_of_.find(from), b = arena_of_.find(to);
      if (a == arena_of_.end() || b == arena_of_.end() || layout_.buffers[b->second].begin != step) continue;
      // A value that the kernel reads by two arguments may be wanted by the other after it was overwritten.
      const auto same = [&](ir::ValueId value) { return value != BELAY_NONE && root(value) == from; };
      if (std::count_if(unit.inputs.begin(), unit.inputs.end(), same) > 1) continue;
      if (!dies_in(step, layout_.buffers[a->second])) continue;
      layout_.in_place.push_back({a->second, b->second});
    }
  }

  Status build() {
    if (units_.empty()) return {};
    // Constants that no kernel packed need a place.
    std::vector<ir::ConstantPtr> constants;
    std::unordered_map<ir::ValueId, size_t> constant_at;
    for (size_t k = 0; k < units_.size(); ++k)
      for (size_t i = 0; i < units_[k]->inputs.size(); ++i) {
        const ir::ValueId value = units_[k]->inputs[i];
        if (value == BELAY_NONE || !stage_.env.constants[value] ||
            (i < 64 && ((*units_[k]->kernel)->unused_inputs >> i & 1)))
          continue;
        if (constant_at.try_emplace(value, constants.size()).second)
          constants.push_back(stage_.env.constants[value]);
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

    std::vector<std::vector<belay_arg>> args(units_.size());
    std::vector<belay_node> nodes(units_.size());
    std::vector<std::string> names(units_.size());
    for (size_t k = 0; k < units_.size(); ++k) {
      const Unit& unit = *units_[k];
      const auto add = [&](ir::ValueId value, uint32_t access, bool unused) {
        belay_arg& arg = args[k].emplace_back();
        arg.kind = BELAY_ARG_BUFFER;
        arg.binding = BELAY_NO_BINDING;
        if (value == BELAY_NONE || unused) return;
        arg.access = access;
        if (stage_.env.constants[value]) {
          const ConstantPlace& place = places[constant_at[value]];
          const auto [at, fresh] =
              constant_bindings.try_emplace({place.host, place.buffer}, uint32_t(stage_.bindings.size()));
          if (fresh) {
            Binding& binding = stage_.bindings.emplace_back();
            binding.kind = Binding::kConstant;
            binding.place = place;
          }
          arg.binding = at->second;
          arg.value = place.offset;
          arg.bytes = stage_.env.constants[value]->bytes;
          return;
        }
        arg.bytes = bytes_of(value);
        if (const auto at = arena_of_.find(root(value)); at != arena_of_.end()) {
          arg.binding = arena();
          arg.value = layout_.offsets[at->second];
        } else {
          arg.binding = value_binding(root(value));
        }
      };
      for (size_t i = 0; i < unit.inputs.size(); ++i)
        add(unit.inputs[i], BELAY_ACCESS_READ, i < 64 && ((*units_[k]->kernel)->unused_inputs >> i & 1));
      for (const ir::ValueId value : unit.outputs) add(value, BELAY_ACCESS_WRITE, false);
      if (const auto at = workspace_of_.find(k); at != workspace_of_.end()) {
        belay_arg& arg = args[k].emplace_back();
        arg.kind = BELAY_ARG_BUFFER;
        arg.binding = arena();
        arg.value = layout_.offsets[at->second];
        arg.bytes = layout_.buffers[at->second].bytes;
        arg.access = BELAY_ACCESS_READ | BELAY_ACCESS_WRITE;
      }
      names[k] = unit.nodes.back()->label();
      nodes[k].hdr.struct_size = sizeof(belay_node);
      nodes[k].kernel = &units_[k]->kernel->kernel();
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
      dependencies_ = reduce(std::move(dependencies_), uint32_t(units_.size()));
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
    for (size_t k = 0; k < units_.size(); ++k)  // as the request has it; drivers keep about as much
      stage_.program_bytes += sizeof(belay_node) + args[k].size() * sizeof(belay_arg) + names[k].size();
    return {};
  }

  const Target& target_;
  ConstantPool& pool_;
  const std::set<ir::ValueId>&before_, &needed_;
  const Outline* const like_;
  Stage& stage_;
  Outline& out_;
  std::set<ir::ValueId> own_;
  std::unordered_map<ir::ValueId, ir::ValueId> root_;
  std::unordered_map<ir::ValueId, uint32_t> value_bindings_;
  Pairs edges_;  // what reads what, between units as the outline has them
  // As arranged:
  Lanes lanes_;
  std::vector<const Unit*> units_;  // by position
  Pairs dependencies_;              // of positions
  ArenaLayout layout_;
  std::unordered_map<ir::ValueId, uint32_t> arena_of_;
  std::map<uint64_t, uint32_t> workspace_of_;     // by position
  std::vector<uint64_t> last_user_, others_end_;  // by buffer
};

}  // namespace

Status make_program(const Target& target, ConstantPool& pool, const Outline* like, Stage& stage) {
  return ProgramMaker(target, pool, like, stage).run();
}

}  // namespace belay::plan
