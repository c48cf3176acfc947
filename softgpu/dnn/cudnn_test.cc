// The library's functions on a daemon of the test's own: order, capture, workspaces, blends, refusals.
#include <cudnn.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "softgpu/dnn/convolution.h"
#include "softgpu/dnn/dnn_testing.h"
#include "softgpu/driver/memory_testing.h"
#include "softgpu/native/native.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "2", "--memory", "256MiB"};

namespace {

using dnn::HostTensor;
using dnn::Order;

#define OK(call) ASSERT_EQ(call, CUDNN_STATUS_SUCCESS)
#define CU_OK(call) ASSERT_EQ(call, CUDA_SUCCESS)

constexpr float kOne = 1;
constexpr float kZero = 0;

class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cuMemAlloc(&address_, bytes > 0 ? bytes : 1), CUDA_SUCCESS);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { cuMemFree(address_); }

  void* get() const { return reinterpret_cast<void*>(address_); }
  size_t bytes() const { return bytes_; }
  void Upload(const std::vector<uint8_t>& bytes) {
    EXPECT_EQ(cuMemcpyHtoD(address_, bytes.data(), bytes.size()), CUDA_SUCCESS);
  }
  std::vector<uint8_t> Download() const {
    std::vector<uint8_t> bytes(bytes_);
    EXPECT_EQ(cuMemcpyDtoH(bytes.data(), address_, bytes_), CUDA_SUCCESS);
    return bytes;
  }

 private:
  size_t bytes_;
  CUdeviceptr address_ = 0;
};

// A tensor on the device with its descriptor.
class DeviceTensor {
 public:
  explicit DeviceTensor(const HostTensor& host) : host_(host), memory_(host.shape().Bytes()) {
    memory_.Upload(host.bytes());
    const dnn::Shape& shape = host.shape();
    EXPECT_EQ(cudnnCreateTensorDescriptor(&descriptor_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetTensorNdDescriptor(descriptor_, static_cast<cudnnDataType_t>(shape.type), shape.rank,
                                         shape.dim, shape.stride),
              CUDNN_STATUS_SUCCESS);
  }
  ~DeviceTensor() { cudnnDestroyTensorDescriptor(descriptor_); }

  cudnnTensorDescriptor_t descriptor() const { return descriptor_; }
  void* data() const { return memory_.get(); }
  HostTensor Download() const {
    HostTensor host = host_;
    *host.mutable_bytes() = memory_.Download();
    return host;
  }

 private:
  HostTensor host_;
  DeviceBytes memory_;
  cudnnTensorDescriptor_t descriptor_ = nullptr;
};

HostTensor Random(const std::vector<int>& dims, uint64_t seed, int type = CUDNN_DATA_FLOAT) {
  HostTensor tensor(dnn::MakeShape(type, dims));
  tensor.FillRandom(seed);
  return tensor;
}

// A word of pinned memory on which a body waits in its stream.
class Hold {
 public:
  static void Wait(std::atomic<int>* const& flag, native::Device&) { flag->wait(0); }

  explicit Hold(CUstream stream) { EXPECT_EQ(native::Launch<&Wait>(stream, &flag_), CUDA_SUCCESS); }
  ~Hold() { Release(); }
  void Release() {
    flag_.store(1);
    flag_.notify_all();
  }

 private:
  std::atomic<int> flag_{0};
};

class CudnnTest : public testing::Test {
 protected:
  CudnnTest() {
    UseDevice();
    EXPECT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle_, stream_), CUDNN_STATUS_SUCCESS);
  }
  ~CudnnTest() override {
    EXPECT_EQ(cudnnDestroy(handle_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  }

  void Synchronize() { ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS); }

  cudnnHandle_t handle_ = nullptr;
  CUstream stream_ = nullptr;
};

