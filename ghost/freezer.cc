#include "ghost/freezer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/fd.h"
#include "base/files.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

constexpr size_t kMaxCgroupFile = 64 << 20;

// cgroup files want each value in one write(2).
Status WriteValue(const std::string& path, const std::string& value) {
  ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_WRONLY));
  if (write(fd.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size())) return Status();
  return ErrnoStatus(errno, "write '" + value + "' to " + path);
}

// The path of the process's cgroup below the mount point; v1 is found by its controller, v2 by an empty one.
Result<std::string> CgroupOf(pid_t pid, FreezeKind kind) {
  ASSIGN_OR_RETURN(std::string text, ReadFile("/proc/" + std::to_string(pid) + "/cgroup", kMaxCgroupFile));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    bool match = kind == FreezeKind::kCgroupV2 ? controllers == ",,"
                                               : controllers.find(",freezer,") != std::string::npos;
    if (match) return line.substr(second + 1);
  }
  return Status(StatusCode::kUnsupported, "the process is in no such cgroup");
}

// Moves the whole tree; a child that was born meanwhile is found in the next round.
Status MoveTree(pid_t root, const std::string& folder) {
  std::vector<pid_t> moved;
  for (;;) {
    ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(root));
    bool fresh = false;
    for (pid_t pid : tree) {
      if (std::find(moved.begin(), moved.end(), pid) != moved.end()) continue;
      Status status = WriteValue(folder + "/cgroup.procs", std::to_string(pid));
      if (!status.ok() && ReadProcStat(pid).status().code() != StatusCode::kNotFound) return status;
      moved.push_back(pid);
      fresh = true;
    }
    if (!fresh) return Status();
  }
}

// Waits until the cgroup says what is wanted. Version 2 raises POLLPRI on cgroup.events; version 1 tells
// nobody.
Status AwaitState(const Frozen& frozen, bool want, const Deadline& deadline) {
  bool v2 = frozen.kind == FreezeKind::kCgroupV2;
  std::string path = frozen.folder + (v2 ? "/cgroup.events" : "/freezer.state");
  std::string wanted = v2 ? (want ? "frozen 1" : "frozen 0") : (want ? "FROZEN" : "THAWED");
  for (;;) {
    ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDONLY));
    char text[512] = "";
    (void)!read(fd.get(), text, sizeof text - 1);
    if (std::strstr(text, wanted.c_str())) return Status();
    if (deadline.Expired()) return Status(StatusCode::kTimeout, "the cgroup does not become " + wanted);
    pollfd wait{fd.get(), POLLPRI, 0};
    (void)poll(&wait, v2 ? 1 : 0, v2 ? std::min(deadline.PollTimeout(), 100) : 1);
  }
}

Status SetFrozen(const Frozen& frozen, bool freeze) {
  if (frozen.kind == FreezeKind::kCgroupV2)
    return WriteValue(frozen.folder + "/cgroup.freeze", freeze ? "1" : "0");
  return WriteValue(frozen.folder + "/freezer.state", freeze ? "FROZEN" : "THAWED");
}

// Every process back to where it came from; what cannot go there goes to the parent.
void EmptyFolder(const Frozen& frozen) {
  // Processes that are about to end can be moved no more, and keep the folder until they have.
  Deadline deadline = Deadline::After(std::chrono::seconds(2));
  while (!deadline.Expired()) {
    Result<std::string> text = ReadFile(frozen.folder + "/cgroup.procs", kMaxCgroupFile);
    if (!text.ok()) return;
    std::istringstream pids(*text);
    for (std::string pid; pids >> pid;) (void)WriteValue(frozen.home + "/cgroup.procs", pid);
    if (rmdir(frozen.folder.c_str()) == 0 || errno != EBUSY) return;
    (void)poll(nullptr, 0, 1);
  }
}

// Of the cgroup, below the one that the tree is in otherwise.
std::string OwnFolder(const std::string& name, pid_t root) {
  return "/stasis-" + name + "-" + std::to_string(root);
}

bool IsFrozenIn(const std::string& folder, FreezeKind kind) {
  const bool v2 = kind == FreezeKind::kCgroupV2;
  Result<std::string> text = ReadFile(folder + (v2 ? "/cgroup.events" : "/freezer.state"), kMaxCgroupFile);
  return text.ok() && text->find(v2 ? "frozen 1" : "FROZEN") != std::string::npos;
}

