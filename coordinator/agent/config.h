// What stasisd is told on its command line.
#ifndef COORDINATOR_AGENT_CONFIG_H_
#define COORDINATOR_AGENT_CONFIG_H_

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log/log.h"
#include "coordinator/node/layout.h"
#include "proto/rpc/daemon.h"
#include "proto/rpc/endpoint.h"

namespace CLI {
class App;
}

namespace stasis {

struct AgentConfig {
  std::vector<Endpoint> listen;  // never empty
  std::string peer_address;      // host:port under which other agents reach this one; "": they cannot
  std::string join;              // endpoint of the scheduler; "": none
  TlsFiles tls;
  std::string metrics;  // host:port; "": none
  std::string node_name;
  LogLevel log_level = LogLevel::kInfo;
  double mtbf_ms = 0;   // mean time between failures of this node; 0: not known
  Duration patience{};  // of a shutdown, for operations that run
};

// `folders` are for what is not given.
ConfigOutcome ParseConfig(const std::vector<std::string>& arguments, const Folders& folders,
                          AgentConfig* config);

// Shows `visit` the command line that ParseConfig understands.
void VisitCommandLine(const std::function<void(const CLI::App&)>& visit);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_CONFIG_H_
