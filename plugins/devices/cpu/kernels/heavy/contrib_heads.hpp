// What the attention operators of com.microsoft have in common: Q, K and V as rows of a projection, biased, normalised
// and rotated; keys and values of earlier runs before those of this one; masks as numbers. The operators are in
// multi_head_attention.cpp, qkv_attention.cpp and group_query_attention.cpp.
#pragma once

#include "../context.hpp"
#include "attention.hpp"

#include <limits>
#include <string_view>

namespace belay::cpu {

inline constexpr size_t kNoOperand = SIZE_MAX;

// Q, K or V as an operand has them.
struct HeadPart {
  size_t input = 0;
  int64_t offset = 0;  // elements before the first
  HeadSteps steps;
  int64_t heads = 0, rows = 0, size = 0;
  int64_t bias = -1;               // its first element in the bias of the projections; -1: none is added
  size_t norm = kNoOperand;        // input with the factors of a norm of each head
  bool rotated = false;
  size_t past = kNoOperand;        // input with the rows before, heads first
  int64_t past_offset = 0, past_rows = 0;
  size_t present = kNoOperand;     // output with all rows
  int64_t present_offset = 0, present_rows = 0;
  int64_t all_rows = 0;            // of the joined tensor
  bool joined = false;             // read from a tensor that is made at the run: heads first
  bool staged = false;             // ... which is not the output, though there is one
  uint64_t at = 0;                 // its place in the workspace, where no output holds it
};

// What hides keys, by numbers of int32.
enum class MaskForm : uint8_t {
  kNothing,
  kEnds,           // [batch]: keys from there on
  kEndsAndStarts,  // the same, then keys before
  kKeys,           // [batch, keys]: those that are 0
  kNewKeys,        // the same of those of this run
  kQueries,        // [batch, queries, keys]: those that are 0
  kSquares         // [batch, 1, most, most], of which the last rows up to `keys` are those of the queries
};

struct HeadsKernel {
  // The keys of one batch: those before the queries, and all; `base` is the place of the first in its sequence.
  struct Lengths {
    int64_t past = 0, all = 0, base = 0;
  };

  std::string_view op;  // for messages
  Attention core;
  HeadPart q, k, v;
  uint32_t dtype = 0;
  size_t bias = kNoOperand;
  float norm_epsilon = 0;

  size_t mask = kNoOperand;
  MaskForm form = MaskForm::kNothing;
  int64_t mask_side = 0;
  float hidden = -10000.0f;  // is added to scores of hidden keys
  size_t added = kNoOperand;
  int64_t added_batch = 0, added_head = 0, added_query = 0, added_keys = 0;  // steps of what is added to scores
  int64_t added_side = 0;                                                    // keys it has
  size_t sinks = kNoOperand;
  bool causal = false, smooth = false;
  int64_t window = -1;
  size_t scores = kNoOperand;  // output
  Scores stage = Scores::kProducts;
  float unseen = -std::numeric_limits<float>::infinity();  // what that has where a key is out of sight

  // How many rows are before those of this run: a number, or what input past_length says; or, where `lengths` is there,
  // each batch has a past and a length of its own.
  int64_t past = 0;
  size_t past_length = kNoOperand, lengths = kNoOperand, total = kNoOperand;
  int64_t capacity = 0;  // of caches that hold the end of a sequence only; 0: they hold all of it

  size_t cos = kNoOperand, sin = kNoOperand, positions = kNoOperand;
  bool interleaved = false;
  int64_t rotated = 0, cache_rows = 0;  // values of a head; rows of the caches of cosines and sines

  uint64_t core_at = 0;

  Lengths lengths_of(const Run& run, int64_t batch) const;
  belay_status operator()(const Run& run) const;

 private:
  struct State;
  class Bias;
  bool first_run(const Run& run) const;
  int64_t resident(int64_t length) const;
  int64_t position_of(const Run& run, int64_t batch, int64_t row, const Lengths& lengths) const;
  belay_status check(const Run& run) const;
  State start(const Run& run) const;
  const float* hiding(const Run& run, int64_t& query_step) const;
  void make_row(const Run& run, const State& state, const HeadPart& part, int64_t batch, int64_t head, int64_t row,
                void* to, float* buffer) const;
  const void* operand(const Run& run, const State& state, const HeadPart& part) const;
  void keep_end(const Run& run, const HeadPart& part) const;
};

// What prepare functions share.
Status heads_of(OpContext& op, std::string_view name, int64_t& heads);
Status want_type_of_first(OpContext& op, std::initializer_list<size_t> inputs);
Status want_absent(OpContext& op, size_t input, std::string_view name);
Status want_zero(OpContext& op, std::string_view attribute);
Status want_dims(OpContext& op, size_t input, std::string_view name, const Dims& want);
Status read_past_length(OpContext& op, size_t input, HeadsKernel& kernel);
Status read_head_mask(OpContext& op, size_t input, int64_t keys, HeadsKernel& kernel);
Status read_score_bias(OpContext& op, size_t input, int64_t keys, HeadsKernel& kernel);
// With the parts known: the core over `keys` keys, and room for what is joined.
Status plan_heads(OpContext& op, int64_t batch, int64_t keys, HeadsKernel& kernel);
void give_heads(OpContext& op, HeadsKernel kernel);

}  // namespace belay::cpu
