#include "softgpu/driver/actions.h"

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"

namespace softgpu {

CUresult HostAction::Run(Context&) const {
  CallbackScope scope;
  params.fn(params.userData);
  return CUDA_SUCCESS;
}

}  // namespace softgpu
