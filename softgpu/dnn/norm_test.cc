// Normalisations against their formulas in double; slopes against differences of the loss.
#include "softgpu/dnn/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "softgpu/dnn/dnn_testing.h"

namespace softgpu::dnn {
namespace {

constexpr double kEpsilon = 1e-3;
const std::vector<int> kDims = {3, 2, 4, 3};

double Tolerance(int type) {
  return type == CUDNN_DATA_DOUBLE ? 1e-12 : type == CUDNN_DATA_FLOAT ? 2e-5 : 0.05;
}

// All that one batch normalisation works on.
struct Batch {
  Batch(int type, bool per_channel, Order order, bool activates, bool adds)
      : per_channel(per_channel),
        activates(activates),
        adds(adds),
        x(MakeShape(type, kDims, order)),
        z(x.shape()),
        y(x.shape()),
        dy(x.shape()),
        dx(x.shape()),
        dz(x.shape()),
        scale(NormShape(per_channel, x.shape())),
        bias(scale.shape()),
        running_mean(scale.shape()),
        running_variance(scale.shape()),
        saved_mean(scale.shape()),
        saved_inverse(scale.shape()),
        dscale(scale.shape()),
        dbias(scale.shape()),
        mask(MaskBytes(x.shape())) {
    x.FillRandom(1);
    z.FillRandom(2);
    dy.FillRandom(3);
    scale.FillRandom(4);
    bias.FillRandom(5);
    running_mean.FillRandom(6);
    running_variance.FillRandom(7);
  }

  BatchNormParams Params(double factor) const {
    BatchNormParams params;
    params.per_channel = per_channel ? 1 : 0;
    params.activates = activates ? 1 : 0;
    params.epsilon = kEpsilon;
    params.factor = factor;
    return params;
  }

  void Forward(double factor, const Blend& blend) {
    BatchNormForward norm;
    norm.params = Params(factor);
    norm.blend = blend;
    norm.x = x.AsSource();
    if (adds) norm.z = z.AsSource();
    norm.scale = scale.AsSource();
    norm.bias = bias.AsSource();
    norm.y = y.AsTarget();
    norm.running_mean = running_mean.AsTarget();
    norm.running_variance = running_variance.AsTarget();
    norm.saved_mean = saved_mean.AsTarget();
    norm.saved_inverse = saved_inverse.AsTarget();
    norm.mask = mask.data();
    Arena arena;
    ForwardTraining(norm, &arena);
  }

  void RunBackward(bool saved, const Blend& data, const Blend& param) {
    BatchNormBackward norm;
    norm.params = Params(0);
    norm.data_blend = data;
    norm.param_blend = param;
    norm.x = x.AsSource();
    norm.dy = dy.AsSource();
    norm.scale = scale.AsSource();
    if (saved) {
      norm.saved_mean = saved_mean.AsSource();
      norm.saved_inverse = saved_inverse.AsSource();
    }
    norm.dx = dx.AsTarget();
    if (adds) norm.dz = dz.AsTarget();
    norm.dscale = dscale.AsTarget();
    norm.dbias = dbias.AsTarget();
    norm.mask = mask.data();
    Arena arena;
    Backward(norm, &arena);
  }

  // The place in the parameters of one in the data.
  Place Feature(const Place& place) const {
    Place feature = place;
    feature[0] = 0;
    if (per_channel) std::fill(feature.begin() + 2, feature.end(), 0);
    return feature;
  }

  bool per_channel, activates, adds;
  HostTensor x, z, y, dy, dx, dz;
  HostTensor scale, bias, running_mean, running_variance, saved_mean, saved_inverse, dscale, dbias;
  std::vector<uint8_t> mask;
};

// The same in double, for the values that x and the parameters have, or with one of them moved.
struct Model {
  explicit Model(const Batch& batch) : batch(batch) {
    ForEachPlace(batch.x.shape(), [&](const Place& place) { x[place] = batch.x.At(place); });
    ForEachPlace(batch.scale.shape(), [&](const Place& place) {
      scale[place] = batch.scale.At(place);
      bias[place] = batch.bias.At(place);
    });
  }

  void Measure() {
    mean.clear();
    variance.clear();
    samples = static_cast<double>(x.size()) / static_cast<double>(scale.size());
    for (const auto& [place, value] : x) mean[batch.Feature(place)] += value / samples;
    for (const auto& [place, value] : x) {
      variance[batch.Feature(place)] += std::pow(value - mean[batch.Feature(place)], 2) / samples;
    }
  }

