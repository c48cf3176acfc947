// Naming a process so that another one with the same pid is never taken for it.
#ifndef BASE_PROCESS_H_
#define BASE_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace stasis {

struct ProcessIdentity {
  pid_t pid = 0;
  uint64_t start_time = 0;  // field 22 of /proc/PID/stat: clock ticks since boot
  std::string boot_id;
};

struct ProcessStat {
  char state = 0;  // 'R', 'S', 'Z' ...
  uint64_t start_time = 0;
};
// The line in /proc/PID/stat; kCorrupt if it is none. The command in it may hold any character.
Result<ProcessStat> ParseProcessStat(std::string_view line);

Result<std::string> ThisBootId();
// kNotFound: no such process.
Result<ProcessIdentity> IdentifyProcess(pid_t pid);
// Whether exactly that process lives; a zombie has ended. An error: that cannot be seen, as where there is no
// descriptor left to look with.
Result<bool> CheckAlive(const ProcessIdentity& identity);
// False only when it is known to have ended.
bool IsAlive(const ProcessIdentity& identity);
// A descriptor that polls readable when the process has ended. kNotFound, and nothing else: it has ended
// already, or the pid belongs to another process now.
Result<Fd> OpenPidFd(const ProcessIdentity& identity);

}  // namespace stasis

#endif  // BASE_PROCESS_H_
