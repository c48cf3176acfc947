// Descriptors of tensors and filters.
#include <algorithm>

#include "softgpu/dnn/descriptors.h"

using softgpu::dnn::CreateDescriptor;
using softgpu::dnn::DestroyDescriptor;
using softgpu::dnn::Refuse;
using softgpu::dnn::SetPackedStrides;
using softgpu::dnn::Shape;
using softgpu::dnn::SizeOf;

namespace {

constexpr int64_t kMaxElements = int64_t{1} << 31;

bool IsFormat(cudnnTensorFormat_t format) {
  return format >= CUDNN_TENSOR_NCHW && format <= CUDNN_TENSOR_NCHW_VECT_C;
}

// What dimensions alone must be: positive, of fewer than 2^31 elements together.
cudnnStatus_t CheckDims(const char* function, int type, int rank, const int* dims) {
  if (SizeOf(type) == 0) return Refuse(CUDNN_STATUS_BAD_PARAM, function, "a type of tensors");
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    if (dims[i] <= 0) return Refuse(CUDNN_STATUS_BAD_PARAM, function, "positive dimensions");
    count *= dims[i];
    if (count >= kMaxElements) return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "below 2^31 elements");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CheckStrides(const char* function, const Shape& shape) {
  int64_t last = 0;
  for (int i = 0; i < shape.rank; ++i) {
    const bool positive = shape.stride[i] > 0 || (shape.stride[i] == 0 && shape.dim[i] == 1);
    if (!positive) return Refuse(CUDNN_STATUS_BAD_PARAM, function, "positive strides");
    last += static_cast<int64_t>(shape.dim[i] - 1) * shape.stride[i];
    if (last >= kMaxElements) return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "below 2^31 elements");
  }
  return CUDNN_STATUS_SUCCESS;
}

Shape MakeShape(int type, int rank, const int* dims) {
  Shape shape;
  shape.type = type;
  shape.rank = rank;
  std::copy_n(dims, rank, shape.dim);
  return shape;
}

cudnnStatus_t SetPacked(const char* function, Shape* shape, cudnnTensorFormat_t format, int type, int rank,
                        const int* dims) {
  if (!IsFormat(format)) return Refuse(CUDNN_STATUS_BAD_PARAM, function, "a tensor format");
  DNN_RETURN_IF_ERROR(CheckDims(function, type, rank, dims));
  if (format == CUDNN_TENSOR_NCHW_VECT_C)
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "a type of vectors");
  *shape = MakeShape(type, rank, dims);
  SetPackedStrides(format == CUDNN_TENSOR_NHWC, shape);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetStrided(const char* function, Shape* shape, int type, int rank, const int* dims,
                         const int* strides) {
  DNN_RETURN_IF_ERROR(CheckDims(function, type, rank, dims));
  Shape made = MakeShape(type, rank, dims);
  std::copy_n(strides, rank, made.stride);
  DNN_RETURN_IF_ERROR(CheckStrides(function, made));
  *shape = made;
  return CUDNN_STATUS_SUCCESS;
}

// The types that come in vectors of a channel's neighbours are known by name only.
bool IsVectorType(int type) {
  return type == CUDNN_DATA_INT8x4 || type == CUDNN_DATA_UINT8x4 || type == CUDNN_DATA_INT8x32;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensorDesc) {
  return CreateDescriptor(__func__, tensorDesc);
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensorDesc) {
  return DestroyDescriptor(tensorDesc);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensorDesc, cudnnTensorFormat_t format,
                                         cudnnDataType_t dataType, int n, int c, int h, int w) {
  DNN_REQUIRE(tensorDesc != nullptr);
  DNN_SUPPORT(!IsVectorType(dataType));
  const int dims[] = {n, c, h, w};
  return SetPacked(__func__, &tensorDesc->shape, format, dataType, 4, dims);
}

cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t tensorDesc, cudnnDataType_t dataType,
                                           int n, int c, int h, int w, int nStride, int cStride, int hStride,
                                           int wStride) {
  DNN_REQUIRE(tensorDesc != nullptr);
  DNN_SUPPORT(!IsVectorType(dataType));
  const int dims[] = {n, c, h, w};
  const int strides[] = {nStride, cStride, hStride, wStride};
  return SetStrided(__func__, &tensorDesc->shape, dataType, 4, dims, strides);
}

