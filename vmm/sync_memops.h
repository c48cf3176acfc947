// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: work on memory that has it is over when the call that asks for it
// returns. The driver keeps it with a mapping or a registration, and forgets it with that; here it belongs to
// what the program has allocated or mapped, and the driver is told again.
#ifndef VMM_SYNC_MEMOPS_H_
#define VMM_SYNC_MEMOPS_H_

#include <cuda.h>

#include "base/status.h"

namespace stasis::vmm {

// Tells the driver, for what is mapped or registered at `address`. Waits for no work. Any thread.
Status TellSyncMemops(CUdeviceptr address, bool on);

}  // namespace stasis::vmm

#endif  // VMM_SYNC_MEMOPS_H_
