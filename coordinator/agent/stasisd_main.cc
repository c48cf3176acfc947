// stasisd: the agent of a node. Puts its parts together, waits for a signal, takes them apart.
#include <grpc/support/log.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "coordinator/agent/config.h"
#include "coordinator/agent/database.h"
#include "coordinator/agent/log.h"
#include "coordinator/agent/picture.h"
#include "coordinator/agent/server.h"
#include "coordinator/agent/service.h"

namespace stasis {
namespace {

constexpr int kWorkers = 4;
constexpr size_t kMostWaiting = 256;

// Reads everything anew for each question.
class DiskRegistry final : public Registry {
 public:
  explicit DiskRegistry(Site site) : site_(std::move(site)) {}
  std::vector<JobPicture> List() const override {
    std::vector<JobPicture> jobs;
    for (const std::string& name : ListTasks(site_.folders)) {
      TaskPaths paths(site_.folders, name);
      Result<TaskFacts> facts = ReadTaskFacts(paths);
      if (!facts.ok() || PlaceOf(facts->task)) continue;
      jobs.push_back(std::make_shared<v1::Job>(PictureOfTask(paths, *facts, DeriveCondition(*facts))));
    }
    for (const std::string& name : ListJobs(site_.folders.state)) {
      Result<JobFacts> facts = ReadJobFacts(site_.folders, name);
      if (!facts.ok()) continue;
      jobs.push_back(
          std::make_shared<v1::Job>(PictureOfJob(site_.folders, *facts, DeriveJobView(facts->ranks))));
    }
    return jobs;
  }
  JobPicture Find(const std::string& name) const override {
    for (const JobPicture& job : List()) {
      if (job->name() == name) return job;
    }
    return nullptr;
  }
  uint64_t revision() const override { return 1; }
  std::unique_ptr<Subscription> Subscribe(std::function<void(const JobPicture&)>) override {
    return std::make_unique<Subscription>();
  }
  void Refresh(const std::string&) override {}
  void SetOperation(const std::string&, const std::string&) override {}
  void SetMovedTo(const std::string&, const std::string&) override {}

 private:
  const Site site_;
};

// What gRPC has to say goes where everything does.
void LogForGrpc(gpr_log_func_args* arguments) {
  LogLevel level = arguments->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug;
  Log(level, "grpc", arguments->message);
}

// The signals that end the agent, taken by a descriptor from here on; in all threads made later, too.
Result<Fd> TakeSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "signalfd");
  return fd;
}

int AwaitSignal(const Fd& signals) {
  signalfd_siginfo info{};
  while (read(signals.get(), &info, sizeof info) < 0 && errno == EINTR) {
  }
  return static_cast<int>(info.ssi_signo);
}

Site FindSite() {
  OwnFiles files = FindOwnFiles();
  std::string folder = files.stasis.substr(0, files.stasis.rfind('/'));
  return {FindFolders(), FindOwnFilesOf(folder + "/stasis")};
}

Status Serve(const AgentConfig& config, const Site& site, const Fd& signals) {
  ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(site.folders.state + "/agent.db"));
  ASSIGN_OR_RETURN(std::vector<DbRow> id, database->Query("SELECT value FROM meta WHERE key = 'agent_id'"));
  std::vector<Endpoint> clear;
  for (const Endpoint& endpoint : config.listen) {
    if (AgentServer::IsClear(endpoint, config.tls)) clear.push_back(endpoint);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Doors> doors, Doors::Open(clear));
  DiskRegistry registry(site);
  NodeFacts node(site, config.node_name, config.peer_address, id.empty() ? "" : id[0].Text(0));
  WorkerPool pool(kWorkers, kMostWaiting);
  Gate gate(*doors);
  AgentService service({site, &gate, &registry, &node, &pool});
  ASSIGN_OR_RETURN(std::unique_ptr<AgentServer> server,
                   AgentServer::Start(config.listen, config.tls, *doors, {&service}));
  Json listens = Json::array();
  for (const Endpoint& endpoint : server->endpoints()) listens.push_back(endpoint.Target());
  Log(LogLevel::kInfo, "agent", "ready", {{"listen", listens}, {"state", site.folders.state}});
  int signal = AwaitSignal(signals);
  Log(LogLevel::kInfo, "agent", "ending", {{"signal", signal}});
  node.SetDraining();
  server->Stop(config.patience);
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
  Result<Fd> signals = TakeSignals();
  Status served = signals.ok() ? Serve(config, site, *signals) : signals.status();
  if (served.ok()) return 0;
  Log(LogLevel::kError, "agent", "cannot go on",
      {{"code", StatusCodeName(served.code())}, {"why", std::string(served.message())}});
  return 1;
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) { return stasis::Main(std::vector<std::string>(argv + 1, argv + argc)); }