// A convolution's descriptors and data.
struct Convolution {
  explicit Convolution(int type = CUDNN_DATA_FLOAT, int channels = 3)
      : x(Random({2, channels, 6, 6}, 1, type)),
        w(Random({4, channels, 3, 3}, 2, type)),
        y(Random({2, 4, 6, 6}, 3, type)) {
    EXPECT_EQ(cudnnCreateFilterDescriptor(&filter), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetFilter4dDescriptor(filter, static_cast<cudnnDataType_t>(type), CUDNN_TENSOR_NCHW, 4,
                                         channels, 3, 3),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnCreateConvolutionDescriptor(&convolution), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(
        cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                        type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
        CUDNN_STATUS_SUCCESS);
  }
  ~Convolution() {
    cudnnDestroyFilterDescriptor(filter);
    cudnnDestroyConvolutionDescriptor(convolution);
  }

  cudnnStatus_t Forward(cudnnHandle_t handle, cudnnConvolutionFwdAlgo_t algo, void* workspace, size_t bytes) {
    return cudnnConvolutionForward(handle, &kOne, x.descriptor(), x.data(), filter, w.data(), convolution,
                                   algo, workspace, bytes, &kZero, y.descriptor(), y.data());
  }

  // What Forward() gives.
  std::vector<uint8_t> Expected() const {
    HostTensor result = y.Download();
    dnn::ConvolutionParams params;
    params.space = 2;
    params.pad[0] = params.pad[1] = 1;
    dnn::Arena arena;
    dnn::ConvolutionForward(params, {}, x.Download().AsSource(), w.Download().AsSource(), result.AsTarget(),
                            &arena);
    return result.bytes();
  }

  DeviceTensor x, w, y;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
};

TEST_F(CudnnTest, WorkComesInTheOrderOfTheStream) {
  Convolution c;
  const std::vector<uint8_t> before = c.y.Download().bytes();
  Hold hold(stream_);
  OK(c.Forward(handle_, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0));
  EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  hold.Release();
  Synchronize();
  EXPECT_EQ(c.y.Download().bytes(), c.Expected());
  EXPECT_NE(c.y.Download().bytes(), before);
}

TEST_F(CudnnTest, EveryAlgorithmGivesTheSameBits) {
  Convolution c;
  int count = 0;
  OK(cudnnGetConvolutionForwardAlgorithmMaxCount(handle_, &count));
  EXPECT_EQ(count, CUDNN_CONVOLUTION_FWD_ALGO_COUNT);
  std::vector<cudnnConvolutionFwdAlgoPerf_t> found(count);
  OK(cudnnFindConvolutionForwardAlgorithm(handle_, c.x.descriptor(), c.filter, c.convolution,
                                          c.y.descriptor(), count, &count, found.data()));
  int offered = 0;
  for (const cudnnConvolutionFwdAlgoPerf_t& perf : found) {
    size_t bytes = 0;
    const cudnnStatus_t status = cudnnGetConvolutionForwardWorkspaceSize(
        handle_, c.x.descriptor(), c.filter, c.convolution, c.y.descriptor(), perf.algo, &bytes);
    EXPECT_EQ(status, perf.status);
    DeviceBytes workspace(bytes);
    EXPECT_EQ(c.Forward(handle_, perf.algo, workspace.get(), bytes), perf.status);
    if (perf.status != CUDNN_STATUS_SUCCESS) continue;
    ++offered;
    EXPECT_EQ(perf.memory, bytes);
    EXPECT_GE(perf.time, 0);
    Synchronize();
    EXPECT_EQ(c.y.Download().bytes(), c.Expected());
    if (bytes > 0) {
      EXPECT_EQ(c.Forward(handle_, perf.algo, workspace.get(), bytes - 1), CUDNN_STATUS_BAD_PARAM);
      EXPECT_EQ(c.Forward(handle_, perf.algo, nullptr, bytes), CUDNN_STATUS_BAD_PARAM);
    }
  }
  EXPECT_EQ(offered, 3);
  EXPECT_EQ(found[0].status, CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(found[count - 1].status, CUDNN_STATUS_NOT_SUPPORTED);
}

TEST_F(CudnnTest, BackwardAlgorithmsAreFoundByTryingOnThePrograms) {
  Convolution c;
  DeviceBytes workspace(1 << 20);
  cudnnConvolutionBwdDataAlgoPerf_t data[9];
  int count = 0;
  OK(cudnnFindConvolutionBackwardDataAlgorithmEx(handle_, c.filter, c.w.data(), c.y.descriptor(), c.y.data(),
                                                 c.convolution, c.x.descriptor(), c.x.data(), 9, &count, data,
                                                 workspace.get(), workspace.bytes()));
  EXPECT_EQ(count, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT);
  EXPECT_EQ(data[1].status, CUDNN_STATUS_SUCCESS);
  EXPECT_LE(data[0].time, data[1].time);
  cudnnConvolutionBwdFilterAlgoPerf_t filter[2];
  OK(cudnnFindConvolutionBackwardFilterAlgorithmEx(handle_, c.x.descriptor(), c.x.data(), c.y.descriptor(),
                                                   c.y.data(), c.convolution, c.filter, c.w.data(), 2, &count,
                                                   filter, nullptr, 0));
  EXPECT_EQ(count, 2);
  EXPECT_EQ(filter[0].algo, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0);
  EXPECT_EQ(filter[0].status, CUDNN_STATUS_SUCCESS);
  EXPECT_NE(filter[1].status, CUDNN_STATUS_SUCCESS);  // too little workspace
}

// Large enough that the handle's workspace is not; and from several streams at once.
TEST_F(CudnnTest, StreamsShareAHandlesWorkspace) {
  constexpr int kStreams = 3;
  Convolution c(CUDNN_DATA_FLOAT, 96);
  const std::vector<uint8_t> expected = c.Expected();
  CUstream streams[kStreams];
  std::vector<std::unique_ptr<DeviceTensor>> results;
  for (CUstream& stream : streams) {
    CU_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    results.push_back(std::make_unique<DeviceTensor>(Random({2, 4, 6, 6}, 9)));
  }
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < kStreams; ++i) {
      OK(cudnnSetStream(handle_, streams[i]));
      OK(cudnnConvolutionForward(handle_, &kOne, c.x.descriptor(), c.x.data(), c.filter, c.w.data(),
                                 c.convolution, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &kZero,
                                 results[i]->descriptor(), results[i]->data()));
    }
  }
  for (CUstream stream : streams) CU_OK(cuStreamSynchronize(stream));
  for (const auto& result : results) EXPECT_EQ(result->Download().bytes(), expected);
  OK(cudnnSetStream(handle_, stream_));
  for (CUstream stream : streams) CU_OK(cuStreamDestroy(stream));
}

