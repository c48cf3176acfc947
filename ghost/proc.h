// What /proc says about a process, its threads, files and memory. Values as they were at the moment of
// reading; a process that ends in between is kNotFound, and nothing else is. Thread-safe.
#ifndef GHOST_PROC_H_
#define GHOST_PROC_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace stasis {

struct ProcStat {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';    // R S D T t Z X, as ps(1) shows it
  bool dying = false;  // it has begun to end, and nothing can keep it from that
  uint64_t start_time = 0;
  std::string name;
};
Result<ProcStat> ReadProcStat(pid_t pid);
// The same of one thread.
Result<ProcStat> ReadThreadStat(pid_t pid, pid_t tid);

// What is wanted of /proc/PID/status.
struct ProcIds {
  std::vector<pid_t> nspids;  // outermost namespace first
  uid_t uid = 0;
  pid_t tracer = 0;
  uint64_t pending_signals = 0;  // bit n-1: signal n waits for the process or its main thread
};
Result<ProcIds> ReadProcIds(pid_t pid);

// `root` and all its descendants, parents before children. kNotFound when root is gone or a zombie, and only
// then; any other error: some could not be looked at.
Result<std::vector<pid_t>> ProcessTree(pid_t root);
Result<std::vector<pid_t>> AllProcesses();
std::vector<pid_t> ThreadsOf(pid_t pid);
// The member of `tree` that has this pid in its innermost namespace; 0 when there is none.
pid_t HostPid(const std::vector<pid_t>& tree, pid_t nspid);
// The thread of `pid` whose innermost tid is `nstid`; 0 when there is none.
pid_t HostTid(pid_t pid, pid_t nstid);
// A name for people: "4711 (train)".
std::string Named(pid_t pid);
// It has become a zombie, or is not there at all.
bool HasEnded(pid_t pid);
// OK when the process can answer; else kFailedPrecondition with why not: stopped by a signal, held by a
// debugger, ended.
Status CheckResponsive(pid_t pid);
// The same of a process that is frozen: whether it could answer when it is let go of.
Status CheckResponsiveOnceThawed(pid_t pid);

struct ProcFd {
  int fd = -1;
  std::string target;  // what the link says: "/a/file", "socket:[1234]"
};
// None of a process that has ended; any other error: it could not be looked at.
Result<std::vector<ProcFd>> FdsOf(pid_t pid);
// The open flags of a descriptor (fdinfo), 0 when it is gone.
uint64_t FdFlags(pid_t pid, int fd);

struct ProcMap {
  uint64_t start = 0;
  uint64_t end = 0;
  char protection[5] = "----";  // "rwxp"
  uint64_t inode = 0;
  std::string device;  // "fd:01"
  std::string path;    // may end in " (deleted)"
};
// None of a process that has ended; any other error: it could not be looked at.
Result<std::vector<ProcMap>> MapsOf(pid_t pid);

Result<Fd> OpenPidFd(pid_t pid);
std::string BootId();

}  // namespace stasis

#endif  // GHOST_PROC_H_
