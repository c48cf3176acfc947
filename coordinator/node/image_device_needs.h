// The part of an image's needs that is about devices: cli/image_needs.h.
#ifndef COORDINATOR_NODE_IMAGE_DEVICE_NEEDS_H_
#define COORDINATOR_NODE_IMAGE_DEVICE_NEEDS_H_

#include "coordinator/node/driver_probe.h"
#include "coordinator/node/site.h"
#include "ghost/manifest.h"
#include "ghost/task_config.h"

namespace stasis {

// The driver at the path that the task has, opened in a child as ever. kNotFound.
Result<DriverInfo> ProbeTaskDriver(const TaskConfig& task, const Site& site);

// Bytes of device memory that a process has, and of these what is in the image.
uint64_t DeviceBytesOf(const ManifestMember& member);
uint64_t ActiveBytesOf(const ManifestMember& member);

}  // namespace stasis

#endif  // COORDINATOR_NODE_IMAGE_DEVICE_NEEDS_H_
