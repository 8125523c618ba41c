// Operators that read or make text. Kernels only move it (see plan::moves_strings).
#include "schedule/session.hpp"
#include "schedule/text.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include <re2/re2.h>

namespace belay::schedule {
namespace {

std::string_view view(const belay_str& text) { return {text.ptr, text.len}; }

std::span<const belay_str> texts_of(const Value& value) {
  return {static_cast<const belay_str*>(value.host), value.bytes ? value.count() : 0};
}

Value make_text(std::vector<std::string> texts, ir::Dims dims) {
  struct Owner {
    std::vector<std::string> texts;
    std::vector<belay_str> views;
  };
  auto owner = std::make_shared<Owner>();
  owner->texts = std::move(texts);
  for (const std::string& text : owner->texts) owner->views.push_back(to_str(text));
  Value out;
  out.kind = BELAY_TYPE_TENSOR;
  out.dtype = BELAY_DT_STRING;
  out.dims = std::move(dims);
  out.host = owner->views.data();
  out.bytes = owner->views.size() * sizeof(belay_str);
  out.keeper = std::move(owner);
  return out;
}

Status bad(std::string what) { return {Code::kInvalidArgument, std::move(what)}; }

Status want_text(const Value& value, const char* what) {
  if (value.is_tensor() && value.dtype == BELAY_DT_STRING) return {};
  return bad(std::string("The ") + what + " is " + ir::to_string(value.type()) + ", want strings.");
}

std::string element(size_t i, std::string_view text) {
  return "Element " + std::to_string(i) + ", '" + std::string(text.substr(0, 64)) + "',";
}

template <class T>
T& at(const Value& value, uint64_t i) {
  return static_cast<T*>(value.host)[i];
}

// Calls f(element of the result, of a, of b) for tensors that numpy's rules stretch to one shape, which it
// gives after `prepare(dims)`.
template <class Prepare, class F>
Status for_each_pair(const Value& a, const Value& b, Prepare prepare, F f) {
  const size_t rank = std::max(a.dims.size(), b.dims.size());
  ir::Dims dims(rank, 1);
  std::vector<uint64_t> steps[2] = {std::vector<uint64_t>(rank, 0), std::vector<uint64_t>(rank, 0)};
  for (size_t side = 0; side < 2; ++side) {
    const ir::Dims& from = (side ? b : a).dims;
    uint64_t step = 1;
    for (size_t i = from.size(), at = rank; i-- > 0; step *= uint64_t(from[i])) {
      int64_t& dim = dims[--at];
      if (from[i] == 1) continue;
      if (dim != 1 && dim != from[i])
        return bad("Shapes " + ir::dims_to_string(a.dims) + " and " + ir::dims_to_string(b.dims) +
                   " do not broadcast.");
      dim = from[i];
      steps[side][at] = step;
    }
  }
  const auto count = element_count(dims);
  if (!count) return bad("Shape " + ir::dims_to_string(dims) + " overflows.");
  BELAY_TRY(prepare(dims));
  for (uint64_t i = 0; i < *count; ++i) {
    uint64_t rest = i, where[2] = {0, 0};
    for (size_t d = rank; d-- > 0; rest /= uint64_t(dims[d]))
      for (size_t side = 0; side < 2; ++side) where[side] += rest % uint64_t(dims[d]) * steps[side][d];
    f(i, where[0], where[1]);
  }
  return {};
}

// ---- Cast
// -----------------------------------------------------------------------------------------------------------

Result<std::string> text_of(const Value& from, uint64_t i) {
  switch (from.dtype) {
    case BELAY_DT_FLOAT32:
      return number_text(at<float>(from, i));
    case BELAY_DT_FLOAT64:
      return number_text(at<double>(from, i));
    case BELAY_DT_FLOAT16:
      return number_text(ir::half_to_float(at<uint16_t>(from, i)));
    case BELAY_DT_BFLOAT16:
      return number_text(ir::bfloat_to_float(at<uint16_t>(from, i)));
    case BELAY_DT_BOOL:
      return std::string(at<uint8_t>(from, i) ? "1" : "0");
    case BELAY_DT_INT8:
      return std::to_string(at<int8_t>(from, i));
    case BELAY_DT_INT16:
      return std::to_string(at<int16_t>(from, i));
    case BELAY_DT_INT32:
      return std::to_string(at<int32_t>(from, i));
    case BELAY_DT_INT64:
      return std::to_string(at<int64_t>(from, i));
    case BELAY_DT_UINT8:
      return std::to_string(at<uint8_t>(from, i));
    case BELAY_DT_UINT16:
      return std::to_string(at<uint16_t>(from, i));
    case BELAY_DT_UINT32:
      return std::to_string(at<uint32_t>(from, i));
    case BELAY_DT_UINT64:
      return std::to_string(at<uint64_t>(from, i));
    default:
      return Status(Code::kUnimplemented,
                    "There is no conversion from " + std::string(dtype_name(from.dtype)) + " to string.");
  }
}

// The nearest float, but of two neighbours around `value` the one with an odd last bit: rounded once more, it
// gives what `value` would give.
float to_odd(double value) {
  float out = float(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &out, sizeof bits);
  if (double(out) != value && std::isfinite(out) && !(bits & 1))
    bits += std::fabs(value) > std::fabs(double(out)) ? 1u : ~0u;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

// Writes what `text` says as element `i`; false: it is no number of the type.
bool write_number(const Value& to, uint64_t i, std::string_view text) {
  double real = 0;
  int64_t whole = 0;
  const auto fits = [&](auto low, auto high) {
    return parse_number(text, whole) && whole >= int64_t(low) && whole <= int64_t(high);
  };
  const auto store = [&](auto tag) {
    using T = decltype(tag);
    if (!fits(std::numeric_limits<T>::min(), std::numeric_limits<T>::max())) return false;
    at<T>(to, i) = T(whole);
    return true;
  };
  switch (to.dtype) {
    case BELAY_DT_FLOAT32:
      return parse_number(text, at<float>(to, i));
    case BELAY_DT_FLOAT64:
      return parse_number(text, at<double>(to, i));
    case BELAY_DT_FLOAT16:
      if (!parse_number(text, real)) return false;
      return at<uint16_t>(to, i) = ir::float_to_half(to_odd(real)), true;
    case BELAY_DT_BFLOAT16:
      if (!parse_number(text, real)) return false;
      return at<uint16_t>(to, i) = ir::float_to_bfloat(to_odd(real)), true;
    case BELAY_DT_BOOL:
      if (!parse_number(text, real)) return false;
      return at<uint8_t>(to, i) = real != 0, true;
    case BELAY_DT_INT8:
      return store(int8_t());
    case BELAY_DT_INT16:
      return store(int16_t());
    case BELAY_DT_INT32:
      return store(int32_t());
    case BELAY_DT_INT64:
      return store(int64_t());
    case BELAY_DT_UINT8:
      return store(uint8_t());
    case BELAY_DT_UINT16:
      return store(uint16_t());
    case BELAY_DT_UINT32:
      return store(uint32_t());
    default:
      return parse_number(text, at<uint64_t>(to, i));
  }
}

Result<Value> cast(Session& session, Value from, uint32_t to) {
  if (from.dtype == to) return from;
  BELAY_TRY(session.to_host(from));
  if (to == BELAY_DT_STRING) {
    std::vector<std::string> out(from.count());
    for (uint64_t i = 0; i < out.size(); ++i) {
      BELAY_ASSIGN(out[i], text_of(from, i));
    }
    return make_text(std::move(out), from.dims);
  }
  constexpr uint32_t kNumbers[] = {BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_FLOAT16, BELAY_DT_BFLOAT16,
                                   BELAY_DT_BOOL,    BELAY_DT_INT8,    BELAY_DT_INT16,   BELAY_DT_INT32,
                                   BELAY_DT_INT64,   BELAY_DT_UINT8,   BELAY_DT_UINT16,  BELAY_DT_UINT32,
                                   BELAY_DT_UINT64};
  if (std::find(std::begin(kNumbers), std::end(kNumbers), to) == std::end(kNumbers))
    return Status(Code::kUnimplemented,
                  "There is no conversion from string to " + std::string(dtype_name(to)) + ".");
  BELAY_ASSIGN(Value out, make_tensor(session.pool(), to, from.dims));
  const auto texts = texts_of(from);
  for (size_t i = 0; i < texts.size(); ++i)
    if (!write_number(out, i, view(texts[i])))
      return bad(element(i, view(texts[i])) + " is no number that " + std::string(dtype_name(to)) + " holds.");
  return out;
}

// ---- StringNormalizer
// -----------------------------------------------------------------------------------------------

Result<Value> normalize(const ir::Node& node, const Value& from) {
  BELAY_TRY(want_text(from, "input"));
  const bool flat = from.dims.size() == 1;
  if (!flat && (from.dims.size() != 2 || from.dims[0] != 1))
    return bad("The input is " + ir::to_string(from.type()) + ", want [C] or [1,C].");
  const std::string_view action = node.string_or("case_change_action", "NONE");
  if (action != "NONE" && action != "LOWER" && action != "UPPER")
    return bad("case_change_action is '" + std::string(action) + "', want LOWER, UPPER or NONE.");
  const bool exact = node.int_or("is_case_sensitive", 0) != 0;
  BELAY_ASSIGN(const CaseMap map, CaseMap::of(node.string_or("locale", "en_US")));
  std::vector<std::string> stop;
  if (const ir::Attribute* words = node.find("stopwords")) stop = words->strings;
  if (!exact)
    for (std::string& word : stop) {
      Result<std::string> lower = map.lower(word);
      if (!lower.ok()) return bad("Stop word '" + word + "': " + lower.status().message() + ".");
      word = std::move(lower).value();
    }
  std::sort(stop.begin(), stop.end());

  std::vector<std::string> out;
  const auto texts = texts_of(from);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto changed = [&](bool upper) -> Result<std::string> {
      Result<std::string> made = upper ? map.upper(view(texts[i])) : map.lower(view(texts[i]));
      if (made.ok()) return made;
      return bad(element(i, view(texts[i])) + " cannot be normalized: " + made.status().message() + ".");
    };
    std::string text(view(texts[i]));
    std::string key = text;
    if (!exact && !stop.empty()) {
      BELAY_ASSIGN(key, changed(false));
    }
    if (std::binary_search(stop.begin(), stop.end(), key)) continue;
    if (action != "NONE") {
      BELAY_ASSIGN(text, changed(action == "UPPER"));
    }
    out.push_back(std::move(text));
  }
  if (out.empty()) out.emplace_back();
  const int64_t count = int64_t(out.size());
  return make_text(std::move(out), flat ? ir::Dims{count} : ir::Dims{1, count});
}

// ---- Unique
// ---------------------------------------------------------------------------------------------------------

Status unique(const ir::Node& node, Session& session, const Value& from, std::vector<Value>& outputs) {
  const bool whole = !node.find("axis");
  const int64_t rank = int64_t(from.dims.size());
  int64_t axis = node.int_or("axis", 0);
  if (!whole && (axis < -rank || axis >= rank))
    return bad("Axis " + std::to_string(axis) + " is out of range for " + ir::to_string(from.type()) + ".");
  if (axis < 0) axis += rank;
  const auto texts = texts_of(from);
  // Slice i is the texts [o][i][k]; without an axis each text is one.
  uint64_t outer = 1, count = whole ? texts.size() : uint64_t(from.dims[size_t(axis)]), inner = 1;
  for (int64_t d = 0; d < rank && !whole; ++d)
    if (d != axis) (d < axis ? outer : inner) *= uint64_t(from.dims[size_t(d)]);
  const auto text = [&](uint64_t o, uint64_t i, uint64_t k) {
    return view(texts[size_t((o * count + i) * inner + k)]);
  };
  const auto compare = [&](uint64_t a, uint64_t b) {
    for (uint64_t o = 0; o < outer; ++o)
      for (uint64_t k = 0; k < inner; ++k)
        if (const int order = text(o, a, k).compare(text(o, b, k))) return order;
    return 0;
  };
  std::vector<uint64_t> order(count);
  std::iota(order.begin(), order.end(), uint64_t(0));
  std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) { return compare(a, b) < 0; });
  struct Group {
    uint64_t first;
    std::vector<uint64_t> members;
  };
  std::vector<Group> groups;
  for (const uint64_t i : order) {
    if (groups.empty() || compare(groups.back().first, i) != 0) groups.push_back({i, {}});
    groups.back().members.push_back(i);
  }
  if (node.int_or("sorted", 1) == 0)
    std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.first < b.first; });

  const int64_t found = int64_t(groups.size());
  std::vector<std::string> kept;
  for (uint64_t o = 0; o < outer; ++o)
    for (const Group& group : groups)
      for (uint64_t k = 0; k < inner; ++k) kept.emplace_back(text(o, group.first, k));
  ir::Dims dims = from.dims;
  if (whole)
    dims = {found};
  else
    dims[size_t(axis)] = found;
  outputs[0] = make_text(std::move(kept), std::move(dims));
  for (size_t which = 1; which < outputs.size(); ++which) {
    if (node.output(which) == BELAY_NONE) continue;
    BELAY_ASSIGN(outputs[which], make_tensor(session.pool(), BELAY_DT_INT64,
                                             {which == 2 ? int64_t(count) : found}));
    for (size_t g = 0; g < groups.size(); ++g) {
      if (which == 1) at<int64_t>(outputs[which], g) = int64_t(groups[g].first);
      if (which == 3) at<int64_t>(outputs[which], g) = int64_t(groups[g].members.size());
      for (const uint64_t member : groups[g].members)
        if (which == 2) at<int64_t>(outputs[which], member) = int64_t(g);
    }
  }
  return {};
}

