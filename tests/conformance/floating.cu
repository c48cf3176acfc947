// Single and double precision: IEEE operations and conversions bit for bit in every rounding mode against the
// host FPU, library functions and approximations within the bounds of the CUDA C++ Programming Guide
// (mathematical functions).
#include <cfenv>

#include "check.h"

using namespace check;

enum Op { kAdd, kMul, kFma, kDiv, kSqrt, kRcp };
constexpr int kModes[4] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
constexpr const char* kModeNames[4] = {"rn", "rz", "ru", "rd"};

template <int kOp, int kMode, typename T>
__device__ T Rounded(T a, T b, T c) {
#define BY_MODE(rn, rz, ru, rd) (kMode == 0 ? (rn) : kMode == 1 ? (rz) : kMode == 2 ? (ru) : (rd))
  if constexpr (std::is_same_v<T, float>) {
    if constexpr (kOp == kAdd)
      return BY_MODE(__fadd_rn(a, b), __fadd_rz(a, b), __fadd_ru(a, b), __fadd_rd(a, b));
    if constexpr (kOp == kMul)
      return BY_MODE(__fmul_rn(a, b), __fmul_rz(a, b), __fmul_ru(a, b), __fmul_rd(a, b));
    if constexpr (kOp == kFma)
      return BY_MODE(__fmaf_rn(a, b, c), __fmaf_rz(a, b, c), __fmaf_ru(a, b, c), __fmaf_rd(a, b, c));
    if constexpr (kOp == kDiv)
      return BY_MODE(__fdiv_rn(a, b), __fdiv_rz(a, b), __fdiv_ru(a, b), __fdiv_rd(a, b));
    if constexpr (kOp == kSqrt) return BY_MODE(__fsqrt_rn(a), __fsqrt_rz(a), __fsqrt_ru(a), __fsqrt_rd(a));
    if constexpr (kOp == kRcp) return BY_MODE(__frcp_rn(a), __frcp_rz(a), __frcp_ru(a), __frcp_rd(a));
  } else {
    if constexpr (kOp == kAdd)
      return BY_MODE(__dadd_rn(a, b), __dadd_rz(a, b), __dadd_ru(a, b), __dadd_rd(a, b));
    if constexpr (kOp == kMul)
      return BY_MODE(__dmul_rn(a, b), __dmul_rz(a, b), __dmul_ru(a, b), __dmul_rd(a, b));
    if constexpr (kOp == kFma)
      return BY_MODE(__fma_rn(a, b, c), __fma_rz(a, b, c), __fma_ru(a, b, c), __fma_rd(a, b, c));
    if constexpr (kOp == kDiv)
      return BY_MODE(__ddiv_rn(a, b), __ddiv_rz(a, b), __ddiv_ru(a, b), __ddiv_rd(a, b));
    if constexpr (kOp == kSqrt) return BY_MODE(__dsqrt_rn(a), __dsqrt_rz(a), __dsqrt_ru(a), __dsqrt_rd(a));
    if constexpr (kOp == kRcp) return BY_MODE(__drcp_rn(a), __drcp_rz(a), __drcp_ru(a), __drcp_rd(a));
  }
#undef BY_MODE
  return a;
}

template <int kOp, int kMode>
struct RoundedOp {
  template <typename T>
  __device__ T operator()(T a, T b, T c) const {
    return Rounded<kOp, kMode>(a, b, c);
  }
};

template <typename T>
T HostRounded(int op, int mode, T a, T b, T c) {
  volatile T x = a, y = b, z = c, result = 0;
  std::fesetround(kModes[mode]);
  switch (op) {
    case kAdd:
      result = x + y;
      break;
    case kMul:
      result = x * y;
      break;
    case kFma:
      result = std::fma(static_cast<T>(x), static_cast<T>(y), static_cast<T>(z));
      break;
    case kDiv:
      result = x / y;
      break;
    case kSqrt:
      result = std::sqrt(static_cast<T>(x));
      break;
    case kRcp:
      result = T(1) / x;
      break;
  }
  std::fesetround(FE_TONEAREST);
  return result;
}

