// Calls what needs no device, rightly and wrongly, and prints each call with its answer. The answers are to
// be the same whichever library with cuDNN's name runs it.
#include <cudnn.h>

#include <cstdio>
#include <initializer_list>

#define ANSWER(...) printf("%s: %d\n", #__VA_ARGS__, static_cast<int>(__VA_ARGS__))

namespace {

const int kDims[9] = {2, 3, 4, 5, 6, 2, 3, 2, 2};
const int kStrides[9] = {60, 20, 5, 1, 1, 1, 1, 1, 1};
const int kGaps[5] = {10000, 1000, 100, 10, 1};
const int kOnes[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};

template <typename T>
T Value(int value) {
  return static_cast<T>(value);
}

// Types of several elements, which softgpu does not offer.
bool IsVectors(int type) {
  return type == CUDNN_DATA_INT8x4 || type == CUDNN_DATA_UINT8x4 || type == CUDNN_DATA_INT8x32;
}

void PrintTensor(cudnnTensorDescriptor_t tensor) {
  cudnnDataType_t type;
  int rank = 0;
  int dims[8] = {};
  int strides[8] = {};
  size_t bytes = 0;
  ANSWER(cudnnGetTensorNdDescriptor(tensor, 8, &type, &rank, dims, strides));
  ANSWER(cudnnGetTensorSizeInBytes(tensor, &bytes));
  printf("  type %d rank %d bytes %zu:", type, rank, bytes);
  for (int i = 0; i < rank; ++i) printf(" %d/%d", dims[i], strides[i]);
  printf("\n");
}

void Tensors() {
  cudnnTensorDescriptor_t t = nullptr;
  ANSWER(cudnnCreateTensorDescriptor(nullptr));
  ANSWER(cudnnCreateTensorDescriptor(&t));
  PrintTensor(t);
  ANSWER(cudnnSetTensor4dDescriptor(nullptr, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 1));
  ANSWER(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 0, 1, 1, 1));
  ANSWER(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, -1, 1, 1));
  ANSWER(cudnnSetTensor4dDescriptor(t, Value<cudnnTensorFormat_t>(9), CUDNN_DATA_FLOAT, 1, 1, 1, 1));
  ANSWER(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NCHW, Value<cudnnDataType_t>(99), 1, 1, 1, 1));
  ANSWER(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 4096, 4096, 64, 2));
  ANSWER(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NCHW_VECT_C, CUDNN_DATA_FLOAT, 1, 4, 2, 2));
  for (int type = CUDNN_DATA_FLOAT; type <= CUDNN_DATA_COMPLEX_FP64 + 1; ++type) {
    if (IsVectors(type)) continue;
    ANSWER(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NHWC, Value<cudnnDataType_t>(type), 2, 3, 4, 5));
    PrintTensor(t);
  }
  ANSWER(cudnnSetTensor4dDescriptorEx(t, CUDNN_DATA_FLOAT, 2, 3, 4, 5, 0, 0, 0, 0));
  ANSWER(cudnnSetTensor4dDescriptorEx(t, CUDNN_DATA_FLOAT, 2, 3, 4, 5, 60, 20, 5, 0));
  ANSWER(cudnnSetTensor4dDescriptorEx(t, CUDNN_DATA_FLOAT, 1, 3, 4, 5, 0, 20, 5, 1));
  ANSWER(cudnnSetTensor4dDescriptorEx(t, CUDNN_DATA_FLOAT, 2, 3, 4, 5, 100, 20, 5, 1));
  PrintTensor(t);
  for (int rank = 0; rank <= 9; ++rank)
    ANSWER(cudnnSetTensorNdDescriptor(t, CUDNN_DATA_FLOAT, rank, kDims, kStrides));
  for (int rank = 3; rank <= 5; ++rank) {
    for (const auto format : {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC}) {
      ANSWER(cudnnSetTensorNdDescriptorEx(t, format, CUDNN_DATA_FLOAT, rank, kDims));
      PrintTensor(t);
    }
  }
  ANSWER(cudnnSetTensorNdDescriptor(t, CUDNN_DATA_FLOAT, 5, kDims, kGaps));
  cudnnDataType_t type;
  int rank = 0;
  int values[16] = {};
  for (const int requested : {0, 3, 9}) {
    ANSWER(cudnnGetTensorNdDescriptor(t, requested, &type, &rank, values, values + 8));
    printf("  rank %d\n", rank);
  }
  int* v = values;
  ANSWER(cudnnGetTensor4dDescriptor(t, &type, v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7));
  ANSWER(cudnnGetTensor4dDescriptor(t, &type, nullptr, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7));
  size_t bytes = 0;
  ANSWER(cudnnGetTensorSizeInBytes(nullptr, &bytes));
  ANSWER(cudnnDestroyTensorDescriptor(t));
  ANSWER(cudnnDestroyTensorDescriptor(nullptr));
}

