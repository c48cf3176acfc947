// Picks the product that was compiled for the CPU's best level of the instruction set.
#include "softgpu/dnn/gemm.h"

namespace softgpu::dnn {

#define SOFTGPU_DNN_LEVEL(level)                                                                \
  namespace level {                                                                             \
  template <typename T>                                                                         \
  void Gemm(size_t m, size_t n, size_t k, MatrixView<T> a, MatrixView<T> b, T* c, size_t c_row, \
            bool accumulate);                                                                   \
  }
SOFTGPU_DNN_LEVEL(isa_v2)
SOFTGPU_DNN_LEVEL(isa_v3)
SOFTGPU_DNN_LEVEL(isa_v4)
#undef SOFTGPU_DNN_LEVEL

namespace {

int FindLevels() {
#if SOFTGPU_DNN_LEVELS > 1
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("fma")) {
    return 1;
  }
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  return wide ? 3 : 2;
#else
  return 1;
#endif
}

}  // namespace

int GemmLevels() {
  static const int levels = FindLevels();
  return levels;
}

template <typename T>
void GemmAtLevel(int level, size_t m, size_t n, size_t k, MatrixView<T> a, MatrixView<T> b, T* c,
                 size_t c_row, bool accumulate) {
#if SOFTGPU_DNN_LEVELS > 1
  if (level == 2) return isa_v4::Gemm<T>(m, n, k, a, b, c, c_row, accumulate);
  if (level == 1) return isa_v3::Gemm<T>(m, n, k, a, b, c, c_row, accumulate);
#endif
  static_cast<void>(level);
  return isa_v2::Gemm<T>(m, n, k, a, b, c, c_row, accumulate);
}

template <typename T>
void Gemm(size_t m, size_t n, size_t k, MatrixView<T> a, MatrixView<T> b, T* c, size_t c_row,
          bool accumulate) {
  GemmAtLevel<T>(GemmLevels() - 1, m, n, k, a, b, c, c_row, accumulate);
}

template void GemmAtLevel(int, size_t, size_t, size_t, MatrixView<float>, MatrixView<float>, float*, size_t,
                          bool);
template void GemmAtLevel(int, size_t, size_t, size_t, MatrixView<double>, MatrixView<double>, double*,
                          size_t, bool);
template void Gemm(size_t, size_t, size_t, MatrixView<float>, MatrixView<float>, float*, size_t, bool);
template void Gemm(size_t, size_t, size_t, MatrixView<double>, MatrixView<double>, double*, size_t, bool);

}  // namespace softgpu::dnn
