// Which devices the program sees, and what they looked like when it first saw them.
//
// The driver below is initialised with every device of the machine, so that the program can be moved to any
// of them; what the program sees is made here, and stays what it was at start wherever it runs later.
#ifndef INTERCEPT_VISIBLE_DEVICES_H_
#define INTERCEPT_VISIBLE_DEVICES_H_

#include <cuda.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/task_protocol.h"

namespace stasis {

// The physical ordinals the program sees, in the order of its own numbering. `uuids` are the 16 raw bytes of
// every device of the driver. `gpus` (ordinals, comma-separated) is what the launcher gives the task, null
// for all; `visible` has the meaning and the syntax of CUDA_VISIBLE_DEVICES within that, null for all:
// numbers or beginnings of UUIDs ("GPU-8932f937"), ended by the first entry that names no device or one named
// before.
std::vector<int> SelectDevices(const std::vector<std::string>& uuids, const char* gpus, const char* visible);
// Whether the value of CUDA_VISIBLE_DEVICES names a part of a device. A process has no more than one of
// those, and only the driver can choose it: then the variable is left to the driver.
bool NamesDevicePart(const char* visible);

// What a program can ask about the identity of a device.
struct DeviceIdentity {
  CUuuid uuid{};
  CUuuid uuid_v2{};
  std::string name;
  std::string pci_bus_id;  // "0000:3b:00.0"
  int pci_domain = 0, pci_bus = 0, pci_device = 0;
  char luid[8] = {};
  unsigned int luid_node_mask = 0;
  bool has_luid = false;
  size_t total_memory = 0;
  bool shared_by_mps = false;
};

// Records the devices; once, after the driver's first successful cuInit. `all`: the program sees what the
// driver shows, unchanged.
Status RecordVisibleDevices(bool all);
bool VisibleDevicesRecorded();
// kUnsupported, naming the device, where `strategy` is the driver's own checkpoint, which takes neither parts
// of a device (MIG) nor one that processes share through a server (MPS).
Status CheckDevices(const std::vector<DeviceIdentity>& devices, TaskStrategy strategy);
Status CheckVisibleDevices(TaskStrategy strategy);

// From then on the program is answered from the record: the devices below are not those of the start.
void KeepDeviceIdentities();
// What to tell about a device, null when the driver is to be asked.
const DeviceIdentity* KeptIdentity(CUdevice virtual_device);
// The device with that PCI bus id in the record. CUDA_ERROR_INVALID_DEVICE: none; CUDA_ERROR_INVALID_VALUE:
// no such form of a bus id.
CUresult FindByPciBusId(const char* pci_bus_id, CUdevice* virtual_device);

// Takes a variable out of the environment for its lifetime, without moving any other or allocating.
class HiddenVariable {
 public:
  explicit HiddenVariable(const char* name);
  ~HiddenVariable();
  HiddenVariable(const HiddenVariable&) = delete;
  HiddenVariable& operator=(const HiddenVariable&) = delete;

 private:
  char** slot_ = nullptr;
  char* value_ = nullptr;
};

}  // namespace stasis

#endif  // INTERCEPT_VISIBLE_DEVICES_H_