void Filters() {
  cudnnFilterDescriptor_t f = nullptr;
  ANSWER(cudnnCreateFilterDescriptor(&f));
  ANSWER(cudnnSetFilter4dDescriptor(f, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 0, 1, 1, 1));
  for (const int rank : {2, 3, 5, 9})
    ANSWER(cudnnSetFilterNdDescriptor(f, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, rank, kDims));
  for (int type = CUDNN_DATA_FLOAT; type <= CUDNN_DATA_COMPLEX_FP64 + 1; ++type) {
    if (IsVectors(type)) continue;
    ANSWER(cudnnSetFilter4dDescriptor(f, Value<cudnnDataType_t>(type), CUDNN_TENSOR_NCHW, 2, 4, 4, 5));
  }
  ANSWER(cudnnSetFilter4dDescriptor(f, CUDNN_DATA_HALF, CUDNN_TENSOR_NHWC, 8, 3, 3, 2));
  size_t bytes = 0;
  ANSWER(cudnnGetFilterSizeInBytes(f, &bytes));
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
  int rank = 0;
  int dims[8] = {};
  ANSWER(cudnnGetFilterNdDescriptor(f, 2, &type, &format, &rank, dims));
  ANSWER(cudnnGetFilter4dDescriptor(f, &type, &format, dims, dims + 1, dims + 2, dims + 3));
  printf("  bytes %zu type %d format %d rank %d: %d %d %d %d\n", bytes, type, format, rank, dims[0], dims[1],
         dims[2], dims[3]);
  ANSWER(cudnnDestroyFilterDescriptor(f));
}

void Convolutions() {
  cudnnConvolutionDescriptor_t c = nullptr;
  const auto cross = CUDNN_CROSS_CORRELATION;
  ANSWER(cudnnCreateConvolutionDescriptor(&c));
  ANSWER(cudnnSetConvolution2dDescriptor(c, -1, 0, 1, 1, 1, 1, cross, CUDNN_DATA_FLOAT));
  ANSWER(cudnnSetConvolution2dDescriptor(c, 0, 0, 0, 1, 1, 1, cross, CUDNN_DATA_FLOAT));
  ANSWER(cudnnSetConvolution2dDescriptor(c, 0, 0, 1, 1, 0, 1, cross, CUDNN_DATA_FLOAT));
  ANSWER(cudnnSetConvolution2dDescriptor(c, 0, 0, 1, 1, 1, 1, Value<cudnnConvolutionMode_t>(5),
                                         CUDNN_DATA_FLOAT));
  for (const auto type : {CUDNN_DATA_INT8, CUDNN_DATA_HALF, CUDNN_DATA_DOUBLE, CUDNN_DATA_INT32}) {
    ANSWER(cudnnSetConvolution2dDescriptor(c, 0, 0, 1, 1, 1, 1, cross, type));
  }
  for (int length = 0; length <= 8; ++length) {
    ANSWER(cudnnSetConvolutionNdDescriptor(c, length, kOnes, kOnes, kOnes, cross, CUDNN_DATA_FLOAT));
  }
  ANSWER(cudnnSetConvolution2dDescriptor(c, 1, 2, 3, 4, 5, 6, CUDNN_CONVOLUTION, CUDNN_DATA_FLOAT));
  for (const int groups : {-1, 0, 3}) ANSWER(cudnnSetConvolutionGroupCount(c, groups));
  for (const int math : {0, 3, 9}) ANSWER(cudnnSetConvolutionMathType(c, Value<cudnnMathType_t>(math)));
  for (const int order : {1, 9}) ANSWER(cudnnSetConvolutionReorderType(c, Value<cudnnReorderType_t>(order)));
  int length = 0;
  int pad[8], stride[8], dilation[8];
  cudnnConvolutionMode_t mode;
  cudnnDataType_t type;
  for (const int requested : {-1, 0, 7, 2}) {
    ANSWER(cudnnGetConvolutionNdDescriptor(c, requested, &length, pad, stride, dilation, &mode, &type));
  }
  int groups = 0;
  cudnnMathType_t math;
  cudnnReorderType_t reorder;
  ANSWER(cudnnGetConvolutionGroupCount(c, &groups));
  ANSWER(cudnnGetConvolutionMathType(c, &math));
  ANSWER(cudnnGetConvolutionReorderType(c, &reorder));
  printf("  length %d: %d %d, %d %d, %d %d mode %d type %d groups %d math %d reorder %d\n", length, pad[0],
         pad[1], stride[0], stride[1], dilation[0], dilation[1], mode, type, groups, math, reorder);
  ANSWER(cudnnDestroyConvolutionDescriptor(c));
}

