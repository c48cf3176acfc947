#include "reference_ops.h"

#include <math.h>

#include <algorithm>

#include "config.h"

namespace gpt::reference {
namespace {

double Dot(const double* a, const double* b, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// y += factor * x
void AddScaled(double factor, const double* x, int count, double* y) {
  for (int i = 0; i < count; ++i) y[i] += factor * x[i];
}

struct RowStatistics {
  double mean;
  double inverse_deviation;
};

RowStatistics Statistics(const double* row, int count) {
  double mean = 0;
  for (int j = 0; j < count; ++j) mean += row[j] / count;
  double variance = 0;
  for (int j = 0; j < count; ++j) variance += (row[j] - mean) * (row[j] - mean) / count;
  return {mean, 1 / sqrt(variance + kNormEpsilon)};
}

// One head of one sequence: where its queries, keys and values are.
struct Head {
  Head(const Grid& grid, int first_row, int head, int heads)
      : width(grid.columns / 3 / heads),
        row(first_row),
        query(head * width),
        key(grid.columns / 3 + query),
        value(2 * (grid.columns / 3) + query) {}

  int width;
  int row;
  int query;
  int key;
  int value;
};

// The softmax over positions 0 to t of the scores of position t.
std::vector<double> Weights(const Grid& grid, const Head& head, int t) {
  std::vector<double> weights(t + 1);
  for (int s = 0; s <= t; ++s) {
    const double* query = grid.Row(head.row + t) + head.query;
    weights[s] = Dot(query, grid.Row(head.row + s) + head.key, head.width) / sqrt(head.width);
  }
  const double top = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = exp(weight - top);
  for (double& weight : weights) weight /= sum;
  return weights;
}

void PositionBack(const Grid& grid, const Head& head, int t, const double* dy, Grid* slope) {
  const std::vector<double> weights = Weights(grid, head, t);
  std::vector<double> weight_slopes(t + 1);
  double mean = 0;
  for (int s = 0; s <= t; ++s) {
    weight_slopes[s] = Dot(dy, grid.Row(head.row + s) + head.value, head.width);
    mean += weights[s] * weight_slopes[s];
  }
  for (int s = 0; s <= t; ++s) {
    const double score_slope = weights[s] * (weight_slopes[s] - mean) / sqrt(head.width);
    AddScaled(weights[s], dy, head.width, slope->Row(head.row + s) + head.value);
    AddScaled(score_slope, grid.Row(head.row + s) + head.key, head.width,
              slope->Row(head.row + t) + head.query);
    AddScaled(score_slope, grid.Row(head.row + t) + head.query, head.width,
              slope->Row(head.row + s) + head.key);
  }
}

}  // namespace

Grid Linear(const Grid& in, const LinearView& view) {
  Grid out(in.rows, view.outputs);
  for (int row = 0; row < in.rows; ++row) {
    if (view.bias != nullptr) std::copy_n(view.bias, view.outputs, out.Row(row));
    for (int k = 0; k < in.columns; ++k) {
      const double* weights = view.weights + static_cast<size_t>(k) * view.outputs;
      AddScaled(in.Row(row)[k], weights, view.outputs, out.Row(row));
    }
  }
  return out;
}

Grid LinearBack(const Grid& in, const LinearView& view, const Grid& out_slope) {
  Grid in_slope(in.rows, in.columns);
  for (int row = 0; row < in.rows; ++row) {
    const double* dy = out_slope.Row(row);
    if (view.bias_slope != nullptr) AddScaled(1, dy, view.outputs, view.bias_slope);
    for (int k = 0; k < in.columns; ++k) {
      const size_t at = static_cast<size_t>(k) * view.outputs;
      AddScaled(in.Row(row)[k], dy, view.outputs, view.weights_slope + at);
      in_slope.Row(row)[k] = Dot(dy, view.weights + at, view.outputs);
    }
  }
  return in_slope;
}

Grid Norm(const Grid& in, const NormView& view) {
  Grid out(in.rows, in.columns);
  for (int row = 0; row < in.rows; ++row) {
    const RowStatistics statistics = Statistics(in.Row(row), in.columns);
    for (int j = 0; j < in.columns; ++j) {
      const double normal = (in.Row(row)[j] - statistics.mean) * statistics.inverse_deviation;
      out.Row(row)[j] = normal * view.scale[j] + view.shift[j];
    }
  }
  return out;
}

Grid NormBack(const Grid& in, const NormView& view, const Grid& out_slope) {
  Grid in_slope(in.rows, in.columns);
  std::vector<double> normal(in.columns);
  for (int row = 0; row < in.rows; ++row) {
    const RowStatistics statistics = Statistics(in.Row(row), in.columns);
    const double* dy = out_slope.Row(row);
    double mean = 0;
    double product = 0;
    for (int j = 0; j < in.columns; ++j) {
      normal[j] = (in.Row(row)[j] - statistics.mean) * statistics.inverse_deviation;
      view.scale_slope[j] += dy[j] * normal[j];
      view.shift_slope[j] += dy[j];
      mean += dy[j] * view.scale[j] / in.columns;
      product += dy[j] * view.scale[j] * normal[j] / in.columns;
    }
    for (int j = 0; j < in.columns; ++j) {
      const double centred = dy[j] * view.scale[j] - mean - normal[j] * product;
      in_slope.Row(row)[j] = centred * statistics.inverse_deviation;
    }
  }
  return in_slope;
}

// 0.5 x (1 + tanh(c (x + 0.044715 x^3))) with c = sqrt(2 / pi).
Grid Gelu(const Grid& in) {
  Grid out(in.rows, in.columns);
  for (size_t i = 0; i < in.values.size(); ++i) {
    const double x = in.values[i];
    out.values[i] = 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3))));
  }
  return out;
}

