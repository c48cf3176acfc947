// How much device memory is free, as the devices' own tools tell it: no context is made for the question.
#ifndef COORDINATOR_NODE_DEVICE_MEMORY_H_
#define COORDINATOR_NODE_DEVICE_MEMORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "coordinator/node/own_files.h"

namespace stasis {

// Bytes by uuid (32 hexadecimal digits).
using FreeMemory = std::map<std::string, uint64_t>;

// `kind` is a task's device: "soft" or "nvidia". Empty when the tool is missing or fails.
FreeMemory ReadFreeMemory(const std::string& kind, const OwnFiles& files);

// The output of `nvidia-smi --query-gpu=uuid,memory.free --format=csv,noheader,nounits`; lines that are
// anything else are passed over.
FreeMemory ParseNvidiaSmi(std::string_view text);
// The output of `softgpu-smi --json`.
FreeMemory ParseSoftgpuSmi(std::string_view text);

}  // namespace stasis

#endif  // COORDINATOR_NODE_DEVICE_MEMORY_H_
