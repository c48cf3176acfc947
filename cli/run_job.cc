#include "cli/run_job.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "cli/job_foreground.h"
#include "cli/program.h"
#include "cli/subprocess.h"
#include "cli/task_claim.h"

namespace stasis {
namespace {

constexpr auto kPortTime = std::chrono::seconds(20);
constexpr int kMaxPort = 65535;

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "localhost";
  return name;
}

// The program that leads to a node is found now, as whoever starts something there later may have another
// PATH.
Status FindThrough(JobNode* node) {
  if (node->through.empty()) return Status();
  Result<std::string> program = FindProgram(node->through[0], EnvironmentValue(OwnEnvironment(), "PATH"));
  if (!program.ok()) {
    return Status(StatusCode::kInvalidArgument,
                  "node " + node->name + ": " + std::string(program.status().message()));
  }
  node->through[0] = *program;
  return Status();
}

Result<std::vector<JobNode>> NodesOf(const Options& options) {
  if (options.nodes.empty()) {
    JobNode here;
    here.name = HostName();
    here.ranks = options.ranks;
    here.gpus = options.gpus;
    return std::vector<JobNode>{here};
  }
  Result<std::vector<JobNode>> nodes = ReadNodes(options.nodes);
  if (!nodes.ok()) {
    // 3 would say that there is no such task.
    return Status(StatusCode::kInvalidArgument, std::string(nodes.status().message()));
  }
  return nodes;
}

Status CheckNodeGpus(const JobNode& node, const TaskPlan& plan) {
  // What other places have is seen by the ranks there.
  if (!node.through.empty()) return Status();
  return CheckGpus(node.gpus, plan.device.driver).WithContext("node " + node.name);
}

Result<JobRecord> PlanJob(const Options& options, const TaskPlan& plan) {
  JobRecord record;
  record.argv = options.program;
  auto now = std::chrono::system_clock::now().time_since_epoch();
  record.created = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  ASSIGN_OR_RETURN(record.nodes, NodesOf(options));
  if (options.ranks > 0 && record.ranks() != options.ranks) {
    return Errorf(StatusCode::kInvalidArgument, "--ranks %d, but the nodes in %s have %d", options.ranks,
                  options.nodes.c_str(), record.ranks());
  }
  for (JobNode& node : record.nodes) {
    RETURN_IF_ERROR(FindThrough(&node));
    RETURN_IF_ERROR(CheckNodeGpus(node, plan));
  }
  return record;
}

// Free where the first rank is going to listen.
Result<int> PortIn(const JobNode& node, const OwnFiles& files) {
  if (node.through.empty()) return FindFreePort();
  SubprocessOptions command;
  command.argv = node.through;
  command.argv.insert(command.argv.end(), {files.stasis, "free-port"});
  command.environment = OwnEnvironment();
  ASSIGN_OR_RETURN(SubprocessResult result, RunSubprocess(command, Deadline::After(kPortTime)));
  int port = 0;
  if (result.exit_code == 0 && result.signal == 0 && std::sscanf(result.output.c_str(), "%d", &port) == 1 &&
      port > 0 && port <= kMaxPort) {
    return port;
  }
  return Errorf(StatusCode::kUnavailable, "node %s cannot be reached: `%s ...` answered '%s%s'",
                node.name.c_str(), node.through[0].c_str(), Printable(result.output).c_str(),
                Printable(result.error_output).c_str());
}

Result<JobClaim> ClaimName(const Options& options, const Folders& folders, int ranks) {
  if (!options.name.empty()) return JobClaim::Make(folders, options.name, ranks);
  return ClaimNumbered<JobClaim>(NameStem(options.program[0]), [&](const std::string& name) {
    return JobClaim::Make(folders, name, ranks);
  });
}

TaskStart StartOf(const JobRecord& record, int rank, const TaskPaths& paths) {
  const JobNode& node = record.NodeOf(rank);
  return {paths, node.gpus, node.through,
          RankStart{{record.name, rank, record.ranks()}, RankEnvironment(record, rank)}};
}

// All ranks, waiting before their first instruction.
Result<std::vector<PendingTask>> StartRanks(const JobRecord& record, const JobClaim& claim,
                                            const Options& options, const TaskPlan& plan,
                                            const Context& context) {
  std::vector<PendingTask> tasks;
  tasks.reserve(static_cast<size_t>(record.ranks()));
  for (int rank = 0; rank < record.ranks(); rank++) {
    TaskStart start = StartOf(record, rank, claim.rank(rank));
    Status written = WriteTaskFile(start, options, plan);
    if (!written.ok()) return written;
    Result<PendingTask> task = StartTask(start, options, plan, context);
    if (!task.ok()) return std::move(task).status().WithContext(fmt::format("rank {}", rank));
    tasks.push_back(*std::move(task));
  }
  return tasks;
}

// Lets all run, or none.
Status LetGo(std::vector<PendingTask>& tasks) {
  for (PendingTask& task : tasks) {
    Status gone = task.LetGo();
    if (gone.ok()) continue;
    for (PendingTask& other : tasks) other.End();
    return gone;
  }
  return Status();
}

Json RanksJson(const JobRecord& record, const JobClaim& claim, const std::vector<PendingTask>& tasks) {
  Json ranks = Json::array();
  for (int rank = 0; rank < record.ranks(); rank++) {
    ranks.push_back({{"rank", rank},
                     {"task", claim.rank(rank).name},
                     {"node", record.NodeOf(rank).name},
                     {"pid", tasks[static_cast<size_t>(rank)].init().pid},
                     {"log", claim.rank(rank).File("output.log")}});
  }
  return ranks;
}

std::string JobText(const JobRecord& record) {
  std::string text =
      fmt::format("job {}: {} rank{}", record.name, record.ranks(), record.ranks() == 1 ? "" : "s");
  if (record.nodes.size() > 1) text += fmt::format(" on {} nodes", record.nodes.size());
  return text;
}

std::vector<TaskPaths> TasksOf(const JobRecord& record, const JobClaim& claim) {
  std::vector<TaskPaths> tasks;
  for (int rank = 0; rank < record.ranks(); rank++) tasks.push_back(claim.rank(rank));
  return tasks;
}

int Start(const JobRecord& record, JobClaim claim, const Options& options, const TaskPlan& plan,
          Context& context) {
  Reporter& reporter = context.reporter;
  reporter.set_task(record.name);
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return reporter.Fail(signals.status());
  ForegroundJob job;
  job.name = record.name;
  job.tasks = TasksOf(record, claim);
  job.expect_managed = plan.unmanaged.empty();
  if (options.grace) job.grace = *options.grace;
  Result<JobFollower> follower = JobFollower::Create(job.tasks);
  if (!follower.ok()) return reporter.Fail(follower.status());
  TellPlan(plan, JobText(record), reporter);
  Result<std::vector<PendingTask>> tasks = StartRanks(record, claim, options, plan, context);
  Status started = tasks.status();
  // The record last: a job is there as a whole or not at all.
  if (started.ok()) started = WriteJobRecord(context.folders.state, record);
  if (started.ok()) started = LetGo(*tasks);
  if (!started.ok()) return FailExecute(started, reporter);
  Json ranks = RanksJson(record, claim, *tasks);
  claim.Keep();
  job.fields = {{"job", record.name},
                {"device", plan.device.kind},
                {"driver", plan.device.driver.path},
                {"master_port", record.master_port}};
  if (options.detach) {
    job.fields["ranks"] = ranks;
    job.fields["state"] = TaskConditionName(TaskCondition::kRunning);
    return reporter.Done(job.fields, record.name);
  }
  for (const PendingTask& task : *tasks) job.starts.push_back({task.init(), 0});
  return StayWithJob(job, *follower, *signals, context);
}

}  // namespace

