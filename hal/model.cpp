#include "hal/model.h"

#include "core/base/text.h"
#include "hal/runtime.h"
#include "hal/tensor_view.h"

#include <belay/abi/model_format.h>
#include <belay/graph/outputs.hpp>
#include <belay/graph/verify.hpp>
#include <belay/kinds.hpp>

#include <chrono>
#include <cstring>

namespace belay::hal {
namespace {

constexpr uint64_t kHeadBytes = 4096;

// What a format gives while it parses.
struct Parsed {
  Runtime* runtime;
  std::string name;
  std::vector<uint64_t> image;
  uint64_t image_bytes = 0;
  std::string package_kind;
  int given = 0;
};

belay_status take_graph(void* user, belay_span image) {
  Parsed& parsed = *static_cast<Parsed*>(user);
  return guard(parsed.runtime->host().table(), [&]() -> Status {
    ++parsed.given;
    if (!image.ptr && image.len) return {Code::kInternal, "A model format gave an image at NULL."};
    parsed.image.assign((image.len + 7) / 8, 0);
    if (image.len) std::memcpy(parsed.image.data(), image.ptr, image.len);
    parsed.image_bytes = image.len;
    return {};
  });
}

belay_status take_package(void* user, belay_str kind, belay_span) {
  Parsed& parsed = *static_cast<Parsed*>(user);
  return guard(parsed.runtime->host().table(), [&]() -> Status {
    ++parsed.given;
    parsed.package_kind = to_string(kind);
    return {};
  });
}

void take_warning(void* user, belay_str text) {
  Parsed& parsed = *static_cast<Parsed*>(user);
  try {
    parsed.runtime->host().log().warning("model", parsed.name + ": " + to_string(text));
  } catch (...) {  // no memory to say so
  }
}

const belay_model_format_vt& table_of(const NamedObject& format) {
  return *static_cast<const belay_model_format_vt*>(format.object->table);
}

std::string names_of(const std::vector<NamedObject>& objects) {
  std::string all;
  for (const NamedObject& object : objects) all += (all.empty() ? "" : ", ") + object.name;
  return all.empty() ? "none" : all;
}

// Of a file that is text: how it begins, which tells a person what it is.
std::string first_words(std::string_view head) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (head.starts_with(kPointer)) return " It is a pointer of Git LFS: 'git lfs pull' gets the file itself.";
  head = head.substr(0, std::min(head.find_first_of("\r\n"), size_t{60}));
  const bool text = std::all_of(head.begin(), head.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  return text && !head.empty() ? " It begins with '" + std::string(head) + "'." : "";
}

// The format for the bytes: the one that is named, or the surest.
Result<const NamedObject*> choose_format(Runtime& runtime, const ModelRequest& request,
                                         const ModelFiles& files, const std::string& name) {
  const std::vector<NamedObject>& formats = runtime.formats();
  if (!request.format.empty()) {
    for (const NamedObject& format : formats)
      if (format.name == request.format) return &format;
    std::vector<std::string> known;
    for (const NamedObject& format : formats) known.push_back(format.name);
    return Status(Code::kNotFound, "There is no model format '" + request.format + "'" +
                                       core::did_you_mean(request.format, known) +
                                       "; there are: " + names_of(formats) + " ([models] formats).");
  }
  if (formats.empty())
    return Status(Code::kFailedPrecondition, "No model format is configured, so nothing can read '" + name +
                                                 "'; name some under [models] formats.");
  const std::string file_name = files.path().substr(files.path().rfind('/') + 1);
  belay_sniff_req sniff{};
  sniff.hdr.struct_size = sizeof sniff;
  sniff.file_name = to_str(file_name);
  sniff.head = {files.model().ptr, std::min(files.model().len, kHeadBytes)};
  sniff.file_bytes = files.model().len;
  const NamedObject* best = nullptr;
  uint32_t sure = 0;
  for (const NamedObject& format : formats) {
    const uint32_t score = table_of(format).sniff(format.object, &sniff);
    if (score > sure) best = &format, sure = score;
  }
  if (best) return best;
  return Status(Code::kInvalidArgument,
                "'" + name + "' (" + std::to_string(files.model().len) +
                    " bytes) is in none of the configured model formats: " + names_of(formats) + "." +
                    first_words({static_cast<const char*>(sniff.head.ptr), sniff.head.len}));
}

Status check_sources(const ReadModel& read) {
  const auto& header = *reinterpret_cast<const belay_graph_image*>(read.image.data());
  const auto* sources = reinterpret_cast<const belay_graph_source*>(reinterpret_cast<const char*>(&header) +
                                                                    header.sources.offset);
  const std::vector<belay_span> spans = read.files->spans();
  if (header.sources.count > spans.size())
    return {Code::kInternal, "The graph refers to " + std::to_string(header.sources.count) +
                                 " files, but its format opened " + std::to_string(spans.size()) + "."};
  for (uint64_t i = 0; i < header.sources.count; ++i)
    if (sources[i].bytes > spans[i].len)
      return {Code::kInternal, "The graph says that file " + std::to_string(i) + " has " +
                                   std::to_string(sources[i].bytes) + " bytes; it has " +
                                   std::to_string(spans[i].len) + "."};
  return {};
}

}  // namespace

Result<ReadModel> read_model(Runtime& runtime, const ModelRequest& request) {
  ReadModel read;
  const bool copy = runtime.copies_files();
  if (request.path.empty()) {
    if (!request.bytes.ptr && request.bytes.len)
      return Status(Code::kInvalidArgument,
                    "The model in memory has " + std::to_string(request.bytes.len) + " bytes at NULL.");
    read.name = "model in memory";
    read.files = std::make_unique<ModelFiles>(request.bytes, request.folder, copy);
  } else {
    BELAY_ASSIGN(std::unique_ptr<ModelFile> file, ModelFile::open(request.path, copy));
    read.name = request.path;
    read.files = std::make_unique<ModelFiles>(std::move(file), copy);
  }
  if (read.files->model().len == 0)
    return Status(Code::kDataLoss, "'" + read.name + "' is empty, want a model.");

  BELAY_ASSIGN(const NamedObject* format, choose_format(runtime, request, *read.files, read.name));
  Parsed parsed{&runtime, read.name, {}, 0, {}, 0};
  belay_model_sink sink{};
  sink.hdr.struct_size = sizeof sink;
  sink.user = &parsed;
  sink.graph = take_graph;
  sink.package = take_package;
  sink.warning = take_warning;
  core::Host& host = runtime.host();
  const belay_value* options = host.config().plugin_config(format->plugin);
  const belay_status raw =
      table_of(*format).parse(format->object, read.files->reader(host.table()), options, &sink);
  if (raw != BELAY_OK) {
    read.usable =
        host.take(raw, format->plugin, "parse").while_doing("reading '" + read.name + "' as " + format->name);
    if (read.usable.code() != Code::kUnimplemented || parsed.image.empty()) return read.usable;
  }
  BELAY_TRY(read.files->check_damage());
  if (parsed.given != 1)
    return Status(Code::kInternal, "Model format '" + format->name + "' gave " +
                                       std::to_string(parsed.given) + " graphs for '" + read.name +
                                       "', want 1.");
  if (!parsed.package_kind.empty())
    return Status(Code::kUnimplemented, "'" + read.name + "' is a package of kind '" + parsed.package_kind +
                                            "' for a device of its own; no device here runs it.");
  read.image = std::move(parsed.image);
  read.image_bytes = parsed.image_bytes;
  const auto doing = [&](Status status) {
    return std::move(status).while_doing("checking what format '" + format->name + "' made of '" + read.name +
                                         "'");
  };
  if (Status good = graph::verify(read.span()); !good.ok()) return doing(std::move(good));
  if (Status good = check_sources(read); !good.ok()) return doing(std::move(good));
  if (!request.extra_outputs.empty()) {
    if (Status good = graph::add_outputs(read.image, request.extra_outputs); !good.ok())
      return std::move(good).while_doing("adding outputs to '" + read.name + "'");
    read.image_bytes = read.image.size() * sizeof(uint64_t);
  }
  return read;
}

// ---- models
// ----------------------------------------------------------------------------------------------------------

Result<Model*> Model::load(Runtime& runtime, const ModelRequest& request) {
  const NamedObject* engine = runtime.engine();
  if (!engine)
    return Status(Code::kFailedPrecondition,
                  "No engine is configured, so models cannot be run; name one under [engine] use.");
  Hal& hal = runtime.hal();
  const auto begin = std::chrono::steady_clock::now();
  uint64_t index = runtime.default_device();
  if (!request.device.empty()) {
    BELAY_ASSIGN(index, hal.devices().find(request.device));
  }
  BELAY_ASSIGN(Device * device, hal.devices().open(index));
  BELAY_ASSIGN(ReadModel read, read_model(runtime, request));
  BELAY_TRY(read.usable);

  const std::vector<belay_span> sources = read.files->spans();
  Model* model = runtime.models().make(&hal, runtime, *device, std::move(read));
  if (!model) return Status(Code::kResourceExhausted, "There is no memory for one more model.");
  belay_load_req load{};
  load.hdr.struct_size = sizeof load;
  load.image = model->read_.span();
  load.sources = sources.data();
  load.source_count = sources.size();
  load.device = device;
  load.options = runtime.host().config().get("engine").raw();
  load.name = to_str(model->name());
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  core::Host& host = runtime.host();
  Status status;
  try {
    const auto& vt = *static_cast<const belay_engine_vt*>(engine->object->table);
    if (const belay_status raw = vt.load(engine->object, &load, &made); raw != BELAY_OK)
      status = host.take(raw, engine->plugin, "load");
    else
      status = hal.adopt(*model, shape::kExecutable, made, engine->plugin, engine->object);
    if (status.ok() && !model->files().check_damage().ok()) {
      hal.end(*model, shape::kExecutable);
      status = model->files().check_damage();
    }
  } catch (...) {
    runtime.models().drop(model);
    throw;
  }
  if (!status.ok()) {
    status = std::move(status).while_doing("loading '" + model->name() + "' for '" + device->name() + "'");
    runtime.models().drop(model);
    return status;
  }
  Slots<Model>::publish(model);
  runtime.hold();
  const auto took = std::chrono::steady_clock::now() - begin;
  host.log().info("model",
                  "'" + model->name() + "' is ready on '" + device->name() + "' after " +
                      std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(took).count()) +
                      " us");
  return model;
}

