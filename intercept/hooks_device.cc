// What the program sees of devices: its own numbering, and the identities they had at start.
#include <algorithm>
#include <cstring>

#include "intercept/visible_devices.h"
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"

namespace stasis::hooks {
namespace {

// As the driver fills text of limited length: always terminated.
CUresult CopyText(const std::string& from, char* to, int size) {
  if (to == nullptr || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t length = std::min(from.size(), static_cast<size_t>(size) - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
  return CUDA_SUCCESS;
}

template <typename T>
CUresult CopyValue(const T& from, T* to) {
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *to = from;
  return CUDA_SUCCESS;
}

// A driver that shows the program no device counts as never initialised.
bool NothingVisible() { return VisibleDevices().empty(); }

const int* KeptAttribute(const DeviceIdentity& identity, CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      return &identity.pci_domain;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return &identity.pci_bus;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
      return &identity.pci_device;
    default:
      return nullptr;
  }
}

}  // namespace

CUresult cuDeviceGetCount(const Call& call, int* count) {
  if (!VisibleDevicesRecorded()) return call.Real<decltype(&::cuDeviceGetCount)>()(count);
  if (NothingVisible()) return CUDA_ERROR_NOT_INITIALIZED;
  return CopyValue(static_cast<int>(VisibleDevices().size()), count);
}

CUresult cuDeviceGet(const Call& call, CUdevice* device, int ordinal) {
  if (!VisibleDevicesRecorded()) return call.Real<decltype(&::cuDeviceGet)>()(device, ordinal);
  if (NothingVisible()) return CUDA_ERROR_NOT_INITIALIZED;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= VisibleDevices().size())
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(const Call& call, char* name, int len, CUdevice dev) {
  if (const DeviceIdentity* kept = KeptIdentity(dev)) return CopyText(kept->name, name, len);
  return call.Real<decltype(&::cuDeviceGetName)>()(name, len, PhysicalDevice(dev));
}

CUresult cuDeviceGetUuid(const Call& call, CUuuid* uuid, CUdevice dev) {
  if (const DeviceIdentity* kept = KeptIdentity(dev)) return CopyValue(kept->uuid, uuid);
  return call.Real<decltype(&::cuDeviceGetUuid)>()(uuid, PhysicalDevice(dev));
}

CUresult cuDeviceGetUuid_v2(const Call& call, CUuuid* uuid, CUdevice dev) {
  if (const DeviceIdentity* kept = KeptIdentity(dev)) return CopyValue(kept->uuid_v2, uuid);
  return call.Real<decltype(&::cuDeviceGetUuid_v2)>()(uuid, PhysicalDevice(dev));
}

CUresult cuDeviceGetLuid(const Call& call, char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  const DeviceIdentity* kept = KeptIdentity(dev);
  if (kept == nullptr || !kept->has_luid)
    return call.Real<decltype(&::cuDeviceGetLuid)>()(luid, deviceNodeMask, PhysicalDevice(dev));
  if (luid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(luid, kept->luid, sizeof kept->luid);
  return CopyValue(kept->luid_node_mask, deviceNodeMask);
}

CUresult cuDeviceGetPCIBusId(const Call& call, char* pciBusId, int len, CUdevice dev) {
  if (const DeviceIdentity* kept = KeptIdentity(dev)) return CopyText(kept->pci_bus_id, pciBusId, len);
  return call.Real<decltype(&::cuDeviceGetPCIBusId)>()(pciBusId, len, PhysicalDevice(dev));
}

CUresult cuDeviceGetByPCIBusId(const Call& call, CUdevice* dev, const char* pciBusId) {
  const auto real = call.Real<decltype(&::cuDeviceGetByPCIBusId)>();
  if (!VisibleDevicesRecorded() || dev == nullptr || pciBusId == nullptr) return real(dev, pciBusId);
  return NothingVisible() ? CUDA_ERROR_NOT_INITIALIZED : FindByPciBusId(pciBusId, dev);
}

CUresult cuDeviceTotalMem(const Call& call, unsigned int* bytes, CUdevice dev) {
  const DeviceIdentity* kept = KeptIdentity(dev);
  if (kept == nullptr) return call.Real<decltype(&::cuDeviceTotalMem)>()(bytes, PhysicalDevice(dev));
  return CopyValue(static_cast<unsigned int>(std::min<size_t>(kept->total_memory, 0xffffffffu)), bytes);
}

CUresult cuDeviceTotalMem_v2(const Call& call, size_t* bytes, CUdevice dev) {
  if (const DeviceIdentity* kept = KeptIdentity(dev)) return CopyValue(kept->total_memory, bytes);
  return call.Real<decltype(&::cuDeviceTotalMem_v2)>()(bytes, PhysicalDevice(dev));
}

CUresult cuDeviceGetAttribute(const Call& call, int* pi, CUdevice_attribute attrib, CUdevice dev) {
  const DeviceIdentity* identity = KeptIdentity(dev);
  const int* kept = identity == nullptr ? nullptr : KeptAttribute(*identity, attrib);
  if (kept != nullptr) return CopyValue(*kept, pi);
  return call.Real<decltype(&::cuDeviceGetAttribute)>()(pi, attrib, PhysicalDevice(dev));
}

}  // namespace stasis::hooks
