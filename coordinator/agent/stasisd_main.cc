// stasisd: the agent of a node. Parses, starts it, waits for a signal, ends it.
#include <memory>
#include <string>
#include <vector>

#include "base/log/log.h"
#include "base/service_manager.h"
#include "base/unix_socket.h"
#include "coordinator/agent/agent.h"
#include "coordinator/agent/config.h"
#include "proto/rpc/daemon.h"

namespace stasis {
namespace {

Site FindSite() {
  OwnFiles files = FindOwnFiles();
  std::string folder = files.stasis.substr(0, files.stasis.rfind('/'));
  return {FindFolders(), FindOwnFilesOf(folder + "/stasis")};
}

Status Serve(const AgentConfig& config, const Site& site) {
  ASSIGN_OR_RETURN(const EndSignals signals, EndSignals::Take());
  ASSIGN_OR_RETURN(std::unique_ptr<Agent> agent, Agent::Start(config, site));
  Json listens = Json::array();
  for (const Endpoint& endpoint : agent->endpoints()) listens.push_back(endpoint.Target());
  Json facts = {{"listen", listens}, {"state", site.folders.state}};
  if (!agent->metrics_address().empty()) facts["metrics"] = agent->metrics_address();
  Log(LogLevel::kInfo, "agent", "ready", facts);
  TellServiceManager("READY=1");
  int signal = 0;
  while (signal == 0) signal = signals.Read();
  Log(LogLevel::kInfo, "agent", "ending", {{"signal", signal}});
  TellServiceManager("STOPPING=1");
  agent->Stop();
  agent.reset();
  Log(LogLevel::kInfo, "agent", "ended");
  return Status();
}

int Main(const std::vector<std::string>& arguments) {
  Site site = FindSite();
  AgentConfig config;
  ConfigOutcome outcome = ParseConfig(arguments, site.folders, &config);
  if (outcome.done) return PrintOutcome(outcome);
  const Status served = RunDaemon("agent", config.log_level, [&]() -> Status {
    RETURN_IF_ERROR(CheckRunFolder(site.folders.run));
    return Serve(config, site);
  });
  return served.ok() ? 0 : 1;
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) { return stasis::Main(std::vector<std::string>(argv + 1, argv + argc)); }