Grid GeluBack(const Grid& in, const Grid& out_slope) {
  Grid in_slope(in.rows, in.columns);
  for (size_t i = 0; i < in.values.size(); ++i) {
    const double x = in.values[i];
    const double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3)));
    const double inner = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    in_slope.values[i] = out_slope.values[i] * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner);
  }
  return in_slope;
}

Grid Attention(const Grid& grid, int context, int heads) {
  Grid out(grid.rows, grid.columns / 3);
  for (int first = 0; first < grid.rows; first += context) {
    for (int index = 0; index < heads; ++index) {
      const Head head(grid, first, index, heads);
      for (int t = 0; t < context; ++t) {
        const std::vector<double> weights = Weights(grid, head, t);
        for (int s = 0; s <= t; ++s) {
          AddScaled(weights[s], grid.Row(first + s) + head.value, head.width,
                    out.Row(first + t) + head.query);
        }
      }
    }
  }
  return out;
}

Grid AttentionBack(const Grid& grid, int context, int heads, const Grid& out_slope) {
  Grid in_slope(grid.rows, grid.columns);
  for (int first = 0; first < grid.rows; first += context) {
    for (int index = 0; index < heads; ++index) {
      const Head head(grid, first, index, heads);
      for (int t = 0; t < context; ++t) {
        PositionBack(grid, head, t, out_slope.Row(first + t) + head.query, &in_slope);
      }
    }
  }
  return in_slope;
}

double SoftmaxLoss(Grid* logits, const std::vector<int>& targets) {
  double loss = 0;
  for (int row = 0; row < logits->rows; ++row) {
    double* values = logits->Row(row);
    const double top = *std::max_element(values, values + logits->columns);
    double sum = 0;
    for (int j = 0; j < logits->columns; ++j) sum += exp(values[j] - top);
    loss += (log(sum) + top - values[targets[row]]) / logits->rows;
    for (int j = 0; j < logits->columns; ++j) values[j] = exp(values[j] - top) / sum / logits->rows;
    values[targets[row]] -= 1.0 / logits->rows;
  }
  return loss;
}

void AddTo(const Grid& addend, Grid* sum) {
  for (size_t i = 0; i < addend.values.size(); ++i) sum->values[i] += addend.values[i];
}

}  // namespace gpt::reference
