#include "command_line.hpp"
#include "completion.hpp"
#include "help.hpp"
#include "text.hpp"
#include "verbs.hpp"
#include "worker_pool.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

namespace belay::cli {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 ok, 1 a comparison failed, 2 command line or configuration, 3 input or model, 4 device or "
    "plugin,\n"
    "5 out of memory or another resource, 6 timeout, 7 internal, 130 interrupted.";

const char* const kInputHelp =
    "An input: NAME=FILE, with FILE.npy, FILE.pb (ONNX TensorProto) or raw numbers as "
    "FILE:float32:1x3x224x224; the name may be "
    "left out where there is one input (repeatable)";

CLI::Validator number_from(double least) {
  return CLI::Validator(
      [least](std::string& text) {
        const auto value = number_of<double>(text);
        const bool good = value && std::isfinite(*value) && *value >= least;
        return good ? "" : "'" + text + "' is no number " + (least > 0 ? "above 0" : "of 0 or more");
      },
      "");
}

CLI::Validator count_to(uint64_t most, uint64_t least = 1) {
  return CLI::Validator(
      [least, most](std::string& text) {
        const auto value = number_of<uint64_t>(text);
        const bool good = value && *value >= least && *value <= most;
        return good ? "" : "'" + text + "' is no number of " + std::to_string(least) + " to " + std::to_string(most);
      },
      "");
}

// Bytes as settings have them; becomes the number alone.
CLI::Validator size() {
  return CLI::Validator(
      [](std::string& text) {
        const auto bytes = size_of(text);
        const std::string wrong =
            "'" + text + "' is no size of at most 2^64 - 1 bytes; want a number, or one with B, KiB, MiB, GiB or TiB";
        if (!bytes) return wrong;
        text = std::to_string(*bytes);
        return std::string();
      },
      "");
}

// What the program understands. Each verb sets `action`; nothing runs while the line is parsed.
class CommandLine {
 public:
  explicit CommandLine(Output& output) : output_(output) {
    app_.name("belay");
    app_.set_help_flag("-h,--help", "This text");
    app_.allow_extras();
    app_.add_flag("--version", version_, "The version");
    app_.require_subcommand(0, 1);
    app_.footer(std::string("Begin with: belay run model.onnx --random\n'belay VERB --help' tells about a "
                            "verb, with examples.\n\n") +
                kExitCodes);
    add_run();
    add_bench();
    add_compare();
    add_inspect();
    add_devices();
    add_plugins();
    add_config();
    add_memory();
    add_explain();
    add_doctor();
    add_version();
    add_conformance();
    add_completion();
    add_help();
  }

  Exit run(int argc, char** argv) {
    // Even a line that cannot be parsed may say how its error is to be shown.
    for (int i = 1; i < argc; ++i) {
      output_.json = output_.json || std::string_view(argv[i]) == "--json";
      output_.quiet =
          output_.quiet || std::string_view(argv[i]) == "--quiet" || std::string_view(argv[i]) == "-q";
    }
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      const App* const at = chosen(&app_);
      if (!verbs_of(at).empty())  // help about a verb that there is not
        for (const std::string& word : at->remaining(false))
          if (!word.starts_with("-")) refuse_verb(at, word);
      output_.print(help_text(at));
      return Exit::kOk;
    } catch (const CLI::ParseError& error) {
      std::string message = error.what();
      if (message.empty() || message.back() != '.') message += ".";
      fail_usage(std::move(message), see_help(chosen(&app_)));
    }
    refuse_extras(&app_);
    if (version_) return version(common_, output_);
    if (!action_) {
      const CLI::App* at = chosen(&app_);
      if (at == &app_ && argc <= 1) {
        output_.print(help_text(at));
        return Exit::kUsage;
      }
      fail_usage(at == &app_
                     ? "No verb is given."
                     : "'belay " + at->get_name() + "' wants one more word: " + joined(verbs_of(at)) + ".",
                 see_help(at));
    }
    return action_();
  }

 private:
  using App = CLI::App;

