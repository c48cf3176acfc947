// Pooling against what a window's elements say, in double.
#include "softgpu/dnn/pooling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "softgpu/dnn/dnn_testing.h"

namespace softgpu::dnn {
namespace {

struct Case {
  std::vector<int> x;
  std::vector<int> window, pad, stride;
};

const Case kCases[] = {
    {{2, 3, 8, 6}, {2, 2}, {0, 0}, {2, 2}},
    {{1, 2, 7, 9}, {3, 2}, {1, 1}, {2, 1}},
    {{2, 1, 5, 5}, {3, 3}, {1, 1}, {1, 1}},
    {{1, 2, 4, 5, 6}, {2, 3, 2}, {0, 1, 1}, {1, 2, 2}},
};

PoolingParams ParamsOf(const Case& c, int mode) {
  PoolingParams params;
  params.mode = mode;
  params.space = static_cast<int>(c.window.size());
  for (int i = 0; i < params.space; ++i) {
    params.window[i] = c.window[i];
    params.pad[i] = c.pad[i];
    params.stride[i] = c.stride[i];
  }
  return params;
}

// The elements of x under the window of one output, in order.
std::vector<Place> Under(const Case& c, const Shape& x, const Place& y) {
  std::vector<Place> places;
  std::vector<int> window = {1, 1};
  window.insert(window.end(), c.window.begin(), c.window.end());
  ForEachPlace(MakeShape(CUDNN_DATA_FLOAT, window), [&](const Place& at) {
    Place place = {y[0], y[1]};
    for (size_t i = 0; i < c.window.size(); ++i) {
      place.push_back(y[2 + i] * c.stride[i] - c.pad[i] + at[2 + i]);
      if (place.back() < 0 || place.back() >= x.dim[2 + i]) return;
    }
    places.push_back(place);
  });
  return places;
}

double Divisor(const Case& c, int mode, size_t inside) {
  double whole = 1;
  for (const int size : c.window) whole *= size;
  return mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING ? whole : static_cast<double>(inside);
}

// The first of the largest.
Place LargestOf(const HostTensor& x, const std::vector<Place>& places) {
  Place best = places[0];
  for (const Place& place : places) {
    if (x.At(place) > x.At(best)) best = place;
  }
  return best;
}

bool IsMax(int mode) { return mode == CUDNN_POOLING_MAX || mode == CUDNN_POOLING_MAX_DETERMINISTIC; }

double Pooled(const Case& c, int mode, const HostTensor& x, const std::vector<Place>& places) {
  if (IsMax(mode)) return x.At(LargestOf(x, places));
  double sum = 0;
  for (const Place& place : places) sum += x.At(place);
  return sum / Divisor(c, mode, places.size());
}

void ForAll(const std::function<void(const Case&, int mode, int type, Order, const Blend&)>& check) {
  for (const Case& c : kCases) {
    for (int mode = CUDNN_POOLING_MAX; mode <= CUDNN_POOLING_MAX_DETERMINISTIC; ++mode) {
      for (const int type : kTypes) {
        for (const Order order : kOrders) {
          SCOPED_TRACE(NameOf(type, order) + " case " + std::to_string(&c - kCases) + " mode " +
                       std::to_string(mode));
          for (const Blend& blend : {Blend{1, 0}, Blend{1.5, -0.5}}) check(c, mode, type, order, blend);
        }
      }
    }
  }
}

Shape OutputOf(const Case& c, int mode, const Shape& x, Order order) {
  Shape y;
  EXPECT_TRUE(PooledShape(ParamsOf(c, mode), x, &y));
  return MakeShape(x.type, std::vector<int>(y.dim, y.dim + y.rank), order);
}

TEST(PoolingTest, Forward) {
  ForAll([](const Case& c, int mode, int type, Order order, const Blend& blend) {
    HostTensor x(MakeShape(type, c.x, order));
    x.FillRandom(1);
    HostTensor y(OutputOf(c, mode, x.shape(), order));
    if (blend.beta != 0) y.FillRandom(2);
    const HostTensor before = y;
    Arena arena;
    PoolingForward(ParamsOf(c, mode), blend, x.AsSource(), y.AsTarget(), &arena);
    ForEachPlace(y.shape(), [&](const Place& place) {
      const double old = blend.beta == 0 ? 0 : blend.beta * before.At(place);
      const double expected = blend.alpha * Pooled(c, mode, x, Under(c, x.shape(), place)) + old;
      ASSERT_NEAR(y.At(place), expected, Bound(type, 16, 4, expected));
    });
  });
}

TEST(PoolingTest, Backward) {
  ForAll([](const Case& c, int mode, int type, Order order, const Blend& blend) {
    HostTensor x(MakeShape(type, c.x, order));
    x.FillRandom(3);
    HostTensor dy(OutputOf(c, mode, x.shape(), order));
    dy.FillRandom(4);
    HostTensor dx(x.shape());
    if (blend.beta != 0) dx.FillRandom(5);
    const HostTensor before = dx;
    std::map<Place, double> slopes;
    ForEachPlace(dy.shape(), [&](const Place& place) {
      const std::vector<Place> places = Under(c, x.shape(), place);
      if (IsMax(mode)) {
        slopes[LargestOf(x, places)] += dy.At(place);
      } else {
        for (const Place& under : places) slopes[under] += dy.At(place) / Divisor(c, mode, places.size());
      }
    });
    Arena arena;
    PoolingBackward(ParamsOf(c, mode), blend, dy.AsSource(), x.AsSource(), dx.AsTarget(), &arena);
    ForEachPlace(dx.shape(), [&](const Place& place) {
      const double old = blend.beta == 0 ? 0 : blend.beta * before.At(place);
      const double expected = blend.alpha * slopes[place] + old;
      ASSERT_NEAR(dx.At(place), expected, Bound(type, 16, 16, expected));
    });
  });
}

TEST(PoolingTest, NansArePropagatedOnRequest) {
  const Case c = {{1, 1, 2, 2}, {2, 2}, {0, 0}, {2, 2}};
  HostTensor x(MakeShape(CUDNN_DATA_FLOAT, c.x));
  x.Fill(-1);
  x.Put({0, 0, 0, 0}, NAN);
  HostTensor y(MakeShape(CUDNN_DATA_FLOAT, {1, 1, 1, 1}));
  Arena arena;
  PoolingParams params = ParamsOf(c, CUDNN_POOLING_MAX);
  PoolingForward(params, {}, x.AsSource(), y.AsTarget(), &arena);
  EXPECT_EQ(y.At({0, 0, 0, 0}), -1);
  params.propagate_nan = 1;
  PoolingForward(params, {}, x.AsSource(), y.AsTarget(), &arena);
  EXPECT_TRUE(std::isnan(y.At({0, 0, 0, 0})));
}

}  // namespace
}  // namespace softgpu::dnn
