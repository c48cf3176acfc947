// cuInit and the queries of devices.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "softgpu/driver/array.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/state.h"

using softgpu::Device;
using softgpu::Entry;
using softgpu::Need;
using softgpu::Phase;
using softgpu::State;

namespace {

// Copies with truncation; the result always ends.
void CopyText(char* to, int size, const std::string& text) {
  size_t length = std::min(text.size(), static_cast<size_t>(size - 1));
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

std::string PciBusId(const softgpu::DeviceInfo& info) {
  char text[20];
  std::snprintf(text, sizeof text, "%04X:%02X:%02X.0", info.pci_domain & 0xffff, info.pci_bus & 0xff,
                info.pci_device & 0xff);
  return text;
}

// Calls `answer` with the device; the checks that all queries share.
template <typename Answer>
CUresult WithDevice(CUdevice ordinal, const void* out, Answer answer) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = entry.state().FindDevice(ordinal);
  return device != nullptr ? answer(*device) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CopyUuid(CUuuid* uuid, const Device& device) {
  std::memcpy(uuid->bytes, device.info().uuid.data(), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

bool PeerAccess(const Device& from, const Device& to) {
  const std::vector<uint8_t>& access = from.info().peer_access;
  return &from != &to && to.daemon_ordinal() < access.size() && access[to.daemon_ordinal()] != 0;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuInit(unsigned int Flags) {
  if (softgpu::CurrentPhase() == Phase::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  if (softgpu::CurrentPhase() == Phase::kClosed) return CUDA_ERROR_DEINITIALIZED;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  // The thread state comes with the fork handler, which must be there before anything that a child must not
  // use.
  if (softgpu::CurrentThread() == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  return State::Initialize();
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(entry.state().devices().size());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  return WithDevice(ordinal, device, [&](Device& found) {
    *device = found.ordinal();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetName(char* name, int len, CUdevice dev) {
  return WithDevice(dev, name, [&](Device& device) {
    if (len <= 0) return CUDA_ERROR_INVALID_VALUE;
    CopyText(name, len, device.info().name);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  return WithDevice(dev, uuid, [&](Device& device) { return CopyUuid(uuid, device); });
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  return WithDevice(dev, uuid, [&](Device& device) { return CopyUuid(uuid, device); });
}

// Locally unique identifiers exist on Windows only.
CUresult CUDAAPI cuDeviceGetLuid(char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  static_cast<void>(deviceNodeMask);
  return WithDevice(dev, luid, [](Device&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return WithDevice(dev, bytes, [&](Device& device) {
    *bytes = device.info().memory_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  return WithDevice(dev, bytes, [&](Device& device) {
    *bytes = static_cast<unsigned>(std::min<uint64_t>(device.info().memory_bytes, UINT32_MAX));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return WithDevice(dev, pi, [&](Device& device) {
    return device.Attribute(attrib, pi) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  return WithDevice(dev, major, [&](Device& device) {
    if (minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *major = static_cast<int>(device.info().compute_major);
    *minor = static_cast<int>(device.info().compute_minor);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  return WithDevice(dev, prop, [&](Device& device) {
    auto get = [&device](CUdevice_attribute attribute) {
      int value = 0;
      device.Attribute(attribute, &value);
      return value;
    };
    prop->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    for (int i = 0; i < 3; i++) {
      prop->maxThreadsDim[i] = get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
      prop->maxGridSize[i] = get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
    }
    prop->sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    prop->totalConstantMemory = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    prop->SIMDWidth = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    prop->memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    prop->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    prop->clockRate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    prop->textureAlign = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  return WithDevice(dev, pciBusId, [&](Device& device) {
    if (len <= 0) return CUDA_ERROR_INVALID_VALUE;
    CopyText(pciBusId, len, PciBusId(device.info()));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // "domain:bus:device.function", "domain:bus:device" or "bus:device.function" (cuda.h).
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  int end = 0;
  auto whole = [&end, pciBusId] { return end != 0 && pciBusId[end] == 0; };
  if (!(std::sscanf(pciBusId, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end) == 4 && whole()) &&
      !(std::sscanf(pciBusId, "%x:%x:%x%n", &domain, &bus, &slot, &end) == 3 && whole())) {
    domain = 0;
    if (std::sscanf(pciBusId, "%x:%x.%x%n", &bus, &slot, &function, &end) != 3 || !whole()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (const auto& device : entry.state().devices()) {
    const softgpu::DeviceInfo& info = device->info();
    if (info.pci_domain != domain || info.pci_bus != bus || info.pci_device != slot || function != 0)
      continue;
    *dev = device->ordinal();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format format,
                                                    unsigned numChannels, CUdevice dev) {
  return WithDevice(dev, maxWidthInElements, [&](Device& device) {
    softgpu::FormatInfo texel;
    if (!softgpu::DescribeFormat(format, &texel)) return CUDA_ERROR_INVALID_VALUE;
    if (numChannels != 1 && numChannels != 2 && numChannels != 4) return CUDA_ERROR_INVALID_VALUE;
    int width = 0;
    device.Attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, &width);
    *maxWidthInElements = static_cast<size_t>(width);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  return WithDevice(dev, pi, [&](Device&) {
    if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
    *pi = 0;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  return WithDevice(dev, canAccessPeer, [&](Device& device) {
    Device* peer = State::Get()->FindDevice(peerDev);
    if (peer == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *canAccessPeer = PeerAccess(device, *peer);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                         CUdevice dstDevice) {
  return WithDevice(srcDevice, value, [&](Device& device) {
    Device* peer = State::Get()->FindDevice(dstDevice);
    if (peer == nullptr || peer == &device) return CUDA_ERROR_INVALID_DEVICE;
    switch (static_cast<int>(attrib)) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = PeerAccess(device, *peer);
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

}  // extern "C"
