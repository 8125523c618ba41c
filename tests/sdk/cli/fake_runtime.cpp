// The functions of belay/runtime.h as a fake: what the program `belay` does with every code, with slow runs,
// crashes and odd devices is tested against this, without a device or a model that could be made to behave
// so.
//
// A model is a text file, its first word says what happens:
//   double           input x float32 [N,3]; output y float32, twice x
//   pair             the same, and another input y of that type
//   load CODE        loading fails with this code       run CODE    running does
//   sleep            running takes ten seconds            crash       running raises SIGSEGV
// Configurations: "plugin=NAME" as --set is a missing plugin, "bad=1" a value out of range, "bare=1" has a
// note.
#include <belay/runtime.h>
#include <belay/graph/dtype.hpp>
#include <belay/status.hpp>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace belay;

struct belay_runtime {
  belay_host host{};
};
struct belay_model {
  std::string what;
  uint32_t code = 0;
};
struct belay_context {
  belay_model* model;
  const belay_datum* input = nullptr;
  std::vector<float> values;
  int64_t dims[2] = {0, 3};
  belay_tensor tensor{};
  belay_datum datum{};
};

namespace {

std::mutex texts_lock;
std::map<uint64_t, std::string> texts;
uint64_t next_text = 1;

constexpr const char* kNames[] = {
    "OK",           "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND",    "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",      "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS",    "UNAUTHENTICATED", "DEFERRED",          "QUEUE_FULL",         "DEVICE_LOST",
    "NEED_SEGMENT", "DECLINED"};

belay_status make(uint32_t code, std::string text) {
  const std::lock_guard lock(texts_lock);
  texts[next_text] = std::move(text);
  return code | (next_text++ << 16);
}

std::string text_of(belay_status status) {
  const std::lock_guard lock(texts_lock);
  const auto at = texts.find(status >> 16);
  return at == texts.end() ? "no text" : at->second;
}

uint32_t code_of(const std::string& name) {
  for (uint32_t i = 0; i < BELAY_CODE_COUNT; ++i)
    if (name == kNames[i]) return i;
  return BELAY_INTERNAL;
}

belay_obj device{BELAY_OBJ_MAGIC, BELAY_OBJ_DEVICE, 1, nullptr, nullptr, {}};

const belay_hal_vt& hal() {
  static const belay_hal_vt table = [] {
    belay_hal_vt t{};
    t.hdr.struct_size = sizeof t;
    t.device_count = [](const belay_host*) -> uint64_t { return 2; };
    t.device = [](const belay_host*, uint64_t index, belay_obj** out) -> belay_status {
      *out = &device;
      return index == 0 ? BELAY_OK : make(BELAY_UNAVAILABLE, "Device 1 is taken.");
    };
    t.device_info = [](const belay_host*, belay_obj*, belay_device_info* info) -> belay_status {
      info->hdr.flags = BELAY_DEVICE_HOST_VISIBLE;
      info->driver = to_str("fake");
      info->name = to_str("A device with \x1b[31mcolour\x1b[0m in its name");
      info->arch = to_str("none");
      info->features = to_str("a b");
      info->threads = 2, info->memory_bytes = 3ull << 30, info->heap_count = 1, info->queue_depth = 64;
      return BELAY_OK;
    };
    t.heap_info = [](const belay_host*, belay_obj*, uint64_t, belay_heap_info* info) -> belay_status {
      info->heap_class = BELAY_HEAP_DEVICE, info->bytes = 3ull << 30, info->free_bytes = 1ull << 30,
      info->alignment = 64;
      return BELAY_OK;
    };
    return t;
  }();
  return table;
}

}  // namespace

