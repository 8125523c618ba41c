#include "core/services/fault_points.h"

#include "core/base/status_catalogue.h"
#include "core/base/text.h"
#include "core/host_call.h"
#include "core/services/services.h"

#include <thread>

namespace belay::core {

FaultPoints::FaultPoints(const Config& config) {
  const Value points = config.get("fault.points");
  for (uint64_t i = 0; i < points.count(); ++i) {
    const Value from = points.at(i);
    auto rule = std::make_unique<Rule>();
    rule->point = from["point"].as_string();
    StringSink where;
    from["point"].raw()->vt->where(from["point"].raw(), where.sink());
    rule->where = std::move(where).str();
    if (const Result<CodeInfo> code = find_code(from["code"].as_string()); code.ok())
      rule->code = Code(code->code);
    rule->skip = uint64_t(from["skip"].as_int()), rule->times = uint64_t(from["times"].as_int());
    rule->delay = std::chrono::nanoseconds(from["delay"].as_int());
    rules_.push_back(std::move(rule));
  }
}

Status FaultPoints::look(std::string_view plugin, std::string_view point) {
  const std::string name = std::string(plugin) + "." + std::string(point.substr(0, 256));
  for (const std::unique_ptr<Rule>& rule : rules_) {
    const bool any = rule->point.ends_with('*');
    if (any ? !name.starts_with(std::string_view(rule->point).substr(0, rule->point.size() - 1))
            : name != rule->point)
      continue;
    const uint64_t pass = rule->passed.fetch_add(1, std::memory_order_relaxed);
    if (pass < rule->skip || (rule->times != 0 && pass - rule->skip >= rule->times)) continue;
    if (rule->delay.count() > 0) std::this_thread::sleep_for(rule->delay);
    if (rule->code != Code::kOk)
      return {rule->code, "A failure was ordered at " + quote(name) + ", pass " + std::to_string(pass + 1) +
                              " ([[fault.points]], config " + rule->where + ")."};
  }
  return {};
}

const belay_fault_vt kFaultTable = {
    {sizeof(belay_fault_vt), 0, nullptr}, [](const belay_host* host, belay_str point) {
      return host_call<belay_status>(
          host, [&](HostTable& table) { return services_of(table).faults.at(table.plugin, to_view(point)); });
    }};

}  // namespace belay::core