  // ---- what went wrong ----
  static App* chosen(App* app) {
    for (App* sub : app->get_subcommands()) return chosen(sub);
    return app;
  }
  static std::string see_help(const App* app) {
    return "'" + path_of(app) + " --help' shows how it is used.";
  }
  static std::vector<std::string> verbs_of(const App* app) {
    std::vector<std::string> out;
    for (const App* sub : app->get_subcommands([](const App*) { return true; }))
      if (!sub->get_group().empty()) out.push_back(sub->get_name());
    return out;
  }
  static std::vector<std::string> options_of(const App* app) {
    std::vector<std::string> out;
    for (const CLI::Option* option : app->get_options())
      for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
    return out;
  }

  static bool is_common(const std::string& name) {
    constexpr const char* kCommon[] = {"--config", "--set", "--plugin-dir", "--device", "--json",
                                       "--quiet",  "-q",    "--verbose",    "-v"};
    return std::find(std::begin(kCommon), std::end(kCommon), name) != std::end(kCommon);
  }

  [[noreturn]] static void refuse_verb(const App* at, const std::string& word) {
    const std::vector<std::string> verbs = verbs_of(at);
    std::string near = did_you_mean(word, verbs);
    fail_usage("'" + path_of(at) + "' has no verb '" + word + "'" +
                   (verbs.empty() ? "." : "; verbs are " + joined(verbs) + "."),
               near.empty() ? see_help(at) : near);
  }

  // What no option or place took. CLI11 itself would say so without a suggestion.
  static void refuse_extras(App* top) {
    App* app = chosen(top);
    for (App* at = app; at; at = const_cast<App*>(static_cast<const App*>(at)->get_parent())) {
      const std::vector<std::string> extras = at->remaining(false);
      if (extras.empty()) continue;
      for (const std::string& extra : extras) {
        if (!extra.starts_with("-") || extra == "-" || extra == "--") continue;
        const std::string name = extra.substr(0, extra.find('='));
        std::string near = did_you_mean(name, options_of(at));
        if (at == top && is_common(name)) near = "Options come after the verb: belay VERB " + name;
        fail_usage("'" + path_of(at) + "' has no option '" + name + "'.", near.empty() ? see_help(at) : near);
      }
      if (!verbs_of(at).empty() && at->get_subcommands().empty()) refuse_verb(at, extras.front());
      fail_usage("'" + path_of(at) + "' has no use for '" + extras.front() + "'.", see_help(at));
    }
  }

