#include "schedule/regex.hpp"

#include <algorithm>
#include <memory>

namespace belay::schedule {
namespace {

using Class = Regex::Class;
using Op = Regex::Op;

constexpr uint32_t kMostSteps = 100'000, kMostDepth = 250, kMostRepeats = 1000;
constexpr uint32_t kOpenEnd = ~uint32_t(0);
constexpr char32_t kNothing = 0xfffffffe;  // before the first character and after the last

struct Node {
  enum Kind : uint8_t { kEmpty, kClass, kAssert, kChain, kChoice, kRepeat } kind = kEmpty;
  Op op = Op::kMatch;         // of an assertion
  uint32_t number = 0;        // of a class
  uint32_t least = 0, most = 0;  // of a repeat
  std::vector<std::unique_ptr<Node>> parts;
};
using NodePtr = std::unique_ptr<Node>;

NodePtr make(Node::Kind kind) {
  auto out = std::make_unique<Node>();
  out->kind = kind;
  return out;
}

struct Named {
  std::string_view name;
  std::vector<Regex::Range> ranges;
};
const std::vector<Named>& posix_classes() {
  static const std::vector<Named> all = {
      {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
      {"alpha", {{'A', 'Z'}, {'a', 'z'}}},
      {"ascii", {{0, 0x7f}}},
      {"blank", {{'\t', '\t'}, {' ', ' '}}},
      {"cntrl", {{0, 0x1f}, {0x7f, 0x7f}}},
      {"digit", {{'0', '9'}}},
      {"graph", {{'!', '~'}}},
      {"lower", {{'a', 'z'}}},
      {"print", {{' ', '~'}}},
      {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
      {"space", {{'\t', '\r'}, {' ', ' '}}},
      {"upper", {{'A', 'Z'}}},
      {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
      {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}}};
  return all;
}

void add_inverse(std::vector<Regex::Range>& to, std::vector<Regex::Range> from) {
  std::sort(from.begin(), from.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  char32_t next = 0;
  for (const Regex::Range& range : from) {
    if (range.first > next) to.push_back({next, range.first - 1});
    next = std::max(next, char32_t(range.last + 1));
  }
  if (next <= 0x10ffff) to.push_back({next, 0x10ffff});
}

// \d, \s, \w and their opposites; false: another letter.
bool add_perl(std::vector<Regex::Range>& to, char32_t letter) {
  std::vector<Regex::Range> ranges;
  switch (letter | 32) {
    case 'd':
      ranges = {{'0', '9'}};
      break;
    case 's':
      ranges = {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};
      break;
    case 'w':
      ranges = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
      break;
    default:
      return false;
  }
  if (letter & 32)
    to.insert(to.end(), ranges.begin(), ranges.end());
  else
    add_inverse(to, std::move(ranges));
  return true;
}

class Parser {
 public:
  Parser(std::string_view pattern, std::vector<Class>& classes) : pattern_(pattern), classes_(classes) {}

  Result<NodePtr> run() {
    for (size_t at = 0; at < pattern_.size();) {
      text_.push_back(next_character(pattern_, at));
      if (text_.back() == kNoCharacter) return fail("is no UTF-8");
    }
    BELAY_ASSIGN(NodePtr all, choice(0));
    if (!done()) return fail("has a ) too many");
    return all;
  }

 private:
  Status fail(const std::string& what, Code code = Code::kInvalidArgument) const {
    return {code, "The pattern '" + std::string(pattern_) + "' " + what + ", at character " + std::to_string(at_) + "."};
  }
  bool done() const { return at_ >= text_.size(); }
  char32_t peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : kNothing; }
  bool take(char32_t c) { return peek() == c ? (++at_, true) : false; }

  NodePtr of_class(Class what) {
    NodePtr out = make(Node::kClass);
    out->number = uint32_t(classes_.size());
    classes_.push_back(std::move(what));
    return out;
  }
  NodePtr literal(char32_t c) { return of_class({{{c, c}}, false, fold_}); }
  static NodePtr assertion(Op op) {
    NodePtr out = make(Node::kAssert);
    out->op = op;
    return out;
  }

  Result<NodePtr> choice(uint32_t depth) {
    if (depth > kMostDepth) return fail("is nested too deeply");
    NodePtr out = make(Node::kChoice);
    do {
      BELAY_ASSIGN(NodePtr part, chain(depth));
      out->parts.push_back(std::move(part));
    } while (take('|'));
    return out;
  }

  Result<NodePtr> chain(uint32_t depth) {
    NodePtr out = make(Node::kChain);
    bool repeated = false;
    while (!done() && peek() != '|' && peek() != ')') {
      uint32_t least = 0, most = 0;
      BELAY_ASSIGN(const bool repeats, repetition(least, most));
      if (repeats) {
        if (out->parts.empty()) return fail("repeats nothing");
        if (repeated) return fail("repeats a repetition");
        repeated = true;
        NodePtr repeat = make(Node::kRepeat);
        repeat->least = least, repeat->most = most;
        repeat->parts.push_back(std::move(out->parts.back()));
        out->parts.back() = std::move(repeat);
        continue;
      }
      repeated = false;
      BELAY_ASSIGN(NodePtr part, atom(depth));
      if (part) out->parts.push_back(std::move(part));
    }
    return out;
  }

  // *, +, ?, {n}, {n,}, {n,m}, each with a ? that makes no difference here. Another { is a letter.
  Result<bool> repetition(uint32_t& least, uint32_t& most) {
    if (take('*')) {
      least = 0, most = kOpenEnd;
    } else if (take('+')) {
      least = 1, most = kOpenEnd;
    } else if (take('?')) {
      least = 0, most = 1;
    } else {
      const size_t begin = at_;
      const auto number = [&](uint32_t& to) {
        const size_t first = at_;
        for (to = 0; peek() >= '0' && peek() <= '9'; ++at_) to = std::min<uint32_t>(to * 10 + (peek() - '0'), 99999);
        return at_ > first;
      };
      if (!take('{') || !number(least)) return at_ = begin, false;
      most = least;
      if (take(',') && !number(most)) most = kOpenEnd;
      if (!take('}')) return at_ = begin, false;
      if (least > kMostRepeats || (most != kOpenEnd && (most > kMostRepeats || most < least)))
        return fail("has a repetition that is out of order or above " + std::to_string(kMostRepeats));
    }
    take('?');
    return true;
  }

  // Null: it only set flags.
  Result<NodePtr> atom(uint32_t depth) {
    const char32_t c = peek();
    ++at_;
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return brackets();
      case '.': {
        Class any;
        add_inverse(any.ranges, dot_all_ ? std::vector<Regex::Range>{} : std::vector<Regex::Range>{{'\n', '\n'}});
        return of_class(std::move(any));
      }
      case '^':
        return assertion(lines_ ? Op::kLineBegin : Op::kBegin);
      case '$':
        return assertion(lines_ ? Op::kLineEnd : Op::kEnd);
      case '\\':
        return escape();
      default:
        return literal(c);
    }
  }

  Result<NodePtr> group(uint32_t depth) {
    const bool fold = fold_, lines = lines_, dot_all = dot_all_;
    if (take('?')) {
      const bool python = peek() == 'P';
      if (python || (peek() == '<' && peek(1) != '=' && peek(1) != '!')) {
        at_ += python;
        if (!take('<')) return fail("has a group that begins with (?P but not with (?P<name>");
        const auto letter = [&] {
          return peek() == '_' || (peek() >= '0' && peek() <= '9') || ((peek() | 32) >= 'a' && (peek() | 32) <= 'z');
        };
        const size_t begin = at_;
        while (letter()) ++at_;
        if (at_ == begin || !take('>')) return fail("has a group without a proper name");
      } else {
        bool on = true, any = false;
        for (;; any = true) {
          const char32_t c = peek();
          if (c == ':' || (c == ')' && any)) break;
          ++at_;
          if (c == 'i') fold_ = on;
          else if (c == 'm') lines_ = on;
          else if (c == 's') dot_all_ = on;
          else if (c == '-' && on) on = false;
          else if (c != 'U') return fail("has a group of an unknown kind");
        }
        if (take(')')) return NodePtr();
        ++at_;
      }
    }
    BELAY_ASSIGN(NodePtr inside, choice(depth + 1));
    if (!take(')')) return fail("lacks a )");
    fold_ = fold, lines_ = lines, dot_all_ = dot_all;
    return inside;
  }

  // A character behind a backslash, of those that stand for one.
  Result<char32_t> escaped() {
    const char32_t c = peek();
    ++at_;
    constexpr std::string_view letters = "aftnrv", codes = "\a\f\t\n\r\v";
    if (c < 128)
      if (const size_t at = letters.find(char(c)); at != std::string_view::npos) return char32_t(codes[at]);
    const auto digit = [&](char32_t at) -> int {
      if (at >= '0' && at <= '9') return int(at - '0');
      return (at | 32) >= 'a' && (at | 32) <= 'f' ? int((at | 32) - 'a') + 10 : 16;
    };
    if (c == 'x') {
      char32_t code = 0;
      const bool braces = take('{');
      const size_t begin = at_;
      for (; digit(peek()) < 16 && (braces || at_ < begin + 2) && code <= 0x10ffff; ++at_)
        code = code * 16 + char32_t(digit(peek()));
      if (at_ == begin || code > 0x10ffff || (braces ? !take('}') : at_ != begin + 2))
        return fail("has no character's number behind \\x");
      return code;
    }
    if (c == '0' || (c >= '1' && c <= '7' && peek() >= '0' && peek() <= '7')) {  // else a reference back
      char32_t code = c - '0';
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i, ++at_) code = code * 8 + (peek() - '0');
      return code;
    }
    if (c < 128 && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z')) return c;
    return fail(c == kNothing ? "ends with a \\" : "has an unknown letter behind \\");
  }

  Result<NodePtr> escape() {
    const char32_t c = peek();
    if (c == 'p' || c == 'P' || c == 'C')
      return fail("has \\" + std::string(1, char(c)) + ", which is not supported", Code::kUnimplemented);
    Class perl;
    if (add_perl(perl.ranges, c)) return ++at_, of_class(std::move(perl));
    constexpr std::pair<char32_t, Op> assertions[] = {
        {'A', Op::kBegin}, {'z', Op::kEnd}, {'b', Op::kWord}, {'B', Op::kNoWord}};
    for (const auto& [letter, op] : assertions)
      if (take(letter)) return assertion(op);
    if (take('Q')) {
      NodePtr out = make(Node::kChain);
      while (!done() && !(peek() == '\\' && peek(1) == 'E')) out->parts.push_back(literal(text_[at_++]));
      at_ = std::min(at_ + 2, text_.size());
      return out;
    }
    BELAY_ASSIGN(const char32_t one, escaped());
    return literal(one);
  }

  Result<NodePtr> brackets() {
    Class out;
    out.folds = fold_;
    out.negated = take('^');
    for (bool first = true; first || peek() != ']'; first = false) {
      if (done()) return fail("lacks a ]");
      if (peek() == '[' && peek(1) == ':') {
        BELAY_TRY(posix(out));
        continue;
      }
      if (peek() == '\\' && (peek(1) == 'p' || peek(1) == 'P'))
        return fail("has \\p, which is not supported", Code::kUnimplemented);
      if (peek() == '\\' && add_perl(out.ranges, peek(1))) {
        at_ += 2;
        continue;
      }
      BELAY_ASSIGN(const char32_t low, bracket_character());
      char32_t high = low;
      if (peek() == '-' && peek(1) != ']' && peek(1) != kNothing) {
        ++at_;
        BELAY_ASSIGN(high, bracket_character());
      }
      if (high < low) return fail("has a range from a higher character to a lower one");
      out.ranges.push_back({low, high});
    }
    ++at_;
    return of_class(std::move(out));
  }
  Result<char32_t> bracket_character() {
    if (take('\\')) return escaped();
    return text_[at_++];
  }
  Status posix(Class& out) {
    size_t end = at_ + 2;
    while (end + 1 < text_.size() && !(text_[end] == ':' && text_[end + 1] == ']')) ++end;
    std::string name;
    for (size_t i = at_ + 2; i < std::min(end, text_.size()); ++i) name += text_[i] < 128 ? char(text_[i]) : '?';
    const bool negated = name.starts_with('^');
    for (const Named& known : posix_classes())
      if (known.name == std::string_view(name).substr(negated)) {
        at_ = end + 2;
        if (negated)
          add_inverse(out.ranges, known.ranges);
        else
          out.ranges.insert(out.ranges.end(), known.ranges.begin(), known.ranges.end());
        return {};
      }
    return fail("has an unknown class [:" + name + ":]");
  }

  const std::string_view pattern_;
  std::vector<Class>& classes_;
  std::u32string text_;
  size_t at_ = 0;
  bool fold_ = false, lines_ = false, dot_all_ = false;
};

// Writes the automaton from its end: each part knows what follows it.
class Writer {
 public:
  explicit Writer(std::vector<Regex::Step>& steps) : steps_(steps) {}

  // The first step of `node` before `next`; `fits` becomes false where there are too many.
  uint32_t write(const Node& node, uint32_t next) {
    switch (node.kind) {
      case Node::kEmpty:
        return next;
      case Node::kClass:
        return step(Op::kClass, next, node.number);
      case Node::kAssert:
        return step(node.op, next, 0);
      case Node::kChain:
        for (auto part = node.parts.rbegin(); part != node.parts.rend() && fits; ++part) next = write(**part, next);
        return next;
      case Node::kChoice: {
        uint32_t first = write(*node.parts.back(), next);
        for (size_t i = node.parts.size() - 1; i-- > 0 && fits;)
          first = step(Op::kSplit, write(*node.parts[i], next), first);
        return first;
      }
      case Node::kRepeat:
        break;
    }
    const Node& part = *node.parts[0];
    uint32_t first = next;
    if (node.most == kOpenEnd) {
      const uint32_t loop = step(Op::kSplit, 0, next);
      const uint32_t body = write(part, loop);
      if (fits) steps_[loop].next = body;
      first = loop;
    }
    for (uint32_t i = node.least; node.most != kOpenEnd && i < node.most && fits; ++i)
      first = step(Op::kSplit, write(part, first), next);
    for (uint32_t i = 0; i < node.least && fits; ++i) {
      const uint32_t before = first;
      first = write(part, first);
      if (first == before) break;  // it is empty: again and again is no more
    }
    return first;
  }

  uint32_t step(Op op, uint32_t next, uint32_t other) {
    if (steps_.size() >= kMostSteps) return fits = false, 0;
    steps_.push_back({op, next, other});
    return uint32_t(steps_.size() - 1);
  }
  bool fits = true;

 private:
  std::vector<Regex::Step>& steps_;
};

bool is_word(char32_t c) { return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'); }

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern) {
  Regex out;
  BELAY_ASSIGN(const NodePtr all, Parser(pattern, out.classes_).run());
  Writer writer(out.steps_);
  out.begin_ = writer.write(*all, writer.step(Op::kMatch, 0, 0));
  if (!writer.fits)
    return Status(Code::kInvalidArgument, "The pattern '" + std::string(pattern) + "' is too large: it has more than " +
                                              std::to_string(kMostSteps) + " steps.");
  if (std::any_of(out.classes_.begin(), out.classes_.end(), [](const Class& one) { return one.folds; })) {
    BELAY_ASSIGN(out.cases_, CaseMap::of(""));
    for (Class& one : out.classes_)
      for (size_t i = 0; one.folds && i < one.ranges.size(); ++i)
        if (const Range range = one.ranges[i]; range.first == range.last)
          if (const char32_t other = out.cases_->lower(range.first); other != range.first)
            one.ranges.push_back({other, other});
  }
  return out;
}

bool Regex::has(const Class& of, char32_t c) const {
  const auto in = [&](char32_t at) {
    return std::any_of(of.ranges.begin(), of.ranges.end(),
                       [&](const Range& range) { return at >= range.first && at <= range.last; });
  };
  const bool found = in(c) || (of.folds && (in(cases_->lower(c)) || in(cases_->upper(c))));
  return found != of.negated;
}

// Adds the classes, and the end, that `step` leads to between two characters.
void Regex::follow(States& to, uint32_t step, char32_t before, char32_t after) const {
  std::vector<uint32_t> open{step};
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    if (to.seen[at] == to.round) continue;
    to.seen[at] = to.round;
    const Step& here = steps_[at];
    bool goes = true;
    switch (here.op) {
      case Op::kClass:
      case Op::kMatch:
        to.list.push_back(at);
        continue;
      case Op::kSplit:
        open.push_back(here.other);
        break;
      case Op::kBegin:
        goes = before == kNothing;
        break;
      case Op::kEnd:
        goes = after == kNothing;
        break;
      case Op::kLineBegin:
        goes = before == kNothing || before == '\n';
        break;
      case Op::kLineEnd:
        goes = after == kNothing || after == '\n';
        break;
      case Op::kWord:
      case Op::kNoWord:
        goes = (is_word(before) != is_word(after)) == (here.op == Op::kWord);
        break;
    }
    if (goes) open.push_back(here.next);
  }
}

bool Regex::matches(std::string_view text) const {
  States states;
  states.seen.resize(steps_.size());
  const auto character = [&](size_t& at) { return at < text.size() ? next_character(text, at) : kNothing; };
  size_t at = 0;
  char32_t here = character(at);
  states.round = 1;
  follow(states, begin_, kNothing, here);
  std::vector<uint32_t> last;
  while (here != kNothing && !states.list.empty()) {
    if (here == kNoCharacter) return false;
    const char32_t after = character(at);
    last.swap(states.list);
    states.list.clear();
    ++states.round;
    for (const uint32_t state : last)
      if (steps_[state].op == Op::kClass && has(classes_[steps_[state].other], here))
        follow(states, steps_[state].next, here, after);
    here = after;
  }
  return here == kNothing && std::any_of(states.list.begin(), states.list.end(),
                                         [&](uint32_t state) { return steps_[state].op == Op::kMatch; });
}

}  // namespace belay::schedule
