// belay_runtime_* and what needs no runtime.
#include "c_api.h"
#include "core/base/status_catalogue.h"
#include "core/services/services.h"

using namespace belay;
using namespace belay::c_api;

namespace {

using EachPlugin = void (*)(void* user, const belay_plugin_info*);

void tell(const std::vector<core::PluginInfo>& plugins, EachPlugin each, void* user) {
  for (const core::PluginInfo& plugin : plugins) {
    belay_plugin_info info{};
    info.hdr.struct_size = sizeof info;
    info.id = to_str(plugin.id);
    info.version = to_str(plugin.version);
    info.file = to_str(plugin.file);
    info.abi = to_str(plugin.abi);
    info.kinds = to_str(plugin.keys);
    info.state = to_str(core::name_of(plugin.state));
    info.reason = to_str(plugin.reason);
    info.manifest = to_str(plugin.manifest);
    each(user, &info);
  }
}

}  // namespace

belay_str belay_version(void) { return to_str(BELAY_VERSION); }

void belay_status_text(belay_status status, belay_sink sink) {
  if (sink.write) core::status_text(status, sink);
}

void belay_status_release(belay_status status) { core::release_status(status); }

belay_status belay_last_error(void) { return core::take_last_error(); }

belay_status belay_code_describe(uint32_t code, belay_code_info* inout) {
  return guarded("belay_code_describe", [&]() -> Status {
    BELAY_TRY(check_answer(inout, "belay_code_describe"));
    BELAY_ASSIGN(const core::CodeInfo info, core::describe_code(code));
    fill(inout,
         belay_code_info{{}, to_str(info.name), to_str(info.title), to_str(info.cause), to_str(info.remedy)});
    return {};
  });
}

belay_status belay_runtime_create(const belay_runtime_req* req, belay_runtime** out) {
  return guarded("belay_runtime_create", [&]() -> Status {
    if (!out) return null_argument("belay_runtime_create", "out");
    BELAY_ASSIGN(const hal::RuntimeRequest request, read(req, "belay_runtime_create"));
    BELAY_ASSIGN(hal::Runtime * runtime, hal::Runtime::create(request));
    *out = reinterpret_cast<belay_runtime*>(runtime);
    return {};
  });
}

void belay_runtime_destroy(belay_runtime* handle) {
  if (!handle) return;
  succeeds("belay_runtime_destroy", [&]() -> Status {
    BELAY_TRY(check(handle, "belay_runtime_destroy"));
    as_runtime(handle)->destroy();
    return {};
  });
}

belay_status belay_config_check(const belay_runtime_req* req, belay_sink effective) {
  return guarded("belay_config_check", [&]() -> Status {
    BELAY_ASSIGN(const hal::RuntimeRequest request, read(req, "belay_config_check"));
    return hal::check_config(request, effective);
  });
}

belay_status belay_config_example(const belay_runtime_req* req, belay_sink text) {
  return guarded("belay_config_example", [&]() -> Status {
    BELAY_ASSIGN(const hal::RuntimeRequest request, read(req, "belay_config_example"));
    return hal::config_example(request, text);
  });
}

belay_status belay_plugins_find(const belay_runtime_req* req, EachPlugin each, void* user) {
  return guarded("belay_plugins_find", [&]() -> Status {
    if (!each) return null_argument("belay_plugins_find", "each");
    BELAY_ASSIGN(const hal::RuntimeRequest request, read(req, "belay_plugins_find"));
    BELAY_ASSIGN(const std::vector<core::PluginInfo> found, hal::find_plugins(request));
    tell(found, each, user);
    return {};
  });
}

belay_status belay_plugins_release(const belay_runtime_req* req, belay_str id) {
  return guarded("belay_plugins_release", [&]() -> Status {
    BELAY_TRY(check_text(id, "belay_plugins_release", "id"));
    BELAY_ASSIGN(const hal::RuntimeRequest request, read(req, "belay_plugins_release"));
    return hal::release_plugin(request, to_string(id));
  });
}

