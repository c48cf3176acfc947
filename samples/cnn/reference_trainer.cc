// The training in plain loops and in double precision, on one thread of the host. Nothing here is shared with
// the device: it says what that ought to compute. What is dropped comes from a generator of its own, so that
// the two can be compared without dropout only.
#include <math.h>

#include <algorithm>

#include "../common/random.h"
#include "trainer.h"

namespace cnn {
namespace {

using Doubles = std::vector<double>;

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kAdamEpsilon = 1e-6;

struct Parameter {
  explicit Parameter(const Values& initial)
      : value(initial.begin(), initial.end()),
        mean(initial.size()),
        variance(initial.size()),
        gradient(initial.size()) {}

  void Update(double learning_rate, int step) {
    const double rate = learning_rate * sqrt(1 - pow(kBeta2, step)) / (1 - pow(kBeta1, step));
    for (size_t i = 0; i < value.size(); ++i) {
      mean[i] = kBeta1 * mean[i] + (1 - kBeta1) * gradient[i];
      variance[i] = kBeta2 * variance[i] + (1 - kBeta2) * gradient[i] * gradient[i];
      value[i] -= rate * mean[i] / (sqrt(variance[i]) + kAdamEpsilon);
    }
  }

  Values Rounded() const { return Values(value.begin(), value.end()); }

  Doubles value;
  Doubles mean;
  Doubles variance;
  Doubles gradient;
};

// Values between layers: images x channels x side x side.
struct Activation {
  Activation(int images, int channels, int side)
      : images(images), channels(channels), side(side), values(size_t(images) * channels * side * side) {}

  int Plane() const { return side * side; }
  double* At(int image, int channel) { return &values[(size_t(image) * channels + channel) * Plane()]; }
  const double* At(int image, int channel) const {
    return &values[(size_t(image) * channels + channel) * Plane()];
  }

  int images;
  int channels;
  int side;
  Doubles values;
};

// A 3 x 3 convolution with a border of zeros. For each tap, the part of a plane where it stays inside.
struct Tap {
  Tap(int row, int column, int side)
      : row(row),
        column(column),
        top(std::max(0, -row)),
        bottom(std::min(side, side - row)),
        left(std::max(0, -column)),
        right(std::min(side, side - column)) {}

  int row, column;               // of the input, from the output
  int top, bottom, left, right;  // of the output
};

// Calls body(index of the tap, tap) for the nine taps.
template <typename Body>
void ForEachTap(int side, Body&& body) {
  for (int i = 0; i < 9; ++i) body(i, Tap(i / 3 - 1, i % 3 - 1, side));
}

// Calls body(first place in the output, first in the input, count) for each row that the tap covers.
template <typename Body>
void ForEachRow(const Tap& tap, int side, Body&& body) {
  for (int y = tap.top; y < tap.bottom; ++y) {
    body(y * side + tap.left, (y + tap.row) * side + tap.left + tap.column, tap.right - tap.left);
  }
}

Activation Convolve(const Activation& x, const Parameter& filter, int filters) {
  Activation out(x.images, filters, x.side);
  for (int image = 0; image < x.images; ++image) {
    for (int k = 0; k < filters; ++k) {
      for (int c = 0; c < x.channels; ++c) {
        ForEachTap(x.side, [&](int index, const Tap& tap) {
          const double weight = filter.value[(size_t(k) * x.channels + c) * 9 + index];
          ForEachRow(tap, x.side, [&](int to, int from, int count) {
            double* sums = out.At(image, k) + to;
            const double* values = x.At(image, c) + from;
            for (int i = 0; i < count; ++i) sums[i] += weight * values[i];
          });
        });
      }
    }
  }
  return out;
}

// Sets the filter's gradient and returns the slope in x.
Activation ConvolveSlope(const Activation& x, const Activation& slope, Parameter* filter) {
  Activation out(x.images, x.channels, x.side);
  std::fill(filter->gradient.begin(), filter->gradient.end(), 0.0);
  for (int image = 0; image < x.images; ++image) {
    for (int k = 0; k < slope.channels; ++k) {
      for (int c = 0; c < x.channels; ++c) {
        ForEachTap(x.side, [&](int index, const Tap& tap) {
          const size_t at = (size_t(k) * x.channels + c) * 9 + index;
          const double weight = filter->value[at];
          double sum = 0;
          ForEachRow(tap, x.side, [&](int to, int from, int count) {
            const double* dy = slope.At(image, k) + to;
            const double* values = x.At(image, c) + from;
            double* dx = out.At(image, c) + from;
            for (int i = 0; i < count; ++i) {
              sum += dy[i] * values[i];
              dx[i] += weight * dy[i];
            }
          });
          filter->gradient[at] += sum;
        });
      }
    }
  }
  return out;
}

struct Norm {
  explicit Norm(const BlockModel& model)
      : scale(model.scale),
        shift(model.shift),
        running_mean(model.mean.begin(), model.mean.end()),
        running_variance(model.variance.begin(), model.variance.end()),
        mean(model.outputs),
        inverse(model.outputs) {}

