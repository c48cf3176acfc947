// What softgpu-smi prints about a node.
#ifndef SOFTGPU_DEVICE_SMI_REPORT_H_
#define SOFTGPU_DEVICE_SMI_REPORT_H_

#include <string>

#include "softgpu/device/types.h"

namespace softgpu {

// A table for people; lines end in '\n'.
std::string TableReport(const Inventory& inventory);

// {"node", "daemon_pid", "devices": [{"index", "name", "uuid", "pci_bus_id", "memory_total", "memory_used",
//  "memory_free", "sm_count", "clock_mhz", "compute_capability", "health", "slow_factor", "oom_after" (null
//  unless armed), "peers": [index]}], "processes": [{"pid", "uid", "name", "state", "devices": [{"index",
//  "contexts", "memory"}]}]}; memory in bytes.
std::string JsonReport(const Inventory& inventory);

const char* HealthText(Health health);
const char* StateText(ProcessState state);

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_SMI_REPORT_H_
