// The state machine of a task's process: what the ghost asks for, done in the order that base/task_protocol.h
// gives. Runs in the control thread alone.
//
//   Running -> Quiescing -> Drained -> Quiesced -> Released -> Deaf -> Released -> Attaching -> Quiesced
//           -> Drained -> Running
//
// The gates are open in Running only; the libraries' objects are there up to Drained. A request in a state
// that does not know it fails and changes nothing.
#ifndef INTERCEPT_TASK_SERVER_H_
#define INTERCEPT_TASK_SERVER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/message.h"
#include "base/rank_protocol.h"
#include "base/task_protocol.h"

namespace stasis {

class TaskServer {
 public:
  TaskState state() const { return state_; }
  // The ghost's connection, -1 for none: a wait for the program is over when something comes from there.
  void set_connection(int fd) { connection_ = fd; }

  // Does what is asked and says how it went.
  Message Answer(Message request);
  // The connection has ended: takes back what the ghost has begun and not made final.
  void GhostGone();
  // Deaf -> Released.
  void Wake();

 private:
  struct Reply {
    Status status;
    std::vector<std::byte> payload;
    std::vector<Fd> fds;
    std::vector<TaskBlocker> blockers;
  };

  Reply Dispatch(Message& request);
  Reply Hello(const Message& request);
  Reply ReportStatus();
  Reply ReportProgress();
  Reply Close(const Message& request);
  Status StopAtLowPoint(const TaskClose& close);
  Status ShutLibraries(const Deadline& deadline, CutReport* report, std::vector<TaskBlocker>* blockers);
  Reply Cut(const Message& request);
  Reply Drain(const Message& request);
  Status StandStill(const Deadline& deadline, std::vector<TaskBlocker>* blockers);
  Reply Hold();
  Reply GiveUp();
  Status GiveUpLibraries(std::vector<TaskBlocker>* blockers);
  void SettleMemory();
  Reply Comms();
  Reply Rejoin(const Message& request);
  Reply Handover(const Message& request);
  Reply Active(const Message& request);
  Reply ReleaseDriver(const Message& request);
  Status LetGo(TaskStrategy strategy);
  Reply PrepareDump();
  Reply Attach(const Message& request);
  Status Reattach(const TaskAttach& attach);
  Reply Import(Message& request);
  Reply Rebuild();
  Reply Resume(Message& request);
  Reply SnapshotDone();

  // kFailedPrecondition unless the process is in `state`.
  Status Expect(TaskState state) const;
  Status ExpectShut() const;
  // Undoes everything since kAttach.
  void BackToReleased();
  void Run();
  void RebuildAndRun();

  TaskState state_ = TaskState::kRunning;
  TaskStrategy strategy_ = TaskStrategy::kReconstruct;  // of the last release
  TaskQuiesced stopped_;                                // of this pause
  bool hold_ = false;                                   // the loss of the ghost lets nothing run on
  bool libraries_gone_ = false;                         // all of their objects
  std::optional<uint64_t> extents_mark_;                // of the moment when the ghost was to hold them
  int connection_ = -1;
  std::vector<TaskRange> active_;  // while the ghost asks for them batch by batch
};

}  // namespace stasis

#endif  // INTERCEPT_TASK_SERVER_H_