  void Measure(const Activation& x) {
    const double samples = double(x.images) * x.Plane();
    for (int c = 0; c < x.channels; ++c) {
      double sum = 0;
      for (int image = 0; image < x.images; ++image) {
        for (int i = 0; i < x.Plane(); ++i) sum += x.At(image, c)[i];
      }
      mean[c] = sum / samples;
      double squares = 0;
      for (int image = 0; image < x.images; ++image) {
        for (int i = 0; i < x.Plane(); ++i) squares += pow(x.At(image, c)[i] - mean[c], 2);
      }
      inverse[c] = 1 / sqrt(squares / samples + kEpsilon);
      running_mean[c] += kMomentum * (mean[c] - running_mean[c]);
      running_variance[c] += kMomentum * (squares / (samples - 1) - running_variance[c]);
    }
  }

  void UseRunning() {
    mean = running_mean;
    for (size_t c = 0; c < inverse.size(); ++c) inverse[c] = 1 / sqrt(running_variance[c] + kEpsilon);
  }

  Activation Apply(const Activation& x) const {
    Activation out = x;
    for (int image = 0; image < x.images; ++image) {
      for (int c = 0; c < x.channels; ++c) {
        for (int i = 0; i < x.Plane(); ++i) {
          double& value = out.At(image, c)[i];
          value = (value - mean[c]) * inverse[c] * scale.value[c] + shift.value[c];
        }
      }
    }
    return out;
  }

  Activation Slope(const Activation& x, const Activation& slope) {
    Activation out = slope;
    const double samples = double(x.images) * x.Plane();
    for (int c = 0; c < x.channels; ++c) {
      double sum = 0;
      double product = 0;
      for (int image = 0; image < x.images; ++image) {
        for (int i = 0; i < x.Plane(); ++i) {
          sum += slope.At(image, c)[i];
          product += slope.At(image, c)[i] * (x.At(image, c)[i] - mean[c]) * inverse[c];
        }
      }
      shift.gradient[c] = sum;
      scale.gradient[c] = product;
      for (int image = 0; image < x.images; ++image) {
        for (int i = 0; i < x.Plane(); ++i) {
          const double normalised = (x.At(image, c)[i] - mean[c]) * inverse[c];
          double& value = out.At(image, c)[i];
          value = scale.value[c] * inverse[c] * (value - sum / samples - normalised * product / samples);
        }
      }
    }
    return out;
  }

  Parameter scale;
  Parameter shift;
  Doubles running_mean;
  Doubles running_variance;
  Doubles mean;
  Doubles inverse;
};

void Rectify(Doubles* values) {
  for (double& value : *values) value = std::max(value, 0.0);
}

// `x` before or after it was rectified.
void RectifySlope(const Doubles& x, Doubles* slope) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] <= 0) (*slope)[i] = 0;
  }
}

// Where the largest of 2 x 2 values is, the first of equal ones.
int LargestAt(const double* plane, int side, int row, int column) {
  int best = 2 * row * side + 2 * column;
  for (const int at : {best + 1, best + side, best + side + 1}) {
    if (plane[at] > plane[best]) best = at;
  }
  return best;
}

template <typename Body>
void ForEachPooled(const Activation& x, Body&& body) {
  const int half = x.side / 2;
  for (int image = 0; image < x.images; ++image) {
    for (int c = 0; c < x.channels; ++c) {
      for (int i = 0; i < half * half; ++i)
        body(image, c, i, LargestAt(x.At(image, c), x.side, i / half, i % half));
    }
  }
}

Activation PoolLargest(const Activation& x) {
  Activation out(x.images, x.channels, x.side / 2);
  ForEachPooled(x, [&](int image, int c, int to, int from) { out.At(image, c)[to] = x.At(image, c)[from]; });
  return out;
}

