// The matrix product under the convolutions.
#ifndef SOFTGPU_DNN_GEMM_H_
#define SOFTGPU_DNN_GEMM_H_

#include <cstddef>

namespace softgpu::dnn {

// Elements (i, j) of a matrix lie at data[i * row + j * column].
template <typename T>
struct MatrixView {
  const T* data;
  size_t row;
  size_t column;
};

// c = a * b, or c += a * b: a is m x k, b is k x n, c is m x n with rows `c_row` apart. Every element is
// summed in the order of the inner index, starting from what c held, each product rounded before it is added:
// the result depends on nothing else, neither the CPU nor how memory is aligned.
template <typename T>
void Gemm(size_t m, size_t n, size_t k, MatrixView<T> a, MatrixView<T> b, T* c, size_t c_row,
          bool accumulate);

// Levels of the x86-64 instruction set that the product is compiled for and this CPU runs: 1 or more.
int GemmLevels();

// The product as compiled for level 0 (the baseline) .. GemmLevels() - 1. For tests.
template <typename T>
void GemmAtLevel(int level, size_t m, size_t n, size_t k, MatrixView<T> a, MatrixView<T> b, T* c,
                 size_t c_row, bool accumulate);

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_GEMM_H_
