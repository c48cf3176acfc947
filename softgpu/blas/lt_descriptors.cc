// The descriptors' functions: plain fields with a size each.
#include "softgpu/blas/lt_descriptors.h"

#include <cstddef>
#include <new>

namespace softgpu::blas {

namespace {

struct Field {
  int attribute;
  size_t offset, size;
};
#define FIELD(attribute, type, member) \
  { attribute, offsetof(type, member), sizeof(type::member) }

constexpr Field kLayoutFields[] = {
    FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, Layout, type),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ORDER, Layout, order),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, Layout, rows),
    FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, Layout, cols),
    FIELD(CUBLASLT_MATRIX_LAYOUT_LD, Layout, ld),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, Layout, batches),
    FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, Layout, stride),
    FIELD(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, Layout, plane_offset),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, Layout, batch_mode),
};

constexpr Field kMatmulFields[] = {
    FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, MatmulDesc, compute),
    FIELD(CUBLASLT_MATMUL_DESC_SCALE_TYPE, MatmulDesc, scale_type),
    FIELD(CUBLASLT_MATMUL_DESC_POINTER_MODE, MatmulDesc, pointer_mode),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSA, MatmulDesc, trans_a),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSB, MatmulDesc, trans_b),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSC, MatmulDesc, trans_c),
    FIELD(CUBLASLT_MATMUL_DESC_FILL_MODE, MatmulDesc, fill),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, MatmulDesc, epilogue),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, MatmulDesc, bias),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, MatmulDesc, bias_stride),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, MatmulDesc, aux),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, MatmulDesc, aux_ld),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, MatmulDesc, aux_stride),
    FIELD(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, MatmulDesc, alpha_stride),
    FIELD(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, MatmulDesc, sm_count),
    FIELD(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, MatmulDesc, a_scale),
    FIELD(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, MatmulDesc, b_scale),
    FIELD(CUBLASLT_MATMUL_DESC_C_SCALE_POINTER, MatmulDesc, c_scale),
    FIELD(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, MatmulDesc, d_scale),
    FIELD(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, MatmulDesc, amax),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, MatmulDesc, aux_type),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER, MatmulDesc, aux_scale),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER, MatmulDesc, aux_amax),
    FIELD(CUBLASLT_MATMUL_DESC_FAST_ACCUM, MatmulDesc, fast_accumulation),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, MatmulDesc, bias_type),
    FIELD(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, MatmulDesc, a_mode),
    FIELD(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, MatmulDesc, b_mode),
    FIELD(CUBLASLT_MATMUL_DESC_C_SCALE_MODE, MatmulDesc, c_mode),
    FIELD(CUBLASLT_MATMUL_DESC_D_SCALE_MODE, MatmulDesc, d_mode),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE, MatmulDesc, aux_mode),
    FIELD(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER, MatmulDesc, d_out_scale),
    FIELD(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE, MatmulDesc, d_out_mode),
    FIELD(CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR, MatmulDesc, emulation),
};

constexpr Field kPreferenceFields[] = {
    FIELD(CUBLASLT_MATMUL_PREF_SEARCH_MODE, Preference, search_mode),
    FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Preference, workspace_bytes),
    FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, Preference, reduction_mask),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Preference, alignment_a),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Preference, alignment_b),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Preference, alignment_c),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Preference, alignment_d),
    FIELD(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, Preference, waves),
    FIELD(CUBLASLT_MATMUL_PREF_IMPL_MASK, Preference, implementations),
};

constexpr Field kTransformFields[] = {
    FIELD(CUBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE, TransformDesc, scale_type),
    FIELD(CUBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE, TransformDesc, pointer_mode),
    FIELD(CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA, TransformDesc, trans_a),
    FIELD(CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSB, TransformDesc, trans_b),
};

constexpr Field kAlgorithmFields[] = {
    FIELD(CUBLASLT_ALGO_CONFIG_ID, Algorithm, id),
    FIELD(CUBLASLT_ALGO_CONFIG_TILE_ID, Algorithm, tile),
    FIELD(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, Algorithm, split_k),
    FIELD(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, Algorithm, reduction),
    FIELD(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, Algorithm, swizzle),
    FIELD(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, Algorithm, custom),
    FIELD(CUBLASLT_ALGO_CONFIG_STAGES_ID, Algorithm, stages),
    FIELD(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, Algorithm, inner_shape),
    FIELD(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, Algorithm, cluster_shape),
};
#undef FIELD

template <size_t kCount>
const Field* Find(const Field (&fields)[kCount], int attribute) {
  for (const Field& field : fields) {
    if (field.attribute == attribute) return &field;
  }
  return nullptr;
}

template <size_t kCount>
cublasStatus_t Set(const Field (&fields)[kCount], void* object, int attribute, const void* from,
                   size_t size) {
  const Field* field = Find(fields, attribute);
  if (object == nullptr || from == nullptr || field == nullptr || size != field->size)
    return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(static_cast<char*>(object) + field->offset, from, size);
  return CUBLAS_STATUS_SUCCESS;
}