extern "C" {

belay_str belay_version(void) { return to_str("9.8.7"); }

void belay_status_text(belay_status status, belay_sink sink) { write(sink, text_of(status)); }

void belay_status_release(belay_status status) {
  const std::lock_guard lock(texts_lock);
  texts.erase(status >> 16);
}

belay_status belay_code_describe(uint32_t code, belay_code_info* out) {
  if (code >= BELAY_CODE_COUNT) return make(BELAY_OUT_OF_RANGE, "no such code");
  out->name = to_str(kNames[code]), out->title = to_str("A title"), out->cause = to_str("A cause."),
  out->remedy = to_str("A remedy.");
  return BELAY_OK;
}

belay_status belay_runtime_create(const belay_runtime_req* req, belay_runtime** out) {
  for (uint64_t i = 0; i < req->set_count; ++i) {
    const std::string set = to_string(req->sets[i]);
    if (set.starts_with("plugin="))
      return make(BELAY_NOT_FOUND, "Plugin '" + set.substr(7) + "' is not there.");
    if (set == "bad=1") return make(BELAY_INVALID_ARGUMENT, "config --set: bad is 1, want 0.");
  }
  *out = new belay_runtime;
  return BELAY_OK;
}
void belay_runtime_destroy(belay_runtime* runtime) { delete runtime; }

belay_status belay_config_check(const belay_runtime_req* req, belay_sink sink) {
  for (uint64_t i = 0; i < req->set_count; ++i) {
    const std::string set = to_string(req->sets[i]);
    if (set == "bad=1") return make(BELAY_INVALID_ARGUMENT, "config --set: bad is 1, want 0.");
    if (set == "bare=1") write(sink, "# note: no model can run\n");
  }
  write(sink, "[runtime]\nfiles = " + std::to_string(req->file_count) + "\n");
  for (uint64_t i = 0; i < req->set_count; ++i) write(sink, to_string(req->sets[i]) + "  # --set\n");
  return BELAY_OK;
}
belay_status belay_config_example(const belay_runtime_req*, belay_sink sink) {
  write(sink, "# example\n");
  return BELAY_OK;
}

belay_status belay_plugins_find(const belay_runtime_req*, void (*each)(void*, const belay_plugin_info*),
                                void* user) {
  belay_plugin_info info{};
  info.hdr.struct_size = sizeof info;
  info.id = to_str("good"), info.version = to_str("1.2.3"), info.file = to_str("libbelay_good.so"),
  info.abi = to_str("0.1");
  info.kinds = to_str("belay.driver/1:good belay.driver/1:other belay.engine/1:good"),
  info.state = to_str("found");
  info.manifest = to_str("id = \"good\"\n");
  each(user, &info);
  info.id = to_str("broken"), info.state = to_str("failed"), info.reason = to_str("no entry symbol");
  each(user, &info);
  return BELAY_OK;
}
belay_status belay_runtime_plugins(belay_runtime*, void (*each)(void*, const belay_plugin_info*),
                                   void* user) {
  return belay_plugins_find(nullptr, each, user);
}
belay_status belay_runtime_explain(belay_runtime*, belay_str kind, belay_sink sink) {
  write(sink, "candidates of " + to_string(kind));
  return BELAY_OK;
}
belay_status belay_runtime_doctor(belay_runtime*, void (*each)(void*, belay_str, uint64_t, belay_str),
                                  void* user) {
  each(user, to_str("memory"), 0, to_str("enough"));
  return BELAY_OK;
}
belay_status belay_plugins_release(const belay_runtime_req*, belay_str) { return BELAY_OK; }
belay_status belay_plugins_probe(const belay_runtime_req*, belay_str) { return BELAY_OK; }
belay_status belay_runtime_report(belay_runtime*, void (*)(void*, belay_str, belay_str), void*) { return BELAY_OK; }

const belay_hal_vt* belay_runtime_hal(belay_runtime* runtime, const belay_host** out) {
  *out = &runtime->host;
  return &hal();
}
uint64_t belay_runtime_default_device(belay_runtime*) { return 0; }
belay_status belay_runtime_policies(belay_runtime*, void (*)(void*, belay_str, uint64_t), void*) {
  return BELAY_OK;
}

belay_status belay_runtime_policy(belay_runtime*, belay_str, const belay_memory_policy_vt**, belay_obj**) {
  return BELAY_NOT_FOUND;
}

belay_status belay_model_load(belay_runtime*, const belay_model_req* req, belay_model** out) {
  std::ifstream file(to_string(req->path));
  std::string what, code;
  file >> what >> code;
  if (what == "load") return make(code_of(code), "Loading fails with " + code + ".");
  *out = new belay_model{what, code_of(code)};
  return BELAY_OK;
}
void belay_model_destroy(belay_model* model) { delete model; }
uint64_t belay_model_input_count(belay_model* model) { return model->what == "pair" ? 2 : 1; }
uint64_t belay_model_output_count(belay_model*) { return 1; }

static belay_status io(const char* name, belay_io_info* info) {
  static const int64_t dims[2] = {-1, 3};
  static const belay_str symbols[2] = {to_str("N"), {}};
  info->name = to_str(name), info->kind = BELAY_TYPE_TENSOR, info->dtype = BELAY_DT_FLOAT32, info->rank = 2;
  info->dims = dims, info->symbols = symbols, info->optional = 0;
  return BELAY_OK;
}
belay_status belay_model_input_info(belay_model*, uint64_t index, belay_io_info* info) {
  return io(index ? "y" : "x", info);
}
belay_status belay_model_output_info(belay_model*, uint64_t, belay_io_info* info) { return io("y", info); }
belay_status belay_model_stats(belay_model*, belay_executable_stats* stats) {
  stats->nodes = 1, stats->kernels = 1, stats->arena_bytes = 1024, stats->live_bytes = 512,
  stats->weight_bytes = 2048;
  return BELAY_OK;
}
belay_status belay_model_describe(belay_model*, belay_sink sink) {
  write(sink, "{}");
  return BELAY_OK;
}
belay_status belay_model_print(belay_runtime*, const belay_model_req*, belay_sink sink) {
  write(sink, "%a float32[2] = Foo.1(%x)\n%b float32[2] = Foo.1(%a)\n");
  for (int i = 0; i < 100000; ++i) write(sink, "a line of a long graph\n");
  return BELAY_OK;
}

belay_status belay_model_freeze(belay_runtime*, const belay_model_req*, belay_sink) {
  return make(BELAY_UNIMPLEMENTED, "The fake has no graph.");
}

belay_status belay_context_create(belay_model* model, belay_context** out) {
  *out = new belay_context{.model = model, .values = {}};
  return BELAY_OK;
}
void belay_context_destroy(belay_context* context) { delete context; }
belay_status belay_context_set_input(belay_context* context, uint64_t, const belay_datum* datum) {
  context->input = datum;
  return BELAY_OK;
}
belay_status belay_context_set_output(belay_context*, uint64_t, const belay_tensor*) { return BELAY_OK; }
belay_status belay_context_run(belay_context* c) {
  if (c->model->what == "run")
    return make(c->model->code, std::string("Running fails with ") + kNames[c->model->code] + ".");
  if (c->model->what == "sleep") std::this_thread::sleep_for(std::chrono::seconds(10));
  if (c->model->what == "crash") std::raise(SIGSEGV);
  const auto* from = static_cast<const float*>(c->input->tensor->data);
  c->dims[0] = c->input->tensor->dims[0];
  c->values.assign(from, from + c->dims[0] * 3);
  for (float& value : c->values) value *= 2;
  return BELAY_OK;
}
belay_status belay_context_input_memory(belay_context* c, uint64_t, belay_io_memory* memory) {
  memory->shared_bytes = c->values.size() * 4;
  return BELAY_OK;
}
belay_status belay_context_output_memory(belay_context* c, uint64_t, belay_io_memory* memory) {
  memory->copied_bytes = c->values.size() * 4;
  memory->reason = to_str("the fake copies");
  return BELAY_OK;
}
belay_status belay_context_run_async(belay_context*, belay_completion) {
  return make(BELAY_UNIMPLEMENTED, "not in the fake");
}
belay_status belay_context_output(belay_context* c, uint64_t, const belay_datum** out) {
  c->tensor.hdr.struct_size = sizeof c->tensor, c->tensor.dtype = BELAY_DT_FLOAT32, c->tensor.rank = 2,
  c->tensor.dims = c->dims;
  c->tensor.data = c->values.data(), c->tensor.bytes = c->values.size() * 4;
  c->datum.hdr.struct_size = sizeof c->datum, c->datum.kind = BELAY_TYPE_TENSOR, c->datum.tensor = &c->tensor;
  *out = &c->datum;
  return BELAY_OK;
}

}  // extern "C"
