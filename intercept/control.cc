#include "intercept/control.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/message.h"
#include "base/raw_log.h"
#include "base/unix_socket.h"
#include "intercept/own_descriptors.h"
#include "intercept/process.h"
#include "intercept/task_server.h"

namespace stasis {
namespace {

constexpr char kCtlFolder[] = "/ctl";

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

// The folder of the control sockets, held open while the process is deaf: a process that is restored
// elsewhere finds the descriptor on the folder that takes its place there.
class Place {
 public:
  void Hold(const std::string& folder) {
    folder_ = MoveToOwnFds(Fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
    NoteOwnFd(OwnFd::kFolder, folder_.get());
  }
  // Where it is now; `before` when that cannot be told.
  std::string LetGo(const std::string& before) {
    char path[PATH_MAX];
    const std::string link = "/proc/self/fd/" + std::to_string(folder_.get());
    const ssize_t length = folder_.valid() ? readlink(link.c_str(), path, sizeof path) : -1;
    NoteOwnFd(OwnFd::kFolder, -1);
    folder_.Reset();
    const bool whole = length > 0 && static_cast<size_t>(length) < sizeof path;
    const std::string now = whole ? std::string(path, static_cast<size_t>(length)) : before;
    // What was removed and made again has its old name, and the descriptor another one.
    return access(now.c_str(), F_OK) == 0 ? now : before;
  }

 private:
  Fd folder_;
};

class Control {
 public:
  Control(std::string folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}

  Status Listen() {
    ASSIGN_OR_RETURN(listener_, UnixListener::Listen(folder_ + kCtlFolder + "/" + name_));
    RETURN_IF_ERROR(listener_.MoveDescriptors(LowestOwnFd()));
    NoteOwnFd(OwnFd::kListener, listener_.fd());
    NoteOwnFd(OwnFd::kListenerLock, listener_.lock_fd());
    return {};
  }

  void Run() {
    for (;;) {
      ServeOneGhost();
      if (server_.state() != TaskState::kDeaf) continue;
      SleepDeaf();
      FindFolder();
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
    if (server_.state() == TaskState::kDeaf) {
      CloseListener();
      place_.Hold(folder_ + kCtlFolder);
    }
    NoteOwnFd(OwnFd::kConnection, -1);
    connection_.Reset();
    server_.set_connection(-1);
    server_.GhostGone();
  }

  bool AwaitConnection() {
    pollfd wait{listener_.fd(), POLLIN, 0};
    if (poll(&wait, 1, -1) <= 0) return false;
    Result<Fd> connection = listener_.Accept();
    if (!connection.ok() || !MayControl(connection->get())) return false;
    connection_ = MoveToOwnFds(std::move(*connection));
    NoteOwnFd(OwnFd::kConnection, connection_.get());
    server_.set_connection(connection_.get());
    return true;
  }

  bool ServeRequest(MessageDecoder& decoder) {
    Result<Message> request = ReceiveMessage(connection_.get(), decoder, Deadline::Never());
    if (!request.ok()) return false;
    return SendMessage(connection_.get(), server_.Answer(std::move(*request)), Deadline::Never()).ok();
  }

  void CloseListener() {
    NoteOwnFd(OwnFd::kListener, -1);
    NoteOwnFd(OwnFd::kListenerLock, -1);
    listener_.Close();
  }

  void FindFolder() {
    std::string ctl = place_.LetGo(folder_ + kCtlFolder);
    if (!ctl.ends_with(kCtlFolder)) return;
    ctl.resize(ctl.size() - std::strlen(kCtlFolder));
    if (ctl == folder_) return;
    folder_ = std::move(ctl);
    MoveTaskFolder(folder_);
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

  std::string folder_;  // the task's run folder
  const std::string name_;
  Place place_;
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
  auto control = std::make_unique<Control>(task_folder, std::to_string(getpid()) + ".sock");
  RETURN_IF_ERROR(control->Listen());
  const int error = StartThread(control.get());
  if (error != 0) return ErrnoStatus(error, "start the control thread");
  (void)control.release();  // the thread's for as long as the process lives
  return {};
}

}  // namespace stasis