  // ---- parts that verbs share ----
  App* verb(App* parent, const std::string& name, const std::string& what, const std::string& examples) {
    App* app = parent->add_subcommand(name, what);
    app->allow_extras();
    app->set_help_flag("-h,--help", "This text");
    if (!examples.empty()) app->footer("Examples:\n" + examples);
    return app;
  }
  // What a verb looks at: one that has no use for an option does not take it.
  enum class Uses { kNothing, kConfiguration, kDevice };
  void add_common(App* app, Common& common, Uses uses = Uses::kDevice) {
    const char* const group = "Common";
    const auto many = [&](const char* name, std::vector<std::string>& into, const char* what,
                          const char* type) {
      app->add_option(name, into, what)->type_name(type)->group(group)->allow_extra_args(false);
    };
    if (uses >= Uses::kConfiguration) {
      many("--config", common.configs,
           "A TOML file; the last one wins (repeatable). Without one: the embedded CPU configuration",
           "FILE");
      many("--set", common.sets, "A value that wins over the files: engine.threads=2 (repeatable)",
           "KEY=VALUE");
      many("--plugin-dir", common.plugin_dirs, "Where plugins are looked for first (repeatable)", "DIR");
    }
    if (uses >= Uses::kDevice)
      app->add_option(
             "--device", common.device,
             "The device: an id of 'belay devices' (cpu:0), a driver for its first (cpu), or auto for the "
             "configuration's")
          ->type_name("ID")
          ->group(group);
    app->add_flag("--json", common.json, "One JSON document on stdout")->group(group);
    app->add_flag("-q,--quiet", common.quiet, "Only results: no notes, no progress")->group(group);
    app->add_flag("-v,--verbose", common.verbose, "More on stderr; -vv still more")->group(group);
  }
  void does(App* app, std::function<Exit()> action) {
    app->callback([this, action = std::move(action)] { action_ = action; });
  }
  static std::string required(const std::string& value, const char* name, const char* path) {
    if (value.empty())
      fail_usage(std::string("'belay ") + path + "' wants a " + name + ".",
                 std::string("'belay ") + path + " --help' shows how it is used.");
    return value;
  }
  static void add_inputs(App* app, InputOptions& inputs) {
    const char* const group = "Inputs";
    app->add_option("-i,--input", inputs.files, kInputHelp)
        ->type_name("NAME=FILE")
        ->group(group)
        ->allow_extra_args(false);
    app->add_option("--value", inputs.values,
                    "An input typed here: NAME=16000 or NAME=1,2,3; one number fills it (repeatable)")
        ->type_name("NAME=NUMBERS")
        ->group(group)
        ->allow_extra_args(false);
    app->add_option("--shape", inputs.shapes,
                    "The shape of an input that is made up or raw: NAME=1x3x224x224, or the size of a named "
                    "dimension: N=4 (repeatable)")
        ->type_name("NAME=DIMS")
        ->group(group)
        ->allow_extra_args(false);
    app->add_flag_function(
           "--random{0}",
           [&inputs](int64_t seed) {
             if (seed < -1)
               fail_usage("--random is " + std::to_string(seed) + ", want a seed from 0 on.", "");
             inputs.random =
                 seed < 0 ? 0 : uint64_t(seed);  // to the parser the flag's 0 is "false", which is -1
           },
           "Inputs that are not given are random: floats from -1 to 1, bytes of any value, other integers 0 or 1; always "
           "the same, --random=SEED: others")
        ->group(group);
    app->add_flag("--zeros", inputs.zeros, "Inputs that are not given are zero")->group(group);
  }
  static void check_inputs(const InputOptions& inputs) {
    if (inputs.random && inputs.zeros) fail_usage("--random and --zeros are both given.", "Choose one.");
  }

  // ---- verbs ----
  void add_run() {
    App* app = verb(&app_, "run", "Run a model and print its outputs",
                    "  belay run digits.onnx --input image=digit.npy\n"
                    "  belay run model.onnx --random --output-dir out\n"
                    "  belay run model.onnx --test-data test_data_set_0\n"
                    "  belay run model.onnx -i x=photo.bin:float32:1x3x224x224 --value rate=16000");
    app->add_option("model", run_.model, "The model's file")->type_name("MODEL");
    add_inputs(app, run_.inputs);
    app->add_option("--test-data", run_.inputs.test_data,
                    "Take input_N.pb from this folder and compare with its output_N.pb")
        ->type_name("DIR")
        ->group("Comparison");
    app->add_option("--rtol", run_.rtol, "Relative tolerance (1e-4)")
        ->type_name("X")
        ->group("Comparison")
        ->check(number_from(0));
    app->add_option("--atol", run_.atol, "Absolute tolerance (1e-5 times the largest expected value)")
        ->type_name("X")
        ->group("Comparison")
        ->check(number_from(0));
    app->add_option("-o,--output-dir", run_.output_dir, "Save the outputs in this folder")
        ->type_name("DIR")
        ->group("Results");
    app->add_option("--output-format", run_.output_format, "npy, pb or both (npy)")
        ->type_name("FORMAT")
        ->group("Results")
        ->check(CLI::Validator(
            [](std::string& text) {
              return text == "npy" || text == "pb" || text == "both"
                         ? ""
                         : "'" + text + "' is no format, want npy, pb or both";
            },
            ""));
    app->add_option("--repeat", run_.repeat, "Run that often, print the median time")
        ->type_name("N")
        ->group("Results")
        ->check(count_to(1000000000));
    app->add_option("--timeout", run_.timeout, "Give up after that time")
        ->type_name("SECONDS")
        ->group("Results")
        ->check(number_from(0));
    add_common(app, run_.common);
    does(app, [this] {
      required(run_.model, "model", "run");
      check_inputs(run_.inputs);
      const std::string see = "'belay run --help' shows how it is used.";
      if (!run_.output_format.empty() && run_.output_dir.empty())
        fail_usage("--output-format is given without --output-dir.", see);
      if ((run_.rtol || run_.atol) && run_.inputs.test_data.empty())
        fail_usage(std::string(run_.rtol ? "--rtol" : "--atol") +
                       " is given without --test-data, which has what to compare with.",
                   see);
      return cli::run(run_, output_);
    });
  }

