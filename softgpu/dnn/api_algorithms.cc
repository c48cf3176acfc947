// Which algorithm to take for a convolution: by rank, or by trying.
#include <algorithm>
#include <chrono>
#include <functional>

#include "softgpu/dnn/algorithms.h"
#include "softgpu/native/driver.h"

namespace softgpu::dnn {
namespace {

constexpr Algorithm kForward[] = {
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, true, true},
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_GEMM, true, true},
    {CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, false, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_FFT, false, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING, false, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, false, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, false, false},
};
static_assert(std::size(kForward) == CUDNN_CONVOLUTION_FWD_ALGO_COUNT);

constexpr Algorithm kBackwardData[] = {
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, true, true},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, true, false},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, false, false},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING, false, false},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD, false, false},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED, false, false},
};
static_assert(std::size(kBackwardData) == CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT);

constexpr Algorithm kBackwardFilter[] = {
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true, true},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, true, false},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, true, true},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, false, false},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD, false, false},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED, false, false},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING, false, false},
};
static_assert(std::size(kBackwardFilter) == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT);

// One convolution that an algorithm is sought for.
struct Question {
  const char* function;
  cudnnHandle_t handle;
  const cudnnConvolutionStruct* conv;
  const Shape* x;
  const Shape* w;
  const Shape* y;
  int requested;
};

template <typename Perf>
cudnnStatus_t CheckQuestion(const Question& question, const int* returned, const Perf* results) {
  if (question.handle == nullptr || returned == nullptr || results == nullptr || question.requested < 1) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, question.function, "a handle and places for the answers");
  }
  return CheckConvolution(question.function, *question.conv, *question.x, *question.w, *question.y);
}

// The answer for one algorithm before any of it is tried.
template <typename Perf>
Perf Answer(const Question& question, const Algorithm& algorithm) {
  Perf perf{};
  perf.algo = static_cast<decltype(perf.algo)>(algorithm.value);
  perf.status = algorithm.offered ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
  perf.time = -1;
  if (algorithm.takes_workspace)
    perf.memory = ColumnBytes(ParamsOf(*question.conv), *question.x, *question.w);
  perf.determinism = CUDNN_DETERMINISTIC;
  perf.mathType = question.conv->math_type;
  return perf;
}

template <typename Perf>
cudnnStatus_t Rank(const Question& question, const Algorithms& algorithms, int* returned, Perf* results) {
  DNN_RETURN_IF_ERROR(CheckQuestion(question, returned, results));
  *returned = std::min(question.requested, algorithms.count);
  for (int i = 0; i < *returned; ++i) results[i] = Answer<Perf>(question, algorithms.list[i]);
  return CUDNN_STATUS_SUCCESS;
}

// Milliseconds until the handle's stream has done what `run` puts there; its error else.
template <typename Run>
cudnnStatus_t Measure(cudnnHandle_t handle, Run&& run, float* milliseconds) {
  const auto start = std::chrono::steady_clock::now();
  DNN_RETURN_IF_ERROR(run());
  const CUresult result = native::Driver().cuStreamSynchronize(handle->stream);
  if (result != CUDA_SUCCESS) return CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
  *milliseconds = std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start).count();
  return CUDNN_STATUS_SUCCESS;
}

// Runs what is offered, and puts the quickest first. run(algo) computes the convolution.
template <typename Perf, typename Run>
cudnnStatus_t Find(const Question& question, const Algorithms& algorithms, size_t workspace_bytes,
                   int* returned, Perf* results, Run&& run) {
  DNN_RETURN_IF_ERROR(CheckQuestion(question, returned, results));
  std::vector<Perf> found;
  for (int i = 0; i < algorithms.count; ++i) {
    Perf perf = Answer<Perf>(question, algorithms.list[i]);
    if (perf.status == CUDNN_STATUS_SUCCESS && perf.memory > workspace_bytes) {
      perf.status = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    }
    if (perf.status == CUDNN_STATUS_SUCCESS) {
      perf.status = Measure(
          question.handle, [&] { return run(perf.algo); }, &perf.time);
    }
    found.push_back(perf);
  }
  std::stable_sort(found.begin(), found.end(), [](const Perf& a, const Perf& b) {
    const bool a_failed = a.status != CUDNN_STATUS_SUCCESS;
    const bool b_failed = b.status != CUDNN_STATUS_SUCCESS;
    return a_failed != b_failed ? b_failed : !a_failed && a.time < b.time;
  });
  *returned = std::min(question.requested, algorithms.count);
  std::copy_n(found.begin(), *returned, results);
  return CUDNN_STATUS_SUCCESS;
}

