// Integer instructions against wide arithmetic and against the manual's bit-by-bit descriptions.
#include <gtest/gtest.h>

#include <algorithm>

#include "softgpu/ptx/exec/alu_testing.h"

namespace softgpu::exec {
namespace {

using Wide = __int128;

template <typename T>
constexpr int kWidth = 8 * sizeof(T);
template <typename T>
std::string Suffix() {
  return std::string(std::is_signed_v<T> ? ".s" : ".u") + std::to_string(kWidth<T>);
}
template <typename T>
T Clamp(Wide v) {
  return static_cast<T>(std::clamp<Wide>(v, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

// Runs `name` on edges x edges x thirds; `expect(a, b, c)` is the result.
template <typename D, typename A, typename B, typename C, typename Expect>
void Check3(const std::string& name, const std::vector<A>& as, const std::vector<B>& bs,
            const std::vector<C>& cs, Expect expect) {
  Batch<D, A, B, C> batch(name);
  auto check = [&](D got, A a, B b, C c) {
    ASSERT_EQ(got, static_cast<D>(expect(a, b, c))) << name << " " << +a << " " << +b << " " << +c;
  };
  for (A a : as) {
    for (B b : bs) {
      for (C c : cs) batch.Add(a, b, c, check);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  batch.Flush(check);
}
template <typename T, typename Expect>
void Check2(const std::string& name, Expect expect) {
  Check3<T, T, T, T>(name, Edges<T>(60), Edges<T>(60), std::vector<T>{0},
                     [&](T a, T b, T) { return expect(a, b); });
}
template <typename T, typename D = T, typename Expect>
void Check1(const std::string& name, Expect expect) {
  Check3<D, T, T, T>(name, Edges<T>(2000), std::vector<T>{0}, std::vector<T>{0},
                     [&](T a, T, T) { return expect(a); });
}
template <typename T>
std::vector<T> Few() {
  std::vector<T> all = Edges<T>(0), few;
  for (size_t i = 0; i < all.size(); i += 5) few.push_back(all[i]);
  few.push_back(std::numeric_limits<T>::max());
  few.push_back(std::numeric_limits<T>::min());
  return few;
}

template <typename T>
class AluIntegerTest : public testing::Test {};
using Types = testing::Types<uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t>;
TYPED_TEST_SUITE(AluIntegerTest, Types);

// 128 bits hold every product of signed 64-bit values and every one of unsigned ones as a bit pattern.
template <typename T>
Wide Product(T a, T b) {
  return static_cast<Wide>(static_cast<unsigned __int128>(static_cast<Wide>(a)) *
                           static_cast<unsigned __int128>(static_cast<Wide>(b)));
}
template <typename T>
T High(T a, T b) {
  return static_cast<T>(static_cast<unsigned __int128>(Product(a, b)) >> kWidth<T>);
}

TYPED_TEST(AluIntegerTest, Arithmetic) {
  using T = TypeParam;
  std::string t = Suffix<T>();
  Check2<T>("add" + t, [](T a, T b) { return static_cast<T>(Wide{a} + b); });
  Check2<T>("sub" + t, [](T a, T b) { return static_cast<T>(Wide{a} - b); });
  Check2<T>("mul.lo" + t, [](T a, T b) { return static_cast<T>(Product(a, b)); });
  Check2<T>("mul.hi" + t, [](T a, T b) { return High(a, b); });
  Check2<T>("min" + t, [](T a, T b) { return std::min(a, b); });
  Check2<T>("max" + t, [](T a, T b) { return std::max(a, b); });
  Check2<T>("div" + t, [](T a, T b) { return b == 0 ? static_cast<T>(-1) : static_cast<T>(Wide{a} / b); });
  Check2<T>("rem" + t, [](T a, T b) { return b == 0 ? a : static_cast<T>(Wide{a} % b); });
}

TYPED_TEST(AluIntegerTest, ThreeSources) {
  using T = TypeParam;
  std::string t = Suffix<T>();
  std::vector<T> few = Few<T>();
  Check3<T>("mad.lo" + t, few, few, few,
            [](T a, T b, T c) { return static_cast<T>(static_cast<unsigned __int128>(Product(a, b)) + c); });
  Check3<T>("mad.hi" + t, few, few, few, [](T a, T b, T c) { return static_cast<T>(Wide{High(a, b)} + c); });
  Check3<T>("sad" + t, few, few, few, [](T a, T b, T c) {
    Wide difference = Wide{a} - b;
    return static_cast<T>(Wide{c} + (difference < 0 ? -difference : difference));
  });
}

TYPED_TEST(AluIntegerTest, WideProducts) {
  using T = TypeParam;
  if constexpr (sizeof(T) < 8) {
    using D = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                                 std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
    std::string t = Suffix<T>();
    Check3<D>("mul.wide" + t, Edges<T>(60), Edges<T>(60), std::vector<D>{0},
              [](T a, T b, D) { return static_cast<D>(Product(a, b)); });
    Check3<D>("mad.wide" + t, Few<T>(), Few<T>(), Few<D>(),
              [](T a, T b, D c) { return static_cast<D>(Product(a, b) + c); });
  }
}

TYPED_TEST(AluIntegerTest, SignedOnly) {
  using T = TypeParam;
  if constexpr (std::is_signed_v<T>) {
    Check1<T>("abs" + Suffix<T>(), [](T a) { return static_cast<T>(a < 0 ? -Wide{a} : Wide{a}); });
    Check1<T>("neg" + Suffix<T>(), [](T a) { return static_cast<T>(-Wide{a}); });
  }
}

TYPED_TEST(AluIntegerTest, ComparesAndSets) {
  using T = TypeParam;
  struct Case {
    const char* word;
    bool (*holds)(T, T);
    bool unsigned_only;
  };
  static constexpr Case kCases[] = {
      {"eq", [](T a, T b) { return a == b; }, false}, {"ne", [](T a, T b) { return a != b; }, false},
      {"lt", [](T a, T b) { return a < b; }, false},  {"le", [](T a, T b) { return a <= b; }, false},
      {"gt", [](T a, T b) { return a > b; }, false},  {"ge", [](T a, T b) { return a >= b; }, false},
      {"lo", [](T a, T b) { return a < b; }, true},   {"ls", [](T a, T b) { return a <= b; }, true},
      {"hi", [](T a, T b) { return a > b; }, true},   {"hs", [](T a, T b) { return a >= b; }, true},
  };
  std::vector<T> edges = Edges<T>(40);
  for (const Case& c : kCases) {
    if (c.unsigned_only && std::is_signed_v<T>) continue;
    std::string word = std::string(".") + c.word;
    Check3<uint32_t>("set" + word + ".u32" + Suffix<T>(), edges, edges, std::vector<T>{0},
                     [&](T a, T b, T) { return c.holds(a, b) ? 0xffffffffu : 0u; });
    Check3<uint32_t>("set" + word + ".f32" + Suffix<T>(), edges, edges, std::vector<T>{0},
                     [&](T a, T b, T) { return c.holds(a, b) ? 0x3f800000u : 0u; });
    for (Isa isa : RunningIsas()) {
      AluOp op = Resolved("setp" + word + Suffix<T>(), isa);
      for (size_t first = 0; first < edges.size(); ++first) {
        Row a, b;
        for (unsigned l = 0; l < kWarpSize; ++l) {
          a.Set(l, edges[first]);
          b.Set(l, edges[(first + 3 * l) % edges.size()]);
        }
        uint32_t bits = op.compare(a.bytes, b.bytes);
        for (unsigned l = 0; l < kWarpSize; ++l)
          ASSERT_EQ(bits >> l & 1, c.holds(a.Get<T>(l), b.Get<T>(l))) << c.word;
      }
    }
  }
}

TYPED_TEST(AluIntegerTest, Shifts) {
  using T = TypeParam;
  std::vector<uint32_t> counts = {0,  1,  7,  8,  15, 16,  17,         31,
                                  32, 33, 63, 64, 65, 255, 0x80000000, 0xffffffff};
  auto shifted = [](T a, uint32_t n) {
    if (n < kWidth<T>) return static_cast<T>(a >> n);
    return static_cast<T>(a < 0 ? -1 : 0);
  };
  Check3<T>("shr" + Suffix<T>(), Edges<T>(60), counts, std::vector<T>{0},
            [&](T a, uint32_t n, T) { return shifted(a, n); });
  if constexpr (!std::is_signed_v<T>) {
    std::string b = ".b" + std::to_string(kWidth<T>);
    Check3<T>("shr" + b, Edges<T>(60), counts, std::vector<T>{0},
              [&](T a, uint32_t n, T) { return shifted(a, n); });
    Check3<T>("shl" + b, Edges<T>(60), counts, std::vector<T>{0}, [](T a, uint32_t n, T) {
      return n < kWidth<T> ? static_cast<T>(static_cast<unsigned __int128>(a) << n) : T{0};
    });
  }
}

TYPED_TEST(AluIntegerTest, Logic) {
  using T = TypeParam;
  if constexpr (!std::is_signed_v<T>) {
    std::string b = ".b" + std::to_string(kWidth<T>);
    Check2<T>("and" + b, [](T x, T y) { return static_cast<T>(x & y); });
    Check2<T>("or" + b, [](T x, T y) { return static_cast<T>(x | y); });
    Check2<T>("xor" + b, [](T x, T y) { return static_cast<T>(x ^ y); });
    Check1<T>("not" + b, [](T x) { return static_cast<T>(~x); });
    Check1<T>("cnot" + b, [](T x) { return static_cast<T>(x == 0); });
    Check1<T>("mov" + b, [](T x) { return x; });
  }
}

// Carry chains: a 128-bit sum, difference and product through 32- and 64-bit pieces.
template <typename T>
void CheckCarry() {
  std::string t = Suffix<T>();
  std::vector<T> few = Few<T>();
  for (Isa isa : RunningIsas()) {
    AluOp add = Resolved("add.cc" + t, isa), addc = Resolved("addc.cc" + t, isa),
          sub = Resolved("sub.cc" + t, isa), subc = Resolved("subc" + t, isa),
          mad = Resolved("mad.lo.cc" + t, isa), madc = Resolved("madc.hi.cc" + t, isa);
    for (T x : few) {
      for (T y : few) {
        for (T z : few) {
          Row a, b, c, d;
          a.Set(5, x);
          b.Set(5, y);
          c.Set(5, z);
          uint32_t carry = 0xffffffff;
          using W = unsigned __int128;
          add.carry(d.bytes, a.bytes, b.bytes, nullptr, 1u << 5, &carry);
          W sum = W{x} + y;
          ASSERT_EQ(d.Get<T>(5), static_cast<T>(sum));
          ASSERT_EQ(carry, (0xffffffff & ~(1u << 5)) | static_cast<uint32_t>(sum >> kWidth<T>) << 5);
          addc.carry(d.bytes, b.bytes, c.bytes, nullptr, 1u << 5, &carry);
          W next = W{y} + z + (sum >> kWidth<T>);
          ASSERT_EQ(d.Get<T>(5), static_cast<T>(next));
          ASSERT_EQ(carry >> 5 & 1, next >> kWidth<T>);
          sub.carry(d.bytes, a.bytes, b.bytes, nullptr, 1u << 5, &carry);
          ASSERT_EQ(d.Get<T>(5), static_cast<T>(x - y));
          ASSERT_EQ(carry >> 5 & 1, x < y);
          subc.carry(d.bytes, b.bytes, c.bytes, nullptr, 1u << 5, &carry);
          ASSERT_EQ(d.Get<T>(5), static_cast<T>(y - z - (x < y)));
          ASSERT_EQ(carry >> 5 & 1, x < y) << "subc without .cc writes no carry";
          mad.carry(d.bytes, a.bytes, b.bytes, c.bytes, 1u << 5, &carry);
          W product = W{x} * y, low = W{static_cast<T>(product)} + z;
          ASSERT_EQ(d.Get<T>(5), static_cast<T>(low));
          ASSERT_EQ(carry >> 5 & 1, low >> kWidth<T>);
          madc.carry(d.bytes, a.bytes, b.bytes, c.bytes, 1u << 5, &carry);
          W high = (product >> kWidth<T>)+z + (low >> kWidth<T>);
          ASSERT_EQ(d.Get<T>(5), static_cast<T>(high));
          ASSERT_EQ(carry >> 5 & 1, high >> kWidth<T>);
        }
      }
    }
  }
}
TEST(AluCarryTest, Words) { CheckCarry<uint32_t>(); }
TEST(AluCarryTest, Longs) { CheckCarry<uint64_t>(); }
TEST(AluCarryTest, SignedHighProduct) {
  AluOp op = Resolved("madc.hi.s32");
  Row a, b, c, d;
  a.Set(0, int32_t{-5});
  b.Set(0, int32_t{7});
  c.Set(0, int32_t{10});
  uint32_t carry = 1;
  op.carry(d.bytes, a.bytes, b.bytes, c.bytes, 1, &carry);
  EXPECT_EQ(d.Get<int32_t>(0), 10);  // -1 + 10 + 1
}

TEST(AluSaturationTest, AddSubMad) {
  using T = int32_t;
  Check2<T>("add.sat.s32", [](T a, T b) { return Clamp<T>(Wide{a} + b); });
  Check2<T>("sub.sat.s32", [](T a, T b) { return Clamp<T>(Wide{a} - b); });
  std::vector<T> few = Few<T>();
  Check3<T>("mad.hi.sat.s32", few, few, few, [](T a, T b, T c) { return Clamp<T>(Wide{High(a, b)} + c); });
  Check2<T>("min.relu.s32", [](T a, T b) { return std::max(std::min(a, b), 0); });
  Check2<T>("max.relu.s32", [](T a, T b) { return std::max(std::max(a, b), 0); });
}

template <typename T>
Wide Low24(T a) {
  Wide low = a & 0xffffff;
  return std::is_signed_v<T> && (low >> 23) ? low - (Wide{1} << 24) : low;
}
template <typename T>
void Check24() {
  std::string t = Suffix<T>();
  std::vector<T> few = Few<T>();
  Check2<T>("mul24.lo" + t, [](T a, T b) { return static_cast<T>(Low24(a) * Low24(b)); });
  Check2<T>("mul24.hi" + t, [](T a, T b) { return static_cast<T>((Low24(a) * Low24(b)) >> 16); });
  Check3<T>("mad24.lo" + t, few, few, few,
            [](T a, T b, T c) { return static_cast<T>(Low24(a) * Low24(b) + c); });
  Check3<T>("mad24.hi" + t, few, few, few,
            [](T a, T b, T c) { return static_cast<T>(((Low24(a) * Low24(b)) >> 16) + c); });
}
TEST(AluProduct24Test, Unsigned) { Check24<uint32_t>(); }
TEST(AluProduct24Test, Signed) {
  Check24<int32_t>();
  std::vector<int32_t> few = Few<int32_t>();
  Check3<int32_t>("mad24.hi.sat.s32", few, few, few, [](int32_t a, int32_t b, int32_t c) {
    return Clamp<int32_t>(Wide{static_cast<int32_t>((Low24(a) * Low24(b)) >> 16)} + c);
  });
}

template <typename A, typename B>
void CheckDot(const std::string& types) {
  std::vector<uint32_t> few = Few<uint32_t>();
  few.insert(few.end(), {0x80ff7f01, 0x01807fff, 0xfedcba98});
  auto byte = [](uint32_t v, int i) { return static_cast<uint32_t>(v >> (8 * i) & 0xff); };
  Check3<uint32_t>("dp4a" + types, few, few, few, [&](uint32_t a, uint32_t b, uint32_t c) {
    Wide sum = c;
    for (int i = 0; i < 4; ++i) sum += Wide{static_cast<A>(byte(a, i))} * static_cast<B>(byte(b, i));
    return static_cast<uint32_t>(sum);
  });
  using A16 = std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>;
  for (int high : {0, 1}) {
    Check3<uint32_t>((high ? "dp2a.hi" : "dp2a.lo") + types, few, few, few,
                     [&](uint32_t a, uint32_t b, uint32_t c) {
                       Wide sum = c;
                       for (int i = 0; i < 2; ++i)
                         sum += Wide{static_cast<A16>(a >> (16 * i))} * static_cast<B>(byte(b, i + 2 * high));
                       return static_cast<uint32_t>(sum);
                     });
  }
}
TEST(AluDotTest, AllSigns) {
  CheckDot<uint8_t, uint8_t>(".u32.u32");
  CheckDot<uint8_t, int8_t>(".u32.s32");
  CheckDot<int8_t, uint8_t>(".s32.u32");
  CheckDot<int8_t, int8_t>(".s32.s32");
}

TEST(AluPackedTest, Halves) {
  auto both = [](auto rule) {
    return [rule](uint32_t a, uint32_t b) {
      uint32_t low = static_cast<uint16_t>(rule(static_cast<uint16_t>(a), static_cast<uint16_t>(b)));
      return static_cast<uint32_t>(
                 static_cast<uint16_t>(rule(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16))))
                 << 16 |
             low;
    };
  };
  Check2<uint32_t>("add.u16x2", both([](uint16_t a, uint16_t b) { return a + b; }));
  Check2<uint32_t>("add.s16x2", both([](uint16_t a, uint16_t b) { return a + b; }));
  Check2<uint32_t>("min.u16x2", both([](uint16_t a, uint16_t b) { return std::min(a, b); }));
  Check2<uint32_t>("max.s16x2", both([](int16_t a, int16_t b) { return std::max(a, b); }));
  Check2<uint32_t>("min.s16x2", both([](int16_t a, int16_t b) { return std::min(a, b); }));
  Check2<uint32_t>("max.relu.s16x2",
                   both([](int16_t a, int16_t b) { return std::max<int16_t>(std::max(a, b), 0); }));
  Check2<uint32_t>("min.relu.s16x2",
                   both([](int16_t a, int16_t b) { return std::max<int16_t>(std::min(a, b), 0); }));
}

TEST(AluSelectTest, SlctAndSelp) {
  std::vector<uint32_t> values = {1, 0xffffffff};
  Check3<uint32_t>("slct.b32.s32", values, values, Edges<int32_t>(10),
                   [](uint32_t a, uint32_t b, int32_t c) { return c >= 0 ? a : b; });
  Check3<uint64_t>("slct.b64.s32", Few<uint64_t>(), Few<uint64_t>(), Few<int32_t>(),
                   [](uint64_t a, uint64_t b, int32_t c) { return c >= 0 ? a : b; });
  Check3<uint32_t>("slct.b32.f32", values, values, Edges<float>(10),
                   [](uint32_t a, uint32_t b, float c) { return c >= 0 ? a : b; });
  Check3<uint32_t>("slct.ftz.b32.f32", values, values, Edges<float>(10), [](uint32_t a, uint32_t b, float c) {
    return c >= 0 || (c < 0 && c > -0x1p-126f) ? a : b;
  });
  for (Isa isa : RunningIsas()) {
    AluOp op = Resolved("selp.u16", isa);
    Row a, b, d;
    for (unsigned l = 0; l < kWarpSize; ++l) {
      a.Set<uint16_t>(l, static_cast<uint16_t>(l));
      b.Set<uint16_t>(l, static_cast<uint16_t>(1000 + l));
    }
    op.select(d.bytes, a.bytes, b.bytes, 0x0ff0a5c3, kAllLanes);
    for (unsigned l = 0; l < kWarpSize; ++l)
      EXPECT_EQ(d.Get<uint16_t>(l), (0x0ff0a5c3 >> l & 1 ? 0 : 1000) + l);
  }
}

}  // namespace
}  // namespace softgpu::exec