Result<Frozen> FreezeByCgroup(pid_t root, const std::string& name, FreezeKind kind,
                              const Deadline& deadline) {
  CgroupMounts mounts = FindCgroupMounts();
  const std::string& mount = kind == FreezeKind::kCgroupV2 ? mounts.v2 : mounts.v1;
  if (mount.empty()) return Status(StatusCode::kUnsupported, "no such cgroup hierarchy is mounted");
  ASSIGN_OR_RETURN(std::string cgroup, CgroupOf(root, kind));
  const std::string own = OwnFolder(name, root);
  // Where a ghost that was killed while it did this has left the tree.
  if (cgroup.ends_with(own)) cgroup.resize(cgroup.size() - own.size());
  Frozen frozen;
  frozen.kind = kind;
  frozen.home = mount + (cgroup == "/" ? "" : cgroup);
  frozen.folder = frozen.home + own;
  frozen.root = root;
  if (mkdir(frozen.folder.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, "create " + frozen.folder);
  }
  Status status = MoveTree(root, frozen.folder);
  if (status.ok()) status = SetFrozen(frozen, true);
  if (status.ok()) status = AwaitState(frozen, true, deadline);
  if (status.ok()) return frozen;
  (void)SetFrozen(frozen, false);
  EmptyFolder(frozen);
  return status;
}

Status ContinueTree(pid_t root);

// A signal is taken some time after it was sent, and only a parent is told.
Status AwaitStopped(const std::vector<pid_t>& pids, const Deadline& deadline) {
  for (pid_t pid : pids) {
    for (;;) {
      Result<ProcStat> stat = ReadProcStat(pid);
      if (stat.status().code() == StatusCode::kNotFound) break;
      if (!stat.ok()) return stat.status();
      if (stat->state == 'T' || stat->state == 't' || stat->state == 'Z') break;
      if (deadline.Expired()) return Status(StatusCode::kTimeout, "process " + Named(pid) + " does not stop");
      (void)poll(nullptr, 0, 1);
    }
  }
  return Status();
}

// Parents first: a shell that saw its child stop would take notice. Rounds, as children may be born
// meanwhile.
Result<Frozen> FreezeBySignal(pid_t root, const Deadline& deadline) {
  std::vector<pid_t> stopped;
  for (;;) {
    ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(root));
    bool fresh = false;
    for (pid_t pid : tree) {
      if (std::find(stopped.begin(), stopped.end(), pid) != stopped.end()) continue;
      if (kill(pid, SIGSTOP) != 0 && errno != ESRCH) return ErrnoStatus(errno, "stop process " + Named(pid));
      stopped.push_back(pid);
      fresh = true;
    }
    if (fresh) continue;
    Status status = AwaitStopped(stopped, deadline);
    if (status.ok()) return Frozen{FreezeKind::kSigstop, "", "", root, false};
    (void)ContinueTree(root);
    return status;
  }
}

// It is stopped, or about to be: a signal is taken some time after it was sent. Where that cannot be seen it
// counts as stopped.
bool IsStopped(pid_t pid) {
  // The signal first: whoever takes it stands still by the time that it is seen to be gone.
  const Result<ProcIds> ids = ReadProcIds(pid);
  if (!ids.ok()) return ids.status().code() != StatusCode::kNotFound;
  if ((ids->pending_signals >> (SIGSTOP - 1)) & 1) return true;
  for (pid_t tid : ThreadsOf(pid)) {
    const Result<ProcStat> stat = ReadThreadStat(pid, tid);
    if (stat.ok() && (stat->state == 'T' || stat->state == 't')) return true;
  }
  return false;
}

// To others the signal would be one more that their program may have a handler for.
Status ContinueTree(pid_t root) {
  Result<std::vector<pid_t>> tree = ProcessTree(root);
  if (tree.status().code() == StatusCode::kNotFound) return Status();
  if (!tree.ok()) return tree.status();
  Status first;
  for (size_t i = tree->size(); i-- > 0;) {  // children first
    if (!IsStopped((*tree)[i])) continue;
    if (kill((*tree)[i], SIGCONT) != 0 && errno != ESRCH && first.ok()) {
      first = ErrnoStatus(errno, "continue process " + Named((*tree)[i]));
    }
  }
  return first;
}

}  // namespace

