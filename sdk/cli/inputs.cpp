#include "inputs.hpp"
#include "fill.hpp"
#include "text.hpp"

#include <belay/graph/dtype.hpp>

#include <algorithm>
#include <filesystem>
#include <map>

namespace belay::cli {
namespace fs = std::filesystem;
namespace {

using Dims = std::vector<int64_t>;

std::vector<std::string> names_of(const std::vector<IoInfo>& infos) {
  std::vector<std::string> names;
  for (const IoInfo& info : infos) names.push_back(info.name);
  return names;
}

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string inputs_text(const std::vector<IoInfo>& inputs) {
  std::string out = "the model's inputs are ";
  for (size_t i = 0; i < inputs.size(); ++i)
    (out += i ? ", " : "") += "'" + printable(inputs[i].name) + "' " + io_text(inputs[i]);
  return inputs.empty() ? "the model has no inputs" : out;
}

struct Assignment {
  std::string name, value;
};

// NAME=VALUE. A name may hold '=' itself, so one of the model's names that fits wins over the first '='.
Assignment split(const std::string& text, const std::vector<IoInfo>& inputs, const std::string& option) {
  const IoInfo* best = nullptr;
  for (const IoInfo& input : inputs)
    if (text.starts_with(input.name + "=") && (!best || input.name.size() > best->name.size())) best = &input;
  if (best) return {best->name, text.substr(best->name.size() + 1)};
  const size_t at = text.find('=');
  if (at == std::string::npos)
    fail_usage(option + " '" + text + "': want NAME=..., and " + inputs_text(inputs) + ".");
  return {text.substr(0, at), text.substr(at + 1)};
}

size_t find_input(const std::string& name, const std::vector<IoInfo>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].name == name) return i;
  std::string near = did_you_mean(name, names_of(inputs));
  fail_input("There is no input '" + name + "'; " + inputs_text(inputs) + ".", std::move(near));
}

struct FileSpec {
  std::string path;
  std::optional<uint32_t> dtype;
  std::optional<Dims> dims;
};

// FILE or FILE:dtype:dims. A file whose own name ends so wins.
FileSpec parse_file(const std::string& text) {
  FileSpec spec{text, {}, {}};
  const size_t last = text.rfind(':');
  if (last == std::string::npos || last == 0 || is_there(text)) return spec;
  const size_t before = text.rfind(':', last - 1);
  if (before == std::string::npos) return spec;
  const auto dtype = parse_dtype(text.substr(before + 1, last - before - 1));
  const auto dims = parse_dims(text.substr(last + 1));
  if (!dtype) {
    std::vector<std::string> names;
    for (const DtypeInfo& info : kDtypes) names.emplace_back(info.name);
    const std::string word = text.substr(before + 1, last - before - 1);
    fail_usage("'" + word + "' in '" + text + "' is no element type.", did_you_mean(word, names));
  }
  if (!dims.ok()) fail_usage("'" + text + "': " + dims.status().message());
  return {text.substr(0, before), *dtype, *dims};
}

// What --shape says: dims of inputs, and sizes of symbols.
struct Shapes {
  std::map<size_t, Dims> dims;
  std::map<std::string, int64_t> symbols;
};

Shapes parse_shapes(const std::vector<std::string>& texts, const std::vector<IoInfo>& inputs) {
  Shapes shapes;
  std::vector<std::string> words = names_of(inputs);
  for (const IoInfo& input : inputs)
    for (const std::string& symbol : input.symbols)
      if (!symbol.empty() && std::find(words.begin(), words.end(), symbol) == words.end())
        words.push_back(symbol);
  for (const std::string& text : texts) {
    // A lone shape goes to the one input.
    const bool bare = text.find('=') == std::string::npos && inputs.size() == 1;
    const Assignment given = bare ? Assignment{inputs[0].name, text} : split(text, inputs, "--shape");
    auto dims = parse_dims(given.value);
    if (!dims.ok())
      fail_usage("--shape '" + text + "': " + dims.status().message(), "Write it as NAME=1x3x224x224.");
    const auto names = names_of(inputs);
    const auto at = std::find(names.begin(), names.end(), given.name);
    if (at != names.end()) {
      shapes.dims[size_t(at - names.begin())] = *dims;
    } else if (std::find(words.begin(), words.end(), given.name) != words.end() && dims->size() == 1) {
      shapes.symbols[given.name] = dims->front();
    } else {
      fail_input("--shape '" + text + "': there is no input or dimension '" + given.name + "'; " +
                     inputs_text(inputs) + ".",
                 did_you_mean(given.name, words));
    }
  }
  return shapes;
}

