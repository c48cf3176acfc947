// cublasLtMatmul and the choice of its algorithm, of which there is one.
#include <new>

#include "softgpu/blas/context_scope.h"
#include "softgpu/blas/lt_handle.h"
#include "softgpu/blas/lt_logger.h"
#include "softgpu/blas/lt_plan.h"
#include "softgpu/blas/status.h"

namespace softgpu::blas {

namespace {

// By the types alone.
bool Supported(cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
               cudaDataType_t c, cudaDataType_t d) {
  Matmul matmul;
  matmul.scale_type = scale;
  matmul.a.matrix.type = a;
  matmul.b.matrix.type = b;
  matmul.c.type = c;
  matmul.d.type = d;
  return TypesFit(matmul, compute);
}

cublasStatus_t Plan(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, Matmul* matmul) {
  if (desc == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  return PlanMatmul(Read<MatmulDesc>(desc), Read<Layout>(a), Read<Layout>(b), Read<Layout>(c),
                    Read<Layout>(d), matmul);
}

bool IsKnown(const cublasLtMatmulAlgo_t* algorithm) {
  auto contents = Read<Algorithm>(algorithm);
  return contents.known == kKnownAlgorithm && contents.id == 0;
}

void Fill(cublasLtMatmulHeuristicResult_t* result) {
  *result = {};
  Algorithm algorithm;
  algorithm.known = kKnownAlgorithm;
  Write(&result->algo, algorithm);
  result->state = CUBLAS_STATUS_SUCCESS;
  result->wavesCount = 1;
}

cublasStatus_t Run(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const LtOperands& operands,
                   cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                   cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                   const Workspace& workspace, CUstream stream) {
  std::shared_ptr<cublasLtContext> state = FindLtHandle(handle);
  if (state == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  Matmul matmul;
  cublasStatus_t status = Plan(desc, a, b, c, d, &matmul);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (algorithm != nullptr && !IsKnown(algorithm)) return CUBLAS_STATUS_INVALID_VALUE;
  status = PlaceOperands(Read<MatmulDesc>(desc), Read<Layout>(d), operands, &matmul);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  bool enough = workspace.address != 0 && workspace.bytes >= MatmulWorkspaceBytes();
  ContextScope scope(state->context);
  if (scope.result() != CUDA_SUCCESS) return StatusOf(scope.result());
  if (UsesWorkspace(matmul)) matmul.workspace = enough ? workspace : OfHandle(state->own, stream);
  return StatusOf(native::Launch<&RunMatmul>(stream, matmul));
}

}  // namespace

}  // namespace softgpu::blas

using namespace softgpu::blas;

extern "C" {

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void* alpha, const void* A, cublasLtMatrixLayout_t Adesc, const void* B,
                              cublasLtMatrixLayout_t Bdesc, const void* beta, const void* C,
                              cublasLtMatrixLayout_t Cdesc, void* D, cublasLtMatrixLayout_t Ddesc,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspaceSizeInBytes,
                              cudaStream_t stream) {
  LtOperands operands{alpha, A, B, beta, C, D};
  Workspace given{reinterpret_cast<uint64_t>(workspace), workspaceSizeInBytes};
  cublasStatus_t status =
      Run(lightHandle, computeDesc, operands, Adesc, Bdesc, Cdesc, Ddesc, algo, given, stream);
  LogCall("cublasLtMatmul", status);
  return status;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lightHandle,
                                              cublasLtMatmulDesc_t operationDesc,
                                              cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                              cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                              cublasLtMatmulPreference_t preference, int requestedAlgoCount,
                                              cublasLtMatmulHeuristicResult_t heuristicResultsArray[],
                                              int* returnAlgoCount) {
  if (FindLtHandle(lightHandle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (preference == nullptr || requestedAlgoCount < 1 || heuristicResultsArray == nullptr ||
      returnAlgoCount == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Matmul matmul;
  cublasStatus_t status = Plan(operationDesc, Adesc, Bdesc, Cdesc, Ddesc, &matmul);
  *returnAlgoCount = status == CUBLAS_STATUS_SUCCESS ? 1 : 0;
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Fill(heuristicResultsArray);
  if (Read<Preference>(preference).workspace_bytes >= MatmulWorkspaceBytes())
    heuristicResultsArray->workspaceSize = MatmulWorkspaceBytes();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t lightHandle, cublasComputeType_t computeType,
                                        cudaDataType_t scaleType, cudaDataType_t Atype, cudaDataType_t Btype,
                                        cudaDataType_t Ctype, cudaDataType_t Dtype, int requestedAlgoCount,
                                        int algoIdsArray[], int* returnAlgoCount) {
  if (FindLtHandle(lightHandle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requestedAlgoCount < 1 || algoIdsArray == nullptr || returnAlgoCount == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  *returnAlgoCount = Supported(computeType, scaleType, Atype, Btype, Ctype, Dtype) ? 1 : 0;
  if (*returnAlgoCount == 1) algoIdsArray[0] = 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t lightHandle, cublasComputeType_t computeType,
                                      cudaDataType_t scaleType, cudaDataType_t Atype, cudaDataType_t Btype,
                                      cudaDataType_t Ctype, cudaDataType_t Dtype, int algoId,
                                      cublasLtMatmulAlgo_t* algo) {
  if (FindLtHandle(lightHandle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (algo == nullptr || algoId != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!Supported(computeType, scaleType, Atype, Btype, Ctype, Dtype)) return CUBLAS_STATUS_NOT_SUPPORTED;
  cublasLtMatmulHeuristicResult_t result;
  Fill(&result);
  *algo = result.algo;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc,
                                       cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                       cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (FindLtHandle(lightHandle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (algo == nullptr || result == nullptr || !IsKnown(algo)) return CUBLAS_STATUS_INVALID_VALUE;
  Matmul matmul;
  cublasStatus_t status = Plan(operationDesc, Adesc, Bdesc, Cdesc, Ddesc, &matmul);
  if (status == CUBLAS_STATUS_SUCCESS) Fill(result);
  return status;
}

}  // extern "C"