template <typename T, int kOp, int kMode>
void CheckRounded(const char* name) {
  std::vector<T> a, b, c;
  Pairs(&a, &b, 51);
  c = Values<T>(a.size(), 52);
  std::vector<T> got = RunThree<RoundedOp<kOp, kMode>, T>(a, b, c);
  for (size_t i = 0; i < a.size(); ++i) {
    Same(std::string(name) + "." + kModeNames[kMode] + (sizeof(T) == 4 ? ".f32" : ".f64"), got[i],
         HostRounded(kOp, kMode, a[i], b[i], c[i]), Text(a[i]) + ", " + Text(b[i]) + ", " + Text(c[i]));
  }
}
template <typename T, int kOp>
void CheckModes(const char* name) {
  CheckRounded<T, kOp, 0>(name);
  CheckRounded<T, kOp, 1>(name);
  CheckRounded<T, kOp, 2>(name);
  CheckRounded<T, kOp, 3>(name);
}
template <typename T>
void CheckIeee() {
  CheckModes<T, kAdd>("add");
  CheckModes<T, kMul>("mul");
  CheckModes<T, kFma>("fma");
  CheckModes<T, kDiv>("div");
  CheckModes<T, kSqrt>("sqrt");
  CheckModes<T, kRcp>("rcp");
}

// Exact library functions and comparisons.
struct Exact {
  template <typename T>
  __host__ __device__ double operator()(T a, T b) const {
    double order = (a < b) + 2 * (a <= b) + 4 * (a > b) + 8 * (a >= b) + 16 * (a == b) + 32 * (a != b) +
                   64 * !(a < b) + 128 * !(a >= b);
    T parts = floor(a) == a ? T(1) : T(0);
    parts += (ceil(a) == a ? T(2) : T(0)) + (trunc(b) == b ? T(4) : T(0)) + (rint(b) == b ? T(8) : T(0));
    return order + 1024 * static_cast<double>(parts) + (isnan(a) ? 65536 : 0) + (isinf(b) ? 131072 : 0) +
           (signbit(a) ? 262144 : 0);
  }
};
// Where the two zeros meet, either may come out.
struct Smaller {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return a == b ? T(0) : fmin(a, b);
  }
};
struct Larger {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return a == b ? T(0) : fmax(a, b);
  }
};
struct Copysign {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return isnan(b) ? T(0) : copysign(fabs(a), b);
  }
};
struct Remainder {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return fmod(a, b);
  }
};
template <typename T>
void CheckExact() {
  std::vector<T> a, b;
  Pairs(&a, &b, 61);
  const char* suffix = sizeof(T) == 4 ? ".f32" : ".f64";
  std::vector<double> order = RunTwo<Exact, double>(a, b);
  std::vector<T> smaller = RunTwo<Smaller, T>(a, b), larger = RunTwo<Larger, T>(a, b);
  std::vector<T> sign = RunTwo<Copysign, T>(a, b), remainder = RunTwo<Remainder, T>(a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    std::string input = Text(a[i]) + ", " + Text(b[i]);
    Same(std::string("compare") + suffix, order[i], Exact()(a[i], b[i]), input);
    Same(std::string("fmin") + suffix, smaller[i], Smaller()(a[i], b[i]), input);
    Same(std::string("fmax") + suffix, larger[i], Larger()(a[i], b[i]), input);
    Same(std::string("copysign") + suffix, sign[i], Copysign()(a[i], b[i]), input);
    Same(std::string("fmod") + suffix, remainder[i], Remainder()(a[i], b[i]), input);
  }
}

