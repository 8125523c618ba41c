#include "hal/config_schema.h"

#include <belay/abi/diagnostics.h>
#include <belay/abi/driver.h>
#include <belay/abi/engine.h>
#include <belay/abi/kernel_provider.h>
#include <belay/abi/layer.h>
#include <belay/abi/memory_policy.h>
#include <belay/abi/model_format.h>

namespace belay::hal {

using core::Field;
using core::FieldType;

core::Schema runtime_schema() {
  core::Schema schema = core::core_schema();
  schema.add(
      "runtime",
      {Field{.key = "device",
             .type = FieldType::kString,
             .default_value = "\"auto\"",
             .doc = "device that models use by default: driver and number; auto: that with the least memory "
                    "in use",
             .choices = {"auto"},
             .names_kind = BELAY_DRIVER_KIND},
       Field{.key = "drivers",
             .type = FieldType::kStringList,
             .default_value = "[]",
             .doc = "further drivers whose devices are to be there",
             .names_kind = BELAY_DRIVER_KIND},
       Field{.key = "layers",
             .type = FieldType::kStringList,
             .default_value = "[]",
             .doc = "layers before all that plugins make, the first nearest to the caller",
             .names_kind = BELAY_LAYER_KIND},
       Field{.key = "queue_full",
             .type = FieldType::kString,
             .default_value = "\"help\"",
             .doc =
                 "what queueing on a full stream does: run queued work on the calling thread until there is "
                 "room, sleep until there is, or report QUEUE_FULL",
             .choices = {"help", "block", "report"}}});
  schema.add(
      "models",
      {Field{.key = "formats",
             .type = FieldType::kStringList,
             .default_value = "[]",
             .doc = "model formats that are asked what a file is; the surest wins, then the first",
             .names_kind = BELAY_MODEL_FORMAT_KIND},
       Field{
           .key = "weights",
           .type = FieldType::kString,
           .default_value = "\"map\"",
           .doc =
               "map: files are mapped and must not change while a model uses them; copy: they are read once",
           .choices = {"map", "copy"}}},
      "Reading models.");
  schema.add(
      "memory",
      {Field{.key = "policies",
             .type = FieldType::kStringList,
             .default_value = "[]",
             .doc = "memory policies, asked in this order; what none takes gets a place of its own",
             .names_kind = BELAY_MEMORY_POLICY_KIND},
       Field{.key = "limit",
             .type = FieldType::kSize,
             .default_value = "0",
             .doc = "most bytes of buffers on each device; 0: what the device has",
             .min = 0,
             .unit = "bytes"},
       Field{
           .key = "checked",
           .type = FieldType::kBool,
           .default_value = "false",
           .doc =
               "finds faults with memory, slowly: zones around buffers that nothing may write, buffers that "
               "begin as NaN, reports of leaks that say where a buffer was made, and errors that name who still "
               "uses what is destroyed"}},
      "Memory of devices.");
  schema.add(
      "engine",
      {Field{.key = "use",
             .type = FieldType::kString,
             .doc = "engine that runs models; not set: models cannot be run",
             .names_kind = BELAY_ENGINE_KIND},
       Field{.key = "providers",
             .type = FieldType::kStringList,
             .default_value = "[]",
             .doc = "kernel providers besides those that come with the drivers",
             .names_kind = BELAY_KERNEL_PROVIDER_KIND},
       Field{
           .key = "threads",
           .type = FieldType::kInt,
           .default_value = "0",
           .doc = "threads that kernels use, over all lanes and callers together; 0: all cores of the device",
           .min = 0,
           .max = 4096},
       Field{.key = "streams",
             .type = FieldType::kInt,
             .default_value = "0",
             .doc = "streams that independent branches are spread over; 0: as it is worth it",
             .min = 0,
             .max = 64},
       Field{.key = "precision",
             .type = FieldType::kString,
             .default_value = "\"float32\"",
             .doc = "fast: lower precision inside kernels where the device gains by it",
             .choices = {"float32", "fast"}},
       Field{.key = "winograd",
             .type = FieldType::kBool,
             .default_value = "true",
             .doc =
                 "compute 3 x 3 convolutions in tiles where that is faster: their last digits differ, and an "
                 "infinity or NaN spreads over its tile"},
       Field{.key = "plan_cache",
             .type = FieldType::kInt,
             .default_value = "16",
             .doc = "plans kept of a model, one for each set of input shapes",
             .min = 1,
             .max = 65536},
       Field{.key = "plan_cache_bytes",
             .type = FieldType::kSize,
             .default_value = "0",
             .doc = "memory that kept plans may hold; 0: not bounded",
             .min = 0,
             .unit = "bytes"},
       Field{.key = "plan_growth",
             .type = FieldType::kInt,
             .default_value = "25",
             .doc = "percent by which buffers whose sizes change from run to run are placed larger than "
                    "they are, so that one plan serves shapes up to there; 0: each set of shapes is "
                    "planned by itself",
             .min = 0,
             .max = 1000,
             .unit = "%"},
       Field{.key = "op_cache",
             .type = FieldType::kInt,
             .default_value = "128",
             .doc = "single operators kept prepared, one for each signature",
             .min = 1,
             .max = 65536},
       Field{.key = "max_contexts",
             .type = FieldType::kInt,
             .default_value = "16",
             .doc = "runs of one model at once, each with an arena of its own",
             .min = 1,
             .max = 65536},
       Field{.key = "contexts_full",
             .type = FieldType::kString,
             .default_value = "\"error\"",
             .doc = "what a caller gets when all contexts are taken: RESOURCE_EXHAUSTED, or its turn, which "
                    "never comes to a thread that holds them itself",
             .choices = {"wait", "error"}},
       Field{.key = "fallback",
             .type = FieldType::kString,
             .default_value = "\"cpu\"",
             .doc = "where a node goes that no provider of the device claims: to the host, with copies; or "
                    "loading fails",
             .choices = {"cpu", "error"}},
       Field{.key = "weights",
             .type = FieldType::kString,
             .default_value = "\"borrow\"",
             .doc = "borrow: constants are used where they lie in the file if they are aligned; copy: always "
                    "copied",
             .choices = {"borrow", "copy"}},
       Field{.key = "fold_limit",
             .type = FieldType::kSize,
             .default_value = "\"1MiB\"",
             .doc = "how much larger than its inputs a constant computed at load may be",
             .min = 0,
             .unit = "bytes"},
       Field{.key = "memory_limit",
             .type = FieldType::kSize,
             .default_value = "0",
             .doc = "most bytes of one plan's arena; 0: the device's memory",
             .min = 0,
             .unit = "bytes"},
       Field{.key = "input_shapes",
             .type = FieldType::kString,
             .default_value = "\"declared\"",
             .doc = "declared: inputs have the shapes that the model declares; open: any shapes that its "
                    "operators take",
             .choices = {"declared", "open"}},
       Field{.key = "disable_passes",
             .type = FieldType::kStringList,
             .default_value = "[]",
             .doc = "passes over the graph to leave out, for finding out which one is at fault"},
       Field{.key = "disable_fusions",
             .type = FieldType::kStringList,
             .default_value = "[]",
             .doc = "kernels for several operators to leave out, named as `belay inspect --kernels` does: "
                    "Conv+Relu; * "
                    "stands for anything, so that [\"*\"] runs each node on its own"}},
      "From a graph to its runs.");
  schema.add("diagnostics",
             {Field{.key = "use",
                    .type = FieldType::kStringList,
                    .default_value = "[]",
                    .doc = "diagnostics that listen and offer checks",
                    .names_kind = BELAY_DIAGNOSTICS_KIND}},
             "Watching and checking.");
  return schema;
}

}  // namespace belay::hal
