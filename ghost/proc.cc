#include "ghost/proc.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "base/files.h"
#include "base/task_protocol.h"

namespace stasis {
namespace {

constexpr size_t kMaxProcFile = 64 << 20;
// PF_EXITING of the kernel's include/linux/sched.h, among the flags in stat.
constexpr uint64_t kExiting = 4;

std::string ProcPath(pid_t pid, const char* rest) { return "/proc/" + std::to_string(pid) + "/" + rest; }

Result<std::vector<pid_t>> ListNumbers(const std::string& folder) {
  std::vector<pid_t> numbers;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  for (const std::string& name : names) {
    char* end = nullptr;
    long number = std::strtol(name.c_str(), &end, 10);
    if (*end == '\0' && number >= 0) numbers.push_back(static_cast<pid_t>(number));
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Result<ProcStat> ParseStat(pid_t pid, const std::string& text) {
  ProcStat stat;
  stat.pid = pid;
  // The name stands in parentheses and may hold any character, parentheses included.
  size_t open = text.find('(');
  size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 >= text.size()) {
    return Status(StatusCode::kCorrupt, "unreadable stat of process " + std::to_string(pid));
  }
  stat.name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 2));
  std::string skipped;
  uint64_t flags = 0;
  rest >> stat.state >> stat.parent;
  for (int field = 5; field < 9; ++field) rest >> skipped;
  rest >> flags;
  for (int field = 10; field < 22; ++field) rest >> skipped;
  rest >> stat.start_time;
  stat.dying = (flags & kExiting) != 0;
  if (!rest) return Status(StatusCode::kCorrupt, "unreadable stat of process " + std::to_string(pid));
  return stat;
}

Result<std::string> ReadProc(const std::string& path, pid_t pid) {
  Result<std::string> text = ReadFile(path, kMaxProcFile);
  if (text.ok() && !text->empty()) return text;
  // No descriptor to spare, for one, says nothing of the process.
  if (!text.ok() && text.status().code() != StatusCode::kNotFound) return text.status();
  return Status(StatusCode::kNotFound, "process " + std::to_string(pid) + " has ended");
}

std::vector<pid_t> Pids(const char* text) {
  std::vector<pid_t> pids;
  std::istringstream in(text);
  for (pid_t pid; in >> pid;) pids.push_back(pid);
  return pids;
}

Result<ProcIds> ParseIds(const std::string& text) {
  ProcIds ids;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string key = line.substr(0, colon);
    const char* value = line.c_str() + colon + 1;
    if (key == "NSpid") ids.nspids = Pids(value);
    if (key == "Uid") ids.uid = static_cast<uid_t>(std::strtoul(value, nullptr, 10));
    if (key == "TracerPid") ids.tracer = static_cast<pid_t>(std::strtol(value, nullptr, 10));
    if (key == "SigPnd" || key == "ShdPnd") ids.pending_signals |= std::strtoull(value, nullptr, 16);
  }
  if (ids.nspids.empty()) return Status(StatusCode::kUnsupported, "this kernel does not show NSpid");
  return ids;
}

}  // namespace

Result<ProcStat> ReadProcStat(pid_t pid) {
  ASSIGN_OR_RETURN(std::string text, ReadProc(ProcPath(pid, "stat"), pid));
  return ParseStat(pid, text);
}

Result<ProcStat> ReadThreadStat(pid_t pid, pid_t tid) {
  ASSIGN_OR_RETURN(std::string text, ReadProc(ProcPath(pid, "task/") + std::to_string(tid) + "/stat", tid));
  return ParseStat(tid, text);
}

Result<ProcIds> ReadProcIds(pid_t pid) {
  ASSIGN_OR_RETURN(std::string text, ReadProc(ProcPath(pid, "status"), pid));
  return ParseIds(text);
}

Result<std::vector<pid_t>> AllProcesses() { return ListNumbers("/proc"); }

std::vector<pid_t> ThreadsOf(pid_t pid) {
  Result<std::vector<pid_t>> threads = ListNumbers(ProcPath(pid, "task"));
  return threads.ok() ? *std::move(threads) : std::vector<pid_t>();
}

Result<std::vector<pid_t>> ProcessTree(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  std::vector<pid_t> tree;
  ASSIGN_OR_RETURN(const std::vector<pid_t> all, AllProcesses());
  for (pid_t pid : all) {
    Result<ProcStat> stat = ReadProcStat(pid);
    // Others' processes may be hidden from this user, and none of the tree is.
    const bool hidden = stat.status().code() == StatusCode::kPermissionDenied && pid != root;
    if (hidden || stat.status().code() == StatusCode::kNotFound) continue;
    if (!stat.ok()) return stat.status();
    if (stat->state == 'Z' && pid != root) continue;  // nothing is left of it but its exit status
    if (pid == root && stat->state != 'Z' && stat->state != 'X') tree.push_back(pid);
    children.emplace(stat->parent, pid);
  }
  if (tree.empty()) return Status(StatusCode::kNotFound, "process " + std::to_string(root) + " has ended");
  for (size_t i = 0; i < tree.size(); ++i) {
    auto [first, last] = children.equal_range(tree[i]);
    for (auto child = first; child != last; ++child) tree.push_back(child->second);
  }
  return tree;
}

pid_t HostPid(const std::vector<pid_t>& tree, pid_t nspid) {
  for (pid_t pid : tree) {
    Result<ProcIds> ids = ReadProcIds(pid);
    if (ids.ok() && ids->nspids.back() == nspid) return pid;
  }
  return 0;
}

