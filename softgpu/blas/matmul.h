// D = epilogue(alpha * op(A) * op(B) + beta * C), for both libraries, as the body of a kernel.
//
// f32, f64, c32 and c64 are OpenBLAS's on the device's memory as it lies. All other types are converted tile
// by tile to f32, which a workspace holds, multiplied there, summed over tiles of k in f32 (in int32 for int8
// operands, exactly), and rounded once when D is stored. The tiles are fixed, so results depend on nothing
// but the operands.
#ifndef SOFTGPU_BLAS_MATMUL_H_
#define SOFTGPU_BLAS_MATMUL_H_

#include <cublas_v2.h>

#include <cstdint>

#include "softgpu/blas/scratch.h"
#include "softgpu/blas/types.h"
#include "softgpu/native/native.h"

namespace softgpu::blas {

// A value that the host gave, or that lies on the device and is read when the routine runs.
struct Scalar {
  uint64_t address = 0;  // 0: `bits`
  unsigned char bits[16] = {};
};

// A batch of column-major matrices.
struct Matrix {
  uint64_t address = 0;
  int64_t ld = 0;
  int64_t stride = 0;  // elements from one to the next; unused with `pointers`
  cudaDataType type = CUDA_R_32F;
  bool pointers = false;  // at `address` lies an array of their addresses
};

struct Operand {
  Matrix matrix;
  bool transpose = false, conjugate = false;
};

enum class Activation : uint8_t { kNone, kRelu, kGelu, kReluGradient, kGeluGradient };

// Of real results alone. Vectors have an element for each row of D, or for each column where `by_column`.
struct Epilogue {
  Activation activation = Activation::kNone;
  bool by_column = false;
  uint64_t bias = 0;  // added; 0: none
  cudaDataType bias_type = CUDA_R_32F;
  int64_t bias_stride = 0;
  // The argument of the activation: a matrix, or for ReLU one bit an element, set where it is positive.
  // Written forward, read by the gradients. 0: none.
  uint64_t aux = 0;
  cudaDataType aux_type = CUDA_R_32F;
  int64_t aux_ld = 0, aux_stride = 0;
  // Written: sums of D over the other index, of op(A) over its columns, or of op(B) over its rows. 0: none.
  uint64_t gradient_of_d = 0, gradient_of_a = 0, gradient_of_b = 0;
  // f32 factors on the device of A, B, C and D; 0: none. And where the largest magnitude before D's is left.
  uint64_t a_scale = 0, b_scale = 0, c_scale = 0, d_scale = 0, amax = 0;
};

struct Matmul {
  int64_t m = 0, n = 0, k = 0;  // of D and op(A); at most INT_MAX, as leading dimensions
  Operand a, b;
  Matrix c, d;
  Scalar alpha, beta;
  cudaDataType scale_type = CUDA_R_32F;  // of alpha and beta
  int32_t batches = 1;
  Workspace workspace;
  Epilogue epilogue;
};

// Whether RunMatmul() can do it: the combinations of types.
bool TypesFit(const Matmul& matmul, cublasComputeType_t compute);
// What RunMatmul() likes to have as a workspace, and whether it uses one for these types.
size_t MatmulWorkspaceBytes();
bool UsesWorkspace(const Matmul& matmul);
// The body.
void RunMatmul(const Matmul& matmul, native::Device& device);

// Bytes from the first to the last element of a rows x cols matrix.
inline size_t SpanBytes(int64_t rows, int64_t cols, int64_t ld, cudaDataType type) {
  return rows == 0 || cols == 0 ? 0 : static_cast<size_t>((cols - 1) * ld + rows) * SizeOf(type);
}
// Reads a scalar of `type`, or of the host; false after a fault.
bool LoadScalar(const Scalar& scalar, cudaDataType type, native::Device& device, Complex64* value);

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_MATMUL_H_