// Device memory for a search that the program gives none for: zeros.
class Buffer {
 public:
  Buffer(cudnnHandle_t handle, size_t bytes) {
    UseContext(handle);
    if (native::Driver().cuMemAlloc_v2(&address_, bytes) != CUDA_SUCCESS) address_ = 0;
    if (address_ != 0) native::Driver().cuMemsetD8Async(address_, 0, bytes, handle->stream);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (address_ != 0) native::Driver().cuMemFree_v2(address_);
  }

  void* get() const { return reinterpret_cast<void*>(address_); }

 private:
  CUdeviceptr address_ = 0;
};

struct Buffers {
  explicit Buffers(const Question& question)
      : bytes(ColumnBytes(ParamsOf(*question.conv), *question.x, *question.w)),
        x(question.handle, question.x->Bytes()),
        w(question.handle, question.w->Bytes()),
        y(question.handle, question.y->Bytes()),
        workspace(question.handle, bytes) {}

  bool ok() const {
    return x.get() != nullptr && w.get() != nullptr && y.get() != nullptr && workspace.get() != nullptr;
  }

  size_t bytes;
  Buffer x, w, y, workspace;
};

// One and zero, of the type that goes with the tensors'.
struct Scalars {
  explicit Scalars(int type) : is_double(type == CUDNN_DATA_DOUBLE) {}
  const void* one() const { return is_double ? static_cast<const void*>(&one_double) : &one_float; }
  const void* zero() const { return is_double ? static_cast<const void*>(&zero_double) : &zero_float; }

  bool is_double;
  float one_float = 1, zero_float = 0;
  double one_double = 1, zero_double = 0;
};

}  // namespace

const Algorithms kForwardAlgorithms = {kForward, std::size(kForward)};
const Algorithms kBackwardDataAlgorithms = {kBackwardData, std::size(kBackwardData)};
const Algorithms kBackwardFilterAlgorithms = {kBackwardFilter, std::size(kBackwardFilter)};

cudnnStatus_t WorkspaceBytes(const char* function, const Algorithms& algorithms, int algo,
                             const ConvolutionParams& params, const Shape& x, const Shape& w, size_t* bytes) {
  for (int i = 0; i < algorithms.count; ++i) {
    const Algorithm& algorithm = algorithms.list[i];
    if (algorithm.value != algo) continue;
    if (!algorithm.offered)
      return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "an algorithm that is offered");
    *bytes = algorithm.takes_workspace ? ColumnBytes(params, x, w) : 0;
    return CUDNN_STATUS_SUCCESS;
  }
  return Refuse(CUDNN_STATUS_BAD_PARAM, function, "an algorithm");
}

}  // namespace softgpu::dnn

using namespace softgpu::dnn;

// What all three directions do with their descriptors before they ask.
#define DNN_QUESTION(x_desc, w_desc, y_desc, requested)                                            \
  DNN_REQUIRE(convDesc != nullptr && x_desc != nullptr && w_desc != nullptr && y_desc != nullptr); \
  const Question question = {__func__,         handle,           convDesc, &(x_desc)->shape,       \
                             &(w_desc)->shape, &(y_desc)->shape, requested}