TEST_F(CudnnTest, AGraphOutlivesTheHandleItWasCapturedWith) {
  Convolution c;
  const std::vector<uint8_t> expected = c.Expected();
  cudnnHandle_t other = nullptr;
  OK(cudnnCreate(&other));
  OK(cudnnSetStream(other, stream_));
  CU_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(c.Forward(other, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0));
  OK(cudnnScaleTensor(other, c.y.descriptor(), c.y.data(), &kOne));
  CUgraph graph = nullptr;
  CU_OK(cuStreamEndCapture(stream_, &graph));
  size_t nodes = 0;
  CU_OK(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2u);
  EXPECT_NE(c.y.Download().bytes(), expected);  // nothing ran yet
  OK(cudnnDestroy(other));
  CUgraphExec exec = nullptr;
  CU_OK(cuGraphInstantiate(&exec, graph, 0));
  CU_OK(cuGraphLaunch(exec, stream_));
  Synchronize();
  EXPECT_EQ(c.y.Download().bytes(), expected);
  CU_OK(cuGraphExecDestroy(exec));
  CU_OK(cuGraphDestroy(graph));
}

TEST_F(CudnnTest, DestroyingAHandleWaitsForItsWork) {
  Convolution c;
  cudnnHandle_t other = nullptr;
  OK(cudnnCreate(&other));
  OK(cudnnSetStream(other, stream_));
  Hold hold(stream_);
  OK(c.Forward(other, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0));
  std::thread destroyer([&] {
    UseDevice();
    OK(cudnnDestroy(other));
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_SUCCESS);
  });
  hold.Release();
  destroyer.join();
  EXPECT_EQ(c.y.Download().bytes(), c.Expected());
}