  void add_bench() {
    App* app = verb(&app_, "bench", "Measure a model: latency, throughput, memory",
                    "  belay bench model.onnx\n"
                    "  belay bench model.onnx --threads 2 --seconds 10\n"
                    "  belay bench model.onnx --shape x=1x3x320x320 --callers 4 --json");
    app->add_option("model", bench_.model, "The model's file")->type_name("MODEL");
    add_inputs(app, bench_.inputs);
    app->add_option("--test-data", bench_.inputs.test_data, "Take input_N.pb from this folder")
        ->type_name("DIR")
        ->group("Inputs");
    app->add_option("--threads", bench_.threads, "Threads of the engine (all cores); sets engine.threads")
        ->type_name("N")
        ->group("Measurement")
        ->check(count_to(UINT64_MAX, 0));
    app->add_option("--callers", bench_.callers,
                    "Threads that run the model at once, each with its own context (1)")
        ->type_name("N")
        ->group("Measurement")
        ->check(count_to(1024));
    app->add_option("--seconds", bench_.seconds, "How long (3)")
        ->type_name("S")
        ->group("Measurement")
        ->check(number_from(1e-9));
    app->add_option("--runs", bench_.runs, "So many runs instead of a time")
        ->type_name("N")
        ->group("Measurement");
    app->add_option("--warmup", bench_.warmup, "Seconds before measuring, at least one run (0.3)")
        ->type_name("S")
        ->group("Measurement")
        ->check(number_from(0));
    add_common(app, bench_.common);
    does(app, [this] {
      required(bench_.model, "model", "bench");
      check_inputs(bench_.inputs);
      return cli::bench(bench_, output_);
    });
  }