cudnnStatus_t cudnnGetTensor4dDescriptor(const cudnnTensorDescriptor_t tensorDesc, cudnnDataType_t* dataType,
                                         int* n, int* c, int* h, int* w, int* nStride, int* cStride,
                                         int* hStride, int* wStride) {
  DNN_REQUIRE(tensorDesc != nullptr && dataType != nullptr);
  int* const dims[] = {n, c, h, w};
  int* const strides[] = {nStride, cStride, hStride, wStride};
  for (int i = 0; i < 4; ++i) DNN_REQUIRE(dims[i] != nullptr && strides[i] != nullptr);
  *dataType = static_cast<cudnnDataType_t>(tensorDesc->shape.type);
  for (int i = 0; i < 4; ++i) {
    *dims[i] = tensorDesc->shape.dim[i];
    *strides[i] = tensorDesc->shape.stride[i];
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensorDesc, cudnnDataType_t dataType,
                                         int nbDims, const int dimA[], const int strideA[]) {
  DNN_REQUIRE(tensorDesc != nullptr && dimA != nullptr && strideA != nullptr);
  DNN_SUPPORT(!IsVectorType(dataType));
  DNN_SUPPORT(nbDims <= CUDNN_DIM_MAX);
  DNN_REQUIRE(nbDims >= 2);
  return SetStrided(__func__, &tensorDesc->shape, dataType, nbDims, dimA, strideA);
}

cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t tensorDesc, cudnnTensorFormat_t format,
                                           cudnnDataType_t dataType, int nbDims, const int dimA[]) {
  DNN_REQUIRE(tensorDesc != nullptr && dimA != nullptr);
  DNN_SUPPORT(!IsVectorType(dataType));
  DNN_SUPPORT(nbDims <= CUDNN_DIM_MAX);
  DNN_REQUIRE(nbDims >= 2);
  return SetPacked(__func__, &tensorDesc->shape, format, dataType, nbDims, dimA);
}

cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensorDesc, int nbDimsRequested,
                                         cudnnDataType_t* dataType, int* nbDims, int dimA[], int strideA[]) {
  DNN_REQUIRE(tensorDesc != nullptr && dataType != nullptr && nbDims != nullptr);
  const Shape& shape = tensorDesc->shape;
  const int count = std::clamp(nbDimsRequested, 0, shape.rank);
  DNN_REQUIRE(count == 0 || (dimA != nullptr && strideA != nullptr));
  *dataType = static_cast<cudnnDataType_t>(shape.type);
  *nbDims = shape.rank;
  std::copy_n(shape.dim, count, dimA);
  std::copy_n(shape.stride, count, strideA);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensorSizeInBytes(const cudnnTensorDescriptor_t tensorDesc, size_t* size) {
  DNN_REQUIRE(tensorDesc != nullptr && size != nullptr);
  *size = tensorDesc->shape.Bytes();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filterDesc) {
  return CreateDescriptor(__func__, filterDesc);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filterDesc) {
  return DestroyDescriptor(filterDesc);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filterDesc, cudnnDataType_t dataType,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  const int dims[] = {k, c, h, w};
  return cudnnSetFilterNdDescriptor(filterDesc, dataType, format, 4, dims);
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filterDesc, cudnnDataType_t dataType,
                                         cudnnTensorFormat_t format, int nbDims, const int filterDimA[]) {
  DNN_REQUIRE(filterDesc != nullptr && filterDimA != nullptr);
  DNN_SUPPORT(!IsVectorType(dataType));
  DNN_SUPPORT(nbDims <= CUDNN_DIM_MAX);
  DNN_REQUIRE(nbDims >= 3);
  DNN_REQUIRE(dataType != CUDNN_DATA_INT32);
  DNN_RETURN_IF_ERROR(SetPacked(__func__, &filterDesc->shape, format, dataType, nbDims, filterDimA));
  filterDesc->format = format;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilter4dDescriptor(const cudnnFilterDescriptor_t filterDesc, cudnnDataType_t* dataType,
                                         cudnnTensorFormat_t* format, int* k, int* c, int* h, int* w) {
  DNN_REQUIRE(filterDesc != nullptr && dataType != nullptr && format != nullptr);
  int* const dims[] = {k, c, h, w};
  for (int* dim : dims) DNN_REQUIRE(dim != nullptr);
  *dataType = static_cast<cudnnDataType_t>(filterDesc->shape.type);
  *format = filterDesc->format;
  for (int i = 0; i < 4; ++i) *dims[i] = filterDesc->shape.dim[i];
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t filterDesc, int nbDimsRequested,
                                         cudnnDataType_t* dataType, cudnnTensorFormat_t* format, int* nbDims,
                                         int filterDimA[]) {
  DNN_REQUIRE(filterDesc != nullptr && dataType != nullptr && format != nullptr && nbDims != nullptr);
  const int count = std::clamp(nbDimsRequested, 0, filterDesc->shape.rank);
  DNN_REQUIRE(count == 0 || filterDimA != nullptr);
  *dataType = static_cast<cudnnDataType_t>(filterDesc->shape.type);
  *format = filterDesc->format;
  *nbDims = filterDesc->shape.rank;
  std::copy_n(filterDesc->shape.dim, count, filterDimA);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilterSizeInBytes(const cudnnFilterDescriptor_t filterDesc, size_t* size) {
  DNN_REQUIRE(filterDesc != nullptr && size != nullptr);
  *size = filterDesc->shape.Bytes();
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
