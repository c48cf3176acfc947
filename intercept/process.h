// The interposer's life in a process: what happens at its first CUDA call, and in the children it forks.
#ifndef INTERCEPT_PROCESS_H_
#define INTERCEPT_PROCESS_H_

#include <cuda.h>

#include <string>

#include "base/task_protocol.h"
#include "intercept/visible_devices.h"

namespace stasis {

// Opens the real driver and, in a process of a task, starts the control thread. Does its work once; other
// threads that call it meanwhile wait. Without a driver every call of the program answers as if it had none.
// A child after fork(2) starts anew, unless its parent had initialised the driver.
void StartProcess();
// The task's run folder, empty in a process that no launcher of ours has started. After StartProcess().
const std::string& TaskFolder();
// The task was restored, and its run folder is elsewhere now.
void MoveTaskFolder(const std::string& folder);
// What STASIS_STRATEGY says; left to us, driver-checkpoint where NVIDIA's driver offers it, else reconstruct.
TaskStrategy ChosenStrategy();

// While one lives, the environment has neither CUDA_VISIBLE_DEVICES nor CUDA_DEVICE_ORDER for the driver to
// read.
class AllDevicesVisible {
 public:
  AllDevicesVisible();
  ~AllDevicesVisible();
  AllDevicesVisible(const AllDevicesVisible&) = delete;
  AllDevicesVisible& operator=(const AllDevicesVisible&) = delete;
};

// The real cuInit. In a process of a task the driver is shown every device, whatever CUDA_VISIBLE_DEVICES
// says, unless that names a part of one; under driver-checkpoint what the program sees, where that is known.
CUresult InitialiseDriver(CUresult (*init)(unsigned int), unsigned int flags);
// What InitialiseDriver() has shown the driver of the machine's devices; null: everything, or it has not yet.
const ShownDevices* DevicesShown();

}  // namespace stasis

#endif  // INTERCEPT_PROCESS_H_
