#include "text.hpp"
#include "verbs.hpp"

#include <belay/abi/diagnostics.h>

#include <nlohmann/json.hpp>

#include <algorithm>

namespace belay::cli {
namespace {

using nlohmann::ordered_json;

struct Check {
  std::string name;
  uint64_t outcome;
  std::string text;
};

const char* outcome_name(uint64_t outcome) {
  switch (outcome) {
    case BELAY_CHECK_PASSED:
      return "passed";
    case BELAY_CHECK_WARNING:
      return "warning";
    case BELAY_CHECK_FAILED:
      return "failed";
    default:
      return "skipped";
  }
}

std::string one_line(const Failure& failure) {
  return failure.message + (failure.hint.empty() ? "" : " - " + failure.hint);
}

// From the outside in: what fails early explains what fails later.
std::vector<Check> all_checks(const Common& common) {
  std::vector<Check> checks;
  const auto add = [&](const char* name, auto&& body) {
    try {
      checks.push_back({name, BELAY_CHECK_PASSED, body()});
    } catch (const Failure& failure) {
      checks.push_back({name, BELAY_CHECK_FAILED, one_line(failure)});
    }
  };
  add("configuration", [&] {
    const RuntimeRequest request(common);
    check(belay_config_check(request.get(), {nullptr, [](void*, const void*, uint64_t) {}}),
          Stage::kConfigure);
    return common.configs.empty() ? std::string("the embedded CPU configuration")
                                  : joined(common.configs, " + ");
  });
  try {
    std::vector<std::string> refused;
    const std::vector<PluginInfo> found = find_plugins(common);
    for (const PluginInfo& plugin : found)
      if (!plugin.reason.empty()) refused.push_back(plugin.id + ": " + plugin.reason);
    checks.push_back({"plugin files",
                      found.empty()     ? BELAY_CHECK_FAILED
                      : refused.empty() ? BELAY_CHECK_PASSED
                                        : BELAY_CHECK_WARNING,
                      refused.empty() ? plural(found.size(), "plugin") + " found" : joined(refused, "; ")});
  } catch (const Failure& failure) {
    checks.push_back({"plugin files", BELAY_CHECK_FAILED, one_line(failure)});
  }
  std::unique_ptr<Runtime> runtime;
  add("start", [&] {
    runtime = std::make_unique<Runtime>(common);
    return std::string("the runtime starts");
  });
  if (!runtime) return checks;
  add("devices", [&] {
    std::vector<std::string> ids;
    for (const DeviceInfo& device : runtime->devices(false)) {
      if (!device.problem.empty()) throw Failure{Exit::kDevice, "", device.id + ": " + device.problem, ""};
      ids.push_back(device.id + " " + device.name);
    }
    if (ids.empty())
      throw Failure{Exit::kDevice, "", "There is none.", "Name a driver in the configuration."};
    return joined(ids, "; ");
  });
  belay::cli::check(
      belay_runtime_doctor(
          runtime->get().get(),
          [](void* user, belay_str name, uint64_t outcome, belay_str text) {
            static_cast<std::vector<Check>*>(user)->push_back({to_string(name), outcome, to_string(text)});
          },
          &checks),
      Stage::kConfigure);
  return checks;
}

}  // namespace

Exit doctor(const Common& common, Output& output) {
  const std::vector<Check> checks = all_checks(common);
  const bool failed = std::any_of(checks.begin(), checks.end(),
                                  [](const Check& c) { return c.outcome == BELAY_CHECK_FAILED; });
  if (output.json) {
    ordered_json list = ordered_json::array();
    for (const Check& one : checks)
      list.push_back({{"name", one.name}, {"outcome", outcome_name(one.outcome)}, {"text", one.text}});
    output.document("belay.doctor/1", {{"ok", !failed}, {"checks", list}});
  } else {
    Table table;
    for (const Check& one : checks)
      table.row({outcome_name(one.outcome), printable(one.name), printable(one.text)});
    output.print(table.text() +
                 (failed ? "Something is wrong: mend the first check that failed.\n" : "All is well.\n"));
  }
  return failed ? Exit::kDevice : Exit::kOk;
}

Exit version(const Common&, Output& output) {
  const std::string abi = std::to_string(BELAY_ABI_MAJOR) + "." + std::to_string(BELAY_ABI_MINOR);
  const std::string number = to_string(belay_version());
  if (output.json)
    output.document("belay.version/1", {{"version", number}, {"plugin_abi", abi}});
  else
    output.print("belay " + number + ", plugin ABI " + abi + "\n");
  return Exit::kOk;
}

}  // namespace belay::cli