  void add_compare() {
    App* app =
        verb(&app_, "compare", "Run a model in two ways and compare what they give",
             "  belay compare default reference.toml --model model.onnx --random\n"
             "  belay compare default --set-b engine.winograd=false --model model.onnx --random --bisect\n"
             "  belay compare --peer onnxruntime --peer-lib libonnxruntime.so.1 --model model.onnx --random");
    app->add_option("a", compare_.a, "A configuration, a TOML file; 'default' is the embedded one")
        ->type_name("A");
    app->add_option("b", compare_.b,
                    "The one that is right where they differ (as A, with the values of --set-b)")
        ->type_name("B");
    app->add_option("-m,--model", compare_.model, "The model's file")->type_name("MODEL");
    add_inputs(app, compare_.inputs);
    app->add_option("--test-data", compare_.inputs.test_data, "Take input_N.pb from this folder")
        ->type_name("DIR")
        ->group("Inputs");
    const char* const sides = "Sides";
    for (auto [name, sets] : {std::pair{"--set-a", &compare_.sets_a}, {"--set-b", &compare_.sets_b}})
      app->add_option(name, *sets, "A value of this side alone: engine.threads=2 (repeatable)")
          ->type_name("KEY=VALUE")
          ->group(sides)
          ->allow_extra_args(false);
    app->add_option("--peer", compare_.peer, "Compare with another library instead of B: onnxruntime")
        ->type_name("NAME")
        ->group(sides)
        ->check(CLI::Validator(
            [](std::string& text) {
              return text == "onnxruntime" ? "" : "'" + text + "' is no peer, want onnxruntime";
            },
            ""));
    app->add_option("--peer-lib", compare_.peer_lib, "Its library (BELAY_ORT_LIB, else where libraries are)")
        ->type_name("FILE")
        ->group(sides);
    const char* const comparison = "Comparison";
    app->add_flag("--bisect", compare_.bisect, "Find the first node that differs")->group(comparison);
    app->add_option("--rtol", compare_.rtol, "Relative tolerance (1e-4)")
        ->type_name("X")
        ->group(comparison)
        ->check(number_from(0));
    app->add_option("--atol", compare_.atol, "Absolute tolerance (1e-5 times the largest expected value)")
        ->type_name("X")
        ->group(comparison)
        ->check(number_from(0));
    app->add_option("--timeout", compare_.timeout, "Give up after that time")
        ->type_name("SECONDS")
        ->group(comparison)
        ->check(number_from(0));
    add_common(app, compare_.common);
    does(app, [this] { return cli::compare(compare_checked(), output_); });
  }
  const CompareOptions& compare_checked() {
    const std::string see = "'belay compare --help' shows how it is used.";
    check_inputs(compare_.inputs);
    if (!compare_.common.configs.empty())
      fail_usage("--config is given; the configurations of a comparison are A and B.", see);
    if (compare_.model.empty()) fail_usage("'belay compare' wants a model: --model FILE.", see);
    if (compare_.a.empty()) compare_.a = "default";
    if (!compare_.peer.empty()) {
      if (!compare_.b.empty() || !compare_.sets_b.empty())
        fail_usage("B and --peer are both given.", "Compare A with one of them.");
    } else {
      if (!compare_.peer_lib.empty()) fail_usage("--peer-lib is given without --peer.", see);
      if (compare_.b.empty() && compare_.sets_a.empty() && compare_.sets_b.empty())
        fail_usage(
            "'belay compare' wants something to compare '" + compare_.a + "' with: B, --set-b or --peer.",
            see);
      if (compare_.b.empty()) compare_.b = compare_.a;
    }
    return compare_;
  }

  void add_inspect() {
    App* app = verb(&app_, "inspect", "Show what a model is and how it would run",
                    "  belay inspect model.onnx\n"
                    "  belay inspect model.onnx --kernels\n"
                    "  belay inspect model.onnx --text | less");
    app->add_option("model", inspect_.model, "The model's file")->type_name("MODEL");
    app->add_option("--shape", inspect_.inputs.shapes,
                    "The shape of an input, NAME=1x3x224x224, or the size of a named dimension, N=4: what "
                    "runs may depend on it (repeatable)")
        ->type_name("NAME=DIMS")
        ->allow_extra_args(false);
    app->add_flag("--text", inspect_.text,
                  "The frozen graph as text, as the format plugin gives it; nothing is prepared");
    app->add_flag("--kernels", inspect_.all,
                  "Every kernel in the order of the run, with its implementation and why");
    add_common(app, inspect_.common);
    does(app, [this] {
      required(inspect_.model, "model", "inspect");
      if (inspect_.text && (inspect_.all || !inspect_.inputs.shapes.empty()))
        fail_usage("--text goes with neither --kernels nor --shape: it shows the graph alone.",
                   "'belay inspect --help' shows how it is used.");
      return cli::inspect(inspect_, output_);
    });
  }

  void add_devices() {
    App* app = verb(&app_, "devices", "List the devices", "  belay devices\n  belay devices --json");
    add_common(app, common_);
    does(app, [this] { return devices(common_, output_); });
  }

  App* group(const std::string& name, const std::string& what, const std::string& examples) {
    App* app = verb(&app_, name, what, examples);
    app->require_subcommand(0, 1);
    return app;
  }

