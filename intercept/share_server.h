// Gives memory of this process to other processes of the task that hold a ticket for it, and takes theirs.
//
// A ticket is what the program sends to another process in place of a descriptor of the driver: one end of a
// socket pair in whose queue lies who has the memory and under which key. So the driver's descriptors never
// lie in the program, where they would keep it from being dumped, and we know as long as somebody holds a
// ticket. The memory itself is asked for over a socket in the task's folder.
//
// The thread answers while the driver is there, also while the gate is shut: who asks is inside his own gate,
// and could not stand still otherwise. Thread-safe.
#ifndef INTERCEPT_SHARE_SERVER_H_
#define INTERCEPT_SHARE_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "base/fd.h"
#include "base/status.h"
#include "vmm/environment.h"
#include "vmm/shared_memory.h"

namespace stasis {

struct ShareTicket {
  pid_t pid = 0;  // as processes of the task see it
  uint64_t key = 0;
};

// From now on others can ask this process. Of a process of a task.
Status StartSharing();
// A ticket for VirtualMemory's `share`; its TicketGone() is called when nobody holds it any more.
Result<Fd> NewTicket(uint64_t share);
// What is written on a ticket; nothing when the descriptor is none.
std::optional<ShareTicket> ReadTicket(int fd);
// The memory, of whichever process of the task has it. kNotFound: none of the task has it now.
Result<vmm::SharedMemory> FetchMemory(const ShareTicket& ticket);

// The driver's handle of an event that the process of the ticket shares, or any other of the task.
std::optional<CUipcEventHandle> FetchEvent(const ShareTicket& ticket);
std::optional<CUipcEventHandle> FindSharedEvent(uint64_t key);

// kNothing ends the thread and closes its sockets; another begins where something was shared before.
void SetSharing(vmm::Sharing sharing);
// For a child after fork(2): the tickets are its parent's.
void ResetSharingAfterFork();

}  // namespace stasis

#endif  // INTERCEPT_SHARE_SERVER_H_
