// stasisd: the agent of a node. Parses, starts it, waits for a signal, ends it.
#include <grpc/support/log.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/log/log.h"
#include "base/service_manager.h"
#include "base/unix_socket.h"
#include "coordinator/agent/agent.h"
#include "coordinator/agent/config.h"

namespace stasis {
namespace {

// What gRPC has to say goes where everything does.
void LogForGrpc(gpr_log_func_args* arguments) {
  LogLevel level = arguments->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug;
  Log(level, "grpc", arguments->message);
}

// The signals that end the agent, and SIGHUP, which does not, taken by a descriptor from here on; in all
// threads made later, too. Ignored they would be by the programs of jobs as well.
Result<Fd> TakeSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "signalfd");
  return fd;
}

int AwaitSignal(const Fd& signals) {
  signalfd_siginfo info{};
  for (;;) {
    ssize_t got = read(signals.get(), &info, sizeof info);
    if (got == sizeof info && info.ssi_signo != SIGHUP) return static_cast<int>(info.ssi_signo);
  }
}

Site FindSite() {
  OwnFiles files = FindOwnFiles();
  std::string folder = files.stasis.substr(0, files.stasis.rfind('/'));
  return {FindFolders(), FindOwnFilesOf(folder + "/stasis")};
}

Status Serve(const AgentConfig& config, const Site& site) {
  ASSIGN_OR_RETURN(Fd signals, TakeSignals());
  ASSIGN_OR_RETURN(std::unique_ptr<Agent> agent, Agent::Start(config, site));
  Json listens = Json::array();
  for (const Endpoint& endpoint : agent->endpoints()) listens.push_back(endpoint.Target());
  Json facts = {{"listen", listens}, {"state", site.folders.state}};
  if (!agent->metrics_address().empty()) facts["metrics"] = agent->metrics_address();
  Log(LogLevel::kInfo, "agent", "ready", facts);
  TellServiceManager("READY=1");
  int signal = AwaitSignal(signals);
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
  if (outcome.done) {
    std::fprintf(outcome.exit_code == 0 ? stdout : stderr, "%s%s", outcome.text.c_str(),
                 outcome.exit_code == 0 ? "" : "\n");
    return outcome.exit_code;
  }
  SetLogLevel(config.log_level);
  gpr_set_log_function(LogForGrpc);
  Status served = CheckRunFolder(site.folders.run);
  if (served.ok()) served = Serve(config, site);
  if (served.ok()) return 0;
  Log(LogLevel::kError, "agent", "cannot go on",
      {{"code", StatusCodeName(served.code())}, {"why", std::string(served.message())}});
  return 1;
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) { return stasis::Main(std::vector<std::string>(argv + 1, argv + argc)); }
