// Rules of operators that select, count and make tensors, with the shape arithmetic over partly known
// elements.
#include "ir/infer_context.hpp"

#include <cmath>

namespace belay::ir {
namespace {

Status shape(Infer& at) {
  if (!at.ranked(0)) {
    at.set(0, BELAY_DT_INT64, {kUnknown});
    return {};
  }
  const int64_t rank = at.rank(0);
  int64_t start = at.node().int_or("start", 0), end = at.node().int_or("end", rank);
  if (start < 0) start += rank;
  if (end < 0) end += rank;
  start = std::clamp<int64_t>(start, 0, rank);
  end = std::clamp<int64_t>(end, start, rank);
  Dims values(at.dims(0).begin() + start, at.dims(0).begin() + end);
  at.set(0, BELAY_DT_INT64, {int64_t(values.size())});
  at.set_partial(0, std::move(values));
  return {};
}

Status size(Infer& at) {
  at.set(0, BELAY_DT_INT64, {});
  if (at.ranked(0)) {
    int64_t count = 1;
    for (const int64_t dim : at.dims(0)) count = dim_mul(count, dim);
    at.set_partial(0, {count});
  }
  return {};
}

Status gather(Infer& at) {
  if (!at.ranked(0) || !at.ranked(1)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  BELAY_TRY(at.want_rank(0, 1));
  BELAY_ASSIGN(const int64_t axis, at.axis(at.node().int_or("axis", 0), at.rank(0)));
  Dims out(at.dims(0).begin(), at.dims(0).begin() + axis);
  out.insert(out.end(), at.dims(1).begin(), at.dims(1).end());
  out.insert(out.end(), at.dims(0).begin() + axis + 1, at.dims(0).end());
  at.set(0, at.dtype(0), std::move(out));
  if (at.rank(0) == 1 && at.rank(1) <= 1) {
    const auto values = at.ints(0), indices = at.known_ints(1);
    if (values && indices) {
      Dims picked;
      for (int64_t index : *indices) {
        if (index < 0) index += int64_t(values->size());
        if (index < 0 || index >= int64_t(values->size()))
          return at.fail("index " + std::to_string(index) + " is out of range");
        picked.push_back((*values)[size_t(index)]);
      }
      at.set_partial(0, std::move(picked));
    }
  }
  return {};
}

Status gather_elements(Infer& at) {
  Type type = at.in(1);
  type.kind = BELAY_TYPE_TENSOR;
  type.dtype = at.dtype(0);
  at.set(0, type);
  return {};
}

Status gather_nd(Infer& at) {
  if (!at.ranked(0) || !at.ranked(1) || at.rank(1) < 1 || at.dims(1).back() < 0) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  const int64_t batch = at.node().int_or("batch_dims", 0), last = at.dims(1).back();
  if (batch < 0 || batch + last > at.rank(0) || batch >= at.rank(1))
    return at.fail("indices of " + std::to_string(last) + " reach beyond the data's rank");
  Dims out(at.dims(1).begin(), at.dims(1).end() - 1);
  out.insert(out.end(), at.dims(0).begin() + batch + last, at.dims(0).end());
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status constant_of_shape(Infer& at) {
  uint32_t dtype = BELAY_DT_FLOAT32;
  if (const Attribute* value = at.node().find("value"); value && !value->tensors.empty())
    dtype = value->tensors[0]->dtype;
  const auto dims = at.ints(0);
  if (!dims) {
    if (at.ranked(0) && at.rank(0) == 1 && at.dims(0)[0] >= 0 && at.dims(0)[0] <= 64)
      at.set(0, dtype, Dims(size_t(at.dims(0)[0]), kUnknown));
    else
      at.set_unranked(0, dtype);
    return {};
  }
  if (at.constant(0))
    for (const int64_t dim : *dims)
      if (dim < 0) return at.fail("the shape has the dim " + std::to_string(dim));
  at.set(0, dtype, *dims);
  return {};
}

// Elements of a range of integers, whose span may take all 64 bits.
uint64_t steps_of(int64_t start, int64_t limit, int64_t delta) {
  if (delta > 0 ? limit <= start : limit >= start) return 0;
  const uint64_t span = delta > 0 ? uint64_t(limit) - uint64_t(start) : uint64_t(start) - uint64_t(limit);
  return (span - 1) / (delta > 0 ? uint64_t(delta) : 0 - uint64_t(delta)) + 1;
}

Status range(Infer& at) {
  if (const auto first = at.known_ints(0), last = at.known_ints(1), by = at.known_ints(2);
      first && last && by && at.dtype(0) != BELAY_DT_UINT64 && first->size() == 1 && last->size() == 1 && by->size() == 1) {
    if ((*by)[0] == 0) return at.fail("the step is 0");
    const uint64_t count = steps_of((*first)[0], (*last)[0], (*by)[0]);
    if (count > uint64_t{9'000'000'000'000'000}) return at.fail("the range overflows");
    at.set(0, at.dtype(0), {int64_t(count)});
    return {};
  }
  const auto start = at.doubles(0), limit = at.doubles(1), delta = at.doubles(2);
  int64_t count = kUnknown;
  if (start && limit && delta && start->size() == 1 && limit->size() == 1 && delta->size() == 1) {
    if ((*delta)[0] == 0) return at.fail("the step is 0");
    const double exact = std::ceil(((*limit)[0] - (*start)[0]) / (*delta)[0]);
    if (!(exact < 9e15)) return at.fail("the range overflows");
    count = int64_t(std::max(0.0, exact));
  }
  at.set(0, at.dtype(0), {count});
  return {};
}

Status one_hot(Infer& at) {
  if (!at.ranked(0)) {
    at.set_unranked(0, at.dtype(2));
    return {};
  }
  BELAY_ASSIGN(const int64_t axis, at.axis(at.node().int_or("axis", -1), at.rank(0), 1));
  int64_t depth = kUnknown;
  if (const auto value = at.doubles(1); value && value->size() == 1 && std::fabs((*value)[0]) < 0x1p62)
    depth = int64_t((*value)[0]);
  Dims out = at.dims(0);
  out.insert(out.begin() + axis, depth);
  at.set(0, at.dtype(2), std::move(out));
  return {};
}

Status top_k(Infer& at) {
  Type type = at.in(0);
  if (at.ranked(0)) {
    BELAY_ASSIGN(const int64_t axis, at.axis(at.node().int_or("axis", -1), at.rank(0)));
    int64_t k = kUnknown;
    if (const auto value = at.ints(1); value && value->size() == 1) k = (*value)[0];
    const int64_t dim = type.dims[size_t(axis)];
    if (at.constant(1) && (k < 0 || (dim >= 0 && k > dim)))
      return at.fail("k is " + std::to_string(k) + ", the dim is " + std::to_string(dim));
    type.dims[size_t(axis)] = k;
  }
  at.set(0, type);
  type.dtype = BELAY_DT_INT64;
  at.set(1, type);
  return {};
}

Status non_zero(Infer& at) {
  at.set(0, BELAY_DT_INT64, {at.ranked(0) ? at.rank(0) : kUnknown, kUnknown});
  return {};
}

Status unique(Infer& at) {
  const Attribute* given = at.node().find("axis");
  if (!given) {
    at.set(0, at.dtype(0), {kUnknown});
  } else if (at.ranked(0)) {
    BELAY_ASSIGN(const int64_t axis, at.axis(given->ints.empty() ? 0 : given->ints[0], at.rank(0)));
    Dims out = at.dims(0);
    out[size_t(axis)] = kUnknown;
    at.set(0, at.dtype(0), std::move(out));
  } else {
    at.set_unranked(0, at.dtype(0));
  }
  for (size_t i = 1; i < 4; ++i) at.set(i, BELAY_DT_INT64, {kUnknown});
  return {};
}

Status compress(Infer& at) {
  const Attribute* given = at.node().find("axis");
  if (!given) {
    at.set(0, at.dtype(0), {kUnknown});
  } else if (at.ranked(0)) {
    BELAY_ASSIGN(const int64_t axis, at.axis(given->ints.empty() ? 0 : given->ints[0], at.rank(0)));
    Dims out = at.dims(0);
    out[size_t(axis)] = kUnknown;
    at.set(0, at.dtype(0), std::move(out));
  } else {
    at.set_unranked(0, at.dtype(0));
  }
  return {};
}

Status non_max_suppression(Infer& at) {
  at.set(0, BELAY_DT_INT64, {kUnknown, 3});
  return {};
}

Status multinomial(Infer& at) {
  const int64_t samples = at.node().int_or("sample_size", 1);
  at.set(0, uint32_t(at.node().int_or("dtype", BELAY_DT_INT32)),
         {at.ranked(0) && at.rank(0) ? at.dims(0)[0] : kUnknown, samples});
  return {};
}

Status tf_idf(Infer& at) {
  int64_t most = -1;
  if (const auto* indexes = at.node().ints("ngram_indexes"))
    for (const int64_t index : *indexes) most = std::max(most, index);
  if (most == INT64_MAX) return at.fail("ngram_indexes hold " + std::to_string(most));
  if (!at.ranked(0)) {
    at.set_unranked(0, BELAY_DT_FLOAT32);
    return {};
  }
  Dims out(at.dims(0).begin(), at.dims(0).end() - (at.rank(0) ? 1 : 0));
  out.push_back(most + 1);
  at.set(0, BELAY_DT_FLOAT32, std::move(out));
  return {};
}

Status string_normalizer(Infer& at) {
  if (!at.ranked(0)) return at.set_unranked(0, BELAY_DT_STRING), Status();
  at.set(0, BELAY_DT_STRING, at.rank(0) == 2 ? Dims{1, kUnknown} : Dims{kUnknown});
  return {};
}

Status string_concat(Infer& at) {
  if (!at.ranked(0) || !at.ranked(1)) return at.set_unranked(0, BELAY_DT_STRING), Status();
  Dims dims = at.dims(0);
  BELAY_TRY(at.broadcast(dims, at.dims(1)));
  at.set(0, BELAY_DT_STRING, std::move(dims));
  return {};
}

Status string_split(Infer& at) {
  at.set(1, Type{BELAY_TYPE_TENSOR, BELAY_DT_INT64, at.ranked(0), at.dims(0), nullptr});
  if (!at.ranked(0)) return at.set_unranked(0, BELAY_DT_STRING), Status();
  Dims dims = at.dims(0);
  dims.push_back(kUnknown);
  at.set(0, BELAY_DT_STRING, std::move(dims));
  return {};
}

Status full_match(Infer& at) {
  at.set(0, Type{BELAY_TYPE_TENSOR, BELAY_DT_BOOL, at.ranked(0), at.dims(0), nullptr});
  return {};
}

Status string_index(Infer& at) {
  at.set(0, Type{BELAY_TYPE_TENSOR, BELAY_DT_INT64, at.ranked(0), at.dims(0), nullptr});
  return {};
}

Status window(Infer& at) {
  int64_t count = kUnknown;
  if (const auto value = at.known_ints(0); value && value->size() == 1) count = (*value)[0];
  at.set(0, uint32_t(at.node().int_or("output_datatype", BELAY_DT_FLOAT32)), {count});
  return {};
}

Status mel(Infer& at) {
  int64_t bins = kUnknown, length = kUnknown;
  if (const auto value = at.known_ints(0); value && value->size() == 1) bins = (*value)[0];
  if (const auto value = at.known_ints(1); value && value->size() == 1) length = (*value)[0] / 2 + 1;
  at.set(0, uint32_t(at.node().int_or("output_datatype", BELAY_DT_FLOAT32)), {length, bins});
  return {};
}

// Sequences and optionals: types only; what they hold is known when they are there.
Status sequence_construct(Infer& at) {
  at.set(0, Type::sequence(Type::unranked(at.dtype(0))));
  return {};
}
Status sequence_empty(Infer& at) {
  at.set(0, Type::sequence(Type::unranked(uint32_t(at.node().int_or("dtype", BELAY_DT_FLOAT32)))));
  return {};
}
Status same_kind(Infer& at) {
  at.set(0, at.in(0));
  return {};
}
Status sequence_at(Infer& at) {
  if (at.in(0).element) {
    Type type = *at.in(0).element;
    type.ranked = false;
    type.dims.clear();
    at.set(0, type);
  }
  return {};
}
Status sequence_length(Infer& at) {
  at.set(0, BELAY_DT_INT64, {});
  return {};
}
Status split_to_sequence(Infer& at) {
  at.set(0, Type::sequence(Type::unranked(at.dtype(0))));
  return {};
}
Status optional_make(Infer& at) {
  if (at.has(0))
    at.set(0, Type::optional(at.in(0)));
  else if (const Attribute* type = at.node().find("type"))
    at.set(0, Type::optional(type->type));
  return {};
}
Status optional_get(Infer& at) {
  const Type& type = at.in(0);
  if (type.kind != BELAY_TYPE_OPTIONAL) {
    at.set(0, type);
  } else if (type.element) {
    Type element = *type.element;
    element.ranked = false;
    element.dims.clear();
    at.set(0, element);
  }
  return {};
}
Status optional_has(Infer& at) {
  at.set(0, BELAY_DT_BOOL, {});
  return {};
}

constexpr RuleEntry kSelectionRules[] = {
    {"Shape", shape},
    {"Size", size},
    {"Gather", gather},
    {"GatherElements", gather_elements},
    {"GatherND", gather_nd},
    {"ConstantOfShape", constant_of_shape},
    {"Range", range},
    {"OneHot", one_hot},
    {"TopK", top_k},
    {"NonZero", non_zero},
    {"Unique", unique},
    {"Compress", compress},
    {"NonMaxSuppression", non_max_suppression},
    {"Multinomial", multinomial},
    {"TfIdfVectorizer", tf_idf},
    {"StringNormalizer", string_normalizer},
    {"StringConcat", string_concat},
    {"StringSplit", string_split},
    {"StringIndex", string_index, kOwnDomain},
    {"RegexFullMatch", full_match},
    {"HannWindow", window},
    {"HammingWindow", window},
    {"BlackmanWindow", window},
    {"MelWeightMatrix", mel},
    {"SequenceConstruct", sequence_construct},
    {"SequenceEmpty", sequence_empty},
    {"SequenceInsert", same_kind},
    {"SequenceErase", same_kind},
    {"SequenceAt", sequence_at},
    {"SequenceLength", sequence_length},
    {"SplitToSequence", split_to_sequence},
    {"Optional", optional_make},
    {"OptionalGetElement", optional_get},
    {"OptionalHasElement", optional_has},
};

}  // namespace

std::span<const RuleEntry> selection_rules() { return kSelectionRules; }

}  // namespace belay::ir
