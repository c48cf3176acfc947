// One process of the task that uses CUDA, spoken to over its control socket (base/task_protocol.h).
#ifndef GHOST_MEMBER_H_
#define GHOST_MEMBER_H_

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/message.h"
#include "base/status.h"
#include "base/task_protocol.h"

namespace stasis {

// Set by another thread when an operation is to be given up; waits end early with kCancelled.
class CancelFlag {
 public:
  CancelFlag();
  void Set();
  void Clear();
  bool set() const { return set_; }
  Status Check() const { return set_ ? Status(StatusCode::kCancelled, "given up on request") : Status(); }
  // Readable while set.
  int fd() const { return event_.get(); }

 private:
  std::atomic<bool> set_{false};
  Fd event_;
};

// A connection. Not thread-safe.
class Member {
 public:
  // Connects to `socket_path` and says hello. `pid` is the process as this process sees it; it is looked at
  // in /proc before it is asked anything. With `appearing`, for a process that is to go on: a socket that is
  // not there yet is waited for, and so is one that is stopped; else the latter is kFailedPrecondition at
  // once.
  static Result<std::unique_ptr<Member>> Connect(const std::string& socket_path, pid_t pid,
                                                 const Deadline& deadline, bool appearing = false);

  pid_t pid() const { return pid_; }
  const TaskHello& hello() const { return hello_; }
  int32_t nspid() const { return hello_.pid; }

  // Asks for hello() anew.
  Status Greet(const Deadline& deadline);
  // Sends a request without waiting for its answer; one at a time.
  Status Send(TaskMessage type, std::vector<std::byte> payload, std::vector<Fd> fds,
              const Deadline& deadline);
  // The answer of the last request: kOk's message. A TaskError becomes its status; its blockers are appended
  // to `blockers` if that is not null. kPeerDied: the process has ended, or closed the connection.
  Result<Message> Receive(const Deadline& deadline, const CancelFlag* cancel,
                          std::vector<TaskBlocker>* blockers);
  Result<Message> Call(TaskMessage type, std::vector<std::byte> payload, std::vector<Fd> fds,
                       const Deadline& deadline);

 private:
  Member(pid_t pid, Fd socket) : pid_(pid), socket_(std::move(socket)) {}
  Status WaitReadable(const Deadline& deadline, const CancelFlag* cancel) const;

  const pid_t pid_;
  Fd socket_;
  MessageDecoder decoder_;
  uint64_t next_id_ = 0;
  TaskHello hello_;
};

// The control sockets of the living processes of `tree`: path and process. Sockets that dead ones left behind
// are passed over.
struct MemberSocket {
  std::string path;
  pid_t pid = 0;
  pid_t nspid = 0;
};
std::vector<MemberSocket> FindMembers(const std::string& ctl_folder, const std::vector<pid_t>& tree);

// Makes the control thread of a deaf process listen again.
Status WakeMember(pid_t pid);

}  // namespace stasis

#endif  // GHOST_MEMBER_H_
