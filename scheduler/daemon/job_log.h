// What the log says of something that was done with a job at a node.
#ifndef SCHEDULER_DAEMON_JOB_LOG_H_
#define SCHEDULER_DAEMON_JOB_LOG_H_

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace stasis::scheduler {

inline nlohmann::json Facts(const std::string& node, const std::string& job, const Status& status) {
  return {{"node", node}, {"job", job}, {"outcome", status.ToString()}};
}

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_JOB_LOG_H_
