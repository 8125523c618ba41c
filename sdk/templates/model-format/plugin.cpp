// The plugin @ID@: a model format of its own, lines of text as in example.txt, read into a frozen graph.
#include <belay/abi/model_format.h>
#include <belay/graph/builder.hpp>
#include <belay/graph/dtype.hpp>
#include <belay/plugin.hpp>

#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using belay::Code;
using belay::Result;
using belay::Status;
using belay::graph::Builder;
using belay::graph::Dim;

constexpr std::string_view kFirstLine = "@ID@ 1";  // the name and the version of the format

struct Operator {  // of ONNX's default domain
  std::string_view name;
  uint32_t version;  // of its newest definition
  size_t inputs;
};
constexpr Operator kOperators[] = {{"Add", 14, 2},     {"Sub", 14, 2},    {"Mul", 14, 2},  {"Div", 14, 2},
                                   {"MatMul", 13, 2},  {"Neg", 13, 1},    {"Relu", 14, 1}, {"Tanh", 13, 1},
                                   {"Sigmoid", 13, 1}, {"Softmax", 13, 1}};

std::string quote(std::string_view text) { return "'" + std::string(text) + "'"; }

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos || line[begin] == '#') return words;
    line.remove_prefix(begin);
    words.push_back(line.substr(0, line.find_first_of(" \t\r")));
    line.remove_prefix(words.back().size());
  }
}

class Reader {
 public:
  // The frozen graph. Every failure names its line.
  Result<std::string> read(std::string_view text) {
    if (text.substr(0, text.find('\n')) != kFirstLine &&
        text.substr(0, text.find('\n')) != std::string(kFirstLine) + "\r")
      return Status(Code::kUnimplemented,
                    "Line 1 is " + quote(text.substr(0, std::min(text.find('\n'), size_t{60}))) + ", want " +
                        quote(kFirstLine) + ": this reader knows version 1 alone.");
    uint64_t number = 0;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::vector<std::string_view> words = words_of(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      if (++number == 1 || words.empty()) continue;
      BELAY_TRY(statement(words).while_doing("reading line " + std::to_string(number)));
    }
    if (outputs_ == 0)
      return Status(Code::kInvalidArgument, "The model has no output; want a line 'output NAME'.");
    return graph_.freeze();
  }

 private:
  Status statement(const std::vector<std::string_view>& words) {
    if (words[0] == "input" && words.size() == 4) return input(words);
    if (words[0] == "constant" && words.size() >= 5 && words[4] == "=") return constant(words);
    if (words[0] == "node" && words.size() >= 4 && words[2] == "=") return node(words);
    if (words[0] == "output" && words.size() == 2) return output(words[1]);
    return {Code::kDataLoss,
            quote(words[0]) + " with " + std::to_string(words.size() - 1) +
                " words after it is no line of this format; want 'input NAME TYPE DIMS', 'constant NAME "
                "TYPE DIMS = NUMBERS', 'node NAME = OPERATOR NAMES' or 'output NAME'."};
  }

  Status input(const std::vector<std::string_view>& words) {
    BELAY_TRY(is_new(words[1]));
    BELAY_TRY(is_float32(words[2]));
    BELAY_ASSIGN(const std::vector<Dim> dims, dims_of(words[3], true));
    const uint32_t value = graph_.add_value(0, words[1], graph_.tensor_type(BELAY_DT_FLOAT32, dims));
    graph_.add_input(0, value);
    values_.emplace(words[1], value);
    return {};
  }

  Status constant(const std::vector<std::string_view>& words) {
    BELAY_TRY(is_new(words[1]));
    BELAY_TRY(is_float32(words[2]));
    BELAY_ASSIGN(const std::vector<Dim> open, dims_of(words[3], false));
    std::vector<int64_t> dims;
    for (const Dim& dim : open) dims.push_back(dim.value);
    std::vector<float> numbers;
    for (size_t i = 5; i < words.size(); ++i) {
      float number = 0;
      const auto [end, error] = std::from_chars(words[i].data(), words[i].data() + words[i].size(), number);
      if (error != std::errc() || end != words[i].data() + words[i].size())
        return {Code::kDataLoss, quote(words[i]) + " is no number of float32."};
      numbers.push_back(number);
    }
    const auto count = belay::element_count(dims);
    if (!count || *count != numbers.size())
      return {Code::kInvalidArgument, "Constant " + quote(words[1]) + " of " + std::string(words[3]) +
                                          " has " + std::to_string(numbers.size()) + " numbers, want " +
                                          (count ? std::to_string(*count) : "fewer dims") + "."};
    const uint32_t bytes = graph_.add_constant(words[1], BELAY_DT_FLOAT32, dims,
                                               {numbers.data(), numbers.size() * sizeof(float)});
    values_.emplace(words[1],
                    graph_.add_value(0, words[1], graph_.tensor_type(BELAY_DT_FLOAT32, dims), bytes));
    return {};
  }

