// Which devices the program sees, and what they looked like when it first saw them.
//
// Under strategy reconstruct the driver below is initialised with every device of the machine, so that the
// program can be moved to any of them; what the program sees is made here, and stays what it was at start
// wherever it runs later. Under driver-checkpoint the driver moves the program whatever it shows it, so it is
// given the program's own selection: NVIDIA's runtime compares the devices that it sees through us with those
// that the driver has.
#ifndef INTERCEPT_VISIBLE_DEVICES_H_
#define INTERCEPT_VISIBLE_DEVICES_H_

#include <cuda.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/task_protocol.h"

namespace stasis {

// What is known of a device of the machine.
struct MachineDevice {
  std::string uuid;  // 16 raw bytes
  std::string pci;   // "0000:3b:00.0"
};
// What says what a program sees of them, all as in the environment; null where it says nothing.
struct Selection {
  const char* gpus = nullptr;     // STASIS_GPUS: ordinals, what the launcher gives the task
  const char* visible = nullptr;  // CUDA_VISIBLE_DEVICES
  const char* order = nullptr;    // CUDA_DEVICE_ORDER
};
Selection SelectionOfEnvironment();

// The physical ordinals the program sees, in the order of its own numbering. `visible` has the meaning and
// the syntax that the driver gives it, within `gpus`: numbers or beginnings of UUIDs ("GPU-8932f937"), ended
// by the first entry that names no device or one named before. Numbers count the devices in the order of
// `gpus`, else in that of `order`.
std::vector<int> SelectDevices(const std::vector<MachineDevice>& devices, const Selection& selection);

// What a driver is shown so that it has what the program sees and nothing else, in the same order.
struct ShownDevices {
  std::string variable;                // "CUDA_VISIBLE_DEVICES=GPU-...,GPU-..."
  std::vector<MachineDevice> machine;  // all of the machine
};
// By what the launcher has written down of the machine (STASIS_DEVICES, null: nothing), and where the task is
// now (`placements`, as in kPlacementsFile). None when that is not known well enough, or when another device
// is in the place of one of the program's by now: it goes on being told what it was told at start.
std::optional<ShownDevices> DevicesToShow(const char* machine, const Selection& selection,
                                          std::string_view placements);
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
  bool exclusive = false;  // for one process at a time
};

// Records the devices; once, after the driver's first successful cuInit. `all`: the program sees what the
// driver shows, unchanged. `shown`: what it was shown of the machine's, null for everything.
Status RecordVisibleDevices(bool all, const ShownDevices* shown);
bool VisibleDevicesRecorded();
// kUnsupported, naming the device, where only one process at a time may use one that the program uses
// (`seen`, in the same order), since the ghost does so beside it; and where `strategy` is the driver's own
// checkpoint, which takes neither parts of a device (MIG) nor one that processes share through a server
// (MPS).
Status CheckDevices(const std::vector<DeviceIdentity>& devices, const std::vector<TaskDevice>& seen,
                    TaskStrategy strategy);
Status CheckVisibleDevices(TaskStrategy strategy);

// From then on the program is answered from the record: the devices below are not those of the start.
void KeepDeviceIdentities();
// What to tell about a device, null when the driver is to be asked.
const DeviceIdentity* KeptIdentity(CUdevice virtual_device);
// The device with that PCI bus id in the record. CUDA_ERROR_INVALID_DEVICE: none; CUDA_ERROR_INVALID_VALUE:
// no such form of a bus id.
CUresult FindByPciBusId(const char* pci_bus_id, CUdevice* virtual_device);

// Takes a variable out of the environment for its lifetime, without moving any other or allocating.
// `instead`: "NAME=value", is there meanwhile where the environment had the variable, and is never freed:
// another thread may keep what it has read. The environment may be moved meanwhile, as setenv(3) does.
class HiddenVariable {
 public:
  explicit HiddenVariable(const char* name, const char* instead = nullptr);
  ~HiddenVariable();
  HiddenVariable(const HiddenVariable&) = delete;
  HiddenVariable& operator=(const HiddenVariable&) = delete;

 private:
  char* put_ = nullptr;
  char* value_ = nullptr;  // null: the variable was not there
};

}  // namespace stasis

#endif  // INTERCEPT_VISIBLE_DEVICES_H_
