#include "core/services/layers.h"

#include "core/base/slot_call.h"
#include "core/base/text.h"

#include <array>
#include <new>
#include <utility>

namespace belay::core {
namespace {

constexpr size_t kMostLayers = sizeof(belay_obj::layer_word) / sizeof(uint64_t);

// Which word of every object of the process is whose: constant-initialised, kept until the process ends,
// since objects of another host may have it set.
struct Keys {
  std::mutex mutex;
  std::array<char[128], kMostLayers> names = {};  // "plugin:component", zero-terminated
};
constinit Keys keys;

Result<uint64_t> key_of(const std::string& name) {
  const std::lock_guard lock(keys.mutex);
  for (size_t key = 0; key < keys.names.size(); ++key) {
    char* const there = keys.names[key];
    if (there[0] && name != there) continue;
    name.copy(there, sizeof keys.names[key] - 1);
    return uint64_t{key};
  }
  return Status(Code::kResourceExhausted, "Layer " + quote(name) + " is one more than the " +
                                              std::to_string(kMostLayers) + " different ones of a process.");
}

std::string key_name(const std::string& name) { return std::string(BELAY_LAYER_KIND) + ":" + name; }

}  // namespace

Layers::Layers(Host& host) : host_(host) {
  const Value list = host.config().get("runtime.layers");
  for (uint64_t i = 0; i < list.count(); ++i) names_.emplace_back(list.at(i).as_string());
}

Status Layers::prepare() {
  const std::lock_guard lock(preparing_);
  if (prepared_) return {};
  std::vector<Layer> layers;
  for (auto name = names_.rbegin(); name != names_.rend(); ++name) {
    const std::string where = "[runtime] layers, " + host_.config().where("runtime.layers");
    Result<Service> service = host_.services().find(key_name(*name));
    Result<Lease> lease = service.ok() ? host_.acquire(key_name(*name)) : service.status();
    if (!lease.ok()) return Status(lease.status()).while_doing("making the layers of " + where);
    BELAY_ASSIGN(const uint64_t key, key_of(service->plugin + ":" + *name));
    layers.push_back({*name, service->plugin, key, lease->object()});
  }
  layers_ = std::move(layers);
  prepared_ = true;
  return {};
}

Status Layers::attach(belay_obj& object, const TableShape& shape, const std::string& plugin,
                      belay_obj* parent) {
  if (none() || shape.object_kind == BELAY_OBJ_LAYER) return {};
  const bool has_table = object.table != nullptr;
  size_t attached = 0;
  Status status;
  try {
    status = put_before(object, shape, plugin, parent, attached);
  } catch (const std::bad_alloc&) {
    status = {Code::kResourceExhausted, "No memory."};
  }
  if (status.ok()) return {};
  if (has_table) {  // through what stands before it already
    const Status thrown =
        call_slot(plugin.c_str(), "destroy", BELAY_THREAD_DESTROY, [&] { destroy_object(shape, &object); });
    if (!thrown.ok()) host_.misbehaved(plugin, thrown.message());
  }
  {
    const std::lock_guard lock(mutex_);
    attached_.erase(&object);
  }
  detach_first(object, attached);
  return status;
}

// `attached`: how many layers have seen it, also on failure.
Status Layers::put_before(belay_obj& object, const TableShape& shape, const std::string& plugin,
                          belay_obj* parent, size_t& attached) {
  BELAY_TRY(prepare());
  std::vector<Lease> leases;
  for (const Layer& layer : layers_) {
    BELAY_ASSIGN(Lease lease, host_.acquire(key_name(layer.name)));
    leases.push_back(std::move(lease));
  }
  {
    const std::lock_guard lock(mutex_);
    attached_.emplace(&object, std::move(leases));
  }
  const bool has_table = object.table != nullptr;
  for (const Layer& layer : layers_) {
    belay_attach_req req{{sizeof req, 0, nullptr}, &object, object.table, parent, to_str(plugin), layer.key};
    const void* table = req.next;
    belay_status raw = BELAY_OK;
    const auto& vt = *static_cast<const belay_layer_vt*>(layer.object->table);
    Status status = call_slot(layer.plugin.c_str(), "attach", BELAY_THREAD_OUTSIDE,
                              [&] { raw = vt.attach(layer.object, &req, &table); });
    if (status.ok()) status = host_.take(raw, layer.plugin, "attach");
    if (status.ok()) ++attached;
    if (status.ok() && has_table != (table != nullptr))
      status = {Code::kInternal,
                "Plugin " + quote(layer.plugin) + " gave a table where there is none, or none."};
    if (status.ok() && has_table) status = check_table(shape, table, "Plugin '" + layer.plugin + "'");
    if (!status.ok())
      return std::move(status).while_doing("putting layer " + quote(layer.name) + " before a " + shape.kind);
    object.table = table;
  }
  return {};
}

void Layers::detach_first(belay_obj& object, size_t count) {
  while (count-- > 0) {
    const Layer& layer = layers_[count];
    const auto& vt = *static_cast<const belay_layer_vt*>(layer.object->table);
    const Status thrown = call_slot(layer.plugin.c_str(), "detach", BELAY_THREAD_OUTSIDE,
                                    [&] { vt.detach(layer.object, &object, layer.key); });
    if (!thrown.ok()) host_.misbehaved(layer.plugin, thrown.message());
    object.layer_word[layer.key] = 0;
  }
}

void Layers::detach(belay_obj& object) {
  if (none()) return;
  std::vector<Lease> leases;
  {
    const std::lock_guard lock(mutex_);
    const auto at = attached_.find(&object);
    if (at == attached_.end()) return;
    leases = std::move(at->second);
    attached_.erase(at);
  }
  detach_first(object, layers_.size());
}

Result<std::vector<Layers::Report>> Layers::report() {
  std::vector<Report> all;
  if (none()) return all;
  BELAY_TRY(prepare());
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    BELAY_ASSIGN(const Lease lease, host_.acquire(key_name(layer->name)));
    StringSink text;
    belay_status raw = BELAY_OK;
    const auto& vt = lease.table<belay_layer_vt>();
    BELAY_TRY(call_slot(layer->plugin.c_str(), "report", BELAY_THREAD_OUTSIDE,
                        [&] { raw = vt.report(layer->object, text.sink()); }));
    BELAY_TRY(host_.take(raw, layer->plugin, "report"));
    all.push_back({layer->name, text.text()});
  }
  return all;
}

}  // namespace belay::core
