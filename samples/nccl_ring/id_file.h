// The communicator's unique id in a file, for ranks that are processes of their own.
#pragma once

#include <nccl.h>

#include <string>

namespace nccl_ring {

// The file must not be there yet; it appears with all its contents at once.
void WriteId(const std::string& path, const ncclUniqueId& id);
// Waits until the file is there.
ncclUniqueId ReadId(const std::string& path);

}  // namespace nccl_ring