// Conversions between floating point and integers: device rounding intrinsics, host rounding by the FPU's
// mode, clamped as the PTX manual's cvt section says (NaN becomes zero for 32-bit, out-of-range values the
// nearest limit).
template <int kMode>
struct FloatToInt {
  __device__ int4 operator()(float a) const {
    if constexpr (kMode == 0)
      return make_int4(__float2int_rn(a), __float2uint_rn(a), static_cast<int>(__float2ll_rn(a) >> 7), 0);
    if constexpr (kMode == 1)
      return make_int4(__float2int_rz(a), __float2uint_rz(a), static_cast<int>(__float2ll_rz(a) >> 7), 0);
    if constexpr (kMode == 2)
      return make_int4(__float2int_ru(a), __float2uint_ru(a), static_cast<int>(__float2ll_ru(a) >> 7), 0);
    return make_int4(__float2int_rd(a), __float2uint_rd(a), static_cast<int>(__float2ll_rd(a) >> 7), 0);
  }
};
long double HostIntegral(double value, int mode) {
  std::fesetround(kModes[mode]);
  volatile double result = std::nearbyint(value);
  std::fesetround(FE_TONEAREST);
  return result;
}
template <typename I>
I Clamped(long double value) {
  if (value <= static_cast<long double>(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
  if (value >= static_cast<long double>(std::numeric_limits<I>::max())) return std::numeric_limits<I>::max();
  return static_cast<I>(value);
}
template <int kMode>
void CheckFloatToInt(bool flushes) {
  std::vector<float> a = Values<float>(4000, 71);
  // -use_fast_math flushes subnormal sources, which directed roundings would otherwise see.
  if (flushes) {
    for (float& value : a) value = std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
  }
  std::vector<int4> got = RunOne<FloatToInt<kMode>, int4>(a);
  for (size_t i = 0; i < a.size(); ++i) {
    if (IsNan(a[i])) continue;
    long double integral = HostIntegral(a[i], kMode);
    std::string name = std::string("float2int.") + kModeNames[kMode];
    Same(name, got[i].x, Clamped<int>(integral), Text(a[i]));
    Same(name + "/u", static_cast<unsigned>(got[i].y), Clamped<unsigned>(integral), Text(a[i]));
    Same(name + "/ll", got[i].z, static_cast<int>(Clamped<long long>(integral) >> 7), Text(a[i]));
  }
}
template <int kMode>
struct IntToFloat {
  __device__ float4 operator()(long long a) const {
    int narrow = static_cast<int>(a >> 3);
    if constexpr (kMode == 0)
      return make_float4(__ll2float_rn(a), __int2float_rn(narrow), __uint2float_rn(narrow),
                         __double2float_rn(a * 1e-3));
    if constexpr (kMode == 1)
      return make_float4(__ll2float_rz(a), __int2float_rz(narrow), __uint2float_rz(narrow),
                         __double2float_rz(a * 1e-3));
    if constexpr (kMode == 2)
      return make_float4(__ll2float_ru(a), __int2float_ru(narrow), __uint2float_ru(narrow),
                         __double2float_ru(a * 1e-3));
    return make_float4(__ll2float_rd(a), __int2float_rd(narrow), __uint2float_rd(narrow),
                       __double2float_rd(a * 1e-3));
  }
};
template <int kMode>
void CheckIntToFloat() {
  std::vector<long long> a = Values<long long>(4000, 81);
  std::vector<float4> got = RunOne<IntToFloat<kMode>, float4>(a);
  for (size_t i = 0; i < a.size(); ++i) {
    volatile double scaled = static_cast<double>(a[i]) * 1e-3;
    std::fesetround(kModes[kMode]);
    volatile long long wide = a[i];
    volatile int narrow = static_cast<int>(a[i] >> 3);
    volatile unsigned unsigned_narrow = static_cast<unsigned>(narrow);
    volatile float x = static_cast<float>(wide), y = static_cast<float>(narrow),
                   z = static_cast<float>(unsigned_narrow), w = static_cast<float>(scaled);
    std::fesetround(FE_TONEAREST);
    std::string name = std::string("int2float.") + kModeNames[kMode];
    Same(name + "/ll", got[i].x, static_cast<float>(x), Text(a[i]));
    Same(name, got[i].y, static_cast<float>(y), Text(a[i]));
    Same(name + "/u", got[i].z, static_cast<float>(z), Text(a[i]));
    Same(name + "/d", got[i].w, static_cast<float>(w), Text(a[i]));
  }
}
struct Saturate {
  __device__ float operator()(float a) const { return __saturatef(a); }
};
void CheckSaturate(bool flushes) {
  std::vector<float> a = Values<float>(2000, 91);
  std::vector<float> got = RunOne<Saturate, float>(a);
  for (size_t i = 0; i < a.size(); ++i) {
    float want = a[i] > 0 ? (a[i] < 1 ? a[i] : 1.0f) : 0.0f;
    if (flushes && std::fpclassify(want) == FP_SUBNORMAL) want = 0;
    Same("saturate", got[i], want, Text(a[i]));
  }
}

// Library functions, argument range, and the largest error the guide states (one more where the reference
// rounds).
#define FUNCTION(Name, device, host)                        \
  struct Name {                                             \
    template <typename T>                                   \
    __device__ T operator()(T x) const {                    \
      return device;                                        \
    }                                                       \
    static long double Host(long double x) { return host; } \
  };
FUNCTION(Exp, exp(x), expl(x))
FUNCTION(Exp2, exp2(x), exp2l(x))
FUNCTION(Log, log(x), logl(x))
FUNCTION(Log2, log2(x), log2l(x))
FUNCTION(Log1p, log1p(x), log1pl(x))
FUNCTION(Sin, sin(x), sinl(x))
FUNCTION(Cos, cos(x), cosl(x))
FUNCTION(Tan, tan(x), tanl(x))
FUNCTION(Atan, atan(x), atanl(x))
FUNCTION(Tanh, tanh(x), tanhl(x))
FUNCTION(Erf, erf(x), erfl(x))
FUNCTION(Cbrt, cbrt(x), cbrtl(x))
FUNCTION(Rsqrt, rsqrt(x), 1 / sqrtl(x))
FUNCTION(Pow, pow(fabs(x), T(1.75)), powl(fabsl(x), 1.75L))

template <typename F, typename T>
void CheckFunction(const char* name, double low, double high, double ulps) {
  std::mt19937_64 random(101);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> a = {T(low), T(high)};
  if (low < 0) a.insert(a.end(), {T(0), T(-0.0)});
  while (a.size() < 3000) a.push_back(static_cast<T>(uniform(random)));
  std::vector<T> got = RunOne<F, T>(a);
  for (size_t i = 0; i < a.size(); ++i) {
    Near(std::string(name) + (sizeof(T) == 4 ? "f" : ""), got[i], F::Host(a[i]), ulps, Text(a[i]));
  }
}
template <typename T>
void CheckFunctions(bool fast) {
  constexpr bool kSingle = sizeof(T) == 4;
  double top = kSingle ? 85 : 700;
  if (!fast || !kSingle) {
    CheckFunction<Exp, T>("exp", -top, top, 2);
    CheckFunction<Exp2, T>("exp2", -100, 100, 2);
    CheckFunction<Log, T>("log", 1e-30, 1e6, 2);
    CheckFunction<Log2, T>("log2", 1e-30, 1e6, 2);
    CheckFunction<Sin, T>("sin", -100000, 100000, 2);
    CheckFunction<Cos, T>("cos", -100000, 100000, 2);
    CheckFunction<Tan, T>("tan", -100, 100, 4);
    CheckFunction<Tanh, T>("tanh", -5, 5, 2);
    CheckFunction<Pow, T>("pow", -1000, 1000, kSingle ? 4 : 2);
    CheckFunction<Rsqrt, T>("rsqrt", 1e-30, 1e30, 2);
  }
  CheckFunction<Log1p, T>("log1p", -0.9, 100, 2);
  CheckFunction<Atan, T>("atan", -100, 100, 2);
  CheckFunction<Erf, T>("erf", -4, 4, 2);
  CheckFunction<Cbrt, T>("cbrt", -1000, 1000, 2);
}

// Fast intrinsics: the guide states absolute bounds for sine and cosine in [-pi, pi] and relative ones
// elsewhere.
struct Fast {
  __device__ float4 operator()(float x) const {
    return make_float4(__sinf(x), __cosf(x), __expf(x), __logf(fabsf(x) + 0.1f));
  }
};
struct FastDivide {
  __device__ float operator()(float a, float b) const { return __fdividef(a, b); }
};
void CheckFast() {
  std::vector<float> a, b;
  std::mt19937 random(111);
  std::uniform_real_distribution<float> angle(-3.14159f, 3.14159f), divisor(0.01f, 1000.0f);
  for (int i = 0; i < 4000; ++i) {
    a.push_back(angle(random));
    b.push_back(divisor(random));
  }
  std::vector<float4> got = RunOne<Fast, float4>(a);
  std::vector<float> quotient = RunTwo<FastDivide, float>(a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    Report(std::fabs(got[i].x - std::sin(double(a[i]))) <= 0x1p-21, "__sinf",
           Text(a[i]) + " gave " + Text(got[i].x));
    Report(std::fabs(got[i].y - std::cos(double(a[i]))) <= 0x1p-21, "__cosf",
           Text(a[i]) + " gave " + Text(got[i].y));
    Near("__expf", got[i].z, expl(a[i]), 2 + std::floor(std::fabs(1.173 * a[i])), Text(a[i]));
    double argument = std::fabs(a[i]) + 0.1f;
    Report(std::fabs(got[i].w - std::log(double(float(argument)))) <= 0x1p-20, "__logf",
           Text(a[i]) + " gave " + Text(got[i].w));
    Near("__fdividef", quotient[i], static_cast<long double>(a[i]) / b[i], 2, Text(a[i]));
  }
}

int main() {
#ifdef CONFORMANCE_FAST_MATH
  constexpr bool kFast = true;
#else
  constexpr bool kFast = false;
  CheckIeee<float>();
  CheckExact<float>();
#endif
  CheckIeee<double>();
  CheckExact<double>();
  CheckFloatToInt<0>(kFast);
  CheckFloatToInt<1>(kFast);
  CheckFloatToInt<2>(kFast);
  CheckFloatToInt<3>(kFast);
  CheckIntToFloat<0>();
  CheckIntToFloat<1>();
  CheckIntToFloat<2>();
  CheckIntToFloat<3>();
  CheckSaturate(kFast);
  CheckFunctions<float>(kFast);
  CheckFunctions<double>(kFast);
  CheckFast();
  return Finish("floating");
}
