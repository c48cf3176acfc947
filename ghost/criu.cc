#include "ghost/criu.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/bundled_criu.h"
#include "base/files.h"
#include "base/raw_log.h"
#include "base/user_namespace.h"
#include "ghost/child.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

// CRIU stops waiting for a process that cannot be frozen after this time. Device memory is not in any of the
// processes any more, so what is left to dump is the program's own memory; that phase has no limit.
constexpr char kFreezeTimeout[] = "30";
// Deleted files that a program keeps open go into the image up to this size.
constexpr char kGhostLimit[] = "1G";
constexpr size_t kMaxLog = 256 << 20;
// CRIU loads every *.so of its folder of plugins, NVIDIA's among them. That one asks the driver of each
// process in turn, which cannot answer while its tree is frozen, and there is nothing left for it to do. This
// folder exists and holds numbers only.
constexpr char kNoPlugins[] = "/proc/self/task";
// How often it is looked at whether the tree of a dump is dying: no event tells.
constexpr std::chrono::milliseconds kLookTime(500);
// The kernel has nothing left to wait for then.
constexpr std::chrono::seconds kEndTime(30);

std::vector<std::string> CommonOptions(const std::string& criu, const char* verb, const std::string& images,
                                       const std::string& work, const std::string& log) {
  std::vector<std::string> argv = {criu,           verb,
                                   "-D",           images,
                                   "-W",           work,
                                   "-o",           log,
                                   "-v4",          "--manage-cgroups=ignore",
                                   "--file-locks", "--ghost-limit",
                                   kGhostLimit,    "--libdir",
                                   kNoPlugins};
  // Some of what CRIU otherwise insists on (buffers of sockets beyond their limit, for one) is not allowed in
  // one.
  if (InUserNamespace()) argv.push_back("--unprivileged");
  return argv;
}

Result<std::string> FindInPath() {
  const char* path = std::getenv("PATH");
  std::string rest = path ? path : "";
  while (!rest.empty()) {
    size_t colon = rest.find(':');
    std::string candidate = rest.substr(0, colon) + "/criu";
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  return Status(StatusCode::kNotFound, "criu is not in PATH");
}

// A process that CRIU is working in may not survive CRIU's end, so the kernel is to take another one when
// memory runs out. Without the right to say so nothing is lost but that.
void SpareFromOutOfMemory(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/oom_score_adj";
  Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.valid()) (void)!write(file.get(), "-1000", 5);
}

// A process, held by one descriptor so that its number cannot come to mean another one. Where there is none
// to spare it is looked at by its number, and the descriptor is asked for again. What cannot be seen of it
// has not happened.
class Watched {
 public:
  explicit Watched(pid_t pid) : pid_(pid) { Hold(); }

  bool EndsWithin(Duration time) {
    const Deadline deadline = Deadline::After(time);
    for (;;) {
      Hold();
      if (gone_) return true;
      pollfd wait{handle_.get(), POLLIN, 0};  // a number below 0 is passed over
      if (poll(&wait, 1, deadline.PollTimeout()) > 0) return true;
      if (!handle_.valid() && IsGone()) return true;
      if (deadline.Expired()) return false;
    }
  }

  // It has begun to end, and nothing can keep it from that.
  bool Dies() {
    if (EndsWithin(Duration::zero())) return true;
    const Result<ProcStat> stat = ReadProcStat(pid_);
    return stat.ok() && stat->dying;
  }

  bool Kill() {
    Hold();
    return handle_.valid() && syscall(SYS_pidfd_send_signal, handle_.get(), SIGKILL, nullptr, 0) == 0;
  }

 private:
  void Hold() {
    if (handle_.valid() || gone_) return;
    Result<Fd> handle = OpenPidFd(pid_);
    gone_ = handle.status().code() == StatusCode::kNotFound;
    if (handle.ok()) handle_ = *std::move(handle);
  }

  bool IsGone() const {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0)
      return info.si_pid == pid_;
    return kill(pid_, 0) != 0 && errno == ESRCH;
  }

  const pid_t pid_;
  Fd handle_;
  bool gone_ = false;
};

// That is a matter of a moment, but for a process whose other threads CRIU has to wait for first, and does
// not.
bool WaitsForTheDying(pid_t criu) {
  const Result<std::string> call = ReadFile("/proc/" + std::to_string(criu) + "/syscall", 4096);
  long number = 0;
  unsigned long pid = 0;
  if (!call.ok() || std::sscanf(call->c_str(), "%ld %lx", &number, &pid) != 2) return false;
  if (number != SYS_wait4 || pid == 0 || pid > INT_MAX) return false;
  const Result<ProcStat> stat = ReadProcStat(static_cast<pid_t>(pid));
  return stat.ok() && stat->dying;
}

}  // namespace

Result<std::string> FindCriu(const std::string& option) {
  const char* variable = std::getenv("STASIS_CRIU");
  std::string named = !option.empty() ? option : variable ? variable : "";
  if (!named.empty()) {
    if (named[0] == '/' && access(named.c_str(), X_OK) == 0) return named;
    return Status(StatusCode::kNotFound,
                  "'" + named + "' is no absolute path of a program (--criu, STASIS_CRIU)");
  }
  std::string bundled = BundledCriu();
  if (!bundled.empty()) return bundled;
  Result<std::string> found = FindInPath();
  if (found.ok()) return found;
  const char* home = std::getenv("HOME");
  std::string cached = std::string(home ? home : "") + "/.cache/stasis/criu/bin/criu";
  if (access(cached.c_str(), X_OK) == 0) return cached;
  return Status(StatusCode::kNotFound, "no criu: not in PATH, not at " + cached);
}

