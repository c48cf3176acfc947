// task.json, as `stasis run` writes it and images carry it: docs/ghost-protocol.md has its fields.
#ifndef GHOST_TASK_CONFIG_H_
#define GHOST_TASK_CONFIG_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/json.h"

namespace stasis {

// Of a task that is one of a job's ranks.
struct JobRank {
  std::string job;
  int rank = 0;
  int ranks = 1;
  bool operator==(const JobRank&) const = default;
};
inline constexpr uint64_t kMaxJobRanks = 4096;

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
  std::optional<JobRank> rank;  // none: a task of its own
};
// Untrusted input: kCorrupt names the field; kUnsupported: of a version that we do not know.
Result<TaskConfig> ParseTaskConfig(const Json& json);

}  // namespace stasis

#endif  // GHOST_TASK_CONFIG_H_
