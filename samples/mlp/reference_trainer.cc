// The training in plain loops and in double precision, on one thread of the host. Nothing here is shared with
// the kernels: it says what they ought to compute.
#include <math.h>

#include <algorithm>

#include "trainer.h"

namespace mlp {
namespace {

using Values = std::vector<double>;

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-6;

struct Parameter {
  explicit Parameter(const std::vector<float>& initial)
      : value(initial.begin(), initial.end()),
        mean(initial.size()),
        variance(initial.size()),
        gradient(initial.size()) {}

  void Update(double learning_rate, int step) {
    const double correction1 = 1 - pow(kBeta1, step);
    const double correction2 = 1 - pow(kBeta2, step);
    const double rate = learning_rate * sqrt(correction2) / correction1;
    for (size_t i = 0; i < value.size(); ++i) {
      mean[i] = kBeta1 * mean[i] + (1 - kBeta1) * gradient[i];
      variance[i] = kBeta2 * variance[i] + (1 - kBeta2) * gradient[i] * gradient[i];
      value[i] -= rate * mean[i] / (sqrt(variance[i]) + kEpsilon);
    }
  }

  std::vector<float> Rounded() const { return std::vector<float>(value.begin(), value.end()); }

  Values value;
  Values mean;
  Values variance;
  Values gradient;
};

struct DenseLayer {
  explicit DenseLayer(const Layer& layer)
      : inputs(layer.inputs), outputs(layer.outputs), weights(layer.weights), bias(layer.bias) {}

  int inputs;
  int outputs;
  Parameter weights;
  Parameter bias;
};

Values Forward(const DenseLayer& layer, const Values& in, int rows, bool rectify) {
  Values out(static_cast<size_t>(rows) * layer.outputs);
  for (int row = 0; row < rows; ++row) {
    double* sums = &out[static_cast<size_t>(row) * layer.outputs];
    std::copy(layer.bias.value.begin(), layer.bias.value.end(), sums);
    for (int k = 0; k < layer.inputs; ++k) {
      const double x = in[static_cast<size_t>(row) * layer.inputs + k];
      if (x == 0) continue;
      const double* weights = &layer.weights.value[static_cast<size_t>(k) * layer.outputs];
      for (int j = 0; j < layer.outputs; ++j) sums[j] += x * weights[j];
    }
    if (!rectify) continue;
    for (int j = 0; j < layer.outputs; ++j) sums[j] = std::max(sums[j], 0.0);
  }
  return out;
}

void WeightGradient(DenseLayer* layer, const Values& in, const Values& slope, int rows) {
  std::fill(layer->weights.gradient.begin(), layer->weights.gradient.end(), 0.0);
  std::fill(layer->bias.gradient.begin(), layer->bias.gradient.end(), 0.0);
  for (int row = 0; row < rows; ++row) {
    const double* dy = &slope[static_cast<size_t>(row) * layer->outputs];
    for (int j = 0; j < layer->outputs; ++j) layer->bias.gradient[j] += dy[j];
    for (int k = 0; k < layer->inputs; ++k) {
      const double x = in[static_cast<size_t>(row) * layer->inputs + k];
      if (x == 0) continue;
      double* gradient = &layer->weights.gradient[static_cast<size_t>(k) * layer->outputs];
      for (int j = 0; j < layer->outputs; ++j) gradient[j] += x * dy[j];
    }
  }
}

// The slope of the layer's rectified inputs.
Values InputGradient(const DenseLayer& layer, const Values& in, const Values& slope, int rows) {
  Values out(in.size());
  for (int row = 0; row < rows; ++row) {
    const double* dy = &slope[static_cast<size_t>(row) * layer.outputs];
    for (int k = 0; k < layer.inputs; ++k) {
      const size_t at = static_cast<size_t>(row) * layer.inputs + k;
      if (in[at] <= 0) continue;
      const double* weights = &layer.weights.value[static_cast<size_t>(k) * layer.outputs];
      for (int j = 0; j < layer.outputs; ++j) out[at] += dy[j] * weights[j];
    }
  }
  return out;
}

// Turns logits into the slope of the mean loss, and returns that loss.
double SoftmaxLoss(Values* logits, const std::vector<int>& labels) {
  const int classes = static_cast<int>(logits->size() / labels.size());
  double total = 0;
  for (size_t row = 0; row < labels.size(); ++row) {
    double* values = &(*logits)[row * classes];
    const double top = *std::max_element(values, values + classes);
    double sum = 0;
    for (int j = 0; j < classes; ++j) sum += exp(values[j] - top);
    total += log(sum) + top - values[labels[row]];
    for (int j = 0; j < classes; ++j) {
      const double probability = exp(values[j] - top) / sum;
      values[j] = (probability - (j == labels[row] ? 1 : 0)) / static_cast<double>(labels.size());
    }
  }
  return total / static_cast<double>(labels.size());
}

class ReferenceTrainer : public Trainer {
 public:
  ReferenceTrainer(const Config& config, const Model& initial, const sample::ImageSet& train,
                   const sample::ImageSet& test)
      : config_(config), train_(train), test_(test), layers_(initial.begin(), initial.end()) {}