Activation PoolSlope(const Activation& x, const Activation& slope) {
  Activation out(x.images, x.channels, x.side);
  ForEachPooled(
      x, [&](int image, int c, int from, int to) { out.At(image, c)[to] += slope.At(image, c)[from]; });
  return out;
}

// convolution -> normalisation -> ReLU -> pooling, with what the way back needs.
struct Block {
  explicit Block(const BlockModel& model) : outputs(model.outputs), filter(model.filter), norm(model) {}

  Activation Forward(const Activation& x, bool trains) {
    convolved = Convolve(x, filter, outputs);
    if (trains) {
      norm.Measure(convolved);
    } else {
      norm.UseRunning();
    }
    rectified = norm.Apply(convolved);
    Rectify(&rectified.values);
    return PoolLargest(rectified);
  }

  Activation Backward(const Activation& x, const Activation& slope) {
    Activation dx = PoolSlope(rectified, slope);
    RectifySlope(rectified.values, &dx.values);
    return ConvolveSlope(x, norm.Slope(convolved, dx), &filter);
  }

  int outputs;
  Parameter filter;
  Norm norm;
  Activation convolved{0, 0, 0};
  Activation rectified{0, 0, 0};
};

struct Dense {
  explicit Dense(const DenseModel& model)
      : inputs(model.inputs), outputs(model.outputs), weights(model.weights), bias(model.bias) {}

  Doubles Forward(const Doubles& x, int rows) const {
    Doubles out(size_t(rows) * outputs);
    for (int row = 0; row < rows; ++row) {
      for (int j = 0; j < outputs; ++j) {
        double sum = bias.value[j];
        for (int k = 0; k < inputs; ++k)
          sum += x[size_t(row) * inputs + k] * weights.value[size_t(j) * inputs + k];
        out[size_t(row) * outputs + j] = sum;
      }
    }
    return out;
  }

  Doubles Backward(const Doubles& x, const Doubles& slope, int rows) {
    Doubles out(x.size());
    std::fill(weights.gradient.begin(), weights.gradient.end(), 0.0);
    std::fill(bias.gradient.begin(), bias.gradient.end(), 0.0);
    for (int row = 0; row < rows; ++row) {
      for (int j = 0; j < outputs; ++j) {
        const double dy = slope[size_t(row) * outputs + j];
        bias.gradient[j] += dy;
        for (int k = 0; k < inputs; ++k) {
          weights.gradient[size_t(j) * inputs + k] += dy * x[size_t(row) * inputs + k];
          out[size_t(row) * inputs + k] += dy * weights.value[size_t(j) * inputs + k];
        }
      }
    }
    return out;
  }

  int inputs;
  int outputs;
  Parameter weights;
  Parameter bias;
};

// Turns logits into the slope of the mean loss, and returns that loss.
double SoftmaxLoss(Doubles* logits, const std::vector<int>& labels) {
  const double rows = static_cast<double>(labels.size());
  double total = 0;
  for (size_t row = 0; row < labels.size(); ++row) {
    double* values = &(*logits)[row * sample::kClasses];
    const double top = *std::max_element(values, values + sample::kClasses);
    double sum = 0;
    for (int j = 0; j < sample::kClasses; ++j) sum += exp(values[j] - top);
    total += log(sum) + top - values[labels[row]];
    for (int j = 0; j < sample::kClasses; ++j) {
      values[j] = (exp(values[j] - top) / sum - (j == labels[row] ? 1 : 0)) / rows;
    }
  }
  return total / rows;
}

class ReferenceTrainer : public Trainer {
 public:
  ReferenceTrainer(const Config& config, const Model& initial, const sample::ImageSet& train,
                   const sample::ImageSet& test)
      : config_(config),
        model_(initial),
        train_(train),
        test_(test),
        random_(config.seed ^ 0x64726f70u),
        first_(initial.blocks[0]),
        second_(initial.blocks[1]),
        hidden_(initial.hidden),
        classes_(initial.classes) {}

  void SetOrder(const std::vector<int>& order) override { order_ = order; }

  void Step(int first) override {
    const std::vector<int> rows(order_.begin() + first, order_.begin() + first + config_.batch);
    std::vector<int> labels;
    for (const int row : rows) labels.push_back(train_.labels[row]);
    Doubles slope = Forward(Pixels(train_, rows), true);
    loss_ = SoftmaxLoss(&slope, labels);
    Backward(slope);
    ++step_;
    for (Parameter* parameter : All()) parameter->Update(config_.learning_rate, step_);
  }