extern "C" {

cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  DNN_REQUIRE(handle != nullptr && count != nullptr);
  *count = kForwardAlgorithms.count;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  DNN_REQUIRE(handle != nullptr && count != nullptr);
  *count = kBackwardDataAlgorithms.count;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  DNN_REQUIRE(handle != nullptr && count != nullptr);
  *count = kBackwardFilterAlgorithms.count;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t srcDesc, const cudnnFilterDescriptor_t filterDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t destDesc,
    const int requestedAlgoCount, int* returnedAlgoCount, cudnnConvolutionFwdAlgoPerf_t* perfResults) {
  DNN_QUESTION(srcDesc, filterDesc, destDesc, requestedAlgoCount);
  return Rank(question, kForwardAlgorithms, returnedAlgoCount, perfResults);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t filterDesc, const cudnnTensorDescriptor_t diffDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t gradDesc,
    const int requestedAlgoCount, int* returnedAlgoCount, cudnnConvolutionBwdDataAlgoPerf_t* perfResults) {
  DNN_QUESTION(gradDesc, filterDesc, diffDesc, requestedAlgoCount);
  return Rank(question, kBackwardDataAlgorithms, returnedAlgoCount, perfResults);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t srcDesc, const cudnnTensorDescriptor_t diffDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnFilterDescriptor_t gradDesc,
    const int requestedAlgoCount, int* returnedAlgoCount, cudnnConvolutionBwdFilterAlgoPerf_t* perfResults) {
  DNN_QUESTION(srcDesc, gradDesc, diffDesc, requestedAlgoCount);
  return Rank(question, kBackwardFilterAlgorithms, returnedAlgoCount, perfResults);
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const void* x,
    const cudnnFilterDescriptor_t wDesc, const void* w, const cudnnConvolutionDescriptor_t convDesc,
    const cudnnTensorDescriptor_t yDesc, void* y, const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionFwdAlgoPerf_t* perfResults, void* workSpace, size_t workSpaceSizeInBytes) {
  DNN_QUESTION(xDesc, wDesc, yDesc, requestedAlgoCount);
  const Scalars scalars(yDesc->shape.type);
  const size_t bytes = workSpace != nullptr ? workSpaceSizeInBytes : 0;
  return Find(question, kForwardAlgorithms, bytes, returnedAlgoCount, perfResults,
              [&](cudnnConvolutionFwdAlgo_t algo) {
                return cudnnConvolutionForward(handle, scalars.one(), xDesc, x, wDesc, w, convDesc, algo,
                                               workSpace, bytes, scalars.zero(), yDesc, y);
              });
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc, const void* w,
    const cudnnTensorDescriptor_t dyDesc, const void* dy, const cudnnConvolutionDescriptor_t convDesc,
    const cudnnTensorDescriptor_t dxDesc, void* dx, const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionBwdDataAlgoPerf_t* perfResults, void* workSpace, size_t workSpaceSizeInBytes) {
  DNN_QUESTION(dxDesc, wDesc, dyDesc, requestedAlgoCount);
  const Scalars scalars(dxDesc->shape.type);
  const size_t bytes = workSpace != nullptr ? workSpaceSizeInBytes : 0;
  return Find(question, kBackwardDataAlgorithms, bytes, returnedAlgoCount, perfResults,
              [&](cudnnConvolutionBwdDataAlgo_t algo) {
                return cudnnConvolutionBackwardData(handle, scalars.one(), wDesc, w, dyDesc, dy, convDesc,
                                                    algo, workSpace, bytes, scalars.zero(), dxDesc, dx);
              });
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const void* x,
    const cudnnTensorDescriptor_t dyDesc, const void* y, const cudnnConvolutionDescriptor_t convDesc,
    const cudnnFilterDescriptor_t dwDesc, void* dw, const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionBwdFilterAlgoPerf_t* perfResults, void* workSpace, size_t workSpaceSizeInBytes) {
  DNN_QUESTION(xDesc, dwDesc, dyDesc, requestedAlgoCount);
  const Scalars scalars(dwDesc->shape.type);
  const size_t bytes = workSpace != nullptr ? workSpaceSizeInBytes : 0;
  return Find(question, kBackwardFilterAlgorithms, bytes, returnedAlgoCount, perfResults,
              [&](cudnnConvolutionBwdFilterAlgo_t algo) {
                return cudnnConvolutionBackwardFilter(handle, scalars.one(), xDesc, x, dyDesc, y, convDesc,
                                                      algo, workSpace, bytes, scalars.zero(), dwDesc, dw);
              });
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc,
                                                   const cudnnFilterDescriptor_t wDesc,
                                                   const cudnnConvolutionDescriptor_t convDesc,
                                                   const cudnnTensorDescriptor_t yDesc,
                                                   const int requestedAlgoCount, int* returnedAlgoCount,
                                                   cudnnConvolutionFwdAlgoPerf_t* perfResults) {
  DNN_QUESTION(xDesc, wDesc, yDesc, requestedAlgoCount);
  DNN_RETURN_IF_ERROR(CheckQuestion(question, returnedAlgoCount, perfResults));
  const Buffers buffers(question);
  if (!buffers.ok()) return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  return cudnnFindConvolutionForwardAlgorithmEx(
      handle, xDesc, buffers.x.get(), wDesc, buffers.w.get(), convDesc, yDesc, buffers.y.get(),
      requestedAlgoCount, returnedAlgoCount, perfResults, buffers.workspace.get(), buffers.bytes);
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc, const cudnnTensorDescriptor_t dyDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t dxDesc,
    const int requestedAlgoCount, int* returnedAlgoCount, cudnnConvolutionBwdDataAlgoPerf_t* perfResults) {
  DNN_QUESTION(dxDesc, wDesc, dyDesc, requestedAlgoCount);
  DNN_RETURN_IF_ERROR(CheckQuestion(question, returnedAlgoCount, perfResults));
  const Buffers buffers(question);
  if (!buffers.ok()) return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  return cudnnFindConvolutionBackwardDataAlgorithmEx(
      handle, wDesc, buffers.w.get(), dyDesc, buffers.y.get(), convDesc, dxDesc, buffers.x.get(),
      requestedAlgoCount, returnedAlgoCount, perfResults, buffers.workspace.get(), buffers.bytes);
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t dyDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnFilterDescriptor_t dwDesc,
    const int requestedAlgoCount, int* returnedAlgoCount, cudnnConvolutionBwdFilterAlgoPerf_t* perfResults) {
  DNN_QUESTION(xDesc, dwDesc, dyDesc, requestedAlgoCount);
  DNN_RETURN_IF_ERROR(CheckQuestion(question, returnedAlgoCount, perfResults));
  const Buffers buffers(question);
  if (!buffers.ok()) return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  return cudnnFindConvolutionBackwardFilterAlgorithmEx(
      handle, xDesc, buffers.x.get(), dyDesc, buffers.y.get(), convDesc, dwDesc, buffers.w.get(),
      requestedAlgoCount, returnedAlgoCount, perfResults, buffers.workspace.get(), buffers.bytes);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle,
                                                      const cudnnTensorDescriptor_t xDesc,
                                                      const cudnnFilterDescriptor_t wDesc,
                                                      const cudnnConvolutionDescriptor_t convDesc,
                                                      const cudnnTensorDescriptor_t yDesc,
                                                      cudnnConvolutionFwdAlgo_t algo, size_t* sizeInBytes) {
  DNN_REQUIRE(handle != nullptr && sizeInBytes != nullptr);
  DNN_QUESTION(xDesc, wDesc, yDesc, 0);
  DNN_RETURN_IF_ERROR(CheckConvolution(__func__, *convDesc, *question.x, *question.w, *question.y));
  return WorkspaceBytes(__func__, kForwardAlgorithms, algo, ParamsOf(*convDesc), *question.x, *question.w,
                        sizeInBytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc, const cudnnTensorDescriptor_t dyDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t dxDesc,
    cudnnConvolutionBwdDataAlgo_t algo, size_t* sizeInBytes) {
  DNN_REQUIRE(handle != nullptr && sizeInBytes != nullptr);
  DNN_QUESTION(dxDesc, wDesc, dyDesc, 0);
  DNN_RETURN_IF_ERROR(CheckConvolution(__func__, *convDesc, *question.x, *question.w, *question.y));
  return WorkspaceBytes(__func__, kBackwardDataAlgorithms, algo, ParamsOf(*convDesc), *question.x,
                        *question.w, sizeInBytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t dyDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnFilterDescriptor_t gradDesc,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t* sizeInBytes) {
  DNN_REQUIRE(handle != nullptr && sizeInBytes != nullptr);
  DNN_QUESTION(xDesc, gradDesc, dyDesc, 0);
  DNN_RETURN_IF_ERROR(CheckConvolution(__func__, *convDesc, *question.x, *question.w, *question.y));
  return WorkspaceBytes(__func__, kBackwardFilterAlgorithms, algo, ParamsOf(*convDesc), *question.x,
                        *question.w, sizeInBytes);
}

}  // extern "C"
