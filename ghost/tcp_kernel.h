// What is asked of the kernel's TCP around a dump and a restore. Needs CAP_NET_ADMIN. Thread-safe.
//
// While the two ends of a connection are written down, or made again, one after the other, no packet may pass
// between them. CRIU drops them during a dump by a table of nftables, named after the run, and takes that
// table away at the end of a dump whose tree goes on, and of a restore. A dump that leaves its tree stopped
// leaves the table, too, and the sockets under repair, so that the end of the processes ends the connections
// without a word. For a restore it makes none: on another machine there is nothing that could answer.
#ifndef GHOST_TCP_KERNEL_H_
#define GHOST_TCP_KERNEL_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "ghost/tcp.h"

namespace stasis {

// Takes away what the kernel keeps of a connection that has ended. OK when nothing is there any more.
Status ForgetTcp(const TcpSocket& stale);

// Makes the table of the dump in the folder `images` for these connections of it.
Status LockTcp(const std::vector<TcpSocket>& tcp, const std::string& images);
// Takes the table away; OK when there is none.
Status LiftTcpLock(const std::string& images);
// Lets the sockets of a tree that goes on speak again; after LiftTcpLock.
Status EndTcpRepair(const std::vector<pid_t>& tree, const std::string& images);
// Both, for the tree below `root`; also where there is nothing of it, or it has been done. Failures are
// logged.
void LetTcpGoOn(pid_t root, const std::string& images);

}  // namespace stasis

#endif  // GHOST_TCP_KERNEL_H_
