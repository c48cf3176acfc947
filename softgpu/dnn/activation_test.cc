// Activations and softmax against their formulas in double; slopes against differences of the function.
#include "softgpu/dnn/activation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "softgpu/dnn/dnn_testing.h"

namespace softgpu::dnn {
namespace {

constexpr double kCoefficient = 0.5;
constexpr double kSwishBeta = 1.5;

double Function(int mode, double x) {
  switch (mode) {
    case CUDNN_ACTIVATION_SIGMOID:
      return 1 / (1 + std::exp(-x));
    case CUDNN_ACTIVATION_RELU:
      return std::max(x, 0.0);
    case CUDNN_ACTIVATION_TANH:
      return std::tanh(x);
    case CUDNN_ACTIVATION_CLIPPED_RELU:
      return std::min(std::max(x, 0.0), kCoefficient);
    case CUDNN_ACTIVATION_ELU:
      return x > 0 ? x : kCoefficient * (std::exp(x) - 1);
    case CUDNN_ACTIVATION_SWISH:
      return x / (1 + std::exp(-kSwishBeta * x));
    default:
      return x;
  }
}

ActivationParams ParamsOf(int mode) { return {mode, 0, kCoefficient, kSwishBeta}; }

const std::vector<int> kDims = {2, 3, 4, 5};

// Values of the function and its slope are off by a few roundings, the 16-bit types' own included.
double Tolerance(int type) {
  return type == CUDNN_DATA_DOUBLE ? 1e-14 : type == CUDNN_DATA_FLOAT ? 2e-6 : 0.02;
}

TEST(ActivationTest, Forward) {
  for (int mode = CUDNN_ACTIVATION_SIGMOID; mode <= CUDNN_ACTIVATION_SWISH; ++mode) {
    for (const int type : kTypes) {
      for (const Order order : kOrders) {
        SCOPED_TRACE(NameOf(type, order) + " mode " + std::to_string(mode));
        HostTensor x(MakeShape(type, kDims, order));
        x.FillRandom(1);
        HostTensor y(x.shape());
        Arena arena;
        ActivationForward(ParamsOf(mode), {2, 0}, x.AsSource(), y.AsTarget(), &arena);
        ForEachPlace(x.shape(), [&](const Place& place) {
          ASSERT_NEAR(y.At(place), 2 * Function(mode, x.At(place)), Tolerance(type));
        });
      }
    }
  }
}

TEST(ActivationTest, BackwardIsTheSlope) {
  for (int mode = CUDNN_ACTIVATION_SIGMOID; mode <= CUDNN_ACTIVATION_SWISH; ++mode) {
    for (const int type : kTypes) {
      SCOPED_TRACE(NameOf(type, Order::kChannelsFirst) + " mode " + std::to_string(mode));
      HostTensor x(MakeShape(type, kDims));
      x.FillRandom(2);
      // Not at the kinks, where there is no slope.
      x.FillWith([&](const Place& place) { return x.At(place) + 1.0 / 128; });
      HostTensor y(x.shape()), dy(x.shape()), dx(x.shape());
      dy.FillRandom(3);
      dx.FillRandom(4);
      const HostTensor before = dx;
      y.FillWith([&](const Place& place) { return Function(mode, x.At(place)); });
      Arena arena;
      ActivationBackward(ParamsOf(mode), {1, 0.5}, y.AsSource(), dy.AsSource(), x.AsSource(), dx.AsTarget(),
                         &arena);
      ForEachPlace(x.shape(), [&](const Place& place) {
        constexpr double kStep = 1e-6;
        const double slope =
            (Function(mode, x.At(place) + kStep) - Function(mode, x.At(place) - kStep)) / (2 * kStep);
        ASSERT_NEAR(dx.At(place), dy.At(place) * slope + 0.5 * before.At(place), Tolerance(type) + 1e-8);
      });
    }
  }
}

TEST(ActivationTest, NansStayOnlyWhenPropagated) {
  const float x[] = {NAN, -1, 2};
  float y[3];
  ActivationParams params = ParamsOf(CUDNN_ACTIVATION_RELU);
  Activate(params, 3, x, y);
  EXPECT_EQ(y[0], 0);
  params.propagate_nan = 1;
  Activate(params, 3, x, y);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 2);
}

// The places over which the softmax of the one at `place` goes.
std::vector<Place> SetOf(int mode, const Shape& shape, const Place& place) {
  std::vector<Place> places;
  ForEachPlace(shape, [&](const Place& other) {
    const bool same_space = std::equal(place.begin() + 2, place.end(), other.begin() + 2);
    if (other[0] == place[0] && (mode == CUDNN_SOFTMAX_MODE_INSTANCE || same_space)) places.push_back(other);
  });
  return places;
}

double SoftmaxOf(int algorithm, const HostTensor& x, const std::vector<Place>& set, const Place& place) {
  double sum = 0;
  for (const Place& other : set) sum += std::exp(x.At(other));
  return algorithm == CUDNN_SOFTMAX_LOG ? x.At(place) - std::log(sum) : std::exp(x.At(place)) / sum;
}

double SlopeOf(int algorithm, const HostTensor& y, const HostTensor& dy, const std::vector<Place>& set,
               const Place& place) {
  double sum = 0;
  const bool log = algorithm == CUDNN_SOFTMAX_LOG;
  for (const Place& other : set) sum += dy.At(other) * (log ? 1 : y.At(other));
  return log ? dy.At(place) - std::exp(y.At(place)) * sum : y.At(place) * (dy.At(place) - sum);
}

TEST(SoftmaxTest, ForwardAndBackward) {
  for (int algorithm = CUDNN_SOFTMAX_FAST; algorithm <= CUDNN_SOFTMAX_LOG; ++algorithm) {
    for (int mode = CUDNN_SOFTMAX_MODE_INSTANCE; mode <= CUDNN_SOFTMAX_MODE_CHANNEL; ++mode) {
      for (const int type : kTypes) {
        for (const Order order : kOrders) {
          SCOPED_TRACE(NameOf(type, order) + " algorithm " + std::to_string(algorithm) + " mode " +
                       std::to_string(mode));
          HostTensor x(MakeShape(type, kDims, order)), dy(x.shape());
          x.FillRandom(5);
          dy.FillRandom(6);
          HostTensor y(x.shape()), dx(x.shape());
          Arena arena;
          SoftmaxForward({algorithm, mode}, {}, x.AsSource(), y.AsTarget(), &arena);
          SoftmaxBackward({algorithm, mode}, {}, y.AsSource(), dy.AsSource(), dx.AsTarget(), &arena);
          ForEachPlace(x.shape(), [&](const Place& place) {
            const std::vector<Place> set = SetOf(mode, x.shape(), place);
            ASSERT_NEAR(y.At(place), SoftmaxOf(algorithm, x, set, place), 2 * Tolerance(type));
            ASSERT_NEAR(dx.At(place), SlopeOf(algorithm, y, dy, set, place), 2 * Tolerance(type));
          });
        }
      }
    }
  }
}

TEST(SoftmaxTest, LargeValuesOverflowOnlyWhereTheyMay) {
  HostTensor x(MakeShape(CUDNN_DATA_FLOAT, {1, 2, 1, 1}));
  x.Put({0, 0, 0, 0}, 1000);
  x.Put({0, 1, 0, 0}, 1000);
  HostTensor y(x.shape());
  Arena arena;
  SoftmaxForward({CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL}, {}, x.AsSource(), y.AsTarget(),
                 &arena);
  EXPECT_EQ(y.At({0, 0, 0, 0}), 0.5);
  SoftmaxForward({CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_MODE_CHANNEL}, {}, x.AsSource(), y.AsTarget(), &arena);
  EXPECT_TRUE(std::isnan(y.At({0, 0, 0, 0})));
}

}  // namespace
}  // namespace softgpu::dnn
