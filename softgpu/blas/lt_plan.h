// From cuBLASLt's descriptors to a product that can be run.
#ifndef SOFTGPU_BLAS_LT_PLAN_H_
#define SOFTGPU_BLAS_LT_PLAN_H_

#include <cublasLt.h>

#include "softgpu/blas/lt_descriptors.h"
#include "softgpu/blas/matmul.h"

namespace softgpu::blas {

struct LtOperands {
  const void* alpha = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* beta = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
};

// INVALID_VALUE for descriptors that contradict each other, NOT_SUPPORTED for what RunMatmul() cannot do. The
// addresses, the scalars and the workspace are not filled in.
cublasStatus_t PlanMatmul(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& c,
                          const Layout& d, Matmul* matmul);
// Fills the addresses and the scalars of a plan in. INVALID_VALUE where one is missing.
cublasStatus_t PlaceOperands(const MatmulDesc& desc, const Layout& d, const LtOperands& operands,
                             Matmul* matmul);

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_LT_PLAN_H_