Status Model::destroy() {
  Status wrong;
  core::Log& log = runtime_.host().log();
  if (const uint64_t left = holders_.load(std::memory_order_relaxed) - 1; left > 0) {
    std::string text = "Model '" + name() + "' was destroyed before " + std::to_string(left) +
                       (left == 1 ? " context" : " contexts") + " of it";
    if (!runtime_.hal().options().checked) {
      log.warning("model", text + "; it stays until they are gone.");
    } else {
      destroyed_.store(true, std::memory_order_release);
      std::lock_guard lock(mutex_);
      uint64_t busy = 0;
      for (Context* context : contexts_) busy += context->quiesce();
      if (busy) text += ", " + std::to_string(busy) + " of them with a run that had not ended";
      wrong = {Code::kFailedPrecondition, text + ": destroy the contexts first; they do not run any more."};
      log.error("model", wrong.message());
    }
  }
  Slots<Model>::retire(this);
  let_go();
  return wrong;
}

void Model::add(Context* context) {
  std::lock_guard lock(mutex_);
  contexts_.insert(context);
  holders_.fetch_add(1, std::memory_order_relaxed);
}

void Model::remove(Context* context) {
  std::lock_guard lock(mutex_);
  contexts_.erase(context);
}

void Model::end() {
  magic = BELAY_OBJ_MAGIC;  // an engine may check it
  Runtime& runtime = runtime_;
  runtime.hal().end(*this, shape::kExecutable);
  Slots<Model>::retire(this);
  runtime.models().drop(this);
  runtime.let_go();
}

