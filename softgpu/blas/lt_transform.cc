// cublasLtMatrixTransform: C = alpha * op(A) + beta * op(B), between types and between orders.
#include "softgpu/blas/context_scope.h"
#include "softgpu/blas/lt_descriptors.h"
#include "softgpu/blas/lt_handle.h"
#include "softgpu/blas/matmul.h"
#include "softgpu/blas/status.h"

namespace softgpu::blas {

namespace {

// One matrix as op() makes it: element (i, j) lies at i * down + j * across.
struct Strided {
  uint64_t address = 0;
  int64_t down = 0, across = 0, stride = 0;
  cudaDataType type = CUDA_R_32F;
  bool conjugate = false;
};

struct Transform {
  int64_t rows = 0, cols = 0;
  Strided a, b, c;
  Scalar alpha, beta;
  cudaDataType scale_type = CUDA_R_32F;
  int32_t batches = 1;
};

size_t SpanOf(const Transform& t, const Strided& m) {
  return static_cast<size_t>((t.rows - 1) * m.down + (t.cols - 1) * m.across + 1) * SizeOf(m.type);
}
uint64_t AddressOf(const Strided& m, int64_t batch) {
  return m.address + static_cast<uint64_t>(batch * m.stride) * SizeOf(m.type);
}

Complex64 Load(const Strided& m, const void* data, int64_t i, int64_t j) {
  return Conjugate(LoadElement(m.type, data, i * m.down + j * m.across), m.conjugate);
}

void RunTransform(const Transform& t, native::Device& device) {
  Complex64 alpha, beta;
  if (t.rows == 0 || t.cols == 0 || !LoadScalar(t.alpha, t.scale_type, device, &alpha) ||
      !LoadScalar(t.beta, t.scale_type, device, &beta)) {
    return;
  }
  for (int64_t batch = 0; batch < t.batches; batch++) {
    bool a_used = alpha != Complex64(0), b_used = beta != Complex64(0);
    const void* a = a_used ? device.Read(AddressOf(t.a, batch), SpanOf(t, t.a)) : nullptr;
    const void* b = b_used ? device.Read(AddressOf(t.b, batch), SpanOf(t, t.b)) : nullptr;
    void* c = device.Write(AddressOf(t.c, batch), SpanOf(t, t.c));
    if (c == nullptr || (a_used && a == nullptr) || (b_used && b == nullptr)) return;
    for (int64_t j = 0; j < t.cols; j++) {
      for (int64_t i = 0; i < t.rows; i++) {
        Complex64 value = 0;
        if (a_used) value += alpha * Load(t.a, a, i, j);
        if (b_used) value += beta * Load(t.b, b, i, j);
        StoreElement(t.c.type, c, i * t.c.down + j * t.c.across, value);
      }
    }
  }
}

bool Describe(cublasLtMatrixLayout_t opaque, int32_t op, const void* address, const Transform& t,
              Strided* out) {
  auto layout = Read<Layout>(opaque);
  bool transpose = op != CUBLAS_OP_N;
  auto rows = static_cast<int64_t>(transpose ? layout.cols : layout.rows);
  auto cols = static_cast<int64_t>(transpose ? layout.rows : layout.cols);
  bool column_major = (layout.order == CUBLASLT_ORDER_COL) != transpose;
  out->address = reinterpret_cast<uint64_t>(address);
  out->down = column_major ? 1 : layout.ld;
  out->across = column_major ? layout.ld : 1;
  out->stride = layout.stride;
  out->type = static_cast<cudaDataType>(layout.type);
  out->conjugate = op == CUBLAS_OP_C;
  return rows == t.rows && cols == t.cols && layout.batches == t.batches;
}

bool Supported(cublasLtMatrixLayout_t opaque) {
  auto layout = Read<Layout>(opaque);
  return (layout.order == CUBLASLT_ORDER_COL || layout.order == CUBLASLT_ORDER_ROW) &&
         layout.plane_offset == 0 && layout.batch_mode == CUBLASLT_BATCH_MODE_STRIDED &&
         SizeOf(static_cast<cudaDataType>(layout.type)) != 0;
}

void PlaceScalar(const TransformDesc& desc, const void* from, Scalar* scalar) {
  if (desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
    scalar->address = reinterpret_cast<uint64_t>(from);
  } else if (from != nullptr) {
    std::memcpy(scalar->bits, from, SizeOf(static_cast<cudaDataType>(desc.scale_type)));
  }
}

}  // namespace

}  // namespace softgpu::blas

using namespace softgpu::blas;

extern "C" cublasStatus_t cublasLtMatrixTransform(cublasLtHandle_t lightHandle,
                                                  cublasLtMatrixTransformDesc_t transformDesc,
                                                  const void* alpha, const void* A,
                                                  cublasLtMatrixLayout_t Adesc, const void* beta,
                                                  const void* B, cublasLtMatrixLayout_t Bdesc, void* C,
                                                  cublasLtMatrixLayout_t Cdesc, cudaStream_t stream) {
  std::shared_ptr<cublasLtContext> handle = FindLtHandle(lightHandle);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (transformDesc == nullptr || Cdesc == nullptr || C == nullptr || (Adesc == nullptr && Bdesc == nullptr))
    return CUBLAS_STATUS_INVALID_VALUE;
  auto desc = Read<TransformDesc>(transformDesc);
  Transform t;
  t.scale_type = static_cast<cudaDataType>(desc.scale_type);
  if (SizeOf(t.scale_type) == 0 || desc.pointer_mode > CUBLASLT_POINTER_MODE_DEVICE || !Supported(Cdesc) ||
      (Adesc != nullptr && !Supported(Adesc)) || (Bdesc != nullptr && !Supported(Bdesc))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  auto result = Read<Layout>(Cdesc);
  t.rows = static_cast<int64_t>(result.rows);
  t.cols = static_cast<int64_t>(result.cols);
  t.batches = result.batches;
  bool fits = Describe(Cdesc, CUBLAS_OP_N, C, t, &t.c);
  if (A != nullptr && Adesc != nullptr) {
    fits = fits && alpha != nullptr && Describe(Adesc, desc.trans_a, A, t, &t.a);
    PlaceScalar(desc, alpha, &t.alpha);
  }
  if (B != nullptr && Bdesc != nullptr) {
    fits = fits && beta != nullptr && Describe(Bdesc, desc.trans_b, B, t, &t.b);
    PlaceScalar(desc, beta, &t.beta);
  }
  if (!fits) return CUBLAS_STATUS_INVALID_VALUE;
  ContextScope scope(handle->context);
  if (scope.result() != CUDA_SUCCESS) return StatusOf(scope.result());
  return StatusOf(softgpu::native::Launch<&RunTransform>(stream, t));
}