void Outputs() {
  cudnnTensorDescriptor_t t = nullptr;
  cudnnFilterDescriptor_t f = nullptr;
  cudnnConvolutionDescriptor_t c = nullptr;
  cudnnPoolingDescriptor_t p = nullptr;
  ANSWER(cudnnCreateTensorDescriptor(&t));
  ANSWER(cudnnCreateFilterDescriptor(&f));
  ANSWER(cudnnCreateConvolutionDescriptor(&c));
  ANSWER(cudnnCreatePoolingDescriptor(&p));
  ANSWER(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 17, 14));
  ANSWER(cudnnSetFilter4dDescriptor(f, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 6, 2, 3, 4));
  int d[8] = {};
  for (const int groups : {1, 2}) {
    for (const int dilation : {1, 3, 9}) {
      ANSWER(cudnnSetConvolution2dDescriptor(c, 1, 0, 2, 3, dilation, 1, CUDNN_CROSS_CORRELATION,
                                             CUDNN_DATA_FLOAT));
      ANSWER(cudnnSetConvolutionGroupCount(c, groups));
      if (cudnnGetConvolution2dForwardOutputDim(c, t, f, d, d + 1, d + 2, d + 3) == CUDNN_STATUS_SUCCESS) {
        printf("  %d %d %d %d\n", d[0], d[1], d[2], d[3]);
      } else {
        printf("  refused\n");
      }
    }
  }
  ANSWER(cudnnGetConvolutionNdForwardOutputDim(c, t, f, 5, d));
  for (const int window : {2, 3, 20}) {
    ANSWER(cudnnSetPooling2dDescriptor(p, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, window, 2, 1, 0, 2, 3));
    if (cudnnGetPooling2dForwardOutputDim(p, t, d, d + 1, d + 2, d + 3) == CUDNN_STATUS_SUCCESS) {
      printf("  %d %d %d %d\n", d[0], d[1], d[2], d[3]);
    } else {
      printf("  refused\n");
    }
  }
  cudnnTensorDescriptor_t derived = nullptr;
  ANSWER(cudnnCreateTensorDescriptor(&derived));
  for (const auto type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_DOUBLE}) {
    ANSWER(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NHWC, type, 2, 3, 7, 7));
    for (const int mode : {0, 1, 2, 7}) {
      ANSWER(cudnnDeriveBNTensorDescriptor(derived, t, Value<cudnnBatchNormMode_t>(mode)));
      PrintTensor(derived);
    }
  }
  size_t bytes = 0;
  ANSWER(cudnnDropoutGetReserveSpaceSize(t, &bytes));
  printf("  reserve %zu\n", bytes);
  cudnnDestroyTensorDescriptor(derived);
  cudnnDestroyTensorDescriptor(t);
  cudnnDestroyFilterDescriptor(f);
  cudnnDestroyConvolutionDescriptor(c);
  cudnnDestroyPoolingDescriptor(p);
}