TEST_F(CudnnTest, TheHandleHidesMemoryAndGivesItBack) {
  size_t before = 0, during = 0, after = 0, total = 0;
  CU_OK(cuMemGetInfo(&before, &total));
  cudnnHandle_t other = nullptr;
  OK(cudnnCreate(&other));
  CU_OK(cuMemGetInfo(&during, &total));
  OK(cudnnDestroy(other));
  CU_OK(cuMemGetInfo(&after, &total));
  EXPECT_GE(before - during, size_t{4} << 20);
  EXPECT_EQ(before, after);
}

TEST_F(CudnnTest, WithoutAContextDevice0IsUsed) {
  std::thread([] {
    cudnnHandle_t handle = nullptr;
    OK(cudnnCreate(&handle));
    CUdevice device = -1;
    CU_OK(cuCtxGetDevice(&device));
    EXPECT_EQ(device, 0);
    OK(cudnnDestroy(handle));
  }).join();
  // A thread that has none yet uses the handle's.
  DeviceTensor y(Random({1, 2, 3, 4}, 1));
  std::thread([&] {
    const float value = 3;
    OK(cudnnSetTensor(handle_, y.descriptor(), y.data(), &value));
  }).join();
  Synchronize();
  EXPECT_EQ(y.Download().At({0, 1, 2, 3}), 3);
}