// ---- contexts
// --------------------------------------------------------------------------------------------------------

Result<Context*> Context::create(Model& model) {
  Runtime& runtime = model.runtime();
  const std::string& plugin = runtime.engine()->plugin;
  Context* context = runtime.contexts().make(&runtime.hal(), model);
  if (!context) return Status(Code::kResourceExhausted, "There is no memory for one more context.");
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  Status status;
  try {
    if (const belay_status raw = model.vt().context(&model, &made); raw != BELAY_OK)
      status = runtime.host()
                   .take(raw, plugin, "context")
                   .while_doing("making a context of '" + model.name() + "'");
    else
      status = runtime.hal().adopt(*context, shape::kContext, made, plugin, &model);
  } catch (...) {
    runtime.contexts().drop(context);
    throw;
  }
  if (!status.ok()) {
    runtime.contexts().drop(context);
    return status;
  }
  Slots<Context>::publish(context);
  model.add(context);
  return context;
}

void Context::destroy() {
  {
    std::unique_lock lock(mutex_);
    if (running_) {
      model_.runtime().host().log().warning(
          "model", "A context of '" + model_.name() + "' was destroyed while it ran; waiting for its end.");
      ended_.wait(lock, [&] { return !running_; });
    }
  }
  Model& model = model_;
  model.remove(this);
  model.runtime().hal().end(*this, shape::kContext);
  Slots<Context>::retire(this);
  model.runtime().contexts().drop(this);
  model.let_go();
}