  void add_plugins() {
    App* plugins = group("plugins", "List, explain and begin plugins",
                         "  belay plugins list\n  belay plugins info cpu\n  belay plugins explain driver\n"
                         "  belay plugins new driver mine");
    App* list = verb(plugins, "list", "The plugins found, without loading any",
                     "  belay plugins list --plugin-dir build/plugins");
    add_common(list, common_, Uses::kConfiguration);
    does(list, [this] { return plugins_list(common_, output_); });
    App* info = verb(plugins, "info", "One plugin with its manifest", "  belay plugins info cpu");
    info->add_option("id", word_, "The plugin's id")->type_name("ID");
    add_common(info, common_, Uses::kConfiguration);
    does(info,
         [this] { return plugins_info(common_, required(word_, "plugin's id", "plugins info"), output_); });
    App* probe = verb(plugins, "probe", "Load, open, start and end one plugin by itself", "  belay plugins probe pool");
    probe->add_option("id", word_, "The plugin's id")->type_name("ID");
    add_common(probe, common_, Uses::kConfiguration);
    does(probe,
         [this] { return plugins_probe(common_, required(word_, "plugin's id", "plugins probe"), output_); });
    App* release = verb(plugins, "release", "Let a plugin that ended a process be loaded again",
                        "  belay plugins release ascend");
    release->add_option("id", word_, "The plugin's id")->type_name("ID");
    add_common(release, common_, Uses::kConfiguration);
    does(release, [this] {
      return plugins_release(common_, required(word_, "plugin's id", "plugins release"), output_);
    });
    App* why = verb(plugins, "explain", "Why a component was chosen: all candidates with score and reason",
                    "  belay plugins explain driver\n  belay plugins explain belay.engine/1");
    why->add_option("kind", word_,
                    "driver, memory-policy, model-format, kernel-provider, engine, diagnostics or layer")
        ->type_name("KIND");
    add_common(why, common_);
    does(why, [this] {
      return plugins_explain(common_, required(word_, "kind of plugin", "plugins explain"), output_);
    });
    App* fresh = verb(plugins, "new", "Write a plugin to begin with: a project with sources, manifest, tests and README",
                      "  belay plugins new driver mine\n"
                      "  belay plugins new memory-policy best-fit --dir ~/plugins\n"
                      "  cmake -S mine -B mine/build -DCMAKE_PREFIX_PATH=<where Belay is installed>\n"
                      "  cmake --build mine/build && ctest --test-dir mine/build");
    fresh->add_option("kind", new_plugin_.kind,
                      "driver, memory-policy, model-format, kernel-provider, engine, diagnostics or layer")
        ->type_name("KIND");
    fresh->add_option("id", new_plugin_.id, "The plugin's id: a small letter, then small letters, digits, '.', '_', '-'")
        ->type_name("ID");
    fresh->add_option("--dir", new_plugin_.dir, "Where the project's folder ID is made (the current folder)")
        ->type_name("DIR")
        ->group("Results");
    add_common(fresh, common_, Uses::kNothing);
    does(fresh, [this] {
      required(new_plugin_.kind, "kind of plugin", "plugins new");
      required(new_plugin_.id, "plugin's id", "plugins new");
      return plugins_new(new_plugin_, output_);
    });
  }