void Poolings() {
  cudnnPoolingDescriptor_t p = nullptr;
  const auto max = CUDNN_POOLING_MAX;
  const auto nan = CUDNN_PROPAGATE_NAN;
  ANSWER(cudnnCreatePoolingDescriptor(&p));
  ANSWER(cudnnSetPooling2dDescriptor(p, max, nan, 2, 2, 2, 2, 2, 2));
  ANSWER(cudnnSetPooling2dDescriptor(p, max, nan, 0, 2, 0, 0, 2, 2));
  ANSWER(cudnnSetPooling2dDescriptor(p, max, nan, 2, 2, 0, 0, 0, 2));
  ANSWER(cudnnSetPooling2dDescriptor(p, Value<cudnnPoolingMode_t>(8), nan, 2, 2, 0, 0, 2, 2));
  ANSWER(cudnnSetPooling2dDescriptor(p, max, Value<cudnnNanPropagation_t>(8), 2, 2, 0, 0, 2, 2));
  for (int length = 0; length <= 5; ++length)
    ANSWER(cudnnSetPoolingNdDescriptor(p, max, nan, length, kOnes, kOnes, kOnes));
  ANSWER(cudnnSetPooling2dDescriptor(p, max, nan, 3, 4, 1, 2, 5, 6));
  cudnnPoolingMode_t mode;
  cudnnNanPropagation_t option;
  int v[6] = {};
  ANSWER(cudnnGetPooling2dDescriptor(p, &mode, &option, v, v + 1, v + 2, v + 3, v + 4, v + 5));
  printf("  %d %d: %d %d %d %d %d %d\n", mode, option, v[0], v[1], v[2], v[3], v[4], v[5]);
  ANSWER(cudnnDestroyPoolingDescriptor(p));
}

void Activations() {
  cudnnActivationDescriptor_t a = nullptr;
  const auto nan = CUDNN_PROPAGATE_NAN;
  double coefficient = 0;
  double beta = 0;
  cudnnActivationMode_t mode;
  cudnnNanPropagation_t option;
  ANSWER(cudnnCreateActivationDescriptor(&a));
  ANSWER(cudnnSetActivationDescriptor(a, Value<cudnnActivationMode_t>(9), nan, 1));
  ANSWER(cudnnSetActivationDescriptor(a, CUDNN_ACTIVATION_RELU, Value<cudnnNanPropagation_t>(9), 1));
  ANSWER(cudnnSetActivationDescriptor(nullptr, CUDNN_ACTIVATION_RELU, nan, 0));
  ANSWER(cudnnSetActivationDescriptor(a, CUDNN_ACTIVATION_CLIPPED_RELU, nan, -1));
  ANSWER(cudnnGetActivationDescriptor(a, &mode, &option, &coefficient));
  ANSWER(cudnnGetActivationDescriptorSwishBeta(a, &beta));
  printf("  %d %d %g %g\n", mode, option, coefficient, beta);
  ANSWER(cudnnSetActivationDescriptorSwishBeta(a, 2.5));
  ANSWER(cudnnGetActivationDescriptorSwishBeta(a, &beta));
  printf("  %g\n", beta);
  ANSWER(cudnnDestroyActivationDescriptor(a));
}

