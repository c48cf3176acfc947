// What the machine around Stasis offers.
#include <fmt/format.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "base/user_namespace.h"
#include "cli/doctor.h"
#include "coordinator/node/criu_program.h"
#include "coordinator/node/launch.h"
#include "coordinator/node/subprocess.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

namespace stasis {
namespace {

std::string TextOf(const std::string& path) {
  Result<std::string> text = ReadFile(path);
  if (!text.ok()) return "";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *text;
}

Finding CheckKernel() {
  utsname name{};
  uname(&name);
  return {"kernel", Needed::kRun, ParseKernelVersion(name.release) >= kOldestKernel, name.release,
          "Linux 5.11 or newer is needed"};
}

Finding CheckMembarrier() {
  long offered = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  bool ok = offered >= 0 && (offered & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0;
  return {"membarrier", Needed::kPause, ok, ok ? "private expedited" : "not offered",
          "a kernel with CONFIG_MEMBARRIER, and a seccomp profile that lets membarrier(2) through"};
}

// Tried in a child: unshare(2) changes whoever calls it.
int TryUnshare(int flags) {
  pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) _exit(unshare(flags) == 0 ? 0 : errno);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

Finding CheckNamespaces() {
  int error = TryUnshare(CLONE_NEWPID | CLONE_NEWTIME);
  return {"PID, time spaces", Needed::kCheckpoint, error == 0,
          error == 0 ? "can be made" : std::strerror(error), "run stasis as root, or with CAP_SYS_ADMIN"};
}

Finding CheckUserNamespaces() {
  int error = TryUnshare(CLONE_NEWUSER);
  return {"user namespaces", Needed::kNothing, error == 0, error == 0 ? "can be made" : std::strerror(error),
          "not needed; sysctl user.max_user_namespaces allows them"};
}

Finding CheckPtraceScope() {
  std::string scope = TextOf("/proc/sys/kernel/yama/ptrace_scope");
  bool ok = scope.empty() || scope == "0" || scope == "1" || (scope == "2" && HasSysAdmin());
  return {"ptrace scope", Needed::kCheckpoint, ok, scope.empty() ? "not restricted" : scope,
          "CRIU needs ptrace: sysctl kernel.yama.ptrace_scope=1"};
}

Finding CheckCapabilities() {
  bool ok = HasSysAdmin();
  return {"capabilities", Needed::kCheckpoint, ok, ok ? "CAP_SYS_ADMIN" : "no CAP_SYS_ADMIN",
          "checkpoint and restore need root, or at least CAP_SYS_ADMIN and CAP_SYS_PTRACE"};
}

// The first line of the output that names an error.
std::string FirstError(const SubprocessResult& result) {
  std::string text = result.output + result.error_output;
  size_t at = text.find("Error");
  if (at == std::string::npos) at = 0;
  return text.substr(at, text.find('\n', at) - at);
}

bool LacksNetworkAlone(const SubprocessResult& check) {
  const std::string text = check.output + check.error_output;
  return text.find("Error") != std::string::npos && CriuErrorsBesideNetwork(text).empty();
}

Finding CheckCriu(const std::string& criu) {
  Finding finding{"criu", Needed::kCheckpoint, false, "not found",
                  "needed is CRIU 4.1 or newer: the package stasis-criu, or scripts/setup.sh builds it; "
                  "STASIS_CRIU names another one"};
  if (criu.empty()) return finding;
  Result<SubprocessResult> ran = RunCriu(criu, {"--version"});
  if (!ran.ok()) {
    finding.detail = ran.status().ToString();
    return finding;
  }
  int version = ParseCriuVersion(ran->output);
  finding.ok = version >= kOldestCriu;
  finding.detail = fmt::format("{} {}.{}", criu, version / 100, version % 100);
  return finding;
}

Finding CheckCriuWorks(const std::string& criu) {
  Finding finding{"criu check", Needed::kCheckpoint, false, "no criu",
                  "`criu check` says what the kernel lacks; it needs the capabilities above"};
  if (criu.empty()) return finding;
  std::vector<std::string> arguments{"check"};
  if (InUserNamespace()) arguments.push_back("--unprivileged");
  Result<SubprocessResult> ran = RunCriu(criu, arguments);
  if (!ran.ok()) {
    finding.detail = ran.status().ToString();
    return finding;
  }
  const bool good = ran->exit_code == 0 && ran->signal == 0;
  const bool without_network = InUserNamespace() && ran->signal == 0 && LacksNetworkAlone(*ran);
  finding.ok = good || without_network;
  finding.detail = good ? "looks good"
                   : without_network
                       ? "looks good, without TCP connections: the network is not this user namespace's"
                       : FirstError(*ran);
  return finding;
}

Finding CheckFreezer() {
  Finding finding{"cgroup freezer", Needed::kNothing, true, "",
                  "paused tasks are stopped by SIGSTOP instead"};
  if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 && access("/sys/fs/cgroup", W_OK) == 0) {
    finding.detail = "v2";
  } else if (access("/sys/fs/cgroup/freezer", W_OK) == 0) {
    finding.detail = "v1";
  } else {
    finding.ok = false;
    finding.detail = "none that may be written";
  }
  return finding;
}

}  // namespace

std::vector<Finding> ExamineSystem() {
  std::string criu = FindCriu();
  return {CheckKernel(),       CheckMembarrier(),     CheckFreezer(),
          CheckNamespaces(),   CheckUserNamespaces(), CheckPtraceScope(),
          CheckCapabilities(), CheckCriu(criu),       CheckCriuWorks(criu)};
}

}  // namespace stasis
