#include "softgpu/blas/lt_plan.h"

#include <algorithm>
#include <climits>
#include <utility>

namespace softgpu::blas {

namespace {

bool ValidOp(int32_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C; }

cublasStatus_t CheckLayout(const Layout& layout) {
  if (layout.rows > INT_MAX || layout.cols > INT_MAX || layout.ld > INT_MAX)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (layout.order != CUBLASLT_ORDER_COL && layout.order != CUBLASLT_ORDER_ROW)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (layout.plane_offset != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  uint64_t line = layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.cols;
  if (layout.ld < static_cast<int64_t>(std::max<uint64_t>(1, line)) || layout.batches < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  return SizeOf(static_cast<cudaDataType>(layout.type)) == 0 ? CUBLAS_STATUS_NOT_SUPPORTED
                                                             : CUBLAS_STATUS_SUCCESS;
}

Matrix MatrixOf(const Layout& layout) {
  Matrix matrix;
  matrix.ld = layout.ld;
  matrix.stride = layout.stride;
  matrix.type = static_cast<cudaDataType>(layout.type);
  matrix.pointers = layout.batch_mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY;
  return matrix;
}

// A row-major matrix is its transpose, column-major.
Operand OperandOf(const Layout& layout, int32_t op) {
  Operand operand;
  operand.matrix = MatrixOf(layout);
  operand.transpose = (op != CUBLAS_OP_N) != (layout.order == CUBLASLT_ORDER_ROW);
  operand.conjugate = op == CUBLAS_OP_C && IsComplex(operand.matrix.type);
  return operand;
}

bool DecodeEpilogue(uint32_t epilogue, Activation* activation) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      *activation = Activation::kNone;
      return true;
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
      *activation = Activation::kRelu;
      return true;
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      *activation = Activation::kGelu;
      return true;
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
      *activation = Activation::kReluGradient;
      return true;
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
      *activation = Activation::kGeluGradient;
      return true;
    default:
      return false;
  }
}

constexpr uint32_t kAuxBit = 128, kGradientBit = 16;

// The parts of the epilogue that stand on D as it lies in memory; `rows` of its columns there.
cublasStatus_t PlanEpilogue(const MatmulDesc& desc, const Matrix& d, int64_t rows, Epilogue* e) {
  if (!DecodeEpilogue(desc.epilogue, &e->activation)) return CUBLAS_STATUS_INVALID_VALUE;
  bool plain = desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (!plain && (IsComplex(d.type) || d.type == CUDA_R_32I)) return CUBLAS_STATUS_NOT_SUPPORTED;
  auto typed = [&d](int32_t type) {
    if (type != -1) return static_cast<cudaDataType>(type);
    return SizeOf(d.type) == 1 ? CUDA_R_16BF : d.type;
  };
  e->bias_type = typed(desc.bias_type);
  e->bias_stride = desc.bias_stride;
  if ((desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) e->bias = desc.bias;
  if ((desc.epilogue & kGradientBit) != 0) e->gradient_of_d = desc.bias;
  if (desc.epilogue == CUBLASLT_EPILOGUE_BGRADA) e->gradient_of_a = desc.bias;
  if (desc.epilogue == CUBLASLT_EPILOGUE_BGRADB) e->gradient_of_b = desc.bias;
  constexpr uint32_t kUsesBias =
      CUBLASLT_EPILOGUE_BIAS | kGradientBit | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB;
  if ((desc.epilogue & kUsesBias) != 0 && (desc.bias == 0 || SizeOf(e->bias_type) == 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((desc.epilogue & kAuxBit) == 0) return CUBLAS_STATUS_SUCCESS;
  bool bits = e->activation == Activation::kRelu || e->activation == Activation::kReluGradient;
  e->aux = desc.aux;
  e->aux_type = typed(desc.aux_type);
  e->aux_ld = desc.aux_ld;
  e->aux_stride = desc.aux_stride;
  int64_t multiple = bits ? 128 : 8;
  if (desc.aux == 0 || desc.aux_ld < rows || desc.aux_ld % multiple != 0 || desc.aux_stride % multiple != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t PlanScales(const MatmulDesc& desc, Epilogue* e) {
  if ((desc.a_mode | desc.b_mode | desc.c_mode | desc.d_mode | desc.aux_mode | desc.d_out_mode) != 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.aux_scale != 0 || desc.aux_amax != 0 || desc.d_out_scale != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  e->a_scale = desc.a_scale;
  e->b_scale = desc.b_scale;
  e->c_scale = desc.c_scale;
  e->d_scale = desc.d_scale;
  e->amax = desc.amax;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CheckDesc(const MatmulDesc& desc) {
  if (!ValidOp(desc.trans_a) || !ValidOp(desc.trans_b)) return CUBLAS_STATUS_INVALID_VALUE;
  if (desc.trans_c != CUBLAS_OP_N || desc.fill != CUBLAS_FILL_MODE_FULL) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST && desc.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

// Rows and columns of op(matrix).
std::pair<uint64_t, uint64_t> Shape(const Layout& layout, int32_t op) {
  return op == CUBLAS_OP_N ? std::pair{layout.rows, layout.cols} : std::pair{layout.cols, layout.rows};
}

cublasStatus_t CheckShapes(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& c,
                           const Layout& d) {
  auto [m, k] = Shape(a, desc.trans_a);
  auto [k_of_b, n] = Shape(b, desc.trans_b);
  if (k != k_of_b || d.rows != m || d.cols != n || c.rows != m || c.cols != n)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (a.batches != d.batches || b.batches != d.batches || c.batches != d.batches)
    return CUBLAS_STATUS_INVALID_VALUE;
  return c.order == d.order ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace

cublasStatus_t PlanMatmul(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& c,
                          const Layout& d, Matmul* matmul) {
  cublasStatus_t status = CheckDesc(desc);
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (status == CUBLAS_STATUS_SUCCESS) status = CheckLayout(*layout);
  }
  if (status == CUBLAS_STATUS_SUCCESS) status = CheckShapes(desc, a, b, c, d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  matmul->m = static_cast<int64_t>(d.rows);
  matmul->n = static_cast<int64_t>(d.cols);
  matmul->k = static_cast<int64_t>(desc.trans_a == CUBLAS_OP_N ? a.cols : a.rows);
  matmul->a = OperandOf(a, desc.trans_a);
  matmul->b = OperandOf(b, desc.trans_b);
  matmul->c = MatrixOf(c);
  matmul->d = MatrixOf(d);
  matmul->batches = d.batches;
  matmul->scale_type = static_cast<cudaDataType>(desc.scale_type);
  if (!TypesFit(*matmul, static_cast<cublasComputeType_t>(desc.compute))) return CUBLAS_STATUS_NOT_SUPPORTED;
  Epilogue& epilogue = matmul->epilogue;
  epilogue.by_column = d.order == CUBLASLT_ORDER_ROW;
  status =
      PlanEpilogue(desc, matmul->d, static_cast<int64_t>(epilogue.by_column ? d.cols : d.rows), &epilogue);
  if (status == CUBLAS_STATUS_SUCCESS) status = PlanScales(desc, &epilogue);
  if (epilogue.by_column) {
    // The transpose of D is what lies column by column: op(B)^T * op(A)^T.
    std::swap(matmul->m, matmul->n);
    std::swap(matmul->a, matmul->b);
    matmul->a.transpose = !matmul->a.transpose;
    matmul->b.transpose = !matmul->b.transpose;
    std::swap(epilogue.gradient_of_a, epilogue.gradient_of_b);
    std::swap(epilogue.a_scale, epilogue.b_scale);
  }
  return status;
}

cublasStatus_t PlaceOperands(const MatmulDesc& desc, const Layout& d, const LtOperands& o, Matmul* matmul) {
  if (o.alpha == nullptr || o.beta == nullptr || o.a == nullptr || o.b == nullptr || o.d == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  bool device = desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  auto place = [device, matmul](Scalar* scalar, const void* from) {
    if (device) {
      scalar->address = reinterpret_cast<uint64_t>(from);
    } else {
      std::memcpy(scalar->bits, from, SizeOf(matmul->scale_type));
    }
  };
  place(&matmul->alpha, o.alpha);
  place(&matmul->beta, o.beta);
  matmul->a.matrix.address = reinterpret_cast<uint64_t>(o.a);
  matmul->b.matrix.address = reinterpret_cast<uint64_t>(o.b);
  if (d.order == CUBLASLT_ORDER_ROW) std::swap(matmul->a.matrix.address, matmul->b.matrix.address);
  matmul->c.address = reinterpret_cast<uint64_t>(o.c);
  matmul->d.address = reinterpret_cast<uint64_t>(o.d);
  bool adds = device || LoadElement(matmul->scale_type, matmul->beta.bits, 0) != Complex64(0);
  return adds && o.c == nullptr ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

}  // namespace softgpu::blas
