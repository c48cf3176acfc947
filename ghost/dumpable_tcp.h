// Which TCP connections of a task keep it from being dumped.
#ifndef GHOST_DUMPABLE_TCP_H_
#define GHOST_DUMPABLE_TCP_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace stasis {

enum class TcpCheck {
  // What only takes a moment is not looked at, nor are the connections of processes that use NCCL, which may
  // be the library's: it gives them up. The one that such a process has to its job's MASTER_PORT is its own.
  kWhileRunning,
  kStandingStill,
};
// kUnsupported names process, descriptor and the other end; *remedy says what to do.
Status CheckTcp(const std::vector<pid_t>& tree, TcpCheck when, std::string* remedy);

// Whether a process of the tree has a TCP connection.
Result<bool> HasTcpConnections(const std::vector<pid_t>& tree);

// A process that has the socket open; 0: none is to be seen.
pid_t HolderOfSocket(uint64_t inode);

}  // namespace stasis

#endif  // GHOST_DUMPABLE_TCP_H_
