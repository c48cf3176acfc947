// The transformer on one thread of the host, in double precision.
#include <math.h>

#include <algorithm>

#include "model.h"
#include "reference_ops.h"

namespace gpt {
namespace {

using reference::Grid;
using reference::LinearView;
using reference::NormView;

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-6;

// What the backward pass needs of one block.
struct BlockTrace {
  Grid in;
  Grid attention_norm;
  Grid query_key_value;
  Grid attended;
  Grid middle;
  Grid hidden_norm;
  Grid hidden;
  Grid activated;
};

class ReferenceModel : public Model {
 public:
  ReferenceModel(const Config& config, const Parameters& parameters, const std::vector<float>& initial)
      : config_(config),
        parameters_(parameters),
        values_(initial.begin(), initial.end()),
        slopes_(initial.size()),
        mean_(initial.size()),
        variance_(initial.size()) {}

  void Step(const Batch& batch) override {
    std::fill(slopes_.begin(), slopes_.end(), 0.0);
    std::vector<BlockTrace> traces;
    Grid x = Embed(batch.tokens);
    for (const BlockTensors& block : parameters_.blocks) x = Forward(block, x, &traces);
    const NormView norm = View(parameters_.final_norm);
    const LinearView head = View(parameters_.head, nullptr);
    const Grid normal = reference::Norm(x, norm);
    Grid logits = reference::Linear(normal, head);
    loss_ = reference::SoftmaxLoss(&logits, batch.targets);
    Grid slope = reference::NormBack(x, norm, reference::LinearBack(normal, head, logits));
    for (size_t i = traces.size(); i-- > 0;) Backward(parameters_.blocks[i], traces[i], &slope);
    EmbedBack(batch.tokens, slope);
    Update();
  }

  float Loss() override { return static_cast<float>(loss_); }

  std::vector<float> Values() override { return std::vector<float>(values_.begin(), values_.end()); }

 private:
  NormView View(const NormTensors& norm) {
    return {&values_[norm.scale.offset], &values_[norm.shift.offset], &slopes_[norm.scale.offset],
            &slopes_[norm.shift.offset]};
  }

  LinearView View(const Tensor& weights, const Tensor* bias) {
    return {&values_[weights.offset], bias == nullptr ? nullptr : &values_[bias->offset],
            &slopes_[weights.offset], bias == nullptr ? nullptr : &slopes_[bias->offset], weights.columns};
  }
  LinearView View(const LinearTensors& linear) { return View(linear.weights, &linear.bias); }

  Grid Embed(const std::vector<int>& tokens) const {
    Grid out(config_.Rows(), config_.width);
    for (int row = 0; row < out.rows; ++row) {
      const double* character = &values_[parameters_.characters.offset + size_t(tokens[row]) * config_.width];
      const double* position =
          &values_[parameters_.positions.offset + size_t(row % config_.context) * config_.width];
      for (int j = 0; j < config_.width; ++j) out.Row(row)[j] = character[j] + position[j];
    }
    return out;
  }

  void EmbedBack(const std::vector<int>& tokens, const Grid& slope) {
    for (int row = 0; row < slope.rows; ++row) {
      double* character = &slopes_[parameters_.characters.offset + size_t(tokens[row]) * config_.width];
      double* position =
          &slopes_[parameters_.positions.offset + size_t(row % config_.context) * config_.width];
      for (int j = 0; j < config_.width; ++j) {
        character[j] += slope.Row(row)[j];
        position[j] += slope.Row(row)[j];
      }
    }
  }

  Grid Forward(const BlockTensors& block, const Grid& in, std::vector<BlockTrace>* traces) {
    const Grid attention_norm = reference::Norm(in, View(block.attention_norm));
    const Grid query_key_value = reference::Linear(attention_norm, View(block.query_key_value));
    const Grid attended = reference::Attention(query_key_value, config_.context, config_.heads);
    Grid middle = reference::Linear(attended, View(block.attention_out));
    reference::AddTo(in, &middle);
    const Grid hidden_norm = reference::Norm(middle, View(block.hidden_norm));
    const Grid hidden = reference::Linear(hidden_norm, View(block.hidden_in));
    const Grid activated = reference::Gelu(hidden);
    Grid out = reference::Linear(activated, View(block.hidden_out));
    reference::AddTo(middle, &out);
    traces->push_back(
        {in, attention_norm, query_key_value, attended, middle, hidden_norm, hidden, activated});
    return out;
  }

  // Turns the slope of the block's result into that of its input.
  void Backward(const BlockTensors& block, const BlockTrace& trace, Grid* slope) {
    const Grid activated = reference::LinearBack(trace.activated, View(block.hidden_out), *slope);
    const Grid hidden = reference::GeluBack(trace.hidden, activated);
    const Grid hidden_norm = reference::LinearBack(trace.hidden_norm, View(block.hidden_in), hidden);
    reference::AddTo(reference::NormBack(trace.middle, View(block.hidden_norm), hidden_norm), slope);
    const Grid attended = reference::LinearBack(trace.attended, View(block.attention_out), *slope);
    const Grid query_key_value =
        reference::AttentionBack(trace.query_key_value, config_.context, config_.heads, attended);
    const Grid attention_norm =
        reference::LinearBack(trace.attention_norm, View(block.query_key_value), query_key_value);
    reference::AddTo(reference::NormBack(trace.in, View(block.attention_norm), attention_norm), slope);
  }

  void Update() {
    ++step_;
    for (const Tensor& tensor : parameters_.all) {
      const double decay = tensor.is_matrix() ? config_.weight_decay : 0;
      for (size_t i = tensor.offset; i < tensor.offset + tensor.count(); ++i) UpdateValue(i, decay);
    }
  }

  void UpdateValue(size_t i, double decay) {
    mean_[i] = kBeta1 * mean_[i] + (1 - kBeta1) * slopes_[i];
    variance_[i] = kBeta2 * variance_[i] + (1 - kBeta2) * slopes_[i] * slopes_[i];
    const double rate = config_.learning_rate * sqrt(1 - pow(kBeta2, step_)) / (1 - pow(kBeta1, step_));
    values_[i] -=
        rate * mean_[i] / (sqrt(variance_[i]) + kEpsilon) + config_.learning_rate * decay * values_[i];
  }

  const Config config_;
  const Parameters parameters_;
  std::vector<double> values_;
  std::vector<double> slopes_;
  std::vector<double> mean_;
  std::vector<double> variance_;
  double loss_ = 0;
  int step_ = 0;
};

}  // namespace

std::unique_ptr<Model> MakeReferenceModel(const Config& config, const Parameters& parameters,
                                          const std::vector<float>& initial) {
  return std::make_unique<ReferenceModel>(config, parameters, initial);
}

}  // namespace gpt