// ---- the rest
// ---------------------------------------------------------------------------------------------------------

Status equal(Session& session, const Value& a, const Value& b, Value& out) {
  const auto x = texts_of(a), y = texts_of(b);
  return for_each_pair(
      a, b,
      [&](const ir::Dims& dims) -> Status {
        BELAY_ASSIGN(out, make_tensor(session.pool(), BELAY_DT_BOOL, dims));
        return {};
      },
      [&](uint64_t i, uint64_t p, uint64_t q) { at<uint8_t>(out, i) = view(x[p]) == view(y[q]); });
}

Status concat(const Value& a, const Value& b, Value& out) {
  const auto x = texts_of(a), y = texts_of(b);
  std::vector<std::string> joined;
  ir::Dims dims;
  BELAY_TRY(for_each_pair(
      a, b, [&](const ir::Dims& of) { return dims = of, Status(); },
      [&](uint64_t, uint64_t p, uint64_t q) {
        joined.emplace_back(view(x[p])).append(y[q].ptr, y[q].len);
      }));
  out = make_text(std::move(joined), std::move(dims));
  return {};
}

// The parts of each text along a new last axis, filled up with empty ones, and how many there are.
Status split_texts(const ir::Node& node, Session& session, const Value& from, std::vector<Value>& outputs) {
  const std::string_view delimiter = node.string_or("delimiter", "");
  const int64_t most = node.int_or("maxsplit", -1);
  std::vector<std::vector<std::string_view>> all;
  size_t longest = 0;
  for (const belay_str& text : texts_of(from)) {
    all.push_back(split_text(view(text), delimiter, most));
    longest = std::max(longest, all.back().size());
  }
  std::vector<std::string> parts(all.size() * longest);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = 0; k < all[i].size(); ++k) parts[i * longest + k] = all[i][k];
  ir::Dims dims = from.dims;
  dims.push_back(int64_t(longest));
  outputs[0] = make_text(std::move(parts), std::move(dims));
  if (node.output(1) == BELAY_NONE) return {};
  BELAY_ASSIGN(outputs[1], make_tensor(session.pool(), BELAY_DT_INT64, from.dims));
  for (size_t i = 0; i < all.size(); ++i) at<int64_t>(outputs[1], i) = int64_t(all[i].size());
  return {};
}

