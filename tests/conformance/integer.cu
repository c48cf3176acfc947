// Integer arithmetic of every width: device results against the host compiler's, bit for bit.
#include "check.h"

using namespace check;

// Each functor runs on both sides; wrapping is made explicit through the unsigned type, so that no overflow
// is undefined.
template <typename T>
using Unsigned = std::make_unsigned_t<T>;

#define BINARY(Name, expression)                       \
  struct Name {                                        \
    template <typename T>                              \
    __host__ __device__ T operator()(T a, T b) const { \
      using U = Unsigned<T>;                           \
      U x = static_cast<U>(a), y = static_cast<U>(b);  \
      (void)x;                                         \
      (void)y;                                         \
      return static_cast<T>(expression);               \
    }                                                  \
  };
BINARY(Add, static_cast<U>(x + y))
BINARY(Sub, static_cast<U>(x - y))
BINARY(Mul, static_cast<U>(static_cast<unsigned long long>(x) * y))
BINARY(And, x& y)
BINARY(Or, x | y)
BINARY(Xor, x ^ y)
BINARY(NotAnd, static_cast<U>(~x) & y)
BINARY(ShiftLeft, static_cast<U>(x << (y % (8 * sizeof(U)))))
BINARY(ShiftRight, a >> (y % (8 * sizeof(U))))
BINARY(Divide, b == 0 || (b == T(-1)) ? T(1) : a / b)
BINARY(Remainder, b == 0 || (b == T(-1)) ? T(1) : a % b)
BINARY(Min, a < b ? a : b)
BINARY(Max, a > b ? a : b)
BINARY(Compare, (a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4 | (a != b) << 5)
BINARY(MulAdd, static_cast<U>(static_cast<unsigned long long>(x) * y + x))
BINARY(AbsDifference, a < b ? static_cast<U>(y - x) : static_cast<U>(x - y))

template <typename F, typename T>
void Check(const char* name) {
  std::vector<T> a, b;
  Pairs(&a, &b, 11);
  std::vector<T> got = RunTwo<F, T>(a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    Same(std::string(name) + "/" + std::to_string(8 * sizeof(T)) + (std::is_signed_v<T> ? "s" : "u"), got[i],
         F()(a[i], b[i]), Text(a[i]) + ", " + Text(b[i]));
  }
}

template <typename T>
void CheckWidth() {
  Check<Add, T>("add");
  Check<Sub, T>("sub");
  Check<Mul, T>("mul");
  Check<And, T>("and");
  Check<Or, T>("or");
  Check<Xor, T>("xor");
  Check<NotAnd, T>("andn");
  Check<ShiftLeft, T>("shl");
  Check<ShiftRight, T>("shr");
  Check<Divide, T>("div");
  Check<Remainder, T>("rem");
  Check<Min, T>("min");
  Check<Max, T>("max");
  Check<Compare, T>("compare");
  Check<MulAdd, T>("mad");
  Check<AbsDifference, T>("absdiff");
}

// Bit operations: the intrinsic on the device, a plain loop on the host.
template <typename T>
struct Bits {
  __device__ unsigned long long operator()(T a) const {
    if constexpr (sizeof(T) == 8) {
      return __popcll(a) | __clzll(a) << 8 | __ffsll(a) << 16 | (__brevll(a) & 0xffffffff) << 32;
    } else {
      return __popc(a) | __clz(a) << 8 | __ffs(a) << 16 | static_cast<unsigned long long>(__brev(a)) << 32;
    }
  }
};
template <typename T>
unsigned long long HostBits(T a) {
  constexpr int kWidth = 8 * sizeof(T);
  unsigned long long ones = 0, leading = kWidth, first = 0, reversed = 0;
  for (int i = 0; i < kWidth; ++i) {
    if (!(a >> i & 1)) continue;
    ++ones;
    leading = kWidth - 1 - i;
    if (first == 0) first = i + 1;
    reversed |= 1ull << (kWidth - 1 - i);
  }
  return ones | leading << 8 | first << 16 | (reversed & 0xffffffff) << 32;
}
template <typename T>
void CheckBits(const char* name) {
  std::vector<T> a = Values<T>(3000, 5);
  std::vector<unsigned long long> got = RunOne<Bits<T>, unsigned long long>(a);
  for (size_t i = 0; i < a.size(); ++i) Same(name, got[i], HostBits(a[i]), Text(a[i]));
}

struct HighProduct {
  __device__ int4 operator()(long long a, long long b) const {
    int signed_high = __mulhi(static_cast<int>(a), static_cast<int>(b));
    unsigned unsigned_high = __umulhi(static_cast<unsigned>(a), static_cast<unsigned>(b));
    long long high = __mul64hi(a, b);
    unsigned long long uhigh = __umul64hi(a, b);
    return make_int4(signed_high, unsigned_high, static_cast<int>(high >> 32) ^ static_cast<int>(high),
                     static_cast<int>(uhigh >> 32) ^ static_cast<int>(uhigh));
  }
};
void CheckHighProduct() {
  std::vector<long long> a, b;
  Pairs(&a, &b, 21);
  std::vector<int4> got = RunTwo<HighProduct, int4>(a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    long long narrow = static_cast<long long>(static_cast<int>(a[i])) * static_cast<int>(b[i]);
    unsigned long long unarrow =
        static_cast<unsigned long long>(static_cast<unsigned>(a[i])) * static_cast<unsigned>(b[i]);
    __int128 wide = static_cast<__int128>(a[i]) * b[i];
    unsigned __int128 uwide = static_cast<unsigned __int128>(static_cast<unsigned long long>(a[i])) *
                              static_cast<unsigned long long>(b[i]);
    long long high = static_cast<long long>(wide >> 64);
    unsigned long long uhigh = static_cast<unsigned long long>(uwide >> 64);
    Same("mulhi", got[i].x, static_cast<int>(narrow >> 32));
    Same("umulhi", got[i].y, static_cast<int>(unarrow >> 32));
    Same("mul64hi", got[i].z, static_cast<int>(high >> 32) ^ static_cast<int>(high));
    Same("umul64hi", got[i].w, static_cast<int>(uhigh >> 32) ^ static_cast<int>(uhigh));
  }
}

// 128-bit arithmetic compiles to carry chains.
struct Wide {
  __host__ __device__ unsigned long long operator()(unsigned long long a, unsigned long long b) const {
    unsigned __int128 x = static_cast<unsigned __int128>(a) << 64 | b;
    unsigned __int128 y = static_cast<unsigned __int128>(b) << 60 | (a >> 3);
    unsigned __int128 sum = x + y, difference = x - y, product = x * y;
    sum ^= difference << 7 ^ product;
    return static_cast<unsigned long long>(sum >> 64) ^ static_cast<unsigned long long>(sum);
  }
};

struct Funnel {
  __device__ uint4 operator()(unsigned a, unsigned b) const {
    return make_uint4(__funnelshift_l(a, b, a & 63), __funnelshift_r(a, b, b & 63),
                      __funnelshift_lc(a, b, a & 63), __funnelshift_rc(a, b, b & 63));
  }
};
void CheckFunnel() {
  std::vector<unsigned> a, b;
  Pairs(&a, &b, 31);
  std::vector<uint4> got = RunTwo<Funnel, uint4>(a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    unsigned long long both = static_cast<unsigned long long>(b[i]) << 32 | a[i];
    unsigned left = a[i] & 63, right = b[i] & 63;
    auto clamp = [](unsigned s) { return s > 32 ? 32u : s; };
    Same("funnelshift_l", got[i].x, static_cast<unsigned>(both << (left & 31) >> 32));
    Same("funnelshift_r", got[i].y, static_cast<unsigned>(both >> (right & 31)));
    Same("funnelshift_lc", got[i].z, static_cast<unsigned>(both << clamp(left) >> 32));
    Same("funnelshift_rc", got[i].w, static_cast<unsigned>(both >> clamp(right)));
  }
}

struct Bytes {
  __device__ int4 operator()(unsigned a, unsigned b) const {
    return make_int4(__byte_perm(a, b, 0x6420 ^ (a & 0x7777)),
                     __dp4a(static_cast<int>(a), static_cast<int>(b), 17), __usad(a, b, 5u), __vadd4(a, b));
  }
};
void CheckBytes() {
  std::vector<unsigned> a, b;
  Pairs(&a, &b, 41);
  std::vector<int4> got = RunTwo<Bytes, int4>(a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    unsigned char pool[8], sum[4];
    std::memcpy(pool, &a[i], 4);
    std::memcpy(pool + 4, &b[i], 4);
    unsigned selector = 0x6420 ^ (a[i] & 0x7777), permuted = 0, added = 0;
    int dot = 17;
    for (int j = 0; j < 4; ++j) {
      permuted |= static_cast<unsigned>(pool[selector >> (4 * j) & 7]) << (8 * j);
      dot += static_cast<signed char>(a[i] >> (8 * j)) * static_cast<signed char>(b[i] >> (8 * j));
      sum[j] = static_cast<unsigned char>(pool[j] + pool[4 + j]);
    }
    std::memcpy(&added, sum, 4);
    Same("byte_perm", got[i].x, static_cast<int>(permuted));
    Same("dp4a", got[i].y, dot);
    Same("usad", static_cast<unsigned>(got[i].z), (a[i] > b[i] ? a[i] - b[i] : b[i] - a[i]) + 5u);
    Same("vadd4", static_cast<unsigned>(got[i].w), added);
  }
}

int main() {
  CheckWidth<signed char>();
  CheckWidth<unsigned char>();
  CheckWidth<short>();
  CheckWidth<unsigned short>();
  CheckWidth<int>();
  CheckWidth<unsigned>();
  CheckWidth<long long>();
  CheckWidth<unsigned long long>();
  CheckBits<unsigned>("bits/32");
  CheckBits<unsigned long long>("bits/64");
  CheckHighProduct();
  Check<Wide, unsigned long long>("wide128");
  CheckFunnel();
  CheckBytes();
  return Finish("integer");
}
