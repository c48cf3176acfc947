#include "ghost/restored.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <set>

#include "base/files.h"
#include "base/raw_log.h"
#include "ghost/child.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

constexpr size_t kMaxTexts = 8 << 20;

std::string ProcFile(pid_t pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

// 0: it has ended, or may not be looked at.
ino_t Namespace(pid_t pid, const char* name) {
  struct stat info;
  return stat(ProcFile(pid, name).c_str(), &info) == 0 ? info.st_ino : 0;
}
ino_t PidNamespace(pid_t pid) { return Namespace(pid, "ns/pid"); }
ino_t MountNamespace(pid_t pid) { return Namespace(pid, "ns/mnt"); }

// Whether `text` is one of those, each ended by a zero, that the file of /proc holds.
Result<bool> Holds(const std::string& path, const std::string& text) {
  Result<std::string> all = ReadFile(path, kMaxTexts);
  // No descriptor to spare says nothing of it; what has ended, or may not be looked at, is nobody's.
  if (all.status().code() == StatusCode::kResourceExhausted) return all.status();
  if (!all.ok()) return false;
  const std::string wanted = text + '\0';
  for (size_t at = all->find(wanted); at != std::string::npos; at = all->find(wanted, at + 1)) {
    if (at == 0 || (*all)[at - 1] == '\0') return true;
  }
  return false;
}

Result<bool> IsCriu(pid_t pid, const std::string& images) {
  if (MountNamespace(pid) != MountNamespace(getpid())) return false;
  return Holds(ProcFile(pid, "cmdline"), images);
}

Result<bool> Belongs(pid_t pid, const std::string& images, const std::string& mark) {
  Result<ProcStat> stat = ReadProcStat(pid);
  if (stat.status().code() == StatusCode::kResourceExhausted) return stat.status();
  if (stat.ok() && stat->parent == getpid()) return true;
  if (MountNamespace(pid) != MountNamespace(getpid())) return false;
  ASSIGN_OR_RETURN(const bool criu, Holds(ProcFile(pid, "cmdline"), images));
  return criu ? Result<bool>(true) : Holds(ProcFile(pid, "environ"), mark);
}

Result<std::vector<pid_t>> FindCriu(const std::string& images) {
  std::vector<pid_t> found;
  ASSIGN_OR_RETURN(const std::vector<pid_t> all, AllProcesses());
  for (pid_t pid : all) {
    ASSIGN_OR_RETURN(const bool criu, IsCriu(pid, images));
    if (criu) found.push_back(pid);
  }
  return found;
}

template <typename Find>
Status EndAll(const Find& find, const Deadline& deadline) {
  for (;;) {
    ASSIGN_OR_RETURN(const std::vector<pid_t> found, find());
    if (found.empty()) return Status();
    if (deadline.Expired())
      return Status(StatusCode::kTimeout, "process " + Named(found.front()) + " of CRIU does not end");
    for (pid_t pid : found) (void)kill(pid, SIGKILL);
    (void)poll(nullptr, 0, 1);
    for (pid_t pid : found) (void)waitpid(pid, nullptr, WNOHANG);
  }
}

}  // namespace

Result<std::vector<pid_t>> FindRestored(const std::string& images, const std::string& task_run) {
  const ino_t own = PidNamespace(getpid());
  const std::string mark = "STASIS_TASK=" + task_run;
  std::map<pid_t, ino_t> elsewhere;
  std::set<ino_t> theirs;
  ASSIGN_OR_RETURN(const std::vector<pid_t> all, AllProcesses());
  for (pid_t pid : all) {
    const ino_t space = PidNamespace(pid);
    if (space == 0 || space == own) continue;
    elsewhere[pid] = space;
    if (theirs.count(space) != 0) continue;
    ASSIGN_OR_RETURN(const bool belongs, Belongs(pid, images, mark));
    if (belongs) theirs.insert(space);
  }
  std::vector<pid_t> found;
  for (const auto& [pid, space] : elsewhere) {
    if (theirs.count(space) != 0) found.push_back(pid);
  }
  return found;
}

Status EndCriu(const std::string& images, const Deadline& deadline) {
  return EndAll([&] { return FindCriu(images); }, deadline);
}

Status AwaitCriuOfOthers(const std::string& images, const Deadline& deadline) {
  ASSIGN_OR_RETURN(const std::vector<pid_t> found, FindCriu(images));
  for (pid_t pid : found) {
    RawLog(LogLevel::kWarning, "criu, process %d, is at work for a ghost that is gone, and is waited for",
           pid);
    Status ended = WaitProcess(pid, deadline);
    if (ended.code() == StatusCode::kTimeout)
      return Status(StatusCode::kUnavailable,
                    "process " + Named(pid) + " still makes an image of the task, for a ghost that is gone");
    RETURN_IF_ERROR(ended);
  }
  return Status();
}

Status EndRestored(const std::string& images, const std::string& task_run, const Deadline& deadline) {
  RETURN_IF_ERROR(EndAll([&] { return FindRestored(images, task_run); }, deadline));
  return EndCriu(images, deadline);
}

}  // namespace stasis
