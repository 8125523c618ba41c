#include "schedule/executable.hpp"

#include "schedule/json.hpp"

#include <belay/fill.hpp>

#include <algorithm>
#include <cstring>
#include <set>

namespace belay::schedule {

Executable::Executable(std::unique_ptr<ir::Model> model, plan::Target target, LoadReport report)
    : model_(std::move(model)),
      target_(std::move(target)),
      report_(std::move(report)),
      pool_(target_.hal, target_.device, target_.heaps, target_.host_visible, model_->sources,
            target_.options.copy_weights),
      planner_(*model_, target_, pool_),
      plans_(target_.options.plan_cache, target_.options.plan_cache_bytes, counters_),
      shared_{*model_, target_, planner_, plans_, {}} {
  for (ir::GraphId graph = 0; graph < model_->graphs.size(); ++graph)
    shared_.captures.push_back(ir::captures_of(*model_, graph));
  for (const ir::ValueId value : model_->graphs[0].inputs) inputs_.push_back(io_of(value));
  for (size_t i = 0; i < model_->graphs[0].outputs.size(); ++i) {
    outputs_.push_back(io_of(model_->graphs[0].outputs[i]));
    outputs_.back().name = model_->output_names[i];  // a pass may have led it to a value of another name
    outputs_.back().optional = 0;
  }
  for (auto* list : {&inputs_, &outputs_})
    for (Io& io : *list)
      for (const std::string& text : io.symbol_texts) io.symbols.push_back(to_str(text));
  std::set<const std::byte*> counted;
  for (const ir::Value& value : model_->values)
    if (value.constant && counted.insert(value.constant->data).second) weight_bytes_ += value.constant->bytes;
}

Executable::~Executable() = default;

Executable::Io Executable::io_of(ir::ValueId value) const {
  const ir::Value& at = model_->values[value];
  Io io{value, at.name, at.type.kind, at.type.dtype, BELAY_NONE, at.constant ? 1u : 0u, {}, {}, {}};
  for (const ir::Type* type = &at.type; io.dtype == BELAY_DT_UNDEFINED && type->element;
       type = type->element.get())
    io.dtype = type->element->dtype;
  if (at.type.ranked) {
    io.rank = uint32_t(at.type.dims.size());
    for (const int64_t dim : at.type.dims) {
      io.dims.push_back(std::max<int64_t>(dim, -1));
      io.symbol_texts.push_back(model_->symbol_of(dim));
    }
  }
  return io;
}

Result<std::unique_ptr<Executable>> Executable::create(std::unique_ptr<ir::Model> model, plan::Target target,
                                                       LoadReport report) {
  std::unique_ptr<Executable> out(new Executable(std::move(model), std::move(target), std::move(report)));
  const uint64_t begin = out->target_.hal.host->now_ns(out->target_.hal.host);
  BELAY_TRY(out->plan_ahead());
  out->report_.plan_ns = out->target_.hal.host->now_ns(out->target_.hal.host) - begin;
  return out;
}

// Where every input's shape is fixed the plan is made now, so that what cannot run is told now.
Status Executable::plan_ahead() {
  std::vector<Value> values(inputs_.size());
  std::vector<std::pair<ir::ValueId, const Value*>> begin;
  std::map<ir::ValueId, ir::ConstantPtr> known;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const ir::Value& value = model_->values[inputs_[i].value];
    if (value.constant) {
      known[inputs_[i].value] = value.constant;
    } else if (value.type.concrete()) {
      values[i].kind = BELAY_TYPE_TENSOR;
      values[i].dtype = value.type.dtype;
      values[i].dims = value.type.dims;
    } else {
      return planner_.check();
    }
    begin.emplace_back(inputs_[i].value, &values[i]);
  }
  Session session(shared_, nullptr);
  Result<plan::StagePtr> stage = session.plan_for(0, begin, known);
  if (!stage.ok()) {
    // Of several nodes without a kernel the plan names the first, the check all.
    if (stage.status().code() == Code::kUnimplemented) BELAY_TRY(planner_.check());
    return std::move(stage).status();
  }
  remember({*stage});
  return {};
}

void Executable::remember(std::vector<plan::StagePtr> stages) {
  std::lock_guard lock(mutex_);
  latest_.swap(stages);  // what goes may end programs: after the lock
}