namespace {

Result<ProcIds> ReadThreadIds(pid_t pid, pid_t tid) {
  ASSIGN_OR_RETURN(std::string text,
                   ReadFile(ProcPath(pid, "task/") + std::to_string(tid) + "/status", kMaxProcFile));
  return ParseIds(text);
}

}  // namespace

pid_t HostTid(pid_t pid, pid_t nstid) {
  for (pid_t tid : ThreadsOf(pid)) {
    Result<ProcIds> ids = ReadThreadIds(pid, tid);
    if (ids.ok() && ids->nspids.back() == nstid) return tid;
  }
  return 0;
}

std::string Named(pid_t pid) {
  Result<ProcStat> stat = ReadProcStat(pid);
  return std::to_string(pid) + (stat.ok() ? " (" + stat->name + ")" : " (ended)");
}

bool HasEnded(pid_t pid) {
  Result<ProcStat> stat = ReadProcStat(pid);
  if (!stat.ok()) return stat.status().code() == StatusCode::kNotFound;
  return stat->state == 'Z' || stat->state == 'X';
}

namespace {

Status IsStopped(pid_t pid) {
  return Status(StatusCode::kFailedPrecondition,
                "process " + Named(pid) + " is stopped by a signal; continue it with: kill -CONT " +
                    std::to_string(pid));
}

// A debugger holds single threads: of them, the first one and the one that answers count.
Result<ProcStat> StatOfWhoAnswers(pid_t pid) {
  ASSIGN_OR_RETURN(ProcStat first, ReadProcStat(pid));
  for (pid_t tid : ThreadsOf(pid)) {
    if (first.state == 't') break;
    Result<ProcStat> stat = ReadThreadStat(pid, tid);
    if (stat.ok() && stat->name == kTaskThreadName && stat->state == 't') return stat;
  }
  return first;
}

}  // namespace

Status CheckResponsive(pid_t pid) {
  ASSIGN_OR_RETURN(ProcStat stat, StatOfWhoAnswers(pid));
  switch (stat.state) {
    case 'T':
      return IsStopped(pid);
    case 't': {
      Result<ProcIds> ids = ReadThreadIds(pid, stat.pid);
      return Status(StatusCode::kFailedPrecondition, "process " + Named(pid) + " is held by the debugger " +
                                                         Named(ids.ok() ? ids->tracer : 0) +
                                                         "; detach it first");
    }
    case 'Z':
    case 'X':
      return Status(StatusCode::kNotFound, "process " + Named(pid) + " has ended");
    default:
      return Status();
  }
}

Status CheckResponsiveOnceThawed(pid_t pid) {
  RETURN_IF_ERROR(CheckResponsive(pid));
  ASSIGN_OR_RETURN(ProcIds ids, ReadProcIds(pid));
  bool stops = ((ids.pending_signals >> (SIGSTOP - 1)) & 1) != 0;
  return stops ? IsStopped(pid) : Status();
}

Result<std::vector<ProcFd>> FdsOf(pid_t pid) {
  std::vector<ProcFd> fds;
  const std::string folder = ProcPath(pid, "fd");
  const Result<std::vector<pid_t>> numbers = ListNumbers(folder);
  if (!numbers.ok() && HasEnded(pid)) return fds;
  if (!numbers.ok()) return numbers.status();
  for (pid_t number : *numbers) {
    Result<std::string> target = ReadLink(folder + "/" + std::to_string(number));
    if (target.ok()) {
      fds.push_back({number, *std::move(target)});
    } else if (target.status().code() != StatusCode::kNotFound && !HasEnded(pid)) {
      return target.status();
    }
  }
  return fds;
}

uint64_t FdFlags(pid_t pid, int fd) {
  Result<std::string> text = ReadFile(ProcPath(pid, "fdinfo/") + std::to_string(fd), kMaxProcFile);
  if (!text.ok()) return 0;
  size_t at = text->find("flags:");
  return at == std::string::npos ? 0 : std::strtoull(text->c_str() + at + 6, nullptr, 8);
}

Result<std::vector<ProcMap>> MapsOf(pid_t pid) {
  std::vector<ProcMap> maps;
  const Result<std::string> text = ReadFile(ProcPath(pid, "maps"), kMaxProcFile);
  if (!text.ok() && HasEnded(pid)) return maps;
  if (!text.ok()) return text.status();
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    ProcMap map;
    unsigned long start = 0, end = 0, inode = 0;
    char device[32] = "";
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*x %31s %lu %n", &start, &end, map.protection, device, &inode,
                    &path_at) < 5) {
      return Status(StatusCode::kCorrupt, "unreadable maps of process " + std::to_string(pid));
    }
    map.start = start;
    map.end = end;
    map.inode = inode;
    map.device = device;
    if (path_at > 0) map.path = line.substr(static_cast<size_t>(path_at));
    maps.push_back(std::move(map));
  }
  return maps;
}

Result<Fd> OpenPidFd(pid_t pid) {
  Fd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!fd.valid()) return ErrnoStatus(errno, "pidfd_open " + std::to_string(pid));
  return fd;
}

std::string BootId() {
  Result<std::string> id = ReadFile("/proc/sys/kernel/random/boot_id", 256);
  if (!id.ok()) return "";
  while (!id->empty() && id->back() == '\n') id->pop_back();
  return *id;
}

}  // namespace stasis
