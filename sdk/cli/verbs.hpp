// The verbs: what the command line says to each, and the functions that do them. command_line.cpp fills the
// options.
#pragma once

#include "hosting.hpp"
#include "inputs.hpp"
#include "output.hpp"

#include <optional>
#include <string>
#include <vector>

namespace belay::cli {

struct RunOptions {
  Common common;
  std::string model;
  InputOptions inputs;
  std::string output_dir;
  std::string output_format;  // "npy", "pb", "both", or empty for npy
  std::optional<double> rtol, atol;
  uint64_t repeat = 1;
  double timeout = 0;  // seconds, 0: none
};
Exit run(const RunOptions& options, Output& output);

struct BenchOptions {
  Common common;
  std::string model;
  InputOptions inputs;
  std::optional<uint64_t> threads;
  uint64_t callers = 1;
  double seconds = 3;
  double warmup = 0.3;  // seconds
  uint64_t runs = 0;    // 0: by time
};
Exit bench(const BenchOptions& options, Output& output);

struct CompareOptions {
  Common common;
  std::string a, b;  // configurations: a TOML file, or "default"
  std::vector<std::string> sets_a, sets_b;
  std::string peer, peer_lib;  // "onnxruntime" instead of b
  std::string model;
  InputOptions inputs;
  std::optional<double> rtol, atol;
  bool bisect = false;
  double timeout = 0;  // seconds, 0: none
};
Exit compare(const CompareOptions& options, Output& output);

struct MemoryPlanOptions {
  Common common;
  std::string file;                  // the problem: CSV, or CSV compressed by gzip
  std::optional<uint64_t> capacity;  // bytes; a plan that fits is good enough
  double budget_ms = 1000;
  uint64_t seed = 1;
  std::string svg;  // where the picture goes, or empty
};
Exit memory_plan(const MemoryPlanOptions& options, Output& output);

struct MemoryReplayOptions {
  Common common;
  std::string file;  // the trace: CSV, or CSV compressed by gzip
  std::string policy;                // empty: the first of the configuration that places
  std::optional<uint64_t> capacity;  // bytes of the one reservation
  bool min_capacity = false;         // instead: look for the smallest that does
  std::string lag = "0";             // rows, or "never"
  uint64_t threads = 1;              // each of which does the whole trace
  uint64_t runs = 5;
  std::string snapshot, svg;  // files, or empty
};
Exit memory_replay(const MemoryReplayOptions& options, Output& output);

struct InspectOptions {
  Common common;
  std::string model;
  InputOptions inputs;  // only shapes
  bool text = false;    // the frozen graph
  bool all = false;     // every kernel, not only one line per kind
};
Exit inspect(const InspectOptions& options, Output& output);

struct ConformanceOptions {
  Common common;
  std::string folder;
  std::string filter;   // a part of the name, or a pattern with * and ?
  uint64_t jobs = 0;    // 0: one per processor
  double timeout = 60;  // seconds a case
  double rtol = 1e-3, atol = 1e-7;
};
Exit conformance_onnx(const ConformanceOptions& options, Output& output);
// The child process of the above: cases from stdin, results to the file descriptor.
Exit conformance_worker(const ConformanceOptions& options, int result_fd);

Exit devices(const Common& common, Output& output);
Exit plugins_list(const Common& common, Output& output);
Exit plugins_probe(const Common& common, const std::string& id, Output& output);
Exit plugins_release(const Common& common, const std::string& id, Output& output);
Exit plugins_info(const Common& common, const std::string& id, Output& output);
const std::vector<std::string>& plugin_kinds();  // "driver", "engine" ...
Exit plugins_explain(const Common& common, const std::string& kind, Output& output);

struct NewPluginOptions {
  std::string kind, id;
  std::string dir;  // where the folder `id` is made; empty: the current one
};
Exit plugins_new(const NewPluginOptions& options, Output& output);

Exit config_check(const Common& common, Output& output);
Exit config_show(const Common& common, Output& output);
Exit config_example(const Common& common, Output& output);
Exit explain(const Common& common, const std::string& code, Output& output);  // "": all codes
Exit doctor(const Common& common, Output& output);
Exit version(const Common& common, Output& output);

}  // namespace belay::cli
