#include "softgpu/blas/gemm.h"

#include <algorithm>
#include <climits>

namespace softgpu::blas {

namespace {

bool ValidOp(cublasOperation_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C; }

bool Transposes(cublasOperation_t op) { return op == CUBLAS_OP_T || op == CUBLAS_OP_C; }

cublasStatus_t Check(const Shape& s, const MatrixArgument& a, const MatrixArgument& b,
                     const MatrixArgument& c, int64_t batches) {
  if (s.m < 0 || s.n < 0 || s.k < 0 || batches < 0) return CUBLAS_STATUS_INVALID_VALUE;
  int64_t rows_a = Transposes(s.op_a) ? s.k : s.m, rows_b = Transposes(s.op_b) ? s.n : s.k;
  auto too_small = [](const MatrixArgument& matrix, int64_t rows) {
    return matrix.ld < std::max<int64_t>(1, rows);
  };
  if (too_small(a, rows_a) || too_small(b, rows_b) || too_small(c, s.m)) return CUBLAS_STATUS_INVALID_VALUE;
  int64_t largest = std::max({s.m, s.n, s.k, a.ld, b.ld, c.ld, batches});
  return largest > INT_MAX ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

Matrix MatrixOf(const MatrixArgument& argument) {
  return {AddressOf(argument.pointer), argument.ld, argument.stride, argument.type, argument.pointers};
}

Operand OperandOf(const MatrixArgument& argument, cublasOperation_t op) {
  bool conjugate = (op == CUBLAS_OP_C || op == CUBLAS_OP_CONJG) && IsComplex(argument.type);
  return {MatrixOf(argument), Transposes(op), conjugate};
}

cudaDataType ScaleTypeOf(cublasComputeType_t compute, cudaDataType a, cudaDataType c) {
  switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      return CUDA_R_16F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
      return c == CUDA_R_32I ? CUDA_R_32I : CUDA_R_32F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
      return IsComplex(a) ? CUDA_C_64F : CUDA_R_64F;
    default:
      return IsComplex(a) ? CUDA_C_32F : CUDA_R_32F;
  }
}

}  // namespace

cublasStatus_t RunGemm(cublasHandle_t handle, const Shape& shape, const void* alpha, const MatrixArgument& a,
                       const MatrixArgument& b, const void* beta, const MatrixArgument& c, int64_t batches,
                       cublasComputeType_t compute) {
  if (FindHandle(handle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!ValidOp(shape.op_a) || !ValidOp(shape.op_b)) return CUBLAS_STATUS_INVALID_VALUE;
  return RunProduct(handle, shape, alpha, a, b, beta, c, batches, compute);
}

cublasStatus_t RunProduct(cublasHandle_t handle, const Shape& shape, const void* alpha,
                          const MatrixArgument& a, const MatrixArgument& b, const void* beta,
                          const MatrixArgument& c, int64_t batches, cublasComputeType_t compute) {
  Call call(handle);
  if (!call.ok()) return call.status();
  cublasStatus_t checked = Check(shape, a, b, c, batches);
  if (checked != CUBLAS_STATUS_SUCCESS) return checked;
  Matmul p;
  p.m = shape.m;
  p.n = shape.n;
  p.k = shape.k;
  p.a = OperandOf(a, shape.op_a);
  p.b = OperandOf(b, shape.op_b);
  p.c = p.d = MatrixOf(c);
  p.batches = static_cast<int32_t>(batches);
  p.scale_type = ScaleTypeOf(compute, a.type, c.type);
  if (!TypesFit(p, compute)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.m == 0 || p.n == 0 || batches == 0) return CUBLAS_STATUS_SUCCESS;
  bool operands = p.k == 0 || (a.pointer != nullptr && b.pointer != nullptr);
  if (alpha == nullptr || beta == nullptr || c.pointer == nullptr || !operands)
    return CUBLAS_STATUS_INVALID_VALUE;
  p.alpha = call.In(alpha, SizeOf(p.scale_type));
  p.beta = call.In(beta, SizeOf(p.scale_type));
  if (UsesWorkspace(p)) p.workspace = call.handle().WorkspaceNow();
  return StatusOf(native::Launch<&RunMatmul>(call.handle().stream, p));
}

}  // namespace softgpu::blas
