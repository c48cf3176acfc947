#include "coordinator/node/job_start.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "coordinator/node/program.h"
#include "coordinator/node/subprocess.h"
#include "coordinator/node/text.h"

namespace stasis {
namespace {

constexpr auto kPortTime = std::chrono::seconds(20);
constexpr int kMaxPort = 65535;

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

Status CheckNodeGpus(const JobNode& node, const TaskPlan& plan) {
  // What other places have is seen by the ranks there.
  if (!node.through.empty()) return Status();
  return CheckGpus(node.gpus, plan.device.driver).WithContext("node " + node.name);
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

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "localhost";
  return name;
}

TaskStart StartOf(const JobRecord& record, int rank, const TaskPaths& paths) {
  const JobNode& node = record.NodeOf(rank);
  return {paths, node.gpus, node.through,
          RankStart{{record.name, rank, record.ranks()}, RankEnvironment(record, rank)}};
}

}  // namespace

JobNode ThisNode(int ranks, std::vector<int> gpus) {
  JobNode here;
  here.name = HostName();
  here.ranks = ranks;
  here.gpus = std::move(gpus);
  return here;
}

Result<JobRecord> PlanJob(std::vector<JobNode> nodes, int master_port, const TaskPlan& plan,
                          const Site& site) {
  JobRecord record;
  record.argv = plan.spec.argv;
  auto now = std::chrono::system_clock::now().time_since_epoch();
  record.created = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  record.nodes = std::move(nodes);
  for (JobNode& node : record.nodes) {
    RETURN_IF_ERROR(FindThrough(&node));
    RETURN_IF_ERROR(CheckNodeGpus(node, plan));
  }
  record.master_port = master_port;
  if (master_port == 0) {
    ASSIGN_OR_RETURN(record.master_port, PortIn(record.nodes[0], site.files));
  }
  return record;
}

Result<std::vector<PendingTask>> StartRanks(const JobRecord& record, const JobClaim& claim,
                                            const TaskPlan& plan, const Site& site) {
  std::vector<PendingTask> tasks;
  tasks.reserve(static_cast<size_t>(record.ranks()));
  for (int rank = 0; rank < record.ranks(); rank++) {
    TaskStart start = StartOf(record, rank, claim.rank(rank));
    Status written = WriteTaskFile(start, plan);
    if (!written.ok()) return written;
    Result<PendingTask> task = StartTask(start, plan, site);
    if (!task.ok()) return std::move(task).status().WithContext(fmt::format("rank {}", rank));
    tasks.push_back(*std::move(task));
  }
  return tasks;
}

Status LetGoAll(std::vector<PendingTask>& tasks) {
  for (PendingTask& task : tasks) {
    Status gone = task.LetGo();
    if (gone.ok()) continue;
    for (PendingTask& other : tasks) other.End();
    return gone;
  }
  return Status();
}

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

}  // namespace stasis