TEST_F(CudnnTest, AStreamOfAnotherDeviceIsRefused) {
  CUcontext own = nullptr;
  CU_OK(cuCtxGetCurrent(&own));
  UseDevice(1);
  CUstream foreign = nullptr;
  CU_OK(cuStreamCreate(&foreign, 0));
  EXPECT_EQ(cudnnSetStream(handle_, foreign), CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
  CU_OK(cuStreamDestroy(foreign));
  CU_OK(cuDevicePrimaryCtxReset(1));
  CU_OK(cuCtxSetCurrent(own));
  cudaStream_t stream = nullptr;
  OK(cudnnGetStream(handle_, &stream));
  EXPECT_EQ(stream, stream_);
}

TEST_F(CudnnTest, MemoryThatIsNotThereFailsTheLaunch) {
  DeviceTensor y(Random({1, 2, 3, 4}, 1));
  OK(cudnnScaleTensor(handle_, y.descriptor(), reinterpret_cast<void*>(0x1000), &kOne));
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
  // Sticky, so the next call finds it.
  EXPECT_EQ(cudnnScaleTensor(handle_, y.descriptor(), y.data(), &kOne),
            CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  char message[256];
  cudnnGetLastErrorString(message, sizeof message);
  EXPECT_NE(std::strstr(message, "CUDA_ERROR_ILLEGAL_ADDRESS"), nullptr) << message;
  // Heals the context for the other tests, and with it goes all that the handle had.
  CU_OK(cuDevicePrimaryCtxReset(0));
  UseDevice();
  cudnnDestroy(handle_);
  OK(cudnnCreate(&handle_));
  CU_OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
}

// Dropout goes on from a copy of its states, in a descriptor that was restored.
TEST_F(CudnnTest, DropoutGoesOnFromRestoredStates) {
  size_t states_bytes = 0, reserve_bytes = 0;
  DeviceTensor x(Random({4, 8, 5, 5}, 1)), y(Random({4, 8, 5, 5}, 2));
  OK(cudnnDropoutGetStatesSize(handle_, &states_bytes));
  OK(cudnnDropoutGetReserveSpaceSize(x.descriptor(), &reserve_bytes));
  DeviceBytes states(states_bytes), reserve(reserve_bytes);
  cudnnDropoutDescriptor_t dropout = nullptr;
  OK(cudnnCreateDropoutDescriptor(&dropout));
  OK(cudnnSetDropoutDescriptor(dropout, handle_, 0.5f, states.get(), states_bytes, 42));
  const auto run = [&] {
    EXPECT_EQ(cudnnDropoutForward(handle_, dropout, x.descriptor(), x.data(), y.descriptor(), y.data(),
                                  reserve.get(), reserve_bytes),
              CUDNN_STATUS_SUCCESS);
    Synchronize();
    return y.Download().bytes();
  };
  const auto first = run();
  const std::vector<uint8_t> saved = states.Download();
  const auto second = run();
  EXPECT_NE(first, second);
  DeviceBytes elsewhere(states_bytes);
  elsewhere.Upload(saved);
  OK(cudnnRestoreDropoutDescriptor(dropout, handle_, 0.5f, elsewhere.get(), states_bytes, 42));
  EXPECT_EQ(run(), second);
  OK(cudnnSetDropoutDescriptor(dropout, handle_, 0.5f, states.get(), states_bytes, 42));
  EXPECT_EQ(run(), first);

  // The way back drops the same.
  DeviceTensor dx(Random({4, 8, 5, 5}, 3));
  OK(cudnnDropoutBackward(handle_, dropout, x.descriptor(), x.data(), dx.descriptor(), dx.data(),
                          reserve.get(), reserve_bytes));
  Synchronize();
  EXPECT_EQ(dx.Download().bytes(), first);

  float share = 0;
  void* where = nullptr;
  unsigned long long seed = 0;
  OK(cudnnGetDropoutDescriptor(dropout, handle_, &share, &where, &seed));
  EXPECT_EQ(share, 0.5f);
  EXPECT_EQ(where, states.get());
  EXPECT_EQ(seed, 42u);
  EXPECT_EQ(cudnnSetDropoutDescriptor(dropout, handle_, 1.5f, states.get(), states_bytes, 1),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetDropoutDescriptor(dropout, handle_, 0.5f, states.get(), states_bytes - 1, 1),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnDropoutForward(handle_, dropout, x.descriptor(), x.data(), y.descriptor(), y.data(),
                                reserve.get(), reserve_bytes - 1),
            CUDNN_STATUS_BAD_PARAM);
  OK(cudnnDestroyDropoutDescriptor(dropout));
}

// Doubles take doubles as alpha and beta.
TEST_F(CudnnTest, ScalarsHaveTheTypeOfTheTensors) {
  DeviceTensor y(Random({2, 2, 3, 3}, 1, CUDNN_DATA_DOUBLE));
  const HostTensor before = y.Download();
  const double third = 1.0 / 3;
  OK(cudnnScaleTensor(handle_, y.descriptor(), y.data(), &third));
  Synchronize();
  const HostTensor after = y.Download();
  ForEachPlace(after.shape(),
               [&](const dnn::Place& place) { ASSERT_EQ(after.At(place), third * before.At(place)); });
}

TEST_F(CudnnTest, BatchNormThroughBothFamilies) {
  DeviceTensor x(Random({3, 2, 4, 4}, 1)), y(Random({3, 2, 4, 4}, 2)), z(Random({3, 2, 4, 4}, 3));
  DeviceTensor scale(Random({1, 2, 1, 1}, 4)), bias(Random({1, 2, 1, 1}, 5)), mean(Random({1, 2, 1, 1}, 6));
  DeviceTensor variance(Random({1, 2, 1, 1}, 7)), saved_mean(Random({1, 2, 1, 1}, 8)),
      inverse(Random({1, 2, 1, 1}, 9));
  cudnnActivationDescriptor_t relu = nullptr;
  OK(cudnnCreateActivationDescriptor(&relu));
  OK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
  size_t reserve_bytes = 0, workspace_bytes = 0;
  const auto ops = CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION;
  OK(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle_, CUDNN_BATCHNORM_SPATIAL, ops, relu,
                                                          x.descriptor(), &reserve_bytes));
  OK(cudnnGetBatchNormalizationBackwardExWorkspaceSize(
      handle_, CUDNN_BATCHNORM_SPATIAL, ops, x.descriptor(), y.descriptor(), y.descriptor(), z.descriptor(),
      x.descriptor(), scale.descriptor(), relu, &workspace_bytes));
  EXPECT_GT(reserve_bytes, 0u);
  EXPECT_GT(workspace_bytes, 0u);
  DeviceBytes reserve(reserve_bytes), workspace(workspace_bytes);
  const auto forward = [&](size_t bytes) {
    return cudnnBatchNormalizationForwardTrainingEx(
        handle_, CUDNN_BATCHNORM_SPATIAL, ops, &kOne, &kZero, x.descriptor(), x.data(), z.descriptor(),
        z.data(), y.descriptor(), y.data(), scale.descriptor(), scale.data(), bias.data(), 1, mean.data(),
        variance.data(), 1e-5, saved_mean.data(), inverse.data(), relu, nullptr, 0, reserve.get(), bytes);
  };
  EXPECT_EQ(forward(reserve_bytes - 1), CUDNN_STATUS_BAD_PARAM);
  OK(forward(reserve_bytes));
  Synchronize();
  const auto y_bytes = y.Download().bytes();
  OK(cudnnNormalizationForwardTraining(
      handle_, CUDNN_NORM_PER_CHANNEL, CUDNN_NORM_OPS_NORM_ADD_ACTIVATION, CUDNN_NORM_ALGO_STANDARD, &kOne,
      &kZero, x.descriptor(), x.data(), scale.descriptor(), scale.data(), bias.data(), 1, mean.descriptor(),
      mean.data(), variance.data(), 1e-5, saved_mean.data(), inverse.data(), relu, z.descriptor(), z.data(),
      y.descriptor(), y.data(), nullptr, 0, reserve.get(), reserve_bytes, 1));
  Synchronize();
  EXPECT_EQ(y.Download().bytes(), y_bytes);
  DeviceTensor dx(Random({3, 2, 4, 4}, 1)), dz(Random({3, 2, 4, 4}, 1)), dscale(Random({1, 2, 1, 1}, 1));
  DeviceTensor dbias(Random({1, 2, 1, 1}, 1));
  const auto backward = [&](size_t bytes) {
    return cudnnBatchNormalizationBackwardEx(
        handle_, CUDNN_BATCHNORM_SPATIAL, ops, &kOne, &kZero, &kOne, &kZero, x.descriptor(), x.data(),
        y.descriptor(), y.data(), y.descriptor(), y.data(), dz.descriptor(), dz.data(), dx.descriptor(),
        dx.data(), scale.descriptor(), scale.data(), bias.data(), dscale.data(), dbias.data(), 1e-5,
        saved_mean.data(), inverse.data(), relu, workspace.get(), bytes, reserve.get(), reserve_bytes);
  };
  EXPECT_EQ(backward(workspace_bytes - 1), CUDNN_STATUS_BAD_PARAM);
  OK(backward(workspace_bytes));
  Synchronize();
  EXPECT_EQ(dz.Download().bytes(), y_bytes);  // y passes where it is not 0
  OK(cudnnDestroyActivationDescriptor(relu));
}

TEST_F(CudnnTest, ReductionsWriteIndices) {
  DeviceTensor a(Random({2, 3, 4, 4}, 1)), c(Random({2, 1, 1, 1}, 2));
  cudnnReduceTensorDescriptor_t reduce = nullptr;
  OK(cudnnCreateReduceTensorDescriptor(&reduce));
  OK(cudnnSetReduceTensorDescriptor(reduce, CUDNN_REDUCE_TENSOR_MAX, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN,
                                    CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, CUDNN_32BIT_INDICES));
  size_t bytes = 0;
  OK(cudnnGetReductionIndicesSize(handle_, reduce, a.descriptor(), c.descriptor(), &bytes));
  EXPECT_EQ(bytes, 8u);
  DeviceBytes indices(bytes);
  OK(cudnnReduceTensor(handle_, reduce, indices.get(), bytes, nullptr, 0, &kOne, a.descriptor(), a.data(),
                       &kZero, c.descriptor(), c.data()));
  Synchronize();
  const HostTensor host = a.Download();
  const auto raw = indices.Download();
  for (int image = 0; image < 2; ++image) {
    uint32_t index = 0;
    std::memcpy(&index, &raw[image * 4], 4);
    const int at = static_cast<int>(index);
    EXPECT_EQ(host.At({image, at / 16, at / 4 % 4, at % 4}), c.Download().At({image, 0, 0, 0}));
  }
  EXPECT_EQ(cudnnReduceTensor(handle_, reduce, indices.get(), bytes - 1, nullptr, 0, &kOne, a.descriptor(),
                              a.data(), &kZero, c.descriptor(), c.data()),
            CUDNN_STATUS_BAD_PARAM);
  OK(cudnnDestroyReduceTensorDescriptor(reduce));
}

TEST_F(CudnnTest, WhatDoesNotFitIsRefused) {
  Convolution c;
  const auto gemm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
  EXPECT_EQ(c.Forward(nullptr, gemm, nullptr, 0), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(c.Forward(handle_, CUDNN_CONVOLUTION_FWD_ALGO_FFT, nullptr, 0), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(c.Forward(handle_, static_cast<cudnnConvolutionFwdAlgo_t>(77), nullptr, 0),
            CUDNN_STATUS_BAD_PARAM);
  OK(cudnnSetConvolutionGroupCount(c.convolution, 2));
  EXPECT_EQ(c.Forward(handle_, gemm, nullptr, 0), CUDNN_STATUS_BAD_PARAM);
  OK(cudnnSetConvolutionGroupCount(c.convolution, 1));
  OK(cudnnSetTensor4dDescriptor(c.y.descriptor(), CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 6, 5));
  EXPECT_EQ(c.Forward(handle_, gemm, nullptr, 0), CUDNN_STATUS_BAD_PARAM);
  OK(cudnnSetTensor4dDescriptor(c.y.descriptor(), CUDNN_TENSOR_NCHW, CUDNN_DATA_HALF, 2, 4, 6, 6));
  EXPECT_EQ(c.Forward(handle_, gemm, nullptr, 0), CUDNN_STATUS_NOT_SUPPORTED);
  char message[256];
  cudnnGetLastErrorString(message, sizeof message);
  EXPECT_NE(std::strstr(message, "cudnnConvolutionForward"), nullptr) << message;
  cudnnGetLastErrorString(message, sizeof message);
  EXPECT_STREQ(message, "");
}

TEST_F(CudnnTest, TheCallbackHearsOfErrors) {
  struct Heard {
    int times = 0;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  } heard;
  const auto callback = [](cudnnSeverity_t, void* user, const cudnnDebug_t* debug, const char*) {
    auto* heard = static_cast<Heard*>(user);
    ++heard->times;
    heard->status = debug->cudnnStatus;
  };
  OK(cudnnSetCallback(CUDNN_SEV_ERROR_EN, &heard, callback));
  EXPECT_EQ(cudnnGetStream(nullptr, nullptr), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(heard.times, 1);
  EXPECT_EQ(heard.status, CUDNN_STATUS_BAD_PARAM);
  OK(cudnnSetCallback(0, nullptr, nullptr));
  EXPECT_EQ(cudnnGetStream(nullptr, nullptr), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(heard.times, 1);
}

TEST_F(CudnnTest, WhatIsNotOfferedSaysSoOnce) {
  testing::internal::CaptureStderr();
  cudnnRNNDescriptor_t rnn = nullptr;
  EXPECT_EQ(cudnnCreateRNNDescriptor(&rnn), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cudnnCreateRNNDescriptor(&rnn), CUDNN_STATUS_NOT_SUPPORTED);
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line = "softgpu libcudnn.so.9: cudnnCreateRNNDescriptor is not supported";
  const size_t first = log.find(line);
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(line, first + 1), std::string::npos) << log;
}

}  // namespace
}  // namespace softgpu
