#include "intercept/control.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/message.h"
#include "base/raw_log.h"
#include "base/unix_socket.h"
#include "intercept/task_server.h"

namespace stasis {
namespace {

// Numbers above this stay with the program, whose habit of counting on low ones is not disturbed. Low enough
// that the kernel's table of descriptors does not grow for us.
constexpr int kHighestBand = 4096;
constexpr int kBandSize = 64;

int LowestOwnFd() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kHighestBand));
  return std::max(end - kBandSize, 0);
}

// What a forked child has to close: numbers, because it may use nothing else of the parent's thread.
constexpr size_t kOwnFds = 3;
constinit std::atomic<int> g_own_fds[kOwnFds] = {-1, -1, -1};

void NoteOwnFd(size_t index, int fd) { g_own_fds[index].store(fd, std::memory_order_relaxed); }

// The program's threads may be looked at by the ghost, for the stacks of those that do not return.
void LetGhostLook(bool allow) {
  // Without Yama there is no such thing to allow.
  (void)prctl(PR_SET_PTRACER, allow ? PR_SET_PTRACER_ANY : 0, 0, 0, 0);
}

bool MayControl(int connection) {
  const Result<PeerCredentials> peer = GetPeerCredentials(connection);
  return peer.ok() && (peer->uid == geteuid() || peer->uid == 0);
}

void LogFailure(const char* what, const Status& status) {
  RawLog(LogLevel::kWarning, "%s: %.*s", what, static_cast<int>(status.message().size()),
         status.message().data());
}

class Control {
 public:
  explicit Control(std::string path) : path_(std::move(path)) {}

  Status Listen() {
    ASSIGN_OR_RETURN(listener_, UnixListener::Listen(path_));
    RETURN_IF_ERROR(listener_.MoveDescriptors(LowestOwnFd()));
    NoteOwnFd(0, listener_.fd());
    NoteOwnFd(1, listener_.lock_fd());
    return {};
  }

  void Run() {
    for (;;) {
      ServeOneGhost();
      if (server_.state() != TaskState::kDeaf) continue;
      SleepDeaf();
      server_.Wake();
      const Status status = Listen();
      if (!status.ok()) LogFailure("listen again", status);
    }
  }

 private:
  // Until the ghost has gone, or has been told that we go deaf.
  void ServeOneGhost() {
    if (!AwaitConnection()) return;
    LetGhostLook(true);
    MessageDecoder decoder;
    while (server_.state() != TaskState::kDeaf && ServeRequest(decoder)) {
    }
    LetGhostLook(false);
    // Last, because it tells a ghost that waits for it that there is nothing else left.
    if (server_.state() == TaskState::kDeaf) CloseListener();
    NoteOwnFd(2, -1);
    connection_.Reset();
    server_.GhostGone();
  }

  bool AwaitConnection() {
    pollfd wait{listener_.fd(), POLLIN, 0};
    if (poll(&wait, 1, -1) <= 0) return false;
    Result<Fd> connection = listener_.Accept();
    if (!connection.ok() || !MayControl(connection->get())) return false;
    const int high = fcntl(connection->get(), F_DUPFD_CLOEXEC, LowestOwnFd());
    connection_ = high >= 0 ? Fd(high) : std::move(*connection);
    NoteOwnFd(2, connection_.get());
    return true;
  }

  bool ServeRequest(MessageDecoder& decoder) {
    Result<Message> request = ReceiveMessage(connection_.get(), decoder, Deadline::Never());
    if (!request.ok()) return false;
    return SendMessage(connection_.get(), server_.Answer(std::move(*request)), Deadline::Never()).ok();
  }

  void CloseListener() {
    NoteOwnFd(0, -1);
    NoteOwnFd(1, -1);
    listener_.Close();
  }

  // The signal is the program's too. What it sends to itself while nobody may take it here is kept and given
  // back at the end: given back at once it would come here again, if no other thread wants it.
  void SleepDeaf() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, TaskWakeSignal());
    std::vector<siginfo_t> others;
    for (;;) {
      siginfo_t info{};
      if (sigwaitinfo(&signals, &info) < 0) continue;  // a dump or a debugger has interrupted the wait
      if (reinterpret_cast<uint64_t>(info.si_value.sival_ptr) == kTaskWakeValue) break;
      others.push_back(info);
    }
    for (siginfo_t& info : others) syscall(SYS_rt_sigqueueinfo, getpid(), info.si_signo, &info);
  }

  const std::string path_;
  UnixListener listener_;
  Fd connection_;
  TaskServer server_;
};

void* RunControl(void* control) {
  pthread_setname_np(pthread_self(), kTaskThreadName);
  static_cast<Control*>(control)->Run();
  return nullptr;
}

// The new thread inherits the mask.
int StartThread(Control* control) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, RunControl, control);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace

Status StartControlThread(const std::string& task_folder) {
  auto control = std::make_unique<Control>(task_folder + "/ctl/" + std::to_string(getpid()) + ".sock");
  RETURN_IF_ERROR(control->Listen());
  const int error = StartThread(control.get());
  if (error != 0) return ErrnoStatus(error, "start the control thread");
  (void)control.release();  // the thread's for as long as the process lives
  return {};
}

void ResetControlAfterFork() {
  for (std::atomic<int>& own : g_own_fds) {
    const int fd = own.exchange(-1, std::memory_order_relaxed);
    if (fd >= 0) close(fd);
  }
}

}  // namespace stasis
