// cuDNN's objects and device memory, each freed with its owner. Any error ends the program with one clear
// line.
#pragma once

#include <cudnn.h>
#include <stddef.h>

#include <memory>
#include <type_traits>
#include <vector>

#include "../common/cuda_check.h"
#include "../common/fail.h"
#include "config.h"

#define CUDNN_CHECK(call) ::cnn::CheckCudnn((call), #call, __FILE__, __LINE__)

namespace cnn {

inline void CheckCudnn(cudnnStatus_t status, const char* what, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char message[256] = "";
  cudnnGetLastErrorString(message, sizeof(message));
  sample::Fail(sample::kExitFailure, "%s failed: %s (%s) at %s:%d", what, cudnnGetErrorString(status),
               message, file, line);
}

// One of cuDNN's descriptors, with the functions that make and destroy it.
template <typename T, cudnnStatus_t (*kCreate)(T*), cudnnStatus_t (*kDestroy)(T)>
class Descriptor {
 public:
  Descriptor() { CUDNN_CHECK(kCreate(&descriptor_)); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { kDestroy(descriptor_); }

  T get() const { return descriptor_; }

 private:
  T descriptor_ = nullptr;
};

using Handle = Descriptor<cudnnHandle_t, cudnnCreate, cudnnDestroy>;
using TensorDescriptor =
    Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using FilterDescriptor =
    Descriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor = Descriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                                         cudnnDestroyConvolutionDescriptor>;
using ActivationDescriptor = Descriptor<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor,
                                        cudnnDestroyActivationDescriptor>;
using PoolingDescriptor =
    Descriptor<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor>;
using DropoutDescriptor =
    Descriptor<cudnnDropoutDescriptor_t, cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor>;

inline void Describe(const TensorDescriptor& descriptor, const Shape& shape) {
  CUDNN_CHECK(cudnnSetTensor4dDescriptor(descriptor.get(), CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, shape.images,
                                         shape.channels, shape.height, shape.width));
}

struct FreeOnDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};

// An array in device memory; its elements are not to be touched here.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(size_t count) : count_(count) {
    T* memory = nullptr;
    CUDA_CHECK(cudaMalloc(&memory, bytes() > 0 ? bytes() : sizeof(T)));
    memory_.reset(memory);
  }

  T* data() const { return memory_.get(); }
  size_t count() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  size_t count_;
  std::unique_ptr<T, FreeOnDevice> memory_;
};

// Copies that are over when the call returns.
template <typename T>
void Upload(const std::vector<T>& values, const OnDevice<T>& to, cudaStream_t stream) {
  CUDA_CHECK(cudaMemcpyAsync(to.data(), values.data(), to.bytes(), cudaMemcpyHostToDevice, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

template <typename T>
std::vector<T> Download(const OnDevice<T>& from, cudaStream_t stream) {
  std::vector<T> values(from.count());
  CUDA_CHECK(cudaMemcpyAsync(values.data(), from.data(), from.bytes(), cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  return values;
}

// Its elements are written to the file, or read from it.
template <typename T>
void Exchange(sample::SavedState* state, const OnDevice<T>& array, cudaStream_t stream) {
  std::vector<T> values = Download(array, stream);
  state->Values(&values);
  Upload(values, array, stream);
}

}  // namespace cnn