class Gatherer {
 public:
  Gatherer(const Model& model, const InputOptions& options, const Output& output)
      : inputs_(model.inputs()),
        options_(options),
        output_(output),
        shapes_(parse_shapes(options.shapes, model.inputs())) {}

  std::vector<Input> run() {
    if (!options_.test_data.empty()) read_test_data();
    for (const std::string& text : options_.files) read_file(text);
    // A list says how large what is open is; a lone number fills what others have said.
    for (const bool lists : {true, false})
      for (const std::string& text : options_.values)
        if ((text.find(',') != std::string::npos) == lists) read_value(text);
    fill_rest();
    std::vector<Input> out;
    for (auto& [index, input] : found_) out.push_back(std::move(input));
    return out;
  }

 private:
  void give(size_t index, HostDatum datum, std::string from, const char* option) {
    if (found_.contains(index) && *option)
      fail_usage("Input '" + inputs_[index].name + "' is given twice, by '" + found_[index].from +
                 "' and by " + option + (from == option ? "." : " '" + from + "'."));
    if (datum.kind == BELAY_TYPE_TENSOR) {
      for (size_t i = 0; i < datum.tensor.dims.size() && i < inputs_[index].symbols.size(); ++i)
        if (!inputs_[index].symbols[i].empty())
          shapes_.symbols.emplace(inputs_[index].symbols[i], datum.tensor.dims[i]);
    }
    found_[index] = Input{index, std::move(datum), std::move(from)};
  }

  void read_test_data() {
    const std::vector<std::string> files = numbered_files(options_.test_data, "input_");
    const std::vector<size_t> targets = inputs_for_files(inputs_, files.size());
    if (files.size() > inputs_.size())
      fail_input("'" + options_.test_data + "' holds " + plural(files.size(), "input") + ", but " +
                 inputs_text(inputs_) + ".");
    for (size_t i = 0; i < files.size(); ++i)
      give(targets[i], value_or_fail(read_pb(files[i], inputs_[targets[i]].kind), Stage::kModel), files[i],
           "");
  }

  void read_file(const std::string& text) {
    const bool bare = inputs_.size() == 1 && !text.starts_with(inputs_[0].name + "=") &&
                      (text.find('=') == std::string::npos || is_there(text));
    const Assignment given = bare ? Assignment{inputs_[0].name, text} : split(text, inputs_, "--input");
    const size_t index = find_input(given.name, inputs_);
    const IoInfo& info = inputs_[index];
    const FileSpec spec = parse_file(given.value);
    const fs::file_status there = look_at(spec.path);
    if (!fs::exists(there))
      throw Failure{Exit::kInput, "NOT_FOUND",
                    "There is no file '" + spec.path + "' for input '" + info.name + "'.",
                    did_you_mean_file(spec.path)};
    if (fs::is_directory(there))
      fail_input("'" + spec.path + "' for input '" + info.name + "' is a folder, want a file.");
    std::optional<Dims> dims = spec.dims;
    const bool raw = !spec.path.ends_with(".npy") && !spec.path.ends_with(".pb");
    if (raw && !dims && info.rank_known) {
      dims = known_dims(index);
      if (std::count(dims->begin(), dims->end(), -1) > 1)  // one of them follows from the size of the file
        fail_input("The shape of the raw file '" + spec.path + "' is not known: input '" + info.name +
                       "' is " + io_text(info) + ".",
                   "Say it with the file: --input " + info.name + "=" + spec.path + ":" +
                       std::string(dtype_name(spec.dtype.value_or(info.dtype))) + ":1x3x224x224");
    }
    HostDatum datum = value_or_fail(
        read_datum(spec.path, info.kind, spec.dtype.value_or(info.dtype), dims), Stage::kModel,
        raw ? "A raw file is its numbers, little-endian, without a header; others end in .npy or .pb." : "");
    if (datum.kind == BELAY_TYPE_TENSOR &&
        ((spec.dtype && *spec.dtype != datum.tensor.dtype) || (spec.dims && *spec.dims != datum.tensor.dims)))
      fail_input("'" + spec.path + "' holds " + std::string(dtype_name(datum.tensor.dtype)) +
                     dims_text(datum.tensor.dims) + ", not what '" + given.value + "' says.",
                 "Leave out the type and shape: .npy and .pb files know them.");
    check_fits(index, datum, spec.path);
    give(index, std::move(datum), spec.path, "--input");
  }

