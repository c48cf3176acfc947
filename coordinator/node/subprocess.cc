#include "coordinator/node/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/fd.h"

namespace stasis {
namespace {

constexpr size_t kMaxOutput = 1u << 20;

struct Pipe {
  Fd read_end, write_end;
};

Result<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

Result<pid_t> Spawn(const SubprocessOptions& options, int out, int error_out) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error_out, STDERR_FILENO);
  pid_t pid = 0;
  int error = posix_spawn(&pid, options.argv[0].c_str(), &actions, nullptr, PointersOf(options.argv).data(),
                          PointersOf(options.environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, "start " + options.argv[0]);
  return pid;
}

// Appends what there is; closes `fd` at the end.
Status ReadInto(Fd& fd, std::string& text) {
  char buffer[4096];
  ssize_t got = read(fd.get(), buffer, sizeof buffer);
  if (got < 0 && errno == EINTR) return Status();
  if (got < 0) return ErrnoStatus(errno, "read from a helper");
  if (got == 0) fd.Reset();
  if (got > 0 && text.size() < kMaxOutput) text.append(buffer, static_cast<size_t>(got));
  return Status();
}

// Until both ends are closed, or the process has ended: a daemon that it left behind may hold them open.
Status Collect(Fd process, Fd out, Fd error_out, SubprocessResult& result, const Deadline& deadline) {
  while (out.valid() || error_out.valid() || process.valid()) {
    pollfd waits[] = {{out.get(), POLLIN, 0}, {error_out.get(), POLLIN, 0}, {process.get(), POLLIN, 0}};
    // What the ended process wrote is there already: one look without waiting empties it.
    int timeout = process.valid() ? deadline.PollTimeout() : 0;
    int ready = poll(waits, 3, timeout);
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (ready == 0 && !process.valid()) return Status();
    if (ready == 0 && deadline.Expired()) return Status(StatusCode::kTimeout, "no answer in time");
    if (ready <= 0) continue;
    if (waits[0].revents != 0) RETURN_IF_ERROR(ReadInto(out, result.output));
    if (waits[1].revents != 0) RETURN_IF_ERROR(ReadInto(error_out, result.error_output));
    if (waits[2].revents != 0) process.Reset();
  }
  return Status();
}

}  // namespace

Result<SubprocessResult> RunSubprocess(const SubprocessOptions& options, const Deadline& deadline) {
  ASSIGN_OR_RETURN(Pipe out, MakePipe());
  ASSIGN_OR_RETURN(Pipe error_out, MakePipe());
  ASSIGN_OR_RETURN(pid_t pid, Spawn(options, out.write_end.get(), error_out.write_end.get()));
  out.write_end.Reset();
  error_out.write_end.Reset();
  Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  SubprocessResult result;
  Status collected =
      Collect(std::move(process), std::move(out.read_end), std::move(error_out.read_end), result, deadline);
  if (!collected.ok()) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  RETURN_IF_ERROR(std::move(collected).WithContext(options.argv[0]));
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return result;
}

}  // namespace stasis
