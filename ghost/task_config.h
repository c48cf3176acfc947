// task.json, as `stasis run` writes it and images carry it: docs/ghost-protocol.md has its fields.
#ifndef GHOST_TASK_CONFIG_H_
#define GHOST_TASK_CONFIG_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/json.h"

namespace stasis {

struct TaskConfig {
  std::string name;
  std::vector<std::string> argv;
  std::string cwd;
  uint64_t created = 0;
  uid_t uid = 0;
  std::string device;    // "soft", "nvidia"
  std::string driver;    // absolute path
  std::string strategy;  // "auto", "reconstruct", "driver-checkpoint"
  std::vector<int> gpus;
  bool pid_namespace = false;
  std::string log;
};
// Untrusted input: kCorrupt names the field; kUnsupported: of a version that we do not know.
Result<TaskConfig> ParseTaskConfig(const Json& json);

}  // namespace stasis

#endif  // GHOST_TASK_CONFIG_H_