  void check_fits(size_t index, const HostDatum& datum, const std::string& from) const {
    const IoInfo& info = inputs_[index];
    if (info.kind != BELAY_TYPE_TENSOR || datum.kind != BELAY_TYPE_TENSOR) return;
    const HostTensor& tensor = datum.tensor;
    bool fits = tensor.dtype == info.dtype;
    if (info.rank_known) {
      fits = fits && tensor.dims.size() == info.dims.size();
      for (size_t i = 0; fits && i < info.dims.size(); ++i)
        fits = info.dims[i] < 0 || info.dims[i] == tensor.dims[i];
    }
    if (!fits)
      fail_input("Input '" + info.name + "' is " + io_text(info) + ", but " + from + " holds " +
                     std::string(dtype_name(tensor.dtype)) + " " + dims_text(tensor.dims) + ".",
                 "Convert the file, or give another.");
  }

  void read_value(const std::string& text) {
    const Assignment given = split(text, inputs_, "--value");
    const size_t index = find_input(given.name, inputs_);
    const IoInfo& info = inputs_[index];
    if (info.kind != BELAY_TYPE_TENSOR)
      fail_input("Input '" + info.name + "' is a " + io_text(info) + ": --value gives tensors only.");
    std::vector<std::string> words(1);
    for (const char c : given.value) {
      if (c == ',')
        words.emplace_back();
      else
        words.back() += c;
    }
    Dims dims = known_dims(index);
    const auto free_dim = std::find(dims.begin(), dims.end(), -1);
    if (!info.rank_known && !shapes_.dims.contains(index)) {
      dims = words.size() == 1 ? Dims{} : Dims{int64_t(words.size())};
    } else if (free_dim != dims.end()) {
      int64_t known = 1;
      for (const int64_t dim : dims) known *= dim > 0 ? dim : 1;
      const bool guessed = words.size() > 1 && std::count(dims.begin(), dims.end(), -1) > 1;
      *free_dim = std::max<int64_t>(1, int64_t(words.size()) / known);
      std::replace(dims.begin(), dims.end(), int64_t(-1), int64_t(1));
      if (guessed) note_guess(info, dims);
    }
    HostTensor tensor = value_or_fail(HostTensor::make(info.dtype, dims), Stage::kModel);
    // One value stands for all elements.
    if (words.size() != tensor.count() && words.size() != 1)
      fail_input("--value '" + text + "' gives " + plural(words.size(), "number") + ", but " +
                 dims_text(dims) + " of input '" + info.name + "' holds " + std::to_string(tensor.count()) +
                 ".");
    for (uint64_t i = 0; i < tensor.count(); ++i) {
      const Status status = set_element(tensor, i, words.size() == 1 ? words[0] : words[i]);
      if (!status.ok())
        fail(Stage::kModel, {status.code(), "--value '" + text + "': " + status.message()},
             "Input '" + info.name + "' is " + io_text(info) + ".");
    }
    give(index, std::move(tensor), "--value", "--value");
  }

