// Everything that functions.table names.
#ifndef SOFTGPU_BLAS_ROUTINES_H_
#define SOFTGPU_BLAS_ROUTINES_H_

#include "softgpu/blas/gemm.h"

#endif  // SOFTGPU_BLAS_ROUTINES_H_
