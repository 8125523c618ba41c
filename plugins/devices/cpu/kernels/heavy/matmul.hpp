// MatMul, Gemm and what is made of them.
#pragma once

#include "../context.hpp"
#include "post.hpp"
#include "product.hpp"

namespace belay::cpu {

// Shapes of a batched product with the rules of numpy's matmul.
struct MatMulShape {
  int64_t m = 0, n = 0, k = 0;
  Dims batch;             // of the output
  Dims a_batch, b_batch;  // strides over `batch`, in matrices
  Dims out;               // shape of the output
  int64_t products() const { return product(batch); }
  int64_t b_matrices = 1;  // different matrices B
};
Status read_matmul(const OpContext& context, size_t a, size_t b, MatMulShape& shape);
// The same of operands that are read with other dims than they have; `dense`: row by row, matrix by matrix.
Status read_matmul(const OpContext& context, Dims a_dims, Dims b_dims, bool dense, MatMulShape& shape);
// Number of the matrix of A (or B) that belongs to product `index`.
int64_t matrix_at(const Dims& batch, const Dims& strides, int64_t index);

// Where the matrices of an operand lie: elements from one to the next, from row to row, from column to column.
struct MatrixSteps {
  int64_t matrix = 0, row = 0, column = 1;
};

// A batch of products of matrices that lie anywhere in their operands: C[m, n] = sum over k of A[m, k] B[k, n]. The strides
// of the batch are in elements, and the steps from matrix to matrix 1.
struct Contraction {
  MatMulShape shape;
  size_t a = 0;  // the operand that is A; the other is B
  MatrixSteps a_steps, b_steps, c_steps;
  Dims c_batch;
};
bool contracts(uint32_t dtype);
// The output is set before.
Status prepare_contraction(OpContext& context, const Contraction& product);

// What a fused kernel adds to a product with row-major output.
struct MatMulFusion {
  int bias = -1;      // operand added to each row: n values, or one
  int residual = -1;  // operand of the output's shape
  Post post;
};
Status prepare_matmul(OpContext& context, const MatMulFusion& fusion);
Status prepare_gemm(OpContext& context, const Attributes& attributes, const Post& post);

}  // namespace belay::cpu