  void SetOrder(const std::vector<int>& order) override { order_ = order; }

  void Step(int first) override {
    ++step_;
    const std::vector<int> rows(order_.begin() + first, order_.begin() + first + config_.batch);
    std::vector<Values> inputs = {Pixels(train_, rows)};
    for (size_t i = 0; i < layers_.size(); ++i) {
      inputs.push_back(Forward(layers_[i], inputs[i], config_.batch, i + 1 < layers_.size()));
    }
    std::vector<int> labels;
    for (const int row : rows) labels.push_back(train_.labels[row]);
    Values slope = std::move(inputs.back());
    loss_ = SoftmaxLoss(&slope, labels);
    if (!Learns(config_, step_)) return;
    for (size_t i = layers_.size(); i-- > 0;) {
      WeightGradient(&layers_[i], inputs[i], slope, config_.batch);
      if (i > 0) slope = InputGradient(layers_[i], inputs[i], slope, config_.batch);
      layers_[i].weights.Update(config_.learning_rate, step_);
      layers_[i].bias.Update(config_.learning_rate, step_);
    }
  }

  float Loss() override { return static_cast<float>(loss_); }

  int CountCorrect() override {
    int correct = 0;
    for (int row = 0; row < test_.count; ++row) {
      Values values = Pixels(test_, {row});
      for (size_t i = 0; i < layers_.size(); ++i) {
        values = Forward(layers_[i], values, 1, i + 1 < layers_.size());
      }
      const auto best = std::max_element(values.begin(), values.end());
      if (best - values.begin() == test_.labels[row]) ++correct;
    }
    return correct;
  }

  Model Weights() override {
    Model model;
    for (const DenseLayer& layer : layers_) {
      model.push_back({layer.inputs, layer.outputs, layer.weights.Rounded(), layer.bias.Rounded()});
    }
    return model;
  }

  std::string MemoryLine() const override { return ""; }

 private:
  static Values Pixels(const sample::ImageSet& set, const std::vector<int>& rows) {
    Values values;
    for (const int row : rows) {
      const uint8_t* image = &set.images[static_cast<size_t>(row) * set.pixels];
      for (int i = 0; i < set.pixels; ++i) values.push_back(image[i] / 255.0);
    }
    return values;
  }

  const Config config_;
  const sample::ImageSet& train_;
  const sample::ImageSet& test_;
  std::vector<DenseLayer> layers_;
  std::vector<int> order_;
  int step_ = 0;
  double loss_ = 0;
};

}  // namespace

std::unique_ptr<Trainer> MakeReferenceTrainer(const Config& config, const Model& initial,
                                              const sample::ImageSet& train, const sample::ImageSet& test) {
  return std::make_unique<ReferenceTrainer>(config, initial, train, test);
}

}  // namespace mlp
