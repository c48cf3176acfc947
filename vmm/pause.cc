#include "vmm/pause.h"

namespace stasis::vmm {

Status CheckReleasable(TaskStrategy) { return {}; }
std::vector<TaskExtent> Extents() { return {}; }
Result<Fd> ExportExtent(const TaskExtent& extent) {
  return Errorf(StatusCode::kNotFound, "no device memory at 0x%llx",
                static_cast<unsigned long long>(extent.address));
}
Status Release(TaskStrategy) { return {}; }
Status ImportExtent(const TaskExtent& extent, Fd) {
  return Errorf(StatusCode::kNotFound, "no device memory at 0x%llx",
                static_cast<unsigned long long>(extent.address));
}
Status Reattach(TaskStrategy) { return {}; }
void FillStatus(TaskStatus*) {}

}  // namespace stasis::vmm
