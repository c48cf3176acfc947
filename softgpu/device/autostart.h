// Starting softgpud from inside another program, without that program noticing: no SIGCHLD, no child to reap,
// no descriptor inherited, no preload passed on.
#ifndef SOFTGPU_DEVICE_AUTOSTART_H_
#define SOFTGPU_DEVICE_AUTOSTART_H_

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace softgpu {

// What the daemon writes to --ready-fd when it listens.
inline constexpr char kReadyByte = '\1';

// $SOFTGPU_DAEMON, else softgpud in bin/ beside, or in the same folder as, the library or program that holds
// this code. kNotFound names the places that were tried.
stasis::Result<std::string> FindDaemon();

// Starts `daemon` on `socket_path` and returns when it listens. kInvalidArgument: it refused to start, with
// its own line; kTimeout: it did not say that it listens.
stasis::Status SpawnDaemon(const std::string& daemon, const std::string& socket_path, uint32_t idle_exit_s,
                           const stasis::Deadline& deadline);

// Held by who starts a daemon, so that of many clients one does. Released by closing.
stasis::Result<stasis::Fd> LockStart(const std::string& socket_path, const stasis::Deadline& deadline);

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_AUTOSTART_H_