  float Loss() override { return static_cast<float>(loss_); }

  int CountCorrect(int images) override {
    int correct = 0;
    for (int image = 0; image < images; ++image) {
      const Doubles values = Forward(Pixels(test_, {image}), false);
      const auto best = std::max_element(values.begin(), values.end());
      if (best - values.begin() == test_.labels[image]) ++correct;
    }
    return correct;
  }

  Model Weights() override {
    Model model = model_;
    const Block* const blocks[] = {&first_, &second_};
    for (int i = 0; i < 2; ++i) {
      const Norm& norm = blocks[i]->norm;
      model.blocks[i].filter = blocks[i]->filter.Rounded();
      model.blocks[i].scale = norm.scale.Rounded();
      model.blocks[i].shift = norm.shift.Rounded();
      model.blocks[i].mean.assign(norm.running_mean.begin(), norm.running_mean.end());
      model.blocks[i].variance.assign(norm.running_variance.begin(), norm.running_variance.end());
    }
    model.hidden.weights = hidden_.weights.Rounded();
    model.hidden.bias = hidden_.bias.Rounded();
    model.classes.weights = classes_.weights.Rounded();
    model.classes.bias = classes_.bias.Rounded();
    return model;
  }

 private:
  static Activation Pixels(const sample::ImageSet& set, const std::vector<int>& rows) {
    Activation pixels(static_cast<int>(rows.size()), 1, kSide);
    for (size_t row = 0; row < rows.size(); ++row) {
      const uint8_t* image = &set.images[size_t(rows[row]) * set.pixels];
      for (int i = 0; i < set.pixels; ++i) pixels.values[row * set.pixels + i] = image[i] / 255.0;
    }
    return pixels;
  }

  std::vector<Parameter*> All() {
    return {&first_.filter,      &first_.norm.scale,  &first_.norm.shift, &second_.filter,
            &second_.norm.scale, &second_.norm.shift, &hidden_.weights,   &hidden_.bias,
            &classes_.weights,   &classes_.bias};
  }

  // Multiplies by 0 or 1 / (1 - dropout), and keeps by which.
  void Drop(Doubles* values) {
    kept_.assign(values->size(), 0.0);
    for (size_t i = 0; i < values->size(); ++i) {
      const double draw = static_cast<double>(random_.Next() >> 11) * 0x1p-53;
      kept_[i] = draw < config_.dropout ? 0 : 1 / (1 - config_.dropout);
      (*values)[i] *= kept_[i];
    }
  }

  // The logits.
  Doubles Forward(Activation pixels, bool trains) {
    pixels_ = std::move(pixels);
    middle_ = first_.Forward(pixels_, trains);
    features_ = second_.Forward(middle_, trains);
    if (trains) Drop(&features_.values);
    units_ = hidden_.Forward(features_.values, pixels_.images);
    Rectify(&units_);
    return classes_.Forward(units_, pixels_.images);
  }

  void Backward(const Doubles& slope) {
    Doubles units = classes_.Backward(units_, slope, pixels_.images);
    RectifySlope(units_, &units);
    Activation features(pixels_.images, features_.channels, features_.side);
    features.values = hidden_.Backward(features_.values, units, pixels_.images);
    for (size_t i = 0; i < kept_.size(); ++i) features.values[i] *= kept_[i];
    first_.Backward(pixels_, second_.Backward(middle_, features));
  }

  const Config config_;
  const Model model_;
  const sample::ImageSet& train_;
  const sample::ImageSet& test_;
  sample::Random random_;
  Block first_;
  Block second_;
  Dense hidden_;
  Dense classes_;
  Activation pixels_{0, 0, 0};
  Activation middle_{0, 0, 0};
  Activation features_{0, 0, 0};
  Doubles units_;
  Doubles kept_;
  std::vector<int> order_;
  int step_ = 0;
  double loss_ = 0;
};

}  // namespace

std::unique_ptr<Trainer> MakeReferenceTrainer(const Config& config, const Model& initial,
                                              const sample::ImageSet& train, const sample::ImageSet& test) {
  return std::make_unique<ReferenceTrainer>(config, initial, train, test);
}

}  // namespace cnn
