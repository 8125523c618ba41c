// Scaled dot-product attention over heads: softmax(cap(scale * Q K') + bias) V, block of queries by block of
// queries, so that the scores of one block stay in the cache.
#pragma once

#include "../context.hpp"
#include "product.hpp"

#include <limits>

namespace belay::cpu {

// Where the rows of a tensor of heads lie: distances in elements from batch to batch, from head to head and
// from row to row. The elements of a row lie side by side.
struct HeadSteps {
  int64_t batch = 0, head = 0, row = 0;
};
// Of [batch, heads, rows, size], and of [batch, rows, heads * size].
inline HeadSteps heads_first(int64_t heads, int64_t rows, int64_t size) {
  return {heads * rows * size, rows * size, size};
}
inline HeadSteps rows_first(int64_t heads, int64_t rows, int64_t size) {
  return {heads * rows * size, size, heads * size};
}

struct AttentionForm {
  int64_t batch = 0, q_heads = 0, kv_heads = 0;  // q_heads / kv_heads heads of Q in a row share keys and values
  int64_t queries = 0, keys = 0, size = 0, v_size = 0;
  uint32_t q_type = 0, k_type = 0, v_type = 0;  // floats; the result is of q_type
  HeadSteps q, k, v, y;
  double scale = 1, softcap = 0;  // no cap where it is 0
  bool causal = false;            // queries see few keys at the beginning: a hint, the bias decides

  bool wide = false;              // computed as double whatever the types are

  // All is computed as float, or as double where one operand is.
  bool in_double() const {
    return wide || q_type == BELAY_DT_FLOAT64 || k_type == BELAY_DT_FLOAT64 || v_type == BELAY_DT_FLOAT64;
  }
};

// What a query may look at. The kernel asks for each row of scores, from several threads.
template <class T>
class AttentionBias {
 public:
  struct Keys {
    int64_t begin = 0, end = 0;  // the others are out of sight
  };
  virtual ~AttentionBias() = default;
  virtual Keys keys(int64_t batch, int64_t query) const = 0;
  // Whether add() is to be called.
  virtual bool adds() const { return true; }
  // Adds the bias of `keys` to scores, whose first is that of keys.begin. False: the bias of all is -infinity.
  virtual bool add(int64_t batch, int64_t head, int64_t query, Keys keys, T* scores) const = 0;
  // The score of one more key, which has no value. False: there is none.
  virtual bool sink(int64_t /*head*/, T& /*value*/) const { return false; }
};

// The scores as they may be asked for, [batch, q_heads, queries, keys] of q_type.
enum class Scores : uint8_t { kProducts, kCapped, kBiased, kSoftmax };

struct AttentionOperands {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* y = nullptr;
  void* scores = nullptr;  // null: not wanted
  Scores stage = Scores::kProducts;
  float unseen = -std::numeric_limits<float>::infinity();  // what kBiased has for keys out of sight
};

// A query without a key to look at gives a row of zeros.
class Attention {
 public:
  Attention() = default;
  Attention(const AttentionForm& form, uint32_t threads);

  const AttentionForm& form() const { return form_; }
  uint64_t workspace_bytes() const { return lane_bytes_ * lanes_; }
  double cost_ns() const { return cost_ns_; }
  // T is double where the form says so, else float; `workspace` has workspace_bytes() at a multiple of 64.
  template <class T>
  void run(const Run& run, const AttentionOperands& operands, const AttentionBias<T>& bias, void* workspace) const;

 private:
  template <class T>
  void plan(uint32_t threads);
  template <class T>
  void block(const AttentionOperands& operands, const AttentionBias<T>& bias, int64_t task, T* scores) const;
  static constexpr int64_t kMostRows = 128;  // of a block

  AttentionForm form_;
  // With one query the heads that share keys are the rows of one product; else each head has its own.
  bool joined_ = false;
  int64_t heads_ = 0, rows_ = 0, block_rows_ = 0, score_step_ = 0;
  Blocks scores_, values_;
  bool direct_ = false;  // V is read as it is
  uint32_t lanes_ = 1;
  uint64_t lane_bytes_ = 0;
  double cost_ns_ = 0;
};

extern template void Attention::run<float>(const Run&, const AttentionOperands&, const AttentionBias<float>&,
                                           void*) const;
extern template void Attention::run<double>(const Run&, const AttentionOperands&, const AttentionBias<double>&,
                                            void*) const;

}  // namespace belay::cpu
