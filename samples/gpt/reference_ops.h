// The transformer's operations in plain loops and in double precision. Nothing here is shared with the
// kernels: it says what they ought to compute. Functions named ...Back take the slope of their result and
// return that of their input; slopes of parameters are added to those given.
#pragma once

#include <stddef.h>

#include <vector>

namespace gpt::reference {

// Row-major.
struct Grid {
  Grid(int row_count, int column_count)
      : rows(row_count), columns(column_count), values(static_cast<size_t>(rows) * columns) {}

  double* Row(int row) { return &values[static_cast<size_t>(row) * columns]; }
  const double* Row(int row) const { return &values[static_cast<size_t>(row) * columns]; }

  int rows;
  int columns;
  std::vector<double> values;
};

// A linear map; bias and bias_slope may be null. Weights are inputs x outputs.
struct LinearView {
  const double* weights;
  const double* bias;
  double* weights_slope;
  double* bias_slope;
  int outputs;
};
Grid Linear(const Grid& in, const LinearView& view);
Grid LinearBack(const Grid& in, const LinearView& view, const Grid& out_slope);

struct NormView {
  const double* scale;
  const double* shift;
  double* scale_slope;
  double* shift_slope;
};
Grid Norm(const Grid& in, const NormView& view);
Grid NormBack(const Grid& in, const NormView& view, const Grid& out_slope);

Grid Gelu(const Grid& in);
Grid GeluBack(const Grid& in, const Grid& out_slope);

// Causal attention over sequences of `context` rows; query_key_value has three times the result's columns.
Grid Attention(const Grid& query_key_value, int context, int heads);
Grid AttentionBack(const Grid& query_key_value, int context, int heads, const Grid& out_slope);

// Mean cross-entropy over the rows; the logits become its slope.
double SoftmaxLoss(Grid* logits, const std::vector<int>& targets);

void AddTo(const Grid& addend, Grid* sum);

}  // namespace gpt::reference
