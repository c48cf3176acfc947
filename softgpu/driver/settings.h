// What the environment says about the driver.
#ifndef SOFTGPU_DRIVER_SETTINGS_H_
#define SOFTGPU_DRIVER_SETTINGS_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "softgpu/device/types.h"

namespace softgpu {

struct Settings {
  std::string socket;            // SOFTGPU_SOCKET, empty = default
  bool autostart = true;         // SOFTGPU_AUTOSTART
  unsigned sms = 0;              // SOFTGPU_SMS, 0 = not given
  unsigned idle_exit_s = 10;     // SOFTGPU_IDLE_EXIT, of a daemon that the driver starts
  bool log = true;               // SOFTGPU_LOG
  bool launch_blocking = false;  // CUDA_LAUNCH_BLOCKING
  bool eager_loading = false;    // CUDA_MODULE_LOADING=EAGER
  bool has_visible = false;
  std::string visible;  // CUDA_VISIBLE_DEVICES
};

// kInvalidArgument names the variable that makes no sense.
stasis::Result<Settings> ReadSettings();

// The devices that CUDA_VISIBLE_DEVICES leaves, in its order: indices or "GPU-" with the beginning of a uuid.
// The list ends at the first entry that names no device, more than one, or one named before (CUDA C++
// Programming Guide, "CUDA Environment Variables").
std::vector<DeviceInfo> SelectVisible(const std::vector<DeviceInfo>& devices, const Settings& settings);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_SETTINGS_H_
