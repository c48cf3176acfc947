// Single-precision matrix products on the device. Every element of a result is summed by one thread, in the
// order of the inner index, so that the result does not depend on how blocks are scheduled.
#pragma once

#include <cuda_runtime.h>

namespace sample {

// A row-major matrix in device memory, rows lying back to back; data is aligned to 16 bytes.
struct Matrix {
  float* data;
  int rows;
  int columns;
};

// out = a * b, where a is m x k and b is k x n.
void Multiply(Matrix a, Matrix b, Matrix out, cudaStream_t stream);

// out = transpose(a) * b, where a is k x m and b is k x n.
void MultiplyTransposedLeft(Matrix a, Matrix b, Matrix out, cudaStream_t stream);

// out = a * transpose(b), where a is m x k and b is n x k.
void MultiplyTransposedRight(Matrix a, Matrix b, Matrix out, cudaStream_t stream);

}  // namespace sample
