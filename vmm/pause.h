// What the pause protocol asks of device memory. Every function runs in the control thread while the gate is
// closed and all device work is done; the order is
//   Settle, Extents + ExportExtent + ActiveRanges (as often as wanted), CheckReleasable, Release,
//   then, with a driver and contexts: ImportExtent for every extent, Reattach.
// A failed import or Reattach is undone by Release; nothing the program owns is lost by any of them.
#ifndef VMM_PAUSE_H_
#define VMM_PAUSE_H_

#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "base/task_protocol.h"

namespace stasis::vmm {

// Takes back what was freed in stream order. The program cannot tell.
void Settle();
// A number for DropFreeSince().
uint64_t MarkExtents();
// Gives back what has been mapped since and holds no allocation any more: what libraries have made in vain.
// Nobody but the process knows of it.
void DropFreeSince(uint64_t mark);
// kUnsupported, naming the call that made it, when the program holds memory that `strategy` cannot carry.
Status CheckReleasable(TaskStrategy strategy);
// All physical memory of the program's allocations, in an order that stays the same until the gate opens.
std::vector<TaskExtent> Extents();
// The bytes of the extents whose content the program can rely on, as kActive tells them. Allocators of the
// program may note frees meanwhile, so that two answers can differ.
Result<std::vector<TaskRange>> ActiveRanges();
// A descriptor that keeps the extent's memory alive; it may be exported again.
Result<Fd> ExportExtent(const TaskExtent& extent);
// Unmaps and releases everything and holds the addresses with inaccessible pages of the process. With
// kReconstruct, host memory is unregistered too.
Status Release(TaskStrategy strategy);
// Holds the addresses that a release could not get from the driver, once that is closed and has left them.
Status HoldReleased();
// Maps the memory behind `fd` where the extent was, or leaves it where a release has failed to take it away.
// Needs the context of its device.
Status ImportExtent(const TaskExtent& extent, Fd fd);
// Access rights, host registrations, pools: all else. kFailedPrecondition names an extent not imported.
Status Reattach(TaskStrategy strategy);
// Fills the fields of memory in `status`.
void FillStatus(TaskStatus* status);

}  // namespace stasis::vmm

#endif  // VMM_PAUSE_H_