void Operations() {
  cudnnOpTensorDescriptor_t o = nullptr;
  const auto nan = CUDNN_PROPAGATE_NAN;
  ANSWER(cudnnCreateOpTensorDescriptor(&o));
  ANSWER(cudnnSetOpTensorDescriptor(o, Value<cudnnOpTensorOp_t>(9), CUDNN_DATA_FLOAT, nan));
  ANSWER(cudnnSetOpTensorDescriptor(o, CUDNN_OP_TENSOR_ADD, CUDNN_DATA_INT8, nan));
  ANSWER(cudnnSetOpTensorDescriptor(o, CUDNN_OP_TENSOR_MAX, CUDNN_DATA_DOUBLE, nan));
  cudnnOpTensorOp_t op;
  cudnnDataType_t type;
  cudnnNanPropagation_t option;
  ANSWER(cudnnGetOpTensorDescriptor(o, &op, &type, &option));
  printf("  %d %d %d\n", op, type, option);
  ANSWER(cudnnDestroyOpTensorDescriptor(o));
  cudnnReduceTensorDescriptor_t r = nullptr;
  const auto none = CUDNN_REDUCE_TENSOR_NO_INDICES;
  const auto bits = CUDNN_32BIT_INDICES;
  ANSWER(cudnnCreateReduceTensorDescriptor(&r));
  ANSWER(
      cudnnSetReduceTensorDescriptor(r, Value<cudnnReduceTensorOp_t>(19), CUDNN_DATA_FLOAT, nan, none, bits));
  ANSWER(cudnnSetReduceTensorDescriptor(r, CUDNN_REDUCE_TENSOR_ADD, CUDNN_DATA_INT8, nan, none, bits));
  ANSWER(cudnnSetReduceTensorDescriptor(r, CUDNN_REDUCE_TENSOR_ADD, CUDNN_DATA_FLOAT, nan, none,
                                        CUDNN_8BIT_INDICES));
  ANSWER(cudnnDestroyReduceTensorDescriptor(r));
  cudnnLRNDescriptor_t l = nullptr;
  unsigned window = 0;
  double alpha = 0, beta = 0, k = 0;
  ANSWER(cudnnCreateLRNDescriptor(&l));
  ANSWER(cudnnSetLRNDescriptor(l, 0, 1e-4, 0.75, 2));
  ANSWER(cudnnSetLRNDescriptor(l, 17, 1e-4, 0.75, 2));
  ANSWER(cudnnSetLRNDescriptor(l, 5, 1e-4, 0.001, 2));
  ANSWER(cudnnSetLRNDescriptor(l, 5, 1e-4, 0.75, 0));
  ANSWER(cudnnSetLRNDescriptor(l, 7, 1e-3, 0.5, 1));
  ANSWER(cudnnGetLRNDescriptor(l, &window, &alpha, &beta, &k));
  printf("  %u %g %g %g\n", window, alpha, beta, k);
  ANSWER(cudnnDestroyLRNDescriptor(l));
}

// Where there is no device.
void Handles() {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  size_t bytes = 0;
  int count = 0;
  ANSWER(cudnnCreate(&handle));
  ANSWER(cudnnCreate(nullptr));
  ANSWER(cudnnDestroy(nullptr));
  ANSWER(cudnnGetStream(nullptr, &stream));
  ANSWER(cudnnSetStream(nullptr, nullptr));
  ANSWER(cudnnDropoutGetStatesSize(nullptr, &bytes));
  ANSWER(cudnnGetConvolutionForwardAlgorithmMaxCount(nullptr, &count));
  cudnnDropoutDescriptor_t d = nullptr;
  ANSWER(cudnnCreateDropoutDescriptor(&d));
  ANSWER(cudnnSetDropoutDescriptor(d, nullptr, 0.5f, nullptr, 0, 1));
  ANSWER(cudnnDestroyDropoutDescriptor(d));
}

void Versions() {
  int value = 0;
  ANSWER(cudnnGetVersion());
  ANSWER(cudnnGetMaxDeviceVersion());
  for (const int property : {0, 1, 2, 7}) {
    ANSWER(cudnnGetProperty(Value<libraryPropertyType>(property), &value));
    printf("  %d\n", value);
  }
  ANSWER(cudnnGetProperty(MAJOR_VERSION, nullptr));
  ANSWER(cudnnGraphVersionCheck());
  ANSWER(cudnnOpsVersionCheck());
  ANSWER(cudnnCnnVersionCheck());
  ANSWER(cudnnAdvVersionCheck());
  for (int status = -1; status < 6000; ++status) {
    const char* text = cudnnGetErrorString(static_cast<cudnnStatus_t>(status));
    if (text[6] == 'S') printf("%d %s\n", status, text);
  }
  printf("%s\n", cudnnGetErrorString(static_cast<cudnnStatus_t>(9999)));
}

}  // namespace

int main() {
  Tensors();
  Filters();
  Convolutions();
  Outputs();
  Poolings();
  Activations();
  Operations();
  Handles();
  Versions();
}
