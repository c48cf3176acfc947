// What the opaque descriptors of cuBLASLt hold. They are plain memory, which the caller may have provided.
#ifndef SOFTGPU_BLAS_LT_DESCRIPTORS_H_
#define SOFTGPU_BLAS_LT_DESCRIPTORS_H_

#include <cublasLt.h>

#include <cstdint>
#include <cstring>

namespace softgpu::blas {

struct Layout {
  int32_t type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0;
  int32_t batches = 1;
  uint32_t batch_mode = CUBLASLT_BATCH_MODE_STRIDED;
  int64_t stride = 0;
  int64_t plane_offset = 0;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct MatmulDesc {
  int32_t compute = CUBLAS_COMPUTE_32F;
  int32_t scale_type = CUDA_R_32F;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N, trans_c = CUBLAS_OP_N;
  int32_t fill = CUBLAS_FILL_MODE_FULL;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  uint64_t bias = 0;
  int64_t bias_stride = 0;
  uint64_t aux = 0;
  int64_t aux_ld = 0, aux_stride = 0;
  int64_t alpha_stride = 0;
  int32_t sm_count = 0;
  int32_t aux_type = -1, bias_type = -1;  // -1: as the type of D says
  int8_t fast_accumulation = 0;
  uint64_t a_scale = 0, b_scale = 0, c_scale = 0, d_scale = 0, amax = 0;
  uint64_t aux_scale = 0, aux_amax = 0, d_out_scale = 0, emulation = 0;
  int32_t a_mode = 0, b_mode = 0, c_mode = 0, d_mode = 0, aux_mode = 0, d_out_mode = 0;
};
static_assert(sizeof(MatmulDesc) <= sizeof(cublasLtMatmulDescOpaque_t));

struct Preference {
  uint32_t search_mode = CUBLASLT_SEARCH_BEST_FIT;
  uint32_t reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint64_t workspace_bytes = 0;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
  float waves = 0;
  uint64_t implementations = ~uint64_t{0};
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

struct TransformDesc {
  int32_t scale_type = CUDA_R_32F;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
};
static_assert(sizeof(TransformDesc) <= sizeof(cublasLtMatrixTransformDescOpaque_t));

// There is one algorithm; its configuration is kept and changes nothing.
struct Algorithm {
  int32_t id = 0;
  uint32_t tile = 0;
  int32_t split_k = 1;
  uint32_t reduction = 0, swizzle = 0, custom = 0, stages = 0;
  uint16_t inner_shape = 0, cluster_shape = 0;
  uint32_t known = 0;  // kKnownAlgorithm
};
inline constexpr uint32_t kKnownAlgorithm = 0x736f6c74;
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

// The contents of an opaque descriptor.
template <typename Contents, typename Opaque>
Contents Read(const Opaque* opaque) {
  Contents contents;
  std::memcpy(static_cast<void*>(&contents), opaque, sizeof contents);
  return contents;
}
template <typename Contents, typename Opaque>
void Write(Opaque* opaque, const Contents& contents) {
  std::memcpy(static_cast<void*>(opaque), &contents, sizeof contents);
}

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_LT_DESCRIPTORS_H_