bool Context::quiesce() {
  bool busy = false;
  {
    std::unique_lock lock(mutex_);
    busy = running_;
    ended_.wait(lock, [&] { return !running_; });
  }
  Hal& hal = model_.runtime().hal();
  if (queued_.timeline && !hal.reached(queued_)) {
    busy = true;
    const Timelines::Pin stream(hal.timelines(), queued_.timeline);
    if (stream) hal.release(stream->synchronize(queued_.value, BELAY_FOREVER));
  }
  return busy;
}

std::string Context::name_of(bool input, uint64_t index) const {
  belay_io_info info{};
  info.hdr.struct_size = sizeof info;
  const auto slot = input ? model_.vt().input_info : model_.vt().output_info;
  const belay_status raw = slot(&model_, index, &info);
  hal->release(raw);
  return std::string(input ? "input " : "output ") +
         (raw == BELAY_OK ? "'" + to_string(info.name) + "'" : std::to_string(index)) + " of a context of '" +
         model_.name() + "'";
}

Status Context::check_lent() const {
  if (!hal->options().checked) [[likely]]
    return {};
  if (model_.destroyed())
    return {Code::kFailedPrecondition, "Model '" + model_.name() + "' was destroyed, and what it borrowed may be gone; "
                                       "destroy its contexts first."};
  for (const auto* all : {&inputs_, &outputs_})
    for (const std::shared_ptr<Lent>& lent : *all)
      if (lent && lent->gone)
        return {Code::kFailedPrecondition, "The buffer was destroyed in which " + lent->who +
                                               " lies; set other memory there before the next run."};
  return {};
}

Status Context::check_reserved() const {
  for (const Reserved& each : reserved_)
    if (!each.part.has_memory())
      return {Code::kOutOfRange, "The " + name_of(each.input, each.index) + " lies in " + each.part.text() +
                                     "; map them before the run."};
  return {};
}

void Context::note_reserved(bool input, uint64_t index, const belay_datum* datum) {
  std::erase_if(reserved_, [&](const Reserved& each) { return each.input == input && each.index == index; });
  if (datum)
    each_tensor(*datum, [&](const belay_tensor& tensor) {
      if (auto part = reserved_part(*hal, tensor)) reserved_.push_back({input, index, std::move(*part)});
    });
}

