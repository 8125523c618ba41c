#include "text.hpp"
#include "verbs.hpp"

#include <nlohmann/json.hpp>

namespace belay::cli {
namespace {

using nlohmann::ordered_json;

const char* heap_name(uint64_t heap_class) {
  switch (heap_class) {
    case BELAY_HEAP_DEVICE:
      return "device";
    case BELAY_HEAP_CONSTANT:
      return "constant";
    case BELAY_HEAP_SHARED:
      return "shared";
    case BELAY_HEAP_PINNED_HOST:
      return "pinned host";
    default:
      return "other";
  }
}

}  // namespace

Exit devices(const Common& common, Output& output) {
  const Runtime runtime(common);
  const std::string wanted = runtime.device_id(common.device), chosen = runtime.default_device();
  std::vector<DeviceInfo> all = runtime.devices(true);
  if (!common.device.empty())
    std::erase_if(all, [&](const DeviceInfo& device) { return device.id != wanted; });
  if (output.json) {
    ordered_json list = ordered_json::array();
    for (const DeviceInfo& device : all) {
      ordered_json one{{"id", device.id}, {"default", device.id == chosen}};
      if (!device.problem.empty()) {
        one["problem"] = device.problem;
        list.push_back(std::move(one));
        continue;
      }
      one.update({{"driver", device.driver},
                  {"name", device.name},
                  {"arch", device.arch},
                  {"features", device.features},
                  {"threads", device.threads},
                  {"memory_bytes", device.memory_bytes},
                  {"queue_depth", device.queue_depth},
                  {"host_visible", (device.flags & BELAY_DEVICE_HOST_VISIBLE) != 0},
                  {"binds_host", (device.flags & BELAY_DEVICE_BINDS_HOST) != 0},
                  {"heaps", ordered_json::array()}});
      for (const auto& heap : device.heaps)
        one["heaps"].push_back({{"class", heap_name(heap.heap_class)},
                                {"bytes", heap.bytes},
                                {"free_bytes", heap.free_bytes},
                                {"alignment", heap.alignment}});
      list.push_back(std::move(one));
    }
    output.document("belay.devices/1", {{"devices", list}});
    return Exit::kOk;
  }
  std::string text;
  for (const DeviceInfo& device : all) {
    if (!device.problem.empty()) {
      text += device.id + "  cannot be opened: " + printable(device.problem) + "\n";
      continue;
    }
    text += device.id + (device.id == chosen ? "  (default)" : "") + "  " + printable(device.name) + "\n";
    Table table(2);
    table.row({"arch", printable(device.arch), printable(device.features)});
    text += table.text();
    text += "  " + plural(device.threads, "thread") + ", " + bytes_text(device.memory_bytes) +
            " of memory, " + std::to_string(device.queue_depth) + " operations in a queue\n";
    for (const auto& heap : device.heaps)
      text += "  heap: " + std::string(heap_name(heap.heap_class)) + ", " + bytes_text(heap.free_bytes) +
              " free of " + bytes_text(heap.bytes) + ", aligned to " + std::to_string(heap.alignment) + "\n";
    std::string can;
    if (device.flags & BELAY_DEVICE_HOST_VISIBLE) can += "its memory is seen by the host";
    if (device.flags & BELAY_DEVICE_BINDS_HOST)
      can += std::string(can.empty() ? "" : "; ") + "uses host memory without a copy";
    if (!can.empty()) text += "  " + can + "\n";
  }
  output.print(text.empty() ? "no devices\n" : text);
  return Exit::kOk;
}

}  // namespace belay::cli