Result<std::unique_ptr<Context>> Executable::take_context() {
  {
    std::unique_lock lock(mutex_);
    const auto full = [&] {
      return idle_.empty() && all_.size() >= std::max<uint64_t>(1, target_.options.max_contexts);
    };
    if (full() && !target_.options.wait_for_context)
      return Status(Code::kResourceExhausted, "All " + std::to_string(all_.size()) +
                                                  " execution contexts of '" + report_.name +
                                                  "' are in use: destroy one, make [engine] max_contexts "
                                                  "higher, or set contexts_full = \"wait\".");
    context_free_.wait(lock, [&] { return !full(); });
    if (!idle_.empty()) {
      std::unique_ptr<Context> context = std::move(idle_.back());
      idle_.pop_back();
      return context;
    }
    all_.push_back(nullptr);  // holds the place while the context is made without the lock
  }
  Result<std::unique_ptr<Context>> made = Context::create(*this);
  std::lock_guard lock(mutex_);
  const auto place = std::find(all_.begin(), all_.end(), nullptr);
  if (made.ok()) {
    *place = made->get();
  } else {
    all_.erase(place);
    context_free_.notify_one();
  }
  return made;
}

void Executable::give_back(std::unique_ptr<Context> context) {
  context->reset();
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(context));
  context_free_.notify_one();
}

// Results are the caller's, not activations.
bool Executable::is_output(const plan::Stage& stage, const plan::Made& made) const {
  for (const ir::ValueId output : model_->graphs[0].outputs)
    if (std::find(made.members.begin(), made.members.end(), stage.env.resolve(output)) != made.members.end())
      return true;
  return false;
}

void Executable::stats(belay_executable_stats& out) const {
  std::lock_guard lock(mutex_);
  belay_executable_stats all{};
  all.nodes = model_->source_nodes;
  // Programs of a run share one arena; what one stage makes for another lies beside it until the run ends.
  uint64_t between = 0;
  for (const plan::StagePtr& stage : latest_) {
    all.kernels += stage->infos.size();
    for (const plan::KernelInfo& info : stage->infos) all.fallback_kernels += info.fallback;
    all.packed_bytes += stage->packed_bytes;
    for (const plan::Made& made : stage->made)
      if (!is_output(*stage, made)) between += made.bytes;
    all.arena_bytes = std::max(all.arena_bytes, stage->arena_bytes);
    all.live_bytes = std::max(all.live_bytes, stage->live_bytes + between);
  }
  all.arena_bytes += between;
  all.plans = plans_.size();
  all.plan_hits = counters_.hits.load(std::memory_order_relaxed);
  all.plan_misses = counters_.misses.load(std::memory_order_relaxed);
  all.contexts = all_.size();
  all.weight_bytes = weight_bytes_;
  all.borrowed_bytes = pool_.borrowed_bytes();
  all.copied_bytes = pool_.copied_bytes();
  all.create_ns = report_.import_ns + report_.passes_ns + report_.plan_ns;
  for (const Context* context : all_) {
    if (!context) continue;
    all.runs += context->runs.load(std::memory_order_relaxed);
    all.input_bytes_copied += context->of_inputs.copied.load(std::memory_order_relaxed);
    all.output_bytes_copied += context->of_outputs.copied.load(std::memory_order_relaxed);
    all.input_bytes_shared += context->of_inputs.shared.load(std::memory_order_relaxed);
    all.output_bytes_shared += context->of_outputs.shared.load(std::memory_order_relaxed);
  }
  const uint32_t size = out.hdr.struct_size;
  all.hdr = out.hdr;
  std::memcpy(&out, &all, std::min<size_t>(size, sizeof all));
}