  // The dims of an input with what --shape and other inputs tell put in; -1: not known.
  Dims known_dims(size_t index) const {
    const IoInfo& info = inputs_[index];
    if (const auto at = shapes_.dims.find(index); at != shapes_.dims.end()) {
      const Dims& dims = at->second;
      bool fits = !info.rank_known || dims.size() == info.dims.size();
      for (size_t i = 0; fits && info.rank_known && i < dims.size(); ++i)
        fits = info.dims[i] < 0 || info.dims[i] == dims[i];
      if (!fits)
        fail_input("--shape " + dims_text(dims) + " does not fit input '" + info.name + "' " + io_text(info) +
                   ".");
      return dims;
    }
    Dims dims = info.dims;
    for (size_t i = 0; i < dims.size(); ++i)
      if (const auto at = shapes_.symbols.find(info.symbols[i]); dims[i] < 0 && at != shapes_.symbols.end())
        dims[i] = at->second;
    return dims;
  }

  void fill_rest() {
    std::string missing, hint;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const IoInfo& info = inputs_[i];
      if (found_.contains(i) || info.optional) continue;
      if (!options_.random && !options_.zeros) {
        (missing += missing.empty() ? "" : ", ") += "'" + info.name + "' " + io_text(info);
        continue;
      }
      if (info.kind != BELAY_TYPE_TENSOR)
        fail_input("Input '" + info.name + "' is a " + io_text(info) + ", which cannot be made up.",
                   "Give it with --input " + info.name + "=FILE.pb.");
      Dims dims = known_dims(i);
      if (!info.rank_known && !shapes_.dims.contains(i))
        fail_input("The shape of input '" + info.name + "' " + io_text(info) +
                       " is not fixed, so it cannot be made up.",
                   "Say it with --shape " + info.name + "=" + example_shape(info));
      if (std::count(dims.begin(), dims.end(), -1) != 0) {
        std::replace(dims.begin(), dims.end(), int64_t(-1), int64_t(1));
        note_guess(info, dims);
      }
      HostTensor tensor = value_or_fail(HostTensor::make(info.dtype, dims), Stage::kModel);
      if (options_.random) fill_random(tensor, *options_.random + i);
      give(i, std::move(tensor),
           options_.random ? "random, seed " + std::to_string(*options_.random) : "zeros", "");
    }
    if (!missing.empty())
      fail_input("The model needs " + missing + ".",
                 "Give each with --input NAME=FILE or --value NAME=1,2,3; or make them up with --random or "
                 "--zeros.");
  }

  void note_guess(const IoInfo& info, const Dims& dims) const {
    std::string shape;
    for (const int64_t dim : dims) (shape += shape.empty() ? "" : "x") += std::to_string(dim);
    output_.note("note: input '" + printable(info.name) + "' " + io_text(info) + " is taken as " +
                 dims_text(dims) + "; choose with --shape " + printable(info.name) + "=" + shape);
  }

  static std::string example_shape(const IoInfo& info) {
    std::string out;
    for (const int64_t dim : info.dims) (out += out.empty() ? "" : "x") += std::to_string(dim < 0 ? 1 : dim);
    return info.rank_known ? out : "1x3x224x224";
  }

  const std::vector<IoInfo>& inputs_;
  const InputOptions& options_;
  const Output& output_;
  Shapes shapes_;
  std::map<size_t, Input> found_;
};

}  // namespace

std::vector<std::string> numbered_files(const std::string& folder, const std::string& prefix) {
  need_folder(folder);
  std::vector<std::string> files;
  for (;;) {
    const std::string path = (fs::path(folder) / (prefix + std::to_string(files.size()) + ".pb")).string();
    if (!fs::exists(look_at(path))) return files;
    files.push_back(path);
  }
}

std::vector<size_t> inputs_for_files(const std::vector<IoInfo>& inputs, size_t count) {
  std::vector<size_t> all, required;
  for (size_t i = 0; i < inputs.size(); ++i) {
    all.push_back(i);
    if (!inputs[i].optional) required.push_back(i);
  }
  std::vector<size_t>& chosen = required.size() == count ? required : all;
  chosen.resize(std::min(count, chosen.size()));
  return chosen;
}

std::vector<Input> gather_inputs(const Model& model, const InputOptions& options, const Output& output) {
  return Gatherer(model, options, output).run();
}

}  // namespace belay::cli
