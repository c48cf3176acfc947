#include "cli/follow.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <string_view>

namespace stasis {
Result<SignalSource> SignalSource::Create(const std::vector<int>& more) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGQUIT}) sigaddset(&set, signal);
  for (int signal : more) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "signalfd");
  return SignalSource(std::move(fd));
}

int SignalSource::Next() {
  signalfd_siginfo info;
  return read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

Result<TaskFollower> TaskFollower::Create(const TaskPaths& paths) {
  Fd inotify(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify.valid()) return ErrnoStatus(errno, "inotify_init");
  TaskFollower follower(paths, std::move(inotify));
  int fd = follower.inotify_.get();
  follower.ctl_watch_ = inotify_add_watch(fd, paths.ctl.c_str(), IN_CREATE | IN_MOVED_TO);
  if (follower.ctl_watch_ < 0) return ErrnoStatus(errno, "watch " + paths.ctl);
  // The folder's watch also tells of writes to output.log, and of files replaced by rename.
  if (inotify_add_watch(fd, paths.folder.c_str(), IN_MODIFY | IN_MOVED_TO | IN_CREATE) < 0) {
    return ErrnoStatus(errno, "watch " + paths.folder);
  }
  return follower;
}

Status TaskFollower::TakeEvents() {
  alignas(inotify_event) char buffer[16 << 10];
  for (;;) {
    ssize_t got = read(inotify_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Status();
    if (got <= 0) return ErrnoStatus(got < 0 ? errno : EIO, "read inotify events");
    for (ssize_t at = 0; at < got;) {
      auto* event = reinterpret_cast<inotify_event*>(buffer + at);
      std::string_view name = event->len > 0 ? event->name : "";
      if (event->wd == ctl_watch_ && name.ends_with(".sock")) managed_ = true;
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
}

Result<TaskView> TaskFollower::AwaitVerdict() {
  for (;;) {
    RETURN_IF_ERROR(TakeEvents());
    ASSIGN_OR_RETURN(TaskFacts facts, ReadTaskFacts(paths_));
    Fd ghost;
    ASSIGN_OR_RETURN(std::optional<TaskView> view, Verdict(facts, &ghost));
    if (view) return *view;
    pollfd waits[] = {{inotify_.get(), POLLIN, 0}, {ghost.get(), POLLIN, 0}};
    if (poll(waits, 2, ghost.valid() ? -1 : 0) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
  }
}

Result<FollowResult> TaskFollower::Follow(const ProcessIdentity& identity, SignalSource& signals,
                                          const FollowOptions& options) {
  ASSIGN_OR_RETURN(LogFollower log, LogFollower::Open(paths_.File("output.log"), options.log_offset));
  Result<Fd> process = OpenPidFd(identity);
  if (!process.ok() && process.status().code() != StatusCode::kNotFound) return process.status();
  bool running = process.ok();
  while (running) {
    if (options.copy_output) {
      ASSIGN_OR_RETURN(bool read, log.Pump(STDOUT_FILENO));
      if (!read && options.stop_when_unread) return Status(StatusCode::kPeerDied, "nobody reads the output");
    }
    pollfd waits[] = {{inotify_.get(), POLLIN, 0},
                      {process->get(), POLLIN, 0},
                      {signals.fd(), POLLIN, 0},
                      {options.also, POLLIN, 0}};
    if (poll(waits, 4, -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (waits[0].revents != 0) RETURN_IF_ERROR(TakeEvents());
    while (int signal = signals.Next()) options.on_signal(signal);
    if (waits[3].revents != 0) options.on_also();
    running = waits[1].revents == 0;
  }
  if (options.copy_output) RETURN_IF_ERROR(log.Pump(STDOUT_FILENO).status());
  FollowResult result;
  ASSIGN_OR_RETURN(result.view, AwaitVerdict());
  result.managed = managed_;
  return result;
}

}  // namespace stasis