const char* FreezeKindName(FreezeKind kind) {
  switch (kind) {
    case FreezeKind::kNone:
      return "none";
    case FreezeKind::kCgroupV2:
      return "cgroup-v2";
    case FreezeKind::kCgroupV1:
      return "cgroup-v1";
    case FreezeKind::kSigstop:
      return "sigstop";
  }
  return "none";
}

bool FindFreezeKind(const std::string& name, FreezeKind* kind) {
  for (FreezeKind each :
       {FreezeKind::kNone, FreezeKind::kCgroupV2, FreezeKind::kCgroupV1, FreezeKind::kSigstop}) {
    if (name != FreezeKindName(each)) continue;
    *kind = each;
    return true;
  }
  return false;
}

CgroupMounts FindCgroupMounts() {
  CgroupMounts mounts;
  Result<std::string> text = ReadFile("/proc/self/mounts", kMaxCgroupFile);
  if (!text.ok()) return mounts;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string device, folder, type, options;
    in >> device >> folder >> type >> options;
    if (type == "cgroup2" && mounts.v2.empty()) mounts.v2 = folder;
    if (type == "cgroup" && ("," + options + ",").find(",freezer,") != std::string::npos) mounts.v1 = folder;
  }
  return mounts;
}

Result<Frozen> FreezeTree(pid_t root, const std::string& name, const Deadline& deadline,
                          const std::vector<FreezeKind>& kinds) {
  Status first(StatusCode::kUnsupported, "no way to freeze was asked for");
  bool any = false;
  for (FreezeKind kind : kinds) {
    Result<Frozen> frozen = kind == FreezeKind::kSigstop ? FreezeBySignal(root, deadline)
                                                         : FreezeByCgroup(root, name, kind, deadline);
    if (frozen.ok()) return frozen;
    if (!any) first = frozen.status();
    any = true;
  }
  return first;
}

Frozen FindFrozenTree(pid_t root, const std::string& name) {
  const CgroupMounts mounts = FindCgroupMounts();
  const std::string own = OwnFolder(name, root);
  for (FreezeKind kind : {FreezeKind::kCgroupV2, FreezeKind::kCgroupV1}) {
    const std::string& mount = kind == FreezeKind::kCgroupV2 ? mounts.v2 : mounts.v1;
    if (mount.empty()) continue;
    Result<std::string> cgroup = CgroupOf(root, kind);
    if (!cgroup.ok() || !cgroup->ends_with(own)) continue;
    const std::string folder = mount + *cgroup;
    return {kind, folder, folder.substr(0, folder.size() - own.size()), root, false};
  }
  return {};
}

bool IsFrozenTree(pid_t root, const std::string& name) {
  const Frozen frozen = FindFrozenTree(root, name);
  return frozen.kind != FreezeKind::kNone && IsFrozenIn(frozen.folder, frozen.kind);
}

Status ThawTree(const Frozen& frozen, const Deadline& deadline) {
  if (frozen.kind == FreezeKind::kNone) return Status();
  if (frozen.kind == FreezeKind::kSigstop) return ContinueTree(frozen.root);
  if (!Exists(frozen.folder)) return Status();
  RETURN_IF_ERROR(SetFrozen(frozen, false));
  RETURN_IF_ERROR(AwaitState(frozen, false, deadline));
  EmptyFolder(frozen);
  return Status();
}

void RemoveFreezer(const Frozen& frozen) {
  if (!frozen.folder.empty()) EmptyFolder(frozen);
}

void RemoveUnusedFreezer(pid_t root, const std::string& name) {
  const CgroupMounts mounts = FindCgroupMounts();
  const std::string own = OwnFolder(name, root);
  for (FreezeKind kind : {FreezeKind::kCgroupV2, FreezeKind::kCgroupV1}) {
    const std::string& mount = kind == FreezeKind::kCgroupV2 ? mounts.v2 : mounts.v1;
    const Result<std::string> cgroup = CgroupOf(root, kind);
    if (mount.empty() || !cgroup.ok() || cgroup->ends_with(own)) continue;
    // One with processes in it stays: rmdir(2) refuses.
    (void)rmdir((mount + (*cgroup == "/" ? "" : *cgroup) + own).c_str());
  }
}

}  // namespace stasis
