// Element by element, and reductions, against the same in double.
#include "softgpu/dnn/pointwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "softgpu/dnn/dnn_testing.h"

namespace softgpu::dnn {
namespace {

const std::vector<int> kDims = {2, 3, 4, 5};
const std::vector<std::vector<int>> kParts = {
    {2, 3, 4, 5}, {1, 3, 1, 1}, {1, 1, 1, 1}, {2, 1, 4, 1}, {1, 3, 4, 5}};

// Where the element of `part` is that goes with one of the whole.
Place PlaceIn(const Shape& part, Place place) {
  for (int i = 0; i < part.rank; ++i) place[i] = part.dim[i] == 1 ? 0 : place[i];
  return place;
}

void ForAll(const std::function<void(int type, Order, const std::vector<int>& part)>& check) {
  for (const int type : kTypes) {
    for (const Order order : kOrders) {
      for (const auto& part : kParts) {
        SCOPED_TRACE(NameOf(type, order) + " part " + std::to_string(&part - kParts.data()));
        check(type, order, part);
      }
    }
  }
}

TEST(PointwiseTest, Add) {
  ForAll([](int type, Order order, const std::vector<int>& part) {
    HostTensor x(MakeShape(type, part, order)), y(MakeShape(type, kDims, order));
    x.FillRandom(1);
    y.FillRandom(2);
    const HostTensor before = y;
    Arena arena;
    AddTensor({0.75, -2}, x.AsSource(), y.AsTarget(), &arena);
    ForEachPlace(y.shape(), [&](const Place& place) {
      const double expected = 0.75 * x.At(PlaceIn(x.shape(), place)) - 2 * before.At(place);
      ASSERT_NEAR(y.At(place), expected, Bound(type, 2, 3, expected));
    });
    y = HostTensor(y.shape());  // NaNs, not to be read
    AddTensor({1, 0}, x.AsSource(), y.AsTarget(), &arena);
    ForEachPlace(y.shape(),
                 [&](const Place& place) { ASSERT_EQ(y.At(place), x.At(PlaceIn(x.shape(), place))); });
  });
}

TEST(PointwiseTest, GapsAreLeftAlone) {
  HostTensor y(MakeShape(CUDNN_DATA_FLOAT, kDims, Order::kGaps));
  const HostTensor before = y;
  const float value = 0.25f;
  SetTensor(y.AsTarget(), &value);
  size_t changed = 0;
  for (size_t i = 0; i < y.bytes().size(); i += sizeof(float)) {
    changed += std::memcmp(&y.bytes()[i], &before.bytes()[i], sizeof(float)) != 0;
  }
  EXPECT_EQ(changed, y.shape().Count());
  ForEachPlace(y.shape(), [&](const Place& place) { ASSERT_EQ(y.At(place), 0.25); });
}

double Applied(int op, double a, double b) {
  switch (op) {
    case CUDNN_OP_TENSOR_ADD:
      return a + b;
    case CUDNN_OP_TENSOR_MUL:
      return a * b;
    case CUDNN_OP_TENSOR_MIN:
      return std::min(a, b);
    case CUDNN_OP_TENSOR_MAX:
      return std::max(a, b);
    case CUDNN_OP_TENSOR_SQRT:
      return std::sqrt(a);
    default:
      return 1 - a;
  }
}

TEST(PointwiseTest, Operations) {
  for (int op = CUDNN_OP_TENSOR_ADD; op <= CUDNN_OP_TENSOR_NOT; ++op) {
    const bool two = op < CUDNN_OP_TENSOR_SQRT;
    ForAll([=](int type, Order order, const std::vector<int>& part) {
      HostTensor a(MakeShape(type, kDims, order)), b(MakeShape(type, part, order)), c(a.shape());
      a.FillRandom(3);
      if (op == CUDNN_OP_TENSOR_SQRT) a.FillWith([&](const Place& place) { return std::fabs(a.At(place)); });
      b.FillRandom(4);
      c.FillRandom(5);
      const HostTensor before = c;
      Arena arena;
      OpTensor({op, 0, 2, -0.5}, 0.5, a.AsSource(), two ? b.AsSource() : Source{}, c.AsTarget(), &arena);
      ForEachPlace(c.shape(), [&](const Place& place) {
        const double right = two ? -0.5 * b.At(PlaceIn(b.shape(), place)) : 0;
        const double expected = Applied(op, 2 * a.At(place), right) + 0.5 * before.At(place);
        ASSERT_NEAR(c.At(place), expected, Bound(type, 3, 3, expected));
      });
    });
  }
}

struct Reduced {
  double value = 0;
  size_t seen = 0;
  uint32_t index = 0;
};

void Take(int op, double x, Reduced* r) {
  const double magnitude = std::fabs(x);
  const double key = op == CUDNN_REDUCE_TENSOR_AMAX ? magnitude : op == CUDNN_REDUCE_TENSOR_MIN ? -x : x;
  switch (op) {
    case CUDNN_REDUCE_TENSOR_MUL:
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
      if (r->seen == 0) r->value = 1;
      r->value *= op == CUDNN_REDUCE_TENSOR_MUL || x != 0 ? x : 1;
      break;
    case CUDNN_REDUCE_TENSOR_MIN:
    case CUDNN_REDUCE_TENSOR_MAX:
    case CUDNN_REDUCE_TENSOR_AMAX:
      if (r->seen == 0 || key > (op == CUDNN_REDUCE_TENSOR_MIN ? -r->value : r->value)) {
        r->value = op == CUDNN_REDUCE_TENSOR_AMAX ? magnitude : x;
        r->index = static_cast<uint32_t>(r->seen);
      }
      break;
    case CUDNN_REDUCE_TENSOR_NORM1:
      r->value += magnitude;
      break;
    case CUDNN_REDUCE_TENSOR_NORM2:
      r->value += x * x;
      break;
    default:
      r->value += x;
  }
  ++r->seen;
}

double Finished(int op, const Reduced& r) {
  if (op == CUDNN_REDUCE_TENSOR_AVG) return r.value / static_cast<double>(r.seen);
  return op == CUDNN_REDUCE_TENSOR_NORM2 ? std::sqrt(r.value) : r.value;
}

TEST(ReduceTest, Operations) {
  for (int op = CUDNN_REDUCE_TENSOR_ADD; op <= CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS; ++op) {
    SCOPED_TRACE("operation " + std::to_string(op));
    ForAll([=](int type, Order order, const std::vector<int>& part) {
      HostTensor a(MakeShape(type, kDims, order)), c(MakeShape(type, part, order));
      a.FillRandom(6);
      c.FillRandom(7);
      const HostTensor before = c;
      std::map<Place, Reduced> reduced;
      ForEachPlace(a.shape(),
                   [&](const Place& place) { Take(op, a.At(place), &reduced[PlaceIn(c.shape(), place)]); });
      std::vector<uint32_t> indices(c.shape().Count());
      Arena arena;
      ReduceTensor({op, 0}, {2, 0.5}, a.AsSource(), c.AsTarget(), indices.data(), &arena);
      size_t i = 0;
      ForEachPlace(c.shape(), [&](const Place& place) {
        const Reduced& r = reduced[place];
        const double expected = 2 * Finished(op, r) + 0.5 * before.At(place);
        ASSERT_NEAR(c.At(place), expected,
                    Bound(type, static_cast<double>(r.seen), 2 * static_cast<double>(r.seen), expected));
        ASSERT_EQ(indices[i++], r.index);
      });
    });
  }
}

TEST(ReduceTest, NansInExtrema) {
  HostTensor a(MakeShape(CUDNN_DATA_FLOAT, {1, 1, 1, 3})), c(MakeShape(CUDNN_DATA_FLOAT, {1, 1, 1, 1}));
  for (int where = 0; where < 3; ++where) {
    a.Fill(2);
    a.Put({0, 0, 0, where}, NAN);
    for (const int op : {CUDNN_REDUCE_TENSOR_MIN, CUDNN_REDUCE_TENSOR_MAX, CUDNN_REDUCE_TENSOR_AMAX}) {
      uint32_t index = 99;
      Arena arena;
      ReduceTensor({op, 0}, {}, a.AsSource(), c.AsTarget(), &index, &arena);
      EXPECT_EQ(c.At({0, 0, 0, 0}), 2);
      ReduceTensor({op, 1}, {}, a.AsSource(), c.AsTarget(), &index, &arena);
      EXPECT_TRUE(std::isnan(c.At({0, 0, 0, 0})));
      EXPECT_EQ(index, static_cast<uint32_t>(where));
    }
  }
}

}  // namespace
}  // namespace softgpu::dnn
