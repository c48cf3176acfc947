// Convolutions against sums over all that belongs to an element, in double.
#include "softgpu/dnn/convolution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "softgpu/dnn/dnn_testing.h"
#include "softgpu/dnn/gemm.h"

namespace softgpu::dnn {
namespace {

struct Case {
  std::vector<int> x;  // image, channel, space
  int filters;
  std::vector<int> window;
  std::vector<int> pad, stride, dilation;
  int groups = 1;
  bool mirrored = false;
};

const Case kCases[] = {
    {{2, 3, 7, 9}, 4, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {{1, 1, 5, 5}, 1, {1, 1}, {0, 0}, {1, 1}, {1, 1}},
    {{3, 2, 8, 6}, 5, {3, 2}, {0, 1}, {2, 1}, {1, 1}},
    {{2, 4, 9, 9}, 6, {3, 3}, {2, 2}, {2, 3}, {2, 2}, 2},
    {{2, 6, 5, 6}, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 6},
    {{2, 3, 6, 7}, 2, {3, 2}, {1, 0}, {1, 1}, {1, 2}, 1, true},
    {{5, 7, 4, 4}, 10, {4, 4}, {0, 0}, {1, 1}, {1, 1}},
    {{3, 5, 13, 11}, 9, {5, 5}, {2, 2}, {1, 1}, {1, 1}},
    {{2, 2, 4, 5, 6}, 3, {2, 3, 3}, {1, 0, 1}, {1, 2, 1}, {1, 1, 2}},
    {{1, 3, 2, 3}, 2, {2, 2}, {3, 3}, {3, 3}, {1, 1}},
};

ConvolutionParams ParamsOf(const Case& c) {
  ConvolutionParams params;
  params.space = static_cast<int>(c.window.size());
  for (int i = 0; i < params.space; ++i) {
    params.pad[i] = c.pad[i];
    params.stride[i] = c.stride[i];
    params.dilation[i] = c.dilation[i];
  }
  params.groups = c.groups;
  params.mirrored = c.mirrored ? 1 : 0;
  return params;
}

// The shapes of one case in one type and layout.
struct Shapes {
  Shapes(const Case& c, int type, Order order) : x(MakeShape(type, c.x, order)) {
    std::vector<int> filter = {c.filters, c.x[1] / c.groups};
    filter.insert(filter.end(), c.window.begin(), c.window.end());
    w = MakeShape(type, filter, order == Order::kChannelsLast ? order : Order::kChannelsFirst);
    EXPECT_TRUE(ForwardShape(ParamsOf(c), x, w, &y));
    y = MakeShape(type, std::vector<int>(y.dim, y.dim + y.rank), order);
  }

  Shape x, w, y;
};

// Calls body(place in x, place in w, place in y) for every product of the convolution.
void ForEachProduct(const Case& c, const Shapes& shapes,
                    const std::function<void(const Place&, const Place&, const Place&)>& body) {
  const int group_out = c.filters / c.groups;
  ForEachPlace(shapes.y, [&](const Place& y) {
    Shape filter = shapes.w;
    filter.dim[0] = 1;
    ForEachPlace(filter, [&](const Place& at) {
      Place w = at;
      w[0] = y[1];
      Place x = {y[0], y[1] / group_out * shapes.w.dim[1] + at[1]};
      for (size_t i = 0; i < c.window.size(); ++i) {
        const int tap = c.mirrored ? c.window[i] - 1 - at[2 + i] : at[2 + i];
        const int place = y[2 + i] * c.stride[i] - c.pad[i] + tap * c.dilation[i];
        if (place < 0 || place >= shapes.x.dim[2 + i]) return;
        x.push_back(place);
      }
      body(x, w, y);
    });
  });
}

// Sums for each element of one tensor.
class Reference {
 public:
  explicit Reference(const Shape& shape)
      : shape_(shape), sum_(shape.Count()), magnitude_(shape.Count()), terms_(shape.Count()) {}

  void Add(const Place& place, double value) {
    sum_[Index(place)] += value;
    magnitude_[Index(place)] += std::fabs(value);
    ++terms_[Index(place)];
  }

  // Checks alpha * sum + beta * before.
  void Check(const HostTensor& result, const HostTensor& before, const Blend& blend) const {
    ForEachPlace(shape_, [&](const Place& place) {
      const size_t i = Index(place);
      const double old = blend.beta == 0 ? 0 : blend.beta * before.At(place);
      const double expected = blend.alpha * sum_[i] + old;
      const double sum = std::fabs(blend.alpha) * magnitude_[i] + std::fabs(old);
      ASSERT_NEAR(result.At(place), expected, Bound(result.shape().type, terms_[i] + 2, sum, expected));
    });
  }

 private:
  size_t Index(const Place& place) const {
    size_t index = 0;
    for (int i = 0; i < shape_.rank; ++i) index = index * shape_.dim[i] + place[i];
    return index;
  }

  Shape shape_;
  std::vector<double> sum_;
  std::vector<double> magnitude_;
  std::vector<int> terms_;
};

const Blend kBlends[] = {{1, 0}, {0.5, 0}, {1.5, -0.25}};

// What is written: NaNs where they must not be read.
HostTensor Destination(const Shape& shape, const Blend& blend) {
  HostTensor tensor(shape);
  if (blend.beta != 0) tensor.FillRandom(7);
  return tensor;
}

HostTensor Random(const Shape& shape, uint64_t seed) {
  HostTensor tensor(shape);
  tensor.FillRandom(seed);
  return tensor;
}

class ConvolutionTest : public testing::Test {
 protected:
  using Check = std::function<void(const Shapes&, const Blend&)>;

  // For each case, `begin` sums up what is expected, from shapes of floats, and says how each type, layout
  // and blend of it is checked. The values are the same in all of them.
  static void ForAll(const std::function<Check(const Case&, const Shapes&)>& begin) {
    for (const Case& c : kCases) {
      const Check check = begin(c, Shapes(c, CUDNN_DATA_FLOAT, Order::kChannelsFirst));
      for (const int type : kTypes) {
        for (const Order order : kOrders) {
          SCOPED_TRACE(NameOf(type, order) + " case " + std::to_string(&c - kCases));
          const Shapes shapes(c, type, order);
          for (const Blend& blend : kBlends) check(shapes, blend);
        }
      }
    }
  }

  // One value for each channel of y.
  static Shape BiasOf(const Shapes& shapes) {
    std::vector<int> dims(shapes.y.rank, 1);
    dims[1] = shapes.y.dim[1];
    return MakeShape(shapes.y.type, dims);
  }

  static Place ChannelOf(const Place& place) {
    Place channel(place.size(), 0);
    channel[1] = place[1];
    return channel;
  }
};

TEST_F(ConvolutionTest, Forward) {
  ForAll([](const Case& c, const Shapes& plain) -> Check {
    Reference reference(plain.y);
    const HostTensor x = Random(plain.x, 1);
    const HostTensor w = Random(plain.w, 2);
    ForEachProduct(c, plain, [&](const Place& xp, const Place& wp, const Place& yp) {
      reference.Add(yp, x.At(xp) * w.At(wp));
    });
    return [&c, reference](const Shapes& shapes, const Blend& blend) {
      const HostTensor before = Destination(shapes.y, blend);
      HostTensor y = before;
      Arena arena;
      ConvolutionForward(ParamsOf(c), blend, Random(shapes.x, 1).AsSource(), Random(shapes.w, 2).AsSource(),
                         y.AsTarget(), &arena);
      reference.Check(y, before, blend);
    };
  });
}

TEST_F(ConvolutionTest, BackwardData) {
  ForAll([](const Case& c, const Shapes& plain) -> Check {
    Reference reference(plain.x);
    const HostTensor w = Random(plain.w, 3);
    const HostTensor dy = Random(plain.y, 4);
    ForEachProduct(c, plain, [&](const Place& xp, const Place& wp, const Place& yp) {
      reference.Add(xp, dy.At(yp) * w.At(wp));
    });
    return [&c, reference](const Shapes& shapes, const Blend& blend) {
      const HostTensor before = Destination(shapes.x, blend);
      HostTensor dx = before;
      Arena arena;
      ConvolutionBackwardData(ParamsOf(c), blend, Random(shapes.w, 3).AsSource(),
                              Random(shapes.y, 4).AsSource(), dx.AsTarget(), &arena);
      reference.Check(dx, before, blend);
    };
  });
}

TEST_F(ConvolutionTest, BackwardFilter) {
  ForAll([](const Case& c, const Shapes& plain) -> Check {
    Reference reference(plain.w);
    const HostTensor x = Random(plain.x, 5);
    const HostTensor dy = Random(plain.y, 6);
    ForEachProduct(c, plain, [&](const Place& xp, const Place& wp, const Place& yp) {
      reference.Add(wp, dy.At(yp) * x.At(xp));
    });
    return [&c, reference](const Shapes& shapes, const Blend& blend) {
      const HostTensor before = Destination(shapes.w, blend);
      HostTensor dw = before;
      Arena arena;
      ConvolutionBackwardFilter(ParamsOf(c), blend, Random(shapes.x, 5).AsSource(),
                                Random(shapes.y, 6).AsSource(), dw.AsTarget(), &arena);
      reference.Check(dw, before, blend);
    };
  });
}

TEST_F(ConvolutionTest, BackwardBias) {
  ForAll([](const Case&, const Shapes& plain) -> Check {
    Reference reference(BiasOf(plain));
    const HostTensor dy = Random(plain.y, 8);
    ForEachPlace(plain.y, [&](const Place& place) { reference.Add(ChannelOf(place), dy.At(place)); });
    return [reference](const Shapes& shapes, const Blend& blend) {
      const HostTensor before = Destination(BiasOf(shapes), blend);
      HostTensor db = before;
      Arena arena;
      ConvolutionBackwardBias(blend, Random(shapes.y, 8).AsSource(), db.AsTarget(), &arena);
      reference.Check(db, before, blend);
    };
  });
}

// The convolution alone is one part of the sum, z and the bias are the others.
TEST_F(ConvolutionTest, Fused) {
  ForAll([](const Case& c, const Shapes& plain) -> Check {
    std::vector<Reference> references(std::size(kBlends), Reference(plain.y));
    const HostTensor x = Random(plain.x, 1);
    const HostTensor w = Random(plain.w, 2);
    const HostTensor z = Random(plain.y, 3);
    const HostTensor bias = Random(BiasOf(plain), 4);
    for (size_t i = 0; i < references.size(); ++i) {
      ForEachProduct(c, plain, [&](const Place& xp, const Place& wp, const Place& yp) {
        references[i].Add(yp, kBlends[i].alpha * x.At(xp) * w.At(wp));
      });
      ForEachPlace(plain.y, [&](const Place& place) {
        references[i].Add(place, kBlends[i].beta * z.At(place));
        references[i].Add(place, bias.At(ChannelOf(place)));
      });
    }
    return [&c, references](const Shapes& shapes, const Blend& blend) {
      const HostTensor x = Random(shapes.x, 1);
      const HostTensor w = Random(shapes.w, 2);
      const HostTensor bias = Random(BiasOf(shapes), 4);
      const auto run = [&](int mode, const HostTensor& z, HostTensor* y) {
        ActivationParams activation;
        activation.mode = mode;
        const Source added = blend.beta == 0 ? Source{z.shape(), nullptr} : z.AsSource();
        Arena arena;
        ConvolutionFused(ParamsOf(c), blend, activation, x.AsSource(), w.AsSource(), added, bias.AsSource(),
                         y->AsTarget(), &arena);
      };
      const HostTensor z = Random(shapes.y, 3);
      HostTensor y(shapes.y);
      run(CUDNN_ACTIVATION_IDENTITY, z, &y);
      references[&blend - kBlends].Check(y, y, {1, 0});
      HostTensor rectified = z;
      run(CUDNN_ACTIVATION_RELU, rectified, &rectified);  // in place
      ForEachPlace(shapes.y,
                   [&](const Place& place) { ASSERT_EQ(rectified.At(place), std::max(y.At(place), 0.0)); });
    };
  });
}

// What is read and where intermediate values lie must not show in the result.
TEST_F(ConvolutionTest, ResultsDoNotDependOnSpaceOrAlignment) {
  const Case& c = kCases[7];
  const Shapes shapes(c, CUDNN_DATA_FLOAT, Order::kChannelsFirst);
  const HostTensor x = Random(shapes.x, 1);
  const HostTensor w = Random(shapes.w, 2);
  HostTensor first(shapes.y);
  Arena heap;
  ConvolutionForward(ParamsOf(c), {}, x.AsSource(), w.AsSource(), first.AsTarget(), &heap);
  std::vector<uint8_t> space(ColumnBytes(ParamsOf(c), shapes.x, shapes.w) + 64);
  std::vector<float> moved(x.bytes().size() / sizeof(float) + 16);
  for (size_t shift = 0; shift < 16; ++shift) {
    Arena arena(space.data() + shift, space.size() - shift * 4);
    std::memcpy(moved.data() + shift, x.bytes().data(), x.bytes().size());
    HostTensor y(shapes.y);
    ConvolutionForward(ParamsOf(c), {}, {shapes.x, moved.data() + shift}, w.AsSource(), y.AsTarget(), &arena);
    ASSERT_EQ(y.bytes(), first.bytes());
  }
}

TEST_F(ConvolutionTest, ShapesThatDoNotFit) {
  const Case& c = kCases[0];
  const Shapes shapes(c, CUDNN_DATA_FLOAT, Order::kChannelsFirst);
  Shape y;
  Shape x = shapes.x;
  x.dim[1] = 4;
  EXPECT_FALSE(ForwardShape(ParamsOf(c), x, shapes.w, &y));
  ConvolutionParams params = ParamsOf(c);
  params.dilation[0] = 5;
  EXPECT_FALSE(ForwardShape(params, shapes.x, shapes.w, &y));
  params = ParamsOf(c);
  params.space = 3;
  EXPECT_FALSE(ForwardShape(params, shapes.x, shapes.w, &y));
}

template <typename T>
void CheckGemm(size_t m, size_t n, size_t k, bool accumulate) {
  std::vector<T> a(m * k), b(k * n), c(m * n), transposed(n * k);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>((i * 37) % 101) / 7;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>((i * 53) % 97) / 13 - 3;
  for (size_t i = 0; i < c.size(); ++i) c[i] = static_cast<T>(i % 5);
  for (size_t i = 0; i < k; ++i) {
    for (size_t j = 0; j < n; ++j) transposed[j * k + i] = b[i * n + j];
  }
  std::vector<T> expected = c;
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      T sum = accumulate ? c[i * n + j] : T(0);
      for (size_t p = 0; p < k; ++p) sum += a[i * k + p] * b[p * n + j];
      expected[i * n + j] = sum;
    }
  }
  for (int level = 0; level < GemmLevels(); ++level) {
    std::vector<T> result = c;
    GemmAtLevel<T>(level, m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, result.data(), n, accumulate);
    ASSERT_EQ(result, expected) << "level " << level;
    result = c;
    GemmAtLevel<T>(level, m, n, k, {a.data(), k, 1}, {transposed.data(), 1, k}, result.data(), n, accumulate);
    ASSERT_EQ(result, expected) << "level " << level << ", transposed";
  }
}

// The order of the sums is part of the promise, so that every CPU gives the same bits.
TEST(GemmTest, EveryLevelSumsInOrder) {
  for (const size_t m : {1, 5, 6, 13}) {
    for (const size_t n : {1, 16, 33, 520}) {
      for (const size_t k : {0, 1, 9, 300}) {
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(testing::Message() << m << " " << n << " " << k << " " << accumulate);
          CheckGemm<float>(m, n, k, accumulate);
          CheckGemm<double>(m, n, k, accumulate);
        }
      }
    }
  }
}

}  // namespace
}  // namespace softgpu::dnn