  void add_memory() {
    App* memory = group("memory", "Plan memory, replay allocations",
                        "  belay memory plan problem.csv --svg plan.svg\n  belay memory replay trace.csv");
    App* plan = verb(memory, "plan", "Place buffers with known lifetimes in as little memory as possible",
                     "  belay memory plan problem.csv\n"
                     "  belay memory plan problem.csv.gz --capacity 1048576 --budget-ms 200 --json\n"
                     "  belay memory plan problem.csv --svg plan.svg");
    plan->add_option("file", memory_plan_.file,
                     "CSV, also compressed by gzip, with the columns id,lower,upper,size: a buffer lives from step "
                     "lower to just before step upper; a column alignment may follow")
        ->type_name("FILE");
    plan->add_option("--capacity", memory_plan_.capacity,
                     "A plan that needs no more is good enough, such as 64MiB; exit code 1 where none is found")
        ->type_name("SIZE")
        ->transform(size());
    plan->add_option("--budget-ms", memory_plan_.budget_ms, "Time to look for a better plan (1000); 0: the quick answer")
        ->type_name("MS")
        ->check(number_from(0));
    plan->add_option("--seed", memory_plan_.seed, "Of the search (1)")->type_name("N")->check(count_to(UINT64_MAX, 0));
    plan->add_option("--svg", memory_plan_.svg, "Draws the plan: time to the right, offsets up")->type_name("FILE");
    add_common(plan, memory_plan_.common);
    does(plan, [this] {
      required(memory_plan_.file, "file", "memory plan");
      return memory_plan(memory_plan_, output_);
    });
    MemoryReplayOptions& replay = memory_replay_;
    App* app = verb(memory, "replay", "Replay a program's allocations with a memory policy",
                    "  belay memory replay trace.csv.gz\n"
                    "  belay memory replay trace.csv --min-capacity --json\n"
                    "  belay memory replay trace.csv --lag never --set plugin.pool.config.cross_stream=grow\n"
                    "  belay memory replay trace.csv --snapshot full.json --svg full.svg");
    app->add_option("file", replay.file,
                    "CSV, also compressed by gzip, with the columns op,id,size,stream in the program's order: a "
                    "allocates, u uses on another stream too, f frees; a column alignment may follow")
        ->type_name("FILE");
    app->add_option("--policy", replay.policy, "The memory policy (the first of [memory] policies that places)")->type_name("NAME");
    CLI::Option* capacity = app->add_option("--capacity", replay.capacity,
                                            "One reservation of so much and no more, such as 64MiB; exit code 1 where it does not do "
                                            "(as much as the policy asks for)")
                                ->type_name("SIZE")
                                ->transform(size());
    app->add_flag("--min-capacity", replay.min_capacity, "Look for the smallest single reservation that does")
        ->excludes(capacity);
    app->add_option("--lag", replay.lag,
                    "Rows after which an event of a stream is reached (0: at once); never: only when it is waited for")
        ->type_name("N");
    app->add_option("--threads", replay.threads, "Threads that do the trace at a time, all with one policy (1)")
        ->type_name("N")
        ->check(count_to(64));
    app->add_option("--runs", replay.runs, "The time is the median of so many (5)")->type_name("N")->check(count_to(1000));
    app->add_option("--snapshot", replay.snapshot, "Writes what is where when most is live, as JSON")->type_name("FILE");
    app->add_option("--svg", replay.svg, "Draws the same")->type_name("FILE");
    add_common(app, replay.common);
    does(app, [this] {
      required(memory_replay_.file, "file", "memory replay");
      return memory_replay(memory_replay_, output_);
    });
  }

  void add_config() {
    App* config = group("config", "Check and show configurations",
                        "  belay config check --config my.toml\n  belay config show --set engine.threads=2\n "
                        " belay config example > my.toml");
    App* check =
        verb(config, "check", "Check it without loading a plugin", "  belay config check --config my.toml");
    add_common(check, common_, Uses::kConfiguration);
    does(check, [this] { return config_check(common_, output_); });
    App* show = verb(config, "show", "The effective configuration, with the origin of each value",
                     "  belay config show --config my.toml --set engine.threads=2");
    add_common(show, common_, Uses::kConfiguration);
    does(show, [this] { return config_show(common_, output_); });
    App* example = verb(config, "example", "Every key with its default, as commented TOML",
                        "  belay config example > my.toml");
    add_common(example, common_, Uses::kConfiguration);
    does(example, [this] { return config_example(common_, output_); });
  }

  void add_explain() {
    App* app = verb(&app_, "explain", "Explain a status code: cause and remedy",
                    "  belay explain NOT_FOUND\n  belay explain 8\n  belay explain");
    app->add_option("code", word_, "Its name or number; without one all are listed")->type_name("CODE");
    add_common(app, common_, Uses::kNothing);
    does(app, [this] { return explain(common_, word_, output_); });
  }

  void add_doctor() {
    App* app = verb(&app_, "doctor", "Check that everything works",
                    "  belay doctor\n  belay doctor --config my.toml");
    add_common(app, common_);
    does(app, [this] { return doctor(common_, output_); });
  }