// With a size of 0 it only tells the size.
template <size_t kCount>
cublasStatus_t Get(const Field (&fields)[kCount], const void* object, int attribute, void* to, size_t size,
                   size_t* written) {
  const Field* field = Find(fields, attribute);
  if (object == nullptr || field == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (size == 0 ? written == nullptr : to == nullptr || size != field->size)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (written != nullptr) *written = field->size;
  if (size != 0) std::memcpy(to, static_cast<const char*>(object) + field->offset, size);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque, typename Contents>
cublasStatus_t Init(Opaque* opaque, size_t size, const Contents& contents) {
  if (opaque == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (size < sizeof(Opaque)) return CUBLAS_STATUS_ALLOC_FAILED;
  *opaque = {};
  Write(opaque, contents);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque, typename Contents>
cublasStatus_t Create(Opaque** out, const Contents& contents) {
  if (out == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *out = new (std::nothrow) Opaque;
  return *out == nullptr ? CUBLAS_STATUS_ALLOC_FAILED : Init(*out, sizeof(Opaque), contents);
}

template <typename Opaque>
cublasStatus_t Destroy(Opaque* opaque) {
  delete opaque;
  return CUBLAS_STATUS_SUCCESS;
}

Layout LayoutOf(cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld) {
  Layout layout;
  layout.type = type;
  layout.rows = rows;
  layout.cols = cols;
  layout.ld = ld;
  return layout;
}

MatmulDesc MatmulOf(cublasComputeType_t compute, cudaDataType_t scale_type) {
  MatmulDesc desc;
  desc.compute = compute;
  desc.scale_type = scale_type;
  return desc;
}

TransformDesc TransformOf(cudaDataType scale_type) {
  TransformDesc desc;
  desc.scale_type = scale_type;
  return desc;
}

}  // namespace

}  // namespace softgpu::blas

using namespace softgpu::blas;

extern "C" {

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matLayout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  return Init(matLayout, size, LayoutOf(type, rows, cols, ld));
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  return Create(matLayout, LayoutOf(type, rows, cols, ld));
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) { return Destroy(matLayout); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr, const void* buf,
                                                size_t sizeInBytes) {
  return Set(kLayoutFields, matLayout, attr, buf, sizeInBytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr, void* buf,
                                                size_t sizeInBytes, size_t* sizeWritten) {
  return Get(kLayoutFields, matLayout, attr, buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t matmulDesc, size_t size,
                                               cublasComputeType_t computeType, cudaDataType_t scaleType) {
  return Init(matmulDesc, size, MatmulOf(computeType, scaleType));
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc, cublasComputeType_t computeType,
                                        cudaDataType_t scaleType) {
  return Create(matmulDesc, MatmulOf(computeType, scaleType));
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) { return Destroy(matmulDesc); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, const void* buf,
                                              size_t sizeInBytes) {
  return Set(kMatmulFields, matmulDesc, attr, buf, sizeInBytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, void* buf,
                                              size_t sizeInBytes, size_t* sizeWritten) {
  return Get(kMatmulFields, matmulDesc, attr, buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref, size_t size) {
  return Init(pref, size, Preference());
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  return Create(pref, Preference());
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) { return Destroy(pref); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void* buf, size_t sizeInBytes) {
  return Set(kPreferenceFields, pref, attr, buf, sizeInBytes);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr, void* buf,
                                                    size_t sizeInBytes, size_t* sizeWritten) {
  return Get(kPreferenceFields, pref, attr, buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatrixTransformDescInit_internal(cublasLtMatrixTransformDesc_t transformDesc,
                                                        size_t size, cudaDataType scaleType) {
  return Init(transformDesc, size, TransformOf(scaleType));
}
cublasStatus_t cublasLtMatrixTransformDescCreate(cublasLtMatrixTransformDesc_t* transformDesc,
                                                 cudaDataType scaleType) {
  return Create(transformDesc, TransformOf(scaleType));
}
cublasStatus_t cublasLtMatrixTransformDescDestroy(cublasLtMatrixTransformDesc_t transformDesc) {
  return Destroy(transformDesc);
}
cublasStatus_t cublasLtMatrixTransformDescSetAttribute(cublasLtMatrixTransformDesc_t transformDesc,
                                                       cublasLtMatrixTransformDescAttributes_t attr,
                                                       const void* buf, size_t sizeInBytes) {
  return Set(kTransformFields, transformDesc, attr, buf, sizeInBytes);
}
cublasStatus_t cublasLtMatrixTransformDescGetAttribute(cublasLtMatrixTransformDesc_t transformDesc,
                                                       cublasLtMatrixTransformDescAttributes_t attr,
                                                       void* buf, size_t sizeInBytes, size_t* sizeWritten) {
  return Get(kTransformFields, transformDesc, attr, buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr,
                                                    const void* buf, size_t sizeInBytes) {
  return Set(kAlgorithmFields, algo, attr, buf, sizeInBytes);
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr, void* buf,
                                                    size_t sizeInBytes, size_t* sizeWritten) {
  return Get(kAlgorithmFields, algo, attr, buf, sizeInBytes, sizeWritten);
}

}  // extern "C"