Result<std::string> CriuVersion(const std::string& criu) {
  // In memory: a file would be left by a process that is killed meanwhile.
  Fd fd(memfd_create("criu-version", MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "create a file in memory");
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  Result<pid_t> child = StartChild({.argv = {criu, "--version"}, .output = path});
  Status status =
      child.ok() ? WaitChild(*child, Deadline::After(std::chrono::seconds(10))).status() : child.status();
  Result<std::string> text = ReadFile(path, 4096);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(text.status());
  size_t at = text->find("Version: ");
  if (at == std::string::npos) return Status(StatusCode::kUnsupported, criu + " does not say its version");
  return text->substr(at + 9, text->find('\n', at) - at - 9);
}

Status CheckCriuPrivileges() {
  ASSIGN_OR_RETURN(std::string status, ReadFile("/proc/self/status", 1 << 20));
  size_t at = status.find("CapEff:");
  uint64_t effective = at == std::string::npos ? 0 : std::strtoull(status.c_str() + at + 7, nullptr, 16);
  constexpr uint64_t kSysAdmin = 1ull << 21, kSysPtrace = 1ull << 19;
  if ((effective & kSysAdmin) && (effective & kSysPtrace)) return Status();
  return Status(StatusCode::kPermissionDenied,
                "checkpoint and restore need the capabilities CAP_SYS_ADMIN and CAP_SYS_PTRACE, or root");
}

Result<HeldChild> StartCriuDump(const std::string& criu, pid_t root, const std::string& images, DumpEnd end,
                                DumpTcp tcp) {
  std::vector<std::string> argv = CommonOptions(criu, "dump", images, images, "dump.log");
  argv.insert(argv.end(), {"-t", std::to_string(root), "--timeout", kFreezeTimeout});
  // Without connections nothing needs to be locked; CRIU would make its table all the same.
  argv.insert(argv.end(), {"--network-lock", tcp == DumpTcp::kConnections ? "nftables" : "skip"});
  if (tcp == DumpTcp::kConnections) argv.push_back("--tcp-established");
  argv.push_back(end == DumpEnd::kRunning ? "--leave-running" : "--leave-stopped");
  ASSIGN_OR_RETURN(HeldChild child,
                   StartHeldChild({.argv = std::move(argv), .output = images + "/dump.log.out"}));
  SpareFromOutOfMemory(child.pid);
  return child;
}

// The first process of a PID namespace that is killed ends when the others have been waited for, and the
// first thread of a process when its other threads have. Those that CRIU holds are CRIU's to wait for, and
// CRIU may wait for the first one: then neither ends.
void AwaitDump(pid_t criu_pid, pid_t root_pid, Duration patience) {
  Watched criu(criu_pid), root(root_pid);
  const auto is_stuck = [&] { return root.Dies() || WaitsForTheDying(criu_pid); };
  for (bool killed = false; !killed;) {
    while (!is_stuck()) {
      if (criu.EndsWithin(kLookTime)) return;
    }
    if (criu.EndsWithin(patience)) return;
    // A kill cannot be taken back, and is not for a CRIU that is at work on what lives.
    killed = is_stuck() && criu.Kill();
  }
  RawLog(LogLevel::kWarning, "criu, process %d, waits for what is dying below process %d, and is killed",
         criu_pid, root_pid);
  while (!criu.EndsWithin(kLookTime)) continue;
  if (root.Dies()) (void)root.EndsWithin(kEndTime);
}

Result<HeldChild> StartCriuRestore(const std::string& criu, const std::string& images,
                                   const std::string& work, std::span<const CriuInherited> inherited) {
  std::vector<std::string> argv = CommonOptions(criu, "restore", images, work, "restore.log");
  argv.insert(argv.end(),
              {"--tcp-established", "--restore-detached", "--restore-sibling", "--pidfile", work + "/pid"});
  std::vector<int> fds;
  for (const CriuInherited& file : inherited) {
    fds.push_back(file.fd.get());
    // CRIU names files without the slash that they begin with.
    argv.insert(argv.end(),
                {"--inherit-fd", "fd[" + std::to_string(fds.back()) + "]:" + file.path.substr(1)});
  }
  return StartHeldChild(
      {.argv = std::move(argv), .output = work + "/restore.log.out", .inherit = std::move(fds)});
}

Status CriuStatus(int exit_status, const std::string& log_path, std::string* remedy) {
  if (WIFEXITED(exit_status) && WEXITSTATUS(exit_status) == 0) return Status();
  Result<std::string> log = ReadFile(log_path, kMaxLog);
  CriuFailure failure = ExplainCriuLog(log.ok() ? *log : "");
  if (failure.message.empty())
    failure.message = "criu ended with " + ExitText(exit_status) + " and no error in its log";
  *remedy = failure.remedy;
  return Status(StatusCode::kUnsupported, "criu: " + failure.message);
}

}  // namespace stasis