  double Result(const Place& place) {
    const Place feature = batch.Feature(place);
    double value =
        (x[place] - mean[feature]) / std::sqrt(variance[feature] + kEpsilon) * scale[feature] + bias[feature];
    if (batch.adds) value += batch.z.At(place);
    return batch.activates ? std::max(value, 0.0) : value;
  }

  // The sum of results times their slopes.
  double Loss() {
    Measure();
    double loss = 0;
    for (const auto& entry : x) loss += Result(entry.first) * batch.dy.At(entry.first);
    return loss;
  }

  double SlopeIn(double* value) {
    constexpr double kStep = 1e-6;
    const double held = *value;
    *value = held + kStep;
    const double above = Loss();
    *value = held - kStep;
    const double below = Loss();
    *value = held;
    return (above - below) / (2 * kStep);
  }

  const Batch& batch;
  std::map<Place, double> x, scale, bias, mean, variance;
  double samples = 0;
};

void ForAll(const std::function<void(int type, bool per_channel, Order, bool activates, bool adds)>& check) {
  for (const int type : kTypes) {
    for (const Order order : kOrders) {
      for (const bool per_channel : {false, true}) {
        for (const int ops : {0, 1, 2}) {
          SCOPED_TRACE(NameOf(type, order) + (per_channel ? " per channel " : " per activation ") +
                       std::to_string(ops));
          check(type, per_channel, order, ops > 0, ops > 1);
        }
      }
    }
  }
}

TEST(BatchNormTest, Training) {
  ForAll([](int type, bool per_channel, Order order, bool activates, bool adds) {
    Batch batch(type, per_channel, order, activates, adds);
    const HostTensor old_mean = batch.running_mean;
    const HostTensor old_variance = batch.running_variance;
    batch.Forward(0.25, {1, 0});
    Model model(batch);
    model.Measure();
    ForEachPlace(batch.x.shape(), [&](const Place& place) {
      ASSERT_NEAR(batch.y.At(place), model.Result(place), Tolerance(type));
    });
    ForEachPlace(batch.scale.shape(), [&](const Place& place) {
      const double mean = model.mean[place];
      const double variance = model.variance[place];
      ASSERT_NEAR(batch.saved_mean.At(place), mean, 2e-7);
      ASSERT_NEAR(batch.saved_inverse.At(place), 1 / std::sqrt(variance + kEpsilon), 2e-5);
      const double unbiased = variance * model.samples / (model.samples - 1);
      ASSERT_NEAR(batch.running_mean.At(place), 0.25 * mean + 0.75 * old_mean.At(place), 1e-6);
      ASSERT_NEAR(batch.running_variance.At(place), 0.25 * unbiased + 0.75 * old_variance.At(place), 1e-6);
    });
  });
}

TEST(BatchNormTest, TheFirstRunningValuesAreNotRead) {
  Batch batch(CUDNN_DATA_FLOAT, true, Order::kChannelsFirst, false, false);
  batch.running_mean.Fill(NAN);
  batch.running_variance.Fill(NAN);
  batch.y.Fill(NAN);
  batch.Forward(1, {1, 0});
  Model model(batch);
  model.Measure();
  ForEachPlace(batch.scale.shape(), [&](const Place& place) {
    ASSERT_NEAR(batch.running_mean.At(place), model.mean[place], 1e-6);
  });
}

TEST(BatchNormTest, BlendsResults) {
  Batch batch(CUDNN_DATA_FLOAT, true, Order::kChannelsFirst, false, false);
  batch.y.FillRandom(9);
  const HostTensor before = batch.y;
  batch.Forward(1, {2, -0.5});
  Model model(batch);
  model.Measure();
  ForEachPlace(batch.x.shape(), [&](const Place& place) {
    ASSERT_NEAR(batch.y.At(place), 2 * model.Result(place) - 0.5 * before.At(place), 1e-5);
  });
}

TEST(BatchNormTest, Inference) {
  ForAll([](int type, bool per_channel, Order order, bool activates, bool adds) {
    Batch batch(type, per_channel, order, activates, adds);
    HostTensor variance(batch.scale.shape());
    variance.Fill(0.5);
    BatchNormForward norm;
    norm.params = batch.Params(0);
    norm.x = batch.x.AsSource();
    if (adds) norm.z = batch.z.AsSource();
    norm.scale = batch.scale.AsSource();
    norm.bias = batch.bias.AsSource();
    norm.y = batch.y.AsTarget();
    Arena arena;
    ForwardInference(norm, batch.running_mean.AsSource(), variance.AsSource(), &arena);
    Model model(batch);
    ForEachPlace(batch.scale.shape(), [&](const Place& place) {
      model.mean[place] = batch.running_mean.At(place);
      model.variance[place] = 0.5;
    });
    ForEachPlace(batch.x.shape(), [&](const Place& place) {
      ASSERT_NEAR(batch.y.At(place), model.Result(place), Tolerance(type));
    });
  });
}

TEST(BatchNormTest, BackwardIsTheSlope) {
  ForAll([](int type, bool per_channel, Order order, bool activates, bool adds) {
    Batch batch(type, per_channel, order, activates, adds);
    batch.Forward(1, {1, 0});
    batch.RunBackward(true, {1, 0}, {1, 0});
    Model model(batch);
    const double tolerance = 8 * Tolerance(type) + 1e-6;
    ForEachPlace(batch.x.shape(), [&](const Place& place) {
      ASSERT_NEAR(batch.dx.At(place), model.SlopeIn(&model.x[place]), tolerance);
      model.Measure();
      const bool passes = !activates || model.Result(place) > 0;
      if (adds) {
        ASSERT_EQ(batch.dz.At(place), passes ? batch.dy.At(place) : 0);
      }
    });
    ForEachPlace(batch.scale.shape(), [&](const Place& place) {
      ASSERT_NEAR(batch.dscale.At(place), model.SlopeIn(&model.scale[place]), tolerance);
      ASSERT_NEAR(batch.dbias.At(place), model.SlopeIn(&model.bias[place]), tolerance);
    });
  });
}

TEST(BatchNormTest, BackwardWithoutSavedStatisticsAndWithBlends) {
  Batch batch(CUDNN_DATA_DOUBLE, true, Order::kChannelsFirst, false, false);
  batch.Forward(1, {1, 0});
  batch.RunBackward(true, {1, 0}, {1, 0});
  const Batch plain = batch;
  batch.RunBackward(false, {2, 1}, {3, -1});
  ForEachPlace(batch.x.shape(),
               [&](const Place& place) { ASSERT_NEAR(batch.dx.At(place), 3 * plain.dx.At(place), 1e-12); });
  ForEachPlace(batch.scale.shape(), [&](const Place& place) {
    ASSERT_NEAR(batch.dscale.At(place), 2 * plain.dscale.At(place), 1e-12);
    ASSERT_NEAR(batch.dbias.At(place), 2 * plain.dbias.At(place), 1e-12);
  });
}

class LrnTest : public testing::Test {
 protected:
  double Result(std::map<Place, double>& x, const Place& place) const {
    double sum = 0;
    const int behind = (static_cast<int>(params_.window) - 1) / 2;
    const int ahead = static_cast<int>(params_.window) - behind - 1;
    for (int c = std::max(place[1] - behind, 0); c <= std::min(place[1] + ahead, kChannels - 1); ++c) {
      Place other = place;
      other[1] = c;
      sum += x[other] * x[other];
    }
    return x[place] * std::pow(params_.k + params_.alpha / params_.window * sum, -params_.beta);
  }