belay_status belay_plugins_probe(const belay_runtime_req* req, belay_str id) {
  return guarded("belay_plugins_probe", [&]() -> Status {
    BELAY_TRY(check_text(id, "belay_plugins_probe", "id"));
    BELAY_ASSIGN(const hal::RuntimeRequest request, read(req, "belay_plugins_probe"));
    return hal::probe_plugin(request, to_string(id));
  });
}

belay_status belay_runtime_plugins(belay_runtime* handle, EachPlugin each, void* user) {
  return guarded("belay_runtime_plugins", [&]() -> Status {
    if (!each) return null_argument("belay_runtime_plugins", "each");
    BELAY_TRY(check(handle, "belay_runtime_plugins"));
    tell(as_runtime(handle)->host().plugins().list(), each, user);
    return {};
  });
}

belay_status belay_runtime_explain(belay_runtime* handle, belay_str kind, belay_sink text) {
  return guarded("belay_runtime_explain", [&]() -> Status {
    BELAY_TRY(check(handle, "belay_runtime_explain"));
    BELAY_TRY(check_text(kind, "belay_runtime_explain", "kind"));
    return as_runtime(handle)->explain(to_view(kind), text);
  });
}

belay_status belay_runtime_doctor(belay_runtime* handle,
                                  void (*each)(void* user, belay_str name, uint64_t outcome, belay_str text),
                                  void* user) {
  return guarded("belay_runtime_doctor", [&]() -> Status {
    if (!each) return null_argument("belay_runtime_doctor", "each");
    BELAY_TRY(check(handle, "belay_runtime_doctor"));
    as_runtime(handle)->doctor([&](std::string_view name, uint64_t outcome, std::string_view text) {
      each(user, to_str(name), outcome, to_str(text));
    });
    return {};
  });
}

belay_status belay_runtime_report(belay_runtime* handle, void (*each)(void* user, belay_str layer, belay_str text),
                                  void* user) {
  return guarded("belay_runtime_report", [&]() -> Status {
    if (!each) return null_argument("belay_runtime_report", "each");
    BELAY_TRY(check(handle, "belay_runtime_report"));
    core::Layers& layers = core::services_of(core::table_of(&as_runtime(handle)->host().table())).layers;
    BELAY_ASSIGN(const std::vector<core::Layers::Report> reports, layers.report());
    for (const core::Layers::Report& report : reports) each(user, to_str(report.layer), to_str(report.text));
    return {};
  });
}

const belay_hal_vt* belay_runtime_hal(belay_runtime* handle, const belay_host** out_host) {
  if (!succeeds("belay_runtime_hal", [&] { return check_alive(handle, "belay_runtime_hal"); }))
    return nullptr;
  if (out_host) *out_host = &as_runtime(handle)->host().table();
  return &hal::hal_table();
}

uint64_t belay_runtime_default_device(belay_runtime* handle) {
  const char* const call = "belay_runtime_default_device";
  return succeeds(call, [&] { return check_alive(handle, call); }) ? as_runtime(handle)->default_device() : 0;
}

belay_status belay_runtime_policy(belay_runtime* handle, belay_str name,
                                  const belay_memory_policy_vt** out_table, belay_obj** out_policy) {
  const char* const call = "belay_runtime_policy";
  return guarded(call, [&]() -> Status {
    BELAY_TRY(check_alive(handle, call));
    if (!out_table || !out_policy) return null_argument(call, out_table ? "out_policy" : "out_table");
    BELAY_TRY(check_text(name, call, "name"));
    BELAY_ASSIGN(hal::PolicyView* const policy, as_runtime(handle)->policy(to_string(name)));
    *out_table = policy->table();
    *out_policy = policy->object();
    return {};
  });
}

belay_status belay_runtime_policies(belay_runtime* handle,
                                    void (*each)(void* user, belay_str name, uint64_t serves), void* user) {
  return guarded("belay_runtime_policies", [&]() -> Status {
    if (!each) return null_argument("belay_runtime_policies", "each");
    BELAY_TRY(check(handle, "belay_runtime_policies"));
    for (const hal::NamedObject& policy : as_runtime(handle)->policies())
      each(user, to_str(policy.name),
           static_cast<const belay_memory_policy_vt*>(policy.object->table)->serves(policy.object));
    return {};
  });
}
