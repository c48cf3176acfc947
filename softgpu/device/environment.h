// What the daemon's logic needs from the world: files, watches, time. The daemon gives it the kernel, tests a
// model.
#ifndef SOFTGPU_DEVICE_ENVIRONMENT_H_
#define SOFTGPU_DEVICE_ENVIRONMENT_H_

#include <sys/types.h>

#include <cstdint>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace softgpu {

class Environment {
 public:
  virtual ~Environment() = default;
  virtual const stasis::Clock& clock() const = 0;

  // The file behind an allocation, of exactly `size` bytes.
  virtual stasis::Result<stasis::Fd> CreateMemory(uint32_t device, uint64_t id, uint64_t size) = 0;

  // Reports when the last write end of the pipe behind `read_end` is closed (Service::TokenClosed). The
  // descriptor stays the caller's, who calls UnwatchToken before closing it.
  virtual stasis::Status WatchToken(uint64_t token, int read_end) = 0;
  virtual void UnwatchToken(int read_end) = 0;

  // Reports the end of process `pid` (Service::ProcessExited); returns its user. Counted: each success needs
  // one UnwatchProcess. kNotFound: there is no such process.
  virtual stasis::Result<uid_t> WatchProcess(pid_t pid) = 0;
  virtual void UnwatchProcess(pid_t pid) = 0;
};

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_ENVIRONMENT_H_
