// Which CUDA driver there is, and what devices it finds. Drivers are only ever opened in a child process: one
// that hangs, crashes or starts threads does so there.
#ifndef COORDINATOR_NODE_DRIVER_PROBE_H_
#define COORDINATOR_NODE_DRIVER_PROBE_H_

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/node/layout.h"

namespace stasis {

struct DriverDevice {
  std::string name;
  uint64_t memory = 0;   // bytes
  std::string uuid;      // 32 hexadecimal digits; empty: not told
  int capability = 0;    // major * 10 + minor; 0: not told
  bool part = false;     // of a device (MIG), whose UUID this is
  std::string pci = {};  // "0000:3b:00.0"; empty: not told
};

struct DriverInfo {
  std::string path;  // absolute, of libcuda.so.1
  int version = 0;   // as cuDriverGetVersion: 13000
  std::vector<DriverDevice> devices;
};

// "12.8".
std::string DriverVersionText(int version);

// The hidden verb `stasis probe-driver PATH...`, the child's side: opens the first of the libraries that is a
// driver with a device and prints one JSON object. Returns the exit code.
int ProbeDriverMain(const std::vector<std::string>& paths);

// Runs that verb of `stasis` for `paths` in a child with `environment` (KEY=VALUE, on top of this process's
// own without LD_*). kNotFound: no driver, or none with a device; the message says what each answered.
Result<DriverInfo> ProbeDrivers(const std::string& stasis, const std::vector<std::string>& paths,
                                const std::vector<std::string>& environment, const Deadline& deadline);

// Where NVIDIA's driver library is on the systems we know, the loader's own search last.
std::vector<std::string> NvidiaDriverPaths();

}  // namespace stasis

#endif  // COORDINATOR_NODE_DRIVER_PROBE_H_