Result<int> FindFreePort() {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket.get(), plain, size) != 0) return ErrnoStatus(errno, "find a free port");
  if (getsockname(socket.get(), plain, &size) != 0) return ErrnoStatus(errno, "getsockname");
  return static_cast<int>(ntohs(address.sin_port));
}

int FreePortMain() {
  Result<int> port = FindFreePort();
  if (!port.ok()) {
    std::fprintf(stderr, "%s\n", port.status().ToString().c_str());
    return kExitFailed;
  }
  std::printf("%d\n", *port);
  return kExitOk;
}

std::vector<std::string> RankEnvironment(const JobRecord& record, int rank) {
  const JobNode& node = record.NodeOf(rank);
  auto group = &node - record.nodes.data();
  return {fmt::format("RANK={}", rank),
          fmt::format("LOCAL_RANK={}", record.LocalRankOf(rank)),
          fmt::format("WORLD_SIZE={}", record.ranks()),
          fmt::format("LOCAL_WORLD_SIZE={}", node.ranks),
          fmt::format("GROUP_RANK={}", group),
          fmt::format("MASTER_ADDR={}", record.nodes[0].address),
          fmt::format("MASTER_PORT={}", record.master_port)};
}

int RunJob(const Options& options, Context& context, const TaskPlan& plan) {
  Result<JobRecord> record = PlanJob(options, plan);
  if (!record.ok()) return context.reporter.Fail(record.status());
  record->master_port = options.master_port;
  if (record->master_port == 0) {
    Result<int> port = PortIn(record->nodes[0], context.files);
    if (!port.ok()) return context.reporter.Fail(port.status());
    record->master_port = *port;
  }
  Result<JobClaim> claim = ClaimName(options, context.folders, record->ranks());
  if (!claim.ok()) {
    bool clash = claim.status().code() == StatusCode::kAlreadyExists;
    return context.reporter.Fail(claim.status(), clash ? ClashRemedy(context.folders, options.name) : "");
  }
  record->name = claim->name();
  return Start(*record, std::move(*claim), options, plan, context);
}

}  // namespace stasis
