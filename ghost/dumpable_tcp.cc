#include "ghost/dumpable_tcp.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

#include "base/files.h"
#include "base/task_protocol.h"
#include "ghost/proc.h"
#include "ghost/tcp.h"

namespace stasis {
namespace {

constexpr size_t kMaxEnvironment = 8 << 20;

std::string EnvironmentOf(pid_t pid, const std::string& name) {
  Result<std::string> all = ReadFile("/proc/" + std::to_string(pid) + "/environ", kMaxEnvironment);
  if (!all.ok()) return "";
  for (size_t at = 0; at < all->size();) {
    std::string entry(all->c_str() + at);
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
    at += entry.size() + 1;
  }
  return "";
}

uint64_t SocketInode(const std::string& target) {
  constexpr char kPrefix[] = "socket:[";
  if (!target.starts_with(kPrefix)) return 0;
  return std::strtoull(target.c_str() + std::strlen(kPrefix), nullptr, 10);
}

bool UsesNccl(pid_t pid) {
  Result<std::vector<ProcMap>> maps = MapsOf(pid);
  return maps.ok() && std::any_of(maps->begin(), maps->end(), [](const ProcMap& map) {
           return map.path.find("/libnccl.so") != std::string::npos;
         });
}

bool IsMasterPort(pid_t pid, const TcpSocket& socket) {
  std::string text = EnvironmentOf(pid, "MASTER_PORT");
  uint16_t port = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || port == 0) return false;
  return socket.local.port == port || socket.remote.port == port;
}

// The task that a process belongs to, and with it the process: "process 12 (train) of task job.1".
std::string OwnerText(pid_t pid) {
  std::string folder = EnvironmentOf(pid, kTaskFolderVariable);
  std::string text = "process " + Named(pid);
  return folder.empty() ? text : text + " of task " + folder.substr(folder.rfind('/') + 1);
}

struct Holder {
  pid_t pid = 0;
  int fd = -1;
};

Status Refuse(const Holder& holder, const std::string& what) {
  return Status(StatusCode::kUnsupported,
                "process " + Named(holder.pid) + ", descriptor " + std::to_string(holder.fd) + ": " + what);
}

Status RefuseOutside(const Holder& holder, const TcpSocket& socket, const TcpFinding& finding,
                     std::string* remedy) {
  pid_t other = finding.peer != nullptr ? HolderOfSocket(finding.peer->inode) : 0;
  bool of_a_task = other != 0 && !EnvironmentOf(other, kTaskFolderVariable).empty();
  bool of_a_job = of_a_task || !EnvironmentOf(holder.pid, "MASTER_PORT").empty();
  *remedy = of_a_job ? "close the connection when the ranks have started, or run all of them as one task: "
                       "the launcher under `stasis run`"
                     : "close the connection before the checkpoint, or run its other end inside the task";
  std::string where = other != 0 ? " (" + OwnerText(other) + ")" : "";
  return Refuse(holder, "a TCP connection to " + socket.remote.Text() + where +
                            " is open, which leads outside of the task");
}

Status RefusePassing(const Holder& holder, const TcpSocket& socket, TcpVerdict verdict, std::string* remedy) {
  *remedy = "try again in a moment";
  if (socket.state == TcpState::kListening) {
    *remedy = "let the program accept them first";
    return Refuse(holder, std::to_string(socket.unaccepted) + " connections to " + socket.local.Text() +
                              " have not been accepted yet");
  }
  const char* what =
      verdict == TcpVerdict::kNotAccepted ? " has not been accepted yet" : " is just being opened or closed";
  return Refuse(holder, "a TCP connection to " + socket.remote.Text() + what);
}

// The sockets of a tree, by inode, with a process that has each.
Result<std::map<uint64_t, Holder>> SocketsOf(const std::vector<pid_t>& tree) {
  std::map<uint64_t, Holder> holders;
  for (pid_t pid : tree) {
    ASSIGN_OR_RETURN(const std::vector<ProcFd> fds, FdsOf(pid));
    for (const ProcFd& fd : fds) {
      uint64_t inode = SocketInode(fd.target);
      if (inode != 0) holders.emplace(inode, Holder{pid, fd.fd});
    }
  }
  return holders;
}

}  // namespace

pid_t HolderOfSocket(uint64_t inode) {
  if (inode == 0) return 0;
  const Result<std::vector<pid_t>> all = AllProcesses();
  if (!all.ok()) return 0;
  for (pid_t pid : *all) {
    const Result<std::vector<ProcFd>> fds = FdsOf(pid);
    if (!fds.ok()) continue;
    for (const ProcFd& fd : *fds) {
      if (SocketInode(fd.target) == inode) return pid;
    }
  }
  return 0;
}

Result<bool> HasTcpConnections(const std::vector<pid_t>& tree) {
  ASSIGN_OR_RETURN(const auto holders, SocketsOf(tree));
  if (holders.empty()) return false;
  ASSIGN_OR_RETURN(std::vector<TcpSocket> all, TcpSocketsOf(tree[0]));
  return std::any_of(all.begin(), all.end(), [&](const TcpSocket& socket) {
    return socket.connected() && holders.count(socket.inode) != 0;
  });
}

Status CheckTcp(const std::vector<pid_t>& tree, TcpCheck when, std::string* remedy) {
  ASSIGN_OR_RETURN(const auto holders, SocketsOf(tree));
  if (holders.empty()) return Status();
  std::set<uint64_t> inodes;
  for (const auto& [inode, holder] : holders) inodes.insert(inode);
  ASSIGN_OR_RETURN(std::vector<TcpSocket> all, TcpSocketsOf(tree[0]));
  ASSIGN_OR_RETURN(std::set<TcpAddress> local, LocalAddresses());
  std::map<pid_t, bool> uses_nccl;
  for (const TcpSocket& socket : all) {
    auto holder = holders.find(socket.inode);
    if (holder == holders.end()) continue;
    TcpFinding finding = JudgeTcp(socket, all, inodes, local);
    if (finding.verdict == TcpVerdict::kCarried) continue;
    pid_t pid = holder->second.pid;
    if (when == TcpCheck::kWhileRunning) {
      if (finding.verdict != TcpVerdict::kOutside) continue;
      auto [known, fresh] = uses_nccl.try_emplace(pid, false);
      if (fresh) known->second = UsesNccl(pid);
      if (known->second && !IsMasterPort(pid, socket)) continue;
    }
    if (finding.verdict == TcpVerdict::kOutside)
      return RefuseOutside(holder->second, socket, finding, remedy);
    return RefusePassing(holder->second, socket, finding.verdict, remedy);
  }
  return Status();
}

}  // namespace stasis
