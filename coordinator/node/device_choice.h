// Which driver a task gets, and what of its environment belongs to that driver.
#ifndef COORDINATOR_NODE_DEVICE_CHOICE_H_
#define COORDINATOR_NODE_DEVICE_CHOICE_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/node/driver_probe.h"
#include "coordinator/node/own_files.h"

namespace stasis {

struct DeviceChoice {
  std::string kind;  // "nvidia" or "soft"
  DriverInfo driver;
  std::string sentence;  // "the software device (1 x 4.0 GiB), as there is no NVIDIA driver"
  // Changes to the environment of the task, and of whoever opens the driver for it outside (the ghost).
  std::vector<std::string> task_environment;
  std::vector<std::string> driver_environment;
};

// `wanted`: auto, nvidia, soft. `environment` is the task's so far. kNotFound: no such driver with a device;
// the message says what each one answered.
Result<DeviceChoice> ChooseDevice(const std::string& wanted, const OwnFiles& files,
                                  const std::vector<std::string>& environment);

// What whoever opens the driver of a task outside of it (the ghost) gets, out of `environment`. `kind` as in
// DeviceChoice.
std::vector<std::string> DriverEnvironment(const std::string& kind, const OwnFiles& files,
                                           const std::vector<std::string>& environment);

// kInvalidArgument when the driver has no device of one of these ordinals.
Status CheckGpus(const std::vector<int>& gpus, const DriverInfo& driver);

// Whether a program with this environment counts devices by their PCI ids (CUDA_DEVICE_ORDER=PCI_BUS_ID).
bool CountsByPci(const std::vector<std::string>& environment);
// The driver's own numbers of devices that were counted by their PCI ids. As they are where the id of a
// device is not known, and for a number that no device has.
std::vector<int> NumbersOfDriver(std::vector<int> gpus, const DriverInfo& driver);

// "2 x NVIDIA H100 80GB HBM3 (79.6 GiB)".
std::string DevicesText(const DriverInfo& driver);

}  // namespace stasis

#endif  // COORDINATOR_NODE_DEVICE_CHOICE_H_
