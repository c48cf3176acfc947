// Bit instructions against the manual's descriptions, which go bit by bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "softgpu/ptx/exec/alu_testing.h"

namespace softgpu::exec {
namespace {

template <typename T>
bool BitOf(T v, int i) {
  return static_cast<uint64_t>(v) >> i & 1;
}
template <typename D, typename A, typename B, typename C, typename Expect>
void Check(const std::string& name, const std::vector<A>& as, const std::vector<B>& bs,
           const std::vector<C>& cs, Expect expect) {
  Batch<D, A, B, C> batch(name);
  auto check = [&](D got, A a, B b, C c) {
    ASSERT_EQ(got, static_cast<D>(expect(a, b, c))) << name << " " << a << " " << b << " " << c;
  };
  for (A a : as) {
    for (B b : bs) {
      for (C c : cs) batch.Add(a, b, c, check);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  batch.Flush(check);
}
const std::vector<uint32_t> kNone = {0};
const std::vector<uint32_t> kPlaces = {0,  1,  3,  8,  15, 16,  30,  31,  32,    33,
                                       40, 62, 63, 64, 65, 200, 255, 256, 0x120, 0xffffffff};

template <typename T>
class AluBitsTest : public testing::Test {};
using Types = testing::Types<uint32_t, int32_t, uint64_t, int64_t>;
TYPED_TEST_SUITE(AluBitsTest, Types);

TYPED_TEST(AluBitsTest, FieldExtract) {
  using T = TypeParam;
  constexpr int kMsb = 8 * sizeof(T) - 1;
  std::string t = std::string(std::is_signed_v<T> ? ".s" : ".u") + std::to_string(kMsb + 1);
  Check<T>("bfe" + t, Edges<T>(30), kPlaces, kPlaces, [](T a, uint32_t b, uint32_t c) {
    constexpr int kMsb = 8 * sizeof(T) - 1;
    int position = b & 0xff, length = c & 0xff;
    bool sign = std::is_signed_v<T> && length != 0 && BitOf(a, std::min<int>(position + length - 1, kMsb));
    uint64_t d = 0;
    for (int i = 0; i <= kMsb; ++i) {
      bool bit = i < length && position + i <= kMsb ? BitOf(a, position + i) : sign;
      d |= static_cast<uint64_t>(bit) << i;
    }
    return static_cast<T>(d);
  });
  for (bool amount : {false, true}) {
    Check<uint32_t>((amount ? "bfind.shiftamt" : "bfind") + t, Edges<T>(500), kNone, kNone,
                    [amount](T a, uint32_t, uint32_t) {
                      constexpr int kMsb = 8 * sizeof(T) - 1;
                      T v = std::is_signed_v<T> && a < 0 ? static_cast<T>(~a) : a;
                      for (int i = kMsb; i >= 0; --i) {
                        if (BitOf(v, i)) return static_cast<uint32_t>(amount ? kMsb - i : i);
                      }
                      return 0xffffffffu;
                    });
  }
}

TYPED_TEST(AluBitsTest, CountsAndReversal) {
  using T = std::make_unsigned_t<TypeParam>;
  constexpr int kBits = 8 * sizeof(T);
  std::string t = ".b" + std::to_string(kBits);
  Check<uint32_t>("popc" + t, Edges<T>(500), kNone, kNone, [](T a, uint32_t, uint32_t) {
    uint32_t n = 0;
    for (int i = 0; i < kBits; ++i) n += BitOf(a, i);
    return n;
  });
  Check<uint32_t>("clz" + t, Edges<T>(500), kNone, kNone, [](T a, uint32_t, uint32_t) {
    uint32_t n = 0;
    while (n < kBits && !BitOf(a, kBits - 1 - static_cast<int>(n))) ++n;
    return n;
  });
  Check<T>("brev" + t, Edges<T>(500), kNone, kNone, [](T a, uint32_t, uint32_t) {
    T d = 0;
    for (int i = 0; i < kBits; ++i) d |= static_cast<T>(T{BitOf(a, i)} << (kBits - 1 - i));
    return d;
  });
}

template <typename T>
void CheckInsert() {
  constexpr int kMsb = 8 * sizeof(T) - 1;
  for (T a : Edges<T>(4)) {
    for (T b : {T{0}, static_cast<T>(~T{0}), static_cast<T>(0x123456789abcdef0)}) {
      for (uint32_t position : kPlaces) {
        Row rows[4], d;
        AluOp op = Resolved(kMsb == 31 ? "bfi.b32" : "bfi.b64");
        for (unsigned l = 0; l < kPlaces.size(); ++l) {
          rows[0].Set(l, a);
          rows[1].Set(l, b);
          rows[2].Set(l, position);
          rows[3].Set(l, kPlaces[l]);
        }
        op.lane4(d.bytes, rows[0].bytes, rows[1].bytes, rows[2].bytes, rows[3].bytes, kAllLanes);
        for (unsigned l = 0; l < kPlaces.size(); ++l) {
          T expected = b;
          int at = position & 0xff, length = kPlaces[l] & 0xff;
          for (int i = 0; i < length && at + i <= kMsb; ++i) {
            T bit = T{1} << (at + i);
            expected = BitOf(a, i) ? expected | bit : expected & ~bit;
          }
          ASSERT_EQ(d.Get<T>(l), expected) << a << " " << b << " " << at << " " << length;
        }
      }
    }
  }
}
TEST(AluBitsTest, InsertWords) { CheckInsert<uint32_t>(); }
TEST(AluBitsTest, InsertLongs) { CheckInsert<uint64_t>(); }

TEST(AluBitsTest, FunnelShift) {
  std::vector<uint32_t> values = {0, 1, 0x80000000, 0xdeadbeef, 0xffffffff};
  for (bool left : {false, true}) {
    for (bool wrap : {false, true}) {
      std::string name = std::string("shf.") + (left ? "l." : "r.") + (wrap ? "wrap" : "clamp") + ".b32";
      Check<uint32_t>(name, values, values, kPlaces, [&](uint32_t a, uint32_t b, uint32_t c) {
        uint32_t n = wrap ? c & 31 : std::min(c, 32u);
        auto shl = [](uint32_t v, uint32_t by) { return by > 31 ? 0 : v << by; };
        auto shr = [](uint32_t v, uint32_t by) { return by > 31 ? 0 : v >> by; };
        return left ? shl(b, n) | shr(a, 32 - n) : shl(b, 32 - n) | shr(a, n);
      });
    }
  }
}

TEST(AluBitsTest, AllTruthTables) {
  for (int lut = 0; lut < 256; ++lut) {
    AluOp op = Resolved("lop3.b32", Isa::kV2, static_cast<uint8_t>(lut));
    Row a, b, c, d;
    a.Set(9, 0xf0f0f0f0u);
    b.Set(9, 0xccccccccu);
    c.Set(9, 0xaaaaaaaau);
    op.lane(d.bytes, a.bytes, b.bytes, c.bytes, kAllLanes);
    ASSERT_EQ(d.Get<uint8_t>(36), lut);  // what the manual's definition of the table gives for these three
  }
}

uint32_t PermuteByte(uint64_t pool, unsigned selector) {
  uint32_t byte = static_cast<uint32_t>(pool >> (8 * (selector & 7))) & 0xff;
  return selector & 8 ? (byte & 0x80 ? 0xff : 0) : byte;
}
TEST(AluBitsTest, Permute) {
  std::vector<uint32_t> as = {0x83828180, 0x03020100}, bs = {0x87060584, 0x17961514};
  std::vector<uint32_t> selectors = {0x3210, 0x7654, 0xba98, 0xfedc, 0x0000, 0x8888, 0x1234567, 0x4f2d};
  Check<uint32_t>("prmt.b32", as, bs, selectors, [](uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d = 0;
    for (int i = 0; i < 4; ++i) d |= PermuteByte(uint64_t{b} << 32 | a, c >> (4 * i) & 15) << (8 * i);
    return d;
  });
  // The manual's table: selector bytes d.b3 to d.b0 for c = 0..3.
  struct Mode {
    const char* word;
    uint32_t selectors[4];
  };
  for (const Mode& mode :
       {Mode{"f4e", {0x3210, 0x4321, 0x5432, 0x6543}}, Mode{"b4e", {0x5670, 0x6701, 0x7012, 0x0123}},
        Mode{"rc8", {0x0000, 0x1111, 0x2222, 0x3333}}, Mode{"ecl", {0x3210, 0x3211, 0x3222, 0x3333}},
        Mode{"ecr", {0x0000, 0x1110, 0x2210, 0x3210}}, Mode{"rc16", {0x1010, 0x3232, 0x1010, 0x3232}}}) {
    Check<uint32_t>(
        std::string("prmt.b32.") + mode.word, as, bs, std::vector<uint32_t>{0, 1, 2, 3, 4, 0xfffffffe},
        [&](uint32_t a, uint32_t b, uint32_t c) {
          uint32_t d = 0;
          for (int i = 0; i < 4; ++i)
            d |= PermuteByte(uint64_t{b} << 32 | a, mode.selectors[c & 3] >> (4 * i) & 7) << (8 * i);
          return d;
        });
  }
}

TEST(AluBitsTest, FindNthSet) {
  std::vector<uint32_t> masks = {0, 1, 0x80000000, 0xffffffff, 0x00ff00f0, 0xaaaaaaaa};
  std::vector<uint32_t> bases = {0, 1, 4, 15, 16, 31};
  std::vector<int32_t> offsets = {0, 1, 2, 3, 31, 32, 33, -1, -2, -7, -32, INT32_MAX, INT32_MIN};
  Check<uint32_t>("fns.b32", masks, bases, offsets, [](uint32_t mask, uint32_t base, int32_t offset) {
    if (offset == 0) return BitOf(mask, static_cast<int>(base)) ? base : 0xffffffffu;
    int64_t position = base, count = std::abs(int64_t{offset}) - 1, step = offset > 0 ? 1 : -1;
    for (; position >= 0 && position < 32; position += step) {
      if (!BitOf(mask, static_cast<int>(position))) continue;
      if (count-- == 0) return static_cast<uint32_t>(position);
    }
    return 0xffffffffu;
  });
}

TEST(AluBitsTest, MaskAndExtend) {
  std::vector<uint32_t> values = {0, 1, 5, 31, 32, 33, 63, 64, 0xffffffff};
  for (bool clamp : {false, true}) {
    std::string mode = clamp ? ".clamp" : ".wrap";
    Check<uint32_t>("bmsk" + mode + ".b32", values, values, kNone, [&](uint32_t a, uint32_t b, uint32_t) {
      uint32_t a1 = a & 31, b1 = b & 31, mask0 = ~0u << a1, sum = a1 + b1;
      bool overflow = sum >= 32;
      if (clamp && a >= 32) {
        overflow = true;
        mask0 = 0;
      }
      if (clamp && b >= 32) overflow = true;
      uint32_t mask1 = overflow ? 0 : ~0u << sum;
      return mask0 & ~mask1;
    });
    for (bool is_signed : {false, true}) {
      std::string name = "szext" + mode + (is_signed ? ".s32" : ".u32");
      Check<uint32_t>(name, Edges<uint32_t>(30), values, kNone, [&](uint32_t a, uint32_t b, uint32_t) {
        uint32_t b1 = b & 31;
        bool too_large = clamp && b >= 32;
        uint32_t mask = too_large ? 0 : ~0u << b1;
        bool sign = is_signed && b1 != 0 && !too_large && BitOf(a, static_cast<int>(b1) - 1);
        return (a & ~mask) | (sign ? mask : 0);
      });
    }
  }
}

}  // namespace
}  // namespace softgpu::exec