  void add_version() {
    App* app = verb(&app_, "version", "Print the version", "  belay version --json");
    add_common(app, common_, Uses::kNothing);
    does(app, [this] { return version(common_, output_); });
  }

  void add_conformance() {
    App* conformance = group("conformance", "Run suites of test cases",
                             "  belay conformance onnx /usr/share/libonnx-testdata/data");
    App* onnx = verb(conformance, "onnx", "Run the ONNX backend cases below a folder",
                     "  belay conformance onnx /usr/share/libonnx-testdata/data\n"
                     "  belay conformance onnx /usr/share/libonnx-testdata/data/node --filter conv --jobs 2\n"
                     "  belay conformance onnx my_case --json");
    onnx->add_option("dir", conformance_.folder,
                     "A folder of cases at any depth, or one case (model.onnx, test_data_set_0)")
        ->type_name("DIR");
    onnx->add_option("--filter", conformance_.filter,
                     "Only cases whose name holds this, or fits a pattern such as 'node/test_conv*'")
        ->type_name("WORD");
    onnx->add_option("-j,--jobs", conformance_.jobs, "Child processes at once (one per processor)")
        ->type_name("N")
        ->check(count_to(256));
    onnx->add_option("--timeout", conformance_.timeout, "Seconds for one case (60)")
        ->type_name("S")
        ->check(number_from(1e-9));
    add_tolerances(onnx);
    add_common(onnx, conformance_.common);
    does(onnx, [this] {
      required(conformance_.folder, "folder", "conformance onnx");
      return conformance_onnx(conformance_, output_);
    });
    App* worker = verb(conformance, "worker", "A child of 'conformance onnx'", "");
    worker->group("");  // not shown
    add_tolerances(worker);
    add_common(worker, conformance_.common);
    does(worker, [this] { return conformance_worker(conformance_, kResultFd); });
  }

  void add_tolerances(App* app) {
    app->add_option("--rtol", conformance_.rtol, "Relative tolerance (1e-3)")
        ->type_name("X")
        ->check(number_from(0));
    app->add_option("--atol", conformance_.atol, "Absolute tolerance (1e-7)")
        ->type_name("X")
        ->check(number_from(0));
  }

  void add_completion() {
    App* completion =
        group("completion", "Print a completion script for a shell", "  source <(belay completion bash)");
    App* bash = verb(completion, "bash", "For bash", "  source <(belay completion bash)");
    does(bash, [this] {
      output_.print(bash_completion(app_));
      return Exit::kOk;
    });
  }

  void add_help() {
    App* app = verb(&app_, "help", "The same as --help, of the program or a verb",
                    "  belay help\n  belay help run\n  belay help plugins list");
    app->add_option("verb", help_words_, "The verb; without one the program")->type_name("VERB");
    does(app, [this] {
      const App* at = &app_;
      for (const std::string& word : help_words_) {
        const auto found = at->get_subcommands(
            [&](const App* sub) { return sub->get_name() == word && !sub->get_group().empty(); });
        if (found.empty()) refuse_verb(at, word);
        at = found.front();
      }
      output_.print(help_text(at));
      return Exit::kOk;
    });
  }

  Output& output_;
  CLI::App app_{"Belay runs models on any device that has a plugin."};
  bool version_ = false;
  std::function<Exit()> action_;
  RunOptions run_;
  BenchOptions bench_;
  CompareOptions compare_;
  InspectOptions inspect_;
  MemoryPlanOptions memory_plan_;
  MemoryReplayOptions memory_replay_;
  NewPluginOptions new_plugin_;
  ConformanceOptions conformance_;
  Common common_;     // of the verbs that have no options of their own
  std::string word_;  // the one word of a verb
  std::vector<std::string> help_words_;
};

}  // namespace

Exit main_with(int argc, char** argv, Output& output) { return CommandLine(output).run(argc, argv); }

}  // namespace belay::cli
