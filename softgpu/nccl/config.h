// ncclConfig_t: what a caller gave, checked, with defaults in the places that it left open.
#ifndef SOFTGPU_NCCL_CONFIG_H_
#define SOFTGPU_NCCL_CONFIG_H_

#include <nccl.h>

namespace softgpu::nccl {

// `given` may be null, or shorter than ours when the program was built with older headers.
// ncclInvalidArgument names the field that makes no sense.
ncclResult_t ParseConfig(const ncclConfig_t* given, ncclConfig_t* config);

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_CONFIG_H_