// Where texts are that are not empty.
Status non_zero(Session& session, const Value& from, Value& out) {
  const ir::Dims& dims = from.dims;
  const auto texts = texts_of(from);
  const int64_t count = std::count_if(texts.begin(), texts.end(), [](const belay_str& text) { return text.len != 0; });
  BELAY_ASSIGN(out, make_tensor(session.pool(), BELAY_DT_INT64, {int64_t(dims.size()), count}));
  uint64_t found = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].len) continue;
    uint64_t rest = i;
    for (size_t d = dims.size(); d-- > 0; rest /= uint64_t(dims[d]))
      at<int64_t>(out, d * uint64_t(count) + found) = int64_t(rest % uint64_t(dims[d]));
    ++found;
  }
  return {};
}

// The place of each text among `keys`; -1: it is none of them.
Status index(const ir::Node& node, Session& session, const Value& from, Value& out) {
  std::map<std::string_view, int64_t> places;
  if (const ir::Attribute* keys = node.find("keys"))
    for (size_t i = 0; i < keys->strings.size(); ++i) places.emplace(keys->strings[i], int64_t(i));
  BELAY_ASSIGN(out, make_tensor(session.pool(), BELAY_DT_INT64, from.dims));
  const auto texts = texts_of(from);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto found = places.find(view(texts[i]));
    at<int64_t>(out, i) = found == places.end() ? -1 : found->second;
  }
  return {};
}

