// The library's handle, and how calls become kernels.
#ifndef SOFTGPU_DNN_HANDLE_H_
#define SOFTGPU_DNN_HANDLE_H_

#include <cuda.h>
#include <cudnn.h>

#include "softgpu/dnn/status.h"
#include "softgpu/dnn/tensor.h"
#include "softgpu/dnn/values.h"
#include "softgpu/native/native.h"

// Any thread, but one at a time.
struct cudnnContext {
  CUcontext context;
  CUstream stream;
  CUdeviceptr workspace;  // of kHiddenBytes, hidden from the program
};

namespace softgpu::dnn {

// Before the hidden workspace's space lies a word that says whether a body uses it: launches in several
// streams may run at once.
inline constexpr size_t kHiddenBytes = 4u << 20;

// A tensor as kernel argument; address 0: absent.
struct Operand {
  Shape shape;
  uint64_t address = 0;
};

inline Operand OperandOf(const Shape& shape, const void* pointer) {
  return {shape, reinterpret_cast<uint64_t>(pointer)};
}

struct Region {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// Where a body is to put intermediate values, as kernel argument.
struct Workspace {
  Region given;   // by the program for this call
  Region hidden;  // the handle's
};

// Of a call with or without a workspace from the program. What is captured into a graph does not use the
// handle's: the graph may outlive it.
Workspace WorkspaceOf(cudnnHandle_t handle, const void* given, size_t bytes);

// The memory of one body's operands.
class Memory {
 public:
  explicit Memory(native::Device& device) : device_(device) {}

  Source Read(const Operand& operand) {
    if (operand.address == 0) return {operand.shape, nullptr};
    const void* data = device_.Read(operand.address, operand.shape.Bytes());
    return {operand.shape, Checked(data)};
  }
  Target Write(const Operand& operand) {
    return {operand.shape, Write<void>(operand.address, operand.shape.Bytes())};
  }
  template <typename T>
  T* Write(uint64_t address, size_t bytes) {
    return address == 0 ? nullptr : static_cast<T*>(Checked(device_.Write(address, bytes)));
  }

  // False when the device may not access one of them: the body must return.
  bool ok() const { return ok_; }

 private:
  template <typename T>
  T* Checked(T* data) {
    ok_ = ok_ && data != nullptr;
    return data;
  }

  native::Device& device_;
  bool ok_ = true;
};

// Space for one body's intermediate values: the workspace that the call was given, else the handle's if no
// other body uses it, else the heap.
class Scratch {
 public:
  Scratch(const Workspace& workspace, Memory* memory);
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();

  Arena* arena() { return &arena_; }

 private:
  struct Space {
    void* data = nullptr;
    size_t bytes = 0;
    uint32_t* busy = nullptr;
  };
  static Space Find(const Workspace& workspace, Memory* memory);

  const Space space_;
  Arena arena_;
};

// Launches a body in the handle's stream, for the function named.
template <auto kBody, typename Arguments>
cudnnStatus_t Launch(cudnnHandle_t handle, const char* function, const Arguments& arguments);

// Makes the handle's context current where the thread has none.
CUresult UseContext(cudnnHandle_t handle);

template <auto kBody, typename Arguments>
cudnnStatus_t Launch(cudnnHandle_t handle, const char* function, const Arguments& arguments) {
  CUresult result = UseContext(handle);
  if (result == CUDA_SUCCESS) result = native::Launch<kBody>(handle->stream, arguments);
  return FromDriver(result, function, "the launch");
}

// alpha or beta of a call on tensors of `type`; the pointer is not null.
inline double ScalarOf(const void* pointer, int type) {
  if (type == CUDNN_DATA_DOUBLE) return *static_cast<const double*>(pointer);
  return static_cast<double>(*static_cast<const float*>(pointer));
}

inline Blend BlendOf(const void* alpha, const void* beta, int type) {
  return {ScalarOf(alpha, type), ScalarOf(beta, type)};
}

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_HANDLE_H_