void Executable::describe(belay_sink sink) const {
  belay_executable_stats stats{};
  stats.hdr.struct_size = sizeof stats;
  this->stats(stats);
  Json json;
  json.open('{').member("name", report_.name).key("passes").open('[');
  for (const PassCount& pass : report_.passes)
    json.open('{').member("name", pass.name).member("changes", pass.changes).member("ns", pass.ns).close('}');
  json.close(']').key("kernels").open('[');
  std::vector<plan::StagePtr> latest;
  {
    std::lock_guard lock(mutex_);
    latest = latest_;
  }
  for (const plan::StagePtr& stage : latest)
    for (const plan::KernelInfo& info : stage->infos)
      json.open('{')
          .member("nodes", info.node)
          .member("op", info.op)
          .member("provider", info.provider)
          .member("implementation", info.implementation)
          .member("reason", info.reason)
          .member("cost_ns", info.cost_ns)
          .key("fallback")
          .boolean(info.fallback)
          .close('}');
  json.close(']').key("host_steps").open('[');
  for (const plan::StagePtr& stage : latest)
    for (const plan::HostStep& step : stage->steps)
      json.open('{')
          .member("kind", step.kind == plan::HostStep::kRead     ? "read"
                          : step.kind == plan::HostStep::kKernel ? "kernel"
                                                                 : "engine")
          .member("of", step.node ? step.node->label() : model_->value_label(step.value))
          .close('}');
  // Of a plan that has not run to its end, the nodes that are not planned yet.
  json.close(']')
      .member("stages", latest.size())
      .member("waiting_nodes", latest.size() == 1 ? latest[0]->rest.size() : 0);
  json.key("memory")
      .open('{')
      .member("arena_bytes", stats.arena_bytes)
      .member("live_bytes", stats.live_bytes)
      .member("weight_bytes", stats.weight_bytes)
      .member("borrowed_bytes", stats.borrowed_bytes)
      .member("copied_bytes", stats.copied_bytes)
      .member("packed_bytes", stats.packed_bytes)
      .key("copies")
      .open('[');
  std::map<uint64_t, std::string_view> names;  // of constants, by key
  for (const ir::Value& value : model_->values)
    if (value.constant) names.emplace(value.constant->key, value.name);
  for (const plan::ConstantPool::Copied& copied : pool_.copied()) {
    const auto name = names.find(copied.key);
    json.open('{')
        .member("name", name == names.end() ? std::string_view() : name->second)
        .member("bytes", copied.bytes)
        .member("reason", copied.reason)
        .close('}');
  }
  json.close(']').close('}');
  json.key("create_ns")
      .open('{')
      .member("import", report_.import_ns)
      .member("passes", report_.passes_ns)
      .member("plan", report_.plan_ns)
      .close('}');
  json.member("plans", stats.plans)
      .member("plan_hits", stats.plan_hits)
      .member("plan_misses", stats.plan_misses)
      .close('}');
  write(sink, json.text());
}

// ---- table
// ----------------------------------------------------------------------------------------------------------

namespace {

Executable& at(belay_obj* object) { return *static_cast<Executable*>(object->impl); }
const belay_host& host_of(belay_obj* object) { return *at(object).target().hal.host; }

Status fill(const std::vector<Executable::Io>& list, uint64_t index, const char* what, belay_io_info* inout) {
  if (index >= list.size())
    return {Code::kOutOfRange, std::string(what) + " " + std::to_string(index) + " is not there: there are " +
                                   std::to_string(list.size()) + "."};
  const Executable::Io& io = list[index];
  belay_io_info info{};
  info.name = to_str(io.name);
  info.kind = io.kind;
  info.dtype = io.dtype;
  info.rank = io.rank;
  info.optional = io.optional;
  info.dims = io.dims.data();
  info.symbols = io.symbols.data();
  belay::fill(inout, info);
  return {};
}

uint64_t input_count(belay_obj* object) noexcept { return at(object).inputs().size(); }
uint64_t output_count(belay_obj* object) noexcept { return at(object).outputs().size(); }
belay_status input_info(belay_obj* object, uint64_t index, belay_io_info* inout) noexcept {
  return guard(host_of(object), [&] { return fill(at(object).inputs(), index, "Input", inout); });
}
belay_status output_info(belay_obj* object, uint64_t index, belay_io_info* inout) noexcept {
  return guard(host_of(object), [&] { return fill(at(object).outputs(), index, "Output", inout); });
}
belay_status context(belay_obj* object, belay_created* out) noexcept {
  return guard(host_of(object), [&]() -> Status {
    BELAY_ASSIGN(std::unique_ptr<Context> made, at(object).take_context());
    out->impl = made.release();
    out->table = &Context::table();
    return {};
  });
}
belay_status stats(belay_obj* object, belay_executable_stats* inout) noexcept {
  return guard(host_of(object), [&]() -> Status {
    at(object).stats(*inout);
    return {};
  });
}
belay_status describe(belay_obj* object, belay_sink sink) noexcept {
  return guard(host_of(object), [&]() -> Status {
    at(object).describe(sink);
    return {};
  });
}
void destroy(belay_obj* object) noexcept { delete &at(object); }

constexpr belay_executable_vt kTable{{sizeof(belay_executable_vt), 0, nullptr},
                                     input_count,
                                     output_count,
                                     input_info,
                                     output_info,
                                     context,
                                     stats,
                                     describe,
                                     destroy};

}  // namespace

const belay_executable_vt& Executable::table() { return kTable; }

}  // namespace belay::schedule
