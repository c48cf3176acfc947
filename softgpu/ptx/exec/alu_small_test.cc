// Half and bfloat16 arithmetic against exact sums and products in 113 bits, rounded by a search of the
// format's values.
#include <gtest/gtest.h>

#include "softgpu/ptx/exec/alu_reference.h"

namespace softgpu::exec {
namespace {

using Exact = __float128;

struct Format {
  const char* name;
  const SmallFormat& values;
  unsigned exponent_bits;
};
const Format kFormats[] = {{"f16", HalfFormat(), 5}, {"bf16", BfloatFormat(), 8}};

uint16_t FlushCode(const Format& f, uint16_t code) {
  uint32_t magnitude = code & 0x7fff;
  return magnitude < (1u << (15 - f.exponent_bits)) ? code & 0x8000 : code;
}

struct Words {
  const char* text;
  bool flush, sat, relu;
};

// The expected code of op on codes; false when the exact result has more than 113 bits.
bool Expected(const Format& f, const std::string& op, const Words& w, uint16_t ca, uint16_t cb, uint16_t cc,
              uint16_t* code) {
  if (w.flush) {
    ca = FlushCode(f, ca);
    cb = FlushCode(f, cb);
    cc = FlushCode(f, cc);
  }
  Exact a = f.values.Value(ca), b = f.values.Value(cb), c = f.values.Value(cc), left = a, right = b,
        exact = 0;
  if (op == "sub") right = -b;
  if (op == "fma") {
    left = a * b;
    right = c;
  }
  exact = op == "mul" ? a * b : left + right;
  bool finite = exact - exact == 0;
  if (op != "mul" && finite && (exact - left != right || exact - right != left)) return false;
  // The sign of an exact zero: of the product, or of the sum by IEEE's rules, which the host's addition
  // follows.
  bool negative_zero = exact == 0 && __builtin_signbit(static_cast<double>(exact));
  // Nearly always a double holds it, in which the search is much faster.
  double narrow = static_cast<double>(exact);
  uint32_t r = Exact{narrow} == exact ? f.values.Round(narrow, FE_TONEAREST, false, negative_zero)
                                      : f.values.Round(exact, FE_TONEAREST, false, negative_zero);
  if (exact != exact) {
    r = w.sat ? 0 : f.values.nan();
  } else if (w.sat) {
    r = exact <= 0 ? 0 : std::min<uint32_t>(r, f.values.Round(Exact{1}, FE_TONEAREST, false));
  } else if (w.relu && !(exact > 0)) {
    r = 0;
  }
  *code = static_cast<uint16_t>(w.flush ? FlushCode(f, static_cast<uint16_t>(r)) : r);
  return true;
}

void CheckArithmetic(const Format& f, const std::string& op, const Words& w) {
  std::string name = op + ".rn" + w.text + "." + f.name;
  std::vector<uint64_t> edges = FloatEdges(16, f.exponent_bits, op == "fma" ? 0 : 20), few;
  for (size_t i = 0; i < edges.size(); i += 9) few.push_back(edges[i]);
  const std::vector<uint64_t> zero = {0};
  size_t exact = 0;
  Batch<uint16_t, uint16_t, uint16_t, uint16_t> single(name);
  Batch<uint32_t, uint32_t, uint32_t, uint32_t> pair(name + "x2");
  auto check_code = [&](uint16_t got, uint16_t a, uint16_t b, uint16_t c) {
    uint16_t expected = 0;
    if (!Expected(f, op, w, a, b, c, &expected)) return;
    ++exact;
    ASSERT_EQ(got, expected) << name << std::hex << " " << a << " " << b << " " << c;
  };
  auto check_pair = [&](uint32_t got, uint32_t a, uint32_t b, uint32_t c) {
    for (int shift : {0, 16}) {
      check_code(static_cast<uint16_t>(got >> shift), static_cast<uint16_t>(a >> shift),
                 static_cast<uint16_t>(b >> shift), static_cast<uint16_t>(c >> shift));
    }
  };
  for (uint64_t a : edges) {
    for (uint64_t b : op == "fma" ? few : edges) {
      for (uint64_t c : op == "fma" ? few : zero) {
        single.Add(static_cast<uint16_t>(a), static_cast<uint16_t>(b), static_cast<uint16_t>(c), check_code);
        if (op != "fma")
          pair.Add(static_cast<uint32_t>(b << 16 | a), static_cast<uint32_t>(a << 16 | b), 0, check_pair);
        else
          pair.Add(static_cast<uint32_t>(b << 16 | a), static_cast<uint32_t>(c << 16 | b),
                   static_cast<uint32_t>(a << 16 | c), check_pair);
      }
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  single.Flush(check_code);
  pair.Flush(check_pair);
  EXPECT_GT(exact, 10000u) << name;
}

TEST(AluSmallTest, Arithmetic) {
  for (const char* op : {"add", "sub", "mul", "fma"}) {
    for (const Words& w : {Words{"", false, false, false}, Words{".ftz", true, false, false},
                           Words{".sat", false, true, false}, Words{".ftz.sat", true, true, false}}) {
      CheckArithmetic(kFormats[0], op, w);
    }
    CheckArithmetic(kFormats[1], op, Words{"", false, false, false});
  }
  CheckArithmetic(kFormats[0], "fma", Words{".relu", false, false, true});
  CheckArithmetic(kFormats[0], "fma", Words{".ftz.relu", true, false, true});
  CheckArithmetic(kFormats[1], "fma", Words{".relu", false, false, true});
}

TEST(AluSmallTest, Extremes) {
  for (const Format& f : kFormats) {
    for (int words = 0; words < 8; ++words) {
      bool nan = words & 1, xorsign = words & 2, flush = words & 4;
      if (flush && f.exponent_bits == 8) continue;
      for (bool min : {false, true}) {
        std::string name = std::string(min ? "min" : "max") + (flush ? ".ftz" : "") + (nan ? ".NaN" : "") +
                           (xorsign ? ".xorsign.abs" : "") + "." + f.name;
        Batch<uint16_t, uint16_t, uint16_t, uint16_t> batch(name);
        auto check = [&](uint16_t got, uint16_t a, uint16_t b, uint16_t) {
          if (flush) {
            a = FlushCode(f, a);
            b = FlushCode(f, b);
          }
          uint16_t sign = (a ^ b) & 0x8000;
          if (xorsign) {
            a &= 0x7fff;
            b &= 0x7fff;
          }
          bool a_nan = f.values.IsNan(a), b_nan = f.values.IsNan(b);
          // Codes order like numbers once negative ones are turned around.
          auto key = [](uint16_t v) { return v & 0x8000 ? 0x7fff - (v & 0x7fff) : 0x8000 + v; };
          uint16_t expected = a_nan ? b : b_nan ? a : (key(a) < key(b)) == min ? a : b;
          if ((a_nan && b_nan) || (nan && (a_nan || b_nan)))
            expected = 0x7fff;
          else if (xorsign)
            expected = static_cast<uint16_t>((expected & 0x7fff) | sign);
          ASSERT_EQ(got, expected) << name << std::hex << " " << a << " " << b;
        };
        for (uint64_t a : FloatEdges(16, f.exponent_bits, 20)) {
          for (uint64_t b : FloatEdges(16, f.exponent_bits, 20))
            batch.Add(static_cast<uint16_t>(a), static_cast<uint16_t>(b), 0, check);
          if (HasFatalFailure()) return;
        }
        batch.Flush(check);
      }
    }
  }
}

// Single precision sums and products with half sources.
TEST(AluSmallTest, MixedPrecision) {
  for (const Format& f : kFormats) {
    for (const Mode& mode : kModes) {
      std::string words = std::string(mode.word) + ".f32." + f.name;
      Batch<float, uint16_t, float, float> add("add" + words), sub("sub" + words);
      Batch<float, uint16_t, uint16_t, float> fma("fma" + words);
      auto same = [](float got, float expected) {
        ASSERT_EQ(Bits<uint32_t>(got), expected != expected ? kNanF32 : Bits<uint32_t>(expected));
      };
      auto check_add = [&](float got, uint16_t a, float b, float) {
        volatile float x = static_cast<float>(f.values.Value(a)), y = b, r;
        {
          InRounding rounding(mode.fe);
          r = x + y;
        }
        same(got, r);
      };
      auto check_sub = [&](float got, uint16_t a, float b, float) {
        volatile float x = static_cast<float>(f.values.Value(a)), y = b, r;
        {
          InRounding rounding(mode.fe);
          r = x - y;
        }
        same(got, r);
      };
      auto check_fma = [&](float got, uint16_t a, uint16_t b, float c) {
        volatile float x = static_cast<float>(f.values.Value(a)), y = static_cast<float>(f.values.Value(b)),
                       z = c, r;
        {
          InRounding rounding(mode.fe);
          r = std::fma(x, y, z);
        }
        same(got, r);
      };
      for (uint64_t a : FloatEdges(16, f.exponent_bits, 10)) {
        for (float b : Edges<float>(10)) {
          add.Add(static_cast<uint16_t>(a), b, 0, check_add);
          sub.Add(static_cast<uint16_t>(a), b, 0, check_sub);
          fma.Add(static_cast<uint16_t>(a), static_cast<uint16_t>(a * 77), b, check_fma);
        }
        if (HasFatalFailure()) return;
      }
      add.Flush(check_add);
      sub.Flush(check_sub);
      fma.Flush(check_fma);
    }
  }
}

TEST(AluSmallTest, ComparisonOfPairs) {
  Batch<uint32_t, uint32_t, uint32_t, uint32_t> mask("set.gtu.u32.f16x2"), one("set.le.f16x2.f16x2");
  auto value = [](uint32_t v, int shift) { return HalfFormat().Value(v >> shift & 0xffff); };
  auto check_mask = [&](uint32_t got, uint32_t a, uint32_t b, uint32_t) {
    for (int s : {0, 16}) ASSERT_EQ(got >> s & 0xffff, !(value(a, s) <= value(b, s)) ? 0xffffu : 0u);
  };
  auto check_one = [&](uint32_t got, uint32_t a, uint32_t b, uint32_t) {
    for (int s : {0, 16}) ASSERT_EQ(got >> s & 0xffff, value(a, s) <= value(b, s) ? 0x3c00u : 0u);
  };
  for (uint64_t a : FloatEdges(16, 5, 20)) {
    for (uint64_t b : FloatEdges(16, 5, 20)) {
      mask.Add(static_cast<uint32_t>(a << 16 | b), static_cast<uint32_t>(b << 16 | a), 0, check_mask);
      one.Add(static_cast<uint32_t>(a << 16 | b), static_cast<uint32_t>(b << 16 | a), 0, check_one);
    }
  }
  mask.Flush(check_mask);
  one.Flush(check_one);
  // Flushing compares all subnormal halves as zeros.
  AluOp plain = Resolved("setp.eq.f16"), flushed = Resolved("setp.eq.ftz.f16");
  Row a, b;
  a.Set<uint16_t>(3, 0x0001);
  b.Set<uint16_t>(3, 0x83ff);
  EXPECT_EQ(plain.compare(a.bytes, b.bytes) >> 3 & 1, 0u);
  EXPECT_EQ(flushed.compare(a.bytes, b.bytes) >> 3 & 1, 1u);
}

}  // namespace
}  // namespace softgpu::exec