  Status node(const std::vector<std::string_view>& words) {
    BELAY_TRY(is_new(words[1]));
    const Operator* op = nullptr;
    std::string known;
    for (const Operator& one : kOperators) {
      if (one.name == words[3]) op = &one;
      known += std::string(known.empty() ? "" : ", ") + std::string(one.name);
    }
    if (!op)
      return {Code::kUnimplemented,
              "Operator " + quote(words[3]) + " is not known; there are " + known + "."};
    std::vector<uint32_t> inputs;
    for (size_t i = 4; i < words.size(); ++i) {
      BELAY_ASSIGN(const uint32_t value, find(words[i]));
      inputs.push_back(value);
    }
    if (inputs.size() != op->inputs)
      return {Code::kInvalidArgument, "Node " + quote(words[1]) + ": " + std::string(op->name) + " takes " +
                                          std::to_string(op->inputs) + " inputs, not " +
                                          std::to_string(inputs.size()) + "."};
    // The type of the result is left open: whoever runs the graph finds it.
    const uint32_t result = graph_.add_value(0, words[1], BELAY_NONE);
    graph_.add_node(0, "", op->name, op->version, words[1], inputs, std::vector{result});
    values_.emplace(words[1], result);
    return {};
  }

  Status output(std::string_view name) {
    BELAY_ASSIGN(const uint32_t value, find(name));
    graph_.add_output(0, value);
    ++outputs_;
    return {};
  }

  Result<uint32_t> find(std::string_view name) const {
    if (const auto at = values_.find(name); at != values_.end()) return at->second;
    return Status(Code::kInvalidArgument, "There is no value " + quote(name) + " above this line.");
  }
  Status is_new(std::string_view name) const {
    if (values_.find(name) == values_.end()) return {};
    return {Code::kInvalidArgument, "The name " + quote(name) + " is taken by a line above."};
  }
  static Status is_float32(std::string_view type) {
    if (type == "float32") return {};
    return {Code::kUnimplemented, "Type " + quote(type) + " is not known, want float32."};
  }
  // "2x3", or "Nx3" where a dim may have a name.
  static Result<std::vector<Dim>> dims_of(std::string_view text, bool names) {
    std::vector<Dim> dims;
    for (std::string_view rest = text;;) {
      const std::string_view one = rest.substr(0, rest.find('x'));
      int64_t value = -1;
      const auto [end, error] = std::from_chars(one.data(), one.data() + one.size(), value);
      const bool number = error == std::errc() && end == one.data() + one.size() && value >= 0;
      const bool name = !one.empty() && one[0] >= 'A' && one[0] <= 'Z';
      if (!number && !(name && names))
        return Status(Code::kDataLoss, quote(one) + " in the dims " + quote(text) +
                                           " is no number of 0 or more" +
                                           (names ? " and no name (a capital)." : "."));
      dims.push_back(number ? Dim{value, ""} : Dim{-1, std::string(one)});
      if (one.size() == rest.size()) return dims;
      rest.remove_prefix(one.size() + 1);
    }
  }

  Builder graph_;
  std::map<std::string, uint32_t, std::less<>> values_;  // by name
  uint64_t outputs_ = 0;
};

struct Format {
  const belay_host& host;
};

uint32_t sniff(belay_obj*, const belay_sniff_req* req) noexcept {
  const std::string_view head(static_cast<const char*>(req->head.ptr), req->head.len);
  return head.starts_with("@ID@ ") ? 1000 : 0;  // of any version: `parse` says which there are
}

belay_status parse(belay_obj* object, belay_model_reader* reader, const belay_value*,
                   const belay_model_sink* sink) noexcept {
  const belay_host& host = belay::self<Format>(object).host;
  belay_status passed_on = BELAY_OK;  // of the reader or the sink, which are the host's
  const belay_status own = belay::guard(host, [&]() -> Status {
    belay_span bytes{};
    passed_on = reader->map(reader, 0, &bytes);
    if (passed_on != BELAY_OK) return {};
    BELAY_ASSIGN(const std::string image, Reader().read({static_cast<const char*>(bytes.ptr), bytes.len}));
    passed_on = sink->graph(sink->user, {image.data(), image.size()});
    return {};
  });
  return own != BELAY_OK ? own : passed_on;
}

void destroy(belay_obj* object) noexcept { delete &belay::self<Format>(object); }

constexpr belay_model_format_vt kTable{
    .hdr = {sizeof(belay_model_format_vt), 0, nullptr}, .sniff = sniff, .parse = parse, .destroy = destroy};

struct Plugin {
  const belay_host& host;
  static Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::unique_ptr<Plugin>(new Plugin{host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value*, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    belay::give(out, std::unique_ptr<Format>(new Format{host}), kTable);
    return {};
  });
}

constexpr belay_component kComponent{.hdr = {sizeof(belay_component), 0, nullptr},
                                     .kind = belay::literal(BELAY_MODEL_FORMAT_KIND),
                                     .name = belay::literal("@ID@"),
                                     .score = nullptr,
                                     .create = create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "@ID@", "0.1.0", kComponents)