Status Context::check_run() {
  BELAY_TRY(check_lent());
  BELAY_TRY(check_reserved());
  return model_.files().check();
}

Status Context::check_rebind(bool input, uint64_t index) {
  if (!queued_.timeline || hal->reached(queued_)) return {};
  return {Code::kFailedPrecondition, "The " + name_of(input, index) + " is to change while operation " +
                                         std::to_string(queued_.value) +
                                         ", a queued run, uses it; wait for its event first, or use one more context."};
}

belay_status Context::busy(const char* call) {
  return hal->make({Code::kFailedPrecondition,
                    std::string(call) + ": this context of '" + model_.name() +
                        "' is in use by another call or an asynchronous run; a context is for one "
                        "thread at a time, make one for each."});
}

belay_status Context::checked(belay_status raw, const char* slot) {
  if (raw == BELAY_OK) [[likely]]
    return raw;
  return hal->pass(raw, model_.runtime().engine()->plugin, slot);
}

template <class Body>
belay_status Context::exclusively(const char* call, Body&& body) {
  if (busy_.exchange(1, std::memory_order_acquire)) [[unlikely]]
    return busy(call);
  struct Free {
    std::atomic<uint32_t>& word;
    ~Free() { word.store(0, std::memory_order_release); }
  } free{busy_};
  return body();
}

template <class Set>
belay_status Context::rebind(bool input, uint64_t index, const belay_datum* datum, Set&& set) {
  const char* const slot = input ? "set_input" : "set_output";
  return exclusively(slot, [&]() -> belay_status {
    const bool is_checked = hal->options().checked;
    if (is_checked)
      if (Status good = check_rebind(input, index); !good.ok()) return hal->make(good);
    const belay_status status = checked(set(), slot);
    if (status != BELAY_OK) return status;
    if (hal->ledger().any_reserved().load(std::memory_order_relaxed)) [[unlikely]]
      note_reserved(input, index, datum);
    if (is_checked) {
      std::vector<std::shared_ptr<Lent>>& all = input ? inputs_ : outputs_;
      if (all.size() <= index) all.resize(index + 1);
      all[index] = datum ? hal->uses().lend(*datum, name_of(input, index)) : nullptr;
    }
    return status;
  });
}

belay_status Context::set_input(uint64_t index, const belay_datum* datum) {
  const bool short_of =
      datum && (datum->hdr.struct_size < sizeof *datum || datum->items ||
                (datum->tensor && datum->tensor->hdr.struct_size < offsetof(belay_tensor, quant)));
  if (short_of) [[unlikely]]
    if (Status good = check_sizes(*datum, "set_input: The " + name_of(true, index)); !good.ok()) return hal->make(good);
  return rebind(true, index, datum, [&] { return vt().set_input(this, index, datum); });
}

belay_status Context::set_output(uint64_t index, const belay_tensor* tensor) {
  if (tensor && tensor->hdr.struct_size < offsetof(belay_tensor, quant)) [[unlikely]]
    return hal->make(check_size(*tensor, "set_output: The " + name_of(false, index)));
  belay_datum datum{};
  datum.tensor = tensor;
  return rebind(false, index, tensor ? &datum : nullptr, [&] { return vt().set_output(this, index, tensor); });
}

belay_status Context::run() {
  return exclusively("run", [&]() -> belay_status {
    if (Status good = check_run(); !good.ok()) [[unlikely]]
      return hal->make(good);
    const belay_status raw = vt().run(this);
    if (Status good = model_.files().check_damage(); !good.ok()) [[unlikely]] {
      hal->release(raw);
      return hal->make(good);
    }
    return checked(raw, "run");
  });
}

