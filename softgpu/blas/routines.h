// Everything that functions.table names.
#ifndef SOFTGPU_BLAS_ROUTINES_H_
#define SOFTGPU_BLAS_ROUTINES_H_

#include "softgpu/blas/extended.h"
#include "softgpu/blas/gemm.h"
#include "softgpu/blas/level1.h"
#include "softgpu/blas/level2.h"
#include "softgpu/blas/level3.h"
#include "softgpu/blas/rotations.h"

#endif  // SOFTGPU_BLAS_ROUTINES_H_
