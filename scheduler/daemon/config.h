// What stasis-schedd is told on its command line.
#ifndef SCHEDULER_DAEMON_CONFIG_H_
#define SCHEDULER_DAEMON_CONFIG_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log/log.h"
#include "proto/rpc/daemon.h"
#include "proto/rpc/endpoint.h"
#include "scheduler/types.h"

namespace CLI {
class App;
}

namespace stasis::scheduler {

struct SchedulerConfig {
  std::string state;             // folder
  std::vector<Endpoint> listen;  // never empty
  TlsFiles tls;
  std::optional<Endpoint> web;  // where the page is; none: nowhere
  std::string metrics;          // HOST:PORT; "": none
  std::string policy = "astraea";
  Time lease = 900 * kSecond;
  Duration node_timeout{};
  Time image_wait = 600 * kSecond;
  Time pause_timeout = 300 * kSecond;  // 0: none
  Time settle = 60 * kSecond;
  Time keep_ended = 7 * 24 * 3600 * kSecond;
  uint64_t compact_after = 20000;
  Time checkpoint_interval = 0;  // 0: none
  LogLevel log_level = LogLevel::kInfo;
};

ConfigOutcome ParseConfig(const std::vector<std::string>& arguments, SchedulerConfig* config);

// Shows `visit` the command line that ParseConfig understands.
void VisitCommandLine(const std::function<void(const CLI::App&)>& visit);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_CONFIG_H_
