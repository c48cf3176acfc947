// Checking for the conformance programs: each compares what kernels computed with what the host computes for
// the same inputs. A program prints one line per failed comparison (the first few), a summary, and exits 1 on
// any failure.
#ifndef TESTS_CONFORMANCE_CHECK_H_
#define TESTS_CONFORMANCE_CHECK_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#define CUDA_OK(call)                                                                                 \
  do {                                                                                                \
    cudaError_t error_ = (call);                                                                      \
    if (error_ != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

namespace check {

struct Totals {
  long compared = 0, failed = 0;
};
inline Totals& totals() {
  static Totals totals;
  return totals;
}

template <typename T>
std::string Text(T value) {
  char text[96];
  unsigned long long bits = 0;
  std::memcpy(&bits, &value, sizeof value < sizeof bits ? sizeof value : sizeof bits);
  if constexpr (std::is_floating_point_v<T>) {
    std::snprintf(text, sizeof text, "%.17g (0x%llx)", static_cast<double>(value), bits);
  } else {
    std::snprintf(text, sizeof text, "0x%llx", bits);
  }
  return text;
}

inline void Report(bool same, const std::string& what, const std::string& detail) {
  ++totals().compared;
  if (same) return;
  if (++totals().failed <= 20) std::printf("FAILED %s: %s\n", what.c_str(), detail.c_str());
}

template <typename T>
bool IsNan(T value) {
  if constexpr (std::is_floating_point_v<T>) return value != value;
  return false;
}

// Bit for bit, except that any NaN equals any NaN: the manual leaves payloads open.
template <typename T>
void Same(const std::string& what, T got, T want, const std::string& input = "") {
  bool same = std::memcmp(&got, &want, sizeof(T)) == 0 || (IsNan(got) && IsNan(want));
  Report(same, what, "got " + Text(got) + ", want " + Text(want) + (input.empty() ? "" : " for " + input));
}

// Distance in units in the last place of T, infinities and NaNs must agree exactly.
template <typename T>
double Ulps(T got, long double want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : 1e30;
  T rounded = static_cast<T>(want);
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0 : 1e30;
  int exponent = 0;
  std::frexp(static_cast<long double>(rounded), &exponent);
  int lowest = std::numeric_limits<T>::min_exponent;
  if (rounded == 0 || exponent < lowest) exponent = lowest;
  long double ulp = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs((static_cast<long double>(got) - want) / ulp));
}

template <typename T>
void Near(const std::string& what, T got, long double want, double ulps, const std::string& input = "") {
  double distance = Ulps(got, want);
  Report(distance <= ulps, what,
         "got " + Text(got) + ", want " + Text(static_cast<double>(want)) + " within " +
             std::to_string(ulps) + " ulp, off by " + std::to_string(distance) + " for " + input);
}

inline int Finish(const char* name) {
  std::printf("%s: %ld comparisons, %ld failed\n", name, totals().compared, totals().failed);
  return totals().failed == 0 && totals().compared > 0 ? 0 : 1;
}

// Device memory that lives as long as the object.
template <typename T>
class Device {
 public:
  explicit Device(size_t count) : count_(count) {
    CUDA_OK(cudaMalloc(&data_, count * sizeof(T)));
    CUDA_OK(cudaMemset(data_, 0, count * sizeof(T)));
  }
  explicit Device(const std::vector<T>& values) : Device(values.size()) {
    CUDA_OK(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  T* get() { return data_; }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    CUDA_OK(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t count_;
  T* data_ = nullptr;
};

// Edge values of T, then seeded random bit patterns and small numbers.
template <typename T>
std::vector<T> Values(size_t count, unsigned seed) {
  std::vector<T> values;
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_floating_point_v<T>) {
    values = {T(0),
              T(-0.0),
              T(1),
              T(-1),
              T(0.5),
              T(1.5),
              T(-2.5),
              T(3),
              Limits::min(),
              -Limits::min(),
              Limits::max(),
              Limits::lowest(),
              Limits::denorm_min(),
              -Limits::denorm_min(),
              Limits::epsilon(),
              Limits::infinity(),
              -Limits::infinity(),
              Limits::quiet_NaN(),
              T(2147483648.0),
              T(-2147483649.0),
              T(4294967296.0),
              T(1e10)};
  } else {
    values = {T(0),
              T(1),
              T(2),
              T(3),
              T(7),
              Limits::max(),
              Limits::min(),
              T(Limits::max() - 1),
              T(Limits::min() + 1),
              T(-1),
              T(Limits::max() / 2),
              T(0x55),
              T(10)};
  }
  std::mt19937_64 random(seed);
  while (values.size() < count) {
    uint64_t bits = random();
    T value;
    std::memcpy(&value, &bits, sizeof value);
    if constexpr (std::is_floating_point_v<T>) {
      // The host's library treats signalling NaNs its own way.
      if (IsNan(value)) value = Limits::quiet_NaN();
      if (values.size() % 2) value = static_cast<T>((static_cast<double>(bits >> 11) * 0x1p-53 - 0.5) * 200);
    } else {
      if (values.size() % 3 == 0) value = static_cast<T>(bits % 97);
    }
    values.push_back(value);
  }
  values.resize(count);
  return values;
}

// Pairs of every edge value with every edge value first, then random pairs.
template <typename A, typename B>
void Pairs(std::vector<A>* a, std::vector<B>* b, unsigned seed) {
  std::vector<A> first = Values<A>(24, seed);
  std::vector<B> second = Values<B>(24, seed + 1);
  for (A x : first) {
    for (B y : second) {
      a->push_back(x);
      b->push_back(y);
    }
  }
  for (A x : Values<A>(2000, seed + 2)) a->push_back(x);
  for (B y : Values<B>(2000, seed + 3)) b->push_back(y);
}

template <typename F, typename A, typename R>
__global__ void MapOne(const A* a, R* r, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) r[i] = F()(a[i]);
}
template <typename F, typename A, typename B, typename R>
__global__ void MapTwo(const A* a, const B* b, R* r, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) r[i] = F()(a[i], b[i]);
}
template <typename F, typename A, typename R>
__global__ void MapThree(const A* a, const A* b, const A* c, R* r, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) r[i] = F()(a[i], b[i], c[i]);
}

template <typename F, typename R, typename A>
std::vector<R> RunOne(const std::vector<A>& a) {
  int n = static_cast<int>(a.size());
  Device<A> da(a);
  Device<R> dr(a.size());
  MapOne<F><<<(n + 127) / 128, 128>>>(da.get(), dr.get(), n);
  CUDA_OK(cudaGetLastError());
  CUDA_OK(cudaDeviceSynchronize());
  return dr.Read();
}
template <typename F, typename R, typename A, typename B>
std::vector<R> RunTwo(const std::vector<A>& a, const std::vector<B>& b) {
  int n = static_cast<int>(a.size());
  Device<A> da(a);
  Device<B> db(b);
  Device<R> dr(a.size());
  MapTwo<F><<<(n + 127) / 128, 128>>>(da.get(), db.get(), dr.get(), n);
  CUDA_OK(cudaGetLastError());
  CUDA_OK(cudaDeviceSynchronize());
  return dr.Read();
}
template <typename F, typename R, typename A>
std::vector<R> RunThree(const std::vector<A>& a, const std::vector<A>& b, const std::vector<A>& c) {
  int n = static_cast<int>(a.size());
  Device<A> da(a), db(b), dc(c);
  Device<R> dr(a.size());
  MapThree<F><<<(n + 127) / 128, 128>>>(da.get(), db.get(), dc.get(), dr.get(), n);
  CUDA_OK(cudaGetLastError());
  CUDA_OK(cudaDeviceSynchronize());
  return dr.Read();
}

}  // namespace check

#endif  // TESTS_CONFORMANCE_CHECK_H_
