// What an image needs to be restored on this machine, and whether it is there. Looks only; a context, a
// process or a file is neither made nor changed.
#ifndef COORDINATOR_NODE_IMAGE_NEEDS_H_
#define COORDINATOR_NODE_IMAGE_NEEDS_H_

#include <string>
#include <vector>

#include "coordinator/node/device_memory.h"
#include "coordinator/node/driver_probe.h"
#include "coordinator/node/site.h"
#include "ghost/manifest.h"
#include "ghost/task_config.h"

namespace stasis {

enum class Met {
  kYes,
  kNo,
  kUnknown,  // only the restore itself will tell
};
const char* MetName(Met met);

struct Need {
  std::string what;    // "criu", "program"
  std::string needed;  // "4.1 or newer", a path
  Met met = Met::kUnknown;
  std::string here;  // what there is instead, or a word on it; may be empty
};

// What this machine offers of devices, for the kind and driver that the image's task uses.
struct DevicesHere {
  Result<DriverInfo> driver;
  FreeMemory free;
};
DevicesHere LookForDevices(const TaskConfig& task, const Site& site);

// All of it, the machine first. `task_name` is the task that would be restored.
std::vector<Need> NeedsOf(const Manifest& manifest, const TaskConfig& task, const std::string& task_name,
                          const DevicesHere& devices, const Site& site);

// The parts, of what was looked at before.
Need CpuNeed(const std::vector<std::string>& needed, const std::vector<std::string>& here);
Need KernelNeed(const std::string& made_on, const std::string& here);
Need CriuNeed(const std::string& made_by, const std::string& path, const std::string& here);
std::vector<Need> DeviceNeeds(const Manifest& manifest, const DevicesHere& devices);
Need FileNeed(const ManifestFile& file);

bool AnyUnmet(const std::vector<Need>& needs);
// "can be restored here", or what stands in the way.
std::string Summary(const std::vector<Need>& needs);

}  // namespace stasis

#endif  // COORDINATOR_NODE_IMAGE_NEEDS_H_
