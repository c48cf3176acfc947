// How copies and sets enter a stream: which of them return before the work is done.
//
// The rules are those of "API synchronization behavior" in the driver API manual.
#ifndef SOFTGPU_DRIVER_MEMORY_ACTIONS_H_
#define SOFTGPU_DRIVER_MEMORY_ACTIONS_H_

#include <cuda.h>

#include "softgpu/driver/memory_copy.h"

namespace softgpu {

class Entry;
class Stream;

// Carries a resolved copy out in `stream`; `async`: the program called the ...Async form.
CUresult DoCopy(Stream& stream, const CUDA_MEMCPY3D& params, CopyJob job, bool async);
CUresult DoSet(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& params, const SetJob& job, bool async);

// A run of bytes in the words of CUDA_MEMCPY3D.
CUDA_MEMCPY3D LinearParams(CUmemorytype dst_type, uint64_t dst, CUmemorytype src_type, uint64_t src,
                           uint64_t bytes);

// Waits for all work of the context that owns a block, or of every context when `context` is null or gone.
void DrainUsers(Entry& entry, CUcontext context);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MEMORY_ACTIONS_H_
