// Allocation, symbols, pointer attributes and copies that name their devices.
#include "softgpu/runtime/api.h"
#include "softgpu/runtime/registry.h"

namespace softgpu::runtime {
namespace {

constexpr unsigned kWidestAccess = 16;  // bytes; pitches are aligned for the widest vector load

cudaError_t AllocatePitched(void** address, size_t* pitch, size_t width, size_t rows) {
  if (address == nullptr || pitch == nullptr) return cudaErrorInvalidValue;
  if (width == 0 || rows == 0) {
    *address = nullptr;
    *pitch = 0;
    return cudaSuccess;
  }
  return CU(cuMemAllocPitch)(reinterpret_cast<CUdeviceptr*>(address), pitch, width, rows, kWidestAccess);
}

cudaError_t AllocateHost(void** address, size_t size, unsigned flags) {
  if (address == nullptr) return cudaErrorInvalidValue;
  if (size != 0) return CU(cuMemHostAlloc)(address, size, flags);
  *address = nullptr;
  return cudaSuccess;
}

cudaMemoryType TypeOf(unsigned memory_type, unsigned managed) {
  if (managed != 0) return cudaMemoryTypeManaged;
  if (memory_type == CU_MEMORYTYPE_HOST) return cudaMemoryTypeHost;
  return memory_type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
}

// The driver leaves what does not apply at its null value, and reports memory unknown to it without an error.
cudaError_t QueryPointer(cudaPointerAttributes* out, const void* address) {
  unsigned memory_type = 0;
  unsigned managed = 0;
  int device = 0;
  CUdeviceptr device_pointer = 0;
  void* host_pointer = nullptr;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                 CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* values[] = {&memory_type, &managed, &device, &device_pointer, &host_pointer};
  RT_TRY(CU(cuPointerGetAttributes)(5, names, values, reinterpret_cast<CUdeviceptr>(address)));
  *out = {};
  out->type = TypeOf(memory_type, managed);
  if (out->type == cudaMemoryTypeUnregistered) {
    out->device = cudaInvalidDeviceId;
    out->hostPointer = const_cast<void*>(address);
    return cudaSuccess;
  }
  out->device = device;
  out->devicePointer = reinterpret_cast<void*>(device_pointer);
  out->hostPointer = host_pointer;
  return cudaSuccess;
}

CUdeviceptr Device(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace
}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API cudaError_t cudaMalloc(void** address, size_t size) {
  return WithContext([&] {
    if (address == nullptr) return cudaErrorInvalidValue;
    if (size != 0) return CU(cuMemAlloc)(reinterpret_cast<CUdeviceptr*>(address), size);
    *address = nullptr;
    return cudaSuccess;
  });
}

RT_API cudaError_t cudaMallocPitch(void** address, size_t* pitch, size_t width, size_t height) {
  return WithContext([&] { return AllocatePitched(address, pitch, width, height); });
}

RT_API cudaError_t cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
  return WithContext([&] {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = {nullptr, 0, extent.width, extent.height};
    return AllocatePitched(&out->ptr, &out->pitch, extent.width, extent.height * extent.depth);
  });
}

// Also the customary way to initialise a device: a null pointer is fine, the context exists afterwards.
RT_API cudaError_t cudaFree(void* address) {
  return WithContext([&] { return address == nullptr ? cudaSuccess : CU(cuMemFree)(Device(address)); });
}

RT_API cudaError_t cudaMallocHost(void** address, size_t size) {
  return WithContext([&] { return AllocateHost(address, size, 0); });
}

RT_API cudaError_t cudaHostAlloc(void** address, size_t size, unsigned int flags) {
  return WithContext([&] { return AllocateHost(address, size, flags); });
}

RT_API cudaError_t cudaFreeHost(void* address) {
  return WithContext([&] { return address == nullptr ? cudaSuccess : CU(cuMemFreeHost)(address); });
}

RT_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return WithContext(
      [&] { return attributes == nullptr ? cudaErrorInvalidValue : QueryPointer(attributes, address); });
}

RT_API cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  return WithContext([&] {
    if (address == nullptr) return cudaErrorInvalidValue;
    size_t size = 0;
    return ResolveSymbol(symbol, reinterpret_cast<CUdeviceptr*>(address), &size);
  });
}

RT_API cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
  return WithContext([&] {
    if (size == nullptr) return cudaErrorInvalidValue;
    CUdeviceptr address = 0;
    return ResolveSymbol(symbol, &address, size);
  });
}

// As for the program's own managed variables, loading into a context comes first.
RT_API cudaError_t cudaLibraryGetManaged(void** address, size_t* bytes, cudaLibrary_t library,
                                         const char* name) {
  return WithContext([&] {
    CUmodule module = nullptr;
    RT_TRY(CU(cuLibraryGetModule)(&module, library));
    return CU(cuLibraryGetManaged)(reinterpret_cast<CUdeviceptr*>(address), bytes, library, name);
  });
}

RT_API cudaError_t cudaMemcpyPeer(void* dst, int dst_device, const void* src, int src_device, size_t count) {
  return WithContext([&] {
    CUcontext to = nullptr;
    CUcontext from = nullptr;
    RT_TRY(PrimaryContext(dst_device, &to));
    RT_TRY(PrimaryContext(src_device, &from));
    return CU(cuMemcpyPeer)(Device(dst), to, Device(src), from, count);
  });
}

RT_API cudaError_t cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                       size_t count, cudaStream_t stream) {
  return WithContext([&] {
    CUcontext to = nullptr;
    CUcontext from = nullptr;
    RT_TRY(PrimaryContext(dst_device, &to));
    RT_TRY(PrimaryContext(src_device, &from));
    return CU(cuMemcpyPeerAsync)(Device(dst), to, Device(src), from, count, stream);
  });
}

RT_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return WithContext([&] {
    CUcontext context = nullptr;
    RT_TRY(PrimaryContext(peer, &context));
    return CU(cuCtxEnablePeerAccess)(context, flags);
  });
}

RT_API cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return WithContext([&] {
    CUcontext context = nullptr;
    RT_TRY(PrimaryContext(peer, &context));
    return CU(cuCtxDisablePeerAccess)(context);
  });
}
