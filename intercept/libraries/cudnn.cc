// cuDNN handles.
#include <vector>

#include "cudnn_hooks.h"
#include "intercept/libraries/handle_library.h"
#include "intercept/libraries/handles.h"
#include "intercept/libraries/stream_of.h"

namespace stasis::libraries {
namespace {

Status CudnnStatus(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  const bool no_room = status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  return Errorf(no_room ? StatusCode::kResourceExhausted : StatusCode::kDriver, "%s: status %d", call,
                static_cast<int>(status));
}

class Handle final : public HandleObject {
 public:
  void Read(void* real) override {
    stream_.Read([&](cudaStream_t* stream) {
      return cudnnGetStream(static_cast<cudnnHandle_t>(real), stream) == CUDNN_STATUS_SUCCESS;
    });
  }
  Status Apply(void* real) override {
    return stream_.Apply([&](cudaStream_t stream) {
      return CudnnStatus(cudnnSetStream(static_cast<cudnnHandle_t>(real), stream), "cudnnSetStream");
    });
  }
  StreamOf& stream() { return stream_; }

 private:
  StreamOf stream_;  // guarded by the library's mutex
};

class Cudnn final : public HandleLibrary {
 public:
  static Cudnn& Get() {
    static Cudnn* const library = Registered(new Cudnn);
    return *library;
  }
  const char* Name() const override { return "cuDNN"; }

  template <typename Change>
  void With(cudnnHandle_t visible, Change change) {
    HandleLibrary::With(visible, [&](HandleObject& object) { change(static_cast<Handle&>(object)); });
  }

 protected:
  Result<void*> Create() override {
    cudnnHandle_t handle = nullptr;
    RETURN_IF_ERROR(CudnnStatus(cudnnCreate(&handle), "cudnnCreate"));
    return static_cast<void*>(handle);
  }
  Status Destroy(void* real) override {
    return CudnnStatus(cudnnDestroy(static_cast<cudnnHandle_t>(real)), "cudnnDestroy");
  }
};

}  // namespace

namespace hooks {

cudnnStatus_t cudnnCreate(const LibraryCall& call, cudnnHandle_t* handle) {
  const cudnnStatus_t status = call.Real<decltype(&::cudnnCreate)>()(handle);
  if (status == CUDNN_STATUS_SUCCESS && !call.OfALibrary())
    *handle = static_cast<cudnnHandle_t>(Cudnn::Get().Made(*handle, std::make_shared<Handle>()));
  return status;
}

cudnnStatus_t cudnnDestroy(const LibraryCall& call, cudnnHandle_t handle) {
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  Cudnn::Get().Destroyed(handle, [&](void* real) {
    status = call.Real<decltype(&::cudnnDestroy)>()(static_cast<cudnnHandle_t>(real));
    return status == CUDNN_STATUS_SUCCESS;
  });
  return status;
}

cudnnStatus_t cudnnSetStream(const LibraryCall& call, cudnnHandle_t handle, cudaStream_t streamId) {
  const cudnnStatus_t status = call.Real<decltype(&::cudnnSetStream)>()(ToReal(handle), streamId);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  Cudnn::Get().With(handle, [](Handle& object) { object.stream().Forget(); });
  return status;
}

cudnnStatus_t cudnnGetStream(const LibraryCall& call, cudnnHandle_t handle, cudaStream_t* streamId) {
  const cudnnStatus_t status = call.Real<decltype(&::cudnnGetStream)>()(ToReal(handle), streamId);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  Cudnn::Get().With(handle, [&](Handle& object) { *streamId = object.stream().Visible(*streamId); });
  return status;
}

// An engine's configuration and a plan may point to the handle as long as they live.
cudnnStatus_t cudnnBackendSetAttribute(const LibraryCall& call, cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType, int64_t elementCount,
                                       const void* arrayOfElements) {
  const auto real = call.Real<decltype(&::cudnnBackendSetAttribute)>();
  if (attributeType != CUDNN_TYPE_HANDLE || arrayOfElements == nullptr || elementCount <= 0)
    return real(descriptor, attributeName, attributeType, elementCount, arrayOfElements);
  const auto* visible = static_cast<const cudnnHandle_t*>(arrayOfElements);
  std::vector<cudnnHandle_t> handles;
  for (int64_t i = 0; i < elementCount; ++i) {
    Cudnn::Get().Keep(visible[i]);
    handles.push_back(ToReal(visible[i]));
  }
  return real(descriptor, attributeName, attributeType, elementCount, handles.data());
}

cudnnStatus_t cudnnBackendGetAttribute(const LibraryCall& call, cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t requestedElementCount, int64_t* elementCount,
                                       void* arrayOfElements) {
  int64_t count = 0;
  const cudnnStatus_t status = call.Real<decltype(&::cudnnBackendGetAttribute)>()(
      descriptor, attributeName, attributeType, requestedElementCount, &count, arrayOfElements);
  if (elementCount != nullptr) *elementCount = count;
  if (status != CUDNN_STATUS_SUCCESS || attributeType != CUDNN_TYPE_HANDLE || arrayOfElements == nullptr)
    return status;
  auto* handles = static_cast<cudnnHandle_t*>(arrayOfElements);
  for (int64_t i = 0; i < count && i < requestedElementCount; ++i) handles[i] = ToVisible(handles[i]);
  return status;
}

cudnnStatus_t cudnnBackendPopulateCudaGraph(const LibraryCall& call, cudnnHandle_t handle,
                                            cudnnBackendDescriptor_t executionPlan,
                                            cudnnBackendDescriptor_t variantPack, cudaGraph_t graph) {
  Cudnn::Get().Keep(handle);
  return call.Real<decltype(&::cudnnBackendPopulateCudaGraph)>()(ToReal(handle), executionPlan, variantPack,
                                                                 graph);
}

cudnnStatus_t cudnnBackendUpdateCudaGraph(const LibraryCall& call, cudnnHandle_t handle,
                                          cudnnBackendDescriptor_t executionPlan,
                                          cudnnBackendDescriptor_t variantPack, cudaGraph_t graph) {
  Cudnn::Get().Keep(handle);
  return call.Real<decltype(&::cudnnBackendUpdateCudaGraph)>()(ToReal(handle), executionPlan, variantPack,
                                                               graph);
}

cudnnStatus_t cudnnMakeFusedOpsPlan(const LibraryCall& call, cudnnHandle_t handle, cudnnFusedOpsPlan_t plan,
                                    const cudnnFusedOpsConstParamPack_t constPack,
                                    size_t* workspaceSizeInBytes) {
  Cudnn::Get().Keep(handle);
  return call.Real<decltype(&::cudnnMakeFusedOpsPlan)>()(ToReal(handle), plan, constPack,
                                                         workspaceSizeInBytes);
}

}  // namespace hooks
}  // namespace stasis::libraries