  static constexpr int kChannels = 6;
  const LrnParams params_ = {4, 0.5, 0.75, 2};
};

TEST_F(LrnTest, ForwardAndSlope) {
  for (const int type : kTypes) {
    for (const Order order : kOrders) {
      SCOPED_TRACE(NameOf(type, order));
      HostTensor x(MakeShape(type, {2, kChannels, 2, 2}, order)), y(x.shape()), dy(x.shape()), dx(x.shape());
      x.FillRandom(1);
      dy.FillRandom(2);
      Arena arena;
      LrnForward(params_, {}, x.AsSource(), y.AsTarget(), &arena);
      LrnBackward(params_, {}, y.AsSource(), dy.AsSource(), x.AsSource(), dx.AsTarget(), &arena);
      std::map<Place, double> values;
      ForEachPlace(x.shape(), [&](const Place& place) { values[place] = x.At(place); });
      const auto loss = [&] {
        double sum = 0;
        ForEachPlace(x.shape(), [&](const Place& place) { sum += dy.At(place) * Result(values, place); });
        return sum;
      };
      ForEachPlace(x.shape(), [&](const Place& place) {
        ASSERT_NEAR(y.At(place), Result(values, place), Tolerance(type));
        const double held = values[place];
        values[place] = held + 1e-6;
        const double above = loss();
        values[place] = held - 1e-6;
        const double below = loss();
        values[place] = held;
        ASSERT_NEAR(dx.At(place), (above - below) / 2e-6, Tolerance(type) + 1e-7);
      });
    }
  }
}

}  // namespace
}  // namespace softgpu::dnn
