#include "vmm/sync_memops.h"

#include "vmm/real_driver.h"

namespace stasis::vmm {

Status TellSyncMemops(CUdeviceptr address, bool on) {
  const unsigned value = on;
  return DriverStatus(Driver().cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address),
                      "cuPointerSetAttribute");
}

}  // namespace stasis::vmm