belay_status Context::run_async(belay_completion completion) {
  if (!completion.done) return hal->make({Code::kInvalidArgument, "run_async: done is NULL."});
  if (busy_.exchange(1, std::memory_order_acquire)) return busy("run_async");
  const auto stop = [&] {
    busy_.store(0, std::memory_order_release);
    std::lock_guard lock(mutex_);
    running_ = false;
    ended_.notify_all();
  };
  if (Status good = check_run(); !good.ok()) {
    stop();
    return hal->make(good);
  }
  completion_ = completion;
  {
    std::lock_guard lock(mutex_);
    running_ = true;
  }
  belay_status status;
  try {
    status = vt().run_async(this, {this, &Context::async_done});
  } catch (...) {
    stop();
    throw;
  }
  if (status == BELAY_DEFERRED) return status;
  stop();
  return status == BELAY_OK
             ? hal->make({Code::kInternal, "Engine '" + model_.runtime().engine()->name +
                                               "' answered run_async with OK, want DEFERRED or an error."})
             : checked(status, "run_async");
}

void Context::async_done(void* user, belay_status status) {
  Context& self = *static_cast<Context*>(user);
  Hal& hal = *self.hal;
  try {
    if (Status good = self.model_.files().check_damage(); !good.ok()) {
      hal.release(status);
      status = hal.make(good);
    } else {
      status = self.checked(status, "run_async");
    }
  } catch (...) {
    status = BELAY_RESOURCE_EXHAUSTED;
  }
  const belay_completion completion = self.completion_;
  self.busy_.store(0, std::memory_order_release);
  // Before the application hears of it, so that it may destroy the context from inside `done`.
  {
    std::lock_guard lock(self.mutex_);
    self.running_ = false;
    self.ended_.notify_all();
  }
  completion.done(completion.user, status);
}

belay_status Context::output(uint64_t index, const belay_datum** out) {
  return exclusively("output", [&] { return checked(vt().output(this, index, out), "output"); });
}

belay_status Context::lacks(const char* slot) {
  return hal->make({Code::kUnimplemented,
                    "Engine '" + model_.runtime().engine()->name + "' does not have '" + slot + "'."});
}

belay_status Context::input_memory(uint64_t index, belay_io_memory* inout) {
  return exclusively("input_memory", [&] {
    if (!BELAY_HAS(&vt(), belay_context_vt, input_memory)) return lacks("input_memory");
    return checked(vt().input_memory(this, index, inout), "input_memory");
  });
}

belay_status Context::output_memory(uint64_t index, belay_io_memory* inout) {
  return exclusively("output_memory", [&] {
    if (!BELAY_HAS(&vt(), belay_context_vt, output_memory)) return lacks("output_memory");
    return checked(vt().output_memory(this, index, inout), "output_memory");
  });
}

belay_status Context::enqueue(Stream& stream, belay_event* out) {
  return exclusively("enqueue", [&]() -> belay_status {
    if (!BELAY_HAS(&vt(), belay_context_vt, enqueue))
      return hal->make({Code::kUnimplemented, "Engine '" + model_.runtime().engine()->name +
                                                  "' queues no runs on streams; use run or run_async."});
    if (&stream.device() != &model_.device())
      return hal->make({Code::kInvalidArgument, "enqueue: '" + model_.name() + "' is loaded for '" +
                                                    model_.device().name() + "', the stream is one of '" +
                                                    stream.device().name() + "'."});
    if (stream.capturing())
      return hal->make({Code::kFailedPrecondition,
                        "enqueue: the stream is capturing, and a run of '" + model_.name() +
                            "', whose memory changes from one to the next, is no part of a program."});
    if (Status good = check_run(); !good.ok()) [[unlikely]]
      return hal->make(good);
    belay_event done{};
    const belay_status raw = vt().enqueue(this, &stream, &done);
    if (raw == BELAY_OK) queued_ = done;
    if (raw == BELAY_OK && out) *out = done;
    return checked(raw, "enqueue");
  });
}

}  // namespace belay::hal