// A pattern comes from a model: its automaton has a bound, and the time of a match is linear in the text.
constexpr int64_t kRegexBytes = 8 << 20;

Status full_match(const ir::Node& node, Session& session, const Value& from, Value& out) {
  const std::string_view pattern = node.string_or("pattern", "");
  re2::RE2::Options options;
  options.set_log_errors(false);  // to stderr
  options.set_max_mem(kRegexBytes);
  const re2::RE2 regex(re2::StringPiece(pattern.data(), pattern.size()), options);
  if (!regex.ok())
    return bad("The pattern '" + std::string(pattern.substr(0, 256)) +
               "' is no regular expression in the syntax of RE2: " + regex.error().substr(0, 256) + ".");
  BELAY_ASSIGN(out, make_tensor(session.pool(), BELAY_DT_BOOL, from.dims));
  const auto texts = texts_of(from);
  for (size_t i = 0; i < texts.size(); ++i) at<uint8_t>(out, i) = re2::RE2::FullMatch(re2::StringPiece(texts[i].ptr, texts[i].len), regex);
  return {};
}

Status run_text(const ir::Node& node, Session& session, Frame& frame, std::vector<Value>& outputs) {
  const Value &a = frame.get(node.input(0)), &b = frame.get(node.input(1));
  if (node.op == "Cast" || node.op == "CastLike") {
    BELAY_ASSIGN(outputs[0], cast(session, a, node.op == "Cast" ? uint32_t(node.int_or("to", 0)) : b.dtype));
    return {};
  }
  BELAY_TRY(want_text(a, "first input"));
  if (node.op == "Equal" || node.op == "StringConcat") {
    BELAY_TRY(want_text(b, "second input"));
    return node.op == "Equal" ? equal(session, a, b, outputs[0]) : concat(a, b, outputs[0]);
  }
  if (node.op == "Unique") return unique(node, session, a, outputs);
  if (node.op == "NonZero") return non_zero(session, a, outputs[0]);
  if (node.op == "StringSplit") return split_texts(node, session, a, outputs);
  if (node.op == "RegexFullMatch") return full_match(node, session, a, outputs[0]);
  if (node.op == "StringIndex") return index(node, session, a, outputs[0]);
  BELAY_ASSIGN(outputs[0], normalize(node, a));
  return {};
}

}  // namespace

std::optional<Status> run_text_op(const ir::Node& node, Session& session, Frame& frame,
                                  std::vector<Value>& outputs) {
  const bool ours = node.op == "Cast" || node.op == "CastLike" || node.op == "Equal" || node.op == "Unique" ||
                    node.op == "NonZero" || node.op == "RegexFullMatch" || node.op.starts_with("String");
  if (!ours) return std::nullopt;
  return run_text(node, session, frame, outputs);
}

}  // namespace belay::schedule
